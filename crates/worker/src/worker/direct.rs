//! Writing a response to the client's own socket, which the front sent along with the request
//! (`docs/handover.md` §7).

use sendoff_fastcgi::handover::Record;
use sendoff_link::worker::{ClientWriter, Unsent};

use super::Worker;
use crate::{Gone, client};

impl Worker {
    /// Writes the queued bytes and `data` to the client, if this worker has its socket. Returns the
    /// part of `data` that must go over the link, after the bytes that are queued then.
    ///
    /// # Errors
    /// The client has gone.
    pub(super) fn write_to_client<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8], Gone> {
        self.begin_direct(data);
        self.go_on_direct(data, false)
    }

    /// Sends bytes to the client that the kernel holds back.
    pub(super) fn push_to_client(&mut self) {
        if let Some(request) = self.requests.running_mut()
            && let ClientWriter::Writing(writing) = &mut request.client
        {
            client::push(writing);
        }
    }

    /// Ends the response; always closes the client's socket here.
    pub(super) fn end_direct(&mut self) {
        if self.shared.lock().lost {
            // Output was refused, so the client must not see a regular end.
            return self.cut_client();
        }
        // All of a large response may still be queued.
        if self.response.open().is_some_and(|open| open.is_long()) {
            self.begin_direct(&[]);
        }
        // If the client has gone, the front is told.
        let _gone = self.go_on_direct(&[], true);
        let Some(request) = self.requests.running_mut() else { return };
        match request.client.take() {
            ClientWriter::Gone => request.client = ClientWriter::Gone,
            ClientWriter::Writing(writing) => {
                let sent = writing.sent_whole();
                // Close the socket before the front learns of the end.
                drop(writing);
                self.shared.lock().queue.first(request.id(), Record::Sent(sent));
            }
            ClientWriter::Front | ClientWriter::Offered(_) => {}
        }
    }

    /// If the socket was offered: starts to write, or leaves the response to the front.
    fn begin_direct(&mut self, data: &[u8]) {
        let (Some(request), Some(open)) = (self.requests.running_mut(), self.response.open_mut())
        else {
            return;
        };
        if !matches!(request.client, ClientWriter::Offered(_)) {
            return;
        }
        let mut state = self.shared.lock();
        let mut queued = Vec::new();
        let only_bytes = state.queue.take_stdout(&mut queued);
        if only_bytes && queued.is_empty() && data.is_empty() {
            return;
        }
        let ClientWriter::Offered(offer) = request.client.take() else { return };
        let may = only_bytes && open.has_head() && !open.has_begun() && !request.is_head();
        match if may { offer.begin(&mut queued, data) } else { None } {
            Some(writing) => {
                request.client = ClientWriter::Writing(Box::new(writing));
                open.begin();
            }
            None => state.queue.stdout(request.id(), &queued),
        }
    }

    fn go_on_direct<'d>(&mut self, data: &'d [u8], is_last: bool) -> Result<&'d [u8], Gone> {
        let Some(request) = self.requests.running_mut() else { return Ok(data) };
        let ClientWriter::Writing(writing) = &mut request.client else { return Ok(data) };
        let mut state = self.shared.lock();
        if writing.is_used_up() || !state.queue.take_stdout(&mut writing.queued) {
            // The front sends files, and knows how many records the client's keys may still
            // encrypt.
            let sent = writing.sent_so_far();
            request.client = ClientWriter::Front;
            state.queue.first(request.id(), Record::Sent(sent));
            return Ok(data);
        }
        drop(state);
        if !is_last && !writing.has_unsent() && data.is_empty() {
            return Ok(data);
        }
        let shared = &self.shared;
        let written = client::write(writing, data, is_last, || {
            shared.lock().look_after_pause(&shared.links);
        });
        match written {
            Ok(None) => Ok(&[]),
            Ok(Some(Unsent { sent, next, data })) => {
                // The socket is closed before the front learns of it.
                request.client = ClientWriter::Front;
                let mut state = self.shared.lock();
                state.queue.first(request.id(), Record::Sent(sent));
                state.queue.stdout(request.id(), &next);
                Ok(data)
            }
            Err(sent) => {
                request.client = ClientWriter::Gone;
                let mut state = self.shared.lock();
                state.queue.first(request.id(), Record::Sent(sent));
                let _lost_is_noted = self.shared.flush(state);
                Err(Gone)
            }
        }
    }
}
