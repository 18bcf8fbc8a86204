//! A worker on one connection that any web server has opened to a listening socket (FastCGI §2.2,
//! §3.5).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use sendoff_fastcgi::channel::Announcement;
use sendoff_fastcgi::record::Kind;
use sendoff_link::worker::{Peer, Request, Response, Role, Roles};

use super::Worker;
use crate::output::SharedOutput;
use crate::{Bad, Gone};

/// Lingering close: the idle timeout of a server that is still sending, and the number of reads
/// after which the connection is closed in any case.
const LINGER: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
const LINGER_READS: usize = 1 << 16;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Worker {
    /// Takes an accepted connection, UNIX or TCP. Such a worker has no guard, starts no thread, and
    /// may be used in a forked child if the parent no longer uses it.
    #[must_use]
    pub fn on_connection(connection: OwnedFd, roles: Roles) -> Self {
        // Flushed output must leave at once. This fails on UNIX sockets, which never delay output.
        let _unix = set_tcp_nodelay(&connection, true);
        Self::with(Arc::new(SharedOutput::for_any_process(connection)), Peer::Server(roles))
    }

    /// [`Self::accept`] for a worker on a connection: it returns as soon as the parameters have
    /// arrived, and a signal interrupts it.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran while no request had begun.
    pub fn accept_on_connection(&mut self) -> io::Result<bool> {
        let is_sending = self.is_sending();
        if !self.end_request() || self.input_ended {
            self.input_ended |= is_sending;
            return Ok(false);
        }
        match self.next_on_connection() {
            Ok(came) => {
                self.response = Response::new();
                Ok(came && !self.shared.lock().lost)
            }
            Err(Bad::Io(error)) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(_broken_off) => {
                self.input_ended = true;
                Ok(false)
            }
        }
    }

    /// True if the server has not sent all of the current request.
    fn is_sending(&self) -> bool {
        self.requests.running().is_some_and(|request| !request.is_complete())
    }

    fn next_on_connection(&mut self) -> Result<bool, Bad> {
        loop {
            self.take_parts(0)?;
            if self.input_ended {
                return Ok(false);
            }
            if self.requests.running().is_some() {
                return Ok(true);
            }
            if self.requests.is_idle() && !self.wait_for_bytes()? || !self.receive_when_idle(0)? {
                return Ok(false);
            }
        }
    }

    /// Waits between two requests. `false`: the worker is to stop, and no request has arrived.
    fn wait_for_bytes(&self) -> io::Result<bool> {
        let wait = &self.shared.wait;
        let may_wait = wait.begin();
        let limit = (!may_wait).then_some(&NO_TIME);
        // A signal interrupts this call even if its handler was installed with `SA_RESTART`.
        let polled = poll(&mut [PollFd::new(&self.shared.links[0], PollFlags::IN)], limit);
        let goes_on = !may_wait || wait.end();
        Ok(polled? > 0 && goes_on)
    }

    /// Tells the front at the end of each response from now on that this application may answer on
    /// links of a [`crate::Sender`].
    pub fn hands_over(&mut self) {
        self.hands_over = true;
    }

    /// The channel of the front that sent the current request, if it announced one.
    #[must_use]
    pub(crate) fn announcement(&self) -> Option<&Announcement> {
        self.requests.running()?.announcement()
    }

    /// True if the current request's method is `HEAD`.
    #[must_use]
    pub(crate) fn is_head(&self) -> bool {
        self.requests.running().is_some_and(Request::is_head)
    }

    /// The role that the current request asks for.
    #[must_use]
    pub fn role(&self) -> Role {
        self.requests.running().map(Request::role).unwrap_or_default()
    }

    /// FastCGI's id of the current request.
    #[must_use]
    pub fn request_id(&self) -> u16 {
        self.requests.running().map(Request::id).unwrap_or_default()
    }

    /// True if the server wants the connection kept after the current request, and the connection
    /// is still usable.
    #[must_use]
    pub fn keeps_connection(&self) -> bool {
        self.requests.keeps_link() && !self.input_ended && !self.shared.lock().lost
    }

    /// Reads the input file of a filter (FastCGI §6.4). Read the body first: bytes of the file that
    /// arrive meanwhile are kept in memory.
    ///
    /// # Errors
    /// Same as [`Self::read`].
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

    /// Cuts the response off: written output is sent, but no end of the response, and no further
    /// request is accepted. The web server sees the connection close in the middle of a response.
    pub(crate) fn cut(&mut self) {
        // If the client has gone, there is nothing to send.
        let _gone = self.flush();
        let mut state = self.shared.lock();
        // It fails only if the other end has closed the connection.
        let _closed = shutdown(&self.shared.links[0], Shutdown::Both);
        state.lost = true;
        state.discard_queue();
    }

    /// Ends the response and the connection. If the server is still sending its request, the rest
    /// is read first (lingering close): a reset would destroy the part of the response that it has
    /// not read.
    pub fn close(mut self) {
        let unread = self.is_sending() || self.input_ended;
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
