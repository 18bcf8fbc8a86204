//! Opens the listeners.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use sendoff_config::{ListenAddress, Listener, SocketAccess};

use crate::failure::Failure;

/// Maximum number of connections in the backlog of a listener.
const BACKLOG: i32 = 1024;

/// Open listeners.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// The sockets of each event loop, in the order of the configuration.
    pub(crate) of_loops: Vec<Vec<OwnedFd>>,
    /// The addresses; no address has port 0.
    pub(crate) addresses: Vec<ListenAddress>,
    /// For each address: true if clients use TLS there.
    tls: Vec<bool>,
    /// The files of UNIX sockets, to be dropped when the server has ended.
    pub(crate) files: Vec<SocketFile>,
}

impl Listeners {
    /// The URLs of the server, as text for people.
    pub(crate) fn urls(&self) -> String {
        let url = |(address, tls): (&ListenAddress, &bool)| match address {
            ListenAddress::Tcp(address) if *tls => format!("https://{address}/"),
            ListenAddress::Tcp(address) => format!("http://{address}/"),
            ListenAddress::Quic(_) | ListenAddress::Unix(_) => address.to_string(),
        };
        let is_shown =
            |(address, _): &(&ListenAddress, &bool)| !matches!(address, ListenAddress::Quic(_));
        let shown = self.addresses.iter().zip(&self.tls).filter(is_shown);
        shown.map(url).collect::<Vec<_>>().join(", ")
    }
}

/// The TCP addresses among these.
pub(crate) fn tcp(addresses: &[ListenAddress]) -> Vec<SocketAddr> {
    let tcp = |address: &ListenAddress| match address {
        ListenAddress::Tcp(address) => Some(*address),
        ListenAddress::Quic(_) | ListenAddress::Unix(_) => None,
    };
    addresses.iter().filter_map(tcp).collect()
}

/// Sockets that another process has opened: systemd, or the server that this one replaces.
#[derive(Debug, Default)]
pub(crate) struct Given(Vec<GivenListener>);

#[derive(Debug)]
struct GivenListener {
    /// The address in the configuration; its port may be 0.
    wanted: ListenAddress,
    /// The address that the sockets are bound to.
    address: ListenAddress,
    /// One socket for all event loops, or one for each.
    sockets: Vec<OwnedFd>,
    owns_file: bool,
}

impl Given {
    /// Adds the sockets of a listener with the configured address `wanted` and the bound address
    /// `address`. `owns_file`: this server removes the file of the UNIX socket at its end.
    pub(crate) fn add(
        &mut self,
        [wanted, address]: [ListenAddress; 2],
        sockets: Vec<OwnedFd>,
        owns_file: bool,
    ) {
        self.0.push(GivenListener { wanted, address, sockets, owns_file });
    }

    /// The sockets with their addresses, in the order of adding.
    pub(crate) fn into_parts(
        self,
    ) -> impl Iterator<Item = ([ListenAddress; 2], Vec<OwnedFd>, bool)> {
        self.0
            .into_iter()
            .map(|given| ([given.wanted, given.address], given.sockets, given.owns_file))
    }

    /// The addresses of sockets that no listener has taken.
    pub(crate) fn left(&self) -> impl Iterator<Item = &ListenAddress> {
        self.0.iter().map(|given| &given.address)
    }

    /// Takes the sockets for an address, if there are any.
    fn take(&mut self, wanted: &ListenAddress) -> Option<GivenListener> {
        let at = self.0.iter().position(|given| given.wanted == *wanted)?;
        Some(self.0.swap_remove(at)).filter(|given| !given.sockets.is_empty())
    }
}

impl GivenListener {
    /// Gives each event loop a socket. Returns the socket's file if this server has to remove it at
    /// its end.
    fn share(self, of_loops: &mut [Vec<OwnedFd>]) -> io::Result<Option<SocketFile>> {
        let Self { address, sockets, owns_file, .. } = self;
        let (missing, mut sockets) = (of_loops.len().saturating_sub(sockets.len()), sockets);
        for number in 0..missing {
            sockets.push(sockets[number % sockets.len()].try_clone()?);
        }
        if let ListenAddress::Tcp(_) = address {
            // Accepted sockets inherit the option.
            sockets.iter().try_for_each(|socket| sockopt::set_tcp_nodelay(socket, true))?;
        }
        for (of_loop, socket) in of_loops.iter_mut().zip(sockets) {
            of_loop.push(socket);
        }
        match address {
            ListenAddress::Unix(path) if owns_file => {
                let identity = identity(&path)?;
                Ok(Some(SocketFile { path, identity: Some(identity) }))
            }
            ListenAddress::Unix(_) | ListenAddress::Tcp(_) | ListenAddress::Quic(_) => Ok(None),
        }
    }
}

/// Opens the listeners whose sockets were not given. Each event loop has a socket of its own for an
/// address of TCP, or of UDP for QUIC, so that the kernel distributes the connections
/// (`SO_REUSEPORT`). UNIX sockets do not support that: all event loops share one.
///
/// # Errors
/// An address cannot be bound, or is in use.
pub(crate) fn listen(
    wanted: &[Listener],
    event_loops: u8,
    given: &mut Given,
) -> Result<Listeners, Failure> {
    let mut of_loops: Vec<Vec<OwnedFd>> = (0..event_loops).map(|_| Vec::new()).collect();
    let (mut addresses, mut files) = (Vec::new(), Vec::new());
    for Listener { address, access, .. } in wanted {
        let failed = || {
            move |error: io::Error| {
                let remedy = remedy(address, &error);
                Failure::System(format!("cannot listen on {address}: {error}{remedy}"))
            }
        };
        if let Some(given) = given.take(address) {
            addresses.push(given.address.clone());
            files.extend(given.share(&mut of_loops).map_err(failed())?);
            continue;
        }
        let address = match address {
            ListenAddress::Tcp(address) => {
                ListenAddress::Tcp(listen_tcp(*address, &mut of_loops).map_err(failed())?)
            }
            ListenAddress::Quic(address) => {
                let mut address = *address;
                // Port 0 is the port that the kernel chose for the address of TCP before it.
                if let (0, Some(ListenAddress::Tcp(tcp))) = (address.port(), addresses.last()) {
                    address.set_port(tcp.port());
                }
                listen_udp(address, &mut of_loops).map_err(failed())?;
                ListenAddress::Quic(address)
            }
            ListenAddress::Unix(path) => {
                let (socket, file) = listen_unix(path, *access).map_err(failed())?;
                files.push(file);
                for of_loop in &mut of_loops {
                    of_loop.push(socket.try_clone().map_err(failed())?);
                }
                ListenAddress::Unix(path.clone())
            }
        };
        addresses.push(address);
    }
    let tls = wanted.iter().map(|listener| listener.tls).collect();
    Ok(Listeners { of_loops, addresses, tls, files })
}

/// Room for received and for sent packets of a UDP socket, in bytes: 2 ms at 10 Gbit/s.
const UDP_BUFFER: usize = 2 << 20;

/// Lower ports need a privilege (the default of `net.ipv4.ip_unprivileged_port_start`).
const UNPRIVILEGED_PORTS: u16 = 1024;

/// Advice about an address that cannot be bound; empty if the error says enough.
fn remedy(address: &ListenAddress, error: &io::Error) -> String {
    let (address, option) = match address {
        ListenAddress::Tcp(address) => (address, "-ltnp"),
        ListenAddress::Quic(address) => (address, "-lunp"),
        ListenAddress::Unix(_) => return String::new(),
    };
    let port = address.port();
    match error.kind() {
        io::ErrorKind::PermissionDenied if port < UNPRIVILEGED_PORTS => format!(
            ": ports below {UNPRIVILEGED_PORTS} are root's. Start as root, or with --listen 8080"
        ),
        io::ErrorKind::AddrInUse => format!(
            ": `ss {option} 'sport = :{port}'` names the process. End it, or listen on another port"
        ),
        io::ErrorKind::AddrNotAvailable => {
            ": this machine does not have the address; `ip address` lists those that it has"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// Adds a listener to each event loop. Returns the address with the port that the kernel chose.
fn listen_tcp(wanted: SocketAddr, of_loops: &mut [Vec<OwnedFd>]) -> io::Result<SocketAddr> {
    // Try to bind without `SO_REUSEPORT` first: with it, another server's sockets of the same user
    // would silently share the port.
    let probe = bind(wanted, SocketType::STREAM, false)?;
    let address = local_address(&probe)?;
    drop(probe);
    for of_loop in of_loops {
        let socket = bind(address, SocketType::STREAM, true)?;
        rustix::net::listen(&socket, BACKLOG)?;
        of_loop.push(socket);
    }
    Ok(address)
}

/// Adds a UDP socket to each event loop.
fn listen_udp(address: SocketAddr, of_loops: &mut [Vec<OwnedFd>]) -> io::Result<()> {
    // As for TCP: without `SO_REUSEPORT`, another server's sockets are noticed.
    drop(bind(address, SocketType::DGRAM, false)?);
    for of_loop in of_loops {
        let socket = bind(address, SocketType::DGRAM, true)?;
        // The kernel grants less to processes without privileges.
        let _less = sockopt::set_socket_recv_buffer_size(&socket, UDP_BUFFER);
        let _less = sockopt::set_socket_send_buffer_size(&socket, UDP_BUFFER);
        of_loop.push(socket);
    }
    Ok(())
}

fn bind(address: SocketAddr, kind: SocketType, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // For UDP this option would let another server take the address.
    sockopt::set_socket_reuseaddr(&socket, kind == SocketType::STREAM)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    if kind == SocketType::STREAM {
        // Accepted sockets inherit the option.
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(address).map_err(|_| io::Error::other("the socket has no address"))
}

/// The file of a UNIX listener. Dropping this removes the file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode; `None` if another process owns the file by now.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Leaves the removal of the file to another process.
    pub(crate) fn give_away(&mut self) {
        self.identity = None;
    }

    /// True if this is the file of a listener on this address.
    pub(crate) fn is_of(&self, address: &ListenAddress) -> bool {
        matches!(address, ListenAddress::Unix(path) if *path == self.path)
    }
}

impl Drop for SocketFile {
    /// Removes the file unless another server has put its own file there in the meantime.
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path).ok() == self.identity {
            // The removal fails if the folder is no longer ours; the next server on this path then
            // removes the file.
            let _left = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let data = path.symlink_metadata()?;
    Ok((data.dev(), data.ino()))
}

fn listen_unix(path: &Path, access: SocketAccess) -> io::Result<(OwnedFd, SocketFile)> {
    make_way(path)?;
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: Some(identity(path)?) };
    let SocketAccess { mode, owner, group } = access;
    std::os::unix::fs::chown(path, owner, group)
        .map_err(|error| io::Error::new(error.kind(), format!("its owner or group: {error}")))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    // Listen last: until then the kernel refuses connections.
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, file))
}

/// Removes the socket that a killed server has left behind.
fn make_way(path: &Path) -> io::Result<()> {
    let is_socket = match path.symlink_metadata() {
        Ok(data) => data.file_type().is_socket(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_socket {
        let why = "there is a file that is no socket; it is not replaced";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // The connection is neither answered nor refused: the backlog is full, or another user owns
        // the socket.
        Ok(_) | Err(_) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens on this socket"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn unix(path: &Path) -> Vec<Listener> {
        vec![Listener {
            address: ListenAddress::Unix(path.into()),
            proxy_protocol: false,
            tls: false,
            access: SocketAccess::default(),
        }]
    }

    #[test]
    fn a_socket_that_is_left_over_is_replaced_and_our_own_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        let listeners = listen(&unix(&path), 2, &mut Given::default()).unwrap();
        assert_eq!(listeners.of_loops.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(listeners.urls(), format!("unix:{}", path.display()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        UnixStream::connect(&path).unwrap();
        drop(listeners);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_has_the_mode_and_the_group_that_are_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let mut wanted = unix(&path);
        let group = rustix::process::getgid().as_raw();
        wanted[0].access = SocketAccess { mode: 0o620, owner: None, group: Some(group) };
        let _listeners = listen(&wanted, 1, &mut Given::default()).unwrap();
        let data = fs::metadata(&path).unwrap();
        assert_eq!((data.permissions().mode() & 0o777, data.gid()), (0o620, group));
        if !rustix::process::geteuid().is_root() {
            wanted[0].address = ListenAddress::Unix(folder.path().join("b.sock"));
            wanted[0].access.owner = Some(0);
            let refused = listen(&wanted, 1, &mut Given::default()).unwrap_err().to_string();
            assert!(refused.contains("its owner or group"), "{refused}");
        }
    }

    #[test]
    fn what_is_in_use_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let _other = UnixListener::bind(&path).unwrap();
        let refused = listen(&unix(&path), 1, &mut Given::default()).unwrap_err().to_string();
        assert!(refused.contains("another server listens"), "{refused}");
        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        let refused = listen(&unix(&file), 1, &mut Given::default()).unwrap_err().to_string();
        assert!(refused.contains("no socket"), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn the_file_of_another_server_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listeners = listen(&unix(&path), 1, &mut Given::default()).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(listeners);
        assert!(path.exists());
    }
}
