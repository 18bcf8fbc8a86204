//! The clients of a route: their addresses and passwords.

use sendoff_config::{BasicAuth, Clients, Network, PasswordLine, password_lines, unusable_hashes};
use sendoff_setting_values::{At, Client, List, Place};

use super::Routes;
use crate::keys;
use crate::resolve::context::unusable;

impl Routes<'_, '_> {
    /// Users and passwords. `None`: an error was reported.
    pub(super) fn auth(&mut self, section: &keys::Auth) -> Option<BasicAuth> {
        let Some(users) = &section.users else {
            if !section.broken {
                self.context
                    .problems
                    .error(section.place, "users is missing")
                    .help("users is a file of lines NAME:HASH; `htpasswd -cB FILE NAME` makes one");
            }
            return None;
        };
        match self.context.machine.read(&users.value.0) {
            Ok(text) => self.users_are_hashed(&text, users.place),
            Err(error) => {
                let says = unusable(&users.value.0, &error);
                let problem = self.context.problems.error(users.place, says);
                problem.help(match error.kind() {
                    std::io::ErrorKind::NotFound => "`htpasswd -cB FILE NAME` makes such a file",
                    _ => "it must be readable for the user who starts the server",
                });
            }
        }
        let realm = section.realm.value.0.clone();
        if let Some(at) = realm.find(['"', '\\']) {
            let says = format!("{:?} cannot stand in a realm", &realm[at..=at]);
            self.context.problems.error(section.realm.place, says);
        }
        Some(BasicAuth { realm, users: users.value.0.clone() })
    }

    /// Warns of a file without users, and of lines that no password can match.
    fn users_are_hashed(&mut self, text: &str, place: Place) {
        let problems = &mut self.context.problems;
        if password_lines(text.as_bytes()).next().is_none() {
            problems.warning(place, "this file names no user, so every request is refused");
        }
        let mut lines = password_lines(text.as_bytes());
        if let Some((number, _)) = lines.find(|(_, line)| *line == PasswordLine::NoUser) {
            problems
                .warning(place, format!("line {number} of this file is not NAME:HASH"))
                .help("`htpasswd -B FILE NAME` adds such lines");
        }
        for (why, number, count) in unusable_hashes(text.as_bytes()) {
            let others = match count - 1 {
                0 => String::new(),
                others => format!(" (and {others} more)"),
            };
            let says = format!("line {number} of this file{others} refuses its user: {why}");
            problems.warning(place, says).help(why.help());
        }
    }
}

/// The client addresses that are allowed; `None`: all.
pub(super) fn clients(section: &keys::Route) -> Option<Clients> {
    let networks = |at: Option<&At<List<Client>>>| -> Vec<Network> {
        at.iter().flat_map(|at| at.value.values()).map(|client| client.0).collect()
    };
    let (allow, deny) = (&section.allow_from, &section.deny_from);
    (allow.is_some() || deny.is_some()).then(|| Clients {
        allow: networks(allow.as_ref()),
        deny: networks(deny.as_ref()),
        otherwise: allow.is_none(),
    })
}
