//! Sendoff in worker mode.

use super::{Peer, Running, Sendoff};
use crate::site::Site;
use anyhow::Result;
use std::path::Path;

/// `sendoff serve --php-worker`.
#[derive(Debug)]
pub(crate) struct Booted {
    /// The name in the report.
    pub(crate) name: &'static str,
    pub(crate) sendoff: Sendoff,
    /// The path of the worker script on the site.
    pub(crate) script: String,
}

impl Peer for Booted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> Result<String> {
        Ok(format!("{} --php-worker {}", self.sendoff.version()?, self.script))
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let script = site.root.join(self.script.trim_start_matches('/'));
        self.sendoff.start_with(site, dir, &["--php-worker".into(), script.display().to_string()])
    }
}
