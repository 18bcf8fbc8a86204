//! One client's connection: its packets and timers, its streams, and its end in order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{
    ConnectionError, ConnectionHandle, Dir, EndpointEvent, Event, StreamEvent, StreamId, Transmit,
};
use sendoff_exchange::lifecycle::{ConnectionGuard, Past, Stage};
use sendoff_exchange::service::{Current, Service};
use sendoff_http1::Limits;
use sendoff_http3::{Code, frame};
use sendoff_message::request::{Origin, TLS_13, TlsFacts};
use sendoff_report::limits::Limit;
use sendoff_streams::{DrainStage, DrainStep, GOAWAY_TIME, Penalty, StreamGuard, Streams};
use tokio::time::{Sleep, sleep, timeout};

use super::control::{self, Opened};
use super::endpoint::{Endpoint, Handshake};
use super::quic::Quic;
use super::request;
use super::settings::{MOST_SEND_WINDOW, SEND_WINDOW, idle_timeout};

/// [`GOAWAY_TIME`] while the front stops: after an upgrade, the next process takes packets from the
/// same socket.
const GOAWAY_TIME_AT_STOP: Duration = Duration::from_millis(250);

/// The most system calls that send packets before other connections have their turn.
const SENDS_IN_TURN: usize = 16;

/// The most bytes of one system call that sends packets; the kernel takes 65,507.
const BATCH: usize = 60_000;

/// The largest stream id, which a first GOAWAY may name (RFC 9114 §5.2).
const LAST_REQUEST: u64 = (1 << 62) - 4;

thread_local! {
    /// The buffer of the connection that last had all its packets taken. QUIC wants room for all
    /// packets of a system call, and connections take turns with it: an allocation of this size per
    /// turn makes the allocator tidy up, which costs more. Each event loop is a thread.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The packets of a connection: takes received ones, sends others, keeps the timer.
pub(crate) struct Driver {
    quic: Rc<Quic>,
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
enum Happened {
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

    async fn next(&mut self) -> Happened {
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
    async fn connected(&mut self) -> bool {
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
    async fn drain(&mut self) {
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
    fn server_name(&self) -> Option<Rc<str>> {
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

/// The next step of a connection's task.
enum TaskEvent {
    Happened(Happened),
    Drain(DrainStep),
}

/// Serves one client until the connection has ended. Runs in a task of its own.
pub(crate) async fn run<S: Service + 'static>(
    mut driver: Driver,
    mut origin: Origin,
    services: Rc<Current<S>>,
    mut counted: ConnectionGuard,
    handshake: Handshake,
    count: impl FnOnce(&Origin, &mut ConnectionGuard) -> bool,
) {
    let lifecycle = Rc::clone(&counted.lifecycle);
    let timeouts = services.get().config().timeouts.clone();
    let is_connected = tokio::select! {
        connected = timeout(timeouts.head, driver.connected()) => connected.unwrap_or(false),
        // The connection counts as idle: it has sent no request.
        () = lifecycle.evicted(Past::Nothing, false) => false,
    };
    drop(handshake);
    // From here on the streams count their own responses.
    counted.starting = None;
    if is_connected && count(&origin, &mut counted) {
        origin.tls = Some(Rc::new(TlsFacts {
            by_kernel: false,
            version: TLS_13,
            cipher: "",
            server_name: driver.server_name(),
            // Clients of QUIC are not asked.
            demand: None,
            client_certificate: None,
        }));
        let streams = Streams::new(origin, services, lifecycle);
        let connection = Connection::new(&driver.quic, &streams);
        let idle = idle_timeout(timeouts.idle);
        tokio::select! {
            () = connection.serve(&mut driver) => {}
            never = keep_alive(&connection, idle) => never,
        }
        streams.end_input();
    }
    driver.quic.close(Code::NO_ERROR.0, "");
    // The client's place is free, although late packets may still arrive.
    drop(counted);
    driver.drain().await;
}

/// Keeps a connection alive while requests are answered, however long that takes. An idle client
/// may go.
async fn keep_alive<S: Service + 'static>(connection: &Connection<S>, idle: Duration) -> ! {
    loop {
        sleep(idle / 3).await;
        if !connection.streams.is_idle() {
            connection.quic.state().ping();
            connection.quic.wake();
        }
    }
}

struct Connection<S> {
    quic: Rc<Quic>,
    streams: Rc<Streams<S>>,
    opened: Rc<Opened>,
    /// The server's control stream; `None` if the client allows no stream, which ends the
    /// connection.
    control: Option<StreamId>,
    /// Bytes for the control stream. Windows that responses have filled keep them waiting.
    untold: RefCell<VecDeque<Bytes>>,
}

impl<S: Service + 'static> Connection<S> {
    fn new(quic: &Rc<Quic>, streams: &Rc<Streams<S>>) -> Self {
        let (quic, streams) = (Rc::clone(quic), Rc::clone(streams));
        let control = quic.open();
        control.inspect(|id| quic.begin(*id, 1));
        let (opened, untold) = (Rc::default(), RefCell::default());
        let connection = Self { quic, streams, opened, control, untold };
        let mut settings = BytesMut::new();
        frame::control_stream(&mut settings);
        frame::settings(Limits::default().head as u64, true, &mut settings);
        connection.tell(settings.freeze());
        connection
    }

    /// Writes to the server's control stream, in [`serve`](Self::serve) if its window is full.
    fn tell(&self, bytes: Bytes) {
        self.untold.borrow_mut().push_back(bytes);
        self.write_control();
    }

    /// Writes as much to the control stream as the windows take.
    fn write_control(&self) {
        let mut untold = self.untold.borrow_mut();
        let told = self.control.map(|id| self.quic.write(id, &mut untold));
        // Clients allow at least three streams, and stop none of these (RFC 9114 §6.2, §6.2.1).
        if !matches!(told, Some(Ok(()))) {
            untold.clear();
            self.quic.close(Code::CLOSED_CRITICAL_STREAM.0, "no control stream");
        }
    }

    /// Writes to the control stream whenever it takes bytes.
    async fn tell_all(&self) -> Infallible {
        poll_fn(|cx| {
            if !self.untold.borrow().is_empty() {
                self.write_control();
            }
            if let (Some(id), false) = (self.control, self.untold.borrow().is_empty()) {
                self.quic.wait_writable(id, cx);
            }
            Poll::Pending
        })
        .await
    }

    fn go_away(&self, id: u64) {
        let mut frame = BytesMut::new();
        frame::goaway(id, &mut frame);
        self.tell(frame.freeze());
    }

    async fn serve(&self, driver: &mut Driver) {
        let lifecycle = Rc::clone(&self.streams.lifecycle);
        let mut stops = pin!(lifecycle.reached(Stage::Draining));
        let (mut stage, mut past) = (DrainStage::Open, Past::Nothing);
        let grace = || if lifecycle.is_stopping() { GOAWAY_TIME_AT_STOP } else { GOAWAY_TIME };
        // The first request that is refused.
        let mut next = 0;
        loop {
            let event = tokio::select! {
                biased;
                happened = driver.next() => TaskEvent::Happened(happened),
                step = self.streams.drain_step(stage, &mut past, stops.as_mut(), grace) => {
                    TaskEvent::Drain(step)
                }
                never = self.tell_all() => match never {},
            };
            match event {
                TaskEvent::Happened(Happened::Opened(Dir::Uni)) => self.accept_unidirectional(),
                TaskEvent::Happened(Happened::Opened(Dir::Bi)) => {
                    past = Past::Requests;
                    self.accept_requests(stage, &mut next);
                }
                TaskEvent::Happened(Happened::Connected) => {}
                TaskEvent::Happened(Happened::Lost(error)) => {
                    let client = &self.streams.origin.peer;
                    tracing::debug!(%client, %error, "an HTTP/3 connection has ended");
                    return;
                }
                TaskEvent::Happened(Happened::Drained) | TaskEvent::Drain(DrainStep::Over) => {
                    return;
                }
                TaskEvent::Drain(DrainStep::Leave) => {
                    // In two steps, so that no request in flight is lost (RFC 9114 §5.2).
                    self.go_away(LAST_REQUEST);
                    stage = DrainStage::Draining;
                }
            }
            let received = self.quic.state().stats().udp_rx.bytes;
            match self.streams.penalty(received) {
                None => {}
                Some(Penalty::GoAway(_)) if stage == DrainStage::Refusing => {}
                Some(Penalty::GoAway(why)) => {
                    Limit::Http3Abuse.reached();
                    let client = &self.streams.origin.peer;
                    tracing::warn!(%client, "an HTTP/3 client is told to go: {why}");
                    self.go_away(next);
                    stage = DrainStage::Refusing;
                }
                Some(Penalty::Close(why)) => {
                    Limit::Http3Abuse.reached();
                    let client = &self.streams.origin.peer;
                    tracing::warn!(%client, "an HTTP/3 connection is ended: {why}");
                    self.quic.close(Code::EXCESSIVE_LOAD.0, why);
                    return;
                }
            }
        }
    }

    /// Starts a task for each new request.
    fn accept_requests(&self, stage: DrainStage, next: &mut u64) {
        loop {
            let Some(id) = self.quic.state().streams().accept(Dir::Bi) else { return };
            if stage == DrainStage::Refusing {
                // The client may repeat the request on another connection (RFC 9114 §4.1.1).
                self.quic.stop(id, Code::REQUEST_REJECTED.0);
                self.quic.reset(id, Code::REQUEST_REJECTED.0);
                self.streams.note_refused();
                continue;
            }
            *next = u64::from(id) + 4;
            self.quic.begin(id, 2);
            let open = StreamGuard::new(&self.streams);
            let quic = Rc::clone(&self.quic);
            tokio::task::spawn_local(Box::pin(request::serve(open, quic, id)));
        }
    }

    fn accept_unidirectional(&self) {
        loop {
            let Some(id) = self.quic.state().streams().accept(Dir::Uni) else { return };
            self.quic.begin(id, 1);
            let (quic, opened) = (Rc::clone(&self.quic), Rc::clone(&self.opened));
            tokio::task::spawn_local(control::read(quic, id, opened));
        }
    }
}
