//! One request to an application and its response: the I/O for `sender.rs` and `parser.rs`.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use sendoff_delivery::segment::Segment;
use sendoff_message::request::Request;
use sendoff_message::response::ResponseEnd;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::hosts::AttemptGuard;
use sendoff_upstream::inbox::Event;
use tokio::time::{Instant, timeout_at};

use super::application::Gateway;
use super::host::{Host, Reuse};
use super::host_limit::HostPermit;
use super::parser::{GatewayResponseParser, ResponseEvent};
use super::request::GatewayRequest;
use super::sender::RequestSender;
use super::stream::{self, Stream};

/// Timeouts for an application; `None`: unlimited.
#[derive(Debug, Clone, Copy)]
pub struct GatewayTimeLimits {
    /// Time until the first byte of the response.
    pub first_byte: Option<Duration>,
    /// Time without any progress after the first byte.
    pub silence: Option<Duration>,
    /// Time for the whole exchange.
    pub total: Option<Duration>,
}

/// A request and its response. Dropping it before the last event closes the connection.
/// [`next`](Self::next) is cancellation-safe: dropping its future loses nothing.
#[derive(Debug)]
pub struct GatewayExchange {
    gateway: Arc<Gateway>,
    host: Arc<Host>,
    busy: BusyGuard,
    patience: GatewayTimeLimits,
    began: Instant,
    driver: RefCell<ExchangeIo>,
}

/// Counts the host as busy with the request until dropped.
#[derive(Debug, Default)]
pub struct BusyGuard {
    _permit: Option<HostPermit>,
    _attempt: Option<AttemptGuard<Host>>,
}

#[derive(Debug)]
struct ExchangeIo {
    /// `None` once the exchange has ended.
    stream: Option<Stream>,
    /// The connection has served other requests.
    is_kept: bool,
    sender: RequestSender,
    parser: GatewayResponseParser,
    received: BytesMut,
    /// A byte of the response has arrived.
    was_heard: bool,
}

/// The result of one round of I/O.
enum IoProgress {
    Said(ResponseEvent),
    /// Bytes have moved, but no part is complete yet.
    Moved,
}

impl GatewayExchange {
    /// Gives a request of `client` to a host of an application. The exchange is on the heap,
    /// because it is moved through several futures.
    ///
    /// # Errors
    /// The host cannot be reached.
    pub async fn begin(
        gateway: &Arc<Gateway>,
        host: &Arc<Host>,
        request: Rc<GatewayRequest>,
        client: &Request,
        reuse: Reuse,
        patience: GatewayTimeLimits,
    ) -> Result<Box<Self>, UpstreamError> {
        let place = host.enter().await?;
        let kept = host.kept(reuse, request.protocol).await;
        let is_kept = kept.is_some();
        let stream = match kept {
            Some(stream) => stream,
            // On the heap, because most requests find a kept connection.
            None => Box::pin(host.connect(client)).await?,
        };
        let parser = GatewayResponseParser::new(&request);
        let driver = ExchangeIo {
            stream: Some(stream),
            is_kept,
            sender: RequestSender::new(request)?,
            parser,
            received: BytesMut::new(),
            was_heard: false,
        };
        Ok(Box::new(Self {
            gateway: Arc::clone(gateway),
            host: Arc::clone(host),
            busy: BusyGuard { _permit: place, _attempt: None },
            patience,
            began: Instant::now(),
            driver: RefCell::new(driver),
        }))
    }

    /// The application.
    #[must_use]
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The application as named in logs; for an upstream, with the host.
    pub fn who(&self) -> String {
        self.gateway.name_of(&self.host)
    }

    /// True if the connection has served other requests.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.driver.borrow().is_kept
    }

    /// Counts the exchange as work of its host until it ends.
    pub fn hold(&mut self, attempt: AttemptGuard<Host>) {
        self.busy._attempt = Some(attempt);
    }

    /// The next event that can be derived from received bytes; `None`: more bytes are needed.
    pub fn try_next(&self) -> Option<Event> {
        let said = self.driver.borrow_mut().said();
        match said {
            Ok(None) => None,
            Ok(Some(said)) => Some(self.event(said)),
            Err(error) => Some(self.failed(error)),
        }
    }

    /// Waits for the next event.
    pub async fn next(&self) -> Event {
        loop {
            let step = poll_fn(|cx| self.driver.borrow_mut().poll(cx));
            let step = match self.deadline() {
                Some(deadline) => timeout_at(deadline, step).await.unwrap_or_else(|_| {
                    let total =
                        self.patience.total.is_some_and(|most| self.began.elapsed() >= most);
                    Err(if total { too_long() } else { UpstreamError::silent() })
                }),
                None => step.await,
            };
            match step {
                Ok(IoProgress::Moved) => {}
                Ok(IoProgress::Said(said)) => return self.event(said),
                Err(error) => return self.failed(error),
            }
        }
    }

    /// After a switch of the protocol, returns the connection, the bytes received since, and the
    /// value that counts the host as busy.
    #[must_use]
    pub fn into_tunnel(self) -> Option<(Stream, BytesMut, BusyGuard)> {
        let ExchangeIo { stream, received, .. } = self.driver.into_inner();
        stream.map(|stream| (stream, received, self.busy))
    }

    fn deadline(&self) -> Option<Instant> {
        let (was_heard, is_starved) = {
            let driver = self.driver.borrow();
            (driver.was_heard, driver.sender.is_starved())
        };
        let patience = &self.patience;
        let silence = match was_heard {
            // No timeout while a slow client delays the exchange.
            _ if is_starved => None,
            true => patience.silence,
            false => patience.first_byte,
        };
        let silent = silence.and_then(|most| Instant::now().checked_add(most));
        let total = patience.total.and_then(|most| self.began.checked_add(most));
        [silent, total].into_iter().flatten().min()
    }

    fn event(&self, said: ResponseEvent) -> Event {
        match said {
            ResponseEvent::Head(head) => Event::Head(head),
            ResponseEvent::Switch(head) => Event::Switch(head),
            ResponseEvent::Bytes(bytes) => Event::Segment(Segment::Bytes(bytes)),
            ResponseEvent::Trailers(trailers) => Event::Trailers(trailers),
            ResponseEvent::End { may_stay } => {
                let mut driver = self.driver.borrow_mut();
                let is_clean = driver.received.is_empty() && driver.sender.is_done();
                let stream = driver.stream.take();
                stream::give_back(std::mem::take(&mut driver.received));
                if let Some(stream) = stream.filter(|_| may_stay && is_clean) {
                    self.host.keep(stream);
                }
                Event::End(ResponseEnd::Complete)
            }
            ResponseEvent::Closed => {
                self.driver.borrow_mut().stream = None;
                Event::End(ResponseEnd::Closed)
            }
            // `ExchangeIo::said` never returns these.
            ResponseEvent::Wants(_) | ResponseEvent::Nothing => Event::Failed(out_of_place()),
        }
    }

    fn failed(&self, error: UpstreamError) -> Event {
        let mut driver = self.driver.borrow_mut();
        driver.stream = None;
        if driver.is_kept && !driver.was_heard && error.kind() == UpstreamErrorKind::Died {
            self.host.note_early_end();
        }
        Event::Failed(error)
    }
}

impl ExchangeIo {
    /// The next part of the response that can be derived from received bytes; `None`: more bytes
    /// are needed.
    fn said(&mut self) -> Result<Option<ResponseEvent>, UpstreamError> {
        loop {
            match self.parser.next(&mut self.received)? {
                ResponseEvent::Nothing => return Ok(None),
                ResponseEvent::Wants(bytes) => {
                    self.sender.wants(bytes)?;
                }
                said => return Ok(Some(said)),
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<IoProgress, UpstreamError>> {
        let was_starved = self.sender.is_starved();
        loop {
            if let Some(said) = self.said()? {
                return Poll::Ready(Ok(IoProgress::Said(said)));
            }
            let Some(stream) = &mut self.stream else {
                return Poll::Ready(Err(out_of_place()));
            };
            let has_sent = self.sender.poll(stream, cx)?;
            match stream.poll_read(cx, &mut self.received) {
                Poll::Ready(Ok(1..)) => self.was_heard = true,
                Poll::Ready(Ok(0)) => {
                    let ends = self.parser.closed()?;
                    return Poll::Ready(if ends {
                        Ok(IoProgress::Said(ResponseEvent::Closed))
                    } else {
                        Err(self.died(self.was_closed_before()))
                    });
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(self.died(false))),
                // Another timeout applies while the client delays the exchange.
                Poll::Pending if has_sent || self.sender.is_starved() != was_starved => {
                    return Poll::Ready(Ok(IoProgress::Moved));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// True if the application closed its sending direction of a kept connection before the request
    /// arrived.
    fn was_closed_before(&self) -> bool {
        let is_silent = !self.was_heard && self.is_kept;
        let written = self.sender.written();
        is_silent && self.stream.as_ref().is_some_and(|stream| stream.is_unreceived(written))
    }

    /// The error for a connection that was closed too early. `is_unread`: the application cannot
    /// have read any byte of the request.
    fn died(&self, is_unread: bool) -> UpstreamError {
        let retry =
            if self.sender.written() == 0 || is_unread { Retry::Safe } else { Retry::Unsafe };
        let why = match self.was_heard {
            true => "it closed the connection before the end of its response",
            false => "it closed the connection without a response",
        };
        UpstreamError::new(UpstreamErrorKind::Died, retry, why)
    }
}

fn too_long() -> UpstreamError {
    let why = "its response took longer than total_timeout";
    UpstreamError::new(UpstreamErrorKind::Silent, Retry::Unsafe, why)
}

fn out_of_place() -> UpstreamError {
    UpstreamError::new(UpstreamErrorKind::Server, Retry::Unsafe, "its exchange has ended already")
}
