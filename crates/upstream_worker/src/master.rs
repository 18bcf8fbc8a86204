//! The front's side of the pool socket towards the master of a pool.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::SendFlags;
use rustix::time::{ClockId, clock_gettime};
use sendoff_pool::ToMaster;

/// The master of a pool, as far as the front talks to it. One for all event loops. No call waits: a master that does not read
/// its messages must not stop an event loop.
#[derive(Debug, Clone)]
pub struct Master(Arc<OwnedFd>);

impl Master {
    /// The master at the other end of the pool socket.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn new(pool_socket: &OwnedFd) -> io::Result<Self> {
        Ok(Self(Arc::new(pool_socket.try_clone()?)))
    }

    /// Says that a front has started. To be called before the first worker is received: every worker that has had a
    /// request by now served a front that is gone.
    ///
    /// # Errors
    /// `WouldBlock`: the master is behind with its messages. Those of `send(2)`.
    pub fn front_started(&self) -> io::Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let nanoseconds = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        self.tell(&ToMaster::FrontStarted { at: nanoseconds })
    }

    /// Says how many workers there should be.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn keep_workers(&self, count: usize) -> io::Result<()> {
        self.tell(&ToMaster::Workers(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Asks for another worker in the place of process `pid`, which does not come back from `request`. The master has the
    /// worker log its PHP backtrace and ends it.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn replace(&self, pid: i32, request: &str) -> io::Result<()> {
        self.tell(&ToMaster::Replace { pid: pid.unsigned_abs(), request: request.into() })
    }

    /// Asks for the backtrace of process `pid`, which goes on, in the pool's slow log.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn trace(&self, pid: i32) -> io::Result<()> {
        self.tell(&ToMaster::Trace { pid: pid.unsigned_abs() })
    }

    /// Says that a process of a program has answered a request.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn has_served(&self, pid: u32) -> io::Result<()> {
        self.tell(&ToMaster::Served { pid })
    }

    /// Says that a process of a program has ended at work on a request.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn died_at_work(&self) -> io::Result<()> {
        self.tell(&ToMaster::DiedAtWork)
    }

    fn tell(&self, message: &ToMaster<'_>) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::send(self.0.as_fd(), &message.encode(), flags)?;
        Ok(())
    }
}
