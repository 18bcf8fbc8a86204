//! Which user the front and the workers run as.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sendoff_config::Account;
use sendoff_sys::process::find_account;

use crate::failure::Failure;

/// The account to change to; `None` to stay what we are. Only root can change.
pub(crate) fn choose(user: Option<&str>, root: &Path) -> Result<Option<Account>, Failure> {
    let uid = rustix::process::geteuid();
    let Some(name) = user else {
        if !uid.is_root() {
            return Ok(None);
        }
        let owner = std::fs::metadata(root).map_err(Failure::system(root.display()))?;
        if owner.uid() == 0 {
            tracing::warn!(
                "{} belongs to root, so PHP runs as root: better say --user www-data",
                root.display()
            );
            return Ok(None);
        }
        return Ok(Some(Account { uid: owner.uid(), gid: owner.gid() }));
    };
    let account = find_account(name)
        .ok_or_else(|| Failure::Input(format!("--user {name}: there is no such user")))?;
    let account = Account { uid: account.uid, gid: account.gid };
    if account.uid == uid.as_raw() {
        Ok(None)
    } else if uid.is_root() {
        Ok(Some(account))
    } else {
        Err(Failure::Input(format!("--user {name}: only root can run PHP as another user")))
    }
}
