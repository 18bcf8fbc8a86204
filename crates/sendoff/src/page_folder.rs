//! The folder of kept pages (`page_cache`). Scripts must not be able to write there, because the
//! server sends its contents to clients. If root has started the server, the folder belongs to a
//! group that only the front has. Files in the folder belong to the user whose files the front
//! serves. Scripts may run as the same user, but cannot enter the folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};

use rustix::fs::{Mode, OFlags};
use sendoff_config::{Account, Config};

use crate::account;

/// Makes the folder if the configuration keeps pages. The server also works without it, so an error
/// is only logged.
pub(crate) fn prepare(config: &Config) {
    if !config.keeps_pages() {
        return;
    }
    if let Err(error) = make(config) {
        let folder = config.front.page_cache.folder.display();
        tracing::warn!("no page is kept: the folder {folder}: {error}");
    }
}

fn make(config: &Config) -> io::Result<()> {
    let folder = &config.front.page_cache.folder;
    if let Some(parent) = folder.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let opened: File =
        OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(folder)?;
    match (account::of_front(config), config.account) {
        (Some(front), _) => {
            fchown(&opened, Some(0), Some(front.gid))?;
            Ok(rustix::fs::fchmod(&opened, Mode::RWXU | Mode::RWXG)?)
        }
        (None, Some(Account { uid, gid })) if opened.metadata()?.uid() != uid => {
            fchown(&opened, Some(uid), Some(gid))
        }
        (None, _) => Ok(()),
    }
}
