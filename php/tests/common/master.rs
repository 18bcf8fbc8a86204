//! `sendoff-php`, run by the test as its supervisor and front.

use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags,
    SocketType, recvmsg, socketpair, sockopt,
};
use rustix::process::{Pid, Signal, kill_process};
use sendoff_config::{
    Account, Config, FrontConfig, Limits, PageStore, PoolConfig, Site, Snapshot, Timeouts,
    TlsAlgorithms, TrustedProxies, WorkerScript, Workers, units,
};
use sendoff_pool_messages::ToMaster;

use super::link::Link;

pub struct Worker {
    pub pid: Pid,
    pub links: Vec<Link>,
    pub guard: OwnedFd,
}

impl Worker {
    pub fn link(&mut self) -> &mut Link {
        &mut self.links[0]
    }
}

/// Announcements of a master to the front.
enum Announced {
    Worker(Worker),
    /// The socket on which workers ask for the state of the pool.
    Questions,
    /// The worker script has failed to boot.
    CannotStart,
}

pub struct Master {
    child: Child,
    pool: Option<OwnedFd>,
}

/// A pool of one worker, which runs as the test's user.
pub fn pool() -> PoolConfig {
    let root = Account { uid: 0, gid: 0 };
    PoolConfig {
        account: rustix::process::getuid().is_root().then_some(root),
        request_timeout: None,
        ..PoolConfig::new("default", Workers::Fixed(1))
    }
}

/// The configuration for these options; without options, one worker with one link.
fn config(options: &[&str]) -> Config {
    let (mut pool, mut links) = (pool(), 1);
    let mut account = pool.account.unwrap_or(Account { uid: 0, gid: 0 });
    let mut shutdown_timeout = Duration::from_secs(30);
    for option in options.chunks(2) {
        let value = option[1];
        match option[0] {
            "--workers" => pool.workers = Workers::Fixed(value.parse().unwrap()),
            "--links" => links = value.parse().unwrap(),
            "--max-requests" => pool.max_requests = value.parse().unwrap(),
            "--worker-script" => {
                pool.worker.get_or_insert(WorkerScript::new("/".into())).file = value.into();
            }
            "--max-memory" => {
                pool.worker.as_mut().unwrap().max_memory = Some(value.parse().unwrap());
            }
            "--max-age" => {
                pool.worker.as_mut().unwrap().max_age = Some(units::time(value).unwrap());
            }
            "--watch" => pool.worker.as_mut().unwrap().watch.push(value.into()),
            "--php-ini" => pool.php_ini.push(value.to_owned()),
            "--snapshot" if value == "copy" => pool.snapshot = Snapshot::Copy,
            "--uid" => account.uid = value.parse().unwrap(),
            "--gid" => account.gid = value.parse().unwrap(),
            "--request-timeout" => pool.request_timeout = Some(units::time(value).unwrap()),
            "--shutdown-timeout" => shutdown_timeout = units::time(value).unwrap(),
            other => panic!("{other} is not an option of these tests"),
        }
    }
    if account.uid != 0 {
        pool.account = Some(account);
    }
    Config { shutdown_timeout, ..config_of(pool, links) }
}

/// A configuration with this pool only.
fn config_of(pool: PoolConfig, links: u8) -> Config {
    let none = Duration::ZERO;
    Config {
        log: String::new(),
        listen: Vec::new(),
        trusted_proxies: TrustedProxies::default(),
        account: None,
        state: "/".into(),
        acme: None,
        tls: TlsAlgorithms::default(),
        traces: None,
        fleet: None,
        drain_delay: Duration::ZERO,
        shutdown_timeout: Duration::from_secs(30),
        front: FrontConfig {
            threads: links,
            access_log: None,
            request_ids: false,
            timeouts: Timeouts { head: none, body: none, idle: none, send: none },
            page_cache: PageStore { folder: "/".into(), size: 0 },
            limits: Limits::new(0),
        },
        sites: vec![Site { pool: Some(0), channel: false, ..Site::new("/".into()) }],
        pools: vec![pool],
        upstreams: Vec::new(),
    }
}

/// Prevents other forks while the pool socket is inheritable.
pub(super) static SPAWNING: Mutex<()> = Mutex::new(());

impl Master {
    pub fn start(options: &[&str]) -> Self {
        Self::start_with(options, Stdio::inherit())
    }

    pub fn start_with(options: &[&str], stderr: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sendoff-php"));
        Self::spawn(command.stderr(stderr), options)
    }

    /// Workers run as user 65534, and may not take leases on files of other users.
    pub fn start_unprivileged() -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-lease", "--", env!("CARGO_BIN_EXE_sendoff-php")]);
        Self::spawn(&mut command, &["--uid", "65534", "--gid", "65534"])
    }

    /// Runs `command`, a variant of `sendoff-php`.
    pub fn spawn(command: &mut Command, options: &[&str]) -> Self {
        Self::spawn_with(command, &config(options))
    }

    /// A master for this pool.
    pub fn start_pool(pool: PoolConfig, stderr: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sendoff-php"));
        Self::spawn_with(command.stderr(stderr), &config_of(pool, 1))
    }

    fn spawn_with(command: &mut Command, config: &Config) -> Self {
        let _alone = SPAWNING.lock().unwrap_or_else(|e| e.into_inner());
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(Duration::from_secs(20)))
            .unwrap();
        fcntl_setfd(&theirs, FdFlags::empty()).unwrap();
        let config = config.seal().unwrap();
        fcntl_setfd(&config, FdFlags::empty()).unwrap();
        command.args(["--pool", "0"]);
        command.arg("--pool-fd").arg(theirs.as_raw_fd().to_string());
        command.arg("--config-fd").arg(config.as_raw_fd().to_string());
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        Self { child, pool: Some(ours) }
    }

    /// Sends a message to the master, as the front does.
    pub fn tell(&self, message: &ToMaster<'_>) {
        let pool = self.pool.as_ref().unwrap();
        rustix::net::send(pool, &message.encode(), SendFlags::empty()).unwrap();
    }

    /// The next worker that the master announces.
    pub fn worker(&self) -> Worker {
        let mut announced = std::iter::repeat_with(|| self.announced());
        let worker = announced.find_map(|announced| match announced {
            Announced::Worker(worker) => Some(worker),
            Announced::Questions | Announced::CannotStart => None,
        });
        worker.unwrap()
    }

    /// Waits until the master reports that the worker script does not boot.
    pub fn cannot_start(&self) {
        loop {
            match self.announced() {
                Announced::CannotStart => return,
                Announced::Questions => {}
                Announced::Worker(worker) => panic!("worker {:?} has booted", worker.pid),
            }
        }
    }

    /// The next announcement of the master.
    fn announced(&self) -> Announced {
        let pool = self.pool.as_ref().unwrap();
        let mut message = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let came =
            recvmsg(pool, &mut [IoSliceMut::new(&mut message)], &mut control, flags).unwrap();
        assert_eq!(came.bytes, 8, "the master has gone");
        let mut fds: Vec<OwnedFd> = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                fds.extend(rights);
            }
        }
        let pid = i32::from_be_bytes(message[..4].try_into().unwrap());
        let links = u32::from_be_bytes(message[4..].try_into().unwrap());
        if pid == 0 && links == u32::MAX {
            assert!(fds.is_empty());
            return Announced::CannotStart;
        }
        if pid == 0 {
            // Counters of purges come along if the pool keeps fragments.
            assert!(links == 0 && [1, 2].contains(&fds.len()));
            return Announced::Questions;
        }
        assert_eq!(fds.len(), links as usize + 1);
        let guard = fds.pop().unwrap();
        let links = fds.into_iter().map(Link::from_fd).collect();
        Announced::Worker(Worker { pid: Pid::from_raw(pid).unwrap(), links, guard })
    }

    /// Exit status and standard error of a master that ends by itself.
    pub fn said(&mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.stderr().read_to_string(&mut said).unwrap();
        (self.wait(), said)
    }

    /// Standard error of a master that is ended now.
    pub fn end(mut self) -> String {
        let mut stderr = self.stderr();
        drop(self);
        let mut said = String::new();
        stderr.read_to_string(&mut said).unwrap();
        said
    }

    pub fn stderr(&mut self) -> std::process::ChildStderr {
        self.child.stderr.take().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn close_pool(&mut self) {
        self.pool = None;
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        // Workers die with the master.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
