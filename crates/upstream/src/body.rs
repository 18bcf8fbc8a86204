//! Stored request bodies, piece by piece.

use std::io;

use bytes::{Bytes, BytesMut};
use sendoff_message::request::Body;
use sendoff_sys::file::read_exact_at;

/// At most `most` bytes of a body from offset `at` on; empty at its end. A body that is still
/// arriving has a reader of its own.
///
/// # Errors
/// The file with the body cannot be read.
pub fn piece(body: &Body, at: u64, most: usize) -> io::Result<Bytes> {
    let left = body.len().saturating_sub(at);
    let len = usize::try_from(left).map_or(most, |left| left.min(most));
    let file = match body {
        Body::Memory(bytes) => {
            let start = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            return Ok(bytes.slice(start..start + len));
        }
        Body::File { descriptor, .. } => descriptor,
        Body::Stream(_) => return Ok(Bytes::new()),
    };
    let mut buffer = BytesMut::zeroed(len);
    read_exact_at(file, &mut buffer, at)?;
    Ok(buffer.freeze())
}
