//! One request on a stream: its head.

use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use http::{Method, Version};
use quinn_proto::StreamId;
use sendoff_exchange::service::Service;
use sendoff_http1::{BodyFraming, Head, Limits, RequestError, StreamHead};
use sendoff_http3::Code;
use sendoff_http3::frame::RequestPart;
use sendoff_http3::qpack::{self, QpackError};
use sendoff_report::limits::Limit;
use sendoff_streams::{ReceivedHead, StreamGuard};
use tokio::time::timeout;

use super::directions::{PartError, Receiver, Sender};
use super::quic::Quic;

/// Serves one request until QUIC has its response, but for its last bytes.
pub(crate) async fn serve<S: Service>(open: StreamGuard<S>, quic: Rc<Quic>, id: StreamId) {
    let service = open.streams().services.get();
    let (timeouts, max_head) = (&service.limits().timeouts, Limits::default().head);
    let mut receiver = Receiver::new(Rc::clone(&quic), id, max_head);
    let sender = Sender::new(Rc::clone(&quic), id, timeouts.send);
    let part = timeout(timeouts.head, poll_fn(|cx| receiver.poll_part(cx))).await;
    let head = match part {
        Ok(Ok(Some(RequestPart::Head(section)))) => received(&quic, id, &mut receiver, &section),
        Ok(Err(PartError::TooLarge)) => Some(refused(RequestError::HeadTooLarge)),
        // The stream has ended without a head (RFC 9114 §4.1).
        Ok(Ok(_)) => {
            quic.reset(id, Code::REQUEST_INCOMPLETE.0);
            None
        }
        Ok(Err(PartError::Gone)) => None,
        Err(_) => {
            Limit::HeadTimeout.reached();
            quic.reset(id, Code::REQUEST_INCOMPLETE.0);
            None
        }
    };
    let Some(head) = head else { return open.note_given_up() };
    drop(service);
    sendoff_streams::serve(open, head, receiver, sender).await;
}

/// The head in an encoded section; `None` if it was malformed.
fn received(
    quic: &Quic,
    id: StreamId,
    receiver: &mut Receiver,
    section: &Bytes,
) -> Option<ReceivedHead> {
    let head = match qpack::decode(section, Limits::default().head) {
        Ok(head) => head,
        Err(QpackError::TooLarge) => return Some(refused(RequestError::HeadTooLarge)),
        Err(QpackError::Malformed(why)) => {
            tracing::info!("a malformed HTTP/3 request: {why}");
            quic.reset(id, Code::MESSAGE_ERROR.0);
            return None;
        }
        Err(QpackError::Decompression) => {
            quic.close(Code::QPACK_DECOMPRESSION_FAILED.0, "a field section cannot be decoded");
            return None;
        }
    };
    let path = head.path.unwrap_or_default();
    let (method, named) = (head.method.clone(), path.clone());
    let (version, ends) = (Version::HTTP_3, receiver.knows_end());
    let (protocol, authority, fields) = (head.protocol, head.authority, head.fields);
    let checked =
        StreamHead { version, method: head.method, path, protocol, authority, fields, ends };
    let checked = checked.check(Limits::default());
    if let Ok(Head { framing: BodyFraming::Length(length), .. }) = &checked {
        if ends && *length > 0 {
            quic.reset(id, Code::MESSAGE_ERROR.0);
            return None;
        }
        receiver.expect_length(*length);
    }
    Some(ReceivedHead { method, path: named, version, size: head.size, checked })
}

/// A request whose head is refused as a whole.
fn refused(error: RequestError) -> ReceivedHead {
    let (method, path) = (Method::GET, Bytes::new());
    ReceivedHead { method, path, version: Version::HTTP_3, size: 0, checked: Err(error) }
}
