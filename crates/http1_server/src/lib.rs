//! HTTP/1.0 and HTTP/1.1 (RFC 9112): one request and response after the other on a connection.
//!
//! `connection` decides whether another request may follow; `reading` reads requests, `ending` ends
//! the connection so that the client sees the last response. `exchange` is the sink: framing,
//! keep-alive and the send queue of one response; `lending` lends the client's socket for it.
//! `framed` is the rest of a response that
//! a worker has begun on the client's socket, `incoming` the rest of a request body that is passed
//! on while the response is made. `tunnel` is a connection that goes on in another protocol.
#![forbid(unsafe_code)]

mod connection;
mod ending;
mod exchange;
mod framed;
mod incoming;
mod lending;
mod reading;
mod tunnel;

#[cfg(test)]
mod tests;

pub use connection::{Connection, Http2, Served};
