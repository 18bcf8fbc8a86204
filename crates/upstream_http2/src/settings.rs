//! The limits of connections to hosts.

use std::time::Duration;

use h2::client::Builder;

/// The most requests on a connection at a time, also if the host allows more: each may have
/// [`STREAM_WINDOW`] unread bytes.
pub(crate) const STREAMS: usize = 100;

/// Requests before the host has said how many it allows.
pub(crate) const STREAMS_AT_FIRST: usize = 0;

/// The longest time until a host allows the first request of a connection. Its `SETTINGS` do not
/// depend on anything, so they take a round trip.
pub(crate) const SETTINGS_WAIT: Duration = Duration::from_secs(5);

/// The most connections of an event loop to a host. Further requests wait.
pub(crate) const CONNECTIONS: usize = 64;

/// The idle timeout of a connection, as with HTTP/1.1. Hosts in use have longer ones, so few requests
/// meet a connection that is about to be closed.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(4);

/// The most times that a request is offered to a connection which turns out to be ending.
pub(crate) const OFFERS: usize = 3;

/// The most streams that are reset on a connection before its next requests go to another one. Hosts
/// end connections on which clients reset many streams: Jetty at 50 a second, Netty at 200 in 30 s.
pub(crate) const RESETS: usize = 32;

/// Unread bytes of a response: 250 MB/s at a round-trip time of 1 ms.
const STREAM_WINDOW: u32 = 256 * 1024;

/// Unread bytes of all responses on a connection. There is room for the window of every stream, so
/// that slow clients do not hold up the responses of others.
#[expect(clippy::cast_possible_truncation, reason = "it is 26,214,400")]
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;

/// The largest header list of a response, as with HTTP/1.1.
const HEADER_LIST: u32 = 64 * 1024;

/// Bytes of a request body that wait in h2 for the socket.
const SEND_BUFFER: usize = 64 * 1024;

/// A `SETTINGS` frame of a host that limits nothing (RFC 9113 §6.5).
#[cfg(test)]
pub(crate) const UNLIMITED: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

pub(crate) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(STREAMS_AT_FIRST)
        .max_header_list_size(HEADER_LIST)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}
