//! A session against a client of single frames.

mod endings;
mod requests;
mod responses;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use bytes::Bytes;
use sendoff_delivery::{Piece, SendQueue};
use sendoff_http2::hpack::Decoder;
use sendoff_http2::{Code, ConnectionError, FRAME_HEADER, Frame, MAX_FRAME, Settings};

use super::{Received, Session};

/// A frame that the session has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sent {
    /// The stream, the number of bytes, and whether the stream ends.
    Data(u32, usize, bool),
    Headers(u32, bool),
    Reset(u32, Code),
    Update(u32, u32),
    SettingsAck,
    Ping([u8; 8]),
    GoAway(u32, Code),
}

/// The session, and the client's state.
struct Peer {
    session: Session,
    decoder: Decoder,
    refuses: bool,
}

/// `POST http://a/`.
const HEAD: &[u8] = b"\x83\x86\x84\x01\x01a";

impl Peer {
    /// A connection whose first frames have been read.
    fn new() -> Self {
        let mut peer =
            Self { session: Session::new(), decoder: Decoder::default(), refuses: false };
        peer.sent();
        peer
    }

    fn receive(&mut self, frame: Frame<'_>) -> Result<Received, ConnectionError> {
        self.session.receive(frame, &mut self.decoder, self.refuses)
    }

    /// Receives a frame that has no effect on the connection's task.
    #[track_caller]
    fn takes(&mut self, frame: Frame<'_>) {
        assert!(matches!(self.receive(frame), Ok(Received::Nothing)));
    }

    /// The code of the error that a frame causes on the connection.
    #[track_caller]
    fn error(&mut self, frame: Frame<'_>) -> Code {
        self.receive(frame).unwrap_err().code
    }

    /// The fields of a request, or behind a body.
    fn head(&mut self, id: u32, block: &[u8], ends: bool) -> Result<Received, ConnectionError> {
        self.receive(Frame::Headers { stream: id, block: block.into(), ends })
    }

    /// A request with a body.
    #[track_caller]
    fn open(&mut self, id: u32) {
        assert!(matches!(self.head(id, HEAD, false), Ok(Received::Request(_))));
    }

    /// A part of a body: `bytes`, and `padding` bytes in the same frame.
    fn data(
        &mut self,
        id: u32,
        bytes: usize,
        padding: u32,
        ends: bool,
    ) -> Result<Received, ConnectionError> {
        let size = u32::try_from(bytes).unwrap() + padding;
        self.receive(Frame::Data { stream: id, data: &[0; MAX_FRAME][..bytes], size, ends })
    }

    fn window(&mut self, stream: u32, increment: u32) -> Result<Received, ConnectionError> {
        self.receive(Frame::WindowUpdate { stream, increment })
    }

    fn initial_window(&mut self, size: u32) -> Result<Received, ConnectionError> {
        let initial_window = Some(size);
        self.receive(Frame::Settings(Settings { initial_window, resizes_table: false }))
    }

    /// Gives as much of a body of `owed` bytes as there is room for. Returns the number of bytes.
    fn give(&mut self, id: u32, owed: usize, ends: bool) -> usize {
        let room = self.session.room(id, owed);
        if room > 0 {
            self.session.give(id, piece(room), ends && room == owed, MAX_FRAME);
        }
        room
    }

    /// The frames that wait, which the transport takes.
    fn sent(&mut self) -> Vec<Sent> {
        frames(&self.sent_bytes())
    }

    fn sent_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let mut slices = [std::io::IoSlice::new(&[]); 4];
            let count = self.session.slices(&mut slices);
            let before = bytes.len();
            slices[..count].iter().for_each(|slice| bytes.extend_from_slice(slice));
            match bytes.len() - before {
                0 => return bytes,
                taken => self.session.take(taken),
            }
        }
    }

    /// Both directions of a stream are let go.
    fn let_go(&mut self, id: u32) {
        self.session.let_go(id, true);
        self.session.let_go(id, false);
    }
}

fn frames(mut bytes: &[u8]) -> Vec<Sent> {
    let number = |bytes: &[u8], at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER>() {
        let len = number(&[0, header[0], header[1], header[2]], 0) as usize;
        let (payload, rest) = rest.split_at(len);
        let (kind, flags, stream) = (header[3], header[4], number(header, 5));
        bytes = rest;
        frames.push(match (kind, flags) {
            (0, _) => Sent::Data(stream, len, flags == 1),
            (1, _) => Sent::Headers(stream, flags & 1 != 0),
            (3, _) => Sent::Reset(stream, Code(number(payload, 0))),
            (4, 0) => continue,
            (4, 1) => Sent::SettingsAck,
            (6, _) => Sent::Ping(*payload.first_chunk().unwrap()),
            (7, _) => Sent::GoAway(number(payload, 0), Code(number(payload, 4))),
            (8, _) => Sent::Update(stream, number(payload, 0)),
            _ => panic!("a frame of type {kind}"),
        });
    }
    frames
}

fn piece(bytes: usize) -> Piece {
    let mut queue = SendQueue::default();
    queue.push_bytes(Bytes::from(vec![0; bytes])).unwrap();
    queue.take(bytes).unwrap()
}

/// Counts the wakeups of a task.
#[derive(Default)]
struct Wakeups(AtomicUsize);

impl Wake for Wakeups {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakeups {
    /// True if the connection's task is woken by `act`.
    fn of_connection(peer: &mut Peer, act: impl FnOnce(&mut Peer)) -> bool {
        let wakeups = Arc::new(Self::default());
        let waker = Waker::from(Arc::clone(&wakeups));
        peer.session.begin_turn(&Context::from_waker(&waker));
        act(peer);
        wakeups.0.load(Ordering::Relaxed) > 0
    }

    /// True if the task of a stream is woken by `act`.
    fn of_stream(peer: &mut Peer, id: u32, act: impl FnOnce(&mut Peer)) -> bool {
        let wakeups = Arc::new(Self::default());
        let waker = Waker::from(Arc::clone(&wakeups));
        peer.session.live(id).unwrap().wait(&Context::from_waker(&waker));
        act(peer);
        wakeups.0.load(Ordering::Relaxed) > 0
    }
}
