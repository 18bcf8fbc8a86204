//! Responses that a route of the configuration makes: redirects and fixed texts.

use bytes::Bytes;
use http::StatusCode;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;

/// Answers with a redirect. The body repeats the location, for people whose client does not follow
/// it.
pub(crate) async fn redirect(
    status: StatusCode,
    location: &Bytes,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let body = [&location[..], b"\n"].concat();
    let mut head = ResponseHead::new(status, Some(body.len() as u64));
    head.by_server = true;
    head.field("Location", location.clone());
    head.field("Content-Type", "text/plain; charset=utf-8");
    sink::respond(sink, head, [Segment::Bytes(body.into())]).await
}

/// Answers with a fixed text.
pub(crate) async fn respond(
    status: StatusCode,
    content_type: &Bytes,
    body: &Bytes,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let mut head = ResponseHead::new(status, Some(body.len() as u64));
    head.field("Content-Type", content_type.clone());
    sink::respond(sink, head, [Segment::Bytes(body.clone())]).await
}
