//! A stream that the application reads: the request body, or the input file of a filter.

/// ```text
///            end of the stream
///  Arriving ───────────────────▶ Ended
///     │ BODY, before any byte
///     └────────────────────────▶ File
/// ```
#[derive(Debug)]
pub enum Body<F> {
    /// More bytes may arrive on the link.
    Arriving(Unread),
    /// All of it has been received.
    Ended(Unread),
    /// The first `len` bytes of an open file, of which `read` have been read.
    File {
        /// The open file.
        file: F,
        /// Bytes in the body.
        len: u64,
        /// Bytes that the application has read.
        read: u64,
    },
}

/// Received bytes; the application has read those before `read`.
#[derive(Debug, Default)]
pub struct Unread {
    data: Vec<u8>,
    read: usize,
}

impl Unread {
    /// Empty, with a reused buffer.
    pub(super) fn with_buffer(mut data: Vec<u8>) -> Self {
        data.clear();
        Self { data, read: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.read == self.data.len() {
            // The buffer is reused once it is read, so memory does not grow with the body.
            self.data.clear();
            self.read = 0;
        }
        self.data.extend_from_slice(bytes);
    }

    fn copy_to(&mut self, buf: &mut [u8]) -> usize {
        let n = buf.len().min(self.data.len() - self.read);
        buf[..n].copy_from_slice(&self.data[self.read..self.read + n]);
        self.read += n;
        n
    }
}

/// Result of a call of [`Body::read`].
#[derive(Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// This number of bytes was copied.
    Bytes(usize),
    /// The body has ended.
    End,
    /// No unread bytes: receive more.
    Receive,
    /// The bytes are in the file of [`Body::File`]: read at most `len` from `offset` on, then call
    /// [`Body::advance`].
    FromFile {
        /// First byte, from the start of the file.
        offset: u64,
        /// Bytes.
        len: usize,
    },
}

impl<F> Body<F> {
    pub(super) fn ended() -> Self {
        Self::Ended(Unread::default())
    }

    /// True if no further byte of the body will arrive on the link.
    pub fn is_complete(&self) -> bool {
        !matches!(self, Self::Arriving(_))
    }

    /// True if the whole body has arrived, or more than `enough` bytes.
    pub fn arrived(&self, enough: usize) -> bool {
        match self {
            Self::Arriving(unread) => unread.data.len() > enough,
            Self::Ended(_) | Self::File { .. } => true,
        }
    }

    /// True if [`Self::read`] has bytes or the end, and nothing must be received first.
    pub fn is_readable(&self) -> bool {
        match self {
            Self::Arriving(unread) => unread.read < unread.data.len(),
            Self::Ended(_) | Self::File { .. } => true,
        }
    }

    /// Adds received bytes; `false` if the stream has ended or is a file.
    pub(super) fn add(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Arriving(unread) => {
                unread.add(bytes);
                true
            }
            Self::Ended(_) | Self::File { .. } => false,
        }
    }

    /// Ends the stream: its empty record has arrived.
    pub(super) fn end(&mut self) {
        if let Self::Arriving(unread) = self {
            *self = Self::Ended(std::mem::take(unread));
        }
    }

    /// Replaces the stream by a file; `false` if bytes, or the end, have already arrived.
    pub(super) fn become_file(&mut self, file: F, len: u64) -> bool {
        let awaited = matches!(self, Self::Arriving(unread) if unread.data.is_empty());
        if awaited {
            *self = Self::File { file, len, read: 0 };
        }
        awaited
    }

    /// Copies received bytes to `buf`, which is not empty, or returns what the caller must do
    /// instead.
    pub fn read(&mut self, buf: &mut [u8]) -> ReadStep {
        let (unread, ended) = match self {
            Self::File { len, read, .. } => {
                let left = usize::try_from(*len - *read).unwrap_or(usize::MAX);
                return ReadStep::FromFile { offset: *read, len: buf.len().min(left) };
            }
            Self::Arriving(unread) => (unread, false),
            Self::Ended(unread) => (unread, true),
        };
        match unread.copy_to(buf) {
            0 if ended => ReadStep::End,
            0 => ReadStep::Receive,
            n => ReadStep::Bytes(n),
        }
    }

    /// Records that `n` bytes were read from the file.
    pub fn advance(&mut self, n: usize) {
        if let Self::File { read, .. } = self {
            *read += n as u64;
        }
    }

    /// The open file, if the body is a file.
    pub fn file(&self) -> Option<&F> {
        match self {
            Self::File { file, .. } => Some(file),
            Self::Arriving(_) | Self::Ended(_) => None,
        }
    }

    /// The buffer, for the next request.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Arriving(unread) | Self::Ended(unread) => unread.data,
            Self::File { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each read follows `is_readable`, so none finds an empty buffer.
    #[test]
    fn a_body_that_is_read_as_it_comes_takes_the_memory_of_one_piece() {
        let mut body = Body::<()>::Arriving(Unread::default());
        let mut buf = [0; 100];
        for _ in 0..1000 {
            assert!(!body.is_readable() && body.add(&[b'x'; 150]));
            for n in [100, 50] {
                assert!(body.is_readable());
                assert_eq!(body.read(&mut buf), ReadStep::Bytes(n));
            }
        }
        assert!(body.into_buffer().capacity() < 1000);
    }
}
