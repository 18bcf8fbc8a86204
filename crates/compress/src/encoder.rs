//! The encoders, and the limit of their memory.

use std::io::{self, Write};
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sendoff_config::Coding;
use sendoff_report::limits::Limit;
use zstd::stream::raw::CParameter;

/// The most bytes of memory of all encoders of the front. Beyond it, responses are sent
/// uncompressed.
const BUDGET: usize = 128 << 20;

/// The use of the budget, in bytes, from which on new encoders get less memory.
const THRIFTY_FROM: usize = BUDGET / 2;

/// The window of streams, as a power of two. Pages are rarely longer; a larger window costs memory
/// on both sides.
const WINDOW: u32 = 17;

/// The time and memory that an encoder takes. The levels and their figures are in
/// `docs/measurements.md`, "Compression".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// For a response that is compressed while it is sent.
    Stream,
    /// The same with little memory.
    Thrifty,
    /// For a file that is compressed once and sent often.
    Once,
}

/// The memory of all encoders.
#[derive(Debug, Default)]
pub(super) struct EncoderMemory(AtomicUsize);

/// The memory of one encoder; returned to the budget when dropped.
#[derive(Debug)]
struct Share {
    budget: Arc<EncoderMemory>,
    bytes: usize,
}

impl EncoderMemory {
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let share = Share { budget: Arc::clone(self), bytes };
        (before + bytes <= BUDGET).then_some(share)
    }

    fn is_scarce(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= THRIFTY_FROM
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

enum Engine {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
}

/// Compresses one body. If it is dropped before [`finish`](Self::finish), the stream has no end:
/// the client notices that the body is incomplete.
pub(super) struct Encoder {
    engine: Engine,
    /// True if the encoder holds bytes that are not in its output yet.
    holds: bool,
    _share: Option<Share>,
}

impl Encoder {
    /// An encoder for a response that is compressed while it is sent; `None` if the budget is used
    /// up.
    pub(super) fn for_stream(
        coding: Coding,
        budget: &Arc<EncoderMemory>,
    ) -> io::Result<Option<Self>> {
        let effort = if budget.is_scarce() { Effort::Thrifty } else { Effort::Stream };
        let Some(share) = budget.take(memory(coding, effort)) else {
            Limit::Encoders.reached();
            return Ok(None);
        };
        let mut encoder = Self::new(coding, effort, None)?;
        encoder._share = Some(share);
        Ok(Some(encoder))
    }

    /// An encoder; `len` is the number of its input bytes, if known.
    pub(super) fn new(coding: Coding, effort: Effort, len: Option<u64>) -> io::Result<Self> {
        let level = level(coding, effort);
        let engine = match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(level.unsigned_abs());
                Engine::Gzip(flate2::write::GzEncoder::new(Vec::new(), level))
            }
            Coding::Zstd => {
                let mut raw = zstd::stream::raw::Encoder::new(level)?;
                if effort != Effort::Once {
                    raw.set_parameter(CParameter::WindowLog(WINDOW))?;
                }
                // With the length, tables are no larger than the contents need.
                raw.set_pledged_src_size(len)?;
                Engine::Zstd(zstd::stream::write::Encoder::with_encoder(Vec::new(), raw))
            }
            Coding::Brotli => {
                let window = if effort == Effort::Once { 22 } else { WINDOW };
                let level = level.unsigned_abs();
                let writer = brotli::CompressorWriter::new(Vec::new(), 8192, level, window);
                Engine::Brotli(Box::new(writer))
            }
        };
        Ok(Self { engine, holds: false, _share: None })
    }

    /// Compresses `input`; returns the output so far.
    pub(super) fn write(&mut self, input: &[u8]) -> io::Result<Vec<u8>> {
        self.holds |= !input.is_empty();
        self.with(|writer| writer.write_all(input))
    }

    /// Returns all output for the input so far. Costs some bytes, because the encoder ends a block
    /// early.
    pub(super) fn flush(&mut self) -> io::Result<Vec<u8>> {
        if !take(&mut self.holds) {
            return Ok(Vec::new());
        }
        self.with(|writer| writer.flush())
    }

    /// Returns the rest of the output and the end of the stream.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self.engine {
            Engine::Gzip(writer) => writer.finish(),
            Engine::Zstd(writer) => writer.finish(),
            Engine::Brotli(writer) => Ok(writer.into_inner()),
        }
    }

    fn with(&mut self, act: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Vec<u8>> {
        Ok(match &mut self.engine {
            Engine::Gzip(writer) => {
                act(writer)?;
                take(writer.get_mut())
            }
            Engine::Zstd(writer) => {
                act(writer)?;
                take(writer.get_mut())
            }
            Engine::Brotli(writer) => {
                act(&mut **writer)?;
                take(writer.get_mut())
            }
        })
    }
}

/// Compresses a complete text.
pub(super) fn compress(coding: Coding, effort: Effort, input: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(coding, effort, Some(input.len() as u64))?;
    let mut out = encoder.write(input)?;
    out.append(&mut encoder.finish()?);
    Ok(out)
}

fn level(coding: Coding, effort: Effort) -> i32 {
    match (coding, effort) {
        (Coding::Zstd | Coding::Brotli, Effort::Stream) => 3,
        (Coding::Gzip, Effort::Stream) => 4,
        (_, Effort::Thrifty) => 1,
        (Coding::Zstd, Effort::Once) => 12,
        (Coding::Brotli, Effort::Once) => 8,
        (Coding::Gzip, Effort::Once) => 9,
    }
}

/// The memory of an encoder in bytes, as measured with 70 KB of text.
fn memory(coding: Coding, effort: Effort) -> usize {
    let kilobytes = match (coding, effort) {
        (Coding::Zstd | Coding::Brotli, Effort::Stream | Effort::Once) => 864,
        (Coding::Zstd, Effort::Thrifty) => 180,
        (Coding::Brotli, Effort::Thrifty) => 664,
        (Coding::Gzip, _) => 404,
    };
    kilobytes * 1024
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decoded(coding: Coding, mut body: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(body).read_to_end(&mut out)?,
            Coding::Zstd => zstd::stream::read::Decoder::new(body)?.read_to_end(&mut out)?,
            Coding::Brotli => brotli::BrotliDecompress(&mut body, &mut out).map(|()| 0)?,
        };
        Ok(out)
    }

    fn text() -> Vec<u8> {
        (0..5000).flat_map(|n| format!("line {n} of {}\n", n * n).into_bytes()).collect()
    }

    #[test]
    fn what_was_flushed_can_be_read_and_what_is_not_finished_is_not_complete() {
        let text = text();
        for coding in Coding::ALL {
            for effort in [Effort::Stream, Effort::Thrifty, Effort::Once] {
                let mut encoder = Encoder::new(coding, effort, None).unwrap();
                let mut out = encoder.write(&text[..1000]).unwrap();
                out.append(&mut encoder.flush().unwrap());
                assert_eq!(encoder.flush().unwrap(), b"", "nothing new");
                let mut seen = vec![0; 1000];
                match coding {
                    Coding::Gzip => flate2::read::GzDecoder::new(&out[..]).read_exact(&mut seen),
                    Coding::Zstd => {
                        let mut decoder = zstd::stream::read::Decoder::new(&out[..]).unwrap();
                        decoder.read_exact(&mut seen)
                    }
                    Coding::Brotli => {
                        brotli::Decompressor::new(&out[..], 4096).read_exact(&mut seen)
                    }
                }
                .unwrap();
                assert_eq!(seen, text[..1000]);
                out.append(&mut encoder.write(&text[1000..]).unwrap());
                out.append(&mut encoder.flush().unwrap());
                assert!(decoded(coding, &out).is_err(), "{coding:?} looks complete");
                out.append(&mut encoder.finish().unwrap());
                assert_eq!(decoded(coding, &out).unwrap(), text);
                assert_eq!(
                    decoded(coding, &compress(coding, effort, &text).unwrap()).unwrap(),
                    text
                );
            }
        }
    }

    #[test]
    fn the_memory_of_all_encoders_is_bounded() {
        let budget = Arc::<EncoderMemory>::default();
        let mut encoders = Vec::new();
        while let Some(encoder) = Encoder::for_stream(Coding::Zstd, &budget).unwrap() {
            encoders.push(encoder);
        }
        assert!((300..800).contains(&encoders.len()), "{}", encoders.len());
        assert!(budget.0.load(Ordering::Relaxed) <= BUDGET);
        assert!(Encoder::for_stream(Coding::Gzip, &budget).unwrap().is_none());
        encoders.clear();
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
