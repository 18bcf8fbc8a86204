//! One request on a stream: its head.

use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use http::Version;
use quinn_proto::StreamId;
use sendoff_exchange::service::Service;
use sendoff_http1::{BodyFraming, Head, Limits};
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
    let (timeouts, max_head) = (&service.config().timeouts, Limits::default().head);
    let mut receiver = Receiver::new(Rc::clone(&quic), id, max_head);
    let sender = Sender::new(Rc::clone(&quic), id, timeouts.send);
    let part = timeout(timeouts.head, poll_fn(|cx| receiver.poll_part(cx))).await;
    let head = match part {
        Ok(Ok(Some(RequestPart::Head(section)))) => received(&quic, id, &mut receiver, &section),
        Ok(Err(PartError::TooLarge)) => Some(ReceivedHead::too_large(Version::HTTP_3)),
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
        Err(QpackError::TooLarge) => return Some(ReceivedHead::too_large(Version::HTTP_3)),
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
    let ends = receiver.knows_end();
    let head = ReceivedHead::of(Version::HTTP_3, head, ends);
    if let Ok(Head { framing: BodyFraming::Length(length), .. }) = &head.checked {
        if ends && *length > 0 {
            quic.reset(id, Code::MESSAGE_ERROR.0);
            return None;
        }
        receiver.expect_length(*length);
    }
    Some(head)
}
