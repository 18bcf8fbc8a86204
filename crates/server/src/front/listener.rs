//! The listeners of one event loop.

use std::cell::Cell;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;

use sendoff_config::{ListenAddress, Listener};

use crate::descriptors;
use crate::request::{Endpoint, Origin};
use crate::transport::{Tcp, Unix};

/// A listener whose connections one event loop accepts.
#[derive(Debug)]
pub(super) struct Listening {
    /// Its place among all that the front ever had.
    place: usize,
    socket: Socket,
    /// Connections begin with a PROXY protocol header.
    pub(super) proxy_protocol: Cell<bool>,
}

#[derive(Debug)]
enum Socket {
    Tcp(tokio::net::TcpListener),
    /// Shared by all event loops: `SO_REUSEPORT` does not exist for UNIX sockets. Each connection wakes all loops that wait.
    Unix(tokio::net::UnixListener, Rc<Path>),
}

/// A client's connection that was just accepted.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(Tcp),
    Unix(Unix),
}

impl Listening {
    /// Takes on a socket that listens as `config` says.
    ///
    /// # Errors
    /// The event loop cannot watch the socket.
    pub(super) fn new(place: usize, config: &Listener, socket: OwnedFd) -> io::Result<Self> {
        let socket = match &config.address {
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
        Ok(Self { place, socket, proxy_protocol: Cell::new(config.proxy_protocol) })
    }

    /// Accepts a connection. `None`: the client has gone already.
    ///
    /// # Errors
    /// As those of `accept(2)`.
    pub(super) async fn accept(&self) -> io::Result<Option<(Accepted, Origin)>> {
        let listener = self.place;
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                descriptors::note(&stream);
                let Ok(local) = stream.local_addr() else { return Ok(None) };
                let origin = Origin { listener, peer: peer.into(), local: local.into() };
                Ok(Some((Accepted::Tcp(Tcp::new(stream)), origin)))
            }
            Socket::Unix(socket, path) => {
                let (stream, _) = socket.accept().await?;
                descriptors::note(&stream);
                let local = Endpoint::Unix(Some(Rc::clone(path)));
                let origin = Origin { listener, peer: Endpoint::Unix(None), local };
                Ok(Some((Accepted::Unix(Unix::new(stream)), origin)))
            }
        }
    }
}
