//! Debian's php-fpm behind our front.

use crate::child::{collect_into, dies_with_us, exit_status};
use crate::{processes, site, wait};
use rustix::process::Signal;
use sendoff_config::PHP_VERSION;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// php-fpm of the version that the build is for.
pub(crate) fn php_fpm() -> String {
    format!("/usr/sbin/php-fpm{PHP_VERSION}")
}

/// A php-fpm that can be stopped and started again.
pub struct Fpm {
    folder: PathBuf,
    listen: String,
    ini: Vec<String>,
    child: Option<Child>,
    log: Arc<Mutex<String>>,
}

impl Fpm {
    /// Starts php-fpm on a UNIX socket, with lines for its pool's section on top.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(root: &Path, pool: &str) -> Self {
        Self::start_with(root, pool, &[])
    }

    /// The same with php.ini settings (`KEY=VALUE`).
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_with(root: &Path, pool: &str, ini: &[&str]) -> Self {
        let folder = new_folder();
        let listen = folder.join("php.sock").display().to_string();
        let ini = ini.iter().map(|setting| (*setting).to_owned()).collect();
        let mut fpm = Self { folder, listen, ini, child: None, log: Arc::default() };
        fpm.configure(root, pool);
        assert!(fpm.try_run(), "php-fpm does not start:\n{}", fpm.log());
        fpm
    }

    /// The same over TCP.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_tcp(root: &Path, pool: &str) -> Self {
        Self::start_tcp_with(root, pool, &[])
    }

    /// The same with php.ini settings (`KEY=VALUE`).
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_tcp_with(root: &Path, pool: &str, ini: &[&str]) -> Self {
        let (folder, listen) = (new_folder(), String::new());
        let ini = ini.iter().map(|setting| (*setting).to_owned()).collect();
        let mut fpm = Self { folder, listen, ini, child: None, log: Arc::default() };
        // Another process may take the port before php-fpm binds it.
        let started = (0..5).any(|_| {
            fpm.listen =
                TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
            fpm.configure(root, pool);
            fpm.try_run()
        });
        assert!(started, "php-fpm does not start:\n{}", fpm.log());
        fpm
    }

    fn configure(&self, root: &Path, pool: &str) {
        let user = site::owner_name(root)
            .map(|name| format!("user = {name}\ngroup = {name}\nlisten.owner = {name}\n"))
            .unwrap_or_default();
        let children = if pool.contains("max_children") { "" } else { "pm.max_children = 4\n" };
        let manager = if pool.contains("pm = ") { "" } else { "pm = static\n" };
        let config = format!(
            "[global]\nerror_log = /dev/stderr\ndaemonize = no\n[www]\n{user}listen = {}\n\
             listen.mode = 0666\n{manager}{children}{pool}\n",
            self.listen
        );
        fs::write(self.folder.join("php-fpm.conf"), config).unwrap();
    }

    fn try_run(&mut self) -> bool {
        let settings = self.ini.iter().flat_map(|setting| ["-d", setting]);
        let mut child = dies_with_us(Path::new(&php_fpm()), "TERM")
            .args(settings)
            .arg("-F")
            .arg("-y")
            .arg(self.folder.join("php-fpm.conf"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("php-fpm");
        collect_into(&self.log, child.stderr.take().unwrap());
        let mut up = false;
        wait::until(crate::LIMIT, || {
            let ended = child.try_wait().unwrap().is_some();
            // Some process managers have no process before the first connection.
            up = !ended && self.answers() && !processes::children(child.id()).is_empty();
            ended || up
        });
        self.child = Some(child);
        if !up {
            self.stop();
        }
        up
    }

    fn answers(&self) -> bool {
        if self.listen.starts_with('/') {
            UnixStream::connect(&self.listen).is_ok()
        } else {
            TcpStream::connect(&self.listen).is_ok()
        }
    }

    /// Its address, as in `--fastcgi`.
    pub fn address(&self) -> String {
        let kind = if self.listen.starts_with('/') { "unix" } else { "tcp" };
        format!("{kind}:{}", self.listen)
    }

    /// The value of `--fastcgi` that attaches it to all PHP scripts.
    pub fn php(&self) -> String {
        format!(".php={}", self.address())
    }

    /// Ends it.
    ///
    /// # Panics
    /// If it does not end.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            processes::signal(child.id(), Signal::TERM);
            exit_status(&mut child, "php-fpm");
        }
    }

    /// Starts it again.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        assert!(self.try_run(), "php-fpm does not start again:\n{}", self.log());
    }

    /// Makes it replace its processes.
    ///
    /// # Panics
    /// If it was stopped.
    pub fn reload(&self) {
        processes::signal(self.child.as_ref().unwrap().id(), Signal::USR2);
    }

    /// Its processes at this moment.
    ///
    /// # Panics
    /// If it was stopped.
    pub fn running(&self) -> Vec<u32> {
        let mut children = processes::children(self.child.as_ref().unwrap().id());
        children.retain(|child| processes::runs(*child));
        children
    }

    /// The most processes that answer requests.
    ///
    /// # Panics
    /// If its configuration cannot be read.
    pub fn processes(&self) -> usize {
        let config = fs::read_to_string(self.folder.join("php-fpm.conf")).unwrap();
        let value = config.lines().find_map(|line| line.strip_prefix("pm.max_children = "));
        value.unwrap().parse().unwrap()
    }

    /// php-fpm's log up to now.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

fn new_folder() -> PathBuf {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("sendoff-fpm-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

impl Drop for Fpm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- php-fpm's log ---\n{}", self.log());
            if let Some(mut child) = self.child.take() {
                processes::signal(child.id(), Signal::TERM);
                let _ = child.wait();
            }
        } else {
            self.stop();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
