//! The filter that compresses.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use sendoff_config::Coding;
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::client::Client;
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_message::Cut;
use sendoff_message::response::{ResponseEnd, ResponseHead, Trailers};
use tokio::task::{JoinHandle, spawn_blocking};

use super::Compressor;
use super::cache::{Checked, ContentsCheck, Lookup};
use super::encoder::{Effort, Encoder, compress};
use super::input::Input;
use super::policy::{self, CompressionDecision, Policy};

/// The most bytes that are compressed on the event loop before other connections get their turn: a
/// third of a millisecond at most.
const TURN: usize = 32 * 1024;

/// The number of waiting bytes from which on a thread beside the event loop compresses them, if one
/// is free.
const FOR_THREAD: usize = 128 * 1024;

/// The largest body, in bytes, that is compressed in one go, with an announced length, if it is
/// complete before its head is sent.
const AT_ONCE: u64 = TURN as u64;

/// ```text
///            begin()              send_now(), or the end of a long body
///  Waiting ──────────▶ Held ───────────────────────────────────────▶ Streaming ──▶ Ended
///     │                  ├── a compressed form is cached ──▶ Checking ──▶ Ended, or as Held
///     │                  ├── complete ──▶ Ended
///     └──────────────────┴── not compressed ──▶ Passing
/// ```
enum State {
    Waiting,
    /// The head is known and waits for the body. It is still the head of the uncompressed response.
    Held(Box<ResponseHead>, Coding),
    /// The body is a whole file, which is compared with the file whose compressed form is cached.
    Checking(Box<ResponseHead>, Coding, Box<ContentsCheck>),
    Streaming(StreamEncoder),
    /// Everything is passed on unchanged.
    Passing,
    /// The next sink has got the end, or the response has failed.
    Ended,
}

/// A body that is compressed while it is sent.
enum StreamEncoder {
    /// On the event loop.
    Here(Box<Encoder>),
    /// On another thread.
    There(JoinHandle<io::Result<(Box<Encoder>, Vec<u8>)>>),
}

/// A filter that compresses responses by its policy, and passes others on.
pub struct Compressed<'r> {
    next: &'r mut dyn Sink,
    policy: &'r Policy<'r>,
    compressor: Arc<Compressor>,
    state: State,
    /// The body, once it is held or compressed.
    input: Input,
}

impl<'r> Compressed<'r> {
    /// A response that is compressed if `policy` decides so once its head is known.
    pub fn new(
        next: &'r mut dyn Sink,
        policy: &'r Policy<'r>,
        compressor: &Arc<Compressor>,
    ) -> Self {
        next.client().withhold_socket();
        Self {
            next,
            policy,
            compressor: Arc::clone(compressor),
            state: State::Waiting,
            input: Input::new(None),
        }
    }

    /// Sends a held head and the collected body unchanged.
    fn pass(&mut self, mut head: ResponseHead, varies: bool) -> Result<(), Cut> {
        if varies {
            policy::vary(&mut head);
        }
        self.next.begin(head)?;
        for segment in self.input.drain() {
            self.next.push(segment)?;
        }
        if self.input.is_complete() {
            return self.end_next();
        }
        self.state = State::Passing;
        Ok(())
    }

    /// Sends a whole body that is already compressed.
    fn send_whole(
        &mut self,
        mut head: ResponseHead,
        coding: Coding,
        body: Segment,
    ) -> Result<(), Cut> {
        drop(self.input.drain());
        policy::vary(&mut head);
        policy::compressed(&mut head, coding);
        head.length = Some(body.len());
        self.next.begin(head)?;
        self.next.push(body)?;
        self.end_next()
    }

    fn end_next(&mut self) -> Result<(), Cut> {
        self.state = State::Ended;
        self.next.end(ResponseEnd::Complete)?;
        Ok(())
    }

    /// Sends a held head, and begins to compress the body.
    fn stream(&mut self, mut head: ResponseHead, coding: Coding) -> Result<(), Cut> {
        let Some(encoder) = Encoder::for_stream(coding, &self.compressor.budget)? else {
            return self.pass(head, true);
        };
        policy::vary(&mut head);
        policy::compressed(&mut head, coding);
        self.next.begin(head)?;
        self.state = State::Streaming(StreamEncoder::Here(Box::new(encoder)));
        Ok(())
    }

    /// Sends a held head.
    fn leave_hold(&mut self) -> Result<(), Cut> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Held(head, coding) if self.input.is_complete() => self.send_held(head, coding),
            State::Held(head, coding) => self.stream(*head, coding),
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    /// Sends a body that is complete before its head is sent, or begins to send it.
    fn send_held(&mut self, head: Box<ResponseHead>, coding: Coding) -> Result<(), Cut> {
        if self.policy.is_too_short(self.input.len()) {
            return self.pass(*head, false);
        }
        if let Some((file, state)) = self.input.whole_file() {
            match self.compressor.cache.look(state, coding) {
                Lookup::Kept(check) => {
                    self.state = State::Checking(head, coding, Box::new(check));
                    return self.check();
                }
                Lookup::Useless => return self.pass(*head, true),
                Lookup::Nothing => {}
                Lookup::Make(reservation) => {
                    let threads = Arc::clone(&self.compressor.threads);
                    let file = file.file.descriptor();
                    if let Some((permit, file)) = threads.try_acquire_owned().ok().zip(file) {
                        spawn_blocking(move || {
                            reservation.make(&file);
                            drop(permit);
                        });
                    }
                }
            }
        }
        self.compress(*head, coding)
    }

    /// Continues the comparison of a file with the file whose compressed form is cached.
    fn check(&mut self) -> Result<(), Cut> {
        let State::Checking(head, coding, mut check) =
            std::mem::replace(&mut self.state, State::Ended)
        else {
            return Ok(());
        };
        let file = self.input.whole_file().and_then(|(file, _)| file.file.descriptor());
        match file.map_or(Checked::Changed, |file| check.go_on(&file)) {
            Checked::Partly => {
                self.state = State::Checking(head, coding, check);
                Ok(())
            }
            Checked::Same(kept) => self.send_whole(*head, coding, kept.segment()),
            Checked::Changed => self.compress(*head, coding),
        }
    }

    /// Compresses a body that is complete before its head is sent, or begins to compress it.
    fn compress(&mut self, head: ResponseHead, coding: Coding) -> Result<(), Cut> {
        if self.input.len() > AT_ONCE {
            return self.stream(head, coding);
        }
        let mut body = Vec::new();
        let mut pieces = Vec::new();
        while !self.input.is_empty() {
            let piece = self.input.take(TURN)?;
            body.extend_from_slice(&piece);
            pieces.push(piece);
        }
        let compressed = compress(coding, Effort::Stream, &body)?;
        if compressed.len() < body.len() {
            return self.send_whole(head, coding, Segment::Bytes(compressed.into()));
        }
        for piece in pieces {
            self.input.queue(Segment::Bytes(piece))?;
        }
        self.pass(head, true)
    }

    /// Compresses waiting bytes, as far as the client takes them and this turn allows. Returns true
    /// if there is more to do now.
    fn work(&mut self) -> Result<bool, Cut> {
        if let State::Checking(..) = self.state {
            self.check()?;
            if let State::Checking(..) = self.state {
                return Ok(true);
            }
        }
        let mut turn = TURN;
        while turn > 0 && self.next.room() == Room::Memory {
            let State::Streaming(stream) = &mut self.state else { return Ok(false) };
            let StreamEncoder::Here(encoder) = stream else { return Ok(false) };
            if self.input.is_empty() && self.input.is_complete() {
                self.finish()?;
                return Ok(false);
            }
            if self.input.is_empty() {
                if self.input.pause() {
                    return Ok(true);
                }
                // The application has paused: the bytes so far should reach the client.
                let out = encoder.flush()?;
                self.put(out)?;
                return Ok(false);
            }
            if self.input.len() >= FOR_THREAD as u64 && self.move_to_thread()? {
                return Ok(false);
            }
            let State::Streaming(StreamEncoder::Here(encoder)) = &mut self.state else {
                return Ok(false);
            };
            let piece = self.input.take(turn)?;
            turn -= piece.len();
            let out = encoder.write(&piece)?;
            self.put(out)?;
        }
        Ok(self.next.room() == Room::Memory)
    }

    /// Sends the end of the compressed body.
    fn finish(&mut self) -> Result<(), Cut> {
        if let State::Streaming(StreamEncoder::Here(encoder)) =
            std::mem::replace(&mut self.state, State::Ended)
        {
            let out = encoder.finish()?;
            self.put(out)?;
            self.end_next()?;
        }
        Ok(())
    }

    /// Moves [`FOR_THREAD`] bytes to another thread. Returns false if no thread is free.
    fn move_to_thread(&mut self) -> io::Result<bool> {
        let Ok(permit) = Arc::clone(&self.compressor.threads).try_acquire_owned() else {
            return Ok(false);
        };
        let (mut pieces, mut missing) = (Vec::new(), FOR_THREAD);
        while missing > 0 && !self.input.is_empty() {
            let piece = self.input.take(missing)?;
            missing -= piece.len();
            pieces.push(piece);
        }
        let State::Streaming(StreamEncoder::Here(mut encoder)) =
            std::mem::replace(&mut self.state, State::Ended)
        else {
            return Ok(false);
        };
        self.state = State::Streaming(StreamEncoder::There(spawn_blocking(move || {
            let _permit = permit;
            let mut out = Vec::new();
            for piece in pieces {
                out.append(&mut encoder.write(&piece)?);
            }
            Ok((encoder, out))
        })));
        Ok(true)
    }

    fn put(&mut self, out: Vec<u8>) -> Result<(), Cut> {
        if !out.is_empty() {
            self.next.push(Segment::Bytes(Bytes::from(out)))?;
        }
        Ok(())
    }

    fn is_streaming(&self) -> bool {
        matches!(self.state, State::Streaming(_))
    }
}

impl Sink for Compressed<'_> {
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        self.next.interim(head)
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        self.policy.restore_tag(&mut head);
        match self.policy.verdict(&head) {
            CompressionDecision::Plain => self.pass(head, false),
            CompressionDecision::Varies => self.pass(head, true),
            CompressionDecision::Compressed(coding) if self.policy.is_head => {
                policy::vary(&mut head);
                policy::compressed(&mut head, coding);
                self.state = State::Passing;
                self.next.begin(head)
            }
            CompressionDecision::Compressed(coding) => {
                self.input = Input::new(head.length);
                self.state = State::Held(Box::new(head), coding);
                Ok(())
            }
        }
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        match self.state {
            State::Waiting | State::Passing => self.next.push(segment),
            _ => Ok(self.input.push(segment)?),
        }
    }

    /// A held body would be compressed in one go, with an announced length, behind which HTTP/1.1
    /// has no trailers. So it is passed on unchanged.
    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Held(head, _) => self.pass(*head, true)?,
            other => self.state = other,
        }
        self.next.trailers(trailers)
    }

    fn end(&mut self, ending: ResponseEnd) -> Result<u64, Cut> {
        match self.state {
            State::Waiting | State::Passing => self.next.end(ending),
            _ => match self.input.end() {
                0 => self.leave_hold().map(|()| 0),
                missing => Ok(missing),
            },
        }
    }

    fn room(&self) -> Room {
        if self.input.is_full() { Room::None } else { self.next.room() }
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        if let State::Held(..) = self.state
            && self.input.pause()
        {
            return Ok(Progress::Yield);
        }
        self.leave_hold()?;
        let has_more = self.work()?;
        let progress = self.next.send_now()?;
        Ok(match progress {
            Progress::Done if matches!(self.state, State::Streaming(StreamEncoder::There(_))) => {
                Progress::Blocked
            }
            Progress::Done if has_more || (self.is_streaming() && !self.input.is_empty()) => {
                Progress::Yield
            }
            other => other,
        })
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        let State::Streaming(StreamEncoder::There(thread)) = &mut self.state else {
            return self.next.poll_writable(cx);
        };
        let (encoder, out) = ready!(Pin::new(thread).poll(cx)).map_err(io::Error::other)??;
        self.state = State::Streaming(StreamEncoder::Here(encoder));
        Poll::Ready(self.put(out))
    }

    fn client(&mut self) -> &mut dyn Client {
        self.next.client()
    }
}
