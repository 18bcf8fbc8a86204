//! The UDP socket of one event loop: received packets, and new connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, DatagramEvent, EcnCodepoint, EndpointConfig, EndpointEvent,
    Incoming, ServerConfig, Transmit,
};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use sendoff_exchange::lifecycle::{ConnectionGuard, Lifecycle, Stage};
use sendoff_exchange::service::{Current, Service};
use sendoff_message::request::{Endpoint as Address, Origin, Scheme};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::connection::run;
use super::driver::Driver;
use super::quic::Quic;
use super::settings;
use super::steering::{ConnectionIds, EndpointId, Inbox, MOST, PassedOn, Way};

/// The most datagrams, or series of datagrams that the kernel has joined (GRO), of one system call.
const BATCH: usize = 8;

/// Room for one of them.
const DATAGRAM: usize = 64 * 1024;

/// Handshakes at a time from which on clients must first prove their address (RFC 9000 §8.1.2).
const UNPROVED_HANDSHAKES: usize = 64;

/// A QUIC listener of one event loop.
#[derive(Debug)]
pub struct Listener {
    place: usize,
    socket: UdpSocket,
    inbox: Inbox,
}

impl Listener {
    /// A listener on a socket that is bound. `place`: the one by which sites know it.
    ///
    /// # Errors
    /// The event loop cannot watch the socket, or there are no UNIX sockets.
    pub fn new(place: usize, socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { place, socket: UdpSocket::from_std(socket)?, inbox: Inbox::open()? })
    }
}

/// Decides about new connections.
pub trait Admission {
    /// Counts a connection of this origin, but not for its client, whose address may be forged;
    /// `None` if there is no room for it.
    fn admit(&self, origin: &Origin) -> Option<ConnectionGuard>;

    /// Counts the connection for its client, whose address is proved. False: the client may not have
    /// another one.
    fn count(&self, origin: &Origin, counted: &mut ConnectionGuard) -> bool;
}

/// The socket, and the connections that use it.
pub(crate) struct Endpoint {
    socket: UdpSocket,
    features: UdpSocketState,
    local: SocketAddr,
    state: RefCell<quinn_proto::Endpoint>,
    connections: RefCell<HashMap<ConnectionHandle, Rc<Quic>>>,
}

impl Endpoint {
    /// Passes an event of a connection on. Returns an event for the connection.
    pub(crate) fn handle_event(
        &self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        self.state.borrow_mut().handle_event(handle, event)
    }

    /// Forgets a connection that has ended.
    pub(crate) fn forget(&self, handle: ConnectionHandle) {
        let connection = self.connections.borrow_mut().remove(&handle);
        drop(connection);
    }

    /// The number of packets that one system call may send, at most `most`.
    pub(crate) fn segments(&self, most: usize) -> usize {
        self.features.max_gso_segments().min(most).max(1)
    }

    /// Sends packets.
    ///
    /// # Errors
    /// The socket takes none at present. Other errors are as the loss of the packets.
    pub(crate) fn send(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        self.socket.try_io(Interest::WRITABLE, || {
            self.features.send(UdpSockRef::from(&self.socket), &transmit)
        })
    }

    /// Ready when the socket takes packets.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }
}

/// Serves clients until the front stops or the other end of `is_open` is gone, and goes on while
/// connections are open. Runs in a task of its own.
///
/// # Errors
/// The socket lacks what QUIC needs.
pub async fn serve<S: Service + 'static>(
    listener: Listener,
    services: Rc<Current<S>>,
    lifecycle: Rc<Lifecycle>,
    admission: impl Admission + 'static,
    is_open: watch::Receiver<()>,
) -> io::Result<()> {
    let Listener { place, socket, inbox } = listener;
    let features = UdpSocketState::new(UdpSockRef::from(&socket))?;
    let (local, may_probe) = (socket.local_addr()?, !features.may_fragment());
    let mut config = EndpointConfig::default();
    let id = inbox.id;
    config.cid_generator(move || Box::new(ConnectionIds(id)));
    let config = Arc::new(config);
    let state = RefCell::new(quinn_proto::Endpoint::new(config, None, may_probe, None));
    let connections = RefCell::default();
    let endpoint = Rc::new(Endpoint { socket, features, local, state, connections });
    let accepting = Accepting {
        endpoint,
        inbox,
        place,
        services,
        lifecycle,
        admission: Rc::new(admission),
        tls: RefCell::default(),
        handshakes: Rc::default(),
    };
    accepting.receive(is_open).await
}

struct Accepting<S, A> {
    endpoint: Rc<Endpoint>,
    inbox: Inbox,
    place: usize,
    services: Rc<Current<S>>,
    lifecycle: Rc<Lifecycle>,
    admission: Rc<A>,
    /// The last TLS configuration, with the settings of QUIC that belong to it.
    tls: RefCell<Option<(Arc<rustls::ServerConfig>, Arc<ServerConfig>)>>,
    /// Connections whose handshake is not complete.
    handshakes: Rc<Cell<usize>>,
}

impl<S: Service + 'static, A: Admission + 'static> Accepting<S, A> {
    async fn receive(&self, is_open: watch::Receiver<()>) -> io::Result<()> {
        // Fails once the sender is gone.
        let is_closed = || is_open.has_changed().is_err() || self.lifecycle.is_stopping();
        let mut room = vec![0; BATCH * DATAGRAM];
        let mut about = [RecvMeta::default(); BATCH];
        let mut passed_on = vec![0; MOST];
        // After an upgrade, the next process reads the socket.
        let mut is_replaced = false;
        loop {
            tokio::select! {
                readable = self.endpoint.socket.readable(), if !is_replaced => readable?,
                received = self.inbox.receive(&mut passed_on) => {
                    let (length, is_foreign) = received?;
                    if let Some(PassedOn { way, packets }) = PassedOn::parse(&passed_on[..length]) {
                        is_replaced |= is_foreign && is_closed();
                        self.take_all(&way, packets, is_closed());
                    }
                    continue;
                }
                () = self.lifecycle.connection_closed(), if is_closed() => {}
                () = self.lifecycle.reached(Stage::Cutting) => return Ok(()),
            }
            if is_closed() && self.endpoint.connections.borrow().is_empty() {
                return Ok(());
            }
            if is_replaced {
                continue;
            }
            let Endpoint { socket, features, .. } = &*self.endpoint;
            let received = socket.try_io(Interest::READABLE, || {
                let mut rooms = room.chunks_mut(DATAGRAM).map(IoSliceMut::new);
                let mut rooms: [_; BATCH] = std::array::from_fn(|_| {
                    rooms.next().unwrap_or_else(|| IoSliceMut::new(&mut []))
                });
                features.recv(UdpSockRef::from(socket), &mut rooms, &mut about)
            });
            // Errors about packets that were sent come here as well (ICMP).
            let Ok(count) = received else { continue };
            for (about, room) in about.iter().zip(room.chunks(DATAGRAM)).take(count) {
                let packets = room.get(..about.len).unwrap_or_default();
                let ecn = about.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
                let size = about.stride.max(1);
                let way = Way { from: about.addr, to: about.dst_ip, ecn, size };
                self.steer(&way, packets, is_closed());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes packets, or passes them on to the endpoint whose connections they belong to.
    fn steer(&self, way: &Way, packets: &[u8], is_closed: bool) {
        let mut rest = packets;
        while !rest.is_empty() {
            let endpoint = EndpointId::of(rest);
            let others = |packet: &&[u8]| EndpointId::of(packet) == endpoint;
            let length = rest.chunks(way.size).take_while(others).map(<[u8]>::len).sum();
            let (together, after) = rest.split_at(length);
            rest = after;
            let elsewhere = endpoint.filter(|endpoint| *endpoint != self.inbox.id);
            if !elsewhere.is_some_and(|to| self.inbox.pass_on(to, way, together)) {
                self.take_all(way, together, is_closed);
            }
        }
    }

    fn take_all(&self, way: &Way, packets: &[u8], is_closed: bool) {
        for packet in packets.chunks(way.size) {
            self.take(way, packet, is_closed);
        }
    }

    fn take(&self, way: &Way, packet: &[u8], is_closed: bool) {
        // Only a packet with a long header begins a connection.
        if packet.first().is_some_and(|first| first & 0x80 != 0) {
            self.set_config();
        }
        let mut answer = Vec::new();
        let event = self.endpoint.state.borrow_mut().handle(
            Instant::now(),
            way.from,
            way.to,
            way.ecn,
            BytesMut::from(packet),
            &mut answer,
        );
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let connection = self.endpoint.connections.borrow().get(&handle).cloned();
                if let Some(connection) = connection {
                    connection.deliver(event);
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.answer(&transmit, &answer),
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(incoming, is_closed),
        }
    }

    /// Sends a packet that belongs to no connection. If the socket is full, the packet is lost as
    /// on any path.
    fn answer(&self, transmit: &Transmit, packet: &[u8]) {
        let _lost = self.endpoint.send(transmit, &packet[..transmit.size]);
    }

    fn accept(&self, incoming: Incoming, is_closed: bool) {
        let (mut answer, now) = (Vec::new(), Instant::now());
        let mut endpoint = self.endpoint.state.borrow_mut();
        if is_closed {
            // After an upgrade, the client's next attempt may reach the new process.
            return endpoint.ignore(incoming);
        }
        if self.handshakes.get() >= UNPROVED_HANDSHAKES && !incoming.remote_address_validated() {
            if let Ok(transmit) = endpoint.retry(incoming, &mut answer) {
                self.answer(&transmit, &answer);
            }
            return;
        }
        let origin = self.origin(&incoming);
        let Some(counted) = self.admission.admit(&origin) else {
            let transmit = endpoint.refuse(incoming, &mut answer);
            return self.answer(&transmit, &answer);
        };
        let (handle, connection) = match endpoint.accept(incoming, now, &mut answer, None) {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.answer(&transmit, &answer);
                }
                return;
            }
        };
        drop(endpoint);
        let quic = Rc::new(Quic::new(connection));
        self.endpoint.connections.borrow_mut().insert(handle, Rc::clone(&quic));
        let driver = Driver::new(quic, Rc::clone(&self.endpoint), handle);
        let handshake = Handshake::new(&self.handshakes);
        let admission = Rc::clone(&self.admission);
        let count =
            move |origin: &Origin, counted: &mut ConnectionGuard| admission.count(origin, counted);
        let serve = run(driver, origin, Rc::clone(&self.services), counted, handshake, count);
        // On the heap before it becomes a task, which would move it.
        tokio::task::spawn_local(Box::pin(serve));
    }

    fn origin(&self, incoming: &Incoming) -> Origin {
        let mut local = self.endpoint.local;
        if let Some(address) = incoming.local_ip() {
            local.set_ip(address);
        }
        Origin {
            listener: self.place,
            scheme: Scheme::Https,
            tls: None,
            peer: Address::Ip(incoming.remote_address()),
            local: Address::Ip(local),
            is_anonymous: false,
        }
    }

    /// Takes on the TLS configuration for new connections, which a reload may have changed.
    fn set_config(&self) {
        let service = self.services.get();
        let mut known = self.tls.borrow_mut();
        let tls = match service.quic(self.place) {
            Ok(tls) => tls,
            Err(error) => {
                if known.take().is_some() {
                    tracing::error!(%error, "HTTP/3 takes no further connections");
                    self.endpoint.state.borrow_mut().set_server_config(None);
                }
                return;
            }
        };
        if known.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &tls)) {
            return;
        }
        match settings::server_config(&tls, service.config().timeouts.idle) {
            Ok(config) => {
                self.endpoint.state.borrow_mut().set_server_config(Some(Arc::clone(&config)));
                *known = Some((tls, config));
            }
            Err(error) => tracing::error!("HTTP/3 cannot use the settings for TLS: {error}"),
        }
    }
}

/// Counts a handshake until dropped.
pub(crate) struct Handshake(Rc<Cell<usize>>);

impl Handshake {
    fn new(all: &Rc<Cell<usize>>) -> Self {
        all.set(all.get() + 1);
        Self(Rc::clone(all))
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
