//! Short responses of the server itself: redirects, fixed texts, and pages that name a status.

use bytes::Bytes;
use http::StatusCode;
use percent_encoding::percent_encode;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::request::{NOT_IN_PATH, Request};
use sendoff_message::response::{ResponseHead, append_fields};

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
pub(crate) async fn send_text(
    status: StatusCode,
    content_type: &Bytes,
    body: &Bytes,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let mut head = ResponseHead::new(status, Some(body.len() as u64));
    head.field("Content-Type", content_type.clone());
    sink::respond(sink, head, [Segment::Bytes(body.clone())]).await
}

/// Redirects a request for a folder to the folder's path with a slash at the end.
pub(crate) async fn redirect_to_folder(request: &Request, sink: &mut dyn Sink) -> Result<(), Cut> {
    let mut location = percent_encode(&request.path, NOT_IN_PATH).to_string().into_bytes();
    location.push(b'/');
    if let Some(query) = &request.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let fields = [("Location", Bytes::from(location))];
    send_error_page(sink, StatusCode::MOVED_PERMANENTLY, fields).await
}

/// Answers with a short page that names the status.
pub(crate) async fn send_error_page(
    sink: &mut dyn Sink,
    status: StatusCode,
    fields: impl IntoIterator<Item = (&'static str, Bytes)>,
) -> Result<(), Cut> {
    let reason = status.canonical_reason().unwrap_or_default();
    let code = status.as_u16();
    let page = format!(
        "<!DOCTYPE html>\n<title>{code} {reason}</title>\n<h1>{code} {reason}</h1>\n<p>sendoff</p>\n"
    );
    let mut head = ResponseHead::new(status, Some(page.len() as u64));
    head.by_server = true;
    head.field("Content-Type", "text/html");
    append_fields(&mut head, fields);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        head.field("Retry-After", "5");
    }
    let body = Segment::Bytes(Bytes::from(page));
    sink::respond(sink, head, [body]).await
}

/// Answers with the text of an `ErrorDocument`.
pub(crate) async fn send_error_text(
    sink: &mut dyn Sink,
    status: StatusCode,
    fields: impl IntoIterator<Item = (&'static str, Bytes)>,
    text: Bytes,
) -> Result<(), Cut> {
    let mut head = ResponseHead::new(status, Some(text.len() as u64));
    head.by_server = true;
    head.field("Content-Type", "text/html; charset=iso-8859-1");
    append_fields(&mut head, fields);
    sink::respond(sink, head, [Segment::Bytes(text)]).await
}

/// Answers without a body.
pub(crate) async fn send_empty(
    sink: &mut dyn Sink,
    status: StatusCode,
    field: (&'static str, Bytes),
) -> Result<(), Cut> {
    let mut head = ResponseHead::new(status, None);
    head.by_server = true;
    append_fields(&mut head, [field]);
    sink::respond(sink, head, []).await
}
