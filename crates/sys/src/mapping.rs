//! A file mapped into reserved address space. Before the file changes, a private copy replaces it
//! there.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::slice;
use std::time::Instant;

use libc::{MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, c_void};

use crate::file::read_exact_at;

/// A range of address space, and the file or copy that is mapped there. Dropping it leaves the
/// caller's range without access, or unmaps a range of its own.
#[derive(Debug)]
pub struct MappedFile {
    /// An address rather than a pointer, so that any thread may own the mapping.
    addr: usize,
    size: usize,
    readable: bool,
    /// True if dropping this returns the address space to the kernel, and not to the caller.
    owned: bool,
}

impl MappedFile {
    /// Address space of `size` bytes, rounded up to pages, without access until [`Self::map`].
    ///
    /// # Errors
    /// `EINVAL`: `addr` is not the start of a page, or `size` is 0 or does not fit.
    ///
    /// # Safety
    /// The caller owns the address space, nothing else is mapped there, and no Rust reference leads
    /// into it, until the mapping is dropped.
    pub unsafe fn new(addr: *mut c_void, size: u64) -> io::Result<Self> {
        let page = page_size();
        let addr = addr.expose_provenance();
        let end =
            usize::try_from(size).ok().and_then(|size| addr.checked_add(size)?.checked_add(page));
        match usize::try_from(size) {
            Ok(size) if size > 0 && addr > 0 && addr.is_multiple_of(page) && end.is_some() => {
                Ok(Self { addr, size, readable: false, owned: false })
            }
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Like [`Self::new`], but reserves the address space itself.
    ///
    /// # Errors
    /// `EINVAL`: `size` is 0 or does not fit. Also errors of `mmap(2)`.
    pub fn reserve(size: u64) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let size = usize::try_from(size).ok().filter(|size| *size > 0).ok_or_else(invalid)?;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: the kernel chooses an unused address.
        let at = unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
        if at == MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { addr: at.expose_provenance(), size, readable: false, owned: true })
    }

    fn start(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.addr)
    }

    /// Maps the file's first bytes, private and read-only.
    ///
    /// The caller needs a lease on the file: the bytes change with the file, and reading raises
    /// `SIGBUS` if it is truncated.
    ///
    /// # Errors
    /// Errors of `mmap(2)`; the range is then without access.
    pub fn map(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        let flags = MAP_PRIVATE | MAP_FIXED;
        // SAFETY: MAP_FIXED replaces only address space that this value owns.
        let at = unsafe {
            libc::mmap(self.start(), self.size, libc::PROT_READ, flags, file.as_raw_fd(), 0)
        };
        if at == MAP_FAILED {
            let error = io::Error::last_os_error();
            self.forbid()?;
            return Err(error);
        }
        self.readable = true;
        Ok(())
    }

    /// Replaces the mapping by a copy of the file's bytes, atomically for threads that are reading
    /// it.
    ///
    /// # Errors
    /// Errors of `mmap(2)`, `pread(2)` and `mremap(2)`; `UnexpectedEof` if the file has become
    /// shorter, `TimedOut` if the copy is not complete at the `deadline`. The bytes must not be
    /// read after an error.
    pub fn replace_by_copy(&mut self, file: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        // SAFETY: the kernel chooses an unused address.
        let copy = unsafe {
            libc::mmap(ptr::null_mut(), self.size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if copy == MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `copy` is a fresh mapping of `size` zero bytes that no other code knows.
        let bytes = unsafe { slice::from_raw_parts_mut(copy.cast::<u8>(), self.size) };
        let moved = read_exactly(file, bytes, deadline).and_then(|()| {
            // SAFETY: `bytes` is not used any more; the target is address space that this value
            // owns, and readers find the same bytes there before and after.
            let at = unsafe {
                if libc::mprotect(copy, self.size, libc::PROT_READ) != 0 {
                    return Err(io::Error::last_os_error());
                }
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                libc::mremap(copy, self.size, self.size, flags, self.start())
            };
            if at == MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
        if moved.is_err() {
            // SAFETY: `copy` was not moved away and no other code knows it.
            unsafe { libc::munmap(copy, self.size) };
        }
        moved
    }

    /// Removes the mapping and leaves the range without access.
    ///
    /// # Errors
    /// Errors of `mmap(2)`.
    pub fn forbid(&mut self) -> io::Result<()> {
        self.readable = false;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        // SAFETY: MAP_FIXED replaces only address space that this value owns.
        let at = unsafe { libc::mmap(self.start(), self.size, libc::PROT_NONE, flags, -1, 0) };
        if at == MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The mapped bytes; `None` without access.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: readable for `size` bytes. They do not change while the lease stands, and every
        // method that replaces them needs it mutably.
        self.readable.then(|| unsafe { slice::from_raw_parts(self.start().cast(), self.size) })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the address space is this value's own, and no reference into it outlives it.
            unsafe { libc::munmap(self.start(), self.size) };
            return;
        }
        // If this fails, the mapping stays, which is harmless.
        let _stays = self.forbid();
    }
}

/// Number of bytes copied between two checks of the deadline.
const STEP: usize = 16 << 20;

fn read_exactly(file: BorrowedFd<'_>, buf: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut offset = 0;
    for step in buf.chunks_mut(STEP) {
        if offset > 0 && Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "copying a file took too long"));
        }
        read_exact_at(file, step, offset)?;
        offset += step.len() as u64;
    }
    Ok(())
}

/// Size of a page in bytes, from the C library, which has known it since the start of the process.
/// Before Linux 6.4 rustix reads it from `/proc/self/auxv`, which belongs to root in a process that
/// has changed its user, and panics.
fn page_size() -> usize {
    // SAFETY: a plain call.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
