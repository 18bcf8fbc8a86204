//! A host of an application that speaks HTTP, SCGI or AJP: how it is reached, and the connections to it that are kept.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use sendoff_config::{Address, Proxy, ProxyProtocol, ProxyTls};
use sendoff_message::request::Request;
use sendoff_tls::{Verify, client_config};
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::queue::QueueLimits;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::proxy_header;
use super::request::Kind;
use super::room::{Place, Room};
use super::stream::{Plain, Stream};

/// How long a connection is kept while idle: less than the 5 s after which Node.js closes it, so that few requests meet a connection that
/// is about to be closed.
const IDLE_TIME: Duration = Duration::from_secs(4);
/// How long a connection may have been idle that gets a request which must not be sent twice: half of the 2 s after which gunicorn closes
/// one, the shortest such time of those in use.
const FRESH: Duration = Duration::from_secs(1);
/// Connections to one host that all event loops together keep while idle.
const MAX_IDLE: usize = 64;

/// A host of an application, shared by all event loops.
#[derive(Debug)]
pub struct Host {
    manner: Arc<Manner>,
    address: Address,
    /// Connections that no request has now, used last at the end.
    idle: Mutex<VecDeque<Idle>>,
    room: Room,
    /// Requests that it was given.
    requests: AtomicU64,
}

/// Over which connection a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// A kept one, if there is any: the request may be repeated if the connection closes at this moment.
    Kept,
    /// A kept one that is hardly about to be closed: the request must not be processed twice.
    Fresh,
    /// One that has served no other request.
    New,
}

/// How the hosts of an application are asked.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) proxy: Proxy,
    pub(super) tls: Option<Result<Tls, String>>,
}

/// What TLS needs.
pub(super) struct Tls {
    connector: TlsConnector,
    server_name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.server_name.fmt(f)
    }
}

/// A connection that is registered with the event loop of this thread.
#[derive(Debug)]
struct Idle {
    stream: Stream,
    thread: ThreadId,
    since: Instant,
}

impl Manner {
    /// What is wrong with the roots is said when a host is connected to.
    pub(super) fn new(proxy: Proxy) -> Self {
        let tls = match &proxy.protocol {
            ProxyProtocol::Http { tls: Some(tls), .. } => Some(Tls::new(tls)),
            _ => None,
        };
        Self { proxy, tls }
    }
}

impl Host {
    /// A host that has no more than `limit` requests at a time.
    pub(super) fn new(manner: Arc<Manner>, address: Address, limit: Option<NonZeroUsize>) -> Self {
        let room = Room::new(limit, QueueLimits::default());
        Self { manner, address, idle: Mutex::default(), room, requests: AtomicU64::new(0) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How it is asked.
    pub(super) fn proxy(&self) -> &Proxy {
        &self.manner.proxy
    }

    /// Requests that it was given since the front knows it.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Waits until it may have one more request, which is counted.
    pub(super) async fn enter(&self) -> Result<Option<Place>, UpstreamError> {
        let place = self.room.enter().await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(place)
    }

    /// Whether it can be connected to.
    ///
    /// # Errors
    /// Why not.
    pub(super) async fn probe(&self) -> Result<(), UpstreamError> {
        self.within_limit(async { Plain::connect(&self.address).await.map(drop).map_err(said) })
            .await
    }

    /// A kept connection for a request, if there is one that it may go over. One that has been idle for less than [`FRESH`] is hardly
    /// about to be closed; with AJP, an application that has answered a ping on the connection has not closed it.
    pub(super) async fn kept(&self, over: Over, kind: Kind) -> Option<Stream> {
        loop {
            let stream = match (over, kind) {
                (Over::New, _) => return None,
                (Over::Kept, _) => return self.take(IDLE_TIME),
                (Over::Fresh, Kind::Http { .. } | Kind::Scgi) => return self.take(FRESH),
                (Over::Fresh, Kind::Ajp { .. }) => self.take(IDLE_TIME)?,
            };
            let pinged = timeout(self.proxy().timeouts.connect, ping(stream)).await;
            if let Ok(Some(stream)) = pinged {
                return Some(stream);
            }
        }
    }

    /// The connection of this event loop that was used last, if it has been idle for less than `limit`.
    fn take(&self, limit: Duration) -> Option<Stream> {
        let thread = thread::current().id();
        let mut idle = self.idle();
        loop {
            let at = idle.iter().rposition(|one| one.thread == thread)?;
            idle.get(at).filter(|one| one.since.elapsed() < limit)?;
            let Idle { mut stream, .. } = idle.remove(at)?;
            if stream.is_quiet() {
                return Some(stream);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, stream: Stream) {
        // Such a connection is one client's.
        if self.proxy().proxy_protocol {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push_back(Idle { stream, thread: thread::current().id(), since: Instant::now() });
        }
    }

    /// A new connection, for a request of this client.
    pub(super) async fn connect(&self, client: &Request) -> Result<Stream, UpstreamError> {
        self.within_limit(self.try_connect(client)).await
    }

    /// What `connecting` makes, if it does not take too long.
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

    async fn try_connect(&self, client: &Request) -> Result<Stream, String> {
        let mut plain = Plain::connect(&self.address).await.map_err(said)?;
        if self.proxy().proxy_protocol {
            plain.write_all(&proxy_header::header(client)).await.map_err(said)?;
        }
        let Some(tls) = &self.manner.tls else { return Ok(Stream::Plain(plain)) };
        let Tls { connector, server_name } = tls.as_ref().map_err(Clone::clone)?;
        let shaken = connector.connect(server_name.clone(), plain).await;
        shaken.map(|tls| Stream::Tls(Box::new(tls))).map_err(|error| format!("TLS: {error}"))
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        // A panic elsewhere cannot leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections that have been idle for too long, or are not quiet.
    pub(super) fn close_old(&self) {
        let now = Instant::now();
        self.idle().retain_mut(|idle| {
            now.duration_since(idle.since) < IDLE_TIME && idle.stream.is_quiet()
        });
    }
}

impl Tls {
    fn new(tls: &ProxyTls) -> Result<Self, String> {
        let verify = if tls.verify { Verify::Certificate } else { Verify::Nothing };
        let mut config = client_config(tls.roots.as_deref(), verify)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let server_name = ServerName::try_from(tls.server_name.clone())
            .map_err(|_| format!("{:?} is no name that a certificate can have", tls.server_name))?;
        Ok(Self { connector: Arc::new(config).into(), server_name })
    }
}

/// Asks whether a container is still there (AJP).
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
            Some(sendoff_ajp::Answer::Pong) if received.is_empty() => return Some(stream),
            Some(_) => return None,
            None => {}
        }
    }
}

fn said(error: io::Error) -> String {
    error.to_string()
}
