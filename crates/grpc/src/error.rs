//! Errors of the server as clients of gRPC read them.

use bytes::Bytes;
use http::StatusCode;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use sendoff_exchange::sink::{Sink, respond};
use sendoff_message::Cut;
use sendoff_message::response::{ResponseHead, append_fields};

/// Bytes that `grpc-message` encodes.
const NOT_IN_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// Answers a call that failed here in place of an error page: status 200 and a head that says all
/// (`Trailers-Only`), as Envoy does. A client could derive the code of gRPC from another status, but
/// not the reason.
///
/// # Errors
/// The client has gone.
pub async fn respond_error(
    sink: &mut dyn Sink,
    status: StatusCode,
    fields: Vec<(&'static str, Bytes)>,
) -> Result<(), Cut> {
    let mut head = ResponseHead::new(StatusCode::OK, None);
    head.by_server = true;
    head.field("Content-Type", "application/grpc");
    head.field("grpc-status", code(status).to_string());
    let message = format!("{status}, says the server in front of the application");
    head.field("grpc-message", percent_encode(message.as_bytes(), NOT_IN_MESSAGE).to_string());
    append_fields(&mut head, fields);
    respond(sink, head, []).await
}

/// The code for a status, as gRPC's "HTTP to gRPC Status Code Mapping" has it.
fn code(status: StatusCode) -> u8 {
    const UNKNOWN: u8 = 2;
    const PERMISSION_DENIED: u8 = 7;
    const UNIMPLEMENTED: u8 = 12;
    const INTERNAL: u8 = 13;
    const UNAVAILABLE: u8 = 14;
    const UNAUTHENTICATED: u8 = 16;
    match status.as_u16() {
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}
