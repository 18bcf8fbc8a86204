//! The listeners of one event loop.

use std::cell::Cell;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;

use sendoff_config::{ListenAddress, Listener};
use sendoff_message::request::{Endpoint, Origin, Scheme};
use sendoff_transport::descriptors;
use sendoff_transport::{Tcp, Unix};

/// A listener whose connections one event loop accepts.
#[derive(Debug)]
pub(super) struct Listening {
    /// Its place among all listeners that the front has ever had.
    place: usize,
    socket: Socket,
    /// Connections begin with a PROXY protocol header.
    pub(super) proxy_protocol: Cell<bool>,
    scheme: Cell<Scheme>,
}

#[derive(Debug)]
enum Socket {
    Tcp(tokio::net::TcpListener),
    /// Shared by all event loops, because `SO_REUSEPORT` does not work for UNIX sockets. Each
    /// connection wakes all waiting loops.
    Unix(tokio::net::UnixListener, Rc<Path>),
}

/// A client's connection that was just accepted.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(Tcp),
    Unix(Unix),
}

impl Listening {
    /// Takes on a listening socket with the settings in `config`.
    ///
    /// # Errors
    /// The event loop cannot watch the socket, or it has no connections to accept: it is one for
    /// [`http3::Listener`](sendoff_http3_server::Listener).
    pub(super) fn new(place: usize, config: &Listener, socket: OwnedFd) -> io::Result<Self> {
        let socket = match &config.address {
            ListenAddress::Quic(_) => return Err(io::ErrorKind::Unsupported.into()),
            ListenAddress::Tcp(_) => {
                let socket = TcpListener::from(socket);
                socket.set_nonblocking(true)?;
                Socket::Tcp(tokio::net::TcpListener::from_std(socket)?)
            }
            ListenAddress::Unix(path) => {
                let socket = UnixListener::from(socket);
                socket.set_nonblocking(true)?;
                Socket::Unix(tokio::net::UnixListener::from_std(socket)?, path.as_path().into())
            }
        };
        let proxy_protocol = Cell::new(config.proxy_protocol);
        Ok(Self { place, socket, proxy_protocol, scheme: Cell::new(scheme(config)) })
    }

    /// Applies another configuration from the next connection on.
    pub(super) fn change(&self, config: &Listener) {
        self.proxy_protocol.set(config.proxy_protocol);
        self.scheme.set(scheme(config));
    }

    /// The scheme of its connections, and its address.
    pub(super) fn address(&self) -> Option<(Scheme, Endpoint)> {
        let local = match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok()?.into(),
            Socket::Unix(_, path) => Endpoint::Unix(Some(Rc::clone(path))),
        };
        Some((self.scheme.get(), local))
    }

    /// Accepts a connection; `None` if the client has already gone.
    ///
    /// # Errors
    /// The errors of accept(2).
    pub(super) async fn accept(&self) -> io::Result<Option<(Accepted, Origin)>> {
        let (listener, scheme) = (self.place, self.scheme.get());
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                descriptors::note(&stream);
                let Ok(local) = stream.local_addr() else { return Ok(None) };
                let (peer, local) = (peer.into(), local.into());
                let origin =
                    Origin { listener, scheme, tls: None, peer, local, is_anonymous: false };
                Ok(Some((Accepted::Tcp(Tcp::new(stream)), origin)))
            }
            Socket::Unix(socket, path) => {
                let (stream, _) = socket.accept().await?;
                descriptors::note(&stream);
                let local = Endpoint::Unix(Some(Rc::clone(path)));
                let peer = Endpoint::Unix(None);
                let is_anonymous = false;
                let origin = Origin { listener, scheme, tls: None, peer, local, is_anonymous };
                Ok(Some((Accepted::Unix(Unix::new(stream)), origin)))
            }
        }
    }
}

fn scheme(config: &Listener) -> Scheme {
    if config.tls { Scheme::Https } else { Scheme::Http }
}
