//! The front's end of a worker's sockets, scripted.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "a module of several test programs")]

pub mod registry;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytes::BytesMut;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sendoff_fastcgi::handover::{GuardAnswer, GuardMessage, Record};
use sendoff_fastcgi::record::{BeginRequest, EndRequest, Header, Kind};
use sendoff_fastcgi::{Decoder, RecordPart, params};
use sendoff_worker::Worker;

pub struct Front {
    pub links: Vec<Link>,
    pub guard: OwnedFd,
}

pub struct Link {
    pub socket: UnixStream,
    buf: BytesMut,
    decoder: Decoder,
    pub fds: VecDeque<OwnedFd>,
}

/// Parts of a response that tests compare.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Record(Record),
    End(u32),
    Other(u8, Vec<u8>),
}

pub fn connect(links: usize) -> (Front, Worker) {
    let (front, links, guard) = sockets(links);
    (front, Worker::new(links, Some(guard)).unwrap())
}

/// The front, and the sockets for a worker.
pub fn sockets(links: usize) -> (Front, Vec<OwnedFd>, OwnedFd) {
    let pairs: Vec<_> = (0..links).map(|_| UnixStream::pair().unwrap()).collect();
    let (guard, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let (ours, workers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let links = ours.into_iter().map(Link::new).collect();
    (Front { links, guard }, workers.into_iter().map(OwnedFd::from).collect(), theirs)
}

/// A request as the front writes it.
pub fn request(id: u16, pairs: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    request_accepting("later file", id, pairs, body)
}

/// A request of a front that accepts other records.
pub fn request_accepting(accept: &str, id: u16, pairs: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut out = BeginRequest { keep_conn: true }.encode(id).to_vec();
    let mut stream = Vec::new();
    params::encode(&mut stream, b"SENDOFF_ACCEPT", accept.as_bytes());
    for (name, value) in pairs {
        params::encode(&mut stream, name.as_bytes(), value.as_bytes());
    }
    push(&mut out, Kind::PARAMS, id, &stream);
    push(&mut out, Kind::PARAMS, id, &[]);
    for piece in body.chunks(60_000) {
        push(&mut out, Kind::STDIN, id, piece);
    }
    push(&mut out, Kind::STDIN, id, &[]);
    out
}

pub fn push(out: &mut Vec<u8>, kind: Kind, id: u16, content: &[u8]) {
    out.extend_from_slice(&Header::new(kind, id, content.len().try_into().unwrap()).encode());
    out.extend_from_slice(content);
}

impl Link {
    pub fn new(socket: UnixStream) -> Self {
        Self { socket, buf: BytesMut::new(), decoder: Decoder::default(), fds: VecDeque::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub fn ask(&mut self, id: u16) {
        self.send(&request(id, &[("REQUEST_METHOD", "GET")], b""));
    }

    /// The next record; `None` at the end of the link. Stream records may come in pieces.
    pub fn next(&mut self) -> Option<Seen> {
        loop {
            if let Some(part) = self.decoder.next(&mut self.buf).unwrap() {
                match part {
                    RecordPart::Stream { kind: Kind::STDOUT, data, .. } => {
                        return Some(Seen::Stdout(data.to_vec()));
                    }
                    RecordPart::Stream { kind: Kind::STDERR, data, .. } => {
                        return Some(Seen::Stderr(data.to_vec()));
                    }
                    RecordPart::EndOfStream { .. } => continue,
                    RecordPart::Record { kind: Kind::END_REQUEST, content, .. } => {
                        return Some(Seen::End(EndRequest::decode(&content).unwrap().app_status));
                    }
                    RecordPart::Record { kind, content, .. } => {
                        return Some(match Record::decode(kind, &content).unwrap() {
                            Some(record) => Seen::Record(record),
                            None => Seen::Other(kind.0, content.to_vec()),
                        });
                    }
                    RecordPart::Stream { kind, .. } => panic!("a worker never sends {kind:?}"),
                }
            }
            self.buf.reserve(1 << 20);
            let (buf, fds) = (&mut self.buf, &mut self.fds);
            match sendoff_sys::fdpass::receive(self.socket.as_fd(), buf, fds) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Everything up to `END_REQUEST`, neighbouring pieces of a stream joined.
    pub fn response(&mut self) -> Vec<Seen> {
        let mut all: Vec<Seen> = Vec::new();
        loop {
            let seen = self.next().expect("the worker closed the link");
            match (all.last_mut(), seen) {
                (Some(Seen::Stdout(so_far)), Seen::Stdout(more)) => so_far.extend(more),
                (_, end @ Seen::End(_)) => {
                    all.push(end);
                    return all;
                }
                (_, seen) => all.push(seen),
            }
        }
    }

    /// True if bytes have arrived that the test has not read.
    pub fn has_more(&self) -> bool {
        !self.buf.is_empty() || rustix::io::ioctl_fionread(&self.socket).unwrap() > 0
    }

    /// True if the worker's end is closed and nothing is left to read.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0]), Ok(0) | Err(_))
    }
}

impl Front {
    pub fn answer(&self, answer: GuardAnswer, link: u8, file: sendoff_fastcgi::handover::FileId) {
        rustix::io::write(&self.guard, &GuardMessage { answer, link, file }.encode()).unwrap();
    }
}
