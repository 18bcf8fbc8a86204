//! One client's connection: accepts streams, and shuts them down in order.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use sendoff_delivery::send_pace;
use sendoff_exchange::lifecycle::{Lifecycle, Past, Stage};
use sendoff_exchange::service::{Current, Service};
use sendoff_http1::{BodyFraming, Head};
use sendoff_http2::hpack::Decoder;
use sendoff_http2::{Code, ConnectionError, FrameDecoder, MAX_FRAME};
use sendoff_message::request::{Origin, Scheme};
use sendoff_report::limits::Limit;
use sendoff_streams::{DrainStage, DrainStep, GOAWAY_TIME, Penalty, StreamGuard, Streams};
use sendoff_transport::Transport;
use tokio::time::timeout;

use super::directions::{Body, Sender};
use super::session::{NewStream, Received, Session, Shared};
use super::wire::Wire;
use super::{fields, settings};

/// Time for the last bytes to leave, and for the client to close the connection.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// The reason for an early end of a connection: an error of the client, or of the transport.
type Ending = Box<dyn std::error::Error>;

/// The next step of a connection's task.
enum TaskEvent {
    /// The connection is no longer idle.
    Busy,
    /// The connection ends in order, or its transport's keys are worn.
    Drain(DrainStep),
    /// The client costs more than its requests are worth.
    Penalty(Penalty),
    /// The client breaks the rules of the protocol.
    Error(ConnectionError),
    /// The connection has ended, with this result.
    Ended(Result<(), Ending>),
}

/// The client's connection, as its task has it.
struct Connection<T, S> {
    wire: Wire<T>,
    session: Shared,
    frames: FrameDecoder,
    fields: Decoder,
    streams: Rc<Streams<S>>,
    stage: DrainStage,
    /// The client has ended its sending direction.
    input_has_ended: bool,
    /// The most bytes of a DATA frame.
    frame: usize,
}

/// Serves one client until the connection ends. `buffer` has the bytes that were already read from
/// the client, beginning with the preface.
pub async fn serve<T: Transport + 'static, S: Service + 'static>(
    transport: T,
    origin: Origin,
    buffer: BytesMut,
    services: Rc<Current<S>>,
    lifecycle: Rc<Lifecycle>,
) {
    let service = services.get();
    let (timeouts, limits) = (service.config().timeouts.clone(), send_pace(service.config()));
    drop(service);
    let mut wire = Wire::new(transport, buffer, limits);
    let client = origin.peer.clone();
    match timeout(timeouts.head, poll_fn(|cx| wire.poll_preface(cx))).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::info!(%client, %error, "no HTTP/2 connection came about");
            return;
        }
        Err(_) => return,
    }
    let frame = match origin.scheme {
        Scheme::Http => MAX_FRAME,
        Scheme::Https => settings::FRAME_IN_RECORD,
    };
    let mut connection = Connection {
        wire,
        session: Rc::new(RefCell::new(Session::new())),
        frames: FrameDecoder::new(settings::max_block()),
        fields: Decoder::default(),
        streams: Streams::new(origin, services, lifecycle),
        stage: DrainStage::Open,
        input_has_ended: false,
        frame,
    };
    let ended = connection.run().await;
    // Tells the tasks of the streams.
    connection.session.borrow_mut().cut();
    if let Err(error) = ended {
        tracing::info!(%client, %error, "an HTTP/2 connection ends early");
    }
    connection.streams.idle().await;
    // All bytes have been sent, so a timeout is as good as the end.
    let _ = timeout(DRAIN_TIME, connection.wire.drain()).await;
}

impl<T: Transport, S: Service + 'static> Connection<T, S> {
    async fn run(&mut self) -> Result<(), Ending> {
        let streams = Rc::clone(&self.streams);
        let mut stops = pin!(streams.lifecycle.reached(Stage::Draining));
        let mut past = Past::Nothing;
        loop {
            let stage = self.stage;
            let step = tokio::select! {
                biased;
                step = poll_fn(|cx| self.poll_step(cx)) => step,
                step = streams.drain_step(stage, &mut past, stops.as_mut(), || GOAWAY_TIME) => {
                    TaskEvent::Drain(step)
                }
            };
            match step {
                TaskEvent::Busy => past = Past::Requests,
                TaskEvent::Drain(DrainStep::Over) => return Ok(()),
                TaskEvent::Drain(DrainStep::Leave) => {
                    self.session.borrow_mut().leave();
                    self.stage = DrainStage::Draining;
                }
                TaskEvent::Penalty(Penalty::GoAway(why)) => {
                    Limit::Http2Abuse.reached();
                    let client = &streams.origin.peer;
                    tracing::warn!(%client, "an HTTP/2 client is told to go: {why}");
                    self.session.borrow_mut().leave();
                    self.stage = DrainStage::Refusing;
                }
                TaskEvent::Penalty(Penalty::Close(why)) => {
                    Limit::Http2Abuse.reached();
                    let client = &streams.origin.peer;
                    tracing::warn!(%client, "an HTTP/2 connection is ended: {why}");
                    self.session.borrow_mut().end(Code::ENHANCE_YOUR_CALM, "");
                    return self.send_last().await;
                }
                TaskEvent::Ended(how) => return how,
                TaskEvent::Error(ConnectionError { code, why }) => {
                    self.session.borrow_mut().end(code, why);
                    self.send_last().await?;
                    return Err(why.into());
                }
            }
        }
    }

    /// Sends the last frames. The client may not read.
    async fn send_last(&mut self) -> Result<(), Ending> {
        let Self { wire, session, .. } = self;
        let sent = timeout(DRAIN_TIME, poll_fn(|cx| wire.poll_send(cx, session))).await;
        sent.map_or(Ok(()), |sent| sent.map_err(Ending::from))
    }

    /// Reads and acts upon frames, starts a task for each new stream, and sends frames.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<TaskEvent> {
        let was_idle = self.streams.is_idle();
        self.session.borrow_mut().begin_turn(cx);
        let sent = loop {
            if let Err(event) = self.read(cx) {
                return Poll::Ready(event);
            }
            let was_clogged = self.session.borrow().is_clogged();
            let sent = self.wire.poll_send(cx, &self.session);
            if let Poll::Ready(Err(error)) = sent {
                return Poll::Ready(TaskEvent::Ended(Err(error.into())));
            }
            if !was_clogged || self.session.borrow().is_clogged() {
                break sent;
            }
        };
        if was_idle && !self.streams.is_idle() {
            return Poll::Ready(TaskEvent::Busy);
        }
        self.rest(sent.is_ready())
    }

    /// Reads frames and acts upon them until no more come, or the client does not take its answers.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), TaskEvent> {
        self.act()?;
        while !self.input_has_ended && !self.session.borrow().is_clogged() {
            match self.wire.poll_fill(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => self.input_has_ended = true,
                Poll::Ready(Ok(_)) => self.act()?,
                Poll::Ready(Err(error)) => return Err(TaskEvent::Ended(Err(error.into()))),
            }
        }
        Ok(())
    }

    /// Acts upon the frames that have come.
    fn act(&mut self) -> Result<(), TaskEvent> {
        let Self { wire, frames, fields, session, .. } = self;
        let refuses = self.stage == DrainStage::Refusing;
        let mut at = 0;
        while let Some((frame, size)) =
            frames.next(&wire.received[at..]).map_err(TaskEvent::Error)?
        {
            at += size;
            let received = session.borrow_mut().receive(frame, fields, refuses);
            match received.map_err(TaskEvent::Error)? {
                Received::Nothing => {}
                Received::Refused => self.streams.note_refused(),
                Received::Request(new) => {
                    accept(*new, session, &self.streams, self.frame).map_err(TaskEvent::Error)?;
                }
            }
        }
        wire.received.advance(at);
        Ok(())
    }

    /// Checks for the end of the connection and for abuse, when no frame waits. `is_all_sent`: the
    /// client's windows allow no more.
    fn rest(&mut self, is_all_sent: bool) -> Poll<TaskEvent> {
        let (streams, stage) = (&self.streams, self.stage);
        if self.input_has_ended {
            streams.end_input();
            if streams.is_idle() && is_all_sent {
                return Poll::Ready(TaskEvent::Ended(Ok(())));
            }
            return Poll::Pending;
        }
        if self.session.borrow_mut().is_over() && is_all_sent {
            return Poll::Ready(TaskEvent::Ended(Ok(())));
        }
        if stage == DrainStage::Open && self.wire.transport.is_worn() {
            return Poll::Ready(TaskEvent::Drain(DrainStep::Leave));
        }
        let told = |penalty: &Penalty| {
            stage == DrainStage::Refusing && matches!(penalty, Penalty::GoAway(_))
        };
        let penalty = streams.penalty(self.wire.total).filter(|penalty| !told(penalty));
        penalty.map_or(Poll::Pending, |penalty| Poll::Ready(TaskEvent::Penalty(penalty)))
    }
}

/// Starts the task of a new stream.
fn accept<S: Service + 'static>(
    new: NewStream,
    session: &Shared,
    streams: &Rc<Streams<S>>,
    frame: usize,
) -> Result<(), ConnectionError> {
    let NewStream { id, head, ends } = new;
    let head = fields::received(head, ends);
    let (body, sender) = (Body::new(session, id), Sender::new(session, id, frame));
    if let Ok(Head { framing: BodyFraming::Length(length), .. }) = &head.checked
        && !session.borrow_mut().expect_length(id, *length)?
    {
        return Ok(());
    }
    let open = StreamGuard::new(streams);
    tokio::task::spawn_local(sendoff_streams::serve(open, head, body, sender));
    Ok(())
}
