//! The files of pages.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use tempfile::{Builder, NamedTempFile};

use crate::page::{Facts, Page};

/// Most bytes of a file with facts: more than a response head may have.
const MOST_FACTS: u64 = 1 << 20;

/// Letters and digits in a random file name.
const RANDOM_LETTERS: usize = 16;

/// The folder of pages.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the file with this name.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a file for a body, with a unique name. Its lock tells other fronts that it is still
    /// being written.
    pub(super) fn new_body(&self) -> io::Result<NamedTempFile> {
        let file = self.new_file(".body")?;
        flock(file.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Creates a file with a random name, which is removed unless it is kept.
    fn new_file(&self, suffix: &str) -> io::Result<NamedTempFile> {
        Builder::new().prefix("").suffix(suffix).rand_bytes(RANDOM_LETTERS).tempfile_in(&self.0)
    }

    /// Writes the facts of a page whose body is written: from now on the page exists.
    pub(super) fn write_facts(&self, page: &Page) -> io::Result<()> {
        let mut file = self.new_file(".new")?;
        file.write_all(&serde_json::to_vec(page.facts())?)?;
        file.persist(self.file(&page.name()))?;
        Ok(())
    }

    /// Removes the files of a page. The facts stay if a newer page has their name.
    pub(super) fn remove(&self, page: &Page) {
        let facts = self.file(&page.name());
        let is_its_own = read_facts(&facts).is_ok_and(|facts| facts.body == page.facts().body);
        if is_its_own {
            let _ = fs::remove_file(facts);
        }
        let _ = fs::remove_file(self.file(&page.facts().body));
    }

    /// Reads the facts with this name, and checks the body that they name.
    pub(super) fn read_page(&self, name: &str) -> io::Result<Page> {
        let facts = read_facts(&self.file(name))?;
        // The name comes from a file: it must not lead outside the folder.
        if facts.body.contains('/') || !facts.body.ends_with(".body") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let page = Page::new(facts);
        let facts = page.facts();
        let (file, len) = open(&self.file(&facts.body))?;
        if page.name() != name || !page.is_possible() || len != facts.len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = Vec::new();
        file.take(len).read_to_end(&mut body)?;
        if body.len() as u64 == len && crc32fast::hash(&body) == facts.crc {
            Ok(page)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// Opens a file of the folder. Also returns its length. Scripts of the same user can put anything
/// there: `O_NONBLOCK` keeps a pipe from blocking the caller, and `O_NOFOLLOW` refuses links.
///
/// # Errors
/// The file cannot be opened or is not a regular file.
pub(super) fn open(path: &Path) -> io::Result<(File, u64)> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    if data.is_file() { Ok((file, data.len())) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn read_facts(path: &Path) -> io::Result<Facts> {
    let (file, len) = open(path)?;
    if len > MOST_FACTS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    file.take(len).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// True if a page is damaged or has lost its body. After other errors it may be readable later, for
/// example when descriptors are free.
pub(super) fn is_damage(error: &io::Error) -> bool {
    error.raw_os_error().is_none() || error.kind() == io::ErrorKind::NotFound
}

/// True if a front is writing this body.
pub(super) fn is_being_written(path: &Path) -> bool {
    let lock = |(file, _)| flock(file, FlockOperation::NonBlockingLockShared);
    matches!(open(path).map(lock), Ok(Err(_)))
}

/// True if the file contains facts: its name is the hexadecimal digits of a hash.
pub(super) fn is_facts(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
