//! Servers of a comparison: the usual ones, those that are installed, and their start.

use crate::measure::Contestant;
use crate::peers::{Apache, Lighttpd, Nginx, Peer, Sendoff};
use crate::site::Site;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// The common servers with PHP. The first one is the reference.
pub(crate) fn common(sendoff: &Sendoff) -> Vec<Box<dyn Peer>> {
    vec![Box::new(Nginx::Unlogged), Box::new(sendoff.clone()), Box::new(Lighttpd), Box::new(Apache)]
}

/// The common servers, and nginx as its documents tune it.
pub(crate) fn common_and_tuned(sendoff: &Sendoff) -> Vec<Box<dyn Peer>> {
    let mut servers = common(sendoff);
    servers.insert(2, Box::new(Nginx::Tuned));
    servers
}

/// The servers that are installed. `versions` gets the version of each, and of the others the reason
/// why they are left out.
pub(crate) fn installed(
    servers: impl IntoIterator<Item = Box<dyn Peer>>,
    versions: &mut Vec<(String, String)>,
) -> Vec<Box<dyn Peer>> {
    let mut installed = Vec::new();
    for peer in servers {
        let name = peer.name().to_owned();
        match peer.version() {
            Ok(version) => {
                versions.push((name, version));
                installed.push(peer);
            }
            Err(why) => versions.push((name, format!("left out: {why:#}"))),
        }
    }
    installed
}

/// Starts servers, each with a folder of its own below `dir`.
pub(crate) fn start(servers: &[Box<dyn Peer>], site: &Site, dir: &Path) -> Result<Vec<Contestant>> {
    let mut contestants = Vec::new();
    for (number, peer) in servers.iter().enumerate() {
        let own = dir.join(format!("peer-{number}"));
        fs::create_dir(&own)?;
        let running =
            peer.start(site, &own).with_context(|| format!("{} did not start", peer.name()))?;
        contestants.push(Contestant { name: peer.name().to_owned(), running });
    }
    Ok(contestants)
}
