//! Paths beneath a root (`openat2`): the file or folder to which a path leads, and its identity.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, StatxTimestamp,
};
use rustix::io::Errno;
use rustix::path::Arg;
use sendoff_config::Symlinks;

use super::owner;
use super::refusal::{Forbidden, Refusal, place, proc_path};
use super::writable::{self, WritingUser};

/// `openat2` fails with EAGAIN if a rename races with a `..` in a symbolic link. This is the number
/// of attempts.
const ATTEMPTS: u8 = 8;

/// The flags with which files are opened: a FIFO or a device does not block, and a terminal does
/// not become the server's controlling terminal.
const READING: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// The target of a path.
#[derive(Debug)]
pub enum Resolved {
    /// A regular file, not opened yet.
    File(Unopened, Identity),
    /// A directory.
    Directory(Identity),
}

/// Identifies a file and its state: it changes whenever the state does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: (u32, u32),
    inode: u64,
    /// The size in bytes.
    pub size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
    kind: FileType,
}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.device, self.inode, self.size, self.modified, self.changed).hash(state);
    }
}

impl Identity {
    /// The identity in a result of `statx`.
    pub fn of(stat: &Statx) -> Self {
        let time = |t: StatxTimestamp| (t.tv_sec, t.tv_nsec);
        Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            modified: time(stat.stx_mtime),
            changed: time(stat.stx_ctime),
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
        }
    }

    /// The identity of the file that a descriptor refers to.
    pub fn of_descriptor(descriptor: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::statx(descriptor, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map(|stat| Self::of(&stat))
    }

    /// True if both are the same file, possibly in different states.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode, self.kind) == (other.device, other.inode, other.kind)
    }

    /// True for a regular file.
    pub fn is_regular_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// True if both are the same directory. Its times are ignored, because they change with every
    /// file in it.
    pub fn is_same_directory(&self, other: &Self) -> bool {
        self.kind == FileType::Directory && self.is_same_file(other)
    }

    /// The last modification: seconds since 1970 (0 for earlier times) and nanoseconds.
    pub fn modified(&self) -> (u64, u32) {
        (u64::try_from(self.modified.0).unwrap_or(0), self.modified.1)
    }

    /// True if the last change of the file is at least `age` ago.
    pub fn is_older_than(&self, age: Duration, now: SystemTime) -> bool {
        let Ok(seconds) = u64::try_from(self.changed.0) else { return true };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, self.changed.1);
        now.duration_since(changed).is_ok_and(|since| since >= age)
    }
}

/// A regular file that was found but not opened for reading.
#[derive(Debug)]
pub struct Unopened(OwnedFd);

impl Unopened {
    /// Opens the file through `/proc`: only this opens exactly the file that was checked.
    pub fn open(&self) -> Result<OwnedFd, Refusal> {
        Ok(rustix::fs::openat(CWD, proc_path(&self.0), READING, Mode::empty())?)
    }
}

/// The folder that is served, and the rules for its symbolic links.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    identity: Identity,
    symlinks: Symlinks,
    follow: Vec<PathBuf>,
}

impl Root {
    /// Opens the folder `path`. `follow` lists folders outside of it that links may lead to,
    /// regardless of `symlinks`.
    ///
    /// # Errors
    /// One of the folders cannot be opened; the error names it.
    pub fn open(path: &Path, symlinks: Symlinks, follow: &[PathBuf]) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|error| named(path, &error.into()))?;
        // Canonical, because the kernel reports paths in this form.
        let follow = follow.iter().map(|folder| canonical(folder)).collect::<Result<_, _>>()?;
        let identity = Identity::of_descriptor(&directory)?;
        Ok(Self { directory, identity, symlinks, follow })
    }

    /// The identity of the folder, with its state when it was opened.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The folder's descriptor.
    pub fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Finds `path`, which is relative to the root and decoded; "" is the root.
    ///
    /// # Errors
    /// The path does not exist or must not be served.
    pub fn resolve(&self, path: &[u8]) -> Result<Resolved, Refusal> {
        let found = self.find_allowed(path)?;
        let identity = Identity::of_descriptor(&found)?;
        match identity.kind {
            FileType::RegularFile => Ok(Resolved::File(Unopened(found), identity)),
            FileType::Directory => Ok(Resolved::Directory(identity)),
            _ => Err(Refusal::Forbidden(Forbidden::NoFile)),
        }
    }

    /// The state of the file or folder at `path`, which this process may read, or search.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), or the mode forbids it.
    pub fn identity_of(&self, path: &[u8]) -> Result<Identity, Refusal> {
        let found = self.find_allowed(path)?;
        let identity = Identity::of_descriptor(&found)?;
        let access = match identity.kind {
            FileType::RegularFile => Access::READ_OK,
            FileType::Directory => Access::EXEC_OK,
            _ => return Err(Refusal::Forbidden(Forbidden::NoFile)),
        };
        rustix::fs::accessat(CWD, proc_path(&found), access, AtFlags::EACCESS)?;
        Ok(identity)
    }

    /// The names in the folder at `path`, in the order of the file system, at most this number.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), or it is no folder that the server may read.
    pub fn names(&self, path: &[u8], most: usize) -> Result<Vec<Vec<u8>>, Refusal> {
        let found = self.find_allowed(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, proc_path(&found), flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(folder)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
            if names.len() == most {
                break;
            }
        }
        Ok(names)
    }

    /// Finds a path that the rules for symbolic links allow.
    fn find_allowed(&self, path: &[u8]) -> Result<OwnedFd, Refusal> {
        if path.starts_with(b"/") || path.split(|b| *b == b'/').any(|segment| segment == b"..") {
            return Err(Refusal::Forbidden(Forbidden::Denied(Errno::XDEV)));
        }
        match self.find(path, ResolveFlags::BENEATH) {
            // The path leaves the root, or contains an absolute link, which may lead back into the
            // root.
            Err(Errno::XDEV) => self.find_outside(path),
            found => Ok(found?),
        }
    }

    /// True if symbolic links of the site may lead to this place, a path as the kernel reports it.
    pub fn follows_to(&self, place: &Path) -> bool {
        self.follow.iter().any(|folder| place.starts_with(folder))
    }

    /// The current identity of the file at `path`, in one system call. Does not check if the file
    /// may be served.
    pub fn identify(&self, path: &[u8]) -> Result<Identity, Errno> {
        let flags = StatxFlags::BASIC_STATS;
        rustix::fs::statx(&self.directory, name(path), AtFlags::empty(), flags)
            .map(|stat| Identity::of(&stat))
    }

    /// The first file or folder on the way from the root to `path`, both included, that a user may
    /// write to.
    ///
    /// # Errors
    /// The file or an access control list cannot be read.
    pub fn writable_above(
        &self,
        path: &[u8],
        user: &WritingUser,
    ) -> Result<Option<PathBuf>, Refusal> {
        writable::on_the_way(&self.directory, path, user)
    }

    /// Finds the path without opening the file (`O_PATH`), because opening a FIFO or a device can
    /// have effects.
    fn find(&self, path: &[u8], bounds: ResolveFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = bounds | ResolveFlags::NO_MAGICLINKS;
        for _ in 1..ATTEMPTS {
            match rustix::fs::openat2(&self.directory, name(path), flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                found => return found,
            }
        }
        rustix::fs::openat2(&self.directory, name(path), flags, Mode::empty(), resolve)
    }

    /// Follows symbolic links out of the root, then asks the kernel for the resulting path and
    /// checks it.
    fn find_outside(&self, path: &[u8]) -> Result<OwnedFd, Refusal> {
        let found = self.find(path, ResolveFlags::empty())?;
        if self.symlinks == Symlinks::Any {
            return Ok(found);
        }
        let place = place(&found)?;
        let root = place_of_root(&self.directory)?;
        if place.starts_with(&root) || self.follows_to(&place) {
            return Ok(found);
        }
        match self.symlinks {
            Symlinks::Owner => owner::find(&self.directory, path),
            Symlinks::Inside | Symlinks::Any => Err(Refusal::Forbidden(Forbidden::Outside(place))),
        }
    }
}

/// Opens a regular file for reading, at any place. A relative `path` begins in `folder`. A FIFO or
/// a device is refused, because reading it may never end.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open_regular(folder: impl AsFd, path: impl Arg) -> io::Result<(File, Identity)> {
    let file = rustix::fs::openat(folder, path, READING, Mode::empty())?;
    let identity = Identity::of_descriptor(&file)?;
    if identity.is_regular_file() {
        Ok((file.into(), identity))
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// The file cannot be read, is not a regular file, or is larger.
pub fn read_regular(folder: impl AsFd, path: impl Arg, most: usize) -> io::Result<Vec<u8>> {
    let (file, _) = open_regular(folder, path)?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// The path of a folder without symbolic links.
///
/// # Errors
/// The folder does not exist; the error names it.
pub fn canonical(folder: &Path) -> io::Result<PathBuf> {
    folder.canonicalize().map_err(|error| named(folder, &error))
}

fn named(folder: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

fn name(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(if path.is_empty() { b"." } else { path })
}

/// The path of the root. A root that was removed, and possibly created again, has none, and
/// contains no file.
fn place_of_root(directory: &OwnedFd) -> Result<PathBuf, Refusal> {
    let place = place(directory)?;
    let stat = rustix::fs::statx(CWD, &place, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    if Identity::of(&stat).is_same_directory(&Identity::of_descriptor(directory)?) {
        Ok(place)
    } else {
        Err(Refusal::Forbidden(Forbidden::RootReplaced))
    }
}
