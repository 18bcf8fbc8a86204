//! The state of one connection: its streams and windows. The connection's task and the tasks of the
//! streams share it; it does no I/O.

mod receive;
mod send;
#[cfg(test)]
mod tests;
mod windows;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::BytesMut;
use sendoff_http2::{Code, ConnectionError, INITIAL_WINDOW, MAX_WINDOW, encode};

use super::output::Output;
use super::settings::{
    CONNECTION_WINDOW, RESET_FOR_ERRORS, RESET_REMEMBERED, UNREAD_ANSWERS, announced,
};
use super::stream::{InFlight, Stream};

pub(super) use receive::{NewStream, Received};

/// The state that the tasks of a connection share.
pub(super) type Shared = Rc<RefCell<Session>>;

/// The contents of the ping behind the first GOAWAY.
const LEAVING: [u8; 8] = *b"sendoff!";

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Session {
    /// In the order of their numbers.
    streams: Vec<Stream>,
    /// The number of the client's newest stream.
    last: u32,
    /// The newest stream at the beginning of the connection task's turn.
    last_seen: u32,
    /// Streams of this turn that the client has reset.
    reset_unseen: usize,
    /// Streams that were reset because of the client's mistakes.
    reset_for_errors: usize,
    /// The streams that this server has reset last.
    reset: VecDeque<u32>,
    /// Bytes of bodies that the client may still send on all streams.
    input_window: u32,
    /// Bytes that have been given back, but not announced to the client.
    released: u32,
    /// Bytes of responses that the client takes on all streams.
    window: i64,
    /// The initial window of each stream.
    initial_window: i64,
    /// The sum of the shares of the window that streams have and have not used.
    shares: usize,
    /// DATA frames that were given and that the transport has not taken.
    in_flight: InFlight,
    /// The streams that wait for a share, in order of arrival.
    awaiting_share: VecDeque<u32>,
    /// The streams with frames that wait for their turn, one frame at a time.
    ready: VecDeque<u32>,
    output: Output,
    /// The next field block says that the dynamic table is not used.
    resizes_table: bool,
    farewell: Farewell,
    /// The client has said that it makes no further requests.
    client_leaves: bool,
    /// The connection's task.
    waker: Option<Waker>,
}

/// The state of this server's GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Farewell {
    /// The client may make requests.
    Open,
    /// The client was told to go. Its answer to a ping shows that it knows.
    Announced,
    /// The client was told the last stream that is answered; new ones are ignored.
    Final,
    /// The connection has ended for its streams.
    Ended,
}

impl Session {
    /// A connection, on which the settings are announced first.
    pub(super) fn new() -> Self {
        let mut output = Output::default();
        encode::settings(&announced(), output.frames());
        encode::window_update(0, CONNECTION_WINDOW - INITIAL_WINDOW, output.frames());
        Self {
            streams: Vec::new(),
            last: 0,
            last_seen: 0,
            reset_unseen: 0,
            reset_for_errors: 0,
            reset: VecDeque::new(),
            input_window: CONNECTION_WINDOW,
            released: 0,
            window: INITIAL_WINDOW.into(),
            initial_window: INITIAL_WINDOW.into(),
            shares: 0,
            in_flight: InFlight::default(),
            awaiting_share: VecDeque::new(),
            ready: VecDeque::new(),
            output,
            resizes_table: false,
            farewell: Farewell::Open,
            client_leaves: false,
            waker: None,
        }
    }

    /// Begins a turn of the connection's task.
    pub(super) fn begin_turn(&mut self, cx: &Context<'_>) {
        (self.last_seen, self.reset_unseen) = (self.last, 0);
        self.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
    }

    /// Wakes the connection's task, which sends.
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// True if the client does not take its answers.
    pub(super) fn is_clogged(&self) -> bool {
        self.output.frames_len() > UNREAD_ANSWERS
    }

    fn place(&self, id: u32) -> Result<usize, usize> {
        self.streams.binary_search_by_key(&id, |stream| stream.id)
    }

    fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.place(id).ok()?;
        Some(&mut self.streams[place])
    }

    /// The stream, unless it has been reset or the connection has ended.
    pub(super) fn live(&mut self, id: u32) -> Option<&mut Stream> {
        if self.farewell == Farewell::Ended {
            return None;
        }
        self.get(id).filter(|stream| !stream.is_reset)
    }

    /// Tells the client to go, in two steps, so that no request in flight is lost (RFC 9113 §6.8).
    pub(super) fn leave(&mut self) {
        if self.farewell == Farewell::Open {
            self.farewell = Farewell::Announced;
            encode::goaway(MAX_WINDOW, Code::NO_ERROR, "", self.output.frames());
            encode::ping(false, LEAVING, self.output.frames());
        }
    }

    /// The client knows that it has to go.
    fn leave_finally(&mut self) {
        if self.farewell == Farewell::Announced {
            self.farewell = Farewell::Final;
            encode::goaway(self.last, Code::NO_ERROR, "", self.output.frames());
        }
    }

    /// True if neither side has requests to expect. Tells the client so.
    pub(super) fn is_over(&mut self) -> bool {
        let is_leaving = self.farewell == Farewell::Final || self.client_leaves;
        if !is_leaving || !self.streams.is_empty() {
            return false;
        }
        if self.client_leaves && self.farewell == Farewell::Open {
            self.farewell = Farewell::Final;
            encode::goaway(self.last, Code::NO_ERROR, "", self.output.frames());
            self.wake();
        }
        self.output.is_empty()
    }

    /// Ends the connection for its streams, and tells the client the reason.
    pub(super) fn end(&mut self, code: Code, why: &str) {
        if self.farewell == Farewell::Ended {
            return;
        }
        encode::goaway(self.last, code, why, self.output.frames());
        self.cut();
    }

    /// Ends the connection for its streams.
    pub(super) fn cut(&mut self) {
        self.farewell = Farewell::Ended;
        self.ready.clear();
        for stream in &mut self.streams {
            self.in_flight -= stream.output.clear();
            stream.wake();
        }
    }

    /// Ends a stream because of the client's mistake.
    fn refuse(&mut self, id: u32, code: Code) -> Result<(), ConnectionError> {
        self.reset(id, code);
        self.reset_for_errors += 1;
        if self.reset_for_errors > RESET_FOR_ERRORS {
            let why = "too many streams with errors";
            return Err(ConnectionError::new(Code::ENHANCE_YOUR_CALM, why));
        }
        Ok(())
    }

    /// Ends a stream with `RST_STREAM`.
    pub(super) fn reset(&mut self, id: u32, code: Code) {
        if self.farewell == Farewell::Ended || self.get(id).is_some_and(|stream| stream.is_reset) {
            return;
        }
        encode::rst_stream(id, code, self.output.frames());
        if self.reset.len() == RESET_REMEMBERED {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
        self.drop_stream(id);
    }

    /// Notes that a stream has been reset by one of the sides: its frames are dropped.
    fn drop_stream(&mut self, id: u32) {
        let Some(stream) = self.get(id) else { return };
        stream.is_reset = true;
        let dropped = stream.output.clear();
        let held = std::mem::take(&mut stream.input.held);
        stream.input.body = BytesMut::new();
        stream.wake();
        // The client has not seen these bytes.
        self.window += i64::try_from(dropped.bytes).unwrap_or(0);
        self.land(dropped);
        self.give_back(held);
        self.return_share(id);
        self.share_out();
        self.tidy(id);
    }

    /// Forgets a stream that has ended and that its task has let go.
    fn tidy(&mut self, id: u32) {
        let Ok(place) = self.place(id) else { return };
        let stream = &self.streams[place];
        let is_over = stream.is_closed() || self.farewell == Farewell::Ended;
        if stream.handles > 0 || !is_over {
            return;
        }
        self.return_share(id);
        self.streams.remove(place);
        if self.streams.is_empty() {
            self.streams = Vec::new();
        }
        if self.farewell != Farewell::Open || self.client_leaves {
            self.wake();
        }
    }
}
