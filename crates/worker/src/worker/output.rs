//! The output calls of the application.

use sendoff_fastcgi::record::Kind;
use sendoff_link::worker::{COPY_LIMIT, ClientWriter, End, FLUSH_LIMIT, Request, Response};

use super::Worker;
use crate::state::State;
use crate::{Gone, log};

impl Worker {
    /// Queues the CGI header block, with the empty line that ends it.
    ///
    /// # Errors
    /// The client has gone.
    pub fn write_head(&mut self, block: &[u8]) -> Result<(), Gone> {
        // If a header callback writes, PHP sends a second head; php-fpm and CGI servers also treat
        // it as body.
        if self.response.open().is_some_and(|open| open.has_head()) {
            return self.write(block);
        }
        match interim_status(block) {
            // The front would take the body for the next head. It answers 502 to this one.
            Some(status) => {
                let is_interim = status.len() == 3;
                let why = if is_interim { "it is interim" } else { "a status has three digits" };
                self.log(format!("a response has no status {status}: {why}").as_bytes());
                self.put(b"Status: 000\r\n\r\n")?;
            }
            None => self.put(block)?,
        }
        if let Some(open) = self.response.open_mut() {
            open.wrote_head();
        }
        Ok(())
    }

    /// Sends the head of an interim response: a CGI header block whose `Status` is 1xx, with the
    /// empty line that ends it. The front then also writes the rest of the response to the client.
    /// `false`: it was not sent, because the server does not support interim heads, the final head
    /// has been written, or the status is 100, which the server itself sends.
    ///
    /// # Errors
    /// The client has gone.
    pub fn write_interim(&mut self, block: &[u8]) -> Result<bool, Gone> {
        let Some(request) = self.requests.running_mut() else { return Ok(false) };
        let is_early = self.response.open().is_some_and(|open| open.takes_named());
        if !is_early || !request.accepts_interim() || interim_status(block) == Some("100") {
            return Ok(false);
        }
        if request.client.is_lent() {
            request.client = ClientWriter::Front;
        }
        self.put(block)?;
        self.send()?;
        Ok(true)
    }

    /// Queues body bytes. Large pieces are sent before this returns, or copied into shared memory.
    ///
    /// # Errors
    /// The client has gone.
    pub fn write(&mut self, data: &[u8]) -> Result<(), Gone> {
        self.put(data)?;
        if let Some(open) = self.response.open_mut() {
            open.wrote_body(data.len() as u64);
        }
        Ok(())
    }

    fn put(&mut self, data: &[u8]) -> Result<(), Gone> {
        if self.is_closed() {
            return Err(Gone);
        }
        if data.is_empty() {
            return Ok(());
        }
        if let Some(open) = self.response.open_mut() {
            open.uses_stdout();
        }
        let mut data = data;
        if data.len() >= COPY_LIMIT {
            self.look_for_abort()?;
            data = self.write_to_client(data)?;
            if let Some(open) = self.response.open_mut() {
                open.begin();
            }
            if data.is_empty() {
                // The client has its bytes; log entries need not wait.
                return self.shared.flush(self.shared.lock()).map(drop);
            }
        }
        let (Some(request), Some(open)) = (self.requests.running(), self.response.open_mut())
        else {
            return Err(Gone);
        };
        let rest = if open.generate(data.len(), request) { self.lend(data)? } else { data };
        self.relay(rest)
    }

    /// Copies bytes into shared memory. Returns the bytes for which there was no room.
    fn lend<'d>(&mut self, mut data: &'d [u8]) -> Result<&'d [u8], Gone> {
        while !data.is_empty() {
            let mut state = self.shared.lock();
            let (Some(request), Some(open)) = (self.requests.running(), self.response.open_mut())
            else {
                return Err(Gone);
            };
            let room = open.room_in_chunks(state.queue.lent());
            if room == 0 {
                open.announce(state.queue.lent());
                drop(state);
                self.send()?;
                continue;
            }
            let now = data.len().min(room);
            let State { queue, regions, link, .. } = &mut *state;
            let left = regions.lend(*link, request.id(), queue, &data[..now]).len();
            data = &data[now - left..];
            if left > 0 {
                break;
            }
        }
        Ok(data)
    }

    /// Sends bytes over the link.
    fn relay(&mut self, data: &[u8]) -> Result<(), Gone> {
        let (Some(request), Some(open)) = (self.requests.running(), self.response.open_mut())
        else {
            return Err(Gone);
        };
        let mut state = self.shared.lock();
        if data.len() >= COPY_LIMIT {
            return self.shared.flush_with(state, request.id(), data).map(drop);
        }
        state.queue.stdout(request.id(), data);
        let must_send = open.note_queued(state.queue.len(), &request.client);
        drop(state);
        if must_send { self.send() } else { Ok(()) }
    }

    /// Writes an entry about the current request to the server's log. It is sent as one `STDERR`
    /// record, even after the end of a response whose application goes on, and even for a client
    /// that has gone. If no record can carry the request's id, the entry goes to standard error.
    pub fn log(&mut self, entry: &[u8]) {
        let entry = entry.strip_suffix(b"\n").unwrap_or(entry);
        let takes_entry = !self.shared.is_forked() && !self.shared.lock().lost;
        let id = self.requests.running().map(Request::id).filter(|_| takes_entry);
        match (id, &mut self.response) {
            (Some(_), Response::Open(_)) => self.put_stderr(&[entry, b"\n"].concat()),
            (Some(id), Response::Detached) => {
                let mut state = self.shared.lock();
                state.queue.stream(Kind::STDERR, id, &[entry, b"\n"].concat());
                // A lost link has no front that could log it.
                let _lost_is_noted = self.shared.flush(state);
            }
            _ => log(format_args!("{}", String::from_utf8_lossy(entry))),
        }
    }

    pub(super) fn put_stderr(&mut self, bytes: &[u8]) {
        if let Some(open) = self.response.open_mut() {
            open.uses_stderr();
        }
        // The next write reports that the client has gone.
        let _gone = self.put_stream(Kind::STDERR, bytes);
    }

    /// Queues bytes of a stream other than the body.
    pub(super) fn put_stream(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), Gone> {
        let id = self.requests.running().map(Request::id).ok_or(Gone)?;
        let mut state = self.shared.lock();
        state.queue.stream(kind, id, bytes);
        let is_full = state.queue.len() > FLUSH_LIMIT;
        drop(state);
        if is_full { self.send_queue() } else { Ok(()) }
    }

    /// Sends the queue, even for a client that has gone.
    fn send_queue(&mut self) -> Result<(), Gone> {
        if self.requests.running().is_some_and(Request::is_aborted) {
            let state = self.shared.lock();
            return self.shared.flush(state).map(drop);
        }
        self.send()
    }

    /// Sends the queue, and, if the client's socket is lent, asks the kernel to send what is in it.
    ///
    /// # Errors
    /// The client has gone.
    pub fn flush(&mut self) -> Result<(), Gone> {
        if let Some(open) = self.response.open_mut() {
            open.flushed();
        }
        self.send()?;
        self.push_to_client();
        Ok(())
    }

    pub(super) fn send(&mut self) -> Result<(), Gone> {
        if self.is_closed() {
            return Err(Gone);
        }
        self.look_for_abort()?;
        self.write_to_client(&[])?;
        let state = self.shared.lock();
        if let (false, Some(open)) = (state.queue.is_empty(), self.response.open_mut()) {
            open.begin();
        }
        self.shared.flush(state).map(drop)
    }

    /// Ends the response. With `detach` the application goes on, without output, until
    /// [`Self::ready`].
    pub fn finish(&mut self, app_status: u32, detach: bool) {
        if self.response.open().is_none() || self.shared.is_forked() {
            return;
        }
        if self.requests.running().is_none() {
            return;
        }
        self.end_direct();
        let Some(request) = self.requests.running() else { return };
        let mut state = self.shared.lock();
        if state.lost {
            self.response.abandon();
            return;
        }
        if request.is_aborted() {
            state.discard_queue();
        }
        let State { queue, regions, link, .. } = &mut *state;
        regions.end_pieces(*link, queue);
        let (peer, hands_over) = (self.requests.peer(), self.hands_over);
        self.response.finish(queue, request, End { peer, app_status, detach, hands_over });
        let _lost_is_noted = self.shared.flush(state);
    }

    /// Ends the detached work after [`Self::finish`]: another request may come.
    pub fn ready(&mut self) {
        let Some(request) = self.requests.running() else { return };
        if self.shared.is_forked() {
            return;
        }
        let mut state = self.shared.lock();
        if !state.lost && self.response.ready(&mut state.queue, request.id()) {
            let _lost_is_noted = self.shared.flush(state);
        }
    }
}

/// The first word of a CGI header block's status, if it begins as an interim one does (1xx).
fn interim_status(block: &[u8]) -> Option<&str> {
    let lines = block.split(|byte| *byte == b'\n');
    let mut fields = lines.filter_map(|line| line.split_at_checked("status:".len()));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"status:"))?;
    let status = value.trim_ascii().split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(status).ok().filter(|status| status.len() >= 3 && status.starts_with('1'))
}
