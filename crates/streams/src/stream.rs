//! One request on a stream: reading, answering, logging.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use sendoff_config::{FrontConfig, TUNNEL_TIMEOUT};
use sendoff_exchange::service::{Answered, BodyTerms, Intake, Plan, Service};
use sendoff_exchange::tunnel::Switch;
use sendoff_http1::{BodyFraming, Head, RequestError};
use sendoff_message::Fault;
use sendoff_message::request::{
    Body, BodyStore, BodyStream, BodyWriter, NOT_STORED, Request, named, not_stored, received,
};
use sendoff_message::response::ResponseHead;
use sendoff_report::limits::Limit;
use sendoff_transport::pace::{Pace, SlowestPace};
use tokio::time::{Instant, timeout, timeout_at};

use crate::directions::{RequestBody, ResponseSender, StreamGone};
use crate::exchange::{Exchange, Fate, RequestFacts};
use crate::received_head::ReceivedHead;
use crate::response_stream::ResponseStream;
use crate::streams::StreamGuard;
use crate::tunnel::{StreamClient, StreamTunnel};

/// Time for reading and dropping the rest of a body, once the request is answered.
const REST_TIME: Duration = Duration::from_secs(2);

/// The slowest that a client may send a body.
fn slowest_pace(intake: Intake, limits: &FrontConfig) -> SlowestPace {
    match intake {
        Intake::Duplex => SlowestPace { pause: TUNNEL_TIMEOUT, rate: 0 },
        _ => SlowestPace { pause: limits.timeouts.body, rate: limits.limits.body_rate },
    }
}

/// The reason why no handler answers a request.
enum StreamEnd {
    /// The request is answered with an error page of this status.
    Refused { status: StatusCode, why: String },
    /// The client has reset the stream, or the connection has ended.
    Gone,
}

impl From<RequestError> for StreamEnd {
    fn from(error: RequestError) -> Self {
        Self::Refused { status: error.status(), why: error.to_string() }
    }
}

fn refused(status: StatusCode, why: &str) -> StreamEnd {
    StreamEnd::Refused { status, why: why.to_owned() }
}

impl From<StreamGone> for StreamEnd {
    fn from(_: StreamGone) -> Self {
        Self::Gone
    }
}

/// Serves one stream until its protocol has the response, and the tunnel that may follow. The part
/// up to the response is on the heap, because a tunnel should not keep its kilobytes.
pub fn serve<S: Service, B: RequestBody, R: ResponseSender>(
    open: StreamGuard<S>,
    head: ReceivedHead,
    body: B,
    sender: R,
) -> impl Future<Output = ()> {
    let answered = Box::into_pin(Box::write(Box::new_uninit(), answer(open, head, body, sender)));
    async move {
        let tunnel = answered.await;
        if let Some(tunnel) = tunnel {
            tunnel.run().await;
        }
    }
}

/// Serves one stream until its protocol has the response. Returns the tunnel that follows, if there
/// is one.
async fn answer<S: Service, B: RequestBody, R: ResponseSender>(
    open: StreamGuard<S>,
    head: ReceivedHead,
    mut body: B,
    mut sender: R,
) -> Option<Box<StreamTunnel<S, B, R>>> {
    let streams = open.streams();
    let service = streams.services.get();
    let ReceivedHead { method, path, version, size, checked } = head;
    let asked = RequestFacts { method, path, version, began: Instant::now() };
    streams.note_useful(size);
    let received = match checked {
        Ok(head) => match turn(&open, &*service, &mut sender).await {
            Ok(()) => receive(&open, &*service, head, &mut body, &mut sender).await,
            Err(end) => Err((end, None)),
        },
        Err(error) => Err((error.into(), None)),
    };
    let mut stream = ResponseStream::new(sender);
    // The request's name, if the rest of its body is to be read.
    let unread = match received {
        Ok((plan, request, rest)) => {
            let BodyTerms { max: most, intake } = plan.body();
            let slowest = slowest_pace(intake, service.config());
            let mut exchange = Exchange::new(&open, &*service, &asked, Some(&request), &mut stream);
            if rest.is_none() {
                exchange.fate = Fate::MaySwitch;
            }
            let mut is_unread = false;
            let answered = {
                let mut answered = pin!(service.answer(plan, &request, &mut exchange));
                match rest {
                    None => answered.await,
                    Some(writer) => tokio::select! {
                        biased;
                        answered = &mut answered => {
                            is_unread = true;
                            answered
                        }
                        () = pass_body(&open, slowest, &mut body, writer, most) => {
                            is_unread = !body.is_end();
                            answered.await
                        }
                    },
                }
            };
            match answered {
                Ok(Answered::Sent) => is_unread.then(|| request.shown()),
                Ok(Answered::Switched(Switch { head, tunnel })) => {
                    match exchange.switch(head, &service, &request) {
                        Ok(line) => {
                            let client = StreamClient { line, stream, input: body, open };
                            return Some(Box::new(StreamTunnel { tunnel, client }));
                        }
                        Err(cut) => cut.log(&named(&asked, Some(&request))),
                    }
                    open.note_given_up();
                    None
                }
                Err(cut) => {
                    cut.log(&named(&asked, Some(&request)));
                    match cut.fault {
                        Fault::Client => open.note_given_up(),
                        Fault::Application | Fault::Server => exchange.settle().await,
                    }
                    None
                }
            }
        }
        Err((StreamEnd::Gone, request)) => {
            let request = request.as_ref();
            // Writes the line in the access log.
            drop(Exchange::new(&open, &*service, &asked, request, &mut stream));
            open.note_given_up();
            None
        }
        Err((StreamEnd::Refused { status, why }, request)) => {
            let request = request.as_ref();
            let mut exchange = Exchange::new(&open, &*service, &asked, request, &mut stream);
            let client = request.map_or(&streams.origin.peer, |request| &request.peer);
            let line = named(&asked, request);
            tracing::info!(%client, request = &*line, %status, "request refused: {why}");
            // If the client has gone meanwhile, nothing is left to do.
            let _gone = service.refuse(status, &mut exchange).await;
            Some(line)
        }
    };
    drop(stream);
    if let Some(request) = unread {
        drop_rest(&open, &*service, &mut body, &request).await;
    }
    // Tells the client that the rest is not needed, if there is one (RFC 9113 §8.1).
    drop(body);
    None
}

/// Waits for the [turn](StreamGuard::take_turn) of a request.
async fn turn<S: Service, R: ResponseSender>(
    open: &StreamGuard<S>,
    service: &S,
    sender: &mut R,
) -> Result<(), StreamEnd> {
    // Most requests need no timer.
    if open.take_turn() {
        return Ok(());
    }
    let turn = poll_fn(|cx| {
        if let Poll::Ready(()) = open.poll_turn(cx) {
            return Poll::Ready(Ok(()));
        }
        match (sender.poll_reset(cx), open.poll_input_end(cx)) {
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(Err(StreamEnd::Gone)),
        }
    });
    let turn = timeout(service.config().timeouts.head, turn).await;
    let late = "descriptors are scarce, and the connection's other requests have not ended";
    turn.unwrap_or_else(|_| Err(refused(StatusCode::SERVICE_UNAVAILABLE, late)))
}

/// Builds the request, chooses its handler, and reads the body, unless the handler takes it while
/// it arrives, or does not use it.
async fn receive<S: Service, B: RequestBody, R: ResponseSender>(
    open: &StreamGuard<S>,
    service: &S,
    head: Head,
    body: &mut B,
    sender: &mut R,
) -> Result<(S::Plan, Request, Option<BodyWriter>), (StreamEnd, Option<Request>)> {
    let (framing, waits) = (head.framing, head.expect_continue);
    let origin = &open.streams().origin;
    let proxies = Some(service.trusted_proxies()).filter(|all| origin.vouches(all));
    let ids = service.config().request_ids;
    let mut request = received::request(head, origin, proxies, ids)
        .map_err(|bad| (refused(StatusCode::BAD_REQUEST, bad.0), None))?;
    let plan = service.plan(&mut request).await;
    let terms = plan.body();
    let most = terms.max;
    let is_too_large = matches!(framing, BodyFraming::Length(length) if length > most);
    if is_too_large {
        return Err((RequestError::BodyTooLarge.into(), Some(request)));
    }
    let wanted = terms.is_wanted();
    // The bytes of a tunnel are no body.
    if framing == BodyFraming::None || body.is_end() || waits && !wanted {
        return Ok((plan, request, None));
    }
    if waits {
        let interim = R::encode(ResponseHead::new(StatusCode::CONTINUE, None), &mut |_| {});
        // Sending fails if the client has gone, which reading the body shows, too.
        let _gone = sender.interim(interim);
    }
    if !wanted {
        return Ok((plan, request, Some(BodyStream::dropped())));
    }
    if terms.streams(framing) {
        let len = match framing {
            BodyFraming::Length(len) => Some(len),
            BodyFraming::Chunked | BodyFraming::None => None,
        };
        let (writer, stream) = BodyStream::new(len);
        request.body = Body::Stream(stream);
        return Ok((plan, request, Some(writer)));
    }
    match read_body(open, service, body, BodyStore::keep(), most, || request.shown()).await {
        Ok(stored) => {
            // A client may end its stream a moment after the head of a request without a body.
            request.has_body = framing != BodyFraming::Chunked || !stored.is_empty();
            request.body = stored;
            request.trailers = body.take_trailers();
        }
        Err(end) => return Err((end, Some(request))),
    }
    Ok((plan, request, None))
}

/// Passes the body on, or drops it, while it arrives. The client may send more as the application
/// takes it.
async fn pass_body<S: Service, B: RequestBody>(
    open: &StreamGuard<S>,
    slowest: SlowestPace,
    body: &mut B,
    writer: BodyWriter,
    most: u64,
) {
    let mut left = most;
    let mut pace = Pace::new(slowest.pause);
    loop {
        let left_to_client = pace.left();
        poll_fn(|cx| writer.poll_room(cx)).await;
        // Time that the application takes does not count for the client.
        pace = Pace::new(left_to_client);
        match next_piece(open, slowest, body, &mut pace, &mut left).await {
            Ok(Some(data)) if data.is_empty() => {}
            Ok(Some(data)) => writer.push(data),
            Ok(None) => return writer.end(body.take_trailers()),
            Err(StreamEnd::Gone) => return writer.fail(StatusCode::BAD_REQUEST),
            Err(StreamEnd::Refused { status, .. }) => return writer.fail(status),
        }
    }
}

/// Reads and drops the rest of the body of a request that is answered. Some clients drop the
/// response if they are told to stop within their body: curl 7.88 does if both arrive together.
async fn drop_rest<S: Service, B: RequestBody>(
    open: &StreamGuard<S>,
    service: &S,
    body: &mut B,
    request: &str,
) {
    let request = || request.to_owned();
    let rest = read_body(open, service, body, BodyStore::discard(), u64::MAX, request);
    let _late = timeout(REST_TIME, rest).await;
}

/// Reads and stores the body. The client may send more as its bytes are stored. `request` names the
/// request for log lines.
async fn read_body<S: Service, B: RequestBody>(
    open: &StreamGuard<S>,
    service: &S,
    body: &mut B,
    mut store: BodyStore,
    most: u64,
    request: impl Fn() -> String,
) -> Result<Body, StreamEnd> {
    let not_stored = |error| refused(not_stored(&error, &request()), NOT_STORED);
    let mut left = most;
    let slowest = slowest_pace(Intake::Whole, service.config());
    let mut pace = Pace::new(slowest.pause);
    while let Some(data) = next_piece(open, slowest, body, &mut pace, &mut left).await? {
        store.push(&data).map_err(not_stored)?;
    }
    store.finish().map_err(not_stored)
}

/// The next bytes of the body; `None` at its end. The client may send as many more. `left`: bytes
/// that the body may still have.
async fn next_piece<S: Service, B: RequestBody>(
    open: &StreamGuard<S>,
    slowest: SlowestPace,
    body: &mut B,
    pace: &mut Pace,
    left: &mut u64,
) -> Result<Option<Bytes>, StreamEnd> {
    let next = timeout_at(pace.deadline(), poll_fn(|cx| poll_data(open, body, cx))).await;
    let Ok(next) = next else {
        Limit::BodyTimeout.reached();
        return Err(refused(StatusCode::REQUEST_TIMEOUT, "the request body took too long"));
    };
    let Some(data) = next? else { return Ok(None) };
    pace.note(data.len() as u64, slowest);
    open.streams().note_useful(data.len());
    *left = left.checked_sub(data.len() as u64).ok_or(RequestError::BodyTooLarge)?;
    body.release(data.len());
    Ok(Some(data))
}

/// The next bytes of the body; `None` at its end.
fn poll_data<S, B: RequestBody>(
    open: &StreamGuard<S>,
    body: &mut B,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, StreamEnd>> {
    match body.poll_data(cx) {
        Poll::Ready(data) => Poll::Ready(data.map_err(StreamEnd::from)),
        Poll::Pending => open.poll_input_end(cx).map(|()| Err(StreamEnd::Gone)),
    }
}
