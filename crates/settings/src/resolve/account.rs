//! The users and groups of processes.

use std::path::Path;

use sendoff_config::Account;
use sendoff_setting_values::{At, Free, Place};

use super::context::Context;
use crate::keys::Top;
use crate::machine::Chosen;

impl Context<'_> {
    /// The account of the server's processes. `root`: of the first site.
    pub(crate) fn server_account(&mut self, top: &Top, root: &Path) -> Option<Account> {
        let place = top.user.as_ref().map_or(Place::Default, |user| user.place);
        let name = top.user.as_ref().map(|user| user.value.0.as_str());
        match self.machine.account(name, root) {
            Ok(Chosen { account, warning }) => {
                if let Some(warning) = warning {
                    self.problems.warning(place, warning);
                }
                account
            }
            Err(says) => {
                let problem = self.problems.error(place, says);
                if name.is_some_and(|name| name.contains([' ', ':'])) {
                    problem.help("write the user alone: the group is that of the account");
                }
                None
            }
        }
    }
}

/// The account of a pool's workers.
pub(crate) fn account(user: &At<Free>, context: &mut Context<'_>) -> Option<Account> {
    match context.machine.account(Some(&user.value.0), Path::new("/")) {
        Ok(chosen) => chosen.account,
        Err(says) => {
            context.problems.error(user.place, says);
            None
        }
    }
}

/// The group of a pool's workers, with the place of its name.
pub(crate) fn group(name: &At<Free>, context: &mut Context<'_>) -> Option<(u32, Place)> {
    match context.machine.worker_group(&name.value.0) {
        Ok(gid) => Some((gid, name.place)),
        Err(says) => {
            context.problems.error(name.place, says);
            None
        }
    }
}

/// The account with another group.
pub(crate) fn with_group(
    user: Account,
    group: Option<(u32, Place)>,
    context: &mut Context<'_>,
) -> Account {
    let Some((gid, place)) = group else { return user };
    if user.uid == 0 && gid != user.gid {
        context
            .problems
            .error(place, "scripts that run as root have root's group")
            .help("name a user");
    }
    Account { gid, ..user }
}
