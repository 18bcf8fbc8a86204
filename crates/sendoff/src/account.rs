//! Which user the front and the workers run as.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sendoff_config::Account;
use sendoff_settings::Chosen;
use sendoff_sys::process::find_account;

/// The account to change to. Only root can change.
pub(crate) fn choose(user: Option<&str>, root: &Path) -> Result<Chosen, String> {
    let uid = rustix::process::geteuid();
    let chosen = |account| Chosen { account, warning: None };
    let Some(name) = user else {
        if !uid.is_root() {
            return Ok(chosen(None));
        }
        let owner =
            std::fs::metadata(root).map_err(|error| format!("{}: {error}", root.display()))?;
        if owner.uid() == 0 {
            let root = root.display();
            let warning = format!(
                "{root} belongs to root, so PHP runs as root: better say --user www-data, in a file user = \"www-data\""
            );
            return Ok(Chosen { account: None, warning: Some(warning) });
        }
        return Ok(chosen(Some(Account { uid: owner.uid(), gid: owner.gid() })));
    };
    let account = find_account(name).ok_or_else(|| format!("there is no user {name}"))?;
    let account = Account { uid: account.uid, gid: account.gid };
    if account.uid == uid.as_raw() {
        Ok(chosen(None))
    } else if uid.is_root() {
        Ok(chosen(Some(account)))
    } else {
        Err(format!("only root can run PHP as another user, here {name}"))
    }
}
