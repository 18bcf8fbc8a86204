//! `sendoff-python`, installed from this repository into a virtual environment, and servers to
//! compare it with.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::valgrind;
use rustix::process::Signal;
use sendoff_tests::{
    Client, LIMIT, Request, Response, Server, Site, dies_with_us, processes, static_library, wait,
};

/// Debian's, whose packages are the applications of the tests.
const PYTHON: &str = "/usr/bin/python3";

/// The folder of programs in a virtual environment with the package, made once for the current
/// sources.
pub fn programs() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../languages/python");
        let stamp = folder.join("stamp");
        let sources = ["", "src", "sendoff"].map(|name| package.join(name));
        let newest = sources.iter().flat_map(|folder| files(folder)).chain([static_library()]);
        let newest = newest.filter_map(|path| changed(&path)).max();
        if changed(&stamp) < newest {
            install(&folder, &package);
            fs::write(stamp, "").unwrap();
        }
        folder.join("bin")
    })
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file())
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|data| data.modified()).ok()
}

/// Installs the package as docs/python.md says, but without PyPI: Debian's setuptools build it.
fn install(folder: &Path, package: &Path) {
    let run = |command: &mut Command| {
        let done = command.output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command:?}: {text}");
    };
    run(Command::new(PYTHON).args(["-m", "venv", "--clear", "--system-site-packages"]).arg(folder));
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--no-index", "--no-build-isolation", "--no-deps", "--quiet"]);
    run(pip.arg(package).env("SENDOFF_LIBRARY", static_library()).env("CFLAGS", "-Werror"));
}

/// A command whose output goes to `log`, in `folder`.
fn quiet(mut command: Command, folder: &Path, log: &Path) -> Command {
    let log = File::options().create(true).append(true).open(log).unwrap();
    command.current_dir(folder).stdout(log.try_clone().unwrap()).stderr(log);
    // Sets of strings have the same order in all processes.
    command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A running `sendoff-python`, and its folder.
pub struct Python {
    pub site: Site,
    child: Child,
}

impl Python {
    /// Starts `APPLICATION` with options, in a folder with the conformance application, and waits
    /// until it is ready.
    pub fn start(application: &str, options: &[&str]) -> Self {
        Self::start_in(Site::new(), application, options)
    }

    pub fn start_in(site: Site, application: &str, options: &[&str]) -> Self {
        site.write_at(site.outside("conformance.py"), include_bytes!("conformance.py"));
        let python = Self::spawn(site, application, options, Stdio::null());
        python.await_log("ready: ");
        python
    }

    /// The same with the packages of a folder.
    pub fn start_beside(packages: &Path, site: Site, application: &str, options: &[&str]) -> Self {
        let mut program = dies_with_us(&programs().join("sendoff-python"), "KILL");
        program.env("PYTHONPATH", packages);
        let python = Self::spawn_by(program, site, application, options, Stdio::null());
        python.await_log("ready: ");
        python
    }

    /// The same, which may fail to become ready.
    pub fn spawn(site: Site, application: &str, options: &[&str], stdin: Stdio) -> Self {
        let program = dies_with_us(&programs().join("sendoff-python"), "KILL");
        Self::spawn_by(program, site, application, options, stdin)
    }

    /// The same under valgrind, whose findings go to files in `folder`.
    pub fn start_under_valgrind(site: Site, application: &str, folder: &Path) -> Self {
        site.write_at(site.outside("conformance.py"), include_bytes!("conformance.py"));
        let mut valgrind = valgrind::command(folder);
        // Otherwise most objects would share blocks that Python never gives back.
        valgrind.env("PYTHONMALLOC", "malloc");
        valgrind.args(["python", "sendoff-python"].map(|name| programs().join(name)));
        let options = ["--workers", "1", "--threads", "2"];
        let python = Self::spawn_by(valgrind, site, application, &options, Stdio::null());
        let ready = wait::until(4 * LIMIT, || python.log().contains("ready: "));
        assert!(ready, "{}", python.log());
        python
    }

    fn spawn_by(
        mut command: Command,
        site: Site,
        application: &str,
        options: &[&str],
        stdin: Stdio,
    ) -> Self {
        let folder = site.outside(".");
        command.args(options).arg(application);
        if !options.contains(&"fd:0") {
            command.arg("--bind").arg(format!("unix:{}", site.outside("socket").display()));
            // The front may run as another user.
            command.args(["--socket-mode", "666"]);
        }
        let mut command = quiet(command, &folder, &site.outside("log"));
        let child = command.stdin(stdin).spawn().unwrap();
        Self { site, child }
    }

    /// A front that gives it all requests.
    pub fn front(&self, options: &[&str]) -> Server {
        let socket = format!("/=unix:{}", self.site.outside("socket").display());
        let mut server =
            Server::start(self.site.root(), &[&["--fastcgi", &socket], options].concat());
        // At most 32 threads have links.
        server.expect_linked_processes(32);
        // The first response announces the words that the application knows.
        server.get("/hello");
        server
    }

    /// The same, which passes bodies on while they arrive.
    pub fn streaming_front(&self) -> Server {
        let (root, socket) = (self.site.root().display(), self.site.outside("socket"));
        let config = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = '{root}'\n\
             fastcgi = {{ '/' = 'unix:{}' }}\n[[site.route]]\nstream_body = true\n",
            socket.display()
        );
        let config = self.site.write_at(self.site.outside("sendoff.toml"), config);
        let mut server = Server::try_run(&config, self.site.root(), 0).unwrap();
        server.expect_linked_processes(32);
        server
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.site.outside("log")).unwrap()
    }

    #[track_caller]
    pub fn await_log(&self, text: &str) {
        let came = wait::until(LIMIT, || self.log().contains(text));
        assert!(came, "{text:?} is not in the log:\n{}", self.log());
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its worker processes.
    pub fn workers(&self) -> Vec<u32> {
        processes::children(self.pid()).into_iter().filter(|pid| processes::runs(*pid)).collect()
    }

    pub fn signal(&self, signal: Signal) {
        processes::signal(self.pid(), signal);
    }

    /// Waits for its end; its status and its log.
    pub fn end(mut self) -> (ExitStatus, String) {
        let mut status = None;
        wait::until(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap_or_else(|| panic!("it does not end:\n{}", self.log())), self.log())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    let all = processes::descendants(child.id());
    let _ended = child.kill();
    let _status = child.wait();
    all.iter().for_each(|pid| processes::signal(*pid, Signal::KILL));
}

/// A web server in Python that serves an application by itself.
pub struct Reference {
    child: Child,
    addr: SocketAddr,
}

impl Reference {
    /// The standard library's.
    pub fn wsgiref(site: &Site, application: &str) -> Self {
        let program = "import importlib, sys
from wsgiref.simple_server import WSGIRequestHandler, make_server
sys.path.insert(0, '')
class Quiet(WSGIRequestHandler):
    def log_message(self, *args): pass
name, attribute = sys.argv[1].split(':')
application = getattr(importlib.import_module(name), attribute)
server = make_server('127.0.0.1', 0, application, handler_class=Quiet)
print('at http://127.0.0.1:%d' % server.server_port, flush=True)
server.serve_forever()";
        let mut command = dies_with_us(Path::new(PYTHON), "KILL");
        command.args(["-c", program, application]);
        Self::start(command, site)
    }

    /// Debian's gunicorn.
    pub fn gunicorn(site: &Site, application: &str) -> Self {
        let mut command = dies_with_us(Path::new("/usr/bin/gunicorn"), "KILL");
        command.args(["--bind", "127.0.0.1:0", "--log-file", "-", application]);
        Self::start(command, site)
    }

    /// PyPI's uvicorn, in the folder of packages, without WebSockets.
    pub fn uvicorn(packages: &Path, site: &Site, application: &str) -> Self {
        Self::uvicorn_with(packages, site, application, "none")
    }

    /// The same, with this implementation of WebSockets.
    pub fn uvicorn_with(packages: &Path, site: &Site, application: &str, ws: &str) -> Self {
        let mut command = dies_with_us(Path::new(PYTHON), "KILL");
        command.env("PYTHONPATH", packages);
        command.args(["-m", "uvicorn", "--port", "0", "--ws", ws, application]);
        Self::start(command, site)
    }

    fn start(command: Command, site: &Site) -> Self {
        let log = site.outside("reference.log");
        let mut command = quiet(command, &site.outside("."), &log);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let addr = wait::for_some("a web server in Python", || {
            let lines = BufReader::new(File::open(&log).ok()?).lines();
            let line = lines.map_while(Result::ok).find(|line| line.contains("http://"))?;
            let (_, rest) = line.split_once("http://")?;
            rest.split([' ', '/']).next()?.parse().ok()
        });
        Self { child, addr }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn ask(&self, request: &Request) -> Response {
        Client::connect(self.addr).ask(&request.clone().header("Connection", "close"))
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
