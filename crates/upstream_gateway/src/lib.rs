//! Applications that speak HTTP, SCGI, uwsgi or AJP (`docs/gateway.md`).
//!
//! ```text
//!  GatewayRequest ──▶ RequestSender ──▶ Stream ──▶ GatewayResponseParser ──▶ Event
//!                           ▲                            │
//!                           └── Wants (AJP) ─────────────┘
//! ```
//! An exchange has no task of its own: it does its I/O when it is asked for the next event. While
//! the client is slow, nothing is read from the application (back-pressure).
#![forbid(unsafe_code)]

mod application;
mod application_end;
mod check;
mod exchange;
mod exchange_io;
mod host;
mod host_limit;
mod parser;
mod protocol;
mod proxy_header;
mod request;
mod sender;
mod stream;
mod tunnel;
mod websocket;

pub use application::Gateway;
pub use application::tend_gateways;
pub use exchange::{GatewayExchange, GatewayTimeLimits};
pub use host::{Host as GatewayHost, Reuse as GatewayReuse};
pub use protocol::{RequestProtocol, line_ends};
pub use request::{GatewayMessage, GatewayRequest};
pub use tunnel::GatewayTunnel;
pub use websocket::{WebSocketKey, answer_to as websocket_answer};
