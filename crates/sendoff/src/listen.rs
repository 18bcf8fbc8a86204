//! Opening the listeners.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt};
use sendoff_config::{ListenAddress, Listener, SocketAccess};

use crate::failure::Failure;

/// Connections per listener that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listeners that are open.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// Those of each event loop, in the order of the configuration.
    pub(crate) of_loops: Vec<Vec<OwnedFd>>,
    /// Their addresses; none has port 0.
    pub(crate) addresses: Vec<ListenAddress>,
    /// For each address whether clients speak TLS there.
    tls: Vec<bool>,
    /// To be dropped when the server has ended.
    pub(crate) files: Vec<SocketFile>,
}

impl Listeners {
    /// Where clients find the server, for people.
    pub(crate) fn urls(&self) -> String {
        let url = |(address, tls): (&ListenAddress, &bool)| match address {
            ListenAddress::Tcp(address) if *tls => format!("https://{address}/"),
            ListenAddress::Tcp(address) => format!("http://{address}/"),
            ListenAddress::Unix(_) => address.to_string(),
        };
        self.addresses.iter().zip(&self.tls).map(url).collect::<Vec<_>>().join(", ")
    }
}

/// The addresses that are TCP's.
pub(crate) fn tcp(addresses: &[ListenAddress]) -> Vec<SocketAddr> {
    let tcp = |address: &ListenAddress| match address {
        ListenAddress::Tcp(address) => Some(*address),
        ListenAddress::Unix(_) => None,
    };
    addresses.iter().filter_map(tcp).collect()
}

/// Opens the listeners. For a TCP address each event loop has its own, so that the kernel spreads connections (`SO_REUSEPORT`).
/// UNIX sockets cannot do that: all event loops have the same.
///
/// # Errors
/// An address cannot be had, or is taken.
pub(crate) fn listen(wanted: &[Listener], event_loops: u8) -> Result<Listeners, Failure> {
    let mut of_loops: Vec<Vec<OwnedFd>> = (0..event_loops).map(|_| Vec::new()).collect();
    let (mut addresses, mut files) = (Vec::new(), Vec::new());
    for Listener { address, access, .. } in wanted {
        let failed = || Failure::system(format!("cannot listen on {address}"));
        let address = match address {
            ListenAddress::Tcp(address) => {
                ListenAddress::Tcp(listen_tcp(*address, &mut of_loops).map_err(failed())?)
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

/// Adds a listener to each event loop. Returns the address with the port that was chosen.
fn listen_tcp(wanted: SocketAddr, of_loops: &mut [Vec<OwnedFd>]) -> io::Result<SocketAddr> {
    // Without the option another server's sockets of the same user would share the port in silence.
    let probe = bind(wanted, false)?;
    let address = local_address(&probe)?;
    drop(probe);
    for of_loop in of_loops {
        let socket = bind(address, true)?;
        rustix::net::listen(&socket, BACKLOG)?;
        of_loop.push(socket);
    }
    Ok(address)
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    // Accepted sockets inherit it.
    sockopt::set_tcp_nodelay(&socket, true)?;
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

/// The file of a UNIX listener, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Whether it is the file of a listener on this address.
    pub(crate) fn is_of(&self, address: &ListenAddress) -> bool {
        matches!(address, ListenAddress::Unix(path) if *path == self.path)
    }
}

impl Drop for SocketFile {
    /// Another server may have put its own file there in the meantime.
    fn drop(&mut self) {
        if identity(&self.path).ok() == Some(self.identity) {
            // It fails if the folder is not ours any more; the next server on this path removes the file then.
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
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    let SocketAccess { mode, owner, group } = access;
    std::os::unix::fs::chown(path, owner, group)
        .map_err(|error| io::Error::new(error.kind(), format!("its owner or group: {error}")))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    // Not before: until then connections are refused.
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, file))
}

/// Removes the socket that a server has left behind which was killed.
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
        // No answer, but no refusal either: its backlog is full, or it belongs to another user.
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
        let listeners = listen(&unix(&path), 2).unwrap();
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
        let _listeners = listen(&wanted, 1).unwrap();
        let data = fs::metadata(&path).unwrap();
        assert_eq!((data.permissions().mode() & 0o777, data.gid()), (0o620, group));
        if !rustix::process::geteuid().is_root() {
            wanted[0].address = ListenAddress::Unix(folder.path().join("b.sock"));
            wanted[0].access.owner = Some(0);
            let refused = listen(&wanted, 1).unwrap_err().to_string();
            assert!(refused.contains("its owner or group"), "{refused}");
        }
    }

    #[test]
    fn what_is_in_use_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let _other = UnixListener::bind(&path).unwrap();
        let refused = listen(&unix(&path), 1).unwrap_err().to_string();
        assert!(refused.contains("another server listens"), "{refused}");
        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        let refused = listen(&unix(&file), 1).unwrap_err().to_string();
        assert!(refused.contains("no socket"), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn the_file_of_another_server_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listeners = listen(&unix(&path), 1).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(listeners);
        assert!(path.exists());
    }
}
