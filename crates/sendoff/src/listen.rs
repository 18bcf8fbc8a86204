//! Opening the listeners.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use sendoff_config::{ListenAddress, Listener};

use crate::failure::Failure;

/// Connections per listener that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The listeners of each event loop, and the addresses they have.
pub(crate) type Listeners = (Vec<Vec<OwnedFd>>, Vec<SocketAddr>);

/// Opens the listeners: for each event loop one per address, so that the kernel spreads connections (`SO_REUSEPORT`).
///
/// # Errors
/// An address cannot be had, or is taken.
pub(crate) fn listen(wanted: &[Listener], event_loops: u8) -> Result<Listeners, Failure> {
    let mut loops: Vec<Vec<OwnedFd>> = (0..event_loops).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for Listener { address, .. } in wanted {
        let wanted = match address {
            ListenAddress::Tcp(address) => *address,
            ListenAddress::Unix(path) => {
                let path = path.display();
                return Err(Failure::Input(format!(
                    "unix:{path}: UNIX sockets are not implemented"
                )));
            }
        };
        let failed = || Failure::system(format!("cannot listen on {wanted}"));
        // Without the option another server's sockets of the same user would share the port in silence.
        let probe = bind(wanted, false).map_err(failed())?;
        let address = local_address(&probe).map_err(failed())?;
        drop(probe);
        for of_loop in &mut loops {
            let socket = bind(address, true).map_err(failed())?;
            rustix::net::listen(&socket, BACKLOG).map_err(io::Error::from).map_err(failed())?;
            of_loop.push(socket);
        }
        addresses.push(address);
    }
    Ok((loops, addresses))
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
