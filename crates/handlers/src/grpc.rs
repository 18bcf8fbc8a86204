//! Errors of the server as clients of gRPC read them.

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use sendoff_config::GatewayProtocol;
use sendoff_exchange::sink::{Sink, respond};
use sendoff_grpc_web::WebCall;
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::{ResponseHead, append_fields};
use sendoff_upstream_gateway::Gateway;

/// Bytes that `grpc-message` encodes.
const NOT_IN_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// The call of gRPC-Web that a request makes to an application for which it becomes one of gRPC.
pub(crate) fn web_call(gateway: &Gateway, request: &Request) -> Option<WebCall> {
    let GatewayProtocol::Http2 { grpc_web: true, .. } = gateway.proxy().protocol else {
        return None;
    };
    WebCall::of(request)
}

/// True for a request of gRPC: its media type is `application/grpc`, perhaps with the format of the
/// messages (`+proto`). gRPC-Web is another protocol.
pub(crate) fn is_call(request: &Request) -> bool {
    let media_type = request.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    let rest = media_type.and_then(|name| name.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Answers a call that failed here in place of an error page: status 200 and a head that says all
/// (`Trailers-Only`), as Envoy does. A client could derive the code of gRPC from another status, but
/// not the reason.
pub(crate) async fn respond_error(
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
