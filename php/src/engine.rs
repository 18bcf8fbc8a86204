//! PHP itself: the calls into the C of the SAPI, as safe functions.
#![allow(unsafe_code, reason = "the only calls from Rust into the SAPI's C")]

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sendoff_config::PoolConfig;
use sendoff_sys::process::real_time_signal;

use crate::settings;
// Linked for the C code, which calls the worker through it.
use sendoff_capi as _;

/// `sendoff_php_start` of `php_sendoff.h`.
#[repr(C)]
struct CStartup {
    ini_dir: *const c_char,
    defines: *const *const c_char,
    define_count: usize,
    pool: *const c_char,
    fixed: *const *const c_char,
    fixed_count: usize,
    environment: *const *const c_char,
    environment_count: usize,
    folder: *const c_char,
    stuck_signal: c_int,
    orphan_time: u64,
    worker_script: *const c_char,
    max_memory: u64,
    max_age: u64,
    said: c_int,
}

unsafe extern "C" {
    fn sendoff_php_startup(start: *const CStartup) -> c_int;
    fn sendoff_php_serve(
        links: *const c_int,
        link_count: usize,
        guard: c_int,
        slow: c_int,
        status: c_int,
        busy: c_int,
        max_requests: u64,
    ) -> c_int;
}

/// Arguments of PHP's start.
#[derive(Debug)]
pub(crate) struct Startup<'a> {
    /// The folder with `php.ini` and `conf.d`.
    pub(crate) ini_dir: &'a Path,
    /// The pool: its PHP settings and the properties of its workers.
    pub(crate) pool: &'a PoolConfig,
    /// The environment of scripts, each `NAME=VALUE`.
    pub(crate) environment: &'a [CString],
    /// The time for a worker's request after the death of its master.
    pub(crate) orphan_time: Duration,
    /// A file for PHP's messages, in addition to the log.
    pub(crate) said: Option<&'a OwnedFd>,
}

/// PHP after its start.
#[derive(Debug)]
pub(crate) struct Engine(());

/// The signal on which a worker writes the PHP backtrace of its script to standard error and ends.
/// The worker installs the handler before its first request.
pub(crate) fn stuck_signal() -> Signal {
    real_time_signal(0)
}

/// Converts texts to C strings; `None` if one of them contains a NUL.
fn strings(texts: impl IntoIterator<Item = String>) -> Option<Vec<CString>> {
    texts.into_iter().map(|text| CString::new(text).ok()).collect()
}

/// A path as seen by the pool's workers, which may have a different root directory.
fn inside(pool: &PoolConfig, path: &Path) -> PathBuf {
    let beneath = pool.chroot.as_ref().and_then(|root| path.strip_prefix(root).ok());
    beneath.map_or_else(|| path.to_owned(), |beneath| Path::new("/").join(beneath))
}

impl Engine {
    /// Starts PHP. `None` if PHP refused; it has written the reason to standard error. Call it
    /// once.
    pub(crate) fn start(startup: &Startup<'_>) -> Option<Self> {
        let text = |bytes: &[u8]| CString::new(bytes).ok();
        let ini_dir = text(startup.ini_dir.as_os_str().as_bytes())?;
        let pool = startup.pool;
        let settings = strings(settings::lines(pool))?;
        let settings: Vec<_> = settings.iter().map(|s| s.as_ptr()).collect();
        let fixed = strings(pool.php_admin_values.iter().map(|(name, _)| name.clone()))?;
        let fixed: Vec<_> = fixed.iter().map(|name| name.as_ptr()).collect();
        let environment: Vec<_> = startup.environment.iter().map(|text| text.as_ptr()).collect();
        let name = text(pool.name.as_bytes())?;
        let folder = text(pool.chdir.as_os_str().as_bytes())?;
        let worker = pool.worker.as_ref();
        let script = match worker {
            Some(worker) => Some(text(inside(pool, &worker.file).as_os_str().as_bytes())?),
            None => None,
        };
        let start = CStartup {
            ini_dir: ini_dir.as_ptr(),
            defines: settings.as_ptr(),
            define_count: settings.len(),
            pool: name.as_ptr(),
            fixed: fixed.as_ptr(),
            fixed_count: fixed.len(),
            environment: environment.as_ptr(),
            environment_count: environment.len(),
            folder: folder.as_ptr(),
            stuck_signal: stuck_signal().as_raw(),
            orphan_time: u64::try_from(startup.orphan_time.as_millis()).unwrap_or(u64::MAX).max(1),
            worker_script: script.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            max_memory: worker.and_then(|worker| worker.max_memory).unwrap_or_default(),
            max_age: worker.and_then(|worker| worker.max_age).map_or(0, |age| age.as_secs().max(1)),
            said: startup.said.map_or(-1, AsRawFd::as_raw_fd),
        };
        // SAFETY: the strings and the arrays live through the call, which copies what it keeps.
        let result = unsafe { sendoff_php_startup(&raw const start) };
        (result == 0).then_some(Self(()))
    }

    /// Serves requests in a forked child until the front or `max_requests` (0: no limit) ends it;
    /// returns the exit status. Without a guard no files are handed over. On `slow` the worker
    /// receives files to write backtraces to; on `status` it asks the front for the state of the
    /// pool.
    pub(crate) fn serve(
        &self,
        links: Vec<OwnedFd>,
        guard: Option<OwnedFd>,
        slow: Option<OwnedFd>,
        status: OwnedFd,
        busy: BorrowedFd<'_>,
        max_requests: u64,
    ) -> i32 {
        let links: Vec<c_int> = links.into_iter().map(IntoRawFd::into_raw_fd).collect();
        let guard = guard.map_or(-1, IntoRawFd::into_raw_fd);
        let slow = slow.map_or(-1, IntoRawFd::into_raw_fd);
        let (status, busy) = (status.into_raw_fd(), busy.as_raw_fd());
        let count = links.len();
        // SAFETY: the array lives through the call, which takes ownership of the descriptors except
        // `busy`, which outlives it. PHP's long jumps stay inside it.
        unsafe { sendoff_php_serve(links.as_ptr(), count, guard, slow, status, busy, max_requests) }
    }
}
