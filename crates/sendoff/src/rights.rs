//! Privileges that the processes of the server give up (`docs/security.md`).

use std::io::ErrorKind;
use std::path::PathBuf;

use rustix::process::{Gid, Uid};
use rustix::thread::CapabilitySet;
use sendoff_config::{Account, Config};
use sendoff_sandbox::Landlock;
use sendoff_sys::process::{become_user, become_user_with_files_of};

use crate::account;
use crate::failure::Failure;
use crate::machine::{Inode, inode};

/// Hides this process from other processes of its user. Must be called again after a change of
/// user.
///
/// # Errors
/// The system refuses it.
pub(crate) fn hide() -> Result<(), Failure> {
    sendoff_sandbox::hide().map_err(Failure::system("cannot hide from other processes"))
}

/// Changes this process, started by root, to the front's own user, with access to the files of the
/// configured user. If the configuration names root, it stays root. Must be called before threads
/// start.
///
/// # Errors
/// The system refuses it.
pub(crate) fn become_front(config: &Config) -> Result<(), Failure> {
    sendoff_sandbox::forgo_new_privileges()
        .map_err(Failure::system("cannot give up privileges"))?;
    let Some(files @ Account { uid: 1.., .. }) = config.account else { return Ok(()) };
    let ids = |account: Account| (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let failed = Failure::system(format!("cannot become user {}", files.uid));
    if let Some(own) = account::of_front(config) {
        match become_user_with_files_of(ids(own), ids(files)) {
            // The user namespace of a container may not have this user.
            Err(error) if error.kind() == ErrorKind::InvalidInput => tracing::warn!(
                "the front runs as user {}, whom scripts may run as, too: there is no user {} here",
                files.uid,
                own.uid
            ),
            done => return done.map_err(failed).and_then(|()| hide()),
        }
    }
    let (uid, gid) = ids(files);
    become_user(uid, gid, CapabilitySet::empty(), || Ok(())).map_err(failed)?;
    hide()
}

/// The folders that the front may change, with their inodes when its rules were made. The rules are
/// for these folders, and not for others that get their names later.
#[derive(Debug)]
pub(crate) struct WritableFolders(Vec<(PathBuf, Option<Inode>)>);

impl WritableFolders {
    fn of(config: &Config) -> Self {
        let temporary = std::env::temp_dir();
        let folders = [temporary, config.front.page_cache.folder.clone()];
        Self(folders.map(|folder| (folder.clone(), inode(&folder))).into())
    }

    /// Warns of folders in whose place others are now.
    pub(crate) fn warn_of_others(&self) {
        for (folder, known) in &self.0 {
            if inode(folder).is_some_and(|now| Some(now) != *known) {
                tracing::warn!(
                    "{} was replaced or mounted since the server was started, which may not write there now: `sendoff upgrade` lets it",
                    folder.display()
                );
            }
        }
    }
}

/// Confines the front to the folders that it may change and the system calls that it needs. Rules
/// that the kernel lacks are left out; `sendoff status` shows that. Must be called last, before
/// threads start. Returns the folders.
pub(crate) fn confine_front(config: &Config) -> WritableFolders {
    let folders = WritableFolders::of(config);
    let paths: Vec<_> = folders.0.iter().map(|(folder, _)| folder.as_path()).collect();
    match sendoff_sandbox::write_only_beneath(&paths) {
        Ok(Landlock::Whole) => {}
        Ok(Landlock::Partial) => tracing::debug!("the kernel is older than some rules for files"),
        Ok(Landlock::Missing) => tracing::debug!("the kernel has no rules for files (Landlock)"),
        Err(error) => tracing::warn!(%error, "the front is not confined to its folders"),
    }
    if let Err(error) = sendoff_sandbox::allow_only_known() {
        tracing::debug!(%error, "the system calls of the front are not filtered");
    }
    folders
}
