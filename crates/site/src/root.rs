//! Folders of a site that are reached through a symbolic link, as `current` leads to a release: requests see another release as soon as the
//! link leads there.
//!
//! A site is opened by paths without links, so everything about a request is of one release: its files, `SCRIPT_FILENAME` (by
//! which opcache knows scripts) and `DOCUMENT_ROOT`. Whether a link still leads there costs one `stat` per request, which only such
//! sites pay.

use std::borrow::Cow;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sendoff_config::{FolderLink, LinkedFolder, Site};

/// The links to folders, and their targets when the site was opened.
#[derive(Debug, Default)]
pub(super) struct Release(Vec<Link>);

#[derive(Debug)]
struct Link {
    path: PathBuf,
    /// Device and inode. The site keeps the folder open, so the inode is not given to another one. `None`: the link led nowhere.
    identity: Option<(u64, u64)>,
}

impl Release {
    /// The configuration with the folders that its links lead to now. A folder beside the root, whose link leads nowhere, stays as it is
    /// in the configuration.
    ///
    /// # Errors
    /// The link of the root leads nowhere.
    pub(super) fn of(config: &Site) -> io::Result<(Self, Cow<'_, Site>)> {
        let (mut links, mut site) = (Vec::new(), Cow::Borrowed(config));
        if let Some(link) = &config.root_link {
            let (root, identity) = target(link)?;
            links.push(Link { path: link.clone(), identity: Some(identity) });
            site.to_mut().root = root;
        }
        for FolderLink { folder, link } in &config.links {
            let found = target(link).ok();
            let identity = found.as_ref().map(|(_, identity)| *identity);
            links.push(Link { path: link.clone(), identity });
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

    /// True if the links still lead there. A link counts as unchanged while it leads nowhere.
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
