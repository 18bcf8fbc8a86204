//! Memory that one process writes and another reads: a sealed memfd (`memfd_create(2)`), including
//! counters that the reader sets.
//!
//! The reader does not trust the writer: the bytes may change at any time. So no code in the
//! reader's process may read a byte twice and base a decision on it. The bytes are passed to the
//! kernel (`sendmsg`, `pwrite`) or copied, and a writer that changes them harms only the recipient
//! of its own bytes. Other risks are excluded when the memory is mapped: the seals fix its size, so
//! no access is past its end (`SIGBUS`), and it consists of ordinary pages (huge pages may run out,
//! which also raises `SIGBUS`).

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::memfd;

/// `TMPFS_MAGIC` in `<linux/magic.h>`: the file system of a memfd without huge pages.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The layout of such memory, in bytes from its start. Each part begins at a page.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Start of the counters.
    pub counters_at: u64,
    /// The number of counters.
    pub counters: u32,
    /// Start of the data, after the counters.
    pub data_at: u64,
    /// Number of bytes of data, up to the end.
    pub data_len: usize,
}

impl Shape {
    fn len(self) -> u64 {
        self.data_at + self.data_len as u64
    }

    fn counters_len(self) -> usize {
        self.counters as usize * size_of::<AtomicU32>()
    }

    fn is_consistent(self) -> bool {
        let room = self.data_at.checked_sub(self.counters_at);
        room.is_some_and(|room| self.counters_len() as u64 <= room)
            && self.data_at.checked_add(self.data_len as u64).is_some()
    }
}

/// A part of a file, mapped shared at an address that the kernel chose.
#[derive(Debug)]
pub(crate) struct Map {
    /// An address rather than a pointer, so that any thread may own it.
    addr: usize,
    pub(crate) len: usize,
}

impl Map {
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        protection: i32,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        let (fd, flags) = (fd.as_raw_fd(), libc::MAP_SHARED);
        // SAFETY: the kernel chooses an unused address.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { addr: at.expose_provenance(), len })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.addr)
    }

    /// The counter at `offset` bytes; the caller guarantees that there is one.
    fn counter(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(size_of::<AtomicU32>()) && offset < self.len);
        // SAFETY: inside the mapping and aligned, because the mapping starts at a page. Counters
        // are only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.start().add(offset).cast()) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping has no other owner, and borrows of it have ended. If it fails, the
        // mapping stays.
        unsafe { libc::munmap(self.start().cast(), self.len) };
    }
}

/// The writing side, which creates the memory.
#[derive(Debug)]
pub struct Writer {
    fd: OwnedFd,
    map: Map,
    shape: Shape,
}

impl Writer {
    /// Creates memory with `header` at its start, followed by zeros. Pages cost nothing until they
    /// are used.
    ///
    /// # Errors
    /// `EFBIG`: the size exceeds `RLIMIT_FSIZE`. Also errors of `memfd_create(2)`, `fcntl(2)` and
    /// `mmap(2)`.
    pub fn create(shape: Shape, header: &[u8]) -> io::Result<Self> {
        if !shape.is_consistent() || header.len() as u64 > shape.counters_at {
            return Err(Errno::INVAL.into());
        }
        let fd = memfd::of_fixed_size("sendoff-region", shape.len())?;
        let written = rustix::io::pwrite(&fd, header, 0)?;
        if written != header.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let len = usize::try_from(shape.len()).map_err(|_| Errno::INVAL)?;
        let map = Map::new(fd.as_fd(), 0, len, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(Self { fd, map, shape })
    }

    /// The descriptor, to send to the reader.
    #[must_use]
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Copies `bytes` to `at`, from the start of the data.
    ///
    /// # Panics
    /// The bytes do not fit there.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.shape.data_len), "written past the end");
        let data_at = self.map.len - self.shape.data_len;
        // SAFETY: inside the mapping. This process never makes a reference to its data; the other
        // process reads the bytes later, after it has been told of them.
        unsafe {
            let to = self.map.start().add(data_at + at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// The value of a counter that the reader sets. The reader has finished all reads that precede
    /// the setting of this value.
    ///
    /// # Panics
    /// There is no such counter.
    #[must_use]
    pub fn counter(&self, number: u32) -> u32 {
        assert!(number < self.shape.counters, "no such counter");
        let from = self.map.len
            - self.shape.data_len
            - usize::try_from(self.shape.data_at - self.shape.counters_at).unwrap_or(0);
        self.map.counter(from + number as usize * size_of::<AtomicU32>()).load(Ordering::Acquire)
    }
}

/// The reading side.
#[derive(Debug)]
pub struct Reader {
    data: Map,
    counters: Map,
}

/// The reason why memory from another process is not mapped.
#[derive(Debug)]
pub enum Unfit {
    /// The memory has a wrong property.
    Wrong(&'static str),
    /// A system call failed.
    Failed(io::Error),
}

impl From<Errno> for Unfit {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

impl Reader {
    /// Checks that the memory is safe to map, and reads its header.
    ///
    /// # Errors
    /// The memory is not sealed, consists of huge pages, or has no header.
    pub fn header<const LEN: usize>(fd: BorrowedFd<'_>) -> Result<[u8; LEN], Unfit> {
        let Ok(is_fixed) = memfd::has_fixed_size(fd) else {
            return Err(Unfit::Wrong("it is no memfd"));
        };
        if !is_fixed {
            return Err(Unfit::Wrong("its size is not sealed"));
        }
        if rustix::fs::fstatfs(fd)?.f_type.cast_unsigned() != TMPFS_MAGIC {
            return Err(Unfit::Wrong("it is made of huge pages"));
        }
        let mut header = [0; LEN];
        match rustix::io::pread(fd, &mut header, 0)? {
            n if n == LEN => Ok(header),
            _ => Err(Unfit::Wrong("it has no header")),
        }
    }

    /// Maps memory that has passed [`Self::header`].
    ///
    /// # Errors
    /// The size differs from `shape`. Also errors of `mmap(2)`.
    pub fn map(fd: BorrowedFd<'_>, shape: Shape) -> Result<Self, Unfit> {
        let size = u64::try_from(rustix::fs::fstat(fd)?.st_size);
        if !shape.is_consistent() || size != Ok(shape.len()) {
            return Err(Unfit::Wrong("its size is not what its header says"));
        }
        let data = Map::new(fd, shape.data_at, shape.data_len, libc::PROT_READ);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let counters = Map::new(fd, shape.counters_at, shape.counters_len(), protection);
        match (data, counters) {
            (Ok(data), Ok(counters)) => Ok(Self { data, counters }),
            (Err(error), _) | (_, Err(error)) => Err(Unfit::Failed(error)),
        }
    }

    /// Sets a counter. The writer may then change the bytes that were read before.
    ///
    /// # Panics
    /// There is no such counter.
    pub fn set_counter(&self, number: u32, value: u32) {
        let at = number as usize * size_of::<AtomicU32>();
        self.counters.counter(at).store(value, Ordering::Release);
    }
}

/// Bytes in shared memory, with a value that is dropped when they are no longer needed.
#[derive(Debug)]
pub struct Slice<H> {
    reader: Arc<Reader>,
    range: Range<usize>,
    _held: H,
}

impl<H> Slice<H> {
    /// The bytes in `range`; `None` if it exceeds the data.
    #[must_use]
    pub fn new(reader: Arc<Reader>, range: Range<usize>, held: H) -> Option<Self> {
        let is_inside = range.start <= range.end && range.end <= reader.data.len;
        is_inside.then_some(Self { reader, range, _held: held })
    }
}

impl<H> AsRef<[u8]> for Slice<H> {
    fn as_ref(&self) -> &[u8] {
        let start = self.reader.data.start();
        // SAFETY: inside a mapping that lives as long as the reader, whose memory is sealed against
        // shrinking, so every byte can be read. The other process may change them, against the
        // contract of `&[u8]`: no code of ours examines them (the module's comment says how they
        // are used instead), so no decision depends on two reads of a byte.
        unsafe { slice::from_raw_parts(start.add(self.range.start), self.range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    const SHAPE: Shape =
        Shape { counters_at: 65_536, counters: 4, data_at: 131_072, data_len: 8192 };

    fn reader(writer: &Writer) -> Arc<Reader> {
        let header = Reader::header::<5>(writer.fd().as_fd()).unwrap();
        assert_eq!(&header, b"hello");
        Arc::new(Reader::map(writer.fd().as_fd(), SHAPE).unwrap())
    }

    #[test]
    fn bytes_go_one_way_and_counters_the_other() {
        let mut writer = Writer::create(SHAPE, b"hello").unwrap();
        let reader = reader(&writer);
        writer.write(8000, &[b'x'; 192]);
        writer.write(0, b"start");
        let bytes = |range| Slice::new(Arc::clone(&reader), range, ());
        assert_eq!(bytes(7999..8192).unwrap().as_ref(), [&[0][..], &[b'x'; 192]].concat());
        assert_eq!(bytes(0..5).unwrap().as_ref(), b"start");
        assert!(bytes(8192..8193).is_none() && bytes(0..usize::MAX).is_none());
        assert_eq!(writer.counter(3), 0);
        reader.set_counter(3, 7);
        assert_eq!([0, 1, 2, 3].map(|number| writer.counter(number)), [0, 0, 0, 7]);
    }

    #[test]
    fn what_the_reader_cannot_be_sure_of_is_not_mapped() {
        let memfd = |flags| memfd_create("test", flags).unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Reader::header::<5>(file.as_fd()).is_err());
        let open = memfd(MemfdFlags::ALLOW_SEALING);
        ftruncate(&open, SHAPE.len()).unwrap();
        assert!(Reader::header::<5>(open.as_fd()).is_err(), "not sealed");
        fcntl_add_seals(&open, SealFlags::SHRINK).unwrap();
        assert!(Reader::header::<5>(open.as_fd()).is_err(), "half sealed");
        fcntl_add_seals(&open, SealFlags::GROW).unwrap();
        assert!(Reader::header::<5>(open.as_fd()).is_ok());
        assert!(Reader::map(open.as_fd(), SHAPE).is_ok());
        assert!(Reader::map(open.as_fd(), Shape { data_len: 4096, ..SHAPE }).is_err());
        // Not every kernel supports huge pages.
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let Ok(huge) = memfd_create("test", flags) else { return };
        fcntl_add_seals(&huge, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(Reader::header::<5>(huge.as_fd()), Err(Unfit::Wrong(_))), "huge pages");
    }
}
