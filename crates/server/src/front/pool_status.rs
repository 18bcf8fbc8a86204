//! What workers and the front tell each other about a pool. For `fpm_get_status()` a worker asks when its script calls the function, so
//! requests cost nothing. What PHP has at work, for `sendoff status`, each worker says once.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sendoff_config::PoolConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::observe::pool_page::PoolPage;
use crate::upstream::{Packets, PhpReport, Pool};

/// The first byte of a message that says what PHP has at work. Any other is a question, which comes with a pipe for the answer.
const OF_PHP: u8 = b'p';

/// How long a worker may take to read an answer that is larger than a pipe. Other workers of the pool wait for it.
const READ_LIMIT: Duration = Duration::from_millis(100);

/// Answers the workers of a pool until the last of them, and their master, has gone. The answer goes to the pipe that comes with
/// the question.
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
            continue;
        }
        // What is no pipe gets no answer.
        let Some(Ok(mut to)) = pipes.pop_front().map(pipe::Sender::from_owned_fd) else { continue };
        pool.describe_requests();
        let page = PoolPage {
            name: &config.name,
            policy: config.workers,
            report: pool.report(),
            workers: Some(pool.worker_reports()),
            now: SystemTime::now(),
        };
        // The worker may have given up.
        let _ = timeout(READ_LIMIT, to.write_all(page.as_array().as_bytes())).await;
    }
    Ok(())
}
