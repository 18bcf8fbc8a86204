//! A host of an application that speaks HTTP, SCGI, uwsgi or AJP, and its kept connections.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::BytesMut;
use sendoff_config::{Address, GatewayProtocol, Proxy};
use sendoff_message::request::Request;
use sendoff_tls::TlsClient;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::queue::QueueLimits;
use sendoff_upstream_http2::{Connections, Http2Request, Http2Stream};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::host_limit::{HostLimit, HostPermit};
use super::protocol::RequestProtocol;
use super::proxy_header;
use super::stream::{Plain, Stream};

/// The idle timeout of a connection. It is shorter than the 5 s of Node.js, so that few requests
/// meet a connection that is about to be closed.
const IDLE_TIME: Duration = Duration::from_secs(4);
/// The longest idle time of a connection for a request that must not be sent twice: half of
/// gunicorn's 2 s, the shortest idle timeout of the common application servers.
const FRESH: Duration = Duration::from_secs(1);
/// The time for which a host is expected to end further connections without a word, as gunicorn
/// does after `--max-requests`.
const UNRELIABLE: Duration = Duration::from_secs(60);
/// The most idle connections to one host, of all event loops together.
const MAX_IDLE: usize = 64;

/// Names of protocols for ALPN (RFC 7301).
const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

/// A host of an application, shared by all event loops.
#[derive(Debug)]
pub struct Host {
    manner: Arc<Manner>,
    address: Address,
    /// Idle connections; the last one was used most recently.
    idle: Mutex<VecDeque<Idle>>,
    /// The time at which a connection was last found ended amid a request, or before it had been
    /// idle for [`FRESH`].
    ended_early: Mutex<Option<Instant>>,
    /// Connections of HTTP/2.
    http2: Connections,
    room: HostLimit,
    /// Requests that it was given.
    requests: AtomicU64,
}

/// The connections that a request may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// A kept connection, if there is any: the request may be repeated if the connection is closed
    /// at this moment.
    Kept,
    /// A kept connection that is unlikely to be closed soon: the request must not be processed
    /// twice.
    Fresh,
    /// A new connection.
    New,
}

/// The protocol and the settings with which all hosts of an application are asked.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) proxy: Proxy,
    pub(super) tls: Option<Result<TlsClient, String>>,
}

/// A connection that is registered with the event loop of thread `thread`.
#[derive(Debug)]
struct Idle {
    stream: Stream,
    thread: ThreadId,
    since: Instant,
}

impl Manner {
    /// An error in the root certificates is kept, and reported when a host is connected to.
    pub(super) fn new(proxy: Proxy) -> Self {
        let tls = match &proxy.protocol {
            GatewayProtocol::Http { tls: Some(tls), .. } => Some(TlsClient::new(tls, Some(HTTP_1))),
            GatewayProtocol::Http2 { tls: Some(tls), .. } => {
                Some(TlsClient::new(tls, Some(HTTP_2)))
            }
            _ => None,
        };
        Self { proxy, tls }
    }
}

impl Host {
    /// A host that gets at most `limit` requests at a time.
    pub(super) fn new(manner: Arc<Manner>, address: Address, limit: Option<NonZeroUsize>) -> Self {
        let room = HostLimit::new(limit, QueueLimits::default());
        Self {
            manner,
            address,
            idle: Mutex::default(),
            ended_early: Mutex::default(),
            http2: Connections::default(),
            room,
            requests: AtomicU64::new(0),
        }
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The settings with which it is asked.
    pub(super) fn proxy(&self) -> &Proxy {
        &self.manner.proxy
    }

    /// Requests that it was given since the front has known it.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Begins a request on a connection of HTTP/2.
    pub(super) async fn begin_http2(
        &self,
        request: &Rc<Http2Request>,
        client: Option<&Request>,
    ) -> Result<Http2Stream, UpstreamError> {
        self.http2.begin(request, async || self.connect(client).await).await
    }

    /// Waits for permission to give the host one more request, which is counted.
    pub(super) async fn enter(&self) -> Result<Option<HostPermit>, UpstreamError> {
        let place = self.room.enter().await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(place)
    }

    /// Connects to the host, to find out if it is up.
    ///
    /// # Errors
    /// The host cannot be reached.
    pub(super) async fn probe(&self) -> Result<(), UpstreamError> {
        self.within_limit(async { Plain::connect(&self.address).await.map(drop).map_err(said) })
            .await
    }

    /// A kept connection that the request may use, if there is one. A connection that was idle for
    /// less than [`FRESH`] is unlikely to be closed soon, unless another one was; with AJP, the
    /// application must answer a ping on the connection instead.
    pub(super) async fn kept(&self, reuse: Reuse, protocol: RequestProtocol) -> Option<Stream> {
        loop {
            let stream = match (reuse, protocol) {
                (Reuse::New, _) => return None,
                (Reuse::Kept, _) => return self.take(IDLE_TIME),
                (
                    Reuse::Fresh,
                    RequestProtocol::Http { .. } | RequestProtocol::Scgi | RequestProtocol::Uwsgi,
                ) => {
                    if self.ends_early() {
                        return None;
                    }
                    // A connection that has ended may just have been found.
                    return self.take(FRESH).filter(|_| !self.ends_early());
                }
                (Reuse::Fresh, RequestProtocol::Ajp { .. }) => self.take(IDLE_TIME)?,
            };
            let pinged = timeout(self.proxy().timeouts.connect, ping(stream)).await;
            if let Ok(Some(stream)) = pinged {
                return Some(stream);
            }
        }
    }

    /// The most recently used connection of this event loop, if it was idle for less than `limit`.
    fn take(&self, limit: Duration) -> Option<Stream> {
        let thread = thread::current().id();
        let mut idle = self.idle();
        loop {
            let at = idle.iter().rposition(|one| one.thread == thread)?;
            idle.get(at).filter(|one| one.since.elapsed() < limit)?;
            let Idle { mut stream, since, .. } = idle.remove(at)?;
            if stream.is_quiet() {
                return Some(stream);
            }
            if since.elapsed() < FRESH {
                self.note_early_end();
            }
        }
    }

    /// Notes that the host has ended a connection when a request might have been on its way.
    pub(super) fn note_early_end(&self) {
        *self.early_end() = Some(Instant::now());
    }

    fn ends_early(&self) -> bool {
        self.early_end().is_some_and(|last| last.elapsed() < UNRELIABLE)
    }

    fn early_end(&self) -> MutexGuard<'_, Option<Instant>> {
        self.ended_early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, stream: Stream) {
        // With the PROXY protocol, a connection belongs to one client.
        if self.proxy().proxy_protocol {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push_back(Idle { stream, thread: thread::current().id(), since: Instant::now() });
        }
    }

    /// Makes a connection for a request of this client; `None`: for a request of this server.
    pub(super) async fn connect(&self, client: Option<&Request>) -> Result<Stream, UpstreamError> {
        self.within_limit(self.try_connect(client)).await
    }

    /// The result of `connecting`, or an error after the connect timeout.
    async fn within_limit<T>(
        &self,
        connecting: impl Future<Output = Result<T, String>>,
    ) -> Result<T, UpstreamError> {
        let limit = self.proxy().timeouts.connect;
        let (kind, why) = match timeout(limit, connecting).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(why)) => {
                (UpstreamErrorKind::Unreachable, format!("it cannot be connected to: {why}"))
            }
            Err(_) => {
                (UpstreamErrorKind::ConnectTimedOut, format!("it took no connection for {limit:?}"))
            }
        };
        Err(UpstreamError::new(kind, Retry::Safe, why))
    }

    /// `client`: `None` for a request of this server.
    async fn try_connect(&self, client: Option<&Request>) -> Result<Stream, String> {
        let mut plain = Plain::connect(&self.address).await.map_err(said)?;
        if self.proxy().proxy_protocol {
            plain.write_all(&proxy_header::header(client)).await.map_err(said)?;
        }
        let Some(tls) = &self.manner.tls else { return Ok(Stream::Plain(plain)) };
        let TlsClient { config, server_name } = tls.as_ref().map_err(Clone::clone)?;
        let connector = TlsConnector::from(Arc::clone(config));
        let shaken = connector.connect(server_name.clone(), plain).await;
        let tls = shaken.map_err(|error| format!("TLS: {error}"))?;
        // A host without ALPN speaks HTTP/1.1.
        let wants_http2 = config.alpn_protocols.iter().any(|protocol| protocol == HTTP_2);
        if wants_http2 && tls.get_ref().1.alpn_protocol() != Some(HTTP_2) {
            return Err(
                "it does not speak HTTP/2 over TLS: it has not chosen h2 by ALPN".to_owned()
            );
        }
        Ok(Stream::Tls(Box::new(tls)))
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        // A panic elsewhere cannot leave the list inconsistent.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections that have been idle for too long, or are not quiet.
    pub(super) fn close_old(&self) {
        self.http2.close_idle();
        let now = Instant::now();
        self.idle().retain_mut(|idle| {
            now.duration_since(idle.since) < IDLE_TIME && idle.stream.is_quiet()
        });
    }
}

/// Asks an AJP container for an answer; `None`: it gave none.
async fn ping(mut stream: Stream) -> Option<Stream> {
    let Stream::Plain(plain) = &mut stream else { return None };
    plain.write_all(&sendoff_ajp::PING).await.ok()?;
    let decoder = sendoff_ajp::Decoder::new(sendoff_ajp::PACKET_SIZE);
    let mut received = BytesMut::new();
    loop {
        let n = poll_fn(|cx| stream.poll_read(cx, &mut received)).await.ok()?;
        if n == 0 {
            return None;
        }
        match decoder.next(&mut received).ok()? {
            Some(sendoff_ajp::ContainerPacket::Pong) if received.is_empty() => return Some(stream),
            Some(_) => return None,
            None => {}
        }
    }
}

fn said(error: io::Error) -> String {
    error.to_string()
}
