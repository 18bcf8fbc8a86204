//! One client's connection: its handshake, its streams, and its end in order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quinn_proto::{Dir, StreamId};
use sendoff_exchange::lifecycle::{ConnectionGuard, Past, Stage};
use sendoff_exchange::service::{Current, Service};
use sendoff_http1::Limits;
use sendoff_http3::{Code, frame};
use sendoff_message::request::{Origin, TLS_13, TlsFacts};
use sendoff_report::limits::Limit;
use sendoff_streams::{DrainStage, DrainStep, GOAWAY_TIME, Penalty, StreamGuard, Streams};
use tokio::time::{sleep, timeout};

use super::control::{self, Opened};
use super::driver::{Driver, Happened};
use super::endpoint::Handshake;
use super::quic::Quic;
use super::request;
use super::settings::idle_timeout;

/// [`GOAWAY_TIME`] while the front stops: after an upgrade, the next process takes packets from the
/// same socket.
const GOAWAY_TIME_AT_STOP: Duration = Duration::from_millis(250);

/// The largest stream id, which a first GOAWAY may name (RFC 9114 §5.2).
const LAST_REQUEST: u64 = (1 << 62) - 4;

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
