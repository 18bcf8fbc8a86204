//! Programs that use libfcgi, with Debian's library or ours.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::process::Signal;
use sendoff_tests::{dies_with_us, processes, static_library};

use super::wire::Connection;

/// Which libfcgi.so.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    Debian,
    Ours,
}

pub const BOTH: [Library; 2] = [Library::Debian, Library::Ours];

/// The address on which the program listens.
#[derive(Debug, Clone)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Address {
    /// As `--fastcgi` wants it.
    pub fn option(&self) -> String {
        match self {
            Self::Unix(path) => format!("unix:{}", path.display()),
            Self::Tcp(address) => format!("tcp:{address}"),
        }
    }

    /// As nginx wants it.
    pub fn nginx(&self) -> String {
        self.option().trim_start_matches("tcp:").to_owned()
    }
}

/// The folder of built programs.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libfcgi");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The folder of our libfcgi.so.0, built from the static library.
pub fn our_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../libfcgi/build");
        let built = Command::new(script).arg(static_library()).arg(folder()).status();
        assert!(built.unwrap().success());
        folder()
    })
}

/// A program in C of `libfcgi/tests`, compiled against Debian's headers and library.
pub fn program(name: &str) -> PathBuf {
    compiled("cc", name, "c", &[])
}

/// The same for a program in C++ that uses Debian's libfcgi++.
pub fn cpp_program(name: &str) -> PathBuf {
    compiled("c++", name, "cpp", &["-lfcgi++"])
}

fn compiled(compiler: &str, name: &str, ending: &str, libraries: &[&str]) -> PathBuf {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let source = format!("../libfcgi/tests/{name}.{ending}");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let new = folder().join(format!("{name}-{}-{number}", std::process::id()));
    let compiled = Command::new(compiler)
        .args(["-O1", "-Wall", "-Wno-format", "-Wno-format-zero-length", "-Werror", "-o"])
        .args([&new, &source])
        .args(libraries)
        .args(["-lfcgi", "-lpthread", "-lm"])
        .status();
    assert!(compiled.unwrap().success(), "libfcgi-dev is installed");
    // A program that is being executed must not be overwritten.
    let program = folder().join(name);
    std::fs::rename(new, &program).unwrap();
    program
}

/// `program` with `arguments` and one of the libraries, in a clean environment; it ends with this
/// process.
pub fn command(program: &Path, arguments: &[&str], library: Library) -> Command {
    let mut command = dies_with_us(program, "KILL");
    command.args(arguments);
    command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin");
    if library == Library::Ours {
        command.env("LD_LIBRARY_PATH", our_library());
    }
    command
}

/// A running program.
pub struct Application {
    pub address: Address,
    child: Child,
    log: Option<JoinHandle<String>>,
    _folder: Option<Folder>,
}

impl Application {
    pub fn start(program: &Path, arguments: &[&str], library: Library) -> Self {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // Web servers run as www-data.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let command = command(program, arguments, library);
        Self::run(command, listener.into(), Address::Unix(path), Some(folder))
    }

    pub fn start_tcp(program: &Path, arguments: &[&str], library: Library) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        Self::run(command(program, arguments, library), listener.into(), address, None)
    }

    fn run(
        mut command: Command,
        listener: OwnedFd,
        address: Address,
        folder: Option<Folder>,
    ) -> Self {
        let mut child =
            command.stdin(listener).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        Self { address, child, log: Some(log), _folder: folder }
    }

    pub fn connect(&self) -> Connection {
        match &self.address {
            Address::Unix(path) => Connection::new(UnixStream::connect(path).unwrap()),
            Address::Tcp(address) => Connection::new(TcpStream::connect(address).unwrap()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        processes::signal(self.pid(), signal);
    }

    /// Waits for its end; returns its status and its standard error.
    pub fn end(mut self) -> (ExitStatus, String) {
        let mut status = None;
        sendoff_tests::wait::until(sendoff_tests::LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.expect("the program does not end");
        (status, self.log.take().unwrap().join().unwrap())
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        end_with_children(&mut self.child);
    }
}

/// Ends a process and those that it has forked.
pub fn end_with_children(child: &mut Child) {
    let all = processes::descendants(child.id());
    let _ended = child.kill();
    let _status = child.wait();
    all.iter().for_each(|pid| processes::signal(*pid, Signal::KILL));
}

pub use tempdir::Folder;

mod tempdir {
    use super::{AtomicU32, Ordering, PathBuf};

    pub struct Folder(pub PathBuf);

    impl Folder {
        pub fn new() -> Self {
            static COUNTER: AtomicU32 = AtomicU32::new(0);
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let name = format!("sendoff-libfcgi-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _gone = std::fs::remove_dir_all(&self.0);
        }
    }
}
