//! The memory of a pool's ring (`docs/handover.md` §9): one file with the requests, which only the
//! front can write, and one with the claims, which the front and the workers write.
//!
//! The front never reads the requests. It reads single words of the claims, and compares them with
//! its own tables. Both files are sealed at their size, so no access can raise `SIGBUS`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use bytes::{BufMut, BytesMut};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use sendoff_ring::{FIRST, FrontMemory, Memory};

use crate::memfd;
use crate::shared::Map;

/// First bytes of the file with the requests.
const MAGIC: [u8; 8] = *b"sendoff\0";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 32;
/// Offset of the tail in the file with the requests.
const TAIL_AT: usize = 64;
/// Offset of the places.
const PLACES_AT: usize = 4096;
/// Distance of two flags: a cache line, because different workers write them.
const FLAG_STRIDE: usize = 64;
const WORD: usize = size_of::<u64>();

/// The sizes of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Requests that can be posted at a time; a power of two.
    pub positions: u32,
    /// Slots for the bytes of requests.
    pub slots: u32,
    /// Bytes of a slot; a multiple of 64.
    pub slot_len: u32,
    /// Workers at a time.
    pub seats: u32,
}

impl Shape {
    fn slots_at(self) -> usize {
        PLACES_AT + (self.positions as usize * WORD).next_multiple_of(PLACES_AT)
    }

    fn requests_len(self) -> usize {
        self.slots_at() + self.slots as usize * self.slot_len as usize
    }

    fn flags_at(self) -> usize {
        (self.positions as usize * WORD).next_multiple_of(FLAG_STRIDE)
    }

    fn claims_len(self) -> usize {
        self.flags_at() + self.seats as usize * FLAG_STRIDE
    }

    /// Bounded, so that no size overflows.
    fn is_valid(self) -> bool {
        let Self { positions, slots, slot_len, seats } = self;
        positions.is_power_of_two()
            && positions <= 1 << 24
            && (1..=1 << 16).contains(&slots)
            && (64..=1 << 20).contains(&slot_len)
            && slot_len.is_multiple_of(64)
            && (1..=1 << 16).contains(&seats)
    }

    fn header(self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&MAGIC);
        let numbers = [VERSION, self.positions, self.slots, self.slot_len, self.seats, 0];
        for (to, number) in header[8..].chunks_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_be_bytes());
        }
        header
    }

    fn decode(header: [u8; HEADER_LEN]) -> Option<Self> {
        let number = |at: usize| {
            header[at..].first_chunk().map_or(0, |raw: &[u8; 4]| u32::from_be_bytes(*raw))
        };
        let shape = Self {
            positions: number(12),
            slots: number(16),
            slot_len: number(20),
            seats: number(24),
        };
        (shape.header() == header && shape.is_valid()).then_some(shape)
    }
}

/// Both files, mapped.
#[derive(Debug)]
struct Maps {
    shape: Shape,
    requests: Map,
    claims: Map,
}

impl Maps {
    fn new(
        requests: BorrowedFd<'_>,
        claims: BorrowedFd<'_>,
        shape: Shape,
        protection: i32,
    ) -> io::Result<Self> {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        Ok(Self {
            shape,
            requests: Map::new(requests, 0, shape.requests_len(), protection)?,
            claims: Map::new(claims, 0, shape.claims_len(), both)?,
        })
    }

    fn word_at(map: &Map, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD) && offset + WORD <= map.len);
        // SAFETY: inside the mapping and aligned, because the mapping starts at a page. All
        // processes access these words only atomically; a worker never writes to the requests,
        // which it has mapped for reading.
        unsafe { AtomicU64::from_ptr(map.start().add(offset).cast()) }
    }

    fn tail(&self) -> &AtomicU64 {
        Self::word_at(&self.requests, TAIL_AT)
    }

    fn index(&self, position: u64) -> usize {
        let positions = u64::from(self.shape.positions);
        assert!(position < positions, "no such position");
        usize::try_from(position).unwrap_or_default()
    }

    fn place(&self, position: u64) -> &AtomicU64 {
        Self::word_at(&self.requests, PLACES_AT + self.index(position) * WORD)
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        Self::word_at(&self.claims, self.index(position) * WORD)
    }

    fn flag(&self, seat: u16) -> &AtomicU32 {
        assert!(u32::from(seat) < self.shape.seats, "no such seat");
        let offset = self.shape.flags_at() + usize::from(seat) * FLAG_STRIDE;
        // SAFETY: as for words.
        unsafe { AtomicU32::from_ptr(self.claims.start().add(offset).cast()) }
    }

    /// The start of `length` bytes in a slot.
    fn slot(&self, slot: u16, length: usize) -> *mut u8 {
        let slot_len = self.shape.slot_len as usize;
        let is_inside = u32::from(slot) < self.shape.slots && length <= slot_len;
        assert!(is_inside, "no such slot");
        // SAFETY: inside the mapping.
        unsafe { self.requests.start().add(self.shape.slots_at() + usize::from(slot) * slot_len) }
    }
}

/// The front's side, which creates the memory.
#[derive(Debug)]
pub struct Front {
    maps: Maps,
    requests: OwnedFd,
    claims: OwnedFd,
}

impl Front {
    /// Creates the memory of a ring. Pages cost nothing until they are used.
    ///
    /// # Errors
    /// `EINVAL`: a number in `shape` is out of bounds, or the kernel is older than Linux 5.1.
    /// `EFBIG`: the size exceeds `RLIMIT_FSIZE`. Also errors of `memfd_create(2)` and `mmap(2)`.
    pub fn create(shape: Shape) -> io::Result<Self> {
        if !shape.is_valid() {
            return Err(Errno::INVAL.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let make = |name: &str, len: usize| {
            memfd::fits(len as u64)?;
            let fd = memfd_create(name, flags)?;
            ftruncate(&fd, len as u64)?;
            Ok::<_, Errno>(fd)
        };
        let requests = make("sendoff-ring", shape.requests_len())?;
        let claims = make("sendoff-claims", shape.claims_len())?;
        if rustix::io::pwrite(&requests, &shape.header(), 0)? != HEADER_LEN {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let maps = Maps::new(requests.as_fd(), claims.as_fd(), shape, both)?;
        let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        // From now on no process can write to the requests, except through the mapping above.
        fcntl_add_seals(&requests, size | SealFlags::FUTURE_WRITE)?;
        fcntl_add_seals(&claims, size)?;
        maps.tail().store(FIRST, Ordering::Release);
        Ok(Self { maps, requests, claims })
    }

    /// The memory, for the functions of `sendoff_ring`.
    #[must_use]
    pub fn memory(&self) -> &impl FrontMemory {
        &self.maps
    }

    /// The descriptors for workers: requests and claims.
    #[must_use]
    pub fn fds(&self) -> [&OwnedFd; 2] {
        [&self.requests, &self.claims]
    }

    /// The sizes.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.maps.shape
    }

    /// Copies the bytes of a request to a slot that no worker reads.
    ///
    /// # Panics
    /// There is no such slot, or it is too short.
    pub fn write(&mut self, slot: u16, bytes: &[u8]) {
        let to = self.maps.slot(slot, bytes.len());
        // SAFETY: inside the mapping, which this process never reads. Workers read the slot after
        // they have taken a request there; if one reads at another time, it gets a mixture of
        // requests of its own pool.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

impl FrontMemory for Maps {
    fn set_tail(&self, tail: u64) {
        Self::tail(self).store(tail, Ordering::Release);
    }

    fn set_place(&self, position: u64, place: u64) {
        Self::place(self, position).store(place, Ordering::Relaxed);
    }

    fn set_word(&self, position: u64, word: u64) {
        Self::word(self, position).store(word, Ordering::Release);
    }

    fn set_flag(&self, seat: u16, flag: u32) {
        Self::flag(self, seat).store(flag, Ordering::Release);
    }
}

impl Memory for Maps {
    fn positions(&self) -> u64 {
        self.shape.positions.into()
    }

    fn tail(&self) -> u64 {
        self.tail().load(Ordering::Acquire)
    }

    fn place(&self, position: u64) -> u64 {
        self.place(position).load(Ordering::Relaxed)
    }

    fn word(&self, position: u64) -> u64 {
        self.word(position).load(Ordering::Acquire)
    }

    fn swap_word(&self, position: u64, from: u64, to: u64) -> bool {
        let (swapped, kept) = (Ordering::AcqRel, Ordering::Acquire);
        self.word(position).compare_exchange(from, to, swapped, kept).is_ok()
    }

    fn flag(&self, seat: u16) -> u32 {
        self.flag(seat).load(Ordering::Relaxed)
    }

    fn swap_flag(&self, seat: u16, from: u32, to: u32) -> bool {
        let (swapped, kept) = (Ordering::AcqRel, Ordering::Acquire);
        self.flag(seat).compare_exchange(from, to, swapped, kept).is_ok()
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// A worker's side. It trusts the front.
#[derive(Debug)]
pub struct Worker(Maps);

impl Worker {
    /// Maps a ring that the front has sent.
    ///
    /// # Errors
    /// `EINVAL`: it is no ring, or of another version. Also errors of `mmap(2)`.
    pub fn open(requests: BorrowedFd<'_>, claims: BorrowedFd<'_>) -> io::Result<Self> {
        let mut header = [0; HEADER_LEN];
        let read = rustix::io::pread(requests, &mut header, 0)?;
        let shape = Shape::decode(header).filter(|_| read == HEADER_LEN).ok_or(Errno::INVAL)?;
        let len = |fd| fstat(fd).map(|stat| usize::try_from(stat.st_size).unwrap_or(0));
        if len(requests)? != shape.requests_len() || len(claims)? != shape.claims_len() {
            return Err(Errno::INVAL.into());
        }
        Maps::new(requests, claims, shape, libc::PROT_READ).map(Self)
    }

    /// The memory, for `sendoff_ring::Taker`.
    #[must_use]
    pub fn memory(&self) -> &impl Memory {
        &self.0
    }

    /// The number of seats.
    #[must_use]
    pub fn seats(&self) -> u32 {
        self.0.shape.seats
    }

    /// Appends the bytes of a request that this worker has taken. False: there is no such slot, or
    /// it is too short.
    #[must_use]
    pub fn read(&self, slot: u16, length: u32, out: &mut BytesMut) -> bool {
        let Shape { slots, slot_len, .. } = self.0.shape;
        if u32::from(slot) >= slots || length > slot_len {
            return false;
        }
        let length = length as usize;
        out.reserve(length);
        let from = self.0.slot(slot, length);
        // SAFETY: both ranges have `length` bytes and belong to different mappings. The front does
        // not write to the slot before this worker has said that it has taken the request.
        unsafe {
            ptr::copy_nonoverlapping(from, out.chunk_mut().as_mut_ptr(), length);
            out.advance_mut(length);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use sendoff_ring::{Claim, Place, Step, Taker, claim, post, revoke, wake};

    use super::*;

    const SHAPE: Shape = Shape { positions: 4, slots: 2, slot_len: 128, seats: 3 };

    fn ring() -> (Front, Worker) {
        let front = Front::create(SHAPE).unwrap();
        let [requests, claims] = front.fds();
        let worker = Worker::open(requests.as_fd(), claims.as_fd()).unwrap();
        (front, worker)
    }

    #[test]
    fn a_request_is_posted_and_taken() {
        let (mut front, worker) = ring();
        let mut taker = Taker::new(2);
        assert_eq!(taker.step(worker.memory()), Step::Wait);
        let place = Place { link: 1, slot: 1, length: 5 };
        front.write(1, b"hello");
        post(front.memory(), FIRST, place);
        assert!(wake(front.memory(), 2) && !wake(front.memory(), 2) && !wake(front.memory(), 1));
        taker.asked();
        assert_eq!(taker.step(worker.memory()), Step::Take(FIRST, place));
        assert_eq!(claim(front.memory(), FIRST), Claim::By(2));
        assert!(!revoke(front.memory(), FIRST));
        let mut bytes = BytesMut::from(&b"-"[..]);
        assert!(worker.read(1, 5, &mut bytes));
        assert_eq!(&bytes[..], b"-hello");
        assert!(!worker.read(2, 5, &mut bytes) && !worker.read(1, 129, &mut bytes));
        for word in [0, 1, u64::MAX, 7 << 18 | 2 << 16] {
            front.memory().set_word(FIRST, word);
            assert_eq!(claim(front.memory(), FIRST), Claim::Nonsense);
        }
    }

    #[test]
    fn a_worker_cannot_write_to_the_requests() {
        let (front, _) = ring();
        let [requests, claims] = front.fds();
        let both = libc::PROT_READ | libc::PROT_WRITE;
        assert!(Map::new(requests.as_fd(), 0, 4096, both).is_err());
        assert!(rustix::io::pwrite(requests, b"x", 0).is_err());
        for fd in [requests, claims] {
            assert!(ftruncate(fd, 0).is_err() && ftruncate(fd, 1 << 20).is_err());
        }
        let mapped = Map::new(requests.as_fd(), 0, 4096, libc::PROT_READ).unwrap();
        // SAFETY: a mapping of our own; if the call succeeds, nothing is written.
        let changed = unsafe { libc::mprotect(mapped.start().cast(), 4096, both) };
        assert_eq!(changed, -1, "a worker makes its mapping writable");
    }

    #[test]
    fn what_is_no_ring_is_not_mapped() {
        let (front, _) = ring();
        let [requests, claims] = front.fds();
        assert!(Worker::open(claims.as_fd(), requests.as_fd()).is_err());
        assert!(Worker::open(requests.as_fd(), requests.as_fd()).is_err());
        for wrong in [
            Shape { positions: 3, ..SHAPE },
            Shape { slots: 0, ..SHAPE },
            Shape { slot_len: 100, ..SHAPE },
            Shape { seats: 1 << 17, ..SHAPE },
        ] {
            assert!(Front::create(wrong).is_err(), "{wrong:?}");
        }
    }
}
