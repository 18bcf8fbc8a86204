//! The connection on which the application answers a request in HTTP/1.1, and may then switch to
//! another protocol (`docs/handover.md` §10).

use std::os::fd::OwnedFd;

use sendoff_link::worker::Request;

use super::Worker;

impl Worker {
    /// True if the application may answer the current request on a connection of its own.
    #[must_use]
    pub fn has_tunnel(&self) -> bool {
        let is_unanswered = self.response.open().is_some_and(|open| open.takes_named());
        is_unanswered && self.requests.running().is_some_and(Request::has_tunnel)
    }

    /// Ends the request on this link, and returns the connection on which the application answers
    /// it. `None`: there is none, the response has begun, or the client has gone.
    pub fn tunnel(&mut self) -> Option<OwnedFd> {
        if !self.has_tunnel() || self.look_for_abort().is_err() || self.is_closed() {
            return None;
        }
        let request = self.requests.running_mut()?;
        let tunnel = request.take_tunnel()?;
        let id = request.id();
        let mut state = self.shared.lock();
        self.response.open_mut()?.tunnel(&mut state.queue, id);
        drop(state);
        self.finish(0, false);
        Some(tunnel)
    }
}
