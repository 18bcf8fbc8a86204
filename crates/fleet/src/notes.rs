//! Notes on disk that purges wait. If a process ends before it has sent them, they are lost; the
//! process that has taken over, or starts next, then lets the other nodes purge everything.
//!
//! Each process has a file of its own, and a lock on it, which the kernel releases at the end of the
//! process. The file is empty while no purge waits.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock};

/// The beginning of the names of the files.
const PREFIX: &str = "fleet.unsent.";

/// The end of the name of a file without a lock.
const NEW: &str = ".new";

/// The notes in the folder of kept pages.
#[derive(Debug)]
pub(crate) struct Notes {
    folder: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The file of this process, once it belongs to a fleet.
    own: Option<File>,
    /// The files of processes that ran when this one began.
    others: Vec<(PathBuf, File)>,
}

impl Notes {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), inner: Mutex::default() }
    }

    /// Makes the file of this process, and looks for others. Returns true if purges are lost.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(crate) fn begin(&self) -> io::Result<bool> {
        let mut inner = self.lock();
        if let Some(own) = &inner.own {
            // The node has left a fleet, and belongs to another one.
            return Ok(own.metadata()?.len() > 0);
        }
        let name = format!("{PREFIX}{:016x}", fastrand::u64(..));
        let (new, path) = (self.folder.join(format!("{name}{NEW}")), self.folder.join(&name));
        let own = options().write(true).create_new(true).mode(0o600).open(&new)?;
        flock(&own, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&new, path)?;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Ok(other) = entry.file_name().into_string() else { continue };
            let is_note = other.starts_with(PREFIX) && !other.ends_with(NEW) && other != name;
            if is_note && let Ok(file) = options().read(true).open(entry.path()) {
                inner.others.push((entry.path(), file));
            }
        }
        inner.own = Some(own);
        drop(inner);
        self.look()
    }

    /// True if other processes still run.
    pub(crate) fn has_others(&self) -> bool {
        !self.lock().others.is_empty()
    }

    /// Removes the files of processes that have ended. Returns true if purges are lost: this process
    /// has noted that it has some instead.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(crate) fn look(&self) -> io::Result<bool> {
        let mut inner = self.lock();
        let has_ended = |file: &File| flock(file, FlockOperation::NonBlockingLockShared).is_ok();
        let ended: Vec<_> = inner.others.extract_if(.., |(_, file)| has_ended(file)).collect();
        let has_purges = |file: &File| file.metadata().is_ok_and(|data| data.len() > 0);
        let are_lost = ended.iter().any(|(_, file)| has_purges(file));
        if are_lost {
            inner.note(true)?;
        }
        for (path, _) in ended {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
        }
        Ok(are_lost)
    }

    /// Notes that purges wait, or that all have been sent.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub(crate) fn note(&self, is_unsent: bool) -> io::Result<()> {
        self.lock().note(is_unsent)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn note(&self, is_unsent: bool) -> io::Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        match is_unsent {
            true => own.write_all_at(b"purges wait\n", 0),
            false => own.set_len(0),
        }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_purges_are_found_once_their_process_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let begin = || {
            let notes = Notes::new(folder.path());
            (notes.begin().unwrap(), notes)
        };
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let (_, old) = begin();
        let (are_lost, new) = begin();
        old.note(true).unwrap();
        assert!(!are_lost && !new.look().unwrap() && new.has_others(), "it may send them");
        drop(old);
        assert!(new.look().unwrap() && !new.look().unwrap() && !new.has_others());
        assert_eq!(files(), 1);
        drop(new);
        let (are_lost, next) = begin();
        assert!(are_lost, "the process that took the purges over has sent none");
        next.note(false).unwrap();
        assert!(!next.begin().unwrap());
        drop(next);
        assert!(!begin().0);
    }
}
