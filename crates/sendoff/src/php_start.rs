//! The start of PHP in a master, and its time limit.

use std::fmt;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

/// The start of PHP in a child.
#[derive(Debug)]
pub(crate) enum PhpStart {
    /// The child starts PHP.
    Running {
        /// The read end of the pipe into which the child writes a byte when PHP has started.
        started: pipe::Receiver,
        limit: Duration,
        deadline: Instant,
    },
    /// PHP has started, the child has ended, or it is a child without PHP.
    Over,
}

/// PHP has not started within this time.
#[derive(Debug)]
pub(crate) struct TooSlow(Duration);

impl PhpStart {
    /// The start of PHP in a child that begins now, and the end of the pipe for the child.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn within(limit: Duration) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let started = pipe::Receiver::from_owned_fd(ours)?;
        Ok((Self::Running { started, limit, deadline: Instant::now() + limit }, theirs))
    }

    /// Completes when the time limit passes; never if PHP has started before. Cancel safe.
    pub(crate) async fn is_too_slow(&mut self) -> TooSlow {
        if let Self::Running { started, limit, deadline } = self {
            tokio::select! {
                biased;
                // The pipe is closed when the child has ended.
                _ = started.read_u8() => {}
                () = sleep_until(*deadline) => return TooSlow(*limit),
            }
            *self = Self::Over;
        }
        pending().await
    }
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "has not started PHP within {:?}: an extension, a preloaded script or a settings file \
             holds it up (start_timeout of the pool sets the limit)",
            self.0
        )
    }
}
