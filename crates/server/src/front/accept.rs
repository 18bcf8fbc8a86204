//! Accepts connections while descriptors are left for them.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use rustix::io::Errno;
use sendoff_config::Limits;
use sendoff_exchange::clients::Connections;
use sendoff_exchange::lifecycle::{ConnectionGuard, KernelTlsGuard, Lifecycle, Past, Stage};
use sendoff_exchange::service::{Current, Service};
use sendoff_http1_server::{Connection, Http2, Served};
use sendoff_http2_server as http2;
use sendoff_http3_server as http3;
use sendoff_message::request::{Origin, Scheme, TlsFacts, Who};
use sendoff_report::limits::{Limit, lacks_descriptor};
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;
use sendoff_transport::handshake;
use sendoff_transport::handshake::{Hello, Secured};
use sendoff_transport::{HandshakeFailure, KernelTls, Tcp, Transport, settle};
use tokio::time::timeout;

use super::budget::LEAST;
use super::listener::{Accepted, Listening};
use super::proxy_header::take_header;

/// Pause before the next attempt when descriptors have run out and no connection is idle.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the front stops. With `most` connections, at the operator's limit, or
/// if descriptors are short, the connection that has been idle longest is closed for a new one. If
/// no connection is idle, `most` may be exceeded; in the other cases new ones wait in the backlog.
pub(super) async fn accept<S: Service + 'static>(
    listener: Rc<Listening>,
    services: Rc<Current<S>>,
    lifecycle: Rc<Lifecycle>,
    most: usize,
) {
    loop {
        let room = || room(&lifecycle, most, &services.get().config().limits);
        if room() == ConnectionRoom::None {
            Limit::Connections.reached();
        }
        loop {
            let room = room();
            if room == ConnectionRoom::Enough {
                break;
            }
            if !make_room(&lifecycle) {
                lifecycle.all().want_room();
                if room == ConnectionRoom::NotForIdle {
                    break;
                }
            }
            tokio::select! {
                () = lifecycle.connection_closed() => {}
                () = tokio::time::sleep(PAUSE) => {}
                () = lifecycle.reached(Stage::Draining) => return,
            }
        }
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = lifecycle.reached(Stage::Draining) => return,
        };
        match accepted {
            Ok(Some((accepted, origin))) => {
                let (services, counted) = (Rc::clone(&services), ConnectionGuard::new(&lifecycle));
                let proxy_protocol = listener.proxy_protocol.get();
                start(accepted, AcceptedConnection { origin, proxy_protocol, services, counted });
            }
            Ok(None) => {}
            // The client closed the connection before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let is_full = [Errno::MFILE, Errno::NFILE]
                    .map(|full| Some(full.raw_os_error()))
                    .contains(&error.raw_os_error());
                let evicted = is_full && make_room(&lifecycle);
                if !evicted {
                    lacks_descriptor(&error, "a connection cannot be accepted");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Closes the connection of this event loop that has been idle longest. Returns false if none is
/// idle.
fn make_room(lifecycle: &Lifecycle) -> bool {
    let evicted = lifecycle.evict_idle();
    if evicted {
        Limit::IdleConnections.reached();
    }
    evicted
}

/// Room for another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionRoom {
    Enough,
    /// Room only if no connection is idle.
    NotForIdle,
    /// The connection has to wait.
    None,
}

/// Returns the room for another connection: within `most` of the event loop, the operator's limit,
/// and the free descriptors. Connections whose first response has not begun count twice, because
/// each may need another descriptor: for a file, a spool, or a connection to an application. A
/// shortage of descriptors counts only from [`LEAST`] connections on.
fn room(lifecycle: &Lifecycle, most: usize, limits: &Limits) -> ConnectionRoom {
    let connections = lifecycle.connections();
    if limits.connections.is_some_and(|most| lifecycle.all().count() >= most)
        || connections >= LEAST
            && descriptors::level_with(lifecycle.all().starting()) >= Level::Tight
    {
        ConnectionRoom::None
    } else if connections >= most {
        ConnectionRoom::NotForIdle
    } else {
        ConnectionRoom::Enough
    }
}

/// Most connections of the client at the other end; `None`: any number. By default one client may
/// have half of the places. Clients on this machine are often proxies and have no default limit.
fn most_of_client(origin: &Origin, all: &Connections, limits: &Limits) -> Option<u64> {
    let (client, own) = (origin.peer.ip()?.to_canonical(), origin.local.ip());
    let is_here = client.is_loopback() || own.is_some_and(|own| own.to_canonical() == client);
    let most = limits.connections.unwrap_or(u64::MAX).min(all.places());
    limits.connections_per_client.or((!is_here).then_some(most.div_ceil(2)))
}

/// The decision about connections of HTTP/3. They are refused where others would wait in the
/// backlog.
pub(super) struct Admission<S> {
    services: Rc<Current<S>>,
    lifecycle: Rc<Lifecycle>,
    most: usize,
}

impl<S> Admission<S> {
    pub(super) fn new(services: &Rc<Current<S>>, lifecycle: &Rc<Lifecycle>, most: usize) -> Self {
        Self { services: Rc::clone(services), lifecycle: Rc::clone(lifecycle), most }
    }
}

impl<S: Service + 'static> http3::Admission for Admission<S> {
    fn admit(&self, origin: &Origin) -> Option<ConnectionGuard> {
        let room = room(&self.lifecycle, self.most, &self.services.get().config().limits);
        if room != ConnectionRoom::Enough && !make_room(&self.lifecycle) {
            self.lifecycle.all().want_room();
            if room == ConnectionRoom::None {
                Limit::Connections.reached();
                return None;
            }
        }
        // Packets with a forged address must not fill its client's count.
        let service = self.services.get();
        let has_room = |who, most| self.lifecycle.all().has_room_for(who, most);
        may_have_another(origin, &*service, self.lifecycle.all(), has_room)
            .then(|| ConnectionGuard::new(&self.lifecycle))
    }

    fn count(&self, origin: &Origin, counted: &mut ConnectionGuard) -> bool {
        admit(origin, &*self.services.get(), counted)
    }
}

/// Counts a connection for its client. False if the client may not have another one.
fn admit<S: Service>(origin: &Origin, service: &S, counted: &mut ConnectionGuard) -> bool {
    let lifecycle = Rc::clone(&counted.lifecycle);
    let count = |who, most| counted.count_for(who, most);
    may_have_another(origin, service, lifecycle.all(), count)
}

/// True if the client may have another connection; trusted proxies may have any number. `has_room`
/// is asked unless the client may have any number, with the most that it may have.
fn may_have_another<S: Service>(
    origin: &Origin,
    service: &S,
    all: &Connections,
    has_room: impl FnOnce(Who, u64) -> bool,
) -> bool {
    if origin.is_trusted(service.trusted_proxies()) {
        return true;
    }
    let client = &origin.peer;
    let Some(most) = most_of_client(origin, all, &service.config().limits) else { return true };
    let is_admitted = has_room(Who::of(client), most);
    if !is_admitted {
        Limit::ConnectionsPerClient.refuses(client, || {
            format!("a client has {most} connections: further ones are closed (max_connections_per_client)")
        });
    }
    is_admitted
}

/// Properties of a connection that was just accepted.
struct AcceptedConnection<S> {
    origin: Origin,
    proxy_protocol: bool,
    services: Rc<Current<S>>,
    /// Counts the connection until it is dropped with it.
    counted: ConnectionGuard,
}

fn start<S: Service + 'static>(accepted: Accepted, mut start: AcceptedConnection<S>) {
    // With the PROXY protocol the client is not known yet.
    if !start.proxy_protocol && !start.admit() {
        return;
    }
    // One task type per kind: a common one would be as large as the largest.
    match accepted {
        Accepted::Tcp(tcp) if start.origin.scheme == Scheme::Https => {
            drop(tokio::task::spawn_local(serve_tls(tcp, start)));
        }
        Accepted::Tcp(transport) if !start.proxy_protocol => {
            drop(tokio::task::spawn_local(start.speak(transport, BytesMut::new())));
        }
        Accepted::Tcp(transport) => drop(tokio::task::spawn_local(serve(transport, start))),
        Accepted::Unix(transport) => drop(tokio::task::spawn_local(serve(transport, start))),
    }
}

async fn serve<T: Transport + 'static, S: Service + 'static>(
    mut transport: T,
    mut start: AcceptedConnection<S>,
) {
    let Some(buffer) = start.begin(&mut transport).await else { return };
    start.speak(transport, buffer).await;
}

async fn serve_tls<S: Service + 'static>(mut tcp: Tcp, mut start: AcceptedConnection<S>) {
    let Some(early) = start.begin(&mut tcp).await else { return };
    // Boxed, because a connection whose proxy has sent no header yet should not keep room for its
    // handshake. Then it becomes a task of another type, for the same reason as in `start`.
    match Box::pin(start.shake_hands(tcp, early)).await {
        None => {}
        Some(Secured::Server(tls)) if tls.is_http2() => {
            drop(tokio::task::spawn_local(start.speak_http2(tls)));
        }
        Some(Secured::Server(tls)) => {
            drop(tokio::task::spawn_local(start.speak(tls, BytesMut::new())));
        }
        Some(Secured::Kernel(tls)) => drop(tokio::task::spawn_local(serve_kernel_tls(tls, start))),
    }
}

async fn serve_kernel_tls<S: Service + 'static>(tls: KernelTls, start: AcceptedConnection<S>) {
    let (ktls, lifecycle) = (tls.ktls(), Rc::clone(&start.counted.lifecycle));
    let _by_kernel = KernelTlsGuard::new(&lifecycle);
    let limit = start.services.get().config().timeouts.send;
    let _counted = if tls.is_http2() {
        start.speak_http2(tls).await
    } else {
        start.speak(tls, BytesMut::new()).await
    };
    tokio::select! {
        () = settle(&ktls, limit) => {}
        () = lifecycle.reached(Stage::Cutting) => {}
    }
}

impl<S: Service + 'static> AcceptedConnection<S> {
    /// As [`admit`].
    fn admit(&mut self) -> bool {
        admit(&self.origin, &*self.services.get(), &mut self.counted)
    }

    /// Serves the connection to its end. `buffer`: bytes that the client has sent already.
    fn speak<T: Transport + 'static>(
        self,
        transport: T,
        buffer: BytesMut,
    ) -> impl Future<Output = ConnectionGuard> + use<T, S> {
        let Self { origin, services, mut counted, .. } = self;
        let lifecycle = Rc::clone(&counted.lifecycle);
        let starting = counted.starting.take();
        let mut connection = Connection::new(transport, origin, buffer, lifecycle, starting);
        async move {
            if connection.serve(&*services).await == Served::Http2 {
                let Http2 { transport, origin, buffer } = connection.into_http2();
                let lifecycle = Rc::clone(&counted.lifecycle);
                // Boxed, because other connections should not keep room for it.
                Box::pin(http2::serve(transport, origin, buffer, services, lifecycle)).await;
            }
            counted
        }
    }

    /// The same, for a client that has chosen HTTP/2 in its handshake.
    async fn speak_http2<T: Transport + 'static>(self, transport: T) -> ConnectionGuard {
        let Self { origin, services, mut counted, .. } = self;
        // From here on the streams count their own responses.
        counted.starting = None;
        let lifecycle = Rc::clone(&counted.lifecycle);
        Box::pin(http2::serve(transport, origin, BytesMut::new(), services, lifecycle)).await;
        counted
    }

    /// Reads a proxy's PROXY header. Returns the client's bytes after it; `None` if the connection
    /// has ended.
    async fn begin(&mut self, transport: &mut impl Transport) -> Option<BytesMut> {
        if !self.proxy_protocol {
            return Some(BytesMut::new());
        }
        let service = self.services.get();
        let (proxies, limit) = (service.trusted_proxies(), service.config().timeouts.head);
        // Boxed, because connections without a header should not keep room for it.
        let lifecycle = &self.counted.lifecycle;
        let header = take_header(transport, &mut self.origin, proxies, limit, lifecycle);
        let early = Box::pin(header).await?;
        self.admit().then_some(early)
    }

    /// Makes a TLS connection from a TCP connection; `None` if the client has been refused or has
    /// left.
    async fn shake_hands(&mut self, tcp: Tcp, early: BytesMut) -> Option<Secured> {
        let service = self.services.get();
        let limit = service.config().timeouts.head;
        let listener = self.origin.listener;
        let mut demand = None;
        let choose = |hello: Hello<'_>| {
            let authority = hello.server_name.filter(|_| hello.is_authority);
            if let Some(challenge) = authority.and_then(|name| service.challenge(name)) {
                return Ok(challenge);
            }
            let site = service.tls(listener, hello.server_name)?;
            demand = site.clients;
            Ok(site.config)
        };
        let mut refused = None;
        let accepted = handshake::accept(tcp, early, choose, &mut refused);
        let accepted = tokio::select! {
            accepted = timeout(limit, accepted) => accepted,
            // The connection counts as idle: it has sent no request.
            () = self.counted.lifecycle.evicted(Past::Nothing, false) => return None,
        };
        let client = &self.origin.peer;
        match accepted {
            Ok(Ok((transport, facts))) => {
                self.origin.tls = Some(Rc::new(TlsFacts { demand, ..facts }));
                return Some(transport);
            }
            Ok(Err(HandshakeFailure::Io(error))) => {
                tracing::debug!(%client, %error, "no TLS handshake");
            }
            Ok(Err(HandshakeFailure::Authority)) => {
                tracing::info!(%client, "an authority has checked a name");
            }
            Ok(Err(failure)) => tracing::info!(%client, "no TLS handshake: {failure}"),
            Err(_) => tracing::info!(%client, "the TLS handshake took too long"),
        }
        if let Some(tcp) = refused {
            handshake::drain(tcp).await;
        }
        None
    }
}
