//! The folder of kept pages (`page_cache`). Scripts must not write there: what it holds is sent to clients. Started by root, the server
//! gives the folder to the group that the front alone has. Files in it belong to the user whose files the front serves, who may run
//! scripts, too, but cannot enter the folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};

use rustix::fs::{Mode, OFlags};
use sendoff_config::{Account, Config};

use crate::account;

/// Makes the folder if pages are to be kept. Without it the server serves all the same, so an error is only logged.
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
