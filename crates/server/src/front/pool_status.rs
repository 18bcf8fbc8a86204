//! Messages between workers and the front about a pool. A worker asks for the state of the pool
//! when its script calls `fpm_get_status()`, so requests cost nothing. Each worker reports PHP's
//! own state once, for `sendoff status`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::FileType;
use sendoff_config::PoolConfig;
use sendoff_report::pool_page::PoolPage;
use sendoff_report::workers::PhpReport;
use sendoff_transport::foreign;
use sendoff_transport::pipe::Pipe;
use sendoff_upstream::packets::Packets;
use sendoff_upstream_worker::pool::Pool;
use tokio::time::{sleep, timeout};

/// First byte of a report about PHP. A message with another first byte is a question, which comes
/// with a pipe for the answer.
const OF_PHP: u8 = b'p';

/// Longest time for a worker to read an answer that is larger than a pipe. Other workers of the
/// pool wait meanwhile.
const READ_LIMIT: Duration = Duration::from_millis(100);

/// Pause before a full pipe is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// Answers the workers of a pool until the last of them, and their master, has gone. Each answer
/// goes to the pipe that came with the question.
pub(super) async fn answer(socket: OwnedFd, pool: Arc<Pool>, config: Arc<PoolConfig>) {
    if let Err(error) = try_answer(socket, &pool, &config).await {
        tracing::error!(%error, pool = config.name, "fpm_get_status() will return false");
    }
}

async fn try_answer(socket: OwnedFd, pool: &Pool, config: &PoolConfig) -> io::Result<()> {
    let packets = Packets::new(socket)?;
    while let Some((message, mut pipes)) = packets.next(1 + PhpReport::MAX).await? {
        if let Some((&OF_PHP, said)) = message.split_first() {
            PhpReport::parse(said).into_iter().for_each(|said| pool.set_php(said));
            foreign::close(pipes);
            continue;
        }
        // A question without a pipe gets no answer.
        if pipes.len() != 1 || !is_pipe(&pipes[0]) {
            foreign::close(pipes);
            continue;
        }
        let Some(to) = pipes.pop_front() else { continue };
        pool.describe_requests();
        let page = PoolPage {
            name: &config.name,
            policy: config.workers,
            report: pool.report(),
            workers: Some(pool.worker_reports()),
            now: SystemTime::now(),
        };
        // Fails if the worker has given up.
        let _ = timeout(READ_LIMIT, say(to, page.as_array().as_bytes())).await;
    }
    Ok(())
}

fn is_pipe(descriptor: &OwnedFd) -> bool {
    let stat = rustix::fs::fstat(descriptor);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Writes to a pipe that the worker has, too. The worker may have cleared `O_NONBLOCK`, so write(2)
/// would block on a full pipe; splice(2) from another pipe does not.
async fn say(to: OwnedFd, mut text: &[u8]) -> io::Result<()> {
    let mut pipe = Pipe::take().ok_or(io::ErrorKind::QuotaExceeded)?;
    while !text.is_empty() {
        text = &text[pipe.put(text)?..];
        while !pipe.is_empty() {
            match pipe.drain(&to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(RETRY).await,
                drained => drop(drained?),
            }
        }
    }
    pipe.give_back();
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn a_worker_that_does_not_read_stops_no_event_loop() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // A pipe without `O_NONBLOCK`, and more bytes than it holds.
            let (_worker, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            assert!(is_pipe(&to));
            let answer = vec![b'a'; 1 << 20];
            assert!(timeout(READ_LIMIT, say(to, &answer)).await.is_err());
        });
    }
}
