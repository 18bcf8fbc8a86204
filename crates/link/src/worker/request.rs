//! Assembles requests from records, one at a time.

use std::collections::VecDeque;

use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::channel::{Announcement, CHANNEL_PARAM, FRONT_PARAM};
use sendoff_fastcgi::handover::{
    ACCEPT_EXPLAIN, ACCEPT_FILE, ACCEPT_NAMED, ACCEPT_PARAM, ACCEPT_REGION, ACCEPT_RELAY,
    ACCEPT_TUNNEL, Record,
};
use sendoff_fastcgi::params;
use sendoff_fastcgi::record::{BeginRequest, EndRequest, Header, Kind};

use super::body::Unread;
use super::{Body, ClientWriter, Error, Offer, Params, Peer, Role};

/// `FCGI_CANT_MPX_CONN` and `FCGI_UNKNOWN_ROLE` (FastCGI §5.5).
const CANT_MULTIPLEX: u8 = 1;
const UNKNOWN_ROLE: u8 = 3;

/// The variables of `GET_VALUES` (FastCGI §4.1) and their values.
const VALUES: [(&[u8], &[u8]); 3] =
    [(b"FCGI_MAX_CONNS", b"1"), (b"FCGI_MAX_REQS", b"1"), (b"FCGI_MPXS_CONNS", b"0")];

/// The requests of one worker, on all its links. `F` is a descriptor.
#[derive(Debug)]
pub struct Requests<F> {
    peer: Peer,
    state: State<F>,
    params: Params,
    /// The buffer of the last request body, for reuse.
    spare: Vec<u8>,
    /// The number of the current request, if it is from the ring.
    ring: Option<u64>,
}

/// ```text
///         BEGIN_REQUEST               end of PARAMS              end()
///  Idle ────────────────▶ Receiving ────────────────▶ Running ──────────▶ Idle
///   ▲    ABORT_REQUEST        │
///   └─────────────────────────┘
/// ```
/// `ABORT_REQUEST` to a running request makes its client [`ClientWriter::Gone`]; the application still
/// ends it.
#[derive(Debug)]
enum State<F> {
    Idle,
    Receiving(Receiving<F>),
    Running(Request<F>),
}

/// The content of `BEGIN_REQUEST`, and the link on which it arrived.
#[derive(Debug, Clone, Copy)]
struct RequestStart {
    id: u16,
    link: usize,
    keep_conn: bool,
    role: Role,
}

#[derive(Debug)]
struct Streams<F> {
    stdin: Body<F>,
    /// The input file of a filter (FastCGI §6.4).
    data: Body<F>,
}

impl<F> Streams<F> {
    /// An authorizer gets no body (§6.3), a filter gets a second stream.
    fn new(role: Role, buffer: Vec<u8>) -> Self {
        let arriving = || Body::Arriving(Unread::default());
        Self {
            stdin: match role {
                Role::Authorizer => Body::ended(),
                Role::Responder | Role::Filter => Body::Arriving(Unread::with_buffer(buffer)),
            },
            data: if role == Role::Filter { arriving() } else { Body::ended() },
        }
    }
}

/// A request whose parameters are still arriving.
#[derive(Debug)]
struct Receiving<F> {
    begun: RequestStart,
    streams: Streams<F>,
    offer: Option<Offer<F>>,
}

/// A request that the application may process.
#[derive(Debug)]
pub struct Request<F> {
    begun: RequestStart,
    streams: Streams<F>,
    /// Which process writes to the client's socket.
    pub client: ClientWriter<F>,
    accepts: Accepts,
    is_head: bool,
    /// The front's channel, if the request announces one.
    announcement: Option<Announcement>,
    /// The end of a connection to the client on which the application may answer.
    tunnel: Option<F>,
}

/// The words in the parameter `SENDOFF_ACCEPT`: the records that the front accepts.
#[derive(Debug, Clone, Copy, Default)]
struct Accepts {
    /// `file` or `relay`: `LENGTH`, `DETACH` and `READY`.
    framing: bool,
    files: bool,
    regions: bool,
    explanations: bool,
    named: bool,
    tunnel: bool,
}

impl Accepts {
    fn decode(value: &[u8]) -> Self {
        let mut accepts = Self::default();
        for word in value.split(|&byte| byte == b' ') {
            match word {
                ACCEPT_FILE => (accepts.framing, accepts.files) = (true, true),
                ACCEPT_RELAY => accepts.framing = true,
                ACCEPT_REGION => accepts.regions = true,
                ACCEPT_EXPLAIN => accepts.explanations = true,
                ACCEPT_NAMED => accepts.named = true,
                ACCEPT_TUNNEL => accepts.tunnel = true,
                _ => {}
            }
        }
        accepts
    }
}

/// Instructions for the caller after a part.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Event<F> {
    /// Nothing.
    None,
    /// Send whole records on the link of the part.
    Send {
        /// The records. They belong to no response.
        records: Vec<u8>,
        /// The state of the link afterwards.
        next: AfterSend,
    },
    /// Check that `file` is a regular file of at least `length` bytes, then call
    /// [`Requests::body_file`].
    CheckBody {
        /// The id from the record.
        request_id: u16,
        /// The descriptor that came with the record.
        file: F,
        /// Bytes in the body.
        length: u64,
    },
    /// Map the ring of the pool.
    Ring {
        /// The seat of this worker.
        seat: u16,
        /// The requests.
        requests: F,
        /// The claims.
        claims: F,
    },
    /// Look into the ring.
    Look,
    /// The client of the request with this number in the ring has left. It is not the current
    /// request.
    Withdrawn(u64),
}

/// The state of a link after [`Event::Send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterSend {
    /// The link stays in use.
    GoOn,
    /// Its only request was aborted: do not read from it any more.
    Ended,
    /// Its only request was refused: this end closes it (FastCGI §3.5).
    Close,
}

impl<F> Requests<F> {
    /// No request has arrived. `peer` determines the accepted roles.
    #[must_use]
    pub fn new(peer: Peer) -> Self {
        let (params, spare, ring) = (Params::default(), Vec::new(), None);
        Self { peer, state: State::Idle, params, spare, ring }
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// True if no request has begun, or the last one has ended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// The request that the application may process.
    #[must_use]
    pub fn running(&self) -> Option<&Request<F>> {
        match &self.state {
            State::Running(request) => Some(request),
            State::Idle | State::Receiving(_) => None,
        }
    }

    /// The request that the application may process.
    pub fn running_mut(&mut self) -> Option<&mut Request<F>> {
        match &mut self.state {
            State::Running(request) => Some(request),
            State::Idle | State::Receiving(_) => None,
        }
    }

    /// The parameters of the current request, or of the last one, without the parameters that are
    /// meant for this library.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The link of the current request.
    #[must_use]
    pub fn link(&self) -> Option<usize> {
        self.begun().map(|begun| begun.link)
    }

    /// True if another request may follow on the link of the current one.
    #[must_use]
    pub fn keeps_link(&self) -> bool {
        self.begun().is_some_and(|begun| begun.keep_conn)
    }

    fn begun(&self) -> Option<RequestStart> {
        match &self.state {
            State::Idle => None,
            State::Receiving(receiving) => Some(receiving.begun),
            State::Running(request) => Some(request.begun),
        }
    }

    /// Begins a request that the process has received on another connection, with its parameters
    /// and its body; files may be handed over on this link. `accept`: the value of its parameter
    /// `SENDOFF_ACCEPT`.
    pub fn begin_elsewhere(&mut self, link: usize, id: u16, accept: &[u8]) {
        self.end();
        self.params.clear();
        let begun = RequestStart { id, link, keep_conn: true, role: Role::Responder };
        let streams = Streams { stdin: Body::ended(), data: Body::ended() };
        let explanations = Accepts::decode(accept).explanations;
        let accepts = Accepts { files: true, explanations, ..Accepts::default() };
        let client = ClientWriter::Front;
        self.state = State::Running(Request {
            begun,
            streams,
            client,
            accepts,
            is_head: false,
            announcement: None,
            tunnel: None,
        });
    }

    /// Ends the current request.
    pub fn end(&mut self) {
        self.ring = None;
        let streams = match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => return,
            State::Receiving(receiving) => receiving.streams,
            State::Running(request) => request.streams,
        };
        self.spare = streams.stdin.into_buffer();
    }

    /// Processes a part that has arrived on `link`, and takes its descriptor, if it has one, from
    /// `descriptors`.
    ///
    /// # Errors
    /// The link cannot be used any more.
    pub fn take(
        &mut self,
        link: usize,
        part: RecordPart,
        descriptors: &mut VecDeque<F>,
    ) -> Result<Event<F>, Error> {
        let (RecordPart::Stream { kind, request_id: id, .. }
        | RecordPart::EndOfStream { kind, request_id: id }
        | RecordPart::Record { kind, request_id: id, .. }) = part;
        let is_current = self.begun().is_some_and(|begun| begun.id == id);
        match part {
            RecordPart::Record { kind: Kind::BEGIN_REQUEST, content, .. } => {
                return self.begin(link, id, &content);
            }
            RecordPart::Record {
                kind: Kind::RING | Kind::LOOK | Kind::ABANDON, content, ..
            } if id == 0 && matches!(self.peer, Peer::Front) => {
                return self.ring_record(kind, &content, descriptors);
            }
            RecordPart::Record { content, .. } if id == 0 => {
                return Ok(Event::Send {
                    records: management(kind, &content),
                    next: AfterSend::GoOn,
                });
            }
            // FastCGI §3.3: records of a request that is not active are ignored.
            _ if !is_current && kind.0 <= Kind::DATA.0 => {}
            // It was meant for a request that has ended.
            RecordPart::Record { kind: Kind::ABORT_REQUEST, .. } if self.ring.is_some() => {}
            RecordPart::Record { kind: Kind::ABORT_REQUEST, .. } => return Ok(self.abort()),
            RecordPart::Stream { kind: Kind::PARAMS, data, .. } if self.is_receiving() => {
                self.params.add(&data)?;
            }
            RecordPart::EndOfStream { kind: Kind::PARAMS, .. } if self.is_receiving() => {
                self.end_params(descriptors)?;
            }
            RecordPart::Stream { kind: Kind::STDIN | Kind::DATA, data, .. } => {
                let added = self.is_unwanted(kind)
                    || self.stream_mut(kind).is_some_and(|stream| stream.add(&data));
                if !added {
                    return Err(Error::Unexpected { kind: kind.0, id });
                }
            }
            RecordPart::EndOfStream { kind: Kind::STDIN | Kind::DATA, .. } => {
                if let Some(stream) = self.stream_mut(kind) {
                    stream.end();
                }
            }
            RecordPart::Record { kind: Kind::BODY, content, .. } => {
                let Some(Record::Body(length)) = Record::decode(kind, &content)? else {
                    return Err(Error::BodyFile);
                };
                let file = descriptors.pop_front().ok_or(Error::BodyFile)?;
                return Ok(Event::CheckBody { request_id: id, file, length });
            }
            RecordPart::Record { kind: Kind::CLIENT, content, .. } => {
                let socket = descriptors.pop_front().ok_or(Error::Client)?;
                if let (true, State::Receiving(receiving)) = (is_current, &mut self.state) {
                    receiving.offer = Some(Offer::new(socket, content)?);
                }
            }
            _ => return Err(Error::Unexpected { kind: kind.0, id }),
        }
        Ok(Event::None)
    }

    /// Notes that the current request is the one with this number in the ring. Call it when all its
    /// parts have been taken.
    pub fn from_ring(&mut self, number: u64) {
        self.ring = Some(number);
    }

    fn ring_record(
        &mut self,
        kind: Kind,
        content: &[u8],
        descriptors: &mut VecDeque<F>,
    ) -> Result<Event<F>, Error> {
        match Record::decode(kind, content)? {
            Some(Record::Ring(seat)) => {
                let (Some(requests), Some(claims)) =
                    (descriptors.pop_front(), descriptors.pop_front())
                else {
                    return Err(Error::Ring);
                };
                Ok(Event::Ring { seat, requests, claims })
            }
            Some(Record::Abandon(number)) if self.ring == Some(number) => Ok(self.abort()),
            Some(Record::Abandon(number)) => Ok(Event::Withdrawn(number)),
            _ => Ok(Event::Look),
        }
    }

    fn is_receiving(&self) -> bool {
        matches!(self.state, State::Receiving(_))
    }

    /// True if the stream does not belong to the role. Some servers send it nevertheless.
    fn is_unwanted(&self, kind: Kind) -> bool {
        let role = self.begun().map(|begun| begun.role);
        match kind {
            Kind::STDIN => role == Some(Role::Authorizer),
            _ => role != Some(Role::Filter),
        }
    }

    fn stream_mut(&mut self, kind: Kind) -> Option<&mut Body<F>> {
        let streams = match &mut self.state {
            State::Idle => return None,
            State::Receiving(receiving) => &mut receiving.streams,
            State::Running(request) => &mut request.streams,
        };
        Some(if kind == Kind::DATA { &mut streams.data } else { &mut streams.stdin })
    }

    fn begin(&mut self, link: usize, id: u16, content: &[u8]) -> Result<Event<F>, Error> {
        let (role, begin) = BeginRequest::decode(content)?;
        if id == 0 || self.begun().is_some_and(|begun| begun.id == id) {
            return Err(Error::Unexpected { kind: Kind::BEGIN_REQUEST.0, id });
        }
        let keep_conn = begin.keep_conn;
        let (status, next) = match (self.is_idle(), self.peer.role(role)) {
            (true, Some(role)) => {
                let streams = Streams::new(role, std::mem::take(&mut self.spare));
                let begun = RequestStart { id, link, keep_conn, role };
                self.params.clear();
                self.state = State::Receiving(Receiving { begun, streams, offer: None });
                return Ok(Event::None);
            }
            (true, None) if keep_conn => (UNKNOWN_ROLE, AfterSend::GoOn),
            (true, None) => (UNKNOWN_ROLE, AfterSend::Close),
            (false, _) => (CANT_MULTIPLEX, AfterSend::GoOn),
        };
        let records = EndRequest { app_status: 0, protocol_status: status }.encode(id).to_vec();
        Ok(Event::Send { records, next })
    }

    fn end_params(&mut self, descriptors: &mut VecDeque<F>) -> Result<(), Error> {
        let (mut accepts, mut is_head, mut announcement) = (Accepts::default(), false, None);
        self.params.finish(|name, value| {
            // If a parameter is sent several times, the last one counts.
            match name {
                ACCEPT_PARAM => accepts = Accepts::decode(value),
                CHANNEL_PARAM => announcement = Announcement::decode(value),
                FRONT_PARAM => {}
                b"REQUEST_METHOD" => {
                    is_head = value == b"HEAD";
                    return false;
                }
                _ => return false,
            }
            true
        })?;
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Receiving(Receiving { begun, streams, offer }) => {
                let client = offer.map_or(ClientWriter::Front, ClientWriter::Offered);
                let tunnel = if accepts.tunnel { descriptors.pop_front() } else { None };
                State::Running(Request {
                    begun,
                    streams,
                    client,
                    accepts,
                    is_head,
                    announcement,
                    tunnel,
                })
            }
            other => other,
        };
        Ok(())
    }

    /// Handles `ABORT_REQUEST` for the current request.
    fn abort(&mut self) -> Event<F> {
        if let State::Running(request) = &mut self.state {
            request.client = ClientWriter::Gone;
            return Event::None;
        }
        // The application does not see this request.
        let Some(begun) = self.begun() else { return Event::None };
        self.end();
        let records = EndRequest { app_status: 0, protocol_status: 0 }.encode(begun.id).to_vec();
        let is_last = self.peer.closes_connections() && !begun.keep_conn;
        Event::Send { records, next: if is_last { AfterSend::Ended } else { AfterSend::GoOn } }
    }

    /// Sets the file of [`Event::CheckBody`] as the body, after the caller has checked it.
    ///
    /// # Errors
    /// The body has begun to arrive as `STDIN` records.
    pub fn body_file(&mut self, request_id: u16, file: F, length: u64) -> Result<(), Error> {
        match &mut self.state {
            State::Running(request) if request.begun.id == request_id => {
                let became = request.streams.stdin.become_file(file, length);
                if became { Ok(()) } else { Err(Error::BodyFile) }
            }
            _ => Ok(()),
        }
    }
}

impl<F> Request<F> {
    /// The id of the request on its link.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.begun.id
    }

    /// The worker's number of the request's link.
    #[must_use]
    pub fn link(&self) -> usize {
        self.begun.link
    }

    /// The role of the application.
    #[must_use]
    pub fn role(&self) -> Role {
        self.begun.role
    }

    /// True if the method is `HEAD`.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.is_head
    }

    /// The channel of the front that sent the request, if it announced one.
    #[must_use]
    pub fn announcement(&self) -> Option<&Announcement> {
        self.announcement.as_ref()
    }

    /// True if the client has closed the connection: `ABORT_REQUEST` has arrived, or a write to its
    /// socket has failed.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        matches!(self.client, ClientWriter::Gone)
    }

    /// True if the front accepts `LENGTH`, `DETACH` and `READY`.
    #[must_use]
    pub fn accepts_framing(&self) -> bool {
        self.accepts.framing
    }

    /// True if a header block with an interim status (1xx) may precede the final one. Fronts that
    /// announce any way of handover support that; some other servers would mistake it for the final
    /// block.
    #[must_use]
    pub fn accepts_interim(&self) -> bool {
        self.accepts.framing || self.accepts.regions || self.client.is_lent()
    }

    /// True if the front accepts `OPEN` and `SEGMENT`.
    #[must_use]
    pub fn accepts_files(&self) -> bool {
        self.accepts.files
    }

    /// True if the front accepts `REGION` and `PIECE`.
    #[must_use]
    pub fn accepts_regions(&self) -> bool {
        self.accepts.regions
    }

    /// True if the front accepts `EXPLAIN`.
    #[must_use]
    pub fn accepts_explanations(&self) -> bool {
        self.accepts.explanations
    }

    /// True if the front accepts `NAMED`.
    #[must_use]
    pub fn accepts_named(&self) -> bool {
        self.accepts.named
    }

    /// True if the application may answer on a connection of its own.
    #[must_use]
    pub fn has_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    /// The application's end of the connection on which it answers, once. The client's socket, if it
    /// was lent, belongs to the front again.
    pub fn take_tunnel(&mut self) -> Option<F> {
        let tunnel = self.tunnel.take()?;
        if self.client.is_lent() {
            self.client = ClientWriter::Front;
        }
        Some(tunnel)
    }

    /// The stream of `STDIN` or `DATA`.
    pub fn stream_mut(&mut self, kind: Kind) -> &mut Body<F> {
        if kind == Kind::DATA { &mut self.streams.data } else { &mut self.streams.stdin }
    }

    /// True if the whole body has arrived, or more than `enough` bytes.
    #[must_use]
    pub fn body_arrived(&self, enough: usize) -> bool {
        self.streams.stdin.arrived(enough)
    }

    /// True if the body can be read without receiving more.
    #[must_use]
    pub fn body_is_readable(&self) -> bool {
        self.streams.stdin.is_readable()
    }

    /// True if the whole request has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.streams.stdin.is_complete() && self.streams.data.is_complete()
    }
}

/// The answer to a management record (FastCGI §4).
fn management(kind: Kind, content: &[u8]) -> Vec<u8> {
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
    record
}
