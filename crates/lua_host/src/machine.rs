//! Implements the machine's services for scripts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sendoff_lua::{Machine, Stat};

use super::content::Files;

/// The machine as the front's user may access it.
#[derive(Debug)]
pub(super) struct FrontMachine(pub(super) Rc<Files>);

/// Maximum number of names read from a folder: the event loop is blocked meanwhile.
const MAX_NAMES: usize = 10_000;

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Machine for FrontMachine {
    fn stat(&self, name: &[u8]) -> Option<Stat> {
        let found = fs::metadata(path(name)).ok()?;
        let entry = if found.is_file() { self.0.open(name).ok() } else { None };
        Some(Stat {
            mode: found.mode(),
            inode: found.ino(),
            size: i64::try_from(found.size()).unwrap_or(i64::MAX),
            uid: found.uid(),
            gid: found.gid(),
            accessed: (found.atime(), found.atime_nsec()),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            content_type: entry.as_ref().map(|entry| entry.content_type.clone()),
            etag: entry.map(|entry| entry.etag.clone()),
        })
    }

    fn list(&self, name: &[u8]) -> Option<Vec<Vec<u8>>> {
        let entries = fs::read_dir(path(name)).ok()?.take(MAX_NAMES);
        Some(entries.filter_map(|entry| Some(entry.ok()?.file_name().into_vec())).collect())
    }

    fn link(&self, name: &[u8]) -> Option<Vec<u8>> {
        Some(fs::read_link(path(name)).ok()?.into_os_string().into_vec())
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn random(&self) -> u32 {
        fastrand::u32(..)
    }
}

/// Processor time of this thread.
pub(super) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
