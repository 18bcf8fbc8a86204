//! `X-Accel-Limit-Rate` and the key `limit_rate` of routes: a sink that limits the rate of a body in
//! bytes per second. (`exchange/rates.rs` limits the rate of requests.)
//!
//! The limit is a token bucket. One token is one byte, and the bucket holds one second's tokens, so
//! that the first second's bytes leave at once (as in nginx). Bytes without tokens wait here:
//! ranges of files as such, and about one second's bytes in memory, at least [`MIN_HELD`] and at most
//! [`MAX_HELD`], beyond which the application waits. One timer wakes the task four times per second.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Version};
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::client::Client;
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_message::Cut;
use sendoff_message::response::{Framing, ResponseEnd, ResponseHead, Trailers};
use tokio::time::{Instant, Sleep, sleep};

/// Bytes in memory that may wait for tokens at any rate.
const MIN_HELD: u64 = 16 * 1024;

/// Maximum number of bytes in memory that wait for tokens.
const MAX_HELD: u64 = 256 * 1024;

/// Maximum number of pieces that wait for tokens.
const MAX_PIECES: usize = 1024;

/// Pieces per second.
const BEATS: u64 = 4;

/// Nanoseconds.
const SECOND: u128 = 1_000_000_000;

/// A token bucket that holds at most one second's tokens; a token is one byte. It uses the virtual
/// scheduling algorithm of ITU-T I.371: the time at which the bucket will be full gives the number
/// of tokens.
#[derive(Debug)]
struct Bucket {
    rate: u64,
    full: Instant,
}

impl Bucket {
    fn new(rate: NonZeroU64) -> Self {
        Self { rate: rate.get(), full: Instant::now() }
    }

    /// The tokens that are available now.
    fn tokens(&self) -> u64 {
        let missing = self.full.saturating_duration_since(Instant::now()).as_nanos();
        let missing = (missing * u128::from(self.rate)).div_ceil(SECOND);
        self.rate.saturating_sub(u64::try_from(missing).unwrap_or(u64::MAX))
    }

    /// Takes available tokens.
    fn take(&mut self, tokens: u64) {
        self.full = self.full.max(Instant::now()) + self.time(tokens);
    }

    /// The time until `wanted` tokens are available; `wanted` is at most one second's tokens.
    fn until(&self, wanted: u64) -> Duration {
        let missing = self.full.saturating_duration_since(Instant::now());
        missing.saturating_sub(self.time(self.rate.saturating_sub(wanted)))
    }

    /// The time in which this number of tokens arrives, rounded up to nanoseconds.
    fn time(&self, tokens: u64) -> Duration {
        let nanos = (u128::from(tokens) * SECOND).div_ceil(u128::from(self.rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The reason why sending waits.
enum Blocked {
    /// The client takes no more.
    ByClient,
    /// There are not enough tokens.
    ByPace(Pin<Box<Sleep>>),
}

/// A filter that limits the rate of a body.
pub struct Paced<'r> {
    next: &'r mut dyn Sink,
    bucket: Bucket,
    method: Method,
    framing: Framing,
    waiting: VecDeque<Segment>,
    /// Bytes of `waiting` that are in memory.
    held: u64,
    ended: Option<ResponseEnd>,
    /// The end was passed on.
    is_over: bool,
    blocked: Blocked,
}

impl<'r> Paced<'r> {
    /// Limits the rate, in bytes per second, of the response to a request with this method.
    pub fn new(next: &'r mut dyn Sink, method: &Method, rate: NonZeroU64) -> Self {
        next.client().withhold_socket();
        Self {
            next,
            bucket: Bucket::new(rate),
            method: method.clone(),
            framing: Framing::Chunked,
            waiting: VecDeque::new(),
            held: 0,
            ended: None,
            is_over: false,
            blocked: Blocked::ByClient,
        }
    }

    /// Passes on as many bytes as there are tokens. Returns false if more bytes must wait for
    /// tokens.
    fn pass_on(&mut self) -> Result<bool, Cut> {
        while let Some(first) = self.waiting.front() {
            // Pieces of a quarter of a second, so that single tokens cause no writes.
            let wanted = (self.bucket.rate / BEATS).max(1).min(first.len());
            let tokens = self.bucket.tokens();
            if tokens < wanted {
                self.blocked = Blocked::ByPace(Box::pin(sleep(self.bucket.until(wanted))));
                return Ok(false);
            }
            let piece = self.take(tokens);
            self.bucket.take(piece.len());
            self.next.push(piece)?;
        }
        if let Some(ending) = self.ended.filter(|_| !self.is_over) {
            self.is_over = true;
            self.next.end(ending)?;
        }
        Ok(true)
    }

    /// Takes at most `most` bytes from the front of the waiting segments.
    fn take(&mut self, most: u64) -> Segment {
        let Some(mut first) = self.waiting.pop_front() else {
            return Segment::Bytes(Bytes::new());
        };
        if first.len() > most {
            let rest = first.split_off(most);
            self.waiting.push_front(rest);
        }
        if let Segment::Bytes(bytes) = &first {
            self.held -= bytes.len() as u64;
        }
        first
    }
}

impl Sink for Paced<'_> {
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        self.next.interim(head)
    }

    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut> {
        self.framing = Framing::choose(&self.method, Version::HTTP_11, head.status, head.length);
        self.next.begin(head)
    }

    fn push(&mut self, mut segment: Segment) -> Result<Fit, Cut> {
        let fit = Fit::of(&mut segment, &mut self.framing);
        if !segment.is_empty() {
            if let Segment::Bytes(bytes) = &segment {
                self.held += bytes.len() as u64;
            }
            self.waiting.push_back(segment);
        }
        Ok(fit)
    }

    /// They overtake the waiting bytes: the protocol sends them with the end.
    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        self.next.trailers(trailers)
    }

    fn end(&mut self, ending: ResponseEnd) -> Result<u64, Cut> {
        self.ended = Some(ending);
        Ok(self.framing.missing())
    }

    /// A full queue has no room in the spool either, because the spool lies behind the rate limit.
    fn room(&self) -> Room {
        let is_full = self.held >= self.bucket.rate.clamp(MIN_HELD, MAX_HELD)
            || self.waiting.len() >= MAX_PIECES;
        if is_full { Room::None } else { self.next.room() }
    }

    /// Passes on no bytes while the client is behind, even if there are tokens.
    fn send_now(&mut self) -> Result<Progress, Cut> {
        let behind = self.next.send_now()?;
        if behind != Progress::Done {
            self.blocked = Blocked::ByClient;
            return Ok(behind);
        }
        let is_paced = !self.pass_on()?;
        match self.next.send_now()? {
            Progress::Done if is_paced => Ok(Progress::Blocked),
            Progress::Blocked => {
                self.blocked = Blocked::ByClient;
                Ok(Progress::Blocked)
            }
            progress => Ok(progress),
        }
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        match &mut self.blocked {
            Blocked::ByClient => self.next.poll_writable(cx),
            Blocked::ByPace(timer) => {
                ready!(timer.as_mut().poll(cx));
                Poll::Ready(Ok(()))
            }
        }
    }

    fn client(&mut self) -> &mut dyn Client {
        self.next.client()
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use sendoff_exchange::sink::Discard;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn about_one_seconds_bytes_wait_in_memory() {
        for (rate, expected) in [(1, MIN_HELD), (100_000, 100_000), (u64::MAX, MAX_HELD)] {
            let mut sink = Discard::default();
            let mut paced = Paced::new(&mut sink, &Method::GET, NonZeroU64::new(rate).unwrap());
            paced.begin(ResponseHead::new(StatusCode::OK, None)).unwrap();
            let mut waiting = 0;
            while paced.room() != Room::None {
                paced.push(Segment::Bytes(Bytes::from(vec![b'x'; 1000]))).unwrap();
                waiting += 1000;
            }
            assert!((expected..expected + 1000).contains(&waiting), "{rate}: {waiting}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_come_with_time_and_a_second_of_them_is_kept() {
        let mut bucket = Bucket::new(NonZeroU64::new(1000).unwrap());
        assert_eq!(bucket.tokens(), 1000);
        bucket.take(1000);
        assert_eq!((bucket.tokens(), bucket.until(250)), (0, Duration::from_millis(250)));
        tokio::time::advance(Duration::from_micros(1500)).await;
        assert_eq!(bucket.tokens(), 1);
        bucket.take(1);
        // Half a token's time has been kept.
        tokio::time::advance(Duration::from_micros(500)).await;
        assert_eq!(bucket.tokens(), 1);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!((bucket.tokens(), bucket.until(1000)), (1000, Duration::ZERO));
        bucket.take(1000);
        assert_eq!(bucket.until(1), Duration::from_millis(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_and_the_smallest_rate_are_rates() {
        for rate in [1, u64::MAX] {
            let mut bucket = Bucket::new(NonZeroU64::new(rate).unwrap());
            bucket.take(rate);
            assert_eq!(bucket.tokens(), 0);
            assert!(bucket.until(1) <= Duration::from_secs(1));
            tokio::time::advance(Duration::from_secs(100_000)).await;
            assert_eq!(bucket.tokens(), rate);
        }
    }
}
