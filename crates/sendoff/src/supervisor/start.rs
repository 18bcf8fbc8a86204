//! The time between the start of the server and the moment when its front is ready.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use crate::failure::Failure;

/// Time after which the log says that the server still starts. A start takes less than a second;
/// only code of others takes longer: scripts that PHP preloads, and extensions.
const SLOW_START: Duration = Duration::from_secs(10);

/// The wait for the front.
pub(super) struct Start {
    /// The read end of the pipe on which the front reports that it is ready.
    ready: pipe::Receiver,
    /// The time for the message about a slow start; `None` once it is logged.
    notice: Option<Instant>,
}

impl Start {
    /// The wait for the front that has the other end of this pipe.
    pub(super) fn new(ready: OwnedFd) -> io::Result<Self> {
        let ready = pipe::Receiver::from_owned_fd(ready)?;
        Ok(Self { ready, notice: Some(Instant::now() + SLOW_START) })
    }

    /// Completes when the front is ready. Cancel safe.
    pub(super) async fn end(&mut self) -> Result<(), Failure> {
        if let Some(notice) = self.notice {
            tokio::select! {
                biased;
                read = self.ready.read_u8() => return done(read),
                () = sleep_until(notice) => {}
            }
            self.notice = None;
            tracing::warn!(
                "the server is not ready after {} s: PHP still starts; a script that it preloads, or an extension, may hold it up",
                SLOW_START.as_secs()
            );
        }
        done(self.ready.read_u8().await)
    }
}

fn done(read: io::Result<u8>) -> Result<(), Failure> {
    read.map(drop).map_err(Failure::system("the front closed its pipe"))
}
