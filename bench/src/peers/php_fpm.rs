//! php-fpm of the version that the build is for, in Debian's configuration.

use super::{Daemon, OUTPUT_BUFFERING};
use super::{find_program, path_str, version_line};
use crate::site::Site;
use anyhow::Result;
use sendoff_config::PHP_VERSION;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Its socket, in its start folder.
pub(super) const SOCKET: &str = "fpm.sock";

pub(super) fn version() -> Result<String> {
    version_line(&program()?, "-v")
}

pub(super) fn start(site: &Site, dir: &Path) -> Result<Daemon> {
    let config = dir.join("php-fpm.conf");
    fs::write(&config, text(site, dir))?;
    let args = ["--nodaemonize", "--fpm-config", path_str(&config)?];
    let mut fpm = Daemon::spawn(&program()?, &args, dir, Stdio::null())?;
    fpm.wait_until(|| UnixStream::connect(dir.join(SOCKET)).ok())?;
    Ok(fpm)
}

fn program() -> Result<PathBuf> {
    find_program(&[&format!("php-fpm{PHP_VERSION}"), "php-fpm"])
}

fn text(site: &Site, dir: &Path) -> String {
    let account = site.account.as_ref().map_or_else(String::new, |a| {
        let name = &a.name;
        format!("user = {name}\ngroup = {name}\nlisten.owner = {name}\nlisten.group = {name}\n")
    });
    let dir = dir.display();
    format!(
        "[global]\npid = {dir}/fpm.pid\nerror_log = /proc/self/fd/2\n\
         [www]\n{account}listen = {dir}/{SOCKET}\n\
         pm = static\npm.max_children = {}\n\
         php_admin_value[output_buffering] = {OUTPUT_BUFFERING}\n\
         php_admin_value[opcache.enable] = 1\n",
        site.workers
    )
}
