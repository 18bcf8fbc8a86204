//! The client's QPACK streams (RFC 9204 §4.2): nearly no instructions without a dynamic table.

use crate::Code;

/// Checks the client's encoder stream (RFC 9204 §4.3). The only instruction is Set Dynamic Table
/// Capacity with the value 0.
#[derive(Debug, Default)]
pub struct EncoderStream;

impl EncoderStream {
    /// Checks the next bytes, in any cuts, or returns the code for closing the connection.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Code> {
        // `001` and a capacity of 0 in 5 bits. There is no other encoding of this instruction.
        let is_valid = bytes.iter().all(|byte| *byte == 0x20);
        is_valid.then_some(()).ok_or(Code::QPACK_ENCODER_STREAM_ERROR)
    }
}

/// Checks the client's decoder stream (RFC 9204 §4.4). Stream Cancellation has no effect; the other
/// instructions acknowledge insertions, which the server never makes.
#[derive(Debug, Default)]
pub struct DecoderStream {
    /// Bytes that the current stream id may still have; 0 between instructions.
    continuation: u8,
}

impl DecoderStream {
    /// Checks the next bytes, in any cuts, or returns the code for closing the connection.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Code> {
        for &byte in bytes {
            self.continuation = match (self.continuation, byte) {
                // Stream Cancellation is `01` and a stream id: 6 bits in this byte, and up to 9
                // further bytes with 7 bits each.
                (0, 0x7f) => 9,
                (0, 0x40..0x7f) => 0,
                (0, _) | (1, 0x80..) => return Err(Code::QPACK_DECODER_STREAM_ERROR),
                (left, 0x80..) => left - 1,
                (_, _) => 0,
            };
        }
        Ok(())
    }
}
