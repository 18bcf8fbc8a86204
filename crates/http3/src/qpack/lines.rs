//! Field lines (RFC 9204 §4.5).

use bytes::{Bytes, BytesMut};
use sendoff_field_section::{huffman, integer};

use super::QpackError::{self, Decompression};
use super::static_table;

/// Name and value of a field.
pub(super) type Line = (Bytes, Bytes);

/// Decodes an encoded field section, line by line.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    /// Space for all strings of the section, so that a section needs one allocation.
    strings: BytesMut,
}

impl<'a> Lines<'a> {
    /// Decodes the prefix of a section (RFC 9204 §4.5.1).
    pub(super) fn new(section: &'a [u8]) -> Result<Self, QpackError> {
        // The shortest Huffman code has 5 bits.
        let strings = BytesMut::with_capacity(section.len() / 5 * 8 + 8);
        let mut lines = Self { rest: section, strings };
        let (required_insert_count, _) = lines.integer(8)?;
        // Without dynamic references, each Base is valid unless it is negative.
        let (_, is_base_negative) = lines.integer(7)?;
        if required_insert_count != 0 || is_base_negative {
            return Err(Decompression);
        }
        Ok(lines)
    }

    /// The next field; `None` at the end of the section.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>, QpackError> {
        let Some(first) = self.rest.first() else { return Ok(None) };
        let (name, value) = match first {
            // Indexed, `11` and 6 bits.
            0xc0.. => self.entry(6)?,
            // Literal with name reference, `01N1` and 4 bits.
            0x50..=0x5f | 0x70..=0x7f => (self.entry(4)?.0, self.string(7)?),
            // Literal with literal name, `001NH` and 3 bits.
            0x20..=0x3f => (self.string(3)?, self.string(7)?),
            // The other patterns refer to the dynamic table: `10`, `01N0`, `0001`, `0000`.
            _ => return Err(Decompression),
        };
        Ok(Some((name, value)))
    }

    /// An integer with a prefix of this length, and the bit in front of the prefix.
    fn integer(&mut self, prefix: u32) -> Result<(u32, bool), QpackError> {
        let flag = self.rest.first().is_some_and(|byte| u32::from(*byte) & (1 << prefix) != 0);
        let (value, size) = integer::decode(self.rest, prefix).ok_or(Decompression)?;
        self.rest = &self.rest[size..];
        Ok((value, flag))
    }

    /// An entry of the static table, by an index with this prefix.
    fn entry(&mut self, prefix: u32) -> Result<Line, QpackError> {
        let (name, value) = static_table::get(self.integer(prefix)?.0).ok_or(Decompression)?;
        Ok((Bytes::from_static(name.as_bytes()), Bytes::from_static(value.as_bytes())))
    }

    /// A string literal (RFC 9204 §4.1.2): a bit for Huffman, then the length with this prefix.
    fn string(&mut self, prefix: u32) -> Result<Bytes, QpackError> {
        let (length, is_huffman) = self.integer(prefix)?;
        let (string, rest) = self.rest.split_at_checked(length as usize).ok_or(Decompression)?;
        self.rest = rest;
        if is_huffman {
            huffman::decode(string, &mut self.strings).ok_or(Decompression)?;
        } else {
            self.strings.extend_from_slice(string);
        }
        Ok(self.strings.split().freeze())
    }
}
