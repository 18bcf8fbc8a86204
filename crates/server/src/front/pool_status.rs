//! The state of a pool for `fpm_get_status()`: a worker asks when its script calls the function, so requests cost nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sendoff_config::PoolConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::observe::pool_page::PoolPage;
use crate::upstream::{Packets, Pool};

/// Bytes of a question, which says nothing but that it is one.
const QUESTION_LEN: usize = 1;

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
    while let Some((_question, mut pipes)) = packets.next(QUESTION_LEN).await? {
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
