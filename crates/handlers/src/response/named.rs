//! `X-Sendfile`, `X-Accel-Redirect` and `X-LiteSpeed-Location`: an application names a file, and
//! the front sends the file instead of the application's body.

use std::os::fd::OwnedFd;
use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use sendoff_application_response::fields::is_for_server;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::response::{CgiHead, Field, ResponseHead};
use sendoff_site::naming::Naming;
use sendoff_site_files::sendable::{ByPath, Denied};
use sendoff_static_files as static_files;
use sendoff_static_files::Entry;

use crate::context::Context;
use crate::outcome::Outcome;

/// Fields of the application that the file's fields replace.
const OF_THE_FILE: [&str; 4] = ["last-modified", "etag", "accept-ranges", "content-range"];

/// A body that a response head names: the name of the field, and its value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Name<'h> {
    /// An absolute path.
    Path(&'static str, &'h [u8]),
    /// A URI of the site.
    Uri(&'static str, &'h [u8]),
}

impl Name<'_> {
    /// The field as text, for `sendoff explain`.
    pub(crate) fn text(&self) -> String {
        let (Self::Path(field, value) | Self::Uri(field, value)) = self;
        format!("{field}: {}", String::from_utf8_lossy(value))
    }
}

/// The body that a response head names. `X-Sendfile` precedes the other fields; of several fields
/// with one name, the first that is not empty counts.
pub(crate) fn named(head: &CgiHead) -> Option<Name<'_>> {
    let value = |name: &str| head.values(name.as_bytes()).find(|value| !value.is_empty());
    let by_uri = ["X-Accel-Redirect", "X-LiteSpeed-Location"];
    let path = value("X-Sendfile").map(|path| Name::Path("X-Sendfile", path));
    path.or_else(|| by_uri.into_iter().find_map(|name| Some(Name::Uri(name, value(name)?))))
}

/// The file that a response head names: the file that the worker has opened, otherwise the file
/// that has the name now.
pub(crate) fn file(
    naming: &Naming<'_>,
    name: &Name<'_>,
    opened: Option<OwnedFd>,
) -> Result<Entry, Denied> {
    let (is_path, value, found) = match name {
        Name::Path(_, path) => (true, path, naming.by_path(path)),
        // The routes have already checked the path of the URI.
        Name::Uri(_, uri) => (false, uri, naming.by_uri(uri)),
    };
    let Some(opened) = opened else { return found };
    let may_leave = |place: &Path| match is_path {
        true => naming.may_send(place),
        false => naming.may_send_from(value, place),
    };
    naming.site().sendable.opened(is_path, value, opened, found, may_leave)
}

/// Answers with a file that an application has named.
pub(crate) async fn respond(
    context: &Context<'_>,
    head: CgiHead,
    mut entry: Entry,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let request = context.request;
    let media_type = head.values(b"content-type").next();
    let has_type = media_type.is_some();
    if let Some(media_type) = media_type {
        entry = entry.with_type(Bytes::copy_from_slice(media_type));
    }
    // Ranges and conditions apply to successful GET and HEAD requests; other responses contain the
    // whole file.
    let reads =
        [Method::GET, Method::HEAD].contains(&request.method) && head.status == StatusCode::OK;
    let response = if reads {
        static_files::respond_with(&entry, &request.method, &request.headers)
    } else {
        static_files::respond_with(&entry, &Method::GET, &HeaderMap::new())
    };
    let response = match response {
        Ok(response) => response,
        Err(error) => return Ok(Outcome::refused(error.status, error.field)),
    };
    let mut out = ResponseHead::of(head);
    if response.status != StatusCode::OK {
        (out.status, out.reason) = (response.status, None);
    }
    out.length = response.content_length;
    out.accel_expires = out.take("X-Accel-Expires");
    out.fields.retain(|field| !is_replaced(field.name()));
    // A 304 updates what a cache has: a type that the application has not said is not added.
    let is_guessed = out.status == StatusCode::NOT_MODIFIED && !has_type;
    let said = |field: &Field| !is_guessed || !field.is("Content-Type");
    out.fields.extend(response.fields.into_iter().filter(said));
    sink::respond(sink, out, response.body).await?;
    Ok(Outcome::Sent)
}

/// True if a field of the application is removed; the file may have a field of the same name.
fn is_replaced(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    OF_THE_FILE.into_iter().any(is) || is("content-type") || is_for_server(name)
}
