//! Rack applications in processes of their own: on our gem, or on Puma.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::valgrind;
use rustix::process::Signal;
use sendoff_tests::{LIMIT, Site, dies_with_us, processes, repository, static_library, wait};

/// The `GEM_HOME` in which the gem is installed, as users install it.
pub fn gems() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ruby");
        let _absent = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let build = Command::new(repository::root().join("languages/ruby/build"))
            .arg(static_library())
            .arg(&folder)
            .output()
            .unwrap();
        assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
        let gem = String::from_utf8(build.stdout).unwrap().lines().last().unwrap().to_owned();
        let install = Command::new("gem")
            .args(["install", "--local", "--no-document", &gem])
            .env("GEM_HOME", &folder)
            .output()
            .unwrap();
        assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stdout));
        folder
    })
}

/// The application that the tests ask.
pub fn test_application() -> PathBuf {
    repository::root().join("languages/ruby/tests/config.ru")
}

/// A server of a Rack application.
pub struct Application {
    child: Child,
    log: Arc<Mutex<String>>,
    socket: PathBuf,
}

impl Application {
    /// Our gem on a UNIX socket, serving `config` with `options` (`workers=2`).
    pub fn start(site: &Site, config: &Path, options: &[&str]) -> Self {
        Self::start_with(site, config, options, |_| {})
    }

    /// The same; `change` has the last word on the command.
    pub fn start_with(
        site: &Site,
        config: &Path,
        options: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let socket = site.outside(&format!("rack-{number}.sock"));
        let bind = format!("bind=unix:{}", socket.display());
        let mut command = rack("rackup", site);
        command.args(["-s", "sendoff", "-E", "production", "-O", &bind]);
        // The front runs as www-data.
        options.iter().chain(&["mode=0666"]).for_each(|option| {
            command.args(["-O", option]);
        });
        command.arg(config);
        change(&mut command);
        Self::run_to_readiness(command, socket)
    }

    /// On a listening socket that it inherits.
    pub fn start_on(site: &Site, config: &Path, listener: OwnedFd, options: &[&str]) -> Self {
        let mut command = rack("rackup", site);
        command.args(["-s", "sendoff", "-E", "production"]).stdin(listener);
        options.iter().for_each(|option| {
            command.args(["-O", option]);
        });
        command.arg(config);
        Self::run_to_readiness(command, PathBuf::new())
    }

    /// One process under valgrind, whose findings go to files in `folder`.
    pub fn start_under_valgrind(site: &Site, config: &Path, folder: &Path) -> Self {
        let socket = site.outside("valgrind.sock");
        let bind = format!("bind=unix:{}", socket.display());
        let mut command = rack_in(valgrind::command(folder), site);
        // Ruby's garbage collector reads every word of the stack, including uninitialised ones.
        command.args(["--undef-value-errors=no", "ruby", "-S", "rackup", "-s", "sendoff"]);
        command.args(["-E", "production", "-O", &bind, "-O", "mode=0666", "-O", "workers=1"]);
        command.arg(config);
        Self::run_to_readiness(command, socket)
    }

    fn run_to_readiness(command: Command, socket: PathBuf) -> Self {
        let application = Self::run(command, socket);
        application.await_log("sendoff: FastCGI on");
        application
    }

    fn run(mut command: Command, socket: PathBuf) -> Self {
        let (output, writer) = std::io::pipe().unwrap();
        let child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
        // It holds the writing end of the pipe.
        drop(command);
        let log = Arc::<Mutex<String>>::default();
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lines.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self { child, log, socket }
    }

    /// As `--fastcgi` wants it, for everything beneath `path`.
    pub fn route(&self, path: &str) -> String {
        format!("{path}=unix:{}", self.socket.display())
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The processes that serve.
    pub fn workers(&self) -> Vec<u32> {
        processes::children(self.pid())
    }

    pub fn await_log(&self, text: &str) {
        let said = wait::until(2 * LIMIT, || self.log().contains(text));
        assert!(said, "{text:?} is not in the log:\n{}", self.log());
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for its end.
    pub fn end(mut self) -> ExitStatus {
        let mut status = None;
        wait::until(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("it does not end:\n{}", self.log()))
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let all = processes::descendants(self.pid());
        let _ended = self.child.kill();
        let _status = self.child.wait();
        all.into_iter().for_each(|pid| processes::signal(pid, Signal::KILL));
    }
}

/// A program of Ruby's that finds our gem, in an environment of its own.
pub fn rack(program: &str, site: &Site) -> Command {
    rack_in(dies_with_us(Path::new(program), "TERM"), site)
}

fn rack_in(mut command: Command, site: &Site) -> Command {
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GEM_HOME", gems());
    command.env("LANG", "C.UTF-8").env("FOLDER", site.root()).stdin(Stdio::null());
    command
}

/// Debian's Puma, the reference.
pub struct Puma {
    application: Application,
    addr: SocketAddr,
}

impl Puma {
    pub fn start(site: &Site, config: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = rack("puma", site);
        command.args(["--quiet", "-e", "production", "-t", "3:3", "-b", "tcp://127.0.0.1:0"]);
        command.arg(config);
        change(&mut command);
        let application = Application::run(command, PathBuf::new());
        let start = "Listening on http://";
        application.await_log(start);
        let log = application.log();
        let (_, after) = log.split_once(start).unwrap();
        let addr = after.lines().next().unwrap().trim().parse().unwrap();
        Self { application, addr }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn log(&self) -> String {
        self.application.log()
    }
}

/// Lets every user read the files in a folder of tests.
pub fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
}
