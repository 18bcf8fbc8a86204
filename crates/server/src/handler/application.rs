//! Scripts: a request goes to a worker or a FastCGI application, its answer to the client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use sendoff_fastcgi::direct::{ACCEPT_DIRECT, Sent};
use sendoff_fastcgi::handover::{
    ACCEPT_EXPLAIN, ACCEPT_FILE, ACCEPT_NAMED, ACCEPT_PARAM, ACCEPT_REGION, ACCEPT_RELAY,
};
use tokio::time::Instant;

use super::parameters::parameters;
use super::sendfile::{self, Denied, Sendable, ZeroCopy, ranges};
use super::{channel, direct};
use crate::connection::{Asked, Client, Outcome, Request};
use crate::delivery::Progress;
use crate::explain::Remark;
use crate::front::Loop;
use crate::handler::error;
use crate::request;
use crate::response::{CgiHead, MAX_HEAD};
use crate::router::{Script, Upstream};
use crate::segment::Segment;
use crate::upstream::{
    Application, Claim, ConnectError, Event, Exchange, RequestMessageBuilder, StreamedRequest,
};

/// Workers that may die before they have read a request, one after the other, until we give up.
const MAX_TRIES: usize = 8;

/// How long a worker may be kept waiting, once per response, for a client that might just be about to take more. Writing
/// to the spool what a fast client takes anyway doubles the cost of a large generated body.
const PATIENCE: Duration = Duration::from_millis(50);

/// Explanations that may come before the header block.
const MAX_EARLY_EXPLANATIONS: usize = 1000;

/// What the application has said up to the end of its header block.
struct Begun {
    head: CgiHead,
    /// Body bytes that came with the end of the header block.
    rest: Bytes,
    /// The length the worker announced.
    length: Option<u64>,
    /// What was explained so far.
    explanations: Vec<Bytes>,
    /// What the header block names was opened by the worker.
    named: Option<OwnedFd>,
}

/// Why there is no response to pass on.
enum Failure {
    /// Nothing was done yet: another worker may try.
    Unread,
    /// Whoever was asked is gone, makes no sense or will not answer, and what to say instead.
    Bad(StatusCode, String),
}

/// Answers a request with what a script says.
///
/// # Errors
/// The client is gone, or its response was cut short after it had begun.
pub(crate) async fn respond(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    request: &Request,
    script: &Script,
) -> io::Result<Outcome> {
    let log_name: Rc<str> =
        format!("{} {}", asked.method, String::from_utf8_lossy(request.head.target.raw())).into();
    let mut parameters = parameters(event_loop, client, request, script);
    let mut since = Instant::now();
    let mut offered = None;
    let answered = match script.upstream {
        Upstream::Workers => {
            offered = direct::offer(event_loop, client, asked, script, &mut parameters);
            let accept = accepted(event_loop, client, offered == Some(true));
            ask_worker(event_loop, client, request, parameters, &accept, &log_name, &mut since)
                .await
        }
        Upstream::Application(number) => {
            let application = &event_loop.applications[number];
            if application.knows_direct() {
                offered = direct::offer(event_loop, client, asked, script, &mut parameters);
            }
            let direct = offered == Some(true);
            let claim = channel::announce(event_loop, application, direct, &mut parameters);
            let message = Rc::new(parameters.streamed(&request.body));
            ask_application(client, application, request, (message, claim), &log_name).await
        }
    };
    let is_lent = offered == Some(true);
    // Not over a new connection to an application.
    let offered =
        offered.filter(|_| answered.as_ref().is_ok_and(|(exchange, _)| exchange.knows_direct()));
    let outcome = match answered {
        Ok((exchange, Answer::Begun(begun))) => {
            pass_on(event_loop, client, asked, request, exchange, begun).await
        }
        Ok((exchange, Answer::Sent(sent))) => {
            direct::take_over(event_loop, client, asked, exchange, sent).await
        }
        Err((_, why)) if !client.is_untouched() => return Err(cut(why)),
        Err((status, why)) => {
            let (request, code) = (&*log_name, status.as_u16());
            tracing::error!(request, "answered with {code}: {why}");
            // Who is only late still has the client's socket.
            let may_write = is_lent && status == StatusCode::GATEWAY_TIMEOUT;
            let asked = Asked { keep_alive: asked.keep_alive && !may_write, ..asked };
            return error::respond(event_loop, client, asked, status).await;
        }
    }?;
    if *asked.method != Method::HEAD && outcome.status != StatusCode::NOT_MODIFIED {
        event_loop.sizes.note(script, client.generated());
        if let Some(offered) = offered.filter(|_| client.kept_up()) {
            event_loop.choice.note(client.generated(), offered, since.elapsed());
        }
    }
    Ok(outcome)
}

/// How an answer begins.
enum Answer {
    /// With its head.
    Begun(Begun),
    /// At the client: the worker has written it.
    Sent(Sent),
}

/// The words of `SENDOFF_ACCEPT` in this request. Where it is explained, none that would let bytes go around the table.
fn accepted(event_loop: &Loop, client: &Client, direct: bool) -> Vec<u8> {
    let delivery = event_loop.site().delivery;
    let framing = if delivery.accepts_files() { ACCEPT_FILE } else { ACCEPT_RELAY };
    let direct = direct.then_some(ACCEPT_DIRECT);
    let region = delivery.accepts_regions().then_some(ACCEPT_REGION);
    let explain = client.report.is_some().then_some(ACCEPT_EXPLAIN);
    words([Some(framing), Some(ACCEPT_NAMED), direct, region, explain])
}

/// A value for `SENDOFF_ACCEPT`.
pub(super) fn words<const N: usize>(words: [Option<&[u8]>; N]) -> Vec<u8> {
    let mut value = Vec::with_capacity(64);
    for word in words.into_iter().flatten() {
        if !value.is_empty() {
            value.push(b' ');
        }
        value.extend_from_slice(word);
    }
    value
}

/// An answer that has begun, or what to say instead and why.
type Answered = Result<(Exchange, Answer), (StatusCode, String)>;

async fn ask_worker(
    event_loop: &Loop,
    client: &Client,
    request: &Request,
    mut parameters: RequestMessageBuilder,
    accept: &[u8],
    log_name: &Rc<str>,
    since: &mut Instant,
) -> Answered {
    parameters.param(ACCEPT_PARAM, accept);
    let message = match &request.body {
        request::Body::Memory(bytes) => parameters.with_bytes(bytes),
        request::Body::File { descriptor, len } => {
            parameters.with_file(Rc::clone(descriptor), *len)
        }
    };
    for _ in 0..MAX_TRIES {
        let ticket = event_loop.pool.acquire(event_loop.number).await;
        let ticket = ticket.map_err(|why| (StatusCode::SERVICE_UNAVAILABLE, why.to_string()))?;
        let Some(link) = event_loop.link(ticket.worker()) else { continue };
        let socket = Some(client.stream.as_fd());
        *since = Instant::now();
        let Ok(exchange) = link.begin(ticket, &message, socket, Rc::clone(log_name)).await else {
            continue;
        };
        let exchange = Exchange::Worker(exchange);
        match begin(&exchange).await {
            Ok(begun) => return Ok((exchange, begun)),
            Err(Failure::Unread) if client.is_untouched() => {}
            Err(Failure::Unread) => {
                let why = format!("{} wrote to the client and died", exchange.who());
                return Err((StatusCode::BAD_GATEWAY, why));
            }
            Err(Failure::Bad(status, why)) => {
                return Err((status, format!("{}: {why}", exchange.who())));
            }
        }
    }
    Err((StatusCode::BAD_GATEWAY, format!("{MAX_TRIES} workers died before they read it")))
}

async fn ask_application(
    client: &Client,
    application: &Arc<Application>,
    request: &Request,
    (message, claim): (Rc<StreamedRequest>, Option<Rc<Claim>>),
    log_name: &Rc<str>,
) -> Answered {
    // Only these may be sent twice without being asked (RFC 9110 §9.2.2).
    let mut repeatable = request.head.method.is_idempotent();
    loop {
        let socket = Some(client.stream.as_fd());
        let begun = application.begin(Rc::clone(&message), repeatable, socket, Rc::clone(log_name));
        let begun = begun.await;
        let mut exchange = match begun {
            Ok(exchange) => Exchange::Application(exchange),
            Err(why) => {
                let status = match why {
                    ConnectError::Busy | ConnectError::Waiting(_) => {
                        StatusCode::SERVICE_UNAVAILABLE
                    }
                    ConnectError::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                    ConnectError::Failed(_) => StatusCode::BAD_GATEWAY,
                };
                return Err((status, format!("{}: {why}", application.address())));
            }
        };
        match begin(&exchange).await {
            Ok(mut answer) => {
                if let Answer::Begun(Begun { head, rest, .. }) = &mut answer {
                    channel::look_for_frames(application, &mut exchange, claim, head, rest);
                }
                return Ok((exchange, answer));
            }
            // The next one goes over a new connection.
            Err(Failure::Unread) if repeatable && client.is_untouched() => repeatable = false,
            Err(Failure::Unread) => {
                let why = format!("{} closed its connection unread", exchange.who());
                return Err((StatusCode::BAD_GATEWAY, why));
            }
            Err(Failure::Bad(status, why)) => {
                return Err((status, format!("{}: {why}", exchange.who())));
            }
        }
    }
}

/// Waits for the whole header block, or for the news that the client has it.
async fn begin(exchange: &Exchange) -> Result<Answer, Failure> {
    let bad = |why: &str| Failure::Bad(StatusCode::BAD_GATEWAY, why.to_owned());
    let (mut received, mut length) = (BytesMut::new(), None);
    let (mut explanations, mut named) = (Vec::new(), None);
    loop {
        let data = match exchange.next().await {
            Event::Segment(Segment::Bytes(data)) => data,
            Event::Named(file) => {
                named = Some(file);
                continue;
            }
            Event::Explanation(text) => {
                if explanations.len() < MAX_EARLY_EXPLANATIONS {
                    explanations.push(text);
                }
                continue;
            }
            Event::Length(announced) => {
                length = Some(announced);
                continue;
            }
            Event::Sent(sent) => return Ok(Answer::Sent(sent)),
            Event::Segment(Segment::File(_)) => {
                return Err(bad("a file was handed over before the header block"));
            }
            Event::Piece(_) => {
                return Err(bad("shared memory was handed over before the header block"));
            }
            Event::End => return Err(bad("the response has no header block")),
            Event::Lost { unread: true } if received.is_empty() => return Err(Failure::Unread),
            Event::Lost { .. } => return Err(bad("it died at work on the request")),
            Event::Busy(why) => {
                return Err(Failure::Bad(StatusCode::SERVICE_UNAVAILABLE, why.to_owned()));
            }
            Event::TimedOut => {
                let why = "it was silent for too long".to_owned();
                return Err(Failure::Bad(StatusCode::GATEWAY_TIMEOUT, why));
            }
        };
        // As a rule the first piece holds the whole block, and nothing is copied.
        let all = if received.is_empty() {
            data
        } else {
            received.extend_from_slice(&data);
            received.clone().freeze()
        };
        if let Some(end) = CgiHead::find_end(&all).filter(|&end| end <= MAX_HEAD) {
            let head = CgiHead::parse(&all.slice(..end));
            let head = head.map_err(|wrong| bad(&format!("it sent {wrong}")))?;
            let rest = all.slice(end..);
            let begun = Begun { head, rest, length, explanations, named };
            return Ok(Answer::Begun(begun));
        }
        // However the pieces fall: a block that is too large is refused, one that fits is not.
        if all.len() > MAX_HEAD {
            return Err(bad(&format!("the header block is larger than {MAX_HEAD} bytes")));
        }
        if received.is_empty() {
            received.extend_from_slice(&all);
        }
    }
}

/// Sends the response, or what it names instead.
async fn pass_on(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    request: &Request,
    exchange: Exchange,
    mut begun: Begun,
) -> io::Result<Outcome> {
    explain(client, &exchange, &begun);
    match sendfile::named_file(&event_loop.sendable, &begun.head, begun.named.take()) {
        None => {}
        Some(Ok(entry)) => {
            exchange.drain();
            return sendfile::respond(event_loop, client, asked, request, &begun.head, entry).await;
        }
        Some(Err(denied)) => {
            return refuse(event_loop, client, asked, exchange, denied).await;
        }
    }
    if let Some(value) = ranges::ranges(&begun.head) {
        return match ranges::open(&event_loop.sendable, value) {
            Ok(segments) => {
                exchange.drain();
                ranges::respond(event_loop, client, asked, &begun.head, segments).await
            }
            Err(denied) => refuse(event_loop, client, asked, exchange, denied).await,
        };
    }
    let zero_copy = match exchange {
        // Workers hand files over, which no output of a script can fake.
        Exchange::Worker(_) => Ok(None),
        Exchange::Application(_) => ZeroCopy::announced(&begun.head).transpose(),
    };
    match zero_copy {
        Ok(zero_copy) => relay(event_loop, client, asked, exchange, begun, zero_copy).await,
        Err(bad) => {
            tracing::error!("{}: answered with 502: it sent {bad}", exchange.who());
            error::respond(event_loop, client, asked, StatusCode::BAD_GATEWAY).await
        }
    }
}

/// Answers instead of a file that may not be sent.
async fn refuse(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    exchange: Exchange,
    denied: Denied,
) -> io::Result<Outcome> {
    let who = exchange.who();
    exchange.drain();
    tracing::error!("{who} named a file, answered with {}: {}", denied.status, denied.why);
    error::respond(event_loop, client, asked, denied.status).await
}

/// What `sendoff explain` should know before the first segment.
fn explain(client: &mut Client, exchange: &Exchange, begun: &Begun) {
    let Some(report) = &mut client.report else { return };
    report.answered_by(exchange.who());
    begun.explanations.iter().for_each(|text| report.remark(Remark::decode(text)));
    let name = sendfile::named(&begun.head)
        .or_else(|| Some(("X-Sendfile2", ranges::ranges(&begun.head)?)));
    if let Some((field, value)) = name {
        let what = format!("{field}: {}", String::from_utf8_lossy(value));
        report.remark(Remark { how: "file".to_owned(), what, ..Remark::default() });
    } else if let Exchange::Application(exchange) = exchange {
        report.remark(Remark {
            how: "bytes".to_owned(),
            what: "a FastCGI application".to_owned(),
            why: handover(exchange.application(), exchange.is_framed()).to_owned(),
            ..Remark::default()
        });
    }
}

/// What a FastCGI application hands over, as far as it has said.
fn handover(application: &Application, is_framed: bool) -> &'static str {
    if is_framed {
        "it hands over files, and copies the rest"
    } else if application.knows_channel() {
        "it can hand over files, but did not in this response"
    } else if application.knows_region() || application.knows_direct() {
        "it hands over memory, no files"
    } else {
        "it has not said that it knows handover"
    }
}

/// Passes the response on, piece by piece, while the client takes it.
async fn relay(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    exchange: Exchange,
    begun: Begun,
    zero_copy: Option<ZeroCopy>,
) -> io::Result<Outcome> {
    let Begun { head, rest, length, .. } = begun;
    // Of a response without a body the worker knows only that there is none; what a GET would get it cannot say.
    let has_body = asked.method != Method::HEAD && head.status != StatusCode::NOT_MODIFIED;
    let length = head.content_length.or(length.filter(|_| has_body));
    // With file names in the body, its length is not the length of what is sent.
    let length = length.filter(|_| zero_copy.is_none());
    let keep_alive = client.begin(asked, head.status, head.reason.as_deref(), length, |out| {
        event_loop.common_fields_unless(out, |name| head.has(name));
        for (name, value) in &head.fields {
            let is_places = zero_copy.is_some() && name.eq_ignore_ascii_case(b"x-zerocopy");
            if !is_places && !sendfile::is_for_us(name) {
                out.field(name, value);
            }
        }
    })?;
    let body = Body { rest, surplus: false, zero_copy };
    pass_body(event_loop, client, exchange, body).await?;
    Ok(Outcome { status: head.status, keep_alive })
}

/// A body that is about to be passed on.
pub(super) struct Body {
    /// Its beginning.
    pub(super) rest: Bytes,
    /// The application has sent more than it had announced.
    pub(super) surplus: bool,
    pub(super) zero_copy: Option<ZeroCopy>,
}

/// Passes the rest of a response on, whose head the client has or is owed, to the end.
pub(super) async fn pass_body(
    event_loop: &Loop,
    client: &mut Client,
    exchange: Exchange,
    body: Body,
) -> io::Result<()> {
    let mut response = Relay {
        client,
        exchange: &exchange,
        sendable: &event_loop.sendable,
        zero_copy: body.zero_copy,
        surplus: body.surplus,
        patience_ends: None,
    };
    response.push(Segment::Bytes(body.rest))?;
    response.run().await?;
    if response.surplus {
        let who = exchange.who();
        tracing::warn!("{who}: a response is longer than its Content-Length, the rest is dropped");
    }
    if response.zero_copy.is_some_and(|places| !places.is_complete()) {
        let who = exchange.who();
        return Err(cut(format!("{who} announced more files in X-ZeroCopy than its body names")));
    }
    // A slow client must not keep the link of a worker that has gone.
    drop(exchange);
    let missing = client.end()?;
    client.flush().await?;
    if missing > 0 {
        return Err(cut(format!("{missing} bytes were missing of the announced Content-Length")));
    }
    Ok(())
}

/// Logs why the client gets no more of a response.
pub(super) fn cut(why: String) -> io::Error {
    tracing::error!("a response was cut short: {why}");
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

struct Relay<'a> {
    client: &'a mut Client,
    exchange: &'a Exchange,
    sendable: &'a Sendable,
    zero_copy: Option<ZeroCopy>,
    /// The application sent more than it had announced.
    surplus: bool,
    /// Set when the send queue was long for the first time.
    patience_ends: Option<Instant>,
}

impl Relay<'_> {
    fn push(&mut self, segment: Segment) -> io::Result<()> {
        match (&mut self.zero_copy, segment) {
            (Some(places), Segment::Bytes(mut bytes)) => {
                let mut next =
                    || places.next(&mut bytes, self.sendable).map_err(|denied| cut(denied.why));
                while let Some(piece) = next()? {
                    self.client.push(piece)?;
                }
            }
            (_, segment) => self.surplus |= !self.client.push(segment)?,
        }
        Ok(())
    }

    async fn run(&mut self) -> io::Result<()> {
        let exchange = self.exchange;
        loop {
            // Everything that has arrived, before the first system call: a short response leaves in one piece.
            while self.may_take()
                && let Some(event) = exchange.try_next()
            {
                if self.take(event).await? {
                    return Ok(());
                }
            }
            let event = match self.client.send_now()? {
                Progress::Done => exchange.next().await,
                Progress::Yield => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Progress::Blocked => {
                    let may_take = self.may_take();
                    let patience_ends =
                        self.patience_ends.filter(|_| self.client.queue().has_room());
                    tokio::select! {
                        biased;
                        event = exchange.next(), if may_take => event,
                        ready = self.client.writable() => {
                            ready?;
                            continue;
                        }
                        () = sleep_until(patience_ends), if !may_take => continue,
                    }
                }
            };
            if self.take(event).await? {
                return Ok(());
            }
        }
    }

    /// Whether the worker may be relieved of more now.
    fn may_take(&mut self) -> bool {
        let queue = self.client.queue();
        if !queue.is_long() {
            return true;
        }
        let patience_ends = *self.patience_ends.get_or_insert_with(|| Instant::now() + PATIENCE);
        let is_over = queue.has_room() && Instant::now() >= patience_ends;
        if is_over {
            self.client.is_slow();
        }
        is_over
    }

    /// Queues what an event brings; true at the end.
    async fn take(&mut self, event: Event) -> io::Result<bool> {
        match event {
            Event::Segment(segment) => self.push(segment)?,
            Event::Explanation(text) => self.client.remark(|| Remark::decode(&text)),
            Event::Piece(bytes) => {
                // File names must stay what they were when they were checked.
                let has_names = self.zero_copy.is_some();
                let bytes = if has_names { Bytes::copy_from_slice(&bytes) } else { bytes };
                self.push(Segment::Bytes(bytes))?;
            }
            // Too late: the head has left.
            Event::Length(_) | Event::Named(_) | Event::Sent(_) => {}
            Event::End => return Ok(true),
            Event::Lost { .. } | Event::Busy(_) | Event::TimedOut => {
                // What it had handed over belongs to the client, whatever became of the worker.
                self.client.flush().await?;
                let why = if matches!(event, Event::TimedOut) {
                    "was silent for too long"
                } else {
                    "died"
                };
                return Err(cut(format!("{} {why}", self.exchange.who())));
            }
        }
        Ok(false)
    }
}

/// Never, if there is no such time.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
