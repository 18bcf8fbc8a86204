//! Field blocks of requests.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use sendoff_field_section::{huffman, integer};

use super::static_table;

/// The largest size of the dynamic table, in the units of RFC 7541 §4.1: the initial value of
/// `SETTINGS_HEADER_TABLE_SIZE`.
const MAX_TABLE: usize = 4096;

/// The size that counts for each entry apart from its name and value (RFC 7541 §4.1).
const ENTRY_OVERHEAD: usize = 32;

/// A field block that cannot be decoded: the connection ends with `COMPRESSION_ERROR` (RFC 9113
/// §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HpackError;

/// Name and value of a field.
type Line = (Bytes, Bytes);

/// The state of a connection's field blocks: the client's dynamic table.
#[derive(Debug)]
pub struct Decoder {
    /// The newest entry first.
    table: VecDeque<Line>,
    size: usize,
    max_size: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: VecDeque::new(), size: 0, max_size: MAX_TABLE }
    }
}

impl Decoder {
    /// Decodes a block, and passes each field to `field`. All of a block must be decoded, even if
    /// its fields are not wanted, because later blocks may refer to them. The work is linear in the
    /// length of the block.
    ///
    /// # Errors
    /// The connection ends.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(Bytes, Bytes),
    ) -> Result<(), HpackError> {
        let mut strings = Strings { rest: block, decoded: BytesMut::new() };
        let mut is_start = true;
        while let Some(first) = strings.rest.first() {
            let (name, value) = match first {
                // Indexed, `1` and 7 bits (RFC 7541 §6.1).
                0x80.. => self.entry(strings.integer(7)?)?,
                // Literal that becomes an entry, `01` and 6 bits (§6.2.1).
                0x40..=0x7f => {
                    let (name, value) = self.literal(6, &mut strings)?;
                    // The entry must not keep the memory of the whole block.
                    let line = (Bytes::copy_from_slice(&name), Bytes::copy_from_slice(&value));
                    self.insert(line.clone());
                    line
                }
                // A new size of the table, `001` and 5 bits, at the start of a block (§4.2, §6.3).
                0x20..=0x3f => {
                    self.resize(strings.integer(5)?, is_start)?;
                    continue;
                }
                // Other literals, `000` and 4 bits behind a flag (§6.2.2, §6.2.3).
                _ => self.literal(4, &mut strings)?,
            };
            is_start = false;
            field(name, value);
        }
        Ok(())
    }

    /// An entry of either table (RFC 7541 §2.3.3).
    fn entry(&self, index: usize) -> Result<Line, HpackError> {
        if let Some((name, value)) = static_table::get(index) {
            let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
            return Ok((bytes(name), bytes(value)));
        }
        let index = index.checked_sub(static_table::LEN + 1).ok_or(HpackError)?;
        self.table.get(index).cloned().ok_or(HpackError)
    }

    /// A literal whose name is an entry, or a string if the index is 0.
    fn literal(&self, prefix: u32, strings: &mut Strings<'_>) -> Result<Line, HpackError> {
        let name = match strings.integer(prefix)? {
            0 => strings.string()?,
            index => self.entry(index)?.0,
        };
        Ok((name, strings.string()?))
    }

    fn insert(&mut self, line: Line) {
        let size = size(&line);
        self.evict(self.max_size.saturating_sub(size));
        // An entry beyond the size of the table empties it (RFC 7541 §4.4).
        if size <= self.max_size {
            self.size += size;
            self.table.push_front(line);
        }
    }

    fn resize(&mut self, size: usize, is_start: bool) -> Result<(), HpackError> {
        if size > MAX_TABLE || !is_start {
            return Err(HpackError);
        }
        self.max_size = size;
        self.evict(size);
        Ok(())
    }

    fn evict(&mut self, max_size: usize) {
        while self.size > max_size {
            self.size -= self.table.pop_back().map_or(self.size, |line| size(&line));
        }
    }
}

fn size((name, value): &Line) -> usize {
    name.len() + value.len() + ENTRY_OVERHEAD
}

/// The rest of a block.
struct Strings<'a> {
    rest: &'a [u8],
    /// Space for strings, so that a block needs few allocations.
    decoded: BytesMut,
}

impl Strings<'_> {
    fn integer(&mut self, prefix: u32) -> Result<usize, HpackError> {
        let (value, size) = integer::decode(self.rest, prefix).ok_or(HpackError)?;
        self.rest = &self.rest[size..];
        Ok(value as usize)
    }

    /// A string literal (RFC 7541 §5.2): a bit for Huffman, then the length.
    fn string(&mut self) -> Result<Bytes, HpackError> {
        let is_huffman = self.rest.first().is_some_and(|byte| byte & 0x80 != 0);
        let len = self.integer(7)?;
        let (string, rest) = self.rest.split_at_checked(len).ok_or(HpackError)?;
        if self.decoded.capacity() == 0 {
            // The shortest Huffman code has 5 bits.
            self.decoded.reserve(self.rest.len() / 5 * 8 + 8);
        }
        self.rest = rest;
        if is_huffman {
            huffman::decode(string, &mut self.decoded).ok_or(HpackError)?;
        } else {
            self.decoded.extend_from_slice(string);
        }
        Ok(self.decoded.split().freeze())
    }
}
