//! The processes that the supervisor starts.

use std::ffi::OsString;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use sendoff_config::{Config, LogTarget, PHP_VERSION};
use sendoff_program_master::PoolListener;
use sendoff_sandbox::MemoryWatch;
use sendoff_sys::process::in_new_session;
use tokio::process::{Child, Command};

use crate::failure::{EXIT_STATUSES, Failure};
use crate::groups::PoolGroup;
use crate::orders::{self, Socket};
use crate::php_host::HostCommand;
use crate::php_start::PhpStart;
use crate::program;
use crate::systemd;

/// The program that keeps the PHP workers, in the same folder as this one.
const PHP_PROGRAM: &str = "sendoff-php";

/// Options whose descriptors are replaced by a reload.
const CONFIG: &str = "--config-fd";
const LISTENERS: &str = "--listeners";
const POOLS: &str = "--pool-fds";
const KEYS: &str = "--keys-fd";
/// The option with the counters by which fragments are purged.
const PURGES: &str = "--purges-fd";
/// The option with the file for the messages that PHP prints at its start.
const SAID: &str = "--said-fd";

/// Descriptors that a child inherits: the option that names them, and a list for each event loop.
/// The child has them under the same numbers. The supervisor keeps them for the next child.
#[derive(Debug)]
struct InheritedDescriptors {
    option: &'static str,
    descriptors: Vec<Vec<OwnedFd>>,
}

impl InheritedDescriptors {
    fn one(option: &'static str, descriptor: OwnedFd) -> Self {
        Self { option, descriptors: vec![vec![descriptor]] }
    }

    fn argument(&self) -> OsString {
        let numbers = |fds: &Vec<OwnedFd>| {
            fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect::<Vec<_>>().join(",")
        };
        option(self.option, self.descriptors.iter().map(numbers).collect::<Vec<_>>().join(";"))
    }
}

/// A recipe to start a child process, any number of times. The child reads everything else from the
/// configuration, whose descriptor it inherits.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// The child's name in messages, and in `ps` until the child has parsed its options: the
    /// process title has room for as many bytes as the arguments.
    pub(crate) name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    inherited: Vec<InheritedDescriptors>,
    /// For a child that runs on demand: the socket on which the supervisor learns, while the child
    /// does not run, that it is needed.
    pub(crate) calls: Option<OwnedFd>,
    /// The control group of a pool whose processes share limits.
    pub(crate) group: Option<PoolGroup>,
    /// The running child has a socket for orders of the supervisor.
    takes_orders: bool,
    /// The time in which PHP must start in the child; `None`: a child without PHP.
    php_start: Option<Duration>,
    /// The way in which the child gets its options.
    options: Options,
    output: Output,
}

/// The place for a child's standard output.
#[derive(Debug)]
enum Output {
    /// The server's own, for the ready line and for an access log on standard output.
    Stdout,
    Stderr,
    /// None: a stock PHP program that has not loaded our module prints pages of information. Its
    /// messages are on standard error.
    Dropped,
}

impl Output {
    /// The output of a front.
    fn of_front(config: &Config) -> Self {
        if config.log_targets().contains(&&LogTarget::Stdout) { Self::Stdout } else { Self::Stderr }
    }

    fn open(&self) -> io::Result<Stdio> {
        Ok(match self {
            Self::Stdout => Stdio::inherit(),
            Self::Stderr => rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?.into(),
            Self::Dropped => Stdio::null(),
        })
    }
}

/// The way in which a child gets its own options, with the numbers of its descriptors.
#[derive(Debug)]
enum Options {
    /// As arguments.
    Arguments,
    /// In the environment: the arguments belong to a stock PHP program, which does not know them.
    Environment(HostCommand),
}

impl Options {
    /// Gives a child its options.
    fn pass(&self, options: Vec<OsString>, command: &mut Command) {
        match self {
            Self::Arguments => {
                command.args(options);
            }
            Self::Environment(host) => host.pass(options, command),
        }
    }
}

/// A child that has just started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: GroupLeader,
    /// The supervisor's end of the socket for orders; `None` if the child takes none.
    pub(crate) orders: Option<Socket>,
    /// Tells whether the child was ended for want of memory.
    pub(crate) memory: MemoryWatch,
    pub(crate) php_start: PhpStart,
}

/// A child with the process group that it leads, which is killed when the child is killed or
/// dropped: the process in which PHP preloads scripts would outlive a killed master.
#[derive(Debug)]
pub(crate) struct GroupLeader(Child);

impl GroupLeader {
    /// Kills the child and its group, and waits for the end of the child.
    pub(crate) async fn kill(&mut self) {
        self.kill_group();
        // An error means that the process no longer exists.
        let _ = self.0.kill().await;
    }

    /// The process, for signals; `None` once it has been waited for. Until then no other process or
    /// process group can have its number.
    pub(crate) fn process(&self) -> Option<Pid> {
        i32::try_from(self.0.id()?).ok().and_then(Pid::from_raw)
    }

    fn kill_group(&self) {
        if let Some(process) = self.process() {
            let _ = kill_process_group(process, Signal::KILL);
        }
    }
}

impl Deref for GroupLeader {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for GroupLeader {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        self.kill_group();
    }
}

impl Recipe {
    /// The front: this program, as `sendoff front`.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub(crate) fn front(
        config: &Config,
        sealed: OwnedFd,
        keys: OwnedFd,
        listeners: Vec<Vec<OwnedFd>>,
        pools: Vec<OwnedFd>,
        ready: OwnedFd,
        explain: Option<OwnedFd>,
    ) -> Result<Self, Failure> {
        let mut inherited = vec![
            InheritedDescriptors::one(CONFIG, sealed),
            InheritedDescriptors::one(KEYS, keys),
            InheritedDescriptors { option: LISTENERS, descriptors: listeners },
            InheritedDescriptors { option: POOLS, descriptors: vec![pools] },
            InheritedDescriptors::one("--ready-fd", ready),
        ];
        inherited.extend(explain.map(|fd| InheritedDescriptors::one("--explain-fd", fd)));
        Ok(Self {
            name: "front".to_owned(),
            program: this_program()?,
            arguments: vec!["front".into()],
            inherited,
            calls: None,
            group: None,
            takes_orders: true,
            php_start: None,
            options: Options::Arguments,
            output: Output::of_front(config),
        })
    }

    fn php_master(
        config: &Config,
        number: usize,
        sealed: OwnedFd,
        pool: OwnedFd,
        group: Option<PoolGroup>,
    ) -> Result<Self, Failure> {
        let (program, options, output) = match &config.pools[number].host {
            Some(host) => {
                let command = HostCommand::new(host, &config.pools[number])?;
                (host.file.clone(), Options::Environment(command), Output::Dropped)
            }
            None => (own_php_program()?, Options::Arguments, Output::Stderr),
        };
        let clone = || pool.try_clone().map_err(Failure::system("cannot copy a socket"));
        let calls = (config.pools[number].first_workers() == 0).then(clone).transpose()?;
        let mut inherited = vec![
            InheritedDescriptors::one(CONFIG, sealed),
            InheritedDescriptors::one("--pool-fd", pool),
        ];
        if let Options::Environment(_) = options {
            // A folder that cannot be opened has no files for relative paths either.
            inherited.extend(own_folder().map(|fd| InheritedDescriptors::one("--folder-fd", fd)));
        }
        let name = match &*config.pools {
            [_] => "PHP master".to_owned(),
            pools => format!("PHP master of pool {}", pools[number].name),
        };
        let arguments = vec![option("--pool", number)];
        Ok(Self {
            name,
            program,
            arguments,
            inherited,
            calls,
            group,
            takes_orders: false,
            php_start: Some(config.pools[number].start_timeout),
            options,
            output,
        })
    }

    /// The master of the pool with this number: for a program, or for PHP workers. It enters the
    /// pool's control group, if there is one.
    ///
    /// # Errors
    /// A program is missing, or no socket can be opened.
    pub(crate) fn master(
        config: &Config,
        number: usize,
        sealed: OwnedFd,
        pool: OwnedFd,
        group: Option<PoolGroup>,
    ) -> Result<Self, Failure> {
        match &config.pools[number].program {
            None => Self::php_master(config, number, sealed, pool, group),
            Some(_) => Self::program_master(config, number, sealed, pool, group),
        }
    }

    fn program_master(
        config: &Config,
        number: usize,
        sealed: OwnedFd,
        pool: OwnedFd,
        group: Option<PoolGroup>,
    ) -> Result<Self, Failure> {
        let name = &config.pools[number].name;
        let failed = Failure::system(format!("cannot listen for pool {name}"));
        let PoolListener { socket, inode } = program::listen().map_err(failed)?;
        let inherited = vec![
            InheritedDescriptors::one(CONFIG, sealed),
            InheritedDescriptors::one("--pool-fd", pool),
            InheritedDescriptors::one("--listener-fd", socket),
            InheritedDescriptors::one("--inode-fd", inode),
        ];
        Ok(Self {
            name: format!("master of pool {name}"),
            program: this_program()?,
            arguments: vec!["program".into(), option("--pool", number)],
            inherited,
            calls: None,
            group,
            takes_orders: false,
            php_start: None,
            options: Options::Arguments,
            output: Output::Stderr,
        })
    }

    /// The process that obtains certificates: this program, as `sendoff acme`.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub(crate) fn acme(
        sealed: OwnedFd,
        supervisor: OwnedFd,
        secrets: OwnedFd,
    ) -> Result<Self, Failure> {
        let inherited = vec![
            InheritedDescriptors::one(CONFIG, sealed),
            InheritedDescriptors::one("--supervisor-fd", supervisor),
            InheritedDescriptors::one(KEYS, secrets),
        ];
        Ok(Self {
            name: "process for certificates".to_owned(),
            program: this_program()?,
            arguments: vec!["acme".into()],
            inherited,
            calls: None,
            group: None,
            takes_orders: false,
            php_start: None,
            options: Options::Arguments,
            output: Output::Stderr,
        })
    }

    /// A PHP master also writes the messages that PHP prints at its start into this file, until
    /// [`forget_said`](Self::forget_said).
    pub(crate) fn telling(mut self, said: OwnedFd) -> Self {
        self.inherited.push(InheritedDescriptors::one(SAID, said));
        self
    }

    /// The child purges the fragments that it keeps by these counters; `None`: by its own.
    pub(crate) fn purging(mut self, counters: Option<OwnedFd>) -> Self {
        self.inherited.extend(counters.map(|fd| InheritedDescriptors::one(PURGES, fd)));
        self
    }

    /// True if a child that ends with this status has reported why. A stock PHP program may have
    /// ended before it loaded our module.
    pub(crate) fn reports(&self, status: i32) -> bool {
        match self.options {
            Options::Arguments => status != 0,
            Options::Environment(_) => {
                EXIT_STATUSES.iter().any(|(known, _)| i32::from(*known) == status && status != 0)
            }
        }
    }

    /// A possible reason for the early end of a child that has reported none.
    pub(crate) fn suspicion(&self) -> String {
        match self.options {
            Options::Arguments => String::new(),
            Options::Environment(_) => format!(
                ": {} did not load the module of Sendoff, or an extension ended it; the lines above may say more",
                self.program.display()
            ),
        }
    }

    /// The next child writes the messages of PHP only to the log.
    pub(crate) fn forget_said(&mut self) {
        self.inherited.retain(|inherited| inherited.option != SAID);
    }

    /// The credentials that the next front will have.
    ///
    /// # Errors
    /// No credentials were set, or the system has no descriptor left.
    pub(crate) fn keys(&self) -> io::Result<OwnedFd> {
        let keys = self.inherited.iter().find(|inherited| inherited.option == KEYS);
        let keys = keys.and_then(|keys| keys.descriptors.iter().flatten().next());
        keys.ok_or(io::ErrorKind::NotFound)?.try_clone()
    }

    /// Sets the credentials of the next front.
    pub(crate) fn replace_keys(&mut self, keys: OwnedFd) {
        self.inherited.retain(|inherited| inherited.option != KEYS);
        self.inherited.push(InheritedDescriptors::one(KEYS, keys));
    }

    /// Takes the front's ends of the pool sockets out, in the order of the pools.
    pub(crate) fn take_pools(&mut self) -> Vec<OwnedFd> {
        let pools = self.inherited.iter_mut().filter(|inherited| inherited.option == POOLS);
        pools.flat_map(|inherited| std::mem::take(&mut inherited.descriptors)).flatten().collect()
    }

    /// The listeners of each event loop.
    pub(crate) fn listeners(&self) -> &[Vec<OwnedFd>] {
        let listeners = self.inherited.iter().find(|inherited| inherited.option == LISTENERS);
        listeners.map_or(&[], |inherited| &inherited.descriptors)
    }

    /// Takes the listeners of each event loop out.
    pub(crate) fn take_listeners(&mut self) -> Vec<Vec<OwnedFd>> {
        let listeners = self.inherited.iter_mut().find(|i| i.option == LISTENERS);
        listeners.map(|inherited| std::mem::take(&mut inherited.descriptors)).unwrap_or_default()
    }

    /// The next front serves this configuration, with these listeners of each event loop and with
    /// workers from these pools.
    pub(crate) fn reconfigure(
        &mut self,
        config: &Config,
        [sealed, keys]: [OwnedFd; 2],
        listeners: Vec<Vec<OwnedFd>>,
        pools: Vec<OwnedFd>,
    ) {
        let replaced = [CONFIG, KEYS, LISTENERS, POOLS];
        self.inherited.retain(|inherited| !replaced.contains(&inherited.option));
        self.inherited.push(InheritedDescriptors::one(CONFIG, sealed));
        self.inherited.push(InheritedDescriptors::one(KEYS, keys));
        self.inherited.push(InheritedDescriptors { option: LISTENERS, descriptors: listeners });
        self.inherited.push(InheritedDescriptors { option: POOLS, descriptors: vec![pools] });
        self.output = Output::of_front(config);
    }

    /// Closes the descriptors kept for further children: there will be none.
    pub(crate) fn close(&mut self) {
        self.inherited.clear();
        self.calls = None;
    }

    /// Starts the child in a session of its own, so that Ctrl-C at the terminal reaches only the
    /// supervisor, which passes it on. And without a terminal no program that a script starts can
    /// be stopped by reading from it, which would stop the whole process group (SIGTTIN).
    ///
    /// # Errors
    /// The system refuses to start it.
    pub(crate) fn start(&self) -> Result<Started, Failure> {
        let failed = || format!("cannot start the {} ({})", self.name, self.program.display());
        let orders = self.takes_orders.then(orders::sockets).transpose();
        let (orders, theirs) = orders.map_err(Failure::system(failed()))?.unzip();
        let theirs = theirs.map(|fd| InheritedDescriptors::one("--orders-fd", fd));
        let group = self.group.as_ref().map(PoolGroup::open).transpose();
        let group = group.map_err(Failure::system(format!("{}: its control group", failed())))?;
        let watched = group.as_ref().map(OwnedFd::try_clone).transpose();
        let watched = watched.map_err(Failure::system(failed()))?;
        let memory = MemoryWatch::new(watched.map(sendoff_sandbox::PoolGroup::of_child));
        let group = group.map(|fd| InheritedDescriptors::one("--group-fd", fd));
        let php_start = self.php_start.map(PhpStart::within).transpose();
        let (php_start, started) = php_start.map_err(Failure::system(failed()))?.unzip();
        let started = started.map(|fd| InheritedDescriptors::one("--started-fd", fd));
        let inherited = || self.inherited.iter().chain(&theirs).chain(&group).chain(&started);
        let inherit = |flags| -> io::Result<()> {
            let mut descriptors = inherited().flat_map(|of| of.descriptors.iter().flatten());
            descriptors.try_for_each(|fd| Ok(rustix::io::fcntl_setfd(fd, flags)?))
        };
        let stdout = self.output.open().map_err(Failure::system(failed()))?;
        inherit(FdFlags::empty()).map_err(Failure::system(failed()))?;
        let mut command = Command::new(&self.program);
        for name in systemd::VARIABLES {
            command.env_remove(name);
        }
        if let Options::Arguments = self.options {
            command.arg0(format!("sendoff: {}", self.name));
        }
        let options = inherited().map(InheritedDescriptors::argument);
        self.options.pass(self.arguments.iter().cloned().chain(options).collect(), &mut command);
        command.stdin(Stdio::null()).stdout(stdout).kill_on_drop(true);
        in_new_session(command.as_std_mut());
        let child = command.spawn().map_err(Failure::system(failed()));
        inherit(FdFlags::CLOEXEC).map_err(Failure::system(failed()))?;
        let php_start = php_start.unwrap_or(PhpStart::Over);
        Ok(Started { child: GroupLeader(child?), orders, memory, php_start })
    }
}

/// The folder that this process works in.
fn own_folder() -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(".", flags, Mode::empty()).ok()
}

/// The program with libphp.
///
/// # Errors
/// It is not installed.
pub(crate) fn own_php_program() -> Result<PathBuf, Failure> {
    let program = this_program()?.with_file_name(PHP_PROGRAM);
    if program.is_file() {
        return Ok(program);
    }
    let program = program.display();
    Err(Failure::System(format!(
        "{program}, which runs PHP scripts, is missing: install the packages \
         php{PHP_VERSION}-fpm and sendoff-host-php{PHP_VERSION}, or sendoff-php{PHP_VERSION}, or say that a site has none by `php = false` (--no-php)"
    )))
}

/// The path of this program when it was started. A different program may be there now.
///
/// # Errors
/// The system does not report the path.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found.clone());
    }
    let found = std::env::current_exe();
    let found = found.map_err(Failure::system("the path of this program is not known"))?;
    Ok(FOUND.get_or_init(|| found).clone())
}

fn option(name: &str, value: impl std::fmt::Display) -> OsString {
    format!("{name}={value}").into()
}
