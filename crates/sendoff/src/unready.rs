//! Warnings about parts of a configuration that cannot be used at the start of the server. They may
//! become usable later, so the server starts nevertheless.

use std::fs;

use sendoff_config::{Address, Config};

/// Warns of roots in which this process may not look up files, of missing sockets of applications,
/// and of a missing folder for temporary files.
pub(crate) fn warn(config: &Config) {
    let temporary = std::env::temp_dir();
    if let Err(error) = fs::metadata(&temporary) {
        tracing::warn!(
            "the folder for temporary files, {}: {error}: large request bodies get 500 until it is there and the server is restarted",
            temporary.display()
        );
    }
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
