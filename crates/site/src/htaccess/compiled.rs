//! Compiled `.htaccess` files, shared by all sites and event loops of the process.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use lru::LruCache;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use sendoff_htaccess as apache;
use sendoff_htaccess::CacheLines;
use sendoff_static_files::{Identity, SETTLED, open_regular};

/// The most bytes of all files together. A file beyond the limit replaces the least recently used
/// ones.
const MAX_WEIGHT: usize = 128 << 20;

static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Compiled {
    files: LruCache<PathBuf, CompiledFile>,
    weight: usize,
}

#[derive(Debug)]
struct CompiledFile {
    /// `None`: the file is read again each time.
    version: Option<Identity>,
    rules: Arc<apache::File>,
}

impl Default for Compiled {
    fn default() -> Self {
        Self { files: LruCache::unbounded(), weight: 0 }
    }
}

impl Compiled {
    fn get(
        &mut self,
        path: &Path,
        version: &Identity,
        lines: CacheLines,
    ) -> Option<Arc<apache::File>> {
        let is_it = |known: &&CompiledFile| {
            known.version == Some(*version) && known.rules.cache_lines() == lines
        };
        let known = self.files.get(path).filter(is_it)?;
        Some(Arc::clone(&known.rules))
    }

    /// True if these remarks were already logged.
    fn has_remarks(&self, path: &Path, remarks: &[apache::Remark]) -> bool {
        let before = self.files.peek(path).map(|known| known.rules.remarks());
        before.unwrap_or_default() == remarks
    }

    fn keep(&mut self, path: &Path, known: CompiledFile) {
        self.weight += known.rules.weight();
        if let Some((_, before)) = self.files.push(path.to_owned(), known) {
            self.weight -= before.rules.weight();
        }
        while self.weight > MAX_WEIGHT {
            let Some((_, oldest)) = self.files.pop_lru() else { break };
            self.weight -= oldest.rules.weight();
        }
    }
}

fn compiled() -> MutexGuard<'static, Compiled> {
    COMPILED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rules of a file in its current state; `None`: there is no file. An unreadable or overlong
/// file refuses its folder. `name` is the file's absolute name, and `path` leads to it from
/// `folder`.
pub(super) fn rules(
    name: &Path,
    folder: BorrowedFd<'_>,
    path: &OsStr,
    lines: CacheLines,
) -> Option<Arc<apache::File>> {
    let version = match rustix::fs::statx(folder, path, AtFlags::empty(), StatxFlags::BASIC_STATS) {
        Ok(stat) => Some(Identity::of(&stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => return None,
        Err(_) => None,
    };
    if let Some(rules) = version.and_then(|version| compiled().get(name, &version, lines)) {
        return Some(rules);
    }
    let shown = name.display().to_string();
    let (version, rules) = match read(folder, path) {
        Ok((version, bytes)) => (Some(version), apache::File::parse(&bytes, &shown, lines)),
        Err(error) => {
            let why = format!("it cannot be read: {error}");
            (None, apache::File::unreadable(&shown, &why))
        }
    };
    // A version that is too recent is not trusted: another change within the same tick of the
    // kernel's clock would go unnoticed.
    let version = version.filter(|version| version.is_older_than(SETTLED, SystemTime::now()));
    let rules = Arc::new(rules);
    let mut compiled = compiled();
    if !compiled.has_remarks(name, rules.remarks()) {
        log(name, rules.remarks());
    }
    compiled.keep(name, CompiledFile { version, rules: Arc::clone(&rules) });
    Some(rules)
}

/// Reads a file. Returns its contents and the state that they belong to.
fn read(folder: BorrowedFd<'_>, path: &OsStr) -> io::Result<(Identity, Vec<u8>)> {
    let (file, version) = open_regular(folder, path)?;
    let mut bytes = Vec::new();
    // Reads one byte more than is allowed, so that the parser notices an overlong file.
    file.take(apache::MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
    Ok((version, bytes))
}

/// Logs the lines of a file that have no effect.
fn log(name: &Path, remarks: &[apache::Remark]) {
    for apache::Remark { line, severity, text } in remarks {
        let (name, effect) = (name.display(), severity.effect());
        match severity {
            apache::Severity::Ignored => tracing::info!("{name}:{line}: {text} ({effect})"),
            _ => tracing::warn!("{name}:{line}: {text} ({effect})"),
        }
    }
}
