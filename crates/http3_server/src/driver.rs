//! The packets of a connection: received ones, sent ones, and the timer.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{
    ConnectionError, ConnectionHandle, Dir, EndpointEvent, Event, StreamEvent, Transmit,
};
use sendoff_http3::Code;
use tokio::time::{Sleep, sleep};

use super::endpoint::Endpoint;
use super::quic::Quic;
use super::settings::{MOST_SEND_WINDOW, SEND_WINDOW};

/// The most system calls that send packets before other connections have their turn.
const SENDS_IN_TURN: usize = 16;

/// The most bytes of one system call that sends packets; the kernel takes 65,507.
const BATCH: usize = 60_000;

thread_local! {
    /// The buffer of the connection that last had all its packets taken. QUIC wants room for all
    /// packets of a system call, and connections take turns with it: an allocation of this size per
    /// turn makes the allocator tidy up, which costs more. Each event loop is a thread.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The packets of a connection: takes received ones, sends others, keeps the timer.
pub(crate) struct Driver {
    pub(crate) quic: Rc<Quic>,
    endpoint: Rc<Endpoint>,
    handle: ConnectionHandle,
    timer: Pin<Box<Sleep>>,
    /// The time that `timer` is set to; it may be earlier than the connection's, which moves with
    /// each packet.
    deadline: Option<Instant>,
    /// Tasks of streams have been woken, and have not run since.
    has_woken: bool,
    /// Packets that the socket has not taken, in `buffer`.
    unsent: Option<Transmit>,
    /// No memory is allocated while all packets are sent.
    buffer: Vec<u8>,
    /// Completes when the socket takes packets again.
    writable: Option<Pin<Box<dyn Future<Output = io::Result<()>>>>>,
    has_drained: bool,
}

/// An event of the connection that its task acts upon.
pub(crate) enum Happened {
    Connected,
    /// The client has opened streams.
    Opened(Dir),
    Lost(ConnectionError),
    /// No packet of the connection can arrive any more.
    Drained,
}

impl Driver {
    pub(crate) fn new(quic: Rc<Quic>, endpoint: Rc<Endpoint>, handle: ConnectionHandle) -> Self {
        Self {
            quic,
            endpoint,
            handle,
            timer: Box::pin(sleep(Duration::ZERO)),
            deadline: None,
            has_woken: false,
            unsent: None,
            buffer: Vec::new(),
            writable: None,
            has_drained: false,
        }
    }

    pub(crate) async fn next(&mut self) -> Happened {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Happened> {
        self.quic.set_task(cx);
        loop {
            self.receive();
            if let Some(happened) = self.event() {
                return Poll::Ready(happened);
            }
            if std::mem::take(&mut self.has_woken) {
                // Their responses share packets with the acknowledgement of what has arrived.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.send(cx);
            // Sending asks for further connection ids.
            self.tell_endpoint();
            if self.has_drained {
                return Poll::Ready(Happened::Drained);
            }
            ready!(self.poll_timer(cx));
            self.quic.state().handle_timeout(Instant::now());
        }
    }

    /// Takes received packets, and lets the connection keep as many unacknowledged bytes as the
    /// path carries.
    fn receive(&mut self) {
        let mut has_received = false;
        while let Some(event) = self.quic.delivered() {
            self.quic.state().handle_event(event);
            has_received = true;
        }
        if has_received {
            let mut state = self.quic.state();
            let window = state.congestion_state().window().saturating_mul(2);
            state.set_send_window(window.clamp(SEND_WINDOW, MOST_SEND_WINDOW));
        }
        self.tell_endpoint();
    }

    fn tell_endpoint(&mut self) {
        loop {
            let Some(event) = self.quic.state().poll_endpoint_events() else { return };
            self.has_drained |= event.is_drained();
            if let Some(answer) = self.endpoint.handle_event(self.handle, event) {
                self.quic.state().handle_event(answer);
            }
        }
    }

    /// Wakes the tasks of streams. Returns the next event for the connection's task.
    fn event(&mut self) -> Option<Happened> {
        loop {
            let event = self.quic.state().poll()?;
            self.has_woken |= matches!(
                event,
                Event::Stream(
                    StreamEvent::Opened { .. }
                        | StreamEvent::Readable { .. }
                        | StreamEvent::Writable { .. }
                )
            );
            match event {
                Event::Connected => return Some(Happened::Connected),
                Event::ConnectionLost { reason } => {
                    self.quic.lose();
                    return Some(Happened::Lost(reason));
                }
                Event::Stream(StreamEvent::Opened { dir }) => return Some(Happened::Opened(dir)),
                Event::Stream(StreamEvent::Readable { id }) => self.quic.readable(id),
                Event::Stream(StreamEvent::Writable { id }) => self.quic.writable(id),
                Event::Stream(StreamEvent::Stopped { id, .. }) => self.quic.stopped(id),
                Event::Stream(StreamEvent::Finished { .. } | StreamEvent::Available { .. })
                | Event::HandshakeDataReady
                | Event::DatagramReceived
                | Event::DatagramsUnblocked => {}
            }
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        for _ in 0..SENDS_IN_TURN {
            if let Some(writable) = &mut self.writable {
                if writable.as_mut().poll(cx).is_pending() {
                    return;
                }
                self.writable = None;
            }
            if self.unsent.is_none() {
                if self.buffer.capacity() == 0 {
                    self.buffer = SPARE.take();
                }
                self.buffer.clear();
                let mut state = self.quic.state();
                let most = self.endpoint.segments(BATCH / usize::from(state.current_mtu()));
                self.unsent = state.poll_transmit(Instant::now(), most, &mut self.buffer);
            }
            let Some(transmit) = &self.unsent else {
                return SPARE.set(std::mem::take(&mut self.buffer));
            };
            if self.endpoint.send(transmit, &self.buffer[..transmit.size]).is_err() {
                let endpoint = Rc::clone(&self.endpoint);
                self.writable = Some(Box::pin(async move { endpoint.writable().await }));
                continue;
            }
            self.unsent = None;
        }
        cx.waker().wake_by_ref();
    }

    /// Ready when the timer of the connection has run out.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.quic.state().poll_timeout();
        let Some(deadline) = deadline else { return Poll::Pending };
        loop {
            if self.deadline.is_none_or(|set| deadline < set) {
                self.deadline = Some(deadline);
                self.timer.as_mut().reset(deadline.into());
            }
            ready!(self.timer.as_mut().poll(cx));
            if self.deadline.take() == Some(deadline) {
                return Poll::Ready(());
            }
        }
    }

    /// Waits until the handshake is complete. Returns false if the client has gone.
    pub(crate) async fn connected(&mut self) -> bool {
        loop {
            match self.next().await {
                Happened::Connected => return true,
                Happened::Opened(_) => {}
                Happened::Lost(error) => {
                    tracing::debug!(%error, "no QUIC connection came about");
                    return false;
                }
                Happened::Drained => return false,
            }
        }
    }

    /// Sends the last packets, and waits until none can arrive any more.
    pub(crate) async fn drain(&mut self) {
        while !matches!(self.next().await, Happened::Drained) {}
    }

    /// Tells the client by one packet that the connection ends now.
    fn abort(&mut self) {
        self.quic.close(Code::INTERNAL_ERROR.0, "");
        self.buffer.clear();
        let last = self.quic.state().poll_transmit(Instant::now(), 1, &mut self.buffer);
        if let Some(transmit) = last {
            let _lost = self.endpoint.send(&transmit, &self.buffer[..transmit.size]);
        }
    }

    /// The host that the client named.
    pub(crate) fn server_name(&self) -> Option<Rc<str>> {
        let data = self.quic.state().crypto_session().handshake_data()?;
        data.downcast::<HandshakeData>().ok()?.server_name.map(Rc::from)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.has_drained {
            // The event loop has ended: nothing polls the task any more.
            self.abort();
            self.endpoint.handle_event(self.handle, EndpointEvent::drained());
        }
        self.endpoint.forget(self.handle);
    }
}
