//! Watches the source files of an application, for developers: when a file changes, the workers
//! boot again.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use crate::log::log;

/// Endings of an application's source files.
const ENDINGS: [&str; 12] =
    ["php", "phtml", "twig", "latte", "env", "yaml", "yml", "xml", "json", "ini", "neon", "lock"];

/// Folders with files that an application writes itself, or with thousands of third-party files.
const PASSED_OVER: [&str; 6] = ["node_modules", "vendor", "var", "cache", "storage", "tmp"];

/// Maximum number of watched folders; each costs memory of the kernel
/// (fs.inotify.max_user_watches).
const MOST_FOLDERS: usize = 10_000;

/// Size of the buffer for events, in bytes.
const ROOM: usize = 4096;

/// Watches the folders of an application.
#[derive(Debug)]
pub(crate) struct Watch {
    events: OwnedFd,
    folders: HashMap<i32, PathBuf>,
    /// True after a warning that there are too many folders, or that one cannot be watched.
    has_complained: bool,
}

impl Watch {
    /// Watches these folders and their subfolders.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(roots: &[PathBuf]) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut watch = Self { events, folders: HashMap::new(), has_complained: false };
        roots.iter().for_each(|root| watch.add(root));
        Ok(watch)
    }

    /// The descriptor that becomes readable when there are events.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// The last of the source files that have changed since the previous call. New folders are
    /// watched, too.
    pub(crate) fn changed(&mut self) -> Option<PathBuf> {
        let mut room = [MaybeUninit::uninit(); ROOM];
        let (mut changed, mut new) = (None, Vec::new());
        let events = self.events.try_clone().ok()?;
        let mut reader = Reader::new(events, &mut room);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::IGNORED) {
                self.folders.remove(&event.wd());
                continue;
            }
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // The lost events may concern any file.
                changed = self.folders.values().next().cloned();
                continue;
            }
            let (Some(folder), Some(name)) = (self.folders.get(&event.wd()), event.file_name())
            else {
                continue;
            };
            let name = OsStr::from_bytes(name.to_bytes());
            let path = folder.join(name);
            if event.events().contains(ReadFlags::ISDIR) {
                new.push(path);
            } else if is_source(name) {
                changed = Some(path);
            }
        }
        for folder in new {
            // Files may have been added to the folder before it was watched.
            changed = self.add_new(&folder).or(changed);
        }
        changed
    }

    /// Watches a new folder, and returns a source file that it already contains.
    fn add_new(&mut self, folder: &Path) -> Option<PathBuf> {
        if is_passed_over(folder) || !folder.is_dir() {
            return None;
        }
        self.add(folder);
        let files = std::fs::read_dir(folder).ok()?;
        let mut files = files.flatten().map(|entry| entry.path());
        files.find(|file| file.file_name().is_some_and(is_source))
    }

    fn add(&mut self, root: &Path) {
        let mut left = vec![root.to_owned()];
        while let Some(folder) = left.pop() {
            if self.folders.len() >= MOST_FOLDERS {
                self.complain(format_args!("only {MOST_FOLDERS} folders are watched"));
                return;
            }
            let flags = WatchFlags::CLOSE_WRITE
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::ONLYDIR;
            match inotify::add_watch(&self.events, &folder, flags) {
                Ok(number) => drop(self.folders.insert(number, folder.clone())),
                Err(error) => {
                    self.complain(format_args!("{} is not watched: {error}", folder.display()));
                    continue;
                }
            }
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            // Symbolic links are not followed, so there are no cycles.
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            left.extend(folders.map(|entry| entry.path()).filter(|path| !is_passed_over(path)));
        }
    }

    fn complain(&mut self, what: std::fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.has_complained, true) {
            log(what);
        }
    }
}

/// True for names of an application's source files. Names that begin with a dot belong to temporary
/// files of editors, except `.env`.
fn is_source(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    if name.starts_with('.') {
        return name.starts_with(".env");
    }
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

fn is_passed_over(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || PASSED_OVER.contains(&&*name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_known_by_their_names() {
        for name in ["index.php", ".env", ".env.local", "page.html.twig", "composer.lock"] {
            assert!(is_source(OsStr::new(name)), "{name}");
        }
        for name in ["index.php~", ".index.php.swp", "notes.txt", "php", "a.log", ".git"] {
            assert!(!is_source(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn changes_are_seen_also_in_folders_that_came_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("src/deep")).unwrap();
        std::fs::create_dir(path("vendor")).unwrap();
        let mut watch = Watch::new(&[dir.path().to_owned()]).unwrap();
        assert_eq!(watch.changed(), None);
        for name in ["src/deep/A.php", "b.yaml"] {
            std::fs::write(path(name), "x").unwrap();
            assert_eq!(watch.changed(), Some(path(name)));
        }
        std::fs::write(path("vendor/c.php"), "x").unwrap();
        std::fs::write(path("notes.txt"), "x").unwrap();
        assert_eq!(watch.changed(), None);
        std::fs::create_dir(path("new")).unwrap();
        assert_eq!(watch.changed(), None);
        std::fs::write(path("new/d.php"), "x").unwrap();
        assert_eq!(watch.changed(), Some(path("new/d.php")));
        std::fs::remove_dir_all(path("new")).unwrap();
        assert_eq!(watch.changed(), Some(path("new/d.php")));
        std::fs::rename(path("b.yaml"), path("src/b.yaml")).unwrap();
        assert!(watch.changed().is_some());
        assert_eq!(watch.changed(), None);
    }
}
