//! One client's connection: accepts streams, and shuts them down in order.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use h2::Reason;
use h2::server::Connection;
use sendoff_delivery::SendLimits;
use sendoff_exchange::lifecycle::{Lifecycle, Past, Stage};
use sendoff_exchange::service::{Current, Service};
use sendoff_message::request::{Origin, Scheme};
use sendoff_report::limits::Limit;
use sendoff_streams::{Penalty, STREAM_BUFFER, StreamGuard, Streams};
use sendoff_transport::Transport;
use tokio::time::{sleep, timeout};

use super::directions::{Body, Sender};
use super::in_flight::{Given, InFlight};
use super::shared_transport::SharedTransport;
use super::{fields, settings};

/// Time for a client that was told to go (GOAWAY) to close the connection, once its streams have
/// ended.
const GOAWAY_TIME: Duration = Duration::from_secs(2);

/// Time for the last bytes to leave, and for the client to close the connection.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// The reason for an early end of a connection: an error of h2, or of the transport.
type Ending = Box<dyn std::error::Error>;

/// The next step of a connection's task.
enum TaskEvent {
    /// The connection is no longer idle.
    Busy,
    /// The client is told to go: it was idle for too long, or makes room for another client, or the
    /// transport's keys are worn, or the front stops.
    Leave,
    /// The client costs more than its requests are worth.
    Penalty(Penalty),
    /// The connection has ended, with this result.
    Ended(Result<(), Ending>),
}

/// The common part of the senders of a connection.
struct Sending {
    in_flight: Rc<InFlight>,
    /// The most bytes that are passed to h2 at a time.
    frame: usize,
}

impl Sending {
    fn new(scheme: Scheme) -> Self {
        let frame = match scheme {
            Scheme::Http => STREAM_BUFFER,
            Scheme::Https => settings::FRAME_IN_RECORD,
        };
        Self { in_flight: Rc::default(), frame }
    }
}

/// The state of the client's right to send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainStage {
    Open,
    /// The client was told to go. Requests that it sent before it read this are answered.
    Draining,
    /// The client was told to go, and further requests are refused.
    Refusing,
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
    let (timeouts, limits) = (service.limits().timeouts.clone(), SendLimits::of(service.limits()));
    drop(service);
    let transport = SharedTransport::new(transport, buffer, limits);
    let client = origin.peer.clone();
    let handshake = settings::builder().handshake(transport.handle());
    let mut connection = match timeout(timeouts.head, handshake).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            tracing::info!(%client, %error, "no HTTP/2 connection came about");
            return;
        }
        Err(_) => return,
    };
    let sending = Sending::new(origin.scheme);
    let streams = Streams::new(origin, services, lifecycle);
    let ended = run(&mut connection, &transport, &streams, &sending).await;
    // The end of h2's connection tells the tasks of its streams.
    drop(connection);
    if let Err(error) = ended {
        tracing::info!(%client, %error, "an HTTP/2 connection ends early");
    }
    streams.idle().await;
    // All bytes have been sent, so a timeout is as good as the end.
    let _ = timeout(DRAIN_TIME, transport.drain()).await;
}

async fn run<T: Transport + 'static, S: Service + 'static>(
    connection: &mut Connection<SharedTransport<T>, Given>,
    transport: &SharedTransport<T>,
    streams: &Rc<Streams<S>>,
    sending: &Sending,
) -> Result<(), Ending> {
    transport.gather(true);
    transport.hold_end();
    let lifecycle = &streams.lifecycle;
    let mut stops = pin!(lifecycle.reached(Stage::Draining));
    let (mut stage, mut past) = (DrainStage::Open, Past::Nothing);
    loop {
        let step = tokio::select! {
            biased;
            step = next(connection, transport, streams, sending, stage) => step,
            step = end(streams, stage, &mut past, stops.as_mut()) => step,
        };
        match step {
            TaskEvent::Busy => past = Past::Requests,
            TaskEvent::Leave => {
                // In two steps, so that no request in flight is lost (RFC 9113 §6.8).
                connection.graceful_shutdown();
                stage = DrainStage::Draining;
            }
            TaskEvent::Penalty(Penalty::GoAway(why)) => {
                Limit::Http2Abuse.reached();
                let client = &streams.origin.peer;
                tracing::warn!(%client, "an HTTP/2 client is told to go: {why}");
                connection.graceful_shutdown();
                stage = DrainStage::Refusing;
            }
            TaskEvent::Penalty(Penalty::Close(why)) => {
                Limit::Http2Abuse.reached();
                let client = &streams.origin.peer;
                tracing::warn!(%client, "an HTTP/2 connection is ended: {why}");
                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                transport.gather(false);
                // The client may not read, either.
                let ended = timeout(DRAIN_TIME, poll_fn(|cx| connection.poll_closed(cx)));
                return ended.await.map_or(Ok(()), |ended| ended.map_err(Ending::from));
            }
            TaskEvent::Ended(how) => return how,
        }
    }
}

/// Waits until the client is to be told to go, or is to be left. Goes on when the streams end: h2
/// need not be polled again for that, which took 2,000 instructions of 56,000 for a small file.
async fn end<S: Service>(
    streams: &Streams<S>,
    stage: DrainStage,
    past: &mut Past,
    stops: Pin<&mut impl Future<Output = ()>>,
) -> TaskEvent {
    let is_open = stage == DrainStage::Open;
    if !streams.is_idle() {
        tokio::select! {
            biased;
            () = streams.idle() => *past = Past::Requests,
            () = stops, if is_open => return TaskEvent::Leave,
        }
    }
    if is_open {
        streams.lifecycle.evicted(*past, false).await;
        TaskEvent::Leave
    } else {
        sleep(GOAWAY_TIME).await;
        TaskEvent::Ended(Ok(()))
    }
}

/// Starts a task for each new stream, while h2 reads and writes the connection's frames.
async fn next<T: Transport, S: Service + 'static>(
    connection: &mut Connection<SharedTransport<T>, Given>,
    transport: &SharedTransport<T>,
    streams: &Rc<Streams<S>>,
    sending: &Sending,
    stage: DrainStage,
) -> TaskEvent {
    poll_fn(|cx| {
        loop {
            // The future has no state of its own, so a new one may be polled each time.
            let (mut request, mut response) = match pin!(connection.accept()).poll(cx) {
                Poll::Ready(Some(Ok(stream))) => stream,
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(TaskEvent::Ended(Err(error.into())));
                }
                Poll::Ready(None) => return Poll::Ready(TaskEvent::Ended(Ok(()))),
                Poll::Pending if stage == DrainStage::Open && transport.is_worn() => {
                    return Poll::Ready(TaskEvent::Leave);
                }
                Poll::Pending => return rest(transport, streams, stage, cx),
            };
            if stage == DrainStage::Refusing {
                // The client may repeat the request on another connection (RFC 9113 §8.7).
                response.send_reset(Reason::REFUSED_STREAM);
                streams.note_refused();
                continue;
            }
            let was_idle = streams.is_idle();
            let open = StreamGuard::new(streams);
            let head = fields::received(&mut request);
            let body = Body::new(request.into_body());
            let sender = Sender::new(response, Rc::clone(&sending.in_flight), sending.frame);
            tokio::task::spawn_local(sendoff_streams::serve(open, head, body, sender));
            if was_idle {
                return Poll::Ready(TaskEvent::Busy);
            }
        }
    })
    .await
}

/// Sends the gathered bytes when h2 has nothing to do, and checks for the end of the connection and
/// for abuse.
fn rest<T: Transport, S: Service>(
    transport: &SharedTransport<T>,
    streams: &Streams<S>,
    stage: DrainStage,
    cx: &mut Context<'_>,
) -> Poll<TaskEvent> {
    let sent = transport.poll_send_gathered(cx);
    if let Poll::Ready(Err(error)) = sent {
        return Poll::Ready(TaskEvent::Ended(Err(error.into())));
    }
    if !transport.holds_end() {
        let told = |penalty: &Penalty| {
            stage == DrainStage::Refusing && matches!(penalty, Penalty::GoAway(_))
        };
        let penalty = streams.penalty(transport.received()).filter(|penalty| !told(penalty));
        return penalty.map_or(Poll::Pending, |penalty| Poll::Ready(TaskEvent::Penalty(penalty)));
    }
    streams.end_input();
    let is_all_sent = sent.is_ready() && !transport.is_blocked();
    if streams.is_idle() && is_all_sent {
        return Poll::Ready(TaskEvent::Ended(Ok(())));
    }
    Poll::Pending
}
