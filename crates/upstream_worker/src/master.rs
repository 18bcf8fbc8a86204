//! The front's side of the pool socket towards the master of a pool.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::SendFlags;
use rustix::time::{ClockId, clock_gettime};
use sendoff_pool_messages::ToMaster;

/// The front's sender of messages to a pool's master; all event loops share it. No call waits: a
/// master that does not read its messages must not stop an event loop.
#[derive(Debug, Clone)]
pub struct Master(Arc<OwnedFd>);

impl Master {
    /// A sender for the master at the other end of the pool socket.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new(pool_socket: &OwnedFd) -> io::Result<Self> {
        Ok(Self(Arc::new(pool_socket.try_clone()?)))
    }

    /// Tells the master that a front has started. Must be called before the first worker is
    /// received: a worker that has already had a request by then served an earlier front.
    ///
    /// # Errors
    /// `WouldBlock` if the master is behind with its messages; otherwise the errors of send(2).
    pub fn front_started(&self) -> io::Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let nanoseconds = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        self.tell(&ToMaster::FrontStarted { at: nanoseconds })
    }

    /// Tells the master the wanted number of workers.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn keep_workers(&self, count: usize) -> io::Result<()> {
        self.tell(&ToMaster::Workers(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Asks for another worker in the place of process `pid`, which is stuck in `request`. The
    /// master has the worker log its PHP backtrace and ends it.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn replace(&self, pid: i32, request: &str) -> io::Result<()> {
        self.tell(&ToMaster::Replace { pid: pid.unsigned_abs(), request: request.into() })
    }

    /// Asks for the backtrace of process `pid` in the pool's slow log. The process goes on.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn trace(&self, pid: i32) -> io::Result<()> {
        self.tell(&ToMaster::Trace { pid: pid.unsigned_abs() })
    }

    /// Tells the master that a process of a program has answered a request.
    ///
    /// # Errors
    /// As [`front_started`](Self::front_started).
    pub fn has_served(&self, pid: u32) -> io::Result<()> {
        self.tell(&ToMaster::Served { pid })
    }

    /// Tells the master that a process of a program has ended while it worked on a request.
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
