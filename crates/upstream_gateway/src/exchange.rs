//! One request to an application and its response: the input and output around `request.rs` and `reader.rs`.

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
use sendoff_upstream::hosts::Turn;
use sendoff_upstream::inbox::Event;
use tokio::time::{Instant, timeout_at};

use super::application::Gateway;
use super::host::{Host, Over};
use super::reader::{Reader, Said};
use super::request::{GatewayRequest, Outgoing};
use super::room::Place;
use super::stream::{self, Stream};

/// How long an application may take; `None`: for ever.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until the first byte of the response.
    pub first_byte: Option<Duration>,
    /// From then on, while nothing moves.
    pub silence: Option<Duration>,
    /// In all.
    pub total: Option<Duration>,
}

/// A request and its response. Dropped before the last event, it closes the connection. [`next`](Self::next) loses nothing when its
/// future is dropped.
#[derive(Debug)]
pub struct GatewayExchange {
    gateway: Arc<Gateway>,
    host: Arc<Host>,
    stay: Stay,
    patience: Patience,
    began: Instant,
    driver: RefCell<Driver>,
}

/// Until it is dropped, the host counts as busy with the request.
#[derive(Debug, Default)]
pub struct Stay {
    _place: Option<Place>,
    _turn: Option<Turn<Host>>,
}

#[derive(Debug)]
struct Driver {
    /// `None` when the exchange has ended.
    stream: Option<Stream>,
    outgoing: Outgoing,
    /// The connection has served other requests.
    is_kept: bool,
    /// Bytes of the request that were written.
    written: u64,
    /// The application takes no more of the request. It may have answered all the same.
    is_deaf: bool,
    /// Bytes were written that wait in TLS.
    must_flush: bool,
    reader: Reader,
    received: BytesMut,
    /// Something of the response has come.
    was_heard: bool,
}

/// What has happened.
enum Step {
    Said(Said),
    /// Bytes have moved; nothing is complete yet.
    Moved,
}

impl GatewayExchange {
    /// Gives a host of an application a request, which `client` has sent. The exchange is made on the heap, since it is moved through
    /// several futures.
    ///
    /// # Errors
    /// The host cannot be reached.
    pub async fn begin(
        gateway: &Arc<Gateway>,
        host: &Arc<Host>,
        request: Rc<GatewayRequest>,
        client: &Request,
        over: Over,
        patience: Patience,
    ) -> Result<Box<Self>, UpstreamError> {
        let place = host.enter().await?;
        let kept = host.kept(over, request.kind).await;
        let is_kept = kept.is_some();
        let stream = match kept {
            Some(stream) => stream,
            // On the heap, because most requests find a kept connection.
            None => Box::pin(host.connect(client)).await?,
        };
        let reader = Reader::new(&request);
        let driver = Driver {
            stream: Some(stream),
            outgoing: Outgoing::new(request)?,
            written: 0,
            is_kept,
            is_deaf: false,
            must_flush: false,
            reader,
            received: BytesMut::new(),
            was_heard: false,
        };
        Ok(Box::new(Self {
            gateway: Arc::clone(gateway),
            host: Arc::clone(host),
            stay: Stay { _place: place, _turn: None },
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

    /// The application; of an upstream, which of its hosts.
    pub fn who(&self) -> String {
        self.gateway.name_of(&self.host)
    }

    /// Whether the connection has served other requests.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.driver.borrow().is_kept
    }

    /// The host has this exchange until its end.
    pub fn hold(&mut self, turn: Turn<Host>) {
        self.stay._turn = Some(turn);
    }

    /// The next event that follows from what has been received.
    pub fn try_next(&self) -> Option<Event> {
        let said = self.driver.borrow_mut().said();
        match said {
            Ok(None) => None,
            Ok(Some(said)) => Some(self.event(said)),
            Err(error) => Some(self.failed(error)),
        }
    }

    /// The next event.
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
                Ok(Step::Moved) => {}
                Ok(Step::Said(said)) => return self.event(said),
                Err(error) => return self.failed(error),
            }
        }
    }

    /// Gives the connection away, on which another protocol is spoken now, what has come of that, and what keeps the host busy.
    #[must_use]
    pub fn into_tunnel(self) -> Option<(Stream, BytesMut, Stay)> {
        let Driver { stream, received, .. } = self.driver.into_inner();
        stream.map(|stream| (stream, received, self.stay))
    }

    fn deadline(&self) -> Option<Instant> {
        let (was_heard, is_starved) = {
            let driver = self.driver.borrow();
            (driver.was_heard, driver.outgoing.is_starved())
        };
        let patience = &self.patience;
        let silence = match was_heard {
            // It is the client that takes its time.
            _ if is_starved => None,
            true => patience.silence,
            false => patience.first_byte,
        };
        let silent = silence.and_then(|most| Instant::now().checked_add(most));
        let total = patience.total.and_then(|most| self.began.checked_add(most));
        [silent, total].into_iter().flatten().min()
    }

    fn event(&self, said: Said) -> Event {
        match said {
            Said::Head(head) => Event::Head(head),
            Said::Switch(head) => Event::Switch(head),
            Said::Bytes(bytes) => Event::Segment(Segment::Bytes(bytes)),
            Said::End { may_stay } => {
                let mut driver = self.driver.borrow_mut();
                let is_clean = driver.received.is_empty() && driver.outgoing.is_done();
                let stream = driver.stream.take();
                stream::give_back(std::mem::take(&mut driver.received));
                if let Some(stream) = stream.filter(|_| may_stay && is_clean && !driver.must_flush)
                {
                    self.host.keep(stream);
                }
                Event::End(ResponseEnd::Complete)
            }
            Said::Closed => {
                self.driver.borrow_mut().stream = None;
                Event::End(ResponseEnd::Closed)
            }
            // `Driver::said` handles these.
            Said::Wants(_) | Said::Nothing => Event::Failed(out_of_place()),
        }
    }

    fn failed(&self, error: UpstreamError) -> Event {
        self.driver.borrow_mut().stream = None;
        Event::Failed(error)
    }
}

impl Driver {
    /// What follows from what has been received; `None`: nothing.
    fn said(&mut self) -> Result<Option<Said>, UpstreamError> {
        loop {
            match self.reader.next(&mut self.received)? {
                Said::Nothing => return Ok(None),
                Said::Wants(bytes) => {
                    self.outgoing.wants(bytes)?;
                }
                said => return Ok(Some(said)),
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, UpstreamError>> {
        let was_starved = self.outgoing.is_starved();
        loop {
            if let Some(said) = self.said()? {
                return Poll::Ready(Ok(Step::Said(said)));
            }
            let has_sent = self.poll_send(cx)?;
            let Some(stream) = &mut self.stream else {
                return Poll::Ready(Err(out_of_place()));
            };
            match stream.poll_read(cx, &mut self.received) {
                Poll::Ready(Ok(1..)) => self.was_heard = true,
                Poll::Ready(Ok(0)) => {
                    let ends = self.reader.closed()?;
                    return Poll::Ready(if ends {
                        Ok(Step::Said(Said::Closed))
                    } else {
                        Err(self.died(self.was_closed_before()))
                    });
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(self.died(false))),
                // Another clock runs while the client is waited for.
                Poll::Pending if has_sent || self.outgoing.is_starved() != was_starved => {
                    return Poll::Ready(Ok(Step::Moved));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Sends what the connection takes. Returns whether it took anything.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let mut has_sent = false;
        let Some(stream) = &mut self.stream else { return Ok(false) };
        if self.is_deaf {
            self.outgoing.give_up();
        } else {
            self.outgoing.poll_more(cx)?;
        }
        while !self.is_deaf && !self.outgoing.bytes().is_empty() {
            match stream.poll_write(cx, self.outgoing.bytes()) {
                Poll::Ready(Ok(n)) => {
                    self.outgoing.advance(n)?;
                    (has_sent, self.must_flush) = (true, true);
                    self.written += n as u64;
                    self.outgoing.poll_more(cx)?;
                }
                Poll::Ready(Err(_)) => self.is_deaf = true,
                Poll::Pending => break,
            }
        }
        if self.must_flush && !self.is_deaf {
            match stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => self.must_flush = false,
                Poll::Ready(Err(_)) => self.is_deaf = true,
                Poll::Pending => {}
            }
        }
        Ok(has_sent)
    }

    /// The application has closed its sending direction of a kept connection before the request came.
    fn was_closed_before(&self) -> bool {
        let is_silent = !self.was_heard && self.is_kept;
        is_silent && self.stream.as_ref().is_some_and(|stream| stream.is_unreceived(self.written))
    }

    /// The application has closed the connection too early. `is_unread`: it cannot have read anything of what was written.
    fn died(&self, is_unread: bool) -> UpstreamError {
        let retry = if self.written == 0 || is_unread { Retry::Safe } else { Retry::Unsafe };
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
