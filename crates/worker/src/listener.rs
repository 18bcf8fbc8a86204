//! Listening sockets of FastCGI applications: created here, or inherited as descriptor 0 (FastCGI
//! §2.2).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getpeername,
    listen as start_listening, socket_with, sockopt,
};

/// A new connection on a UNIX socket that sends nothing for this time is closed: its peer has
/// abandoned it, and it would block an application with one process.
const FIRST_BYTE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Opens `path`, `:port`, `host:port` or `[v6]:port`. An existing socket at `path` is replaced; any
/// other file is an error.
///
/// # Errors
/// `EINVAL`: the address is malformed. Also errors of name resolution, `bind(2)` and `listen(2)`.
pub fn listen(address: &str, backlog: i32) -> io::Result<OwnedFd> {
    let socket = match tcp_address(address) {
        Some(found) => bind_tcp(found?)?,
        None => bind_unix(Path::new(address))?,
    };
    start_listening(&socket, backlog)?;
    Ok(socket)
}

/// Resolves a TCP address; `None` for a path.
fn tcp_address(address: &str) -> Option<io::Result<SocketAddr>> {
    let (host, port) = address.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    if host.is_empty() || host == "*" {
        return Some(Ok((Ipv4Addr::UNSPECIFIED, port).into()));
    }
    let found = (host.trim_matches(['[', ']']), port).to_socket_addrs();
    Some(found.and_then(|mut all| all.next().ok_or_else(|| Errno::INVAL.into())))
}

fn bind_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    bind(&socket, &address)?;
    Ok(socket)
}

/// True if the descriptor is a listening socket. A FastCGI application is started with one as
/// descriptor 0, a CGI program is not.
#[must_use]
pub fn is_listener(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_acceptconn(fd).unwrap_or(false)
}

/// Waits for a connection. With `peers`, a list of addresses as in `FCGI_WEB_SERVER_ADDRS` (FastCGI
/// §3.2), connections from other addresses are closed; UNIX sockets have no address to compare.
///
/// # Errors
/// `EINTR`: a signal handler ran. `EMFILE` and others of `accept(2)` that are not transient.
pub fn accept(listener: BorrowedFd<'_>, peers: Option<&str>) -> io::Result<OwnedFd> {
    loop {
        match accept_one(listener, peers)? {
            Accepted::Welcome(connection) => return Ok(connection),
            Accepted::Unwelcome => {}
            // The socket is non-blocking, or another process has accepted the connection first.
            Accepted::None => {
                poll(&mut [PollFd::new(&listener, PollFlags::IN)], None)?;
            }
        }
    }
}

/// Accepts connections for the threads of a process until it is told to end.
#[derive(Debug)]
pub struct Acceptor {
    listener: OwnedFd,
    /// An eventfd(2), readable from the end on.
    end: OwnedFd,
    /// Waits for both.
    epoll: OwnedFd,
}

impl Acceptor {
    const CONNECTION: u64 = 0;
    const END: u64 = 1;

    /// Makes the listening socket non-blocking.
    ///
    /// # Errors
    /// Errors of `epoll_ctl(2)`, and of creating descriptors.
    pub fn new(listener: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // The kernel wakes one of the processes that wait on the socket, not all of them.
        let exclusive = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&epoll, &listener, EventData::new_u64(Self::CONNECTION), exclusive)?;
        epoll::add(&epoll, &end, EventData::new_u64(Self::END), EventFlags::IN)?;
        Ok(Self { listener, end, epoll })
    }

    /// [`accept`]; `None` at the end.
    ///
    /// # Errors
    /// Same as [`accept`].
    pub fn accept(&self, peers: Option<&str>) -> io::Result<Option<OwnedFd>> {
        loop {
            let mut events = Vec::with_capacity(2);
            epoll::wait(&self.epoll, spare_capacity(&mut events), None)?;
            if events.iter().any(|event| event.data.u64() == Self::END) {
                return Ok(None);
            }
            if let Accepted::Welcome(connection) = accept_one(self.listener.as_fd(), peers)? {
                return Ok(Some(connection));
            }
        }
    }

    /// Ends all calls of [`Self::accept`]. A connection that one of them has accepted is returned.
    pub fn end(&self) {
        // It fails only if the counter is full, which it is not.
        let _done = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}

/// The result of one `accept(2)`.
enum Accepted {
    Welcome(OwnedFd),
    /// A connection that was closed.
    Unwelcome,
    /// No connection is waiting on a non-blocking socket.
    None,
}

fn accept_one(listener: BorrowedFd<'_>, peers: Option<&str>) -> io::Result<Accepted> {
    match accept_with(listener, SocketFlags::CLOEXEC) {
        Ok(connection) if is_welcome(&connection, peers)? => {
            Ok(Accepted::Welcome(away_from_stdio(connection)?))
        }
        Ok(_) => Ok(Accepted::Unwelcome),
        Err(Errno::AGAIN) => Ok(Accepted::None),
        Err(error) if is_the_peers(error) => Ok(Accepted::Unwelcome),
        Err(error) => Err(error.into()),
    }
}

/// Moves a connection away from descriptors 1 and 2, which a FastCGI application may lack (§2.2):
/// the connection would get the program's output.
fn away_from_stdio(connection: OwnedFd) -> io::Result<OwnedFd> {
    const FIRST_FREE: i32 = 3;
    if connection.as_raw_fd() >= FIRST_FREE {
        return Ok(connection);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(connection, FIRST_FREE)?)
}

/// accept(2) returns pending errors of the new connection, which do not concern the listening
/// socket.
fn is_the_peers(error: Errno) -> bool {
    [
        Errno::CONNABORTED,
        Errno::PROTO,
        Errno::NETDOWN,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::TIMEDOUT,
        Errno::CONNRESET,
    ]
    .contains(&error)
}

fn is_welcome(connection: &OwnedFd, peers: Option<&str>) -> io::Result<bool> {
    // A socket without a peer name has been disconnected already.
    let Ok(Some(from)) = getpeername(connection) else { return Ok(false) };
    if from.address_family() == AddressFamily::UNIX {
        let mut polled = [PollFd::new(connection, PollFlags::IN)];
        return loop {
            match poll(&mut polled, Some(&FIRST_BYTE)) {
                Err(Errno::INTR) => {}
                result => break Ok(result? == 1),
            }
        };
    }
    let Some(peers) = peers else { return Ok(true) };
    let Ok(from) = SocketAddr::try_from(from) else { return Ok(false) };
    Ok(is_listed(from.ip().to_canonical(), peers))
}

fn is_listed(from: IpAddr, peers: &str) -> bool {
    let words = peers.split([',', ' ']).filter(|word| !word.is_empty());
    words.filter_map(|word| word.parse::<IpAddr>().ok()).any(|peer| peer.to_canonical() == from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_port_is_a_path() {
        for path in ["/run/app.sock", "relative", "/odd:name", "a:0", "a:65536", ":"] {
            assert!(tcp_address(path).is_none(), "{path}");
        }
        let any = SocketAddr::from(([0, 0, 0, 0], 9000));
        for address in [":9000", "*:9000"] {
            assert_eq!(tcp_address(address).unwrap().unwrap(), any);
        }
        let v6 = tcp_address("[::1]:9000").unwrap().unwrap();
        assert_eq!(v6.to_string(), "[::1]:9000");
    }

    #[test]
    fn only_listed_servers_are_welcome() {
        let v4 = IpAddr::from([192, 0, 2, 1]);
        assert!(is_listed(v4, "192.0.2.7, 192.0.2.1"));
        assert!(is_listed(
            "::ffff:192.0.2.1".parse::<IpAddr>().unwrap().to_canonical(),
            "192.0.2.1"
        ));
        assert!(!is_listed(v4, "192.0.2.10,nonsense"));
        assert!(!is_listed(v4, ""));
    }
}
