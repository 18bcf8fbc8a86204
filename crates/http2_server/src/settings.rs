//! The settings that this server announces, and its limits.

use sendoff_delivery::in_memory;
use sendoff_http1::Limits;
use sendoff_http2::{FRAME_HEADER, MAX_FRAME, Setting};

/// The most open requests of a client on a connection; browsers and proxies are content with 100.
pub(super) const STREAMS: usize = 128;

/// The most bytes of one body that a client may send before the stream's task has taken them: 10
/// MB/s at a round-trip time of 100 ms.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;

/// The same for all bodies of a connection.
pub(super) const CONNECTION_WINDOW: u32 = 1 << 20;

/// The contents of a DATA frame that fills a TLS record together with its header. A larger frame
/// would need a second record for its end.
pub(super) const FRAME_IN_RECORD: usize = MAX_FRAME - FRAME_HEADER;

/// The most streams that a client has reset before their tasks have begun, in one turn of the
/// connection's task. Beyond it the connection ends (CVE-2023-44487). A client that leaves a page
/// resets all open streams.
pub(super) const RESET_UNSEEN: usize = STREAMS;

/// The most streams that this server has reset because of the client's mistakes, over the life of a
/// connection. Beyond it the connection ends (CVE-2025-8671). Requests beyond [`STREAMS`] count,
/// too, which a client may send before it has read the settings.
pub(super) const RESET_FOR_ERRORS: usize = 256;

/// The streams that were reset by this server last, whose frames may still be on their way. More
/// than errors and open streams can be.
pub(super) const RESET_REMEMBERED: usize = 512;

/// The most bytes of an encoded field block: fields within the limit, without compression, fit
/// twice.
pub(super) fn max_block() -> usize {
    2 * max_fields()
}

/// The most bytes of fields, in the units of RFC 9113 §6.5.2.
pub(super) fn max_fields() -> usize {
    Limits::default().head
}

/// The settings that are announced.
pub(super) fn announced() -> [Setting; 4] {
    [
        Setting::MaxConcurrentStreams(u32::try_from(STREAMS).unwrap_or(u32::MAX)),
        Setting::InitialWindowSize(STREAM_WINDOW),
        Setting::MaxHeaderListSize(u32::try_from(max_fields()).unwrap_or(u32::MAX)),
        Setting::EnableConnectProtocol,
    ]
}

/// The most bytes in flight on a connection; the last piece may exceed it. Enough for four streams
/// at full speed, or for many that send little.
pub(super) const IN_FLIGHT: usize = 256 * 1024;

/// The limit while memory is short.
const IN_FLIGHT_SMALL: usize = 32 * 1024;

/// The limit of bytes in flight at this time.
pub(super) fn in_flight() -> usize {
    if in_memory::is_short() { IN_FLIGHT_SMALL } else { IN_FLIGHT }
}

/// The most DATA frames in flight on a connection. The client's windows set the size of frames, down
/// to one byte, and each frame costs memory and time whatever its size. Frames of the usual size reach
/// the limit of bytes first.
pub(super) const FRAMES_IN_FLIGHT: usize = 512;

/// The same for one stream. What its task has beyond it leaves in larger frames later.
pub(super) const STREAM_FRAMES: usize = 64;

/// The most bytes of frames without a body that wait for a client. Beyond it no bytes of the client
/// are read: a client that reads no answers causes no further ones.
pub(super) const UNREAD_ANSWERS: usize = 64 * 1024;
