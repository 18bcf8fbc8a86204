//! A root that is reached through a symbolic link, such as `current` that leads to a release.
//! Requests use another release as soon as the link leads there.
//!
//! A site is opened by the path without links, so all data of a request belong to the same release:
//! its files, `SCRIPT_FILENAME` (by which opcache identifies scripts) and `DOCUMENT_ROOT`. Checking
//! the link costs one `stat` per request, for these sites only.

use std::borrow::Cow;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The target of a link when its site was opened.
#[derive(Debug)]
pub(super) struct Release {
    link: PathBuf,
    /// Device and inode. The site keeps the folder open, so the inode number is not reused.
    identity: (u64, u64),
}

impl Release {
    /// The release that the site's link leads to now, and the configuration with that folder as its
    /// root. Without a link: `None`, and the configuration as it is.
    ///
    /// # Errors
    /// The link has no target.
    pub(super) fn of(
        config: &sendoff_config::Site,
    ) -> io::Result<(Option<Self>, Cow<'_, sendoff_config::Site>)> {
        let Some(link) = &config.root_link else { return Ok((None, Cow::Borrowed(config))) };
        let root = link.canonicalize()?;
        let release = Self { link: link.clone(), identity: identity(&root)? };
        Ok((Some(release), Cow::Owned(sendoff_config::Site { root, ..config.clone() })))
    }

    /// True if the link still leads to the same folder. A link without a target counts as
    /// unchanged.
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
