//! The beginning of an application's response: everything up to the end of its header block.

use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink::{Sink, unless_gone};
use sendoff_fastcgi::direct::Sent;
use sendoff_http1::CgiHeadReader;
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::{BadLine, CgiHead, ResponseHead};
use sendoff_upstream::error::UpstreamError;
use sendoff_upstream::inbox::Event;
use tokio::time::timeout;

use crate::exchange::UpstreamExchange;
use crate::failure::ApplicationFailure;
use crate::fields::is_for_server;

/// Maximum number of explanations kept before the header block; further ones are dropped.
const MAX_EARLY_EXPLANATIONS: usize = 1000;

/// Maximum number of interim responses before the final one. Browsers use the first; a page may
/// send one per phase of its work.
const MAX_INTERIM: usize = 32;

/// Longest wait for a head after its client has gone: the default time in which a script may send
/// nothing (`request_timeout`).
const AFTER_CLIENT: Duration = Duration::from_secs(300);

/// The beginning of a response.
#[derive(Debug)]
pub enum ResponseStart {
    /// The final header block. Boxed, because it is moved through several futures.
    Head(Box<ReceivedHead>),
    /// The worker has written the response to the client itself.
    Sent(Sent),
    /// The response comes on the connection that was sent along with the request.
    Tunnel,
    /// The upstream has switched to a protocol that the client has offered.
    Switch(CgiHead),
}

/// The final header block, and everything received before and with it.
#[derive(Debug)]
pub struct ReceivedHead {
    /// The head.
    pub head: CgiHead,
    /// Body bytes that came with the end of the header block.
    pub rest: Bytes,
    /// The body length that the worker announced.
    pub length: Option<u64>,
    /// The contents of `EXPLAIN` records.
    pub explanations: Vec<Bytes>,
    /// The file that the header block names, if the worker has opened it.
    pub named: Option<OwnedFd>,
}

/// The reason why no response has begun.
#[derive(Debug)]
pub enum NoAnswer {
    /// The upstream failed before any byte of an answer. The error's `retry` tells if the upstream
    /// may have read the request.
    Silent(UpstreamError),
    /// The request was processed, at least in part.
    Failed(ApplicationFailure),
}

impl From<ApplicationFailure> for NoAnswer {
    fn from(failure: ApplicationFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Waits for the final header block, or for the worker's record that it has written to the client
/// itself. Passes interim responses on to the client. If the client goes, the head is still awaited
/// if `outlives_client` says so.
///
/// # Errors
/// The client has gone.
pub async fn read(
    exchange: &UpstreamExchange,
    request: &Request,
    outlives_client: impl FnOnce() -> bool,
    sink: &mut dyn Sink,
) -> Result<Result<ResponseStart, NoAnswer>, Cut> {
    let mut beginning = Beginning::default();
    loop {
        let block = match unless_gone(sink, beginning.next(exchange, request)).await {
            Ok(block) => block,
            // Without the end of its body, the request is not complete.
            Err(gone) if !request.body.is_complete() || !outlives_client() => return Err(gone),
            Err(gone) if exchange.withdraw() => return Err(gone),
            Err(gone) => {
                let answer = timeout(AFTER_CLIENT, beginning.last(exchange, request)).await;
                return answer.map_err(|_| gone);
            }
        };
        match block {
            Ok(HeaderBlock::Final(answer)) => return Ok(Ok(answer)),
            Ok(HeaderBlock::Interim(head)) => {
                sink.interim(head)?;
                // Bytes that a slow client does not take now leave with the final head.
                sink.send_now()?;
            }
            Err(no_answer) => return Ok(Err(no_answer)),
        }
    }
}

enum HeaderBlock {
    Interim(ResponseHead),
    Final(ResponseStart),
}

/// The parts of one response received so far, up to the end of its final header block.
#[derive(Default)]
struct Beginning {
    reader: CgiHeadReader,
    /// Bytes that followed an interim header block.
    rest: Bytes,
    /// A head that needs no more parsing.
    head: Option<CgiHead>,
    /// Interim header blocks so far.
    interim: usize,
    length: Option<u64>,
    named: Option<OwnedFd>,
    explanations: Vec<Bytes>,
}

impl Beginning {
    /// The next header block. Loses nothing when its future is dropped.
    async fn next(
        &mut self,
        exchange: &UpstreamExchange,
        request: &Request,
    ) -> Result<HeaderBlock, NoAnswer> {
        loop {
            if let Some(head) = self.head.take() {
                inspect(&head, exchange, request)?;
                return self.headed(head, Bytes::new());
            }
            let data = std::mem::take(&mut self.rest);
            if data.is_empty() {
                let event = exchange.next().await;
                if let Some(answer) = self.take(event)? {
                    return Ok(HeaderBlock::Final(answer));
                }
                continue;
            }
            let read = self.reader.push(&data);
            let wrong = |wrong| ApplicationFailure::bad_gateway(format!("it sent {wrong}"));
            let Some((head, rest)) = read.map_err(wrong)? else { continue };
            inspect(&head, exchange, request)?;
            return self.headed(head, rest);
        }
    }

    /// The final header block, for a client that has gone.
    async fn last(
        &mut self,
        exchange: &UpstreamExchange,
        request: &Request,
    ) -> Result<ResponseStart, NoAnswer> {
        loop {
            if let HeaderBlock::Final(answer) = self.next(exchange, request).await? {
                return Ok(answer);
            }
        }
    }

    /// Handles a parsed head; `rest` holds the bytes after it.
    fn headed(&mut self, head: CgiHead, rest: Bytes) -> Result<HeaderBlock, NoAnswer> {
        if head.status.is_informational() {
            (self.reader, self.rest) = (CgiHeadReader::new(), rest);
            return self.interim(head).map(HeaderBlock::Interim);
        }
        let Self { length, named, explanations, .. } = std::mem::take(self);
        let begun = ReceivedHead { head, rest, length, explanations, named };
        Ok(HeaderBlock::Final(ResponseStart::Head(Box::new(begun))))
    }

    fn interim(&mut self, mut head: CgiHead) -> Result<ResponseHead, NoAnswer> {
        self.interim += 1;
        if self.interim > MAX_INTERIM {
            let why = format!("it sent more than {MAX_INTERIM} interim responses");
            return Err(ApplicationFailure::bad_gateway(why).into());
        }
        // Such a response has no body, so a length would be wrong (RFC 9110 §8.6).
        head.content_length = None;
        head.fields.retain(|field| !is_for_server(field.name()));
        Ok(ResponseHead::of(head))
    }

    /// Takes one event. Bytes become `rest`.
    fn take(&mut self, event: Event) -> Result<Option<ResponseStart>, NoAnswer> {
        match event {
            Event::Segment(Segment::Bytes(data)) => self.rest = data,
            Event::Named(file) => self.named = Some(file),
            Event::Explanation(text) => {
                if self.explanations.len() < MAX_EARLY_EXPLANATIONS {
                    self.explanations.push(text);
                }
            }
            Event::Length(announced) => self.length = Some(announced),
            Event::Sent(sent) => return Ok(Some(ResponseStart::Sent(sent))),
            Event::Tunnel if self.is_empty() => return Ok(Some(ResponseStart::Tunnel)),
            Event::Tunnel => return Err(early("the connection")),
            Event::Head(head) => self.head = Some(head),
            Event::Switch(head) => return Ok(Some(ResponseStart::Switch(head))),
            Event::Failed(error) if self.is_empty() => return Err(NoAnswer::Silent(error)),
            Event::Failed(error) => return Err(ApplicationFailure::from(error).into()),
            Event::Segment(Segment::File(_)) => return Err(early("a file")),
            Event::Piece(_) => return Err(early("shared memory")),
            Event::Trailers(_) => return Err(early("trailers")),
            Event::End(_) => {
                return Err(
                    ApplicationFailure::bad_gateway("the response has no header block").into()
                );
            }
        }
        Ok(None)
    }

    /// True if no byte of a header block has arrived.
    fn is_empty(&self) -> bool {
        self.interim == 0 && self.reader.is_empty()
    }
}

/// Logs the lines of a head that were dropped.
///
/// # Errors
/// The server would have obeyed such a line: half of the head means another response.
fn inspect(
    head: &CgiHead,
    exchange: &UpstreamExchange,
    request: &Request,
) -> Result<(), ApplicationFailure> {
    let is_final = !head.status.is_informational();
    let is_obeyed = |line: &&BadLine| line.name().is_some_and(is_obeyed);
    if let Some(line) = head.bad_lines.iter().find(is_obeyed).filter(|_| is_final) {
        let what = "a control character in a field that the server obeys";
        return Err(ApplicationFailure::bad_gateway(format!("it sent {what}: {line}")));
    }
    if let Some(dropped) = head.dropped.filter(|_| is_final) {
        let (request, who) = (request.shown(), exchange.who());
        tracing::warn!(request, "{who}: it sent {dropped}, which is dropped");
    }
    if let Some(line) = head.bad_lines.first() {
        let (request, who) = (request.shown(), exchange.who());
        let what = "a line that is no header field, which is dropped";
        tracing::warn!(request, "{who}: it sent {what}: {line}");
    }
    Ok(())
}

/// True if the server acts on the field, or browsers would guess without it (`Content-Type`).
fn is_obeyed(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    is_for_server(name) || ["Location", "Content-Type"].into_iter().any(is)
}

fn early(what: &str) -> NoAnswer {
    ApplicationFailure::bad_gateway(format!("{what} was handed over before the header block"))
        .into()
}
