//! gRPC on its way through the server: errors as its clients read them, and gRPC-Web, the form for
//! browsers, whose scripts can read no trailers: they are a message behind the others, and the whole
//! body may be text (`PROTOCOL-WEB.md` of gRPC).

mod error;
mod web_call;
mod web_response;

use http::header::CONTENT_TYPE;
use sendoff_message::request::Request;

pub use error::respond_error;
pub use web_call::{Unreadable, WebCall};
pub use web_response::WebResponse;

/// The media type of gRPC, without the format of the messages.
const GRPC: &[u8] = b"application/grpc";

/// True for a request of gRPC: its media type is `application/grpc`, perhaps with the format of the
/// messages (`+proto`). gRPC-Web is another protocol.
#[must_use]
pub fn is_call(request: &Request) -> bool {
    let media_type = request.headers.get(CONTENT_TYPE);
    media_type.is_some_and(|media_type| format_of(GRPC, media_type.as_bytes()).is_some())
}

/// The format of the messages, and parameters, behind a media type; `None`: it is another one.
fn format_of<'m>(media_type: &[u8], text: &'m [u8]) -> Option<&'m [u8]> {
    let format = text.strip_prefix(media_type)?;
    matches!(format.first(), None | Some(b'+' | b';')).then_some(format)
}
