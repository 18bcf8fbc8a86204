//! Debian's Apache with PHP inside its processes (mod_php), as Debian configures it.

use super::{Daemon, OUTPUT_BUFFERING, Peer, Running};
use super::{find_program, free_port, path_str, version_line};
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use sendoff_config::PHP_VERSION;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The folder of Apache's modules in Debian.
const MODULES: &str = "/usr/lib/apache2/modules";

/// Apache with mod_php: a process per connection, which also runs PHP.
#[derive(Debug)]
pub(crate) struct Apache;

impl Peer for Apache {
    fn name(&self) -> &'static str {
        "apache+mod_php"
    }

    fn version(&self) -> Result<String> {
        let php = php_module();
        ensure!(php.is_file(), "{} is not installed", php.display());
        let apache = version_line(&find_program(&["apache2"])?, "-v")?;
        let apache = apache.trim_start_matches("Server version: ").to_owned();
        Ok(format!("{apache}, mod_php {PHP_VERSION}"))
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let addr = free_port()?;
        let config = dir.join("apache2.conf");
        fs::write(&config, text(site, dir, &addr.to_string()))?;
        let args = ["-D", "FOREGROUND", "-f", path_str(&config)?];
        let program = find_program(&["apache2"]).context("package libapache2-mod-php")?;
        let mut apache = Daemon::spawn(&program, &args, dir, Stdio::null())?;
        apache.wait_until(|| TcpStream::connect(addr).ok())?;
        Ok(Running { addr, daemons: vec![apache] })
    }
}

fn php_module() -> PathBuf {
    Path::new(MODULES).join(format!("libphp{PHP_VERSION}.so"))
}

/// Debian's values, except that connections last as long as the measurement.
fn text(site: &Site, dir: &Path, addr: &str) -> String {
    let account = site
        .account
        .as_ref()
        .map_or_else(String::new, |account| format!("User {0}\nGroup {0}\n", account.name));
    let modules: String = ["mpm_prefork", "authz_core", "dir", "mime"]
        .map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n"))
        .concat();
    let (dir, root, php) = (dir.display(), site.root.display(), php_module());
    format!(
        "ServerName localhost\nServerRoot {dir}\nPidFile {dir}/apache2.pid\n\
         DefaultRuntimeDir {dir}\nErrorLog /proc/self/fd/2\nListen {addr}\n{account}{modules}\
         LoadModule php_module {}\nTypesConfig /etc/mime.types\nTimeout 300\n\
         KeepAlive On\nKeepAliveTimeout 5\nMaxKeepAliveRequests 0\n\
         StartServers 5\nMinSpareServers 5\nMaxSpareServers 10\nMaxRequestWorkers 150\n\
         DocumentRoot {root}\n<Directory {root}>\n\tRequire all granted\n</Directory>\n\
         DirectoryIndex index.php index.html\n\
         <FilesMatch \"\\.php$\">\n\tSetHandler application/x-httpd-php\n</FilesMatch>\n\
         php_admin_value output_buffering {OUTPUT_BUFFERING}\nphp_admin_flag opcache.enable on\n",
        php.display()
    )
}
