//! Debian's Apache with mod_php: the reference for `.htaccess` files.

use crate::child::{dies_with_us, exit_status};
use crate::{Client, Request, Response, listener, processes, site};
use rustix::process::Signal;
use sendoff_config::PHP_VERSION;
use std::fmt::Write;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const APACHE: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";

/// The modules that Debian enables at installation, and those that applications need in addition.
/// mod_php needs the prefork module.
const LOADED: &[&str] = &[
    "mpm_prefork",
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_groupfile",
    "authz_host",
    "authz_user",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "rewrite",
    "setenvif",
    "ssl",
];

/// mod_php of the version that the build is for.
fn php_module() -> PathBuf {
    Path::new(MODULES).join(format!("libphp{PHP_VERSION}.so"))
}

/// An Apache with a site for each host.
pub struct Apache {
    folder: PathBuf,
    addr: SocketAddr,
    child: Option<Child>,
}

impl Apache {
    /// Starts Apache with these hosts and their roots, and lines of configuration for all of them.
    /// `types` are the lines of its table of media types.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(hosts: &[(String, PathBuf)], types: &str, lines: &str) -> Self {
        let user = hosts.first().and_then(|(_, root)| site::owner_name(root));
        Self::begin(types, user, &|_| {
            let mut text = format!("{lines}\n");
            for (host, root) in hosts {
                let root = root.display();
                write!(
                    text,
                    "<VirtualHost *:PORT>\nServerName {host}\nServerAlias *.{host}\nDocumentRoot {root}\n<Directory {root}>\n\
                     Options Indexes FollowSymLinks\nAllowOverride All\nRequire all granted\n\
                     </Directory>\n</VirtualHost>\n"
                )
                .unwrap();
            }
            text
        })
    }

    /// Starts Apache with these lines for the files of `root`. In them, `PORT` is its port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with_lines(root: &Path, types: &str, lines: &str) -> Self {
        let proxy = ["proxy", "proxy_http"]
            .map(|module| format!("LoadModule {module}_module {MODULES}/mod_{module}.so\n"));
        let lines = proxy.concat() + lines;
        Self::begin(types, site::owner_name(root), &|_| lines.clone())
    }

    fn begin(types: &str, user: Option<&str>, lines: &dyn Fn(SocketAddr) -> String) -> Self {
        assert!(
            Path::new(APACHE).exists() && php_module().exists(),
            "no {APACHE} with PHP; run: apt-get install apache2-bin libapache2-mod-php"
        );
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sendoff-apache-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("empty")).unwrap();
        fs::write(folder.join("mime.types"), types).unwrap();
        let mut apache = Self { folder, addr: ([127, 0, 0, 1], 0).into(), child: None };
        let started = (0..5).any(|_| apache.try_start(user, lines));
        assert!(started, "Apache does not start:\n{}", apache.log());
        apache
    }

    fn configuration(&self, addr: SocketAddr, user: Option<&str>, lines: &str) -> String {
        let (folder, port) = (self.folder.display(), addr.port());
        let mut text = format!(
            "ServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile {folder}/apache.pid\n\
             ErrorLog {folder}/error.log\nListen {addr}\nServerName {addr}\nStartServers 2\n\
             TypesConfig {folder}/mime.types\nServerTokens Prod\nTraceEnable Off\n"
        );
        for module in LOADED {
            writeln!(text, "LoadModule {module}_module {MODULES}/mod_{module}.so").unwrap();
        }
        writeln!(text, "LoadModule php_module {}", php_module().display()).unwrap();
        if let Some(user) = user {
            write!(text, "User {user}\nGroup {user}\n").unwrap();
        }
        // As in Debian's apache2.conf and phpX.Y.conf.
        write!(
            text,
            "AccessFileName .htaccess\n<FilesMatch \"^\\.ht\">\nRequire all denied\n</FilesMatch>\n\
             <FilesMatch \".+\\.php$\">\nSetHandler application/x-httpd-php\n</FilesMatch>\n\
             DirectoryIndex index.html index.php\nphp_admin_flag expose_php off\n\
             <VirtualHost *:{port}>\nServerName whose.test\nDocumentRoot {folder}/empty\n\
             Redirect 410 /-/whose\nErrorDocument 410 \"{addr} {folder}\"\n</VirtualHost>\n{}\n",
            lines.replace("PORT", &port.to_string())
        )
        .unwrap();
        text
    }

    fn try_start(&mut self, user: Option<&str>, lines: &dyn Fn(SocketAddr) -> String) -> bool {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let file = self.config();
        fs::write(&file, self.configuration(addr, user, &lines(addr))).unwrap();
        let child = dies_with_us(Path::new(APACHE), "TERM")
            .args(["-DFOREGROUND", "-f"])
            .arg(file)
            // At its end it signals its whole process group.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.folder.join("stderr.log")).unwrap())
            .spawn()
            .expect("apache2");
        let ours = format!("{addr} {}", self.folder.display());
        let request = Request::get("/-/whose").header("Host", "whose.test");
        let Some(child) = listener::up(child, addr, &request, &ours) else { return false };
        (self.addr, self.child) = (addr, Some(child));
        true
    }

    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("apache.conf")
    }

    /// The address on which Apache listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// One request on a connection of its own.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> Response {
        Client::connect(self.addr).ask(request)
    }

    /// Apache's log up to now.
    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("stderr.log") + &read("error.log")
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            processes::signal(child.id(), Signal::TERM);
            if std::thread::panicking() {
                let _ = child.wait();
            } else {
                exit_status(&mut child, "Apache");
            }
        }
        if std::env::var_os("SENDOFF_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
