//! Waiting for requests on links that the front made.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use sendoff_link::worker::{Request, Response};

use super::Worker;
use super::ring::REQUEST_ID;
use crate::input::RecordInput;
use crate::{Bad, log};

/// The application starts once this number of body bytes has arrived in `STDIN` records. If a link
/// is reset before the worker has read everything, the front gives the request to another worker,
/// and this one must not have run it.
const WHOLE_BODY: usize = 64 * 1024;

impl Worker {
    /// Waits for the next request; `false` if there will be none and the process should end. Ends
    /// the current one first.
    pub fn accept(&mut self) -> bool {
        if self.shared.is_forked() {
            return false;
        }
        if !self.end_request() {
            return false;
        }
        match self.next_request() {
            Ok(came) => {
                self.response = Response::new();
                let taken = self.taken_from_ring();
                let mut state = self.shared.lock();
                if let Some(link) = self.requests.link() {
                    state.link = link;
                }
                // The front learns of it with the beginning of the response.
                if let Some((number, at)) = taken {
                    state.queue.taken(REQUEST_ID, number, at);
                }
                came && !state.lost
            }
            Err(bad) => {
                log(format_args!("giving up the link: {bad}"));
                false
            }
        }
    }

    /// Ends the current request. `false`: the link carries no further request.
    pub(super) fn end_request(&mut self) -> bool {
        if self.requests.is_idle() {
            return true;
        }
        let keeps_link = self.requests.keeps_link();
        self.finish(0, false);
        self.ready();
        self.requests.end();
        keeps_link
    }

    fn next_request(&mut self) -> Result<bool, Bad> {
        let mut link = self.inputs.iter().position(RecordInput::has_bytes);
        loop {
            let at = match link {
                Some(at) => at,
                None if self.take_from_ring()? => return Ok(true),
                None => {
                    let Some(at) = self.wait_for_input()? else { return Ok(false) };
                    at
                }
            };
            self.take_parts(at)?;
            let begins =
                |request: &Request<_>| request.is_aborted() || request.body_arrived(WHOLE_BODY);
            if self.requests.running().is_some_and(begins) {
                self.note_request();
                return Ok(true);
            }
            // Once a request has begun, only its link is read.
            link = (!self.requests.is_idle()).then_some(at);
            if link.is_some() {
                self.note_request();
            }
            if link.is_some() && self.receive(at)? == 0 {
                return Err(Bad::Cut);
            }
        }
    }

    /// Waits for the links and receives from the first link with bytes. `None`: a link was
    /// closed, and no link has bytes.
    fn wait_for_input(&mut self) -> Result<Option<usize>, Bad> {
        if self.inputs.len() == 1 {
            return Ok(self.receive_when_idle(0)?.then_some(0));
        }
        let mut polled: Vec<PollFd<'_>> =
            self.shared.links.iter().map(|link| PollFd::new(link, PollFlags::IN)).collect();
        while let Err(error) = poll(&mut polled, None) {
            if error != Errno::INTR {
                return Err(io::Error::from(error).into());
            }
        }
        let is_ready = |link: &PollFd<'_>| !link.revents().is_empty();
        let ready: Vec<usize> = (0..polled.len()).filter(|at| is_ready(&polled[*at])).collect();
        for at in ready {
            if self.receive_when_idle(at)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Receives between two requests. `false`: the front has closed the link.
    pub(super) fn receive_when_idle(&mut self, at: usize) -> Result<bool, Bad> {
        match self.receive(at) {
            Ok(0) if self.inputs[at].at_boundary() => Ok(false),
            Ok(0) => Err(Bad::Cut),
            Ok(_) => Ok(true),
            // The front died with unread bytes from this end; this counts as a regular close.
            Err(Bad::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(bad) => Err(bad),
        }
    }
}
