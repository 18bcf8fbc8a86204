//! Packets that the wrong event loop or the wrong process has received.
//!
//! The kernel chooses the socket of a packet by its addresses. Two things lead packets astray: a
//! client's address that changes (RFC 9000 §9, or another mapping of its NAT), and an upgrade,
//! during which two processes read the same sockets. So each connection id names the endpoint that
//! has issued it, by the first bytes, and each endpoint has an inbox: a UNIX socket whose name is
//! made of the same bytes. An endpoint that receives a packet of another one passes it on.
//!
//! The socket's name is not in the file system (`unix(7)`, abstract), so every local process can
//! send to it. The kernel names the sender, and only messages of processes with the user of the
//! front count. Others could claim any way for tens of thousands of packets in one message.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};

use quinn_proto::{ConnectionId, ConnectionIdGenerator, EcnCodepoint, RandomConnectionIdGenerator};
use rustix::net::RecvFlags;
use rustix::net::sockopt::set_socket_passcred;
use rustix::process::{getpid, getuid};
use sendoff_sys::credentials;
use tokio::io::Interest;

/// Bytes of each connection id.
const CONNECTION_ID: usize = 12;

/// Bytes in front of the packets of one message: ECN (1), the client's address and port (16 + 2),
/// the address at which the packets came (1 + 16), and the size of each packet but the last (2).
const HEADER: usize = 38;

/// The most bytes of one message.
pub(crate) const MOST: usize = HEADER + (64 << 10);

/// The bytes of a connection id that name its endpoint; the others are random.
const ENDPOINT_ID: usize = 5;

/// The beginning of all connection ids of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndpointId([u8; ENDPOINT_ID]);

impl EndpointId {
    fn random() -> Self {
        let random = RandomConnectionIdGenerator::new(CONNECTION_ID).generate_cid();
        let mut id = [0; ENDPOINT_ID];
        id.copy_from_slice(&random[..ENDPOINT_ID]);
        Self(id)
    }

    /// The endpoint that the packet's destination connection id names (RFC 8999 §5): its first
    /// bytes, which mean nothing if a client has chosen the connection id.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let is_long = packet.first()? & 0x80 != 0;
        let id = if is_long {
            let length = usize::from(*packet.get(5)?);
            packet.get(6..6 + length).filter(|id| id.len() == CONNECTION_ID)?
        } else {
            packet.get(1..1 + CONNECTION_ID)?
        };
        id.first_chunk().copied().map(Self)
    }

    fn name(self) -> io::Result<Name> {
        Name::from_abstract_name([&b"sendoff-quic-"[..], &self.0].concat())
    }
}

/// Issues connection ids that name the endpoint.
pub(crate) struct ConnectionIds(pub(crate) EndpointId);

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = RandomConnectionIdGenerator::new(CONNECTION_ID).generate_cid();
        id[..ENDPOINT_ID].copy_from_slice(&self.0.0);
        id
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// The way of packets that were received together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) from: SocketAddr,
    /// The address at which they came.
    pub(crate) to: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// The size of each packet but the last, in bytes.
    pub(crate) size: usize,
}

/// The socket into which other endpoints put packets for this one.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) id: EndpointId,
    receiver: tokio::net::UnixDatagram,
    /// The same socket, for names that are not in the file system.
    sender: UnixDatagram,
}

impl Inbox {
    /// # Errors
    /// There are no UNIX sockets.
    pub(crate) fn open() -> io::Result<Self> {
        let id = EndpointId::random();
        let sender = UnixDatagram::bind_addr(&id.name()?)?;
        sender.set_nonblocking(true)?;
        set_socket_passcred(&sender, true)?;
        let receiver = tokio::net::UnixDatagram::from_std(sender.try_clone()?)?;
        Ok(Self { id, receiver, sender })
    }

    /// Passes packets on to another endpoint. A full inbox loses them, as any path may. Returns
    /// false if there is no such endpoint.
    pub(crate) fn pass_on(&self, to: EndpointId, way: &Way, packets: &[u8]) -> bool {
        let Ok(name) = to.name() else { return false };
        let message = [&header(way)[..], packets].concat();
        let sent = self.sender.send_to_addr(&message, &name);
        !matches!(sent, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Waits for packets that another endpoint has passed on. Returns the number of bytes, and true
    /// if another process has received them.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) async fn receive(&self, room: &mut [u8]) -> io::Result<(usize, bool)> {
        loop {
            let take = || credentials::receive(&self.sender, room, RecvFlags::empty());
            let (length, sender) = self.receiver.async_io(Interest::READABLE, take).await?;
            if let Some(sender) = sender.filter(|sender| sender.uid == getuid()) {
                return Ok((length, sender.pid != getpid()));
            }
        }
    }
}

fn header(way: &Way) -> [u8; HEADER] {
    let v6 = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let mut header = [0; HEADER];
    header[0] = way.ecn.map_or(0, |ecn| ecn as u8);
    header[1..17].copy_from_slice(&v6(way.from.ip()));
    header[17..19].copy_from_slice(&way.from.port().to_be_bytes());
    if let Some(to) = way.to {
        header[19] = 1;
        header[20..36].copy_from_slice(&v6(to));
    }
    // No packet of UDP is longer.
    header[36..].copy_from_slice(&u16::try_from(way.size).unwrap_or(u16::MAX).to_be_bytes());
    header
}

/// Packets that were passed on.
pub(crate) struct PassedOn<'a> {
    pub(crate) way: Way,
    pub(crate) packets: &'a [u8],
}

impl<'a> PassedOn<'a> {
    /// `None` if no endpoint has sent the message.
    pub(crate) fn parse(message: &'a [u8]) -> Option<Self> {
        let (&[ecn], rest) = message.split_first_chunk()?;
        let (from, rest) = rest.split_first_chunk::<16>()?;
        let (port, rest) = rest.split_first_chunk()?;
        let (&[has_to], rest) = rest.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk::<16>()?;
        let (size, packets) = rest.split_first_chunk()?;
        let address = |octets: &[u8; 16]| Ipv6Addr::from(*octets).to_canonical();
        let way = Way {
            from: SocketAddr::new(address(from), u16::from_be_bytes(*port)),
            to: (has_to == 1).then(|| address(to)),
            ecn: EcnCodepoint::from_bits(ecn),
            size: usize::from(u16::from_be_bytes(*size)).max(1),
        };
        Some(Self { way, packets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_name_the_endpoint() {
        let id = EndpointId::random();
        let issued = ConnectionIds(id).generate_cid();
        let short = [&[0x40][..], &issued, b"rest"].concat();
        assert_eq!(EndpointId::of(&short), Some(id));
        let long = [&[0xc0, 0, 0, 0, 1, 12][..], &issued, b"rest"].concat();
        assert_eq!(EndpointId::of(&long), Some(id));
        // A connection id that a client has chosen has another length.
        let chosen = [&[0xc0, 0, 0, 0, 1, 8][..], &issued, b"rest"].concat();
        assert_eq!(EndpointId::of(&chosen), None);
        for length in 0..13 {
            assert_eq!(EndpointId::of(&short[..length]), None, "{length}");
        }
        for length in 0..18 {
            assert_eq!(EndpointId::of(&long[..length]), None, "{length}");
        }
    }

    #[test]
    fn messages_carry_packets_and_their_way() {
        for (from, to) in [("192.0.2.1:443", Some("127.0.0.1")), ("[2001:db8::1]:9", None)] {
            let way = Way {
                from: from.parse().unwrap(),
                to: to.map(|to| to.parse().unwrap()),
                ecn: EcnCodepoint::from_bits(2),
                size: 1200,
            };
            let message = [&header(&way)[..], b"packet"].concat();
            let passed = PassedOn::parse(&message).unwrap();
            assert_eq!((passed.way, passed.packets), (way, &b"packet"[..]));
            for length in 0..HEADER {
                assert!(PassedOn::parse(&message[..length]).is_none(), "{length}");
            }
        }
    }
}
