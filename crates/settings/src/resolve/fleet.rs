//! The engine by which several nodes act as one.

use sendoff_config::{Engine, Fleet, ProxyTls};
use sendoff_setting_values::At;

use super::context::Context;
use crate::keys::Top;

impl Context<'_> {
    /// The nodes with which this one acts as one.
    pub(crate) fn fleet(&mut self, top: &Top) -> Option<Fleet> {
        let section = &top.fleet.as_ref()?.value.0;
        let Some(At { value: url, .. }) = &section.engine else {
            if !section.broken {
                self.problems.error(section.place, "engine is missing").help(
                    "engine is the URL of a Redis or Valkey that all nodes share: engine = \"redis://10.0.0.31:6379\"",
                );
            }
            return None;
        };
        if let Some(user) = &section.user
            && section.password_file.is_none()
        {
            let says = "a user needs a password";
            self.problems.error(user.place, says).help("password_file is the file with it");
        }
        let roots = section.roots.as_ref().map(|roots| {
            if !url.is_tls {
                let says = "roots has a meaning only with rediss://";
                self.problems.error(roots.place, says).help("remove roots");
            }
            self.file(roots)
        });
        let tls = url.is_tls.then(|| ProxyTls {
            server_name: url.host().unwrap_or_default().to_owned(),
            roots,
            verify: true,
        });
        let engine = Engine {
            address: url.address.clone(),
            tls,
            user: section.user.as_ref().map(|user| user.value.0.clone()),
            password_file: section.password_file.as_ref().map(|path| self.file(path)),
            database: url.database,
        };
        let secret_file = section.secret_file.as_ref().map(|path| self.file(path));
        Some(Fleet { name: section.name.value.0.clone(), engine, secret_file })
    }
}
