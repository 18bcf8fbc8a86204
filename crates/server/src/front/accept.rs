//! Accepts connections while there are descriptors for them.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use rustix::io::Errno;
use tokio::time::timeout;

use super::budget::LEAST;
use super::listener::{Accepted, Listening};
use super::proxy_header::take_header;
use crate::descriptors::{self, Level};
use crate::http1::{self, Http2};
use crate::http2;
use crate::lifecycle::{Counted, CountedByKernel, Lifecycle, Stage};
use crate::observe::limits::Limit;
use crate::request::{Origin, Scheme};
use crate::service::{Current, Service};
use crate::transport::handshake::{self, Hello, Secured};
use crate::transport::{Failure, Tcp, Transport, settle};

/// Pause before the next attempt when descriptors have run out and no connection is idle.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the front stops. When there are `most`, or descriptors are short, those that have been idle for longest are closed; if
/// none is idle, new ones wait in the backlog.
pub(super) async fn accept<S: Service + 'static>(
    listener: Rc<Listening>,
    services: Rc<Current<S>>,
    lifecycle: Rc<Lifecycle>,
    most: usize,
) {
    loop {
        if is_full(lifecycle.connections(), most) {
            Limit::Connections.reached();
        }
        while is_full(lifecycle.connections(), most) {
            make_room(&lifecycle);
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
                let (services, lifecycle) = (Rc::clone(&services), Rc::clone(&lifecycle));
                let (proxy_protocol, counted) =
                    (listener.proxy_protocol.get(), Rc::new(Counted::new(&lifecycle)));
                start(accepted, Start { origin, proxy_protocol, services, lifecycle, counted });
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
                    Limit::Descriptors.reached();
                    tracing::error!(%error, "a connection cannot be accepted; a higher limit of open files would help");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Closes the connection that has been idle for longest. Returns whether there was one.
fn make_room(lifecycle: &Lifecycle) -> bool {
    let evicted = lifecycle.evict_idle();
    if evicted {
        Limit::IdleConnections.reached();
    }
    evicted
}

/// Whether another connection has to wait. A few are always taken, whatever else holds descriptors.
fn is_full(connections: usize, most: usize) -> bool {
    connections >= most || connections >= LEAST && descriptors::level() >= Level::Tight
}

/// What a connection that was just accepted is served with.
struct Start<S> {
    origin: Origin,
    proxy_protocol: bool,
    services: Rc<Current<S>>,
    lifecycle: Rc<Lifecycle>,
    /// Ends with the connection.
    counted: Rc<Counted>,
}

fn start<S: Service + 'static>(accepted: Accepted, start: Start<S>) {
    // A task for each kind: one for both would be as large as the larger.
    match accepted {
        Accepted::Tcp(tcp) if start.origin.scheme == Scheme::Https => {
            tokio::task::spawn_local(serve_tls(tcp, start))
        }
        Accepted::Tcp(transport) if !start.proxy_protocol => {
            tokio::task::spawn_local(start.speak(transport, BytesMut::new()))
        }
        Accepted::Tcp(transport) => tokio::task::spawn_local(serve(transport, start)),
        Accepted::Unix(transport) => tokio::task::spawn_local(serve(transport, start)),
    };
}

async fn serve<T: Transport + 'static, S: Service + 'static>(
    mut transport: T,
    mut start: Start<S>,
) {
    let Some(buffer) = start.begin(&mut transport).await else { return };
    start.speak(transport, buffer).await;
}

async fn serve_tls<S: Service + 'static>(mut tcp: Tcp, mut start: Start<S>) {
    let Some(early) = start.begin(&mut tcp).await else { return };
    // On the heap, because an open connection should not have room for its handshake.
    match Box::pin(start.shake_hands(tcp, early)).await {
        None => {}
        Some(Secured::Server(tls)) => start.speak_tls(tls.is_http2(), tls).await,
        Some(Secured::Kernel(tls)) => {
            let (line, lifecycle) = (tls.line(), Rc::clone(&start.lifecycle));
            let _counted = (Rc::clone(&start.counted), CountedByKernel::new(&lifecycle));
            let limit = start.services.get().limits().timeouts.send;
            start.speak_tls(tls.is_http2(), tls).await;
            tokio::select! {
                () = settle(&line, limit) => {}
                () = lifecycle.reached(Stage::Cutting) => {}
            }
        }
    }
}

impl<S: Service + 'static> Start<S> {
    /// Serves the connection up to its end. `buffer`: what the client has sent already.
    async fn speak<T: Transport + 'static>(self, transport: T, buffer: BytesMut) {
        let Self { origin, services, lifecycle, counted: _counted, .. } = self;
        let (current, living) = (Rc::clone(&services), Rc::clone(&lifecycle));
        let http1 = http1::serve(transport, origin, buffer, current, living).await;
        if let Some(Http2 { transport, origin, buffer }) = http1 {
            // On the heap, because other connections should not have room for it.
            Box::pin(http2::serve(transport, origin, buffer, services, lifecycle)).await;
        }
    }

    async fn speak_tls<T: Transport + 'static>(self, is_http2: bool, transport: T) {
        if !is_http2 {
            return self.speak(transport, BytesMut::new()).await;
        }
        let Self { origin, services, lifecycle, counted: _counted, .. } = self;
        Box::pin(http2::serve(transport, origin, BytesMut::new(), services, lifecycle)).await;
    }

    /// Reads what a proxy says about the connection. Returns what the client has sent behind it; `None`: the connection has ended.
    async fn begin(&mut self, transport: &mut impl Transport) -> Option<BytesMut> {
        if !self.proxy_protocol {
            return Some(BytesMut::new());
        }
        let service = self.services.get();
        let (proxies, limit) = (service.trusted_proxies(), service.limits().timeouts.head);
        // On the heap, because connections without a header should not have room for it.
        Box::pin(take_header(transport, &mut self.origin, proxies, limit, &self.lifecycle)).await
    }

    /// Makes a TLS connection of a TCP connection; `None`: the client has been refused, or has left.
    async fn shake_hands(&mut self, tcp: Tcp, early: BytesMut) -> Option<Secured> {
        let service = self.services.get();
        let limit = service.limits().timeouts.head;
        let listener = self.origin.listener;
        let choose = |hello: Hello<'_>| {
            let authority = hello.server_name.filter(|_| hello.is_authority);
            let challenge = authority.and_then(|name| service.challenge(name));
            challenge.map_or_else(|| service.tls(listener, hello.server_name), Ok)
        };
        let accepted = handshake::accept(tcp, early, choose);
        let accepted = tokio::select! {
            accepted = timeout(limit, accepted) => accepted,
            // It counts as idle: it has sent no request.
            () = self.lifecycle.evicted() => return None,
        };
        let client = &self.origin.peer;
        match accepted {
            Ok(Ok((transport, facts))) => {
                self.origin.tls = Some(Rc::new(facts));
                return Some(transport);
            }
            Ok(Err(Failure::Io(error))) => tracing::debug!(%client, %error, "no TLS handshake"),
            Ok(Err(Failure::Authority)) => {
                tracing::info!(%client, "an authority has checked a name");
            }
            Ok(Err(failure)) => tracing::info!(%client, "no TLS handshake: {failure}"),
            Err(_) => tracing::info!(%client, "the TLS handshake took too long"),
        }
        None
    }
}
