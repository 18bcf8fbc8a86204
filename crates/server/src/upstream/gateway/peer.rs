//! An application that speaks HTTP, SCGI or AJP: how it is reached, and the connections to it that are kept.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use sendoff_config::{Proxy, ProxyProtocol, ProxyTls};
use sendoff_tls::{Verify, client_config};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::proxy_header;
use super::request::Kind;
use super::stream::{Plain, Stream};
use crate::request::Request;
use crate::upstream::error::{Retry, UpstreamError, UpstreamErrorKind};

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How long a connection is kept while idle: less than the 5 s after which Node.js closes it, so that few requests meet a connection that
/// is about to be closed.
const IDLE_TIME: Duration = Duration::from_secs(4);
/// Connections to one application that all event loops together keep while idle.
const MAX_IDLE: usize = 64;

/// An application, shared by all event loops.
#[derive(Debug)]
pub struct Gateway {
    proxy: Proxy,
    name: String,
    tls: Option<Result<Tls, String>>,
    /// Connections that no request has now, used last at the end.
    idle: Mutex<VecDeque<Idle>>,
    /// Connections that were made.
    made: AtomicU64,
}

/// What TLS needs.
struct Tls {
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

impl Gateway {
    /// An application. What is wrong with its roots is said when it is asked.
    #[must_use]
    pub fn new(proxy: Proxy) -> Arc<Self> {
        let tls = match &proxy.protocol {
            ProxyProtocol::Http { tls: Some(tls), .. } => Some(Tls::new(tls)),
            _ => None,
        };
        let name = proxy.to_string();
        Arc::new(Self { proxy, name, tls, idle: Mutex::default(), made: AtomicU64::new(0) })
    }

    /// Where it is and how it is asked.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// For the log, as the operator wrote it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Connections that were made to it.
    #[must_use]
    pub fn connections_made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// A kept connection for a request, if there is one and the request may go over it: it may be lost with a connection that closes at
    /// this moment, so it must be `repeatable`. (With AJP, an application that has answered a ping on the connection has not closed it.)
    pub(super) async fn kept(&self, repeatable: bool, kind: Kind) -> Option<Stream> {
        loop {
            match kind {
                _ if repeatable => return self.take(),
                Kind::Ajp { .. } => {}
                Kind::Http { .. } | Kind::Scgi => return None,
            }
            let stream = self.take()?;
            let pinged = timeout(self.proxy.timeouts.connect, ping(stream)).await;
            if let Ok(Some(stream)) = pinged {
                return Some(stream);
            }
        }
    }

    fn take(&self) -> Option<Stream> {
        let thread = thread::current().id();
        let mut idle = self.idle();
        loop {
            let at = idle.iter().rposition(|one| one.thread == thread)?;
            let Idle { mut stream, .. } = idle.remove(at)?;
            if stream.is_quiet() {
                return Some(stream);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, stream: Stream) {
        // Such a connection is one client's.
        if self.proxy.proxy_protocol {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push_back(Idle { stream, thread: thread::current().id(), since: Instant::now() });
        }
    }

    /// A new connection, for a request of this client.
    pub(super) async fn connect(&self, client: &Request) -> Result<Stream, UpstreamError> {
        let limit = self.proxy.timeouts.connect;
        let why = match timeout(limit, self.try_connect(client)).await {
            Ok(Ok(stream)) => {
                self.made.fetch_add(1, Ordering::Relaxed);
                return Ok(stream);
            }
            Ok(Err(why)) => why,
            Err(_) => {
                let why = format!("it took no connection for {limit:?}");
                let kind = UpstreamErrorKind::ConnectTimedOut;
                return Err(UpstreamError::new(kind, Retry::Safe, why));
            }
        };
        let why = format!("it cannot be connected to: {why}");
        Err(UpstreamError::new(UpstreamErrorKind::Unreachable, Retry::Safe, why))
    }

    async fn try_connect(&self, client: &Request) -> Result<Stream, String> {
        let said = |error: io::Error| error.to_string();
        let mut plain = Plain::connect(&self.proxy.address).await.map_err(said)?;
        if self.proxy.proxy_protocol {
            plain.write_all(&proxy_header::header(client)).await.map_err(said)?;
        }
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(plain)) };
        let Tls { connector, server_name } = tls.as_ref().map_err(Clone::clone)?;
        let shaken = connector.connect(server_name.clone(), plain).await;
        shaken.map(|tls| Stream::Tls(Box::new(tls))).map_err(|error| format!("TLS: {error}"))
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        // A panic elsewhere cannot leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections that have been idle for too long, or are not quiet.
    fn close_old(&self) {
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

/// Closes connections that have been idle for too long, for ever.
pub async fn sweep_gateways(gateways: Arc<[Arc<Gateway>]>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        gateways.iter().for_each(|gateway| gateway.close_old());
    }
}
