//! The parameters of a request.

use sendoff_fastcgi::params;

use super::Error;

/// Limit on the `PARAMS` of one request, in bytes. HTTP servers limit request heads to 8 to 64 KiB.
pub const MAX_PARAMS_LEN: usize = 1024 * 1024;

/// Limit on the number of parameters of one request.
pub const MAX_PARAMS: usize = 4096;

/// The error for a request beyond these limits.
const TOO_MANY: Error = Error::TooManyParams { params: MAX_PARAMS, bytes: MAX_PARAMS_LEN };

/// The parameters of the current request; after its end, of the last one. The buffers are reused
/// from request to request.
#[derive(Debug, Default)]
pub struct Params {
    /// `PARAMS` as received.
    stream: Vec<u8>,
    /// Names and values, each followed by a NUL.
    text: Vec<u8>,
    pairs: Vec<ParamPosition>,
}

/// Positions of a name and its value in `Params::text`, without their NULs.
#[derive(Debug, Clone, Copy)]
struct ParamPosition {
    name: usize,
    value: usize,
    end: usize,
}

impl Params {
    pub(super) fn clear(&mut self) {
        self.stream.clear();
        self.text.clear();
        self.pairs.clear();
    }

    /// Adds received bytes of the stream.
    pub(super) fn add(&mut self, data: &[u8]) -> Result<(), Error> {
        if self.stream.len() + data.len() > MAX_PARAMS_LEN {
            return Err(TOO_MANY);
        }
        self.stream.extend_from_slice(data);
        Ok(())
    }

    /// The stream has ended: splits it into NUL-terminated pairs, without those for which `take`
    /// returns true.
    pub(super) fn finish(
        &mut self,
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Error> {
        // A pair has at least two bytes of lengths in the stream, and two NULs in the text.
        self.text.reserve(self.stream.len());
        for pair in params::decode(&self.stream) {
            let (name, value) = pair?;
            if take(name, value) {
                continue;
            }
            if self.pairs.len() == MAX_PARAMS {
                return Err(TOO_MANY);
            }
            let start = self.text.len();
            for text in [name, value] {
                self.text.extend_from_slice(text);
                self.text.push(0);
            }
            let value = start + name.len() + 1;
            self.pairs.push(ParamPosition { name: start, value, end: self.text.len() });
        }
        Ok(())
    }

    /// Names and values in the order received, each with the NUL that follows it.
    pub fn with_nul(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.pairs
            .iter()
            .map(|pair| (&self.text[pair.name..pair.value], &self.text[pair.value..pair.end]))
    }
}
