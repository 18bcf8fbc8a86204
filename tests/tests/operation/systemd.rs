//! The server as a service of systemd: its notifications, the sockets that it gets, the unit file,
//! the titles of its processes.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Server, Site, binary, processes, wait};

/// The other end of `NOTIFY_SOCKET`.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(site: &Site) -> Self {
        let path = site.outside("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { socket, path }
    }

    /// Waits for a message with this text in it.
    fn await_message(&self, text: &str) -> String {
        let mut message = [0; 4096];
        loop {
            let len = self.socket.recv(&mut message).unwrap_or_else(|e| panic!("{text:?}: {e}"));
            let message = String::from_utf8_lossy(&message[..len]).into_owned();
            if message.contains(text) {
                return message;
            }
        }
    }
}

/// The server, started by a shell script, in which `"$@"` is its command.
fn run_by(script: &str, variables: &[(&str, &str)], site: &Site, config: &str) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", script, "sh"]);
    command.envs(variables.iter().copied());
    Server::try_run_by(command, &config, site.root(), 1).unwrap()
}

const CONFIG: &str = "listen = '127.0.0.1:0'\nthreads = 1\n\
    [[pool]]\nname = 'www'\nworkers = 1\n[[site]]\nroot = 'root'\n";

#[test]
fn systemd_hears_when_the_server_is_ready_reloads_is_alive_and_ends() {
    let site = Site::with("a.txt", "static");
    let manager = Manager::new(&site);
    let socket = manager.path.to_str().unwrap();
    let variables = [("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "200000")];
    let server = run_by("exec \"$@\"", &variables, &site, CONFIG);
    assert!(manager.await_message("READY=1").contains("STATUS=sendoff: serving "));
    manager.await_message("WATCHDOG=1");
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    assert!(manager.await_message("RELOADING=1").contains("MONOTONIC_USEC="));
    manager.await_message("READY=1");
    // An event loop that hangs is not taken for a server that is alive.
    processes::signal(server.front(), Signal::STOP);
    manager.await_message("STATUS=the front does not answer");
    processes::signal(server.front(), Signal::CONT);
    manager.await_message("WATCHDOG=1");
    for process in [server.front(), server.php_master()] {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
    }
    std::thread::scope(|scope| {
        // The supervisor waits if its messages are not read, as every service does.
        scope.spawn(|| drop(server));
        manager.await_message("STOPPING=1");
    });
}

#[test]
fn sockets_that_systemd_has_opened_are_listened_on() {
    let site = Site::with("a.txt", "static");
    let opened = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = opened.local_addr().unwrap();
    let config = CONFIG.replace("127.0.0.1:0", &address.to_string());
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 0</dev/null";
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", script, "sh"]).arg(binary());
    command.arg("run").arg("--config").arg(&config);
    command.env("XDG_RUNTIME_DIR", site.outside("run"));
    // Without the socket the address would be in use.
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(opened)));
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut client = sendoff_tests::Client::connect(address);
    assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
    processes::signal(child.id(), Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn processes_say_in_ps_what_they_are_and_workers_whether_they_are_idle() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = run_by("exec \"$@\"", &[], &site, CONFIG);
    let title = |process: u32| processes::arguments(process).join(" ");
    assert_eq!(title(server.front()), "sendoff: front");
    assert_eq!(title(server.php_master()), "sendoff: php master, pool www");
    let worker = server.workers()[0];
    let is = |expected: &str| wait::until(LIMIT, || title(worker) == expected);
    assert!(is("sendoff: php worker, pool www, idle"), "{}", title(worker));
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    assert!(is("sendoff: php worker, pool www, busy"), "{}", title(worker));
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
    assert!(is("sendoff: php worker, pool www, idle"), "{}", title(worker));
}

/// Largest exposure in `systemd-analyze security`, times ten, that the unit may have: 10 is a
/// service without any confinement.
const EXPOSURE: &str = "40";

#[test]
fn the_unit_file_is_valid_and_confines_the_service() {
    let unit = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging/sendoff.service");
    let text = fs::read_to_string(unit).unwrap();
    assert!(text.contains("ExecStart=/usr/bin/sendoff run"));
    let site = Site::with("a.txt", "static");
    let program = binary();
    // The program is not installed here.
    let text = text.replace("/usr/bin/sendoff", program.to_str().unwrap());
    let unit = site.write_at(site.outside("sendoff.service"), text);
    for arguments in [
        &["verify", "--man=no"][..],
        &["security", "--no-pager", "--offline=true", "--threshold", EXPOSURE],
    ] {
        let done = Command::new("systemd-analyze").args(arguments).arg(&unit).output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(done.status.success(), "systemd-analyze {arguments:?}: {said}");
        if arguments[0] == "verify" {
            assert_eq!(said, "");
        }
    }
}
