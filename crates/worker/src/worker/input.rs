//! Input: passes parts to the protocol, and body bytes to the application.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::record::Kind;
use sendoff_link::worker::{AfterSend, ClientWriter, Error, Event, Peer, ReadStep, Request};

use super::Worker;
use crate::client;
use crate::{Bad, Gone, log};

impl Worker {
    pub(super) fn receive(&mut self, at: usize) -> Result<usize, Bad> {
        Ok(self.inputs[at].receive(self.shared.links[at].as_fd())?)
    }

    /// Processes the received bytes, up to the end of a request. `false`: there were none.
    pub(super) fn take_parts(&mut self, at: usize) -> Result<bool, Bad> {
        let mut took = false;
        while !self.requests.running().is_some_and(Request::is_complete) {
            let Some(part) = self.inputs[at].next()? else { break };
            self.take_part(at, part)?;
            took = true;
        }
        Ok(took)
    }

    pub(super) fn take_part(&mut self, at: usize, part: RecordPart) -> Result<(), Bad> {
        match self.requests.take(at, part, self.inputs[at].descriptors())? {
            Event::None => Ok(()),
            Event::CheckBody { request_id, file, length } => {
                check_body(&file, length)?;
                Ok(self.requests.body_file(request_id, file, length)?)
            }
            Event::Ring { seat, requests, claims } => self.map_ring(seat, &requests, &claims),
            Event::Look => {
                self.note_asked();
                Ok(())
            }
            Event::Withdrawn(number) => {
                self.note_withdrawn(number);
                Ok(())
            }
            Event::Send { records, next } => {
                self.say(at, &records);
                match next {
                    AfterSend::GoOn => Ok(()),
                    AfterSend::Ended => {
                        self.input_ended = true;
                        Ok(())
                    }
                    AfterSend::Close => Err(Bad::Refused),
                }
            }
        }
    }

    /// Sends whole records that belong to no response.
    fn say(&mut self, at: usize, records: &[u8]) {
        let mut state = self.shared.lock();
        if state.lost {
            return;
        }
        if self.requests.link() == Some(at) {
            // They are sent with the response.
            state.queue.raw(records);
            return;
        }
        // Between requests the queue is empty, even if its last link was another one.
        state.link = at;
        state.queue.raw(records);
        let _lost_is_noted = self.shared.flush(state);
    }

    /// True if the front accepts file segments in this request.
    #[must_use]
    pub fn accepts_files(&self) -> bool {
        self.requests.running().is_some_and(Request::accepts_files)
    }

    /// Reads the request body. 0: the end.
    ///
    /// # Errors
    /// An error of `pread(2)`, or `ECONNRESET` if the link was lost before the end.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_stream(Kind::STDIN, buf)
    }

    pub(super) fn read_stream(&mut self, kind: Kind, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(request) = self.requests.running_mut().filter(|_| !buf.is_empty()) else {
                return Ok(0);
            };
            let is_aborted = request.is_aborted();
            let body = request.stream_mut(kind);
            match body.read(buf) {
                ReadStep::Bytes(n) => return Ok(n),
                ReadStep::End => return Ok(0),
                ReadStep::FromFile { offset, len } => {
                    let file = body.file().ok_or(Errno::IO)?;
                    let n = rustix::io::pread(file, &mut buf[..len], offset)?;
                    if n == 0 && len > 0 {
                        return Err(Errno::IO.into());
                    }
                    body.advance(n);
                    return Ok(n);
                }
                ReadStep::Receive => {}
            }
            if self.input_ended || is_aborted || self.shared.is_forked() {
                return Err(Errno::CONNRESET.into());
            }
            self.receive_more(|_| true)?;
        }
    }

    /// Waits until [`Self::read`] would not wait: body bytes, the end of the body or an error have
    /// come. `false`: `wake` has become readable, or `timeout` is over, or a signal handler ran.
    /// `None` as the timeout: no limit.
    pub fn await_body(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> bool {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let Some(request) = self.requests.running() else { return true };
            let may_arrive = !request.body_is_readable() && !request.is_aborted();
            if !may_arrive || self.input_ended || self.shared.is_forked() {
                return true;
            }
            let may_receive = |link: BorrowedFd<'_>| {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                wait_for_either(link, wake, left)
            };
            match self.receive_more(may_receive) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Processes more of the current request: received bytes, or what it receives from the link.
    /// `false`: there are no received bytes, and `may_receive` does not want to wait for the link.
    ///
    /// # Errors
    /// `ECONNRESET`: the input has ended.
    fn receive_more(
        &mut self,
        may_receive: impl FnOnce(BorrowedFd<'_>) -> bool,
    ) -> io::Result<bool> {
        let at = self.requests.link().unwrap_or_default();
        let more = match self.take_parts(at) {
            Ok(true) => Ok(()),
            Ok(false) if !may_receive(self.shared.links[at].as_fd()) => return Ok(false),
            Ok(false) => match self.receive(at) {
                Ok(0) => Err(Bad::Cut),
                other => other.map(drop),
            },
            Err(bad) => Err(bad),
        };
        more.map(|()| true).map_err(|bad| {
            self.give_up_input();
            self.complain(format_args!("request body: {bad}"));
            Errno::CONNRESET.into()
        })
    }

    /// Handles input that has ended in the middle of a request or is malformed. A front counts as
    /// lost then; a web server that has only closed its half of the connection still gets its
    /// response. A peer that has lent a client's socket is a front, and may write to the client
    /// itself next, so this worker must not write any more.
    fn give_up_input(&mut self) {
        self.input_ended = true;
        // Unless this end has shut the half down itself.
        let has_lent = self.requests.running().is_some_and(|request| request.client.is_lent());
        let is_lent = !self.shared.is_stopping() && has_lent;
        if is_lent || !self.requests.peer().may_half_close() {
            self.shared.lock().lost = true;
        }
    }

    /// Logs a protocol violation of a front. Violations of web servers are not logged: they close
    /// connections when a client leaves.
    fn complain(&self, what: std::fmt::Arguments<'_>) {
        if matches!(self.requests.peer(), Peer::Front) {
            log(what);
        }
    }

    /// True if the client has gone. Checks the link without waiting. Behind body bytes that have
    /// not been read it finds nothing, so that the body does not gather in memory.
    pub fn aborted(&mut self) -> bool {
        self.await_body(None, Some(Duration::ZERO));
        let Some(request) = self.requests.running() else { return false };
        self.shared.is_forked()
            || request.is_aborted()
            || self.shared.lock().lost
            || self.look_for_abort().is_err()
            || self.notice_lost_peer()
    }

    /// True if the web server has closed the connection, and not only its half, so that it will not
    /// read a response; the link then counts as lost. A UNIX socket reports that at once; a TCP socket only after a write.
    fn notice_lost_peer(&mut self) -> bool {
        let Some(at) = self.requests.link().filter(|_| self.input_ended) else { return false };
        let mut polled = [PollFd::new(&self.shared.links[at], PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut polled, Some(&now)), Ok(1)) {
            return false;
        }
        let mut state = self.shared.lock();
        state.lost = true;
        state.discard_queue();
        true
    }

    /// True if output is refused: there is no request, or its response has ended, or the client has
    /// gone.
    pub(super) fn is_closed(&self) -> bool {
        self.response.open().is_none()
            || self.requests.running().is_none_or(Request::is_aborted)
            || self.shared.is_forked()
            || self.shared.lock().lost
    }

    /// Reads a message of the front about the current request, which can only be `ABORT_REQUEST`. A
    /// body that is still arriving is left to `read`.
    pub(super) fn look_for_abort(&mut self) -> Result<(), Gone> {
        let Some(request) = self.requests.running() else { return Ok(()) };
        let at = request.link();
        if self.input_ended || self.response.open().is_none() || !request.is_complete() {
            return Ok(());
        }
        let mut polled = [PollFd::new(&self.shared.links[at], PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut polled, Some(&now)), Ok(1)) {
            return Ok(());
        }
        let looked = match self.receive(at) {
            // This end has shut its half down itself.
            Ok(0) if self.shared.is_stopping() => Ok(()),
            Ok(0) => Err(Bad::Cut),
            Ok(_) => self.take_late_parts(at),
            Err(bad) => Err(bad),
        };
        if let Err(bad) = looked {
            self.complain(format_args!("giving up the link: {bad}"));
            self.give_up_input();
        }
        let mut state = self.shared.lock();
        let lost = state.lost;
        if lost || self.requests.running().is_some_and(Request::is_aborted) {
            state.discard_queue();
            drop(state);
            if lost {
                self.cut_client();
            }
            return Err(Gone);
        }
        Ok(())
    }

    fn take_late_parts(&mut self, at: usize) -> Result<(), Bad> {
        while let Some(part) = self.inputs[at].next()? {
            self.take_part(at, part)?;
        }
        Ok(())
    }

    /// Ends the response to the client as incomplete.
    pub(super) fn cut_client(&mut self) {
        if let Some(request) = self.requests.running_mut()
            && let ClientWriter::Writing(writing) = &request.client
        {
            client::cut(writing);
            request.client = ClientWriter::Front;
        }
    }
}

/// Waits until `link` can be read. `false`: only `wake` can be read, or `timeout` is over, or a
/// signal handler ran.
fn wait_for_either(
    link: BorrowedFd<'_>,
    wake: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> bool {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let second = wake.unwrap_or(link);
    let mut polled = [PollFd::new(&link, PollFlags::IN), PollFd::new(&second, PollFlags::IN)];
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => !polled[0].revents().is_empty(),
        Err(Errno::INTR) => false,
        // The read reports what is wrong with the link.
        Err(_) => true,
    }
}

fn check_body(file: &OwnedFd, length: u64) -> Result<(), Bad> {
    let stat = fstat(file).map_err(io::Error::from)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file && u64::try_from(stat.st_size).unwrap_or(0) >= length {
        Ok(())
    } else {
        Err(Error::BodyFile.into())
    }
}
