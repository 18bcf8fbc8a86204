//! PHP itself: the two calls into the C of the SAPI, as safe functions.
#![allow(unsafe_code, reason = "the only calls from Rust into the SAPI's C")]

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// Linked for the C code, which calls the worker through it.
use sendoff_capi as _;

unsafe extern "C" {
    fn sendoff_php_startup(
        ini_dir: *const c_char,
        defines: *const *const c_char,
        define_count: usize,
    ) -> c_int;
    fn sendoff_php_serve(
        links: *const c_int,
        link_count: usize,
        guard: c_int,
        busy: c_int,
        max_requests: u64,
    ) -> c_int;
}

/// PHP, started.
#[derive(Debug)]
pub(crate) struct Engine(());

impl Engine {
    /// Starts PHP with the `php.ini` and `conf.d` of a folder and settings (`KEY=VALUE`) on top. `None` if it refused;
    /// it has written why to standard error. Call it once.
    pub(crate) fn start(ini_dir: &Path, settings: &[String]) -> Option<Self> {
        let ini_dir = CString::new(ini_dir.as_os_str().as_bytes()).ok()?;
        let settings: Vec<CString> =
            settings.iter().map(|s| CString::new(s.as_str())).collect::<Result<_, _>>().ok()?;
        let pointers: Vec<_> = settings.iter().map(|s| s.as_ptr()).collect();
        // SAFETY: the strings and the array live through the call, which copies what it keeps.
        let result =
            unsafe { sendoff_php_startup(ini_dir.as_ptr(), pointers.as_ptr(), pointers.len()) };
        (result == 0).then_some(Self(()))
    }

    /// Serves requests in a forked child until the front or `max_requests` (0: never) ends it; returns the exit
    /// status. Without a guard no files are handed over.
    pub(crate) fn serve(
        &self,
        links: Vec<OwnedFd>,
        guard: Option<OwnedFd>,
        busy: BorrowedFd<'_>,
        max_requests: u64,
    ) -> i32 {
        let links: Vec<c_int> = links.into_iter().map(IntoRawFd::into_raw_fd).collect();
        let guard = guard.map_or(-1, IntoRawFd::into_raw_fd);
        // SAFETY: the array lives through the call, which takes the descriptors over. PHP's long jumps stay inside it.
        unsafe {
            sendoff_php_serve(links.as_ptr(), links.len(), guard, busy.as_raw_fd(), max_requests)
        }
    }
}
