//! The application's thread: requests in, responses out.

mod connection;
mod explain;
mod named;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use sendoff_fastcgi::Part;
use sendoff_fastcgi::handover::{FileId, Hints, Record};
use sendoff_fastcgi::params;
use sendoff_fastcgi::record::{BeginRequest, EndRequest, Header, Kind};

use sendoff_sys::mapping::Region;

use crate::channel::Channel;
use crate::direct::{Direct, Offer};
use crate::files::{Held, Identity};
use crate::helper::Helper;
use crate::input::Input;
use crate::output::Shared;
use crate::peer::{Peer, Role};
use crate::request::{Body, Phase, Request};
use crate::state::State;
use crate::{Bad, Gone, log};

/// A body piece from this size on is sent from the caller's memory instead of being copied.
const COPY_LIMIT: usize = 16 * 1024;

/// With more than this waiting, the queue is sent.
const FLUSH_LIMIT: usize = 32 * 1024;

/// The same if it goes to the client's socket: there each call costs some 5 µs, as TCP sees to it at once.
const CLIENT_FLUSH_LIMIT: usize = 128 * 1024;

/// The piece with which a body reaches this size, and whatever follows it, is copied into memory that the front sends from.
/// CPU of front and worker for a PHP page, in µs over the link / in shared memory: 16 KB no difference, 32 KB 101 / 97,
/// 64 KB 95 / 77, 128 KB 136 / 119, 512 KB 256 / 187, 1 MB 480 / 383 (one shared machine, quietest of ten rounds).
const LEND_FROM: u64 = 32 * 1024;

/// With so many bytes in chunks that the front does not know of, they are announced before more follow: it should send
/// while the application goes on. A response of up to so many leaves in one message. At 64 KiB a page of 128 KB costs 7 %
/// more.
const ANNOUNCE_LIMIT: usize = 128 * 1024;

/// Then as many more as before are announced at a time, up to so many: every announcement may wake the front.
const MAX_ANNOUNCE_LIMIT: usize = 512 * 1024;

/// Pieces of a file are joined up to this size: the front should have something to do while a script reads on. A response
/// that ends before it is announced with its length, and in one message.
const JOIN_LIMIT: u64 = 2 * 1024 * 1024;

/// So much of a request body in `STDIN` records is waited for before the application starts. A front that finds a link
/// reset while the worker had not read everything gives the request to another worker, which must not run it twice.
const WHOLE_BODY: usize = 64 * 1024;

/// Bytes of a mapping that are copied under the lock at a time.
const MAPPED_PIECE: usize = 1024 * 1024;

/// `FCGI_CANT_MPX_CONN` and `FCGI_UNKNOWN_ROLE` (FastCGI §5.5).
const CANT_MULTIPLEX: u8 = 1;
const UNKNOWN_ROLE: u8 = 3;

/// What `GET_VALUES` may ask (FastCGI §4.1), and our answers.
const VALUES: [(&[u8], &[u8]); 3] =
    [(b"FCGI_MAX_CONNS", b"1"), (b"FCGI_MAX_REQS", b"1"), (b"FCGI_MPXS_CONNS", b"0")];

/// One worker process's side of its links. See `include/sendoff.h` for the order of calls.
#[derive(Debug)]
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    inputs: Vec<Input>,
    pub(crate) request: Request,
    pub(crate) response: Response,
    peer: Peer,
    /// Nothing more can be understood of what a web server says; it may still be answered.
    deaf: bool,
    /// `None` without a guard socket.
    helper: Option<Helper>,
    /// `None`: the front gave us our links, and requests come on them.
    pub(crate) channel: Option<Channel>,
}

/// Ends a worker's `accept`.
#[derive(Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Lets `accept` return `false` once no request waits. Async-signal-safe; without effect in a forked child.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// How far the response to the request at hand has got.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// `Some(body bytes)` once the head has been written.
    pub(crate) body: Option<u64>,
    /// Something of it has been sent.
    pub(crate) begun: bool,
    /// So much was made before the end that relay would have sent something. No length is told then in any mode.
    pub(crate) length_is_open: bool,
    /// Body bytes that are no file's, since the last flush: whoever flushes writes in small pieces, which are not worth a
    /// chunk of shared memory.
    generated: u64,
    /// Bytes in shared memory that the front was told of while the response went on.
    announced: usize,
    wrote_stdout: bool,
    wrote_stderr: bool,
    pub(crate) finished: bool,
    /// `READY` is owed.
    detached: bool,
    /// The file that the head names has been sent.
    named: bool,
}

impl Response {
    /// One whose head left elsewhere, so that no length can be told. It takes no output yet.
    pub(crate) fn elsewhere() -> Self {
        Self { begun: true, finished: true, ..Self::default() }
    }
}

impl Worker {
    /// Takes connected UNIX stream sockets, at most 255, and the guard socket, for which it starts a thread: call it
    /// after the last fork.
    ///
    /// # Errors
    /// `EINVAL`: no link, or too many. A thread or descriptor could not be had.
    pub fn new(links: Vec<OwnedFd>, guard: Option<OwnedFd>) -> io::Result<Self> {
        if links.is_empty() || links.len() > usize::from(u8::MAX) {
            return Err(Errno::INVAL.into());
        }
        let inputs = links.iter().map(|_| Input::default()).collect();
        let shared = Arc::new(Shared::new(links));
        let helper = guard.map(|guard| Helper::start(shared.clone(), guard)).transpose()?;
        let (request, response) = (Request::default(), Response::default());
        let peer = Peer::Front;
        Ok(Self { shared, inputs, request, response, peer, deaf: false, helper, channel: None })
    }

    /// Waits for the next request; `false` when none will come and the process should end. Ends the one at hand first.
    pub fn accept(&mut self) -> bool {
        if self.shared.is_forked() {
            return false;
        }
        if !self.end_request() {
            return false;
        }
        match self.next_request() {
            Ok(came) => {
                self.response = Response::default();
                let mut state = self.shared.lock();
                state.link = self.request.link;
                came && !state.lost
            }
            Err(bad) => {
                log(format_args!("giving up the link: {bad}"));
                false
            }
        }
    }

    /// Ends the request at hand. `false`: no other may come on its link.
    fn end_request(&mut self) -> bool {
        if self.request.phase == Phase::Idle {
            return true;
        }
        self.finish(0, false);
        self.ready();
        self.request.phase = Phase::Idle;
        self.request.keep_conn
    }

    /// What a signal handler needs to end [`Self::accept`].
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
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
            let begun = self.request.aborted || self.request.body.arrived(WHOLE_BODY);
            if self.request.phase == Phase::Ready && begun {
                return Ok(true);
            }
            // Once a request has begun, its link is the only one that counts.
            link = (self.request.phase != Phase::Idle).then_some(at);
            if link.is_some() && self.receive(at)? == 0 {
                return Err(Bad::Cut);
            }
        }
    }

    /// Receives from the first link that has something; `None`: nothing to come, and a link was closed.
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

    /// `false`: the front closed the link, where it may.
    fn receive_when_idle(&mut self, at: usize) -> Result<bool, Bad> {
        match self.receive(at) {
            Ok(0) if self.inputs[at].at_boundary() => Ok(false),
            Ok(0) => Err(Bad::Cut),
            Ok(_) => Ok(true),
            // The front died with something of ours unread: no more to say than when it closes.
            Err(Bad::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(bad) => Err(bad),
        }
    }

    fn receive(&mut self, at: usize) -> Result<usize, Bad> {
        Ok(self.inputs[at].receive(self.shared.links[at].as_fd())?)
    }

    /// Works through what has been received, up to the end of a request. `false`: there was nothing.
    fn take_parts(&mut self, at: usize) -> Result<bool, Bad> {
        let mut took = false;
        while !(self.request.phase == Phase::Ready && self.request.is_complete()) {
            let Some(part) = self.inputs[at].next()? else { break };
            self.take_part(at, part)?;
            took = true;
        }
        Ok(took)
    }

    fn take_part(&mut self, at: usize, part: Part) -> Result<(), Bad> {
        let (kind, request_id) = match part {
            Part::Stream { kind, request_id, .. }
            | Part::EndOfStream { kind, request_id }
            | Part::Record { kind, request_id, .. } => (kind, request_id),
        };
        let ours = self.request.phase != Phase::Idle && self.request.id == request_id;
        match part {
            Part::Record { kind: Kind::BEGIN_REQUEST, content, .. } => {
                return self.begin(at, request_id, &content);
            }
            Part::Record { content, .. } if request_id == 0 => {
                self.answer_management(at, kind, &content);
            }
            // FastCGI §3.3: records of a request that is not active are ignored.
            _ if !ours && kind.0 <= Kind::DATA.0 => {}
            Part::Record { kind: Kind::ABORT_REQUEST, .. } => self.abort(at),
            Part::Stream { kind: Kind::PARAMS, data, .. }
                if self.request.phase == Phase::Params =>
            {
                self.request.add_params(&data)?;
            }
            Part::EndOfStream { kind: Kind::PARAMS, .. } if self.request.phase == Phase::Params => {
                self.request.end_params()?;
            }
            // Nobody asked for these, and some servers send them.
            Part::Stream { kind: Kind::STDIN, .. } if self.request.role == Role::Authorizer => {}
            Part::Stream { kind: Kind::DATA, .. } if self.request.role != Role::Filter => {}
            Part::Stream { kind: Kind::STDIN | Kind::DATA, data, .. } => {
                let Body::Stream { data: body, ended: false, .. } = self.request.stream(kind)
                else {
                    return Err(Bad::Unexpected { kind: kind.0, id: request_id });
                };
                body.extend_from_slice(&data);
            }
            Part::EndOfStream { kind: Kind::STDIN | Kind::DATA, .. } => {
                if let Body::Stream { ended, .. } = self.request.stream(kind) {
                    *ended = true;
                }
            }
            Part::Record { kind: Kind::BODY, content, .. } => self.body_file(at, &content, ours)?,
            Part::Record { kind: Kind::CLIENT, content, .. } => {
                let socket = self.inputs[at].take_fd().ok_or(Bad::Client)?;
                if ours && self.request.phase == Phase::Params {
                    self.request.direct = Direct::Offered(Offer::new(socket, content)?);
                }
            }
            _ => return Err(Bad::Unexpected { kind: kind.0, id: request_id }),
        }
        Ok(())
    }

    fn begin(&mut self, at: usize, id: u16, content: &[u8]) -> Result<(), Bad> {
        let (role, begin) = BeginRequest::decode(content)?;
        if id == 0 || (self.request.phase != Phase::Idle && self.request.id == id) {
            return Err(Bad::Unexpected { kind: Kind::BEGIN_REQUEST.0, id });
        }
        let refusal = match (self.request.phase, self.peer.role(role)) {
            (Phase::Idle, Some(role)) => {
                self.request.begin(at, id, begin.keep_conn, role);
                return Ok(());
            }
            (Phase::Idle, None) => UNKNOWN_ROLE,
            _ => CANT_MULTIPLEX,
        };
        let end = EndRequest { app_status: 0, protocol_status: refusal };
        self.say(at, &end.encode(id));
        if self.request.phase == Phase::Idle && !begin.keep_conn {
            // It was the connection's only one, and it is ours to close (FastCGI §3.5).
            return Err(Bad::Unexpected { kind: Kind::BEGIN_REQUEST.0, id });
        }
        Ok(())
    }

    fn abort(&mut self, at: usize) {
        self.request.aborted = true;
        // Nobody is to be written to any more.
        self.request.direct = Direct::Unasked;
        if self.request.phase == Phase::Params {
            // The application never hears of it.
            self.request.phase = Phase::Idle;
            let end = EndRequest { app_status: 0, protocol_status: 0 };
            self.say(at, &end.encode(self.request.id));
            // It may have been the connection's only one.
            self.deaf = self.is_on_connection() && !self.request.keep_conn;
        }
    }

    fn body_file(&mut self, at: usize, content: &[u8], ours: bool) -> Result<(), Bad> {
        let Some(Record::Body(len)) = Record::decode(Kind::BODY, content)? else {
            return Err(Bad::BodyFile);
        };
        let fd = self.inputs[at].take_fd().ok_or(Bad::BodyFile)?;
        let stat = fstat(&fd).map_err(io::Error::from)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || u64::try_from(stat.st_size).unwrap_or(0) < len {
            return Err(Bad::BodyFile);
        }
        let awaited = matches!(&self.request.body,
            Body::Stream { data, ended: false, .. } if data.is_empty());
        if ours && self.request.phase == Phase::Ready {
            if !awaited {
                return Err(Bad::BodyFile);
            }
            self.request.body = Body::File { fd, len, read: 0 };
        }
        Ok(())
    }

    /// Management records (FastCGI §4).
    fn answer_management(&mut self, at: usize, kind: Kind, content: &[u8]) {
        let mut answer = Vec::new();
        let answer_kind = if kind == Kind::GET_VALUES {
            for (name, _) in params::decode(content).flatten() {
                if let Some((_, value)) = VALUES.iter().find(|(known, _)| *known == name) {
                    params::encode(&mut answer, name, value);
                }
            }
            Kind::GET_VALUES_RESULT
        } else {
            answer.extend_from_slice(&[kind.0, 0, 0, 0, 0, 0, 0, 0]);
            Kind::UNKNOWN_TYPE
        };
        let len = u16::try_from(answer.len()).unwrap_or(0);
        let mut record = Header::new(answer_kind, 0, len).encode().to_vec();
        record.append(&mut answer);
        self.say(at, &record);
    }

    /// Puts whole records that are no part of a response on a link.
    fn say(&mut self, at: usize, records: &[u8]) {
        let mut state = self.shared.lock();
        if state.lost {
            return;
        }
        if self.request.phase != Phase::Idle && self.request.link == at {
            // They go out with the response.
            state.queue.raw(records);
            return;
        }
        // Between requests the queue is empty, whichever link it last served.
        state.link = at;
        state.queue.raw(records);
        let _lost_is_noted = self.shared.flush(state);
    }

    /// The request's parameters in order, each name and value with a NUL behind it, without `SENDOFF_ACCEPT`.
    pub fn params_with_nul(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.request.params_with_nul()
    }

    /// Whether the front takes file segments in this request.
    #[must_use]
    pub fn accepts_files(&self) -> bool {
        self.request.accepts_files
    }

    /// Reads the request body. 0: its end.
    ///
    /// # Errors
    /// Those of `pread(2)`; `ECONNRESET` if the link was lost before the end.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_stream(Kind::STDIN, buf)
    }

    fn read_stream(&mut self, kind: Kind, buf: &mut [u8]) -> io::Result<usize> {
        if self.request.phase != Phase::Ready || buf.is_empty() {
            return Ok(0);
        }
        loop {
            match self.request.stream(kind) {
                Body::File { fd, len, read } => {
                    let left = usize::try_from(*len - *read).unwrap_or(usize::MAX);
                    let room = buf.len().min(left);
                    let n = rustix::io::pread(&*fd, &mut buf[..room], *read)?;
                    if n == 0 && room > 0 {
                        return Err(Errno::IO.into());
                    }
                    *read += n as u64;
                    return Ok(n);
                }
                Body::Stream { data, read, .. } if *read < data.len() => {
                    let n = buf.len().min(data.len() - *read);
                    buf[..n].copy_from_slice(&data[*read..*read + n]);
                    *read += n;
                    return Ok(n);
                }
                Body::Stream { ended: true, .. } => return Ok(0),
                Body::Stream { data, read, .. } => {
                    // All of it was taken: memory stays small however long the body is.
                    data.clear();
                    *read = 0;
                }
            }
            if self.deaf || self.request.aborted || self.shared.is_forked() {
                return Err(Errno::CONNRESET.into());
            }
            self.receive_more().map_err(|bad| {
                self.peer.complain(format_args!("request body: {bad}"));
                io::Error::from(Errno::CONNRESET)
            })?;
        }
    }

    /// Waits for more of the request at hand.
    fn receive_more(&mut self) -> Result<(), Bad> {
        let at = self.request.link;
        let more = match self.take_parts(at) {
            Ok(true) => Ok(()),
            Ok(false) => match self.receive(at) {
                Ok(0) => Err(Bad::Cut),
                other => other.map(drop),
            },
            Err(bad) => Err(bad),
        };
        if more.is_err() {
            self.give_up_input();
        }
        more
    }

    /// Queues the CGI header block, with the empty line that ends it.
    ///
    /// # Errors
    /// The client has gone.
    pub fn write_head(&mut self, block: &[u8]) -> Result<(), Gone> {
        // PHP sends a second head when a header callback writes; everybody else takes it for body, too.
        if self.response.body.is_some() {
            return self.write(block);
        }
        self.put(block)?;
        self.response.body = Some(0);
        Ok(())
    }

    /// Queues body bytes; large ones are sent before this returns, or lie in shared memory.
    ///
    /// # Errors
    /// The client has gone.
    pub fn write(&mut self, data: &[u8]) -> Result<(), Gone> {
        self.put(data)?;
        if let Some(body) = &mut self.response.body {
            *body += data.len() as u64;
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
        self.response.wrote_stdout = true;
        let mut data = data;
        if data.len() >= COPY_LIMIT {
            self.look_for_abort()?;
            data = self.write_to_client(data)?;
            self.response.begun = true;
            if data.is_empty() {
                // The client has it; what is for the log need not wait.
                return self.shared.flush(self.shared.lock()).map(drop);
            }
        }
        // What goes to the client waits in the queue. The front looks into the header block, so it must not lie where we
        // could change it.
        let may_lend = self.request.accepts_regions
            && self.response.body.is_some()
            && matches!(self.request.direct, Direct::Unasked);
        let so_far = self.response.generated + data.len() as u64;
        if self.response.body.is_some() {
            self.response.generated = so_far;
        }
        let is_long = so_far >= LEND_FROM;
        self.response.length_is_open |= is_long;
        let rest = if may_lend && is_long { self.lend(data)? } else { data };
        self.relay(rest)
    }

    /// Bytes that go into shared memory. Returns those for which there was no room.
    fn lend<'d>(&mut self, mut data: &'d [u8]) -> Result<&'d [u8], Gone> {
        while !data.is_empty() {
            let mut state = self.shared.lock();
            let limit = ANNOUNCE_LIMIT.max(self.response.announced).min(MAX_ANNOUNCE_LIMIT);
            let room = limit.saturating_sub(state.queue.lent());
            if room == 0 {
                self.response.announced += state.queue.lent();
                drop(state);
                self.send()?;
                continue;
            }
            let now = data.len().min(room);
            let State { queue, regions, link, .. } = &mut *state;
            let left = regions.lend(*link, self.request.id, queue, &data[..now]).len();
            data = &data[now - left..];
            if left > 0 {
                break;
            }
        }
        Ok(data)
    }

    /// Bytes that go over the link.
    fn relay(&mut self, data: &[u8]) -> Result<(), Gone> {
        let mut state = self.shared.lock();
        if data.len() >= COPY_LIMIT {
            return self.shared.flush_with(state, self.request.id, data).map(drop);
        }
        state.queue.stdout(self.request.id, data);
        let for_link = matches!(self.request.direct, Direct::Unasked);
        let limit = if for_link { FLUSH_LIMIT } else { CLIENT_FLUSH_LIMIT };
        let full = state.queue.len() > limit;
        self.response.length_is_open |= state.queue.len() > FLUSH_LIMIT;
        drop(state);
        if full {
            self.send()?;
        }
        Ok(())
    }

    /// Bytes for the server's log, about the request at hand.
    pub fn log(&mut self, line: &[u8]) {
        if self.is_closed() {
            let line = String::from_utf8_lossy(line);
            log(format_args!("{}", line.trim_end_matches('\n')));
            return;
        }
        let mut line = line.to_vec();
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        self.put_stderr(&line);
    }

    fn put_stderr(&mut self, bytes: &[u8]) {
        self.response.wrote_stderr = true;
        let mut state = self.shared.lock();
        state.queue.stream(Kind::STDERR, self.request.id, bytes);
        let full = state.queue.len() > FLUSH_LIMIT;
        drop(state);
        if full {
            // The next write tells of it.
            let _gone = self.send();
        }
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// The client has gone.
    pub fn flush(&mut self) -> Result<(), Gone> {
        self.response.generated = 0;
        self.send()?;
        self.push_to_client();
        Ok(())
    }

    fn send(&mut self) -> Result<(), Gone> {
        if self.is_closed() {
            return Err(Gone);
        }
        self.look_for_abort()?;
        self.write_to_client(&[])?;
        let state = self.shared.lock();
        self.response.begun |= !state.queue.is_empty();
        self.shared.flush(state).map(drop)
    }

    /// Whether the client has gone. Looks at the link without waiting.
    pub fn aborted(&mut self) -> bool {
        self.request.phase == Phase::Ready
            && (self.shared.is_forked()
                || self.request.aborted
                || self.shared.lock().lost
                || self.look_for_abort().is_err())
    }

    /// No output is taken: there is no request, or its response is finished, or nobody wants it.
    fn is_closed(&self) -> bool {
        self.request.phase != Phase::Ready
            || self.response.finished
            || self.request.aborted
            || self.shared.is_forked()
            || self.shared.lock().lost
    }

    /// Takes in what the front has to say about the request at hand, which can only be `ABORT_REQUEST`. A body that is
    /// still arriving is left to `read`.
    fn look_for_abort(&mut self) -> Result<(), Gone> {
        let at = self.request.link;
        if self.deaf || self.response.finished || !self.request.is_complete() {
            return Ok(());
        }
        let mut polled = [PollFd::new(&self.shared.links[at], PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut polled, Some(&now)), Ok(1)) {
            return Ok(());
        }
        let looked = match self.receive(at) {
            // We closed our ear ourselves.
            Ok(0) if self.shared.is_stopping() => Ok(()),
            Ok(0) => Err(Bad::Cut),
            Ok(_) => self.take_late_parts(at),
            Err(bad) => Err(bad),
        };
        if let Err(bad) = looked {
            self.peer.complain(format_args!("giving up the link: {bad}"));
            self.give_up_input();
        }
        let mut state = self.shared.lock();
        let lost = state.lost;
        if lost || self.request.aborted {
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

    /// Ends the response. With `detach` the application goes on, without output, until [`Self::ready`].
    pub fn finish(&mut self, app_status: u32, detach: bool) {
        if self.request.phase != Phase::Ready || self.response.finished || self.shared.is_forked() {
            return;
        }
        self.response.finished = true;
        self.end_direct();
        let id = self.request.id;
        let mut state = self.shared.lock();
        if state.lost {
            return;
        }
        if self.request.aborted {
            state.discard_queue();
        }
        let State { queue, regions, link, .. } = &mut *state;
        regions.end_pieces(*link, queue);
        let Response { body, wrote_stdout, wrote_stderr, .. } = self.response;
        if let (Some(body), true) = (body, self.tells_length()) {
            state.queue.first(id, Record::Length(body));
        }
        self.response.detached = detach && self.request.accepts_framing;
        if self.response.detached {
            state.queue.record(id, Record::Detach);
        }
        if (wrote_stdout || self.peer.wants_every_stdout_ended()) && !self.request.aborted {
            state.queue.stream(Kind::STDOUT, id, &[]);
        }
        if wrote_stderr {
            state.queue.stream(Kind::STDERR, id, &[]);
        }
        let end = EndRequest { app_status, protocol_status: 0 };
        state.queue.raw(&Hints { region: true, direct: true }.end_request(end, id));
        let _lost_is_noted = self.shared.flush(state);
    }

    /// `HEAD` is answered without the body whose length would be told.
    fn tells_length(&self) -> bool {
        let Request { accepts_framing, is_head, aborted, .. } = self.request;
        let Response { begun, length_is_open, .. } = self.response;
        accepts_framing && !is_head && !aborted && !begun && !length_is_open
    }

    /// After [`Self::finish`] with `detach`: another request may come.
    pub fn ready(&mut self) {
        if std::mem::take(&mut self.response.detached) && !self.shared.is_forked() {
            let mut state = self.shared.lock();
            if !state.lost {
                state.queue.record(self.request.id, Record::Ready);
                let _lost_is_noted = self.shared.flush(state);
            }
        }
    }

    /// Body bytes that are `len` bytes of a held file from `offset` on.
    ///
    /// # Errors
    /// The client has gone, or the file is not held or shorter.
    pub fn write_file(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), Gone> {
        if self.is_closed() {
            return Err(Gone);
        }
        let mut state = self.shared.lock();
        let State { queue, files, link, .. } = &mut *state;
        let within = |size: u64| offset.checked_add(len).is_some_and(|end| end <= size);
        let handed_over = files.use_file(file) && self.request.accepts_files;
        let held = files.get_mut(file).filter(|held| within(held.size)).ok_or(Gone)?;
        if len == 0 {
            return Ok(());
        }
        if !handed_over {
            drop(state);
            return self.write_mapped(file, offset, len);
        }
        self.response.wrote_stdout = true;
        if !held.links.contains(*link) {
            held.links.insert(*link);
            queue.record(self.request.id, Record::Open(file));
        }
        let joined = queue.segment(self.request.id, file, offset, len);
        let full = queue.len() > FLUSH_LIMIT || (joined > len && joined >= JOIN_LIMIT);
        drop(state);
        if let Some(body) = &mut self.response.body {
            *body += len;
        }
        if full { self.send() } else { Ok(()) }
    }

    /// The same as bytes from the snapshot, which after a break is a private copy.
    fn write_mapped(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), Gone> {
        let mut offset = usize::try_from(offset).map_err(|_| Gone)?;
        let end = offset + usize::try_from(len).map_err(|_| Gone)?;
        while offset < end {
            let next = end.min(offset + MAPPED_PIECE);
            let mut state = self.shared.lock();
            let State { queue, files, .. } = &mut *state;
            let bytes = files.get(file).and_then(Held::bytes).ok_or(Gone)?;
            queue.stdout(self.request.id, &bytes[offset..next]);
            drop(state);
            self.response.wrote_stdout = true;
            if let Some(body) = &mut self.response.body {
                *body += (next - offset) as u64;
            }
            offset = next;
            // A response that fits keeps its length.
            if offset < end || self.shared.lock().queue.len() > FLUSH_LIMIT {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Holds an open file under a read lease and maps it. It is then in use.
    ///
    /// # Errors
    /// `EACCES`: not the owner and without `CAP_LEASE`. `EAGAIN`: a writer has it open. `ESTALE`: it is not the file
    /// described. `EMFILE`: too many held. `EOPNOTSUPP`: no guard. Others of `fcntl(2)` and `mmap(2)`.
    pub fn file_hold(
        &mut self,
        fd: OwnedFd,
        region: Region,
        identity: Identity,
    ) -> io::Result<FileId> {
        let helper = self.helper.as_ref().ok_or(Errno::OPNOTSUPP)?;
        if self.shared.is_forked() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let mut state = self.shared.lock();
        if state.unguarded {
            return Err(Errno::OPNOTSUPP.into());
        }
        let is_first = !state.files.any_deletable();
        let file = state.files.hold(fd, region, identity, helper.tid)?;
        if is_first {
            // From now on it looks for deleted files.
            helper.wake();
        }
        Ok(file)
    }

    /// Puts a file in use: `true` if its mapping is whole and the lease stands.
    pub fn file_use(&mut self, file: FileId) -> bool {
        if self.shared.is_forked() {
            return false;
        }
        let mut state = self.shared.lock();
        state.look_after_pause(&self.shared.links);
        state.files.use_file(file)
    }

    /// No file is in use any more.
    pub fn files_unuse(&mut self) {
        if !self.shared.is_forked() {
            self.shared.lock().files.unuse_all();
        }
    }

    /// Whether the lease stands.
    #[must_use]
    pub fn file_intact(&self, file: FileId) -> bool {
        !self.shared.is_forked() && self.shared.lock().files.get(file).is_some_and(Held::stands)
    }

    /// Gives the mapping back. The lease ends when the front has no more need of the file.
    pub fn file_drop(&mut self, file: FileId) {
        if self.shared.is_forked() {
            if let Some(mut state) = self.shared.try_lock() {
                state.files.drop_in_child(file);
            }
            return;
        }
        if self.shared.lock().queue.names(file) {
            // RELEASE must not overtake what it releases. If the client has gone there is nothing to overtake.
            let _gone = self.send();
        }
        let mut state = self.shared.lock();
        for link in state.files.drop_mapping(file).iter() {
            state.tell(&self.shared.links, link, Record::Release(file));
        }
        if let (false, Some(helper)) = (state.backlog.is_empty(), &self.helper) {
            helper.wake();
        }
    }
}
