//! A front that accepts files: it reads each segment on arrival, and answers recalls at once.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::handover::{FileId, GuardAnswer, GuardMessage, Record};
use sendoff_fastcgi::record::Kind;

use super::link::Request;
use super::master::Worker;

/// A piece of a response body, by its way of transport.
#[derive(Clone, PartialEq, Eq)]
pub enum Piece {
    Bytes(Vec<u8>),
    File(Vec<u8>),
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, bytes) = match self {
            Self::Bytes(bytes) => ("Bytes", bytes),
            Self::File(bytes) => ("File", bytes),
        };
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        write!(f, "{name}({} {start:?})", bytes.len())
    }
}

pub struct Front {
    worker: Worker,
    files: HashMap<FileId, OwnedFd>,
    pieces: Vec<Piece>,
    pub recalls: usize,
    length: Option<u64>,
}

impl Front {
    pub fn new(worker: Worker) -> Self {
        Self { worker, files: HashMap::new(), pieces: Vec::new(), recalls: 0, length: None }
    }

    pub fn send(&mut self, request: &Request) {
        self.pieces.clear();
        self.length = None;
        self.worker.link().send(&request.clone().with("SENDOFF_ACCEPT", "file"));
    }

    pub fn abort(&mut self) {
        self.worker.link().abort();
    }

    /// The pieces of the body, without the head; adjacent pieces of bytes are joined.
    pub fn ask(&mut self, request: &Request) -> Vec<Piece> {
        self.send(request);
        self.rest()
    }

    pub fn body(&mut self, request: &Request) -> Vec<u8> {
        self.ask(request).into_iter().flat_map(Piece::into_bytes).collect()
    }

    /// Reads records until the response is over.
    pub fn rest(&mut self) -> Vec<Piece> {
        while self.step() {}
        self.cut_head();
        std::mem::take(&mut self.pieces)
    }

    /// Head and body together. The announced length must equal the body's length.
    pub fn stdout(&mut self, request: &Request) -> Vec<u8> {
        self.send(request);
        while self.step() {}
        let all: Vec<u8> =
            std::mem::take(&mut self.pieces).into_iter().flat_map(Piece::into_bytes).collect();
        if let Some(length) = self.length {
            // A script may send no header at all.
            let bare = all.starts_with(b"\r\n").then_some(2);
            let end = || all.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
            assert_eq!(length, (all.len() - bare.unwrap_or_else(end)) as u64);
        }
        all
    }

    /// Reads records until the bytes so far end with `text`.
    pub fn until(&mut self, text: &str) {
        let at_end = |pieces: &[Piece]| match pieces.last() {
            Some(Piece::Bytes(bytes)) => bytes.ends_with(text.as_bytes()),
            _ => false,
        };
        while !at_end(&self.pieces) {
            assert!(self.step(), "the response ended without {text:?}");
        }
    }

    /// Reads records until a file has been recalled.
    pub fn until_recall(&mut self) {
        let before = self.recalls;
        while self.recalls == before {
            assert!(self.step(), "the response ended without a recall");
        }
    }

    /// Reads one record. False: it ended the response.
    pub fn step(&mut self) -> bool {
        match self.worker.link().part().expect("the worker closed the link") {
            RecordPart::Stream { kind: Kind::STDOUT, data, .. } => self.bytes(&data),
            RecordPart::Stream { kind: Kind::STDERR, data, .. } => {
                eprint!("{}", String::from_utf8_lossy(&data));
            }
            RecordPart::Record { kind: Kind::END_REQUEST, .. } => return false,
            RecordPart::Record { kind, content, .. } => self.record(kind, &content),
            RecordPart::EndOfStream { .. } | RecordPart::Stream { .. } => {}
        }
        true
    }

    fn bytes(&mut self, data: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Bytes(so_far)) => so_far.extend_from_slice(data),
            _ => self.pieces.push(Piece::Bytes(data.to_vec())),
        }
    }

    fn record(&mut self, kind: Kind, content: &[u8]) {
        match Record::decode(kind, content).unwrap().expect("a record of this version") {
            Record::Open(id) => {
                let fd = self.worker.link().fds.pop_front().expect("a descriptor rides along");
                assert!(self.files.insert(id, fd).is_none(), "an id is used twice");
            }
            Record::Segment { file, offset, length } => {
                let mut content = vec![0; usize::try_from(length).unwrap()];
                let fd = self.files.get(&file).expect("the file is open");
                let n = rustix::io::pread(fd, &mut content, offset).unwrap();
                assert_eq!(n, content.len());
                self.pieces.push(Piece::File(content));
            }
            Record::Recall(file) => {
                self.recalls += 1;
                self.forget(file, GuardAnswer::Recalled);
            }
            Record::Release(file) => self.forget(file, GuardAnswer::Released),
            Record::Length(length) => assert_eq!(self.length.replace(length), None),
            Record::Detach | Record::Ready => {}
            Record::Body(_)
            | Record::Claim(_)
            | Record::Named
            | Record::Tunnel
            | Record::Region
            | Record::Piece(_)
            | Record::Sent(_)
            | Record::Ring(_)
            | Record::Look
            | Record::Taken { .. }
            | Record::Abandon(_) => {
                panic!("nobody asked for it")
            }
        }
    }

    fn forget(&mut self, file: FileId, answer: GuardAnswer) {
        drop(self.files.remove(&file));
        let message = GuardMessage { answer, link: 0, file }.encode();
        rustix::io::write(&self.worker.guard, &message).unwrap();
    }

    fn cut_head(&mut self) {
        let Some(Piece::Bytes(first)) = self.pieces.first_mut() else { panic!("no head") };
        let end = first.windows(4).position(|w| w == b"\r\n\r\n").expect("an end of the head") + 4;
        first.drain(..end);
        if first.is_empty() {
            self.pieces.remove(0);
        }
    }
}

impl Piece {
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) | Self::File(bytes) => bytes,
        }
    }
}

/// Joins adjacent segments: a long range is sent in pieces to keep the front busy.
pub fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (all.last_mut(), piece) {
            (Some(Piece::File(so_far)), Piece::File(more)) => so_far.extend(more),
            (_, piece) => all.push(piece),
        }
    }
    all
}
