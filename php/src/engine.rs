//! PHP itself: the arguments of its start, and the call into the C of the SAPI that serves
//! requests.
#![allow(unsafe_code, reason = "the call into the SAPI's C")]

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sendoff_config::{PoolConfig, php_settings};
use sendoff_sys::process::real_time_signal;

// Linked for the C code, which calls the worker through it.
use sendoff_capi as _;

/// `sendoff_php_start` of `php_sendoff.h`.
#[derive(Debug)]
#[repr(C)]
pub struct CStartup {
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

/// C strings, and the array of their addresses.
#[derive(Debug)]
struct Texts {
    addresses: Vec<*const c_char>,
    _texts: Vec<CString>,
}

impl Texts {
    fn new(texts: Vec<CString>) -> Self {
        // A string stays where it is when the vector is moved.
        Self { addresses: texts.iter().map(|text| text.as_ptr()).collect(), _texts: texts }
    }

    /// `None` if a text contains a NUL.
    fn of(texts: impl IntoIterator<Item = String>) -> Option<Self> {
        let texts = texts.into_iter().map(|text| CString::new(text).ok());
        texts.collect::<Option<Vec<_>>>().map(Self::new)
    }
}

/// Arguments of PHP's start, as the C of the SAPI reads them.
#[derive(Debug)]
pub struct StartArguments {
    start: CStartup,
    /// The memory that `start` points to.
    _texts: ([Texts; 3], [Option<CString>; 3]),
}

impl StartArguments {
    /// The arguments for a pool. `environment` is the environment of scripts, each `NAME=VALUE`;
    /// `orphan_time` is the time for a worker's request after the death of its master; `said` is a
    /// file for PHP's messages, in addition to the log, and must stay open until PHP has started.
    /// `None`: a text contains a NUL.
    pub(crate) fn new(
        pool: &PoolConfig,
        environment: Vec<CString>,
        orphan_time: Duration,
        said: Option<&OwnedFd>,
    ) -> Option<Self> {
        let text = |bytes: &[u8]| CString::new(bytes).ok();
        let defines = Texts::of(php_settings::lines(pool))?;
        let fixed = Texts::of(pool.php_admin_values.iter().map(|(name, _)| name.clone()))?;
        let environment = Texts::new(environment);
        let name = text(pool.name.as_bytes())?;
        let folder = text(pool.chdir.as_os_str().as_bytes())?;
        let worker = pool.worker.as_ref();
        let script = match worker {
            Some(worker) => Some(text(inside(pool, &worker.file).as_os_str().as_bytes())?),
            None => None,
        };
        let start = CStartup {
            defines: defines.addresses.as_ptr(),
            define_count: defines.addresses.len(),
            pool: name.as_ptr(),
            fixed: fixed.addresses.as_ptr(),
            fixed_count: fixed.addresses.len(),
            environment: environment.addresses.as_ptr(),
            environment_count: environment.addresses.len(),
            folder: folder.as_ptr(),
            stuck_signal: stuck_signal().as_raw(),
            orphan_time: u64::try_from(orphan_time.as_millis()).unwrap_or(u64::MAX).max(1),
            worker_script: script.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            max_memory: worker.and_then(|worker| worker.max_memory).unwrap_or_default(),
            max_age: worker.and_then(|worker| worker.max_age).map_or(0, |age| age.as_secs().max(1)),
            said: said.map_or(-1, AsRawFd::as_raw_fd),
        };
        let texts = ([defines, fixed, environment], [Some(name), Some(folder), script]);
        Some(Self { start, _texts: texts })
    }

    /// The arguments for C, valid as long as this value.
    #[must_use]
    pub fn as_ptr(&self) -> *const CStartup {
        &raw const self.start
    }
}

/// The signal on which a worker writes the PHP backtrace of its script to standard error and ends.
/// The worker installs the handler before its first request.
pub(crate) fn stuck_signal() -> Signal {
    real_time_signal(0)
}

/// A path as seen by the pool's workers, which may have a different root directory.
fn inside(pool: &PoolConfig, path: &Path) -> PathBuf {
    let beneath = pool.chroot.as_ref().and_then(|root| path.strip_prefix(root).ok());
    beneath.map_or_else(|| path.to_owned(), |beneath| Path::new("/").join(beneath))
}

/// Serves requests in a forked child until the front or `max_requests` (0: no limit) ends it;
/// returns the exit status. PHP must have started. Without a guard no files are handed over. On
/// `slow` the worker receives files to write backtraces to; on `status` it asks the front for the
/// state of the pool.
pub(crate) fn serve_requests(
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
