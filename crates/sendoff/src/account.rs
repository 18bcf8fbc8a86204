//! The accounts that the front and the workers run as.

use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sendoff_config::{Account, Config};
use sendoff_settings::Chosen;
use sendoff_sys::process::{find_account, find_group, find_user};

/// Account for the scripts of a folder that root owns: Debian's user for web servers.
const WEB_USER: &str = "www-data";

/// The user that the packages create for the front.
const FRONT_USER: &str = "sendoff";

/// Users that systemd assigns to services without one of their own (systemd.exec(5),
/// `DynamicUser=`). No account has these numbers. The front takes one of them if there is no
/// [`FRONT_USER`].
const UNASSIGNED: RangeInclusive<u32> = 61184..=65519;

/// The account to change to. Without one the server keeps its user, which is not root. Only root
/// can change its user, and PHP runs as root only if the configuration names root.
pub(crate) fn choose(user: Option<&str>, root: &Path) -> Result<Chosen, String> {
    let uid = rustix::process::geteuid();
    let chosen = |account| Chosen { account, warning: None };
    let Some(name) = user else {
        let account = if uid.is_root() { Some(of_folder(root)?) } else { None };
        return Ok(chosen(account));
    };
    let account = find(name).ok_or_else(|| unknown(name))?;
    if uid.is_root() {
        Ok(chosen(Some(account)))
    } else if account.uid == uid.as_raw() {
        Ok(chosen(None))
    } else {
        Err(format!(
            "only root can run PHP as another user, here {name}: start as root, or leave it out"
        ))
    }
}

/// The id of a group that workers can be given.
pub(crate) fn group(name: &str) -> Result<u32, String> {
    let gid = find_group(name).ok_or_else(|| format!("there is no group {name}"))?;
    if rustix::process::geteuid().is_root() || gid == rustix::process::getegid().as_raw() {
        Ok(gid)
    } else {
        Err(format!("only root can run PHP with another group, here {name}"))
    }
}

/// The owner of a folder, or the user of web servers if root owns it.
fn of_folder(folder: &Path) -> Result<Account, String> {
    let shown = folder.display();
    let owner = std::fs::metadata(folder).map_err(|error| format!("{shown}: {error}"))?;
    if owner.uid() != 0 {
        return Ok(Account { uid: owner.uid(), gid: owner.gid() });
    }
    find(WEB_USER).ok_or_else(|| {
        format!(
            "{shown} belongs to root, and there is no user {WEB_USER} to run its scripts: name one"
        )
    })
}

/// Says why a user is not found, and suggests its name if `name` is a user's number.
fn unknown(name: &str) -> String {
    match name.parse().ok().and_then(find_user) {
        Some(user) => format!(
            "there is no user {name}: write its name, which is {}",
            user.name.to_string_lossy()
        ),
        None => format!("there is no user {name}: `getent passwd` lists those that there are"),
    }
}

/// The account that the front has for itself if root has started the server; `None` if the front
/// keeps the supervisor's user. The account owns no script and no file, so scripts can neither
/// signal nor trace the front, not even scripts of the user whose files the front serves.
pub(crate) fn of_front(config: &Config) -> Option<Account> {
    let files = config.account.filter(|account| account.uid != 0)?;
    let of_pools = config.pools.iter().filter_map(|pool| pool.account);
    let taken: Vec<u32> = of_pools.chain([files]).map(|account| account.uid).collect();
    let is_free = |account: &Account| !taken.contains(&account.uid) && account.uid != 0;
    let unassigned = || {
        let mut free = UNASSIGNED.filter(|uid| find_user(*uid).is_none());
        free.next().map(|uid| Account { uid, gid: uid })
    };
    find(FRONT_USER).filter(is_free).or_else(unassigned)
}

fn find(name: &str) -> Option<Account> {
    find_account(name).map(|account| Account { uid: account.uid, gid: account.gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_run_as_root_by_name_alone() {
        let of = |user| choose(user, Path::new("/")).map(|chosen| chosen.account);
        if rustix::process::geteuid().is_root() {
            assert_eq!(of(Some("root")), Ok(Some(Account { uid: 0, gid: 0 })));
            assert_eq!(of(None).unwrap(), Some(find(WEB_USER).unwrap()));
        } else {
            assert_eq!(of(None), Ok(None));
            assert!(of(Some("root")).is_err());
        }
    }
}
