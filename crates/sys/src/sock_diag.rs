//! Asking the kernel how much of what a TCP connection was given is still in its hands (`sock_diag(7)`).
//!
//! Pages given to `sendfile` stay shared with the file until the data has been acknowledged, or, if the peer lives in
//! this kernel, until the peer has read it: the same page then sits in the peer's receive queue.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// The two ends of a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connection {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
const REQUEST_LEN: usize = 16 + 56;
/// `SOCK_DIAG_BY_FAMILY` in `<linux/sock_diag.h>`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
/// Where `idiag_rqueue` and `idiag_wqueue` stand in the answer: header, 4 bytes, socket id (48), `idiag_expires`.
const RQUEUE_AT: usize = 16 + 4 + 48 + 4;
const WQUEUE_AT: usize = RQUEUE_AT + 4;
const STATE_AT: usize = 16 + 1;
/// `TCP_LISTEN` (`<net/tcp_states.h>`): what the kernel finds in place of a connection of ours that is gone.
const LISTENS: u8 = 10;
/// The states of a socket that has received a FIN (`<net/tcp_states.h>`): `CLOSE_WAIT`, `LAST_ACK`, `CLOSING`.
const FIN_RECEIVED: [u8; 3] = [8, 9, 11];
/// The states of a socket whose FIN is not acknowledged yet: `FIN_WAIT1`, `LAST_ACK`, `CLOSING`.
const FIN_SENT: [u8; 3] = [4, 9, 11];

/// A netlink socket for such questions. They are answered at once; no call blocks for long.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
}

/// Bytes waiting in one socket.
struct Queues {
    unread: u32,
    unacknowledged: u32,
}

impl SockDiag {
    /// Opens the socket; needs no privilege.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(Self { socket })
    }

    /// How many of the last bytes sent on `connection` can still change with the file they came from: those that are not
    /// acknowledged and, where the peer's socket is visible here (same network namespace), those it has not read. Never
    /// too few; bytes whose acknowledgement is on its way count twice.
    ///
    /// # Errors
    /// The kernel did not answer the question.
    pub fn in_flight(&self, connection: Connection) -> io::Result<u64> {
        let Connection { local, peer } = connection;
        // In this order: bytes that move on between the questions are counted by the second.
        let unacknowledged = self.queues(local, peer)?.map_or(0, |ours| ours.unacknowledged);
        let unread = self.queues(peer, local)?.map_or(0, |theirs| theirs.unread);
        Ok(u64::from(unacknowledged) + u64::from(unread))
    }

    /// The queues of the socket with these ends; `None` if there is none in this network namespace.
    fn queues(&self, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<Queues>> {
        let request = encode_request(local, peer);
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        let mut answer = [0_u8; 512];
        let (n, _) = rustix::net::recv(&self.socket, &mut answer, RecvFlags::empty())?;
        decode_answer(&answer[..n.min(answer.len())])
    }
}

fn encode_request(local: SocketAddr, peer: SocketAddr) -> [u8; REQUEST_LEN] {
    let mut out = [0; REQUEST_LEN];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &72_u32.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    put(16, &family.as_raw().to_ne_bytes()[..1]);
    put(17, &[6]); // IPPROTO_TCP
    put(20, &u32::MAX.to_ne_bytes()); // every state
    put(24, &local.port().to_be_bytes());
    put(26, &peer.port().to_be_bytes());
    put_ip(&mut put, 28, local.ip());
    put_ip(&mut put, 44, peer.ip());
    put(64, &u64::MAX.to_ne_bytes()); // INET_DIAG_NOCOOKIE
    out
}

fn put_ip(put: &mut impl FnMut(usize, &[u8]), at: usize, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => put(at, &ip.octets()),
        IpAddr::V6(ip) => put(at, &ip.octets()),
    }
}

fn decode_answer(answer: &[u8]) -> io::Result<Option<Queues>> {
    let word = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed sock_diag answer");
    let kind = answer.get(4..6).and_then(|raw| raw.try_into().ok()).map(u16::from_ne_bytes);
    match kind.ok_or_else(malformed)? {
        SOCK_DIAG_BY_FAMILY if answer.get(STATE_AT) == Some(&LISTENS) => Ok(None),
        SOCK_DIAG_BY_FAMILY => {
            // A FIN counts as one byte in either queue.
            let fin = |states: [u8; 3]| u32::from(states.contains(&answer[STATE_AT]));
            let unread = word(RQUEUE_AT).ok_or_else(malformed)?;
            let unacknowledged = word(WQUEUE_AT).ok_or_else(malformed)?;
            Ok(Some(Queues {
                unread: unread.saturating_sub(fin(FIN_RECEIVED)),
                unacknowledged: unacknowledged.saturating_sub(fin(FIN_SENT)),
            }))
        }
        NLMSG_ERROR => {
            let errno = word(16).ok_or_else(malformed)?.cast_signed().wrapping_neg();
            let error = io::Error::from_raw_os_error(errno);
            if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
        }
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn settles_when_read(address: &str) {
        let listener = TcpListener::bind(address).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        let connection = Connection { local: server.local_addr().unwrap(), peer };
        let diag = SockDiag::open().unwrap();
        let in_flight = || diag.in_flight(connection).unwrap();
        assert_eq!(in_flight(), 0);
        server.write_all(&[7; 5000]).unwrap();
        assert!(in_flight() >= 5000);
        drop(server);
        assert!(in_flight() >= 5000, "closing does not settle what is unread");
        client.read_exact(&mut [0; 5000]).unwrap();
        assert_eq!(in_flight(), 0);
        drop(client);
        assert_eq!(in_flight(), 0);
    }

    #[test]
    fn a_listener_is_no_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let connection = Connection { local: server.local_addr().unwrap(), peer };
        // The end that closes last is gone at once; the question then finds the listener on its address.
        drop(client);
        drop(server);
        assert_eq!(SockDiag::open().unwrap().in_flight(connection).unwrap(), 0);
    }

    #[test]
    fn a_connection_settles_when_the_local_peer_has_read_everything() {
        settles_when_read("127.0.0.1:0");
        settles_when_read("[::1]:0");
    }
}
