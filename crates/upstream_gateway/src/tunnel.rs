//! A tunnel between two connections that carry another protocol, such as WebSocket: each end gets
//! the bytes that the other end sends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use sendoff_exchange::clients::RequestPermit;
use sendoff_exchange::tunnel::{Tunnel, TunnelEnd};
use sendoff_message::Cut;
use sendoff_report::at_work::AtWorkGuard;
use sendoff_transport::pipe::Pipe;
use tokio::time::{Instant, Sleep, sleep};

use super::application_end::ApplicationEnd;
use super::exchange::BusyGuard;

/// A tunnel that carries bytes in both directions until both ends have finished, one of the
/// connections is broken, or no byte has moved for too long.
///
/// Each direction holds the bytes of one read, and reads again once they have left. It holds no
/// buffer between reads. If a read brings much and neither end is encrypted, the kernel moves the
/// bytes through a pipe in place of reads and writes, which costs 0.75 times as much
/// (`docs/measurements.md`, "Tunnels"). Small messages are copied: a pipe would save nothing and
/// takes two descriptors.
pub struct GatewayTunnel {
    application: ApplicationEnd,
    up: Direction,
    down: Direction,
    silence: Silence,
    /// Counts the host as busy.
    _busy: BusyGuard,
    /// The places of the request in limits of routes.
    permits: Vec<RequestPermit>,
    /// Keeps the request in `sendoff status`.
    listed: Option<AtWorkGuard>,
}

impl GatewayTunnel {
    /// A tunnel to an application. `received`: bytes that it has sent already; `limit`: the longest
    /// time without a byte.
    pub(super) fn new(
        application: ApplicationEnd,
        received: BytesMut,
        limit: Duration,
        busy: BusyGuard,
    ) -> Self {
        // The buffer may be shared with the head of the response.
        let held = BytesMut::from(&received[..]);
        Self {
            application,
            up: Direction::default(),
            // The head of the response leaves first.
            down: Direction { held, must_flush: true, ..Direction::default() },
            silence: Silence { limit, since: Instant::now(), timer: None },
            _busy: busy,
            permits: Vec::new(),
            listed: None,
        }
    }

    /// Keeps the places of the request in limits until the tunnel ends.
    pub fn hold(&mut self, permits: Vec<RequestPermit>) {
        self.permits.extend(permits);
    }

    /// Keeps the request in `sendoff status` until the tunnel ends.
    pub fn keep_listed(&mut self, listed: AtWorkGuard) {
        self.listed = Some(listed);
    }
}

impl Tunnel for GatewayTunnel {
    fn poll(&mut self, cx: &mut Context<'_>, client: &mut dyn TunnelEnd) -> Poll<Result<(), Cut>> {
        loop {
            let Self { application, up, down, silence, .. } = self;
            let moved_up = up.poll(cx, client, application);
            let moved_down = down.poll(cx, application, client);
            match (moved_up, moved_down) {
                // Closing both connections is the only way to tell the ends.
                (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(Ok(())),
                (Poll::Pending, Poll::Pending) => {
                    return silence.poll(cx).map(|()| Err(Cut::idle_tunnel()));
                }
                _ if up.state == State::Ended && down.state == State::Ended => {
                    return Poll::Ready(Ok(()));
                }
                _ => silence.since = Instant::now(),
            }
        }
    }
}

/// The time without a byte. Bytes do not move the timer: it looks at the time of the last one.
struct Silence {
    limit: Duration,
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// Ready when no byte has moved for the limit.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { limit, since, timer } = self;
        let timer = timer.get_or_insert_with(|| Box::pin(sleep(*limit)));
        loop {
            ready!(timer.as_mut().poll(cx));
            match since.checked_add(*limit) {
                Some(end) if end > Instant::now() => timer.as_mut().reset(end),
                _ => return Poll::Ready(()),
            }
        }
    }
}

/// ```text
///  Open ── the source has ended ──▶ Ending ── all has left, and the end with it ──▶ Ended
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Ending,
    Ended,
}

/// Size in bytes of a direction's last read from which the direction uses a pipe; after smaller
/// reads bytes are copied.
const FLOW: usize = 16 * 1024;

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    held: BytesMut,
    /// Bytes in the kernel; never empty.
    piped: Option<Pipe>,
    /// The last read brought at least [`FLOW`] bytes.
    flows: bool,
    /// Bytes were written since the last flush; TLS may still buffer them.
    must_flush: bool,
    state: State,
}

impl Direction {
    /// Moves bytes until an end must be waited for. Ready if something was moved.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn TunnelEnd,
        to: &mut dyn TunnelEnd,
    ) -> Poll<io::Result<()>> {
        let mut moved = false;
        loop {
            match self.step(cx, from, to) {
                Poll::Ready(Ok(true)) => moved = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(false)) | Poll::Pending if moved => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Does one step; false: there is nothing left to do.
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn TunnelEnd,
        to: &mut dyn TunnelEnd,
    ) -> Poll<io::Result<bool>> {
        if !self.held.is_empty() {
            let n = ready!(to.poll_write(cx, &self.held))?;
            self.held.advance(n);
            self.must_flush = true;
            if self.held.is_empty() {
                self.held = BytesMut::new();
            }
            return Poll::Ready(Ok(true));
        }
        if let Some(pipe) = &mut self.piped {
            ready!(to.poll_drain(cx, pipe))?;
            if pipe.is_empty() {
                self.piped.take().into_iter().for_each(Pipe::give_back);
            }
            return Poll::Ready(Ok(true));
        }
        if self.must_flush {
            ready!(to.poll_flush(cx))?;
            self.must_flush = false;
        }
        match self.state {
            State::Ended => Poll::Ready(Ok(false)),
            State::Ending => {
                ready!(to.poll_finish(cx))?;
                self.state = State::Ended;
                Poll::Ready(Ok(true))
            }
            State::Open => {
                let came = ready!(self.poll_more(cx, from, to))?;
                self.flows = came >= FLOW;
                if came == 0 {
                    self.state = State::Ending;
                }
                Poll::Ready(Ok(true))
            }
        }
    }

    /// Reads bytes; 0 at their end.
    fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn TunnelEnd,
        to: &dyn TunnelEnd,
    ) -> Poll<io::Result<usize>> {
        if self.flows
            && from.is_clear()
            && to.is_clear()
            && let Some(mut pipe) = Pipe::take()
        {
            let filled = from.poll_fill(cx, &mut pipe);
            if pipe.is_empty() {
                pipe.give_back();
            } else {
                self.piped = Some(pipe);
            }
            match filled {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                filled => return filled,
            }
        }
        from.poll_read(cx, &mut self.held)
    }
}
