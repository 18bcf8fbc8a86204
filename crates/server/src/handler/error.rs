//! Answers of the server itself.

use std::io;

use bytes::Bytes;
use http::StatusCode;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::connection::{Asked, Client, Outcome};
use crate::front::Loop;
use crate::request::Request;
use crate::segment::Segment;

/// What a path keeps of its bytes in a `Location`.
const NOT_IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Answers with a short page that names the status.
pub(crate) async fn respond(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    status: StatusCode,
) -> io::Result<Outcome> {
    respond_with(event_loop, client, asked, status, &[]).await
}

/// Answers a request for a folder that lacks the slash at its end.
pub(crate) async fn redirect_to_folder(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    request: &Request,
) -> io::Result<Outcome> {
    let mut location = percent_encode(&request.path, NOT_IN_PATH).to_string().into_bytes();
    location.push(b'/');
    if let Some(query) = &request.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let fields = [("Location", Bytes::from(location))];
    respond_with(event_loop, client, asked, StatusCode::MOVED_PERMANENTLY, &fields).await
}

/// The same, with more fields.
pub(crate) async fn respond_with(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    status: StatusCode,
    fields: &[(&'static str, Bytes)],
) -> io::Result<Outcome> {
    let reason = status.canonical_reason().unwrap_or_default();
    let code = status.as_u16();
    let page = format!(
        "<!DOCTYPE html>\n<title>{code} {reason}</title>\n<h1>{code} {reason}</h1>\n<p>sendoff</p>\n"
    );
    let keep_alive = client.begin(asked, status, None, Some(page.len() as u64), |head| {
        event_loop.common_fields(head);
        head.field(b"Content-Type", b"text/html");
        for (name, value) in fields {
            head.field(name.as_bytes(), value);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            head.field(b"Retry-After", b"5");
        }
    })?;
    client.finish([Segment::Bytes(Bytes::from(page))]).await?;
    Ok(Outcome { status, keep_alive })
}
