//! The send timeout.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::observe::limits::Limit;

/// Runs while a client takes nothing of what is owed to it.
#[derive(Debug, Default)]
pub(crate) struct SendTimer(Option<Pin<Box<Sleep>>>);

impl SendTimer {
    /// The client takes all that it is given: the timer is not needed.
    pub(crate) fn stop(&mut self) {
        self.0 = None;
    }

    /// The client has taken a part: the time begins anew, if it runs.
    pub(crate) fn restart(&mut self, limit: Duration) {
        if let Some(timer) = &mut self.0 {
            timer.as_mut().reset(Instant::now() + limit);
        }
    }

    /// Fails when the client has taken nothing for `limit`; wakes the task then. Starts the timer if it does not run.
    ///
    /// # Errors
    /// `TimedOut`.
    pub(crate) fn check(&mut self, cx: &mut Context<'_>, limit: Duration) -> io::Result<()> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep(limit)));
        match timer.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                Limit::SendTimeout.reached();
                let why = format!("the client took nothing for {} s", limit.as_secs_f32());
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }
}
