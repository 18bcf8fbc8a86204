//! The protocols between the server and the hosts of applications.

use sendoff_config::{GatewayProtocol, Proxy};
use sendoff_http1::client::LineEnds;

use crate::websocket::WebSocketKey;

/// The protocol of a request to an application, with what depends on the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestProtocol {
    /// HTTP/1.1.
    Http {
        /// The client offers to change to another protocol.
        upgrade: bool,
        /// The key of a WebSocket whose client sends none: the server checks the answer.
        key: Option<WebSocketKey>,
        /// The ends of the lines of the response's head.
        line_ends: LineEnds,
    },
    /// SCGI.
    Scgi,
    /// The uwsgi protocol, with responses of HTTP/1.
    Uwsgi,
    /// AJP 1.3.
    Ajp {
        /// The largest packet, in bytes.
        packet_size: usize,
    },
}

/// The ends of the lines of the heads that an application may send.
pub fn line_ends(proxy: &Proxy) -> LineEnds {
    match proxy.protocol {
        GatewayProtocol::Http { bare_line_feeds: true, .. } => LineEnds::AlsoLf,
        _ => LineEnds::CrLf,
    }
}
