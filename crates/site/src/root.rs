//! A root that is reached through a symbolic link, as `current` leads to a release: requests see another release as soon as the link
//! leads there.
//!
//! A site is opened by the path without links, so everything about a request is of one release: its files, `SCRIPT_FILENAME` (by
//! which opcache knows scripts) and `DOCUMENT_ROOT`. Whether the link still leads there costs one `stat` per request, which only such
//! sites pay.

use std::borrow::Cow;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where a link led when its site was opened.
#[derive(Debug)]
pub(super) struct Release {
    link: PathBuf,
    /// Device and inode. The site keeps the folder open, so the inode is not given to another one.
    identity: (u64, u64),
}

impl Release {
    /// The configuration with the folder that its root leads to now.
    ///
    /// # Errors
    /// The link leads nowhere.
    pub(super) fn of(
        config: &sendoff_config::Site,
    ) -> io::Result<(Option<Self>, Cow<'_, sendoff_config::Site>)> {
        let Some(link) = &config.root_link else { return Ok((None, Cow::Borrowed(config))) };
        let root = link.canonicalize()?;
        let release = Self { link: link.clone(), identity: identity(&root)? };
        Ok((Some(release), Cow::Owned(sendoff_config::Site { root, ..config.clone() })))
    }

    /// Whether the link still leads there. It counts as unchanged while it leads nowhere.
    pub(super) fn is_current(&self) -> bool {
        identity(&self.link).map_or(true, |identity| identity == self.identity)
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let data = path.metadata()?;
    if data.is_dir() {
        Ok((data.dev(), data.ino()))
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}
