//! One request to an application and its response, over any protocol, with their time limits.

use std::cell::RefCell;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sendoff_message::request::{Body, Request};
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::hosts::AttemptGuard;
use sendoff_upstream::inbox::Event;
use sendoff_upstream_http2::Http2Stream;
use tokio::time::{Instant, timeout_at};

use super::application::Gateway;
use super::application_end::ApplicationEnd;
use super::exchange_io::ExchangeIo;
use super::host::{Host, Reuse};
use super::host_limit::HostPermit;
use super::parser::GatewayResponseParser;
use super::protocol::RequestProtocol;
use super::request::{GatewayMessage, GatewayRequest};
use super::sender::RequestSender;
use super::stream::Stream;
use super::tunnel::GatewayTunnel;

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

/// A request and its response. Dropping it before the last event closes the connection, or resets
/// the stream of HTTP/2.
/// [`next`](Self::next) is cancellation-safe: dropping its future loses nothing.
#[derive(Debug)]
pub struct GatewayExchange {
    source: Source,
    busy: BusyGuard,
    patience: GatewayTimeLimits,
    began: Instant,
    /// As [`is_kept`](GatewayExchange::is_kept).
    is_kept: bool,
    driver: RefCell<Driver>,
}

/// The process that answers.
#[derive(Debug)]
enum Source {
    Host {
        gateway: Arc<Gateway>,
        host: Arc<Host>,
    },
    /// An application with a connection for this request alone; its name in logs.
    Tunnel {
        who: String,
    },
}

impl Source {
    /// The host whose connection it is.
    fn host(&self) -> Option<&Host> {
        match self {
            Self::Host { host, .. } => Some(host),
            Self::Tunnel { .. } => None,
        }
    }
}

/// Counts the host as busy with the request until dropped.
#[derive(Debug, Default)]
pub(super) struct BusyGuard {
    _permit: Option<HostPermit>,
    attempt: Option<AttemptGuard<Host>>,
}

/// The I/O of the exchange.
#[derive(Debug)]
enum Driver {
    /// On a connection of its own.
    Own(ExchangeIo),
    /// On a stream of HTTP/2, beside others.
    Stream(Http2Stream),
}

impl GatewayExchange {
    /// Gives a request to a host of an application. `client`: the request of the client; `None`: the
    /// request is the server's own. The exchange is on the heap, because it is moved through several
    /// futures.
    ///
    /// # Errors
    /// The host cannot be reached, or it has as many requests as its limit allows, and the wait was
    /// too long or the queue is full.
    pub async fn begin(
        gateway: &Arc<Gateway>,
        host: &Arc<Host>,
        message: &GatewayMessage,
        client: Option<&Request>,
        reuse: Reuse,
        patience: GatewayTimeLimits,
    ) -> Result<Box<Self>, UpstreamError> {
        let permit = host.enter().await?;
        let (driver, is_kept) = match message {
            GatewayMessage::Bytes(request) => {
                let kept = host.kept(reuse, request.protocol).await;
                let is_kept = kept.is_some();
                let stream = match kept {
                    Some(stream) => stream,
                    // On the heap, because most requests find a kept connection.
                    None => Box::pin(host.connect(client)).await?,
                };
                let parser = GatewayResponseParser::new(request);
                let sender = RequestSender::new(Rc::clone(request))?;
                (Driver::Own(ExchangeIo::new(stream, is_kept, sender, parser)), is_kept)
            }
            GatewayMessage::Http2(request) => {
                let stream = Box::pin(host.begin_http2(request, client)).await?;
                let is_kept = reuse != Reuse::New && stream.is_shared();
                (Driver::Stream(stream), is_kept)
            }
        };
        Ok(Box::new(Self {
            source: Source::Host { gateway: Arc::clone(gateway), host: Arc::clone(host) },
            busy: BusyGuard { _permit: permit, attempt: None },
            patience,
            began: Instant::now(),
            is_kept,
            driver: RefCell::new(driver),
        }))
    }

    /// The response to a request that has reached the application `who` on another way, on a
    /// connection for this response alone.
    ///
    /// # Errors
    /// The socket cannot be used by this event loop.
    pub fn on_tunnel(
        socket: OwnedFd,
        protocol: RequestProtocol,
        patience: GatewayTimeLimits,
        who: String,
    ) -> Result<Box<Self>, UpstreamError> {
        let body = Body::Memory(Bytes::new());
        let request = GatewayRequest { head: Bytes::new(), body, is_head: false, protocol };
        let unusable = |error| {
            let why = format!("the connection for its answer cannot be used: {error}");
            UpstreamError::new(UpstreamErrorKind::Server, Retry::Unsafe, why)
        };
        let parser = GatewayResponseParser::new(&request);
        let (stream, is_kept) = (Stream::of_unix(socket).map_err(unusable)?, false);
        let sender = RequestSender::new(Rc::new(request))?;
        let driver = Driver::Own(ExchangeIo::new(stream, is_kept, sender, parser));
        Ok(Box::new(Self {
            source: Source::Tunnel { who },
            busy: BusyGuard::default(),
            patience,
            began: Instant::now(),
            is_kept,
            driver: RefCell::new(driver),
        }))
    }

    /// The application; `None` if it got the request on another way.
    #[must_use]
    pub fn gateway(&self) -> Option<&Gateway> {
        match &self.source {
            Source::Host { gateway, .. } => Some(gateway),
            Source::Tunnel { .. } => None,
        }
    }

    /// The application as named in logs; for an upstream, with the host.
    pub fn who(&self) -> String {
        match &self.source {
            Source::Host { gateway, host } => gateway.name_of(host),
            Source::Tunnel { who } => who.clone(),
        }
    }

    /// True if the connection may have ended before the request: it has served other requests, or
    /// serves others now. The request may then be tried once more.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Counts the exchange as work of its host until it ends.
    pub fn hold(&mut self, attempt: AttemptGuard<Host>) {
        self.busy.attempt = Some(attempt);
    }

    /// The attempt that it is a part of.
    #[must_use]
    pub fn attempt(&self) -> Option<&AttemptGuard<Host>> {
        self.busy.attempt.as_ref()
    }

    /// The next event that can be derived from received bytes; `None`: more bytes are needed.
    pub fn try_next(&self) -> Option<Event> {
        let said = match &mut *self.driver.borrow_mut() {
            Driver::Own(io) => io.said(self.source.host()).transpose(),
            Driver::Stream(stream) => {
                match stream.poll_event(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(event) => Some(event),
                    Poll::Pending => None,
                }
            }
        };
        said.map(|said| said.unwrap_or_else(|error| self.failed(error)))
    }

    /// Waits for the next event.
    pub async fn next(&self) -> Event {
        loop {
            let step = poll_fn(|cx| self.driver.borrow_mut().poll(self.source.host(), cx));
            let step = match self.deadline() {
                Some(deadline) => timeout_at(deadline, step).await.unwrap_or_else(|_| {
                    let total =
                        self.patience.total.is_some_and(|most| self.began.elapsed() >= most);
                    Err(if total { too_long() } else { UpstreamError::silent() })
                }),
                None => step.await,
            };
            match step {
                Ok(None) => {}
                Ok(Some(event)) => return event,
                Err(error) => return self.failed(error),
            }
        }
    }

    /// After a switch of the protocol, returns the tunnel to the application. `limit`: the longest
    /// time without a byte.
    #[must_use]
    pub fn into_tunnel(self, limit: Duration) -> Option<GatewayTunnel> {
        let (end, received) = match self.driver.into_inner() {
            Driver::Own(io) => {
                let (stream, received) = io.into_tunnel()?;
                (ApplicationEnd::Connection(stream), received)
            }
            Driver::Stream(stream) => {
                (ApplicationEnd::Http2(Box::new(stream.into_tunnel()?)), BytesMut::new())
            }
        };
        Some(GatewayTunnel::new(end, received, limit, self.busy))
    }

    fn deadline(&self) -> Option<Instant> {
        let (was_heard, is_starved) = match &*self.driver.borrow() {
            Driver::Own(io) => (io.was_heard, io.is_starved()),
            Driver::Stream(stream) => (stream.was_heard(), stream.is_starved()),
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

    fn failed(&self, error: UpstreamError) -> Event {
        match &mut *self.driver.borrow_mut() {
            Driver::Own(io) => io.fail(&error, self.source.host()),
            Driver::Stream(stream) if error.kind() == UpstreamErrorKind::Silent => {
                stream.distrust();
            }
            Driver::Stream(_) => {}
        }
        Event::Failed(error)
    }
}

impl Driver {
    fn poll(
        &mut self,
        host: Option<&Host>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Event>, UpstreamError>> {
        match self {
            Self::Own(io) => io.poll(host, cx),
            Self::Stream(stream) => stream.poll(cx),
        }
    }
}

fn too_long() -> UpstreamError {
    let why = "its response took longer than total_timeout";
    UpstreamError::new(UpstreamErrorKind::Silent, Retry::Unsafe, why)
}
