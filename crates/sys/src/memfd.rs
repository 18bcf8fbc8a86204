//! Sealed memory files (`memfd_create(2)`), whose bytes no process can change.

use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::{ptr, slice};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// The seals that make a file's contents immutable.
const FINAL: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK);

/// The seals that fix a file's size.
const FIXED_SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Bytes in a sealed file, mapped. All processes that have the descriptor always read the same
/// bytes.
#[derive(Debug)]
pub struct Sealed {
    /// Open for reading.
    fd: OwnedFd,
    /// An address rather than a pointer, so that any thread may own it.
    addr: usize,
    len: usize,
}

impl Sealed {
    /// Copies `data` into a sealed file.
    ///
    /// # Errors
    /// `EINVAL`: `data` is empty. `EFBIG`: it exceeds `RLIMIT_FSIZE`. Also errors of
    /// `memfd_create(2)`, `write(2)` and `mmap(2)`, and `ENOENT` without `/proc`.
    pub fn new(data: &[u8]) -> io::Result<Self> {
        if data.is_empty() {
            return Err(Errno::INVAL.into());
        }
        let writable = sealed(c"sendoff-blob", data.len() as u64, |file| {
            File::from(file.try_clone_to_owned()?).write_all(data)
        })?;
        // The seal already prevents writes through the first descriptor, but its flags still permit
        // writing.
        let fd = File::open(format!("/proc/self/fd/{}", writable.as_raw_fd()))?;
        // SAFETY: the kernel chooses an unused address.
        let at = unsafe {
            let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(ptr::null_mut(), data.len(), access, flags, fd.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd: fd.into(), addr: at.expose_provenance(), len: data.len() })
    }

    /// The same file under another descriptor number, which `renumber` chooses.
    #[must_use]
    pub fn renumbered(mut self, renumber: impl FnOnce(OwnedFd) -> OwnedFd) -> Self {
        if let Ok(fd) = self.fd.try_clone() {
            self.fd = renumber(fd);
        }
        self
    }

    /// The file, open for reading.
    #[must_use]
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    fn start(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.addr)
    }

    /// The contents; at least one byte.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for `len` bytes until `self` is dropped, of a file that can be neither
        // written nor truncated.
        unsafe { slice::from_raw_parts(self.start().cast(), self.len) }
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives `self`. If it fails the
        // mapping stays.
        unsafe { libc::munmap(self.start(), self.len) };
    }
}

impl AsFd for Sealed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Creates a memory file of `len` bytes, calls `fill` to write them, and seals it. `name` is shown
/// in `/proc/PID/fd`.
///
/// # Errors
/// `EFBIG`: `len` exceeds `RLIMIT_FSIZE`. Also errors of `memfd_create(2)` and of `fill`.
pub fn sealed(
    name: &CStr,
    len: u64,
    fill: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    fits(len)?;
    let file = create(name)?;
    fill(file.as_fd())?;
    fcntl_add_seals(&file, FINAL | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Creates a memory file of `len` zeros, whose size no process can change. Pages cost nothing until
/// they are used.
///
/// # Errors
/// `EFBIG`: `len` exceeds `RLIMIT_FSIZE`. Also errors of `memfd_create(2)`.
pub(crate) fn of_fixed_size(name: &str, len: u64) -> rustix::io::Result<OwnedFd> {
    fits(len)?;
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, len)?;
    fcntl_add_seals(&file, FIXED_SIZE | SealFlags::SEAL)?;
    Ok(file)
}

/// True if no process can change the size of a memory file.
///
/// # Errors
/// `EINVAL`: it is none.
pub(crate) fn has_fixed_size(fd: impl AsFd) -> rustix::io::Result<bool> {
    Ok(fcntl_get_seals(fd)?.contains(FIXED_SIZE))
}

/// Returns an error if a memory file may not have `len` bytes. For a larger one the kernel would
/// also send SIGXFSZ, whose default action ends the process.
pub(crate) fn fits(len: u64) -> rustix::io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < len => Err(Errno::FBIG),
        _ => Ok(()),
    }
}

fn create(name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // The error of Linux before 6.3.
        Err(Errno::INVAL) => memfd_create(name, flags),
        made => made,
    }
}

/// True if the kernel refuses every write to the file and every truncation, through any descriptor
/// or mapping. False for every file with a name: only files of `memfd_create` can be sealed.
#[must_use]
pub fn is_final(fd: impl AsFd) -> bool {
    fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(FINAL))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn sealed_bytes_cannot_be_changed_through_any_descriptor() {
        let sealed = Sealed::new(b"for ever")
            .unwrap()
            .renumbered(|fd| rustix::io::fcntl_dupfd_cloexec(&fd, 100).unwrap());
        assert_eq!(sealed.bytes(), b"for ever");
        assert!(is_final(&sealed) && sealed.fd().as_raw_fd() >= 100);
        let flags = rustix::fs::fcntl_getfl(&sealed).unwrap();
        assert_eq!(flags & rustix::fs::OFlags::RWMODE, rustix::fs::OFlags::RDONLY);
        let path = format!("/proc/self/fd/{}", sealed.fd().as_raw_fd());
        // Some kernels refuse to open a sealed file for writing.
        if let Ok(writable) = File::options().write(true).open(path) {
            assert!(writable.write_all_at(b"never", 0).is_err());
            assert!(writable.set_len(1).is_err() && writable.set_len(100).is_err());
        }
        let mut now = [0; 9];
        assert_eq!(File::from(sealed.fd().try_clone().unwrap()).read_at(&mut now, 0).unwrap(), 8);
        assert_eq!(&now[..8], sealed.bytes());
    }

    #[test]
    fn what_is_not_sealed_is_not_final() {
        assert!(!is_final(File::open("/proc/self/exe").unwrap()));
        assert!(!is_final(create(c"open").unwrap()));
        let growing = create(c"growing").unwrap();
        fcntl_add_seals(&growing, SealFlags::WRITE).unwrap();
        assert!(!is_final(&growing));
        assert!(Sealed::new(b"").is_err());
    }
}
