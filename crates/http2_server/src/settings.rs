//! The settings that this server announces, and its limits. The defaults of h2 are for trusted
//! clients: 16 MiB of fields, any number of streams, 400 KiB in flight for each.

use h2::server::Builder;
use sendoff_http1::Limits;
use sendoff_streams::STREAM_BUFFER;

/// The most open requests of a client on a connection; browsers and proxies are content with 100.
const STREAMS: u32 = 128;

/// The most bytes of one body that a client may send before the stream's task has taken them: 10
/// MB/s at a round-trip time of 100 ms.
const STREAM_WINDOW: u32 = 1 << 20;

/// The same for all bodies of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The contents of a DATA frame that fills a TLS record together with its header of 9 bytes. A
/// larger frame would need a second record for its end.
pub(super) const FRAME_IN_RECORD: usize = 16 * 1024 - 9;

/// The most streams that a client has reset before the connection's task has seen them. Beyond it
/// the connection ends (CVE-2023-44487). A client that leaves a page resets all open streams.
const RESET_UNSEEN: usize = STREAMS as usize;

/// The most streams that this server has reset because of the client's mistakes, over the life of a
/// connection. Beyond it the connection ends (CVE-2025-8671). Requests beyond [`STREAMS`] count,
/// too, which a client may send before it has read the settings.
const RESET_FOR_ERRORS: usize = 256;

pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(Limits::default().head).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(STREAM_BUFFER)
        .enable_connect_protocol()
        .max_pending_accept_reset_streams(RESET_UNSEEN)
        .max_local_error_reset_streams(Some(RESET_FOR_ERRORS));
    builder
}
