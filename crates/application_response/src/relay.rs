//! The body of an application's response on its way to the client.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_delivery_stats::patience::Patience;
use sendoff_exchange::sink::{Fit, Room, Sink, flush, unless_gone};
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::{ResponseEnd, Trailers};
use sendoff_report::explain::Remark;
use sendoff_report::mode::Mode;
use sendoff_site::Site;
use sendoff_site::naming::Naming;
use sendoff_upstream::error::UpstreamErrorKind;
use sendoff_upstream::inbox::Event;
use sendoff_zero_copy::{self as zero_copy, ZeroCopy};
use tokio::time::Instant;

use crate::exchange::UpstreamExchange;

/// The length of a body, as far as it ends the response before the application does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// The response has no body (HEAD, 204, 304), so the client needs no further output.
    NoBody,
    /// Nothing can follow a body of this length.
    Announced(u64),
    /// The response ends when the application says so.
    Open,
}

impl BodyLength {
    /// The number of bytes at which the response is complete.
    fn complete_at(self) -> Option<u64> {
        match self {
            Self::NoBody => Some(0),
            Self::Announced(length) => Some(length),
            Self::Open => None,
        }
    }
}

/// The state of a body when the relay begins.
pub struct RelayedBody<'a> {
    /// Bytes that came with the header block.
    pub rest: Bytes,
    /// The length, if nothing can follow a body of it.
    pub length: BodyLength,
    /// The application has sent more than its announced length.
    pub surplus: bool,
    /// The reader of the names in the body, if there are any.
    pub zero_copy: Option<ZeroCopy>,
    /// Bytes that the client does not take wait in the application, never in the spool.
    pub is_unbuffered: bool,
    /// The limit for the wait of the application for its client.
    pub patience: &'a Patience,
}

/// Passes the body on, up to its end. The head has been queued or sent before. An application that
/// goes on working behind a body of the announced length keeps no client waiting, as behind nginx.
pub async fn pass_body(
    site: &Site,
    request: &Request,
    sink: &mut dyn Sink,
    exchange: UpstreamExchange,
    body: RelayedBody<'_>,
) -> Result<(), Cut> {
    let mut relay = Relay {
        sink,
        exchange: &exchange,
        naming: Naming::within_body(site, request),
        zero_copy: body.zero_copy,
        named: 0,
        surplus: body.surplus,
        left: body.length.complete_at(),
        short: ShortSegments::default(),
        is_unbuffered: body.is_unbuffered,
        patience: body.patience,
        wait: Wait::NotNeeded,
        generated: 0,
        trailers: None,
        ending: ResponseEnd::Failed,
    };
    relay.push(Segment::Bytes(body.rest)).await?;
    let has_ended = relay.run().await?;
    let Relay { surplus, zero_copy, trailers, ending, .. } = relay;
    sink.client().notes().generated += relay.generated;
    if surplus {
        let who = exchange.who();
        let request = request.shown();
        tracing::warn!(
            request,
            "{who}: a response is longer than its Content-Length, the rest is dropped"
        );
    }
    if zero_copy.is_some_and(|places| !places.is_complete()) {
        let who = exchange.who();
        let why = format!("{who}: its body ends before the last name that X-ZeroCopy announced");
        return Err(Cut::application(why));
    }
    // The exchange's resources are free before the wait for a slow client.
    match (has_ended, body.length) {
        // An endless stream would hold its worker after a HEAD.
        (HasEnded::Application, _) | (_, BodyLength::NoBody) => drop(exchange),
        (HasEnded::Body, BodyLength::Announced(_) | BodyLength::Open) => exchange.drain(),
    }
    if let Some(trailers) = trailers {
        sink.trailers(trailers)?;
    }
    let missing = sink.end(ending)?;
    flush(sink).await?;
    if missing > 0 {
        let why = format!("{missing} bytes were missing of the announced Content-Length");
        return Err(Cut::application(why));
    }
    Ok(())
}

/// The most files named in a body that are open at a time.
const MOST_NAMED: usize = 256;

/// The most bytes of a segment that is joined with others that have arrived.
const SHORT: usize = 512;

/// Bytes of joined segments that are pushed at once.
const JOINED: usize = 16 * 1024;

/// Short segments that have arrived together: an application may send byte after byte, and each
/// segment costs a frame or chunk. The front took 1.8 s for one response of 1.2 million bytes, each
/// in a record of its own; a client got three times as many bytes.
#[derive(Debug, Default)]
struct ShortSegments {
    /// The only one so far.
    first: Bytes,
    joined: BytesMut,
}

impl ShortSegments {
    fn add(&mut self, bytes: Bytes) {
        if self.joined.is_empty() && self.first.is_empty() {
            self.first = bytes;
            return;
        }
        self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        self.joined.extend_from_slice(&bytes);
    }

    fn is_enough(&self) -> bool {
        self.joined.len() >= JOINED
    }

    /// All of them as one; empty if there are none.
    fn take(&mut self) -> Bytes {
        match self.joined.is_empty() {
            true => std::mem::take(&mut self.first),
            false => self.joined.split().freeze(),
        }
    }
}

struct Relay<'a> {
    sink: &'a mut dyn Sink,
    exchange: &'a UpstreamExchange,
    naming: Naming<'a>,
    zero_copy: Option<ZeroCopy>,
    /// Files that were named in the body and may still be open.
    named: usize,
    /// The application has sent more than its announced length.
    surplus: bool,
    /// Bytes that are missing of the announced length.
    left: Option<u64>,
    /// Bytes that are not pushed yet.
    short: ShortSegments,
    is_unbuffered: bool,
    patience: &'a Patience,
    wait: Wait,
    /// Body bytes so far; bytes of files do not count.
    generated: u64,
    /// The fields behind the body.
    trailers: Option<Trailers>,
    ending: ResponseEnd,
}

/// The first end that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HasEnded {
    Application,
    /// The client has the announced bytes, and the application goes on.
    Body,
}

/// The worker's wait for a client that may be about to take more; at most one wait per response.
#[derive(Debug, Clone, Copy)]
enum Wait {
    /// The send queue has always had room in memory.
    NotNeeded,
    Until(Instant),
    /// The client is slow: bytes for which the send queue has no room in memory go to the spool.
    Over,
}

impl Relay<'_> {
    async fn push(&mut self, segment: Segment) -> Result<(), Cut> {
        if let Segment::Bytes(bytes) = &segment {
            self.generated += bytes.len() as u64;
        }
        self.left = self.left.map(|left| left.saturating_sub(segment.len()));
        match (&mut self.zero_copy, segment) {
            (Some(places), Segment::Bytes(mut bytes)) => {
                while let Some(piece) = places
                    .next(&mut bytes, &self.naming)
                    .map_err(|denied| Cut::application(denied.why))?
                {
                    if let Some(report) = self.sink.client().report() {
                        report.remark(zero_copy::remark(&piece));
                    }
                    self.named += usize::from(matches!(piece, Segment::File(_)));
                    self.sink.push(piece)?;
                    if self.named >= MOST_NAMED {
                        // Each of them is an open file.
                        flush(self.sink).await?;
                        self.named = 0;
                    }
                }
            }
            (Some(places), segment) => {
                // The worker has handed over body bytes as a range of a file.
                places.skip(segment.len()).map_err(|denied| Cut::application(denied.why))?;
                self.sink.push(segment)?;
            }
            (None, segment) => self.surplus |= self.sink.push(segment)? == Fit::Cut,
        }
        Ok(())
    }

    async fn run(&mut self) -> Result<HasEnded, Cut> {
        let exchange = self.exchange;
        loop {
            // Queues everything that has arrived before the first system call, so that a short
            // response leaves in one packet.
            while self.check_room()
                && let Some(event) = exchange.try_next()
            {
                if self.take(event).await? {
                    return Ok(HasEnded::Application);
                }
            }
            self.push_short().await?;
            let event = match self.sink.send_now()? {
                Progress::Done if self.left == Some(0) => {
                    self.ending = ResponseEnd::Complete;
                    return Ok(HasEnded::Body);
                }
                Progress::Done => unless_gone(self.sink, exchange.next()).await?,
                Progress::Yield => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Progress::Blocked => {
                    let may_take = self.check_room();
                    let may_spool = self.sink.room() != Room::None;
                    let waits_until = self.waits_until().filter(|_| may_spool);
                    tokio::select! {
                        biased;
                        event = exchange.next(), if may_take => event,
                        ready = poll_fn(|cx| self.sink.poll_writable(cx)) => {
                            ready?;
                            continue;
                        }
                        () = sleep_until(waits_until), if !may_take => continue,
                    }
                }
            };
            if self.take(event).await? {
                return Ok(HasEnded::Application);
            }
        }
    }

    /// True if more of the worker's output may be queued now. Starts the wait for the client, and
    /// ends it at its limit.
    fn check_room(&mut self) -> bool {
        let room = self.sink.room();
        if room == Room::Memory || self.is_unbuffered {
            return room == Room::Memory;
        }
        if let Wait::NotNeeded = self.wait {
            self.wait = Wait::Until(Instant::now() + self.patience.limit());
        }
        if let Wait::Until(end) = self.wait
            && Instant::now() >= end
        {
            self.patience.ran_out();
            self.wait = Wait::Over;
        }
        let may_spool = room == Room::Spool && matches!(self.wait, Wait::Over);
        if may_spool {
            self.sink.client().note_slow();
        }
        may_spool
    }

    fn waits_until(&self) -> Option<Instant> {
        match self.wait {
            Wait::Until(end) => Some(end),
            Wait::NotNeeded | Wait::Over => None,
        }
    }

    async fn push_short(&mut self) -> Result<(), Cut> {
        let bytes = self.short.take();
        if bytes.is_empty() { Ok(()) } else { self.push(Segment::Bytes(bytes)).await }
    }

    /// Handles an event. Returns true at the end of the response.
    async fn take(&mut self, event: Event) -> Result<bool, Cut> {
        let event = match event {
            Event::Segment(Segment::Bytes(bytes)) if bytes.len() <= SHORT => {
                self.short.add(bytes);
                if self.short.is_enough() {
                    self.push_short().await?;
                }
                return Ok(false);
            }
            event => event,
        };
        self.push_short().await?;
        match event {
            Event::Segment(segment) => self.push(segment).await?,
            Event::Explanation(text) => {
                if let Some(report) = self.sink.client().report() {
                    report.remark(Remark::decode(&text));
                }
            }
            Event::Piece(bytes) => {
                // Copied, because the worker could change a file name in shared memory after it was
                // checked.
                let has_names = self.zero_copy.is_some();
                let notes = self.sink.client().notes();
                if notes.mode == Mode::Relay {
                    notes.mode = Mode::Region;
                }
                let bytes = if has_names { Bytes::copy_from_slice(&bytes) } else { bytes };
                self.push(Segment::Bytes(bytes)).await?;
            }
            // These have no effect any more, because the head has been queued.
            Event::Length(_)
            | Event::Named(_)
            | Event::Sent(_)
            | Event::Tunnel
            | Event::Head(_)
            | Event::Switch(_) => {}
            Event::Trailers(trailers) => self.trailers = Some(trailers),
            Event::End(ending) => {
                self.ending = ending;
                self.sink.client().notes().note_worker_free();
                if let Wait::Until(_) = self.wait {
                    self.patience.paid_off();
                }
                return Ok(true);
            }
            Event::Failed(error) => {
                // Segments that the worker had handed over are sent, although the worker has died.
                flush(self.sink).await?;
                if let UpstreamErrorKind::Request(_) = error.kind() {
                    return Err(Cut { why: error.to_string(), ..Cut::client_gone() });
                }
                let why = match error.kind() {
                    UpstreamErrorKind::Silent => "was silent for too long".to_owned(),
                    UpstreamErrorKind::Broken => format!("broke the protocol: {error}"),
                    _ => "died".to_owned(),
                };
                return Err(Cut::application(format!("{} {why}", self.exchange.who())));
            }
        }
        Ok(false)
    }
}

/// Sleeps until `time`; forever if there is none.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
