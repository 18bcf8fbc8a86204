//! A worker on one connection that any web server has opened to a listening socket (FastCGI §2.2, §3.5).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use sendoff_fastcgi::record::Kind;

use super::{Response, Worker};
use crate::direct::Direct;
use crate::input::Input;
use crate::output::Shared;
use crate::peer::{Peer, Role, Roles};
use crate::request::{Phase, Request};
use crate::{Bad, Gone};

/// How long a server that still sends may be silent before its connection is closed in its face, and how often it is
/// listened to at most.
const LINGER: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
const LINGER_READS: usize = 1 << 16;

impl Worker {
    /// Takes an accepted connection, UNIX or TCP. Such a worker has no guard, starts no thread, and goes on in a forked
    /// child if the parent leaves it alone from then on.
    #[must_use]
    pub fn on_connection(connection: OwnedFd, roles: Roles) -> Self {
        // What is flushed shall leave. It fails on UNIX sockets, which do not wait.
        let _unix = set_tcp_nodelay(&connection, true);
        Self {
            shared: Arc::new(Shared::for_any_process(connection)),
            inputs: vec![Input::default()],
            request: Request::default(),
            response: Response::default(),
            peer: Peer::Server(roles),
            deaf: false,
            helper: None,
            channel: None,
        }
    }

    /// [`Self::accept`] for a worker on a connection: the request is at hand as soon as its parameters are, and a
    /// signal ends the waiting for one.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran while no request had begun.
    pub fn accept_on_connection(&mut self) -> io::Result<bool> {
        if !self.end_request() || self.deaf {
            return Ok(false);
        }
        match self.next_on_connection() {
            Ok(came) => {
                self.response = Response::default();
                Ok(came && !self.shared.lock().lost)
            }
            Err(Bad::Io(error)) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(_broken_off) => {
                self.deaf = true;
                Ok(false)
            }
        }
    }

    fn next_on_connection(&mut self) -> Result<bool, Bad> {
        loop {
            self.take_parts(0)?;
            if self.deaf {
                return Ok(false);
            }
            if self.request.phase == Phase::Ready {
                return Ok(true);
            }
            if self.request.phase == Phase::Idle {
                // Not restarted, whatever the handler's flags.
                let mut polled = [PollFd::new(&self.shared.links[0], PollFlags::IN)];
                poll(&mut polled, None).map_err(io::Error::from)?;
            }
            if !self.receive_when_idle(0)? {
                return Ok(false);
            }
        }
    }

    /// The input has ended in the middle of something or makes no sense. A front is then lost; a web server that has
    /// only closed its half of the connection gets its answer. One that has lent a client's socket is a front, and what
    /// it says to the client next must not be answered over.
    pub(super) fn give_up_input(&mut self) {
        self.deaf = true;
        // Unless we closed our ear ourselves.
        let is_lent = !self.shared.is_stopping() && !matches!(self.request.direct, Direct::Unasked);
        if is_lent || !self.peer.may_half_close() {
            self.shared.lock().lost = true;
        }
    }

    /// Whether this worker is on a connection that a web server opened.
    #[must_use]
    pub fn is_on_connection(&self) -> bool {
        matches!(self.peer, Peer::Server(_))
    }

    /// What the request at hand asks the application to be.
    #[must_use]
    pub fn role(&self) -> Role {
        self.request.role
    }

    /// FastCGI's number of the request at hand.
    #[must_use]
    pub fn request_id(&self) -> u16 {
        self.request.id
    }

    /// Whether the server wants the connection kept after the request at hand, and it is in a state to be.
    #[must_use]
    pub fn keeps_connection(&self) -> bool {
        self.request.keep_conn && !self.deaf && !self.shared.lock().lost
    }

    /// Reads the file that a filter is to change. Read the body first: what arrives of it meanwhile takes memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_data(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_stream(Kind::DATA, buf)
    }

    /// Queues bytes for the server's log, as they are.
    ///
    /// # Errors
    /// The client has gone.
    pub fn write_stderr(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if self.is_closed() {
            return Err(Gone);
        }
        if !bytes.is_empty() {
            self.put_stderr(bytes);
        }
        Ok(())
    }

    /// Ends the response and the connection. A server that is still sending its request is heard out, because closing
    /// in its face would destroy what it has not read of the answer.
    pub fn close(mut self) {
        let cut_short = self.request.phase == Phase::Ready && !self.request.is_complete();
        let unread = cut_short || self.deaf;
        self.finish(0, false);
        let connection = &self.shared.links[0];
        if shutdown(connection, Shutdown::Write).is_err() || !unread {
            return;
        }
        let mut trash = [0_u8; 16 * 1024];
        for _ in 0..LINGER_READS {
            match poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&LINGER)) {
                Ok(1) => {}
                Err(Errno::INTR) => continue,
                _ => return,
            }
            match recv(connection, &mut trash, RecvFlags::DONTWAIT) {
                Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR) => {}
                _ => return,
            }
        }
    }
}
