//! Objects that both ends share: files and their writers, shared memory, clients' sockets, the
//! guard socket, the time.

use std::collections::{HashMap, VecDeque};

use sendoff_fastcgi::handover::{FileId, GuardAnswer};
use sendoff_fastcgi::region::Layout;

/// Pseudo-random numbers from a seed (xorshift64*).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % bound
    }

    /// A size that is mostly small, and sometimes beyond each limit.
    pub(crate) fn size(&mut self) -> usize {
        let bound = [40, 3_000, 20_000, 50_000, 150_000][self.below(5)];
        1 + self.below(bound)
    }
}

pub(crate) const FILES: usize = 3;
pub(crate) const FILE_LEN: u64 = 90_000;

/// Chunks of the region: few, so that they run out.
pub(crate) const CHUNKS: u32 = 4;
pub(crate) const CHUNK: u32 = 16 * 1024;

pub(crate) struct Site {
    pub(crate) now: u64,
    /// Number of times that each file has been overwritten.
    pub(crate) versions: [u8; FILES],
    /// The file of each descriptor.
    pub(crate) open: HashMap<u32, usize>,
    pub(crate) memory: Vec<u8>,
    pub(crate) returned: [u32; CHUNKS as usize],
    /// Answers on the guard socket, with the time of their arrival.
    pub(crate) answers: VecDeque<(u64, GuardAnswer, FileId)>,
    /// The body of each request's response, as the application wrote it.
    pub(crate) written: HashMap<u32, Vec<u8>>,
    /// Entries for the log, as the application wrote them.
    pub(crate) log: String,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            now: 0,
            versions: [0; FILES],
            open: HashMap::new(),
            memory: vec![0; (CHUNKS * CHUNK) as usize],
            returned: [0; CHUNKS as usize],
            answers: VecDeque::new(),
            written: HashMap::new(),
            log: String::new(),
        }
    }
}

impl Site {
    pub(crate) fn layout() -> Layout {
        Layout::new(CHUNK, CHUNKS).unwrap()
    }

    /// The present contents of the file.
    pub(crate) fn read(&self, file: usize, offset: u64, length: u64) -> Vec<u8> {
        content(file, self.versions[file], offset, length)
    }
}

pub(crate) fn content(file: usize, version: u8, offset: u64, length: u64) -> Vec<u8> {
    let first = (u8::try_from(file).unwrap() * 67) ^ version.wrapping_mul(29);
    (offset..offset + length).map(|at| u8::try_from(at % 251).unwrap() ^ first).collect()
}

/// The clients' sockets, by descriptor.
#[derive(Default)]
pub(crate) struct Clients(pub(crate) HashMap<u32, Client>);

#[derive(Default)]
pub(crate) struct Client {
    pub(crate) got: Vec<u8>,
    /// Number of bytes that the socket takes before it is full.
    pub(crate) room: usize,
    pub(crate) gone: bool,
}
