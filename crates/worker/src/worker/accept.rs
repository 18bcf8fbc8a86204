//! Waiting for requests on links that the front made.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use sendoff_link::worker::{Request, Response};

use super::Worker;
use crate::input::Input;
use crate::{Bad, log};

/// Bytes of a request body in `STDIN` records that the application's start waits for. A front that finds a link reset
/// while the worker had not read everything gives the request to another worker, which must not run it twice.
const WHOLE_BODY: usize = 64 * 1024;

impl Worker {
    /// Waits for the next request; `false` when none will come and the process should end. Ends the current one first.
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
                let mut state = self.shared.lock();
                if let Some(link) = self.requests.link() {
                    state.link = link;
                }
                came && !state.lost
            }
            Err(bad) => {
                log(format_args!("giving up the link: {bad}"));
                false
            }
        }
    }

    /// Ends the current request. `false`: no other may come on its link.
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
        let mut link = self.inputs.iter().position(Input::has_bytes);
        loop {
            let at = match link {
                Some(at) => at,
                None => {
                    let Some(at) = self.wait_for_input()? else { return Ok(false) };
                    at
                }
            };
            self.take_parts(at)?;
            let begins =
                |request: &Request<_>| request.is_aborted() || request.body_arrived(WHOLE_BODY);
            if self.requests.running().is_some_and(begins) {
                return Ok(true);
            }
            // Once a request has begun, only its link is read.
            link = (!self.requests.is_idle()).then_some(at);
            if link.is_some() && self.receive(at)? == 0 {
                return Err(Bad::Cut);
            }
        }
    }

    /// Waits for the links and receives from the first that has bytes. `None`: a link was closed, and none has bytes.
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

    /// `false`: the front closed the link between two requests.
    pub(super) fn receive_when_idle(&mut self, at: usize) -> Result<bool, Bad> {
        match self.receive(at) {
            Ok(0) if self.inputs[at].at_boundary() => Ok(false),
            Ok(0) => Err(Bad::Cut),
            Ok(_) => Ok(true),
            // The front died with unread bytes from this end; that is treated like a regular close.
            Err(Bad::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(bad) => Err(bad),
        }
    }
}
