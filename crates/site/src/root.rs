//! Folders of a site that are reached through a symbolic link, such as `current` that leads to a
//! release. Requests use another release as soon as the link leads there.
//!
//! A site is opened by the paths without links, so all data of a request belong to the same
//! release: its files, `SCRIPT_FILENAME` (by which opcache identifies scripts) and `DOCUMENT_ROOT`.
//! Checking a link costs one `stat` per request, for these sites only.

use std::borrow::Cow;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sendoff_config::{FolderLink, LinkedFolder, Site};

/// The links to folders, and their targets when the site was opened.
#[derive(Debug, Default)]
pub(super) struct Release(Vec<OpenedLink>);

#[derive(Debug)]
struct OpenedLink {
    path: PathBuf,
    /// Device and inode. The site keeps the folder open, so the inode number is not reused. `None`:
    /// the link had no target.
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
            links.push(OpenedLink { path: link.clone(), identity: Some(identity) });
            site.to_mut().root = root;
        }
        for FolderLink { folder, link } in &config.links {
            let found = target(link).ok();
            let identity = found.as_ref().map(|(_, identity)| *identity);
            links.push(OpenedLink { path: link.clone(), identity });
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
        Ok((Self(links), site))
    }

    /// True if the links still lead to the same folders. A link without a target counts as
    /// unchanged.
    pub(super) fn is_current(&self) -> bool {
        self.0.iter().all(|link| {
            identity(&link.path).map_or(true, |identity| Some(identity) == link.identity)
        })
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
