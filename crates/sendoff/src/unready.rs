//! What a configuration names and the server cannot use when it starts. It may come later, so the server serves nevertheless, with a
//! warning.

use std::fs;

use sendoff_config::{Address, Config};

/// Warns of roots in which this process may not look up a file, and of sockets of applications that are not there.
pub(crate) fn warn(config: &Config) {
    for site in &config.sites {
        let root = site.root.display();
        if let Err(error) = fs::metadata(site.root.join(".")) {
            tracing::warn!(
                "{root}: {error}: requests get 403. `namei -l {root}` shows what the server's user may not (user, --user)"
            );
        }
        for attached in &site.fastcgi {
            let Address::Unix(path) = &attached.address else { continue };
            if let Err(error) = fs::metadata(path) {
                tracing::warn!(
                    "unix:{}: {error}: its requests get 502 until the application listens there",
                    path.display()
                );
            }
        }
    }
}
