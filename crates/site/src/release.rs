//! Folders of a site that are replaced: by a symbolic link, such as `current`, that leads to another
//! release, or by a folder that takes their name. Requests use a new release as soon as the link
//! leads there, and a folder with a known name within [`FOLDER_CHECK`].
//!
//! A site is opened by the paths without links, so all data of a request belong to the same
//! release: its files, `SCRIPT_FILENAME` (by which opcache identifies scripts) and `DOCUMENT_ROOT`.
//! Checking a link costs one `stat` per request, for these sites only.

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sendoff_config::{FolderLink, LinkedFolder, Site};

/// Folders are looked up by their names again after this time.
const FOLDER_CHECK: Duration = Duration::from_millis(100);

/// The folders of a site and the links to them, as they were when the site was opened.
#[derive(Debug)]
pub(super) struct Release {
    links: Vec<Opened>,
    /// The root and the aliases, without links.
    folders: Vec<Opened>,
    /// The time of the last check of the folders.
    checked: Cell<Instant>,
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    /// Device and inode. The site keeps the folder open, so the inode number is not reused. `None`:
    /// there was no folder.
    identity: Option<(u64, u64)>,
}

impl Release {
    /// The configuration with the folders that its links lead to now. A folder other than the root
    /// whose link has no target stays as it is in the configuration.
    ///
    /// # Errors
    /// The link of the root has no target.
    pub(super) fn of(config: &Site) -> io::Result<(Self, Cow<'_, Site>)> {
        let (mut links, mut site) = (Vec::new(), Cow::Borrowed(config));
        if let Some(link) = &config.root_link {
            let (root, identity) = target(link)?;
            links.push(Opened { path: link.clone(), identity: Some(identity) });
            site.to_mut().root = root;
        }
        for FolderLink { folder, link } in &config.links {
            let found = target(link).ok();
            let identity = found.as_ref().map(|(_, identity)| *identity);
            links.push(Opened { path: link.clone(), identity });
            let Some((path, _)) = found else { continue };
            let site = site.to_mut();
            match *folder {
                LinkedFolder::Alias(number) => site.aliases[number].folder = path,
                LinkedFolder::Accel(number) => site.accel[number].folder = path,
                // An application that was started in the last release goes on to name its files.
                LinkedFolder::SendfileFrom if site.sendfile_from.contains(&path) => {}
                LinkedFolder::SendfileFrom => site.sendfile_from.push(path),
            }
        }
        let folders = site.aliases.iter().map(|alias| &alias.folder).chain([&site.root]);
        let folders = folders
            .map(|path| Opened { path: path.clone(), identity: identity(path).ok() })
            .collect();
        Ok((Self { links, folders, checked: Cell::new(Instant::now()) }, site))
    }

    /// True if the links and the names of folders still lead to the same folders. A name that leads
    /// to no folder counts as unchanged.
    pub(super) fn is_current(&self) -> bool {
        let now = Instant::now();
        self.links.iter().all(Opened::is_current)
            && (now.duration_since(self.checked.get()) < FOLDER_CHECK || {
                self.checked.set(now);
                self.folders.iter().all(Opened::is_current)
            })
    }
}

impl Opened {
    fn is_current(&self) -> bool {
        identity(&self.path).map_or(true, |identity| Some(identity) == self.identity)
    }
}

/// The folder that a link leads to.
fn target(link: &Path) -> io::Result<(PathBuf, (u64, u64))> {
    let folder = link.canonicalize()?;
    let identity = identity(&folder)?;
    Ok((folder, identity))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let data = path.metadata()?;
    if data.is_dir() {
        Ok((data.dev(), data.ino()))
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}
