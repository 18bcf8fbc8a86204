//! Configuration of a pool: of PHP workers, or of processes of another program.

use std::path::PathBuf;
use std::time::Duration;

use sendoff_sys::master::Confines;
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::group::GroupLimits;
use crate::php_build::PhpApi;

/// Configuration of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Its unique name, for logs.
    pub name: String,
    /// The program that its processes run; `None`: PHP workers. Fields about scripts mean PHP
    /// scripts.
    pub program: Option<Program>,
    /// The stock PHP program that hosts its PHP workers; `None`: `sendoff-php`. Not with a
    /// `program`.
    pub host: Option<HostProgram>,
    /// The PHP script that each worker runs once and that then takes one request after the other
    /// (worker mode); `None`: each request runs its own script. Not with a `program`.
    pub worker: Option<WorkerScript>,
    /// The user and the group of its workers; `None`: the supervisor's, which must not be root
    /// then.
    pub account: Option<Account>,
    /// The permissions that new files of scripts do not get (umask(2)), at most 0o777; `None`: the
    /// supervisor's.
    pub umask: Option<u32>,
    /// The folder that is `/` for scripts (chroot(2)); `None`: the system's. Only root can start
    /// such a pool. The front removes this prefix from `SCRIPT_FILENAME` and `DOCUMENT_ROOT`.
    #[serde(with = "crate::path::optional")]
    pub chroot: Option<PathBuf>,
    /// The working folder of workers before and after a script, which itself runs in its own
    /// folder. A path inside `chroot`.
    #[serde(with = "crate::path::one")]
    pub chdir: PathBuf,
    /// Environment variables of scripts, with their values, beside `USER` and `HOME`. Scripts see
    /// no others. None of the names is empty or contains `=`.
    pub environment: Vec<(String, String)>,
    /// The number of workers.
    pub workers: Workers,
    /// Settings on top of php.ini, each `KEY=VALUE` in the syntax of php.ini. Scripts may change
    /// them where PHP allows it.
    pub php_ini: Vec<String>,
    /// Settings on top of `php_ini`, by name, with values that are taken literally (`php_value`).
    /// Scripts may change them where PHP allows it.
    pub php_values: Vec<(String, String)>,
    /// As `php_values`, for settings that neither scripts nor `.user.ini` files can change
    /// (`php_admin_value`).
    pub php_admin_values: Vec<(String, String)>,
    /// The number of requests after which a worker is replaced; 0: never.
    pub max_requests: u64,
    /// Time without output after which a script counts as stuck and its worker is replaced; `None`:
    /// no limit.
    pub request_timeout: Option<Duration>,
    /// The longest time in which PHP starts in the master of the pool, with its extensions and
    /// preloaded scripts.
    pub start_timeout: Duration,
    /// The largest number of requests that wait for a worker, or for a process of the program.
    pub max_waiting: u64,
    /// The log of slow scripts.
    pub slow_log: Option<SlowLog>,
    /// The most bytes of private memory of a worker (`RLIMIT_DATA`); `None`: no limit. PHP's
    /// `memory_limit` counts only the script's allocations; this limit also counts libraries.
    pub memory_limit: Option<u64>,
    /// The most descriptors of a worker (`RLIMIT_NOFILE`); `None`: the supervisor's limit.
    pub max_open_files: Option<u64>,
    /// The most processes and threads of the workers' user, in and outside of the pool, at the time
    /// when a worker starts another one (`RLIMIT_NPROC`); `None`: the supervisor's limit.
    pub max_processes: Option<u64>,
    /// The most bytes of the core file of a worker that crashes (`RLIMIT_CORE`); `None`: the
    /// supervisor's limit.
    pub max_core: Option<u64>,
    /// The limits of all processes of the pool together.
    pub group: GroupLimits,
    /// Denies privileges to setuid programs that scripts start, and denies scripts signals to
    /// processes of other pools and of the server.
    pub no_new_privileges: bool,
    /// The request path, on every site whose scripts the pool runs, for the state of the pool;
    /// `None`: no such path.
    pub status_path: Option<String>,
    /// The request path, on every site whose scripts the pool runs, for `ping_response`; `None`: no
    /// such path.
    pub ping_path: Option<String>,
    /// The body of the response for `ping_path`.
    pub ping_response: String,
    /// The protection of a file against changes until it is sent.
    pub snapshot: Snapshot,
}

impl PoolConfig {
    /// The default of [`max_waiting`](Self::max_waiting). A client behind 4096 waiting requests
    /// leaves long before its turn comes.
    pub const MAX_WAITING: u64 = 4096;

    /// The default of [`start_timeout`](Self::start_timeout). PHP starts in less than a second;
    /// preloading a large application takes some seconds.
    pub const START_TIMEOUT: Duration = Duration::from_secs(60);

    /// A pool with this name and these workers; the other values are defaults.
    #[must_use]
    pub fn new(name: &str, workers: Workers) -> Self {
        Self {
            name: name.to_owned(),
            program: None,
            host: None,
            worker: None,
            account: None,
            umask: None,
            chroot: None,
            chdir: "/".into(),
            environment: Vec::new(),
            workers,
            php_ini: Vec::new(),
            php_values: Vec::new(),
            php_admin_values: Vec::new(),
            max_requests: 0,
            request_timeout: Some(Duration::from_secs(300)),
            start_timeout: Self::START_TIMEOUT,
            max_waiting: Self::MAX_WAITING,
            slow_log: None,
            memory_limit: None,
            max_open_files: None,
            max_processes: None,
            max_core: None,
            group: GroupLimits::default(),
            no_new_privileges: false,
            status_path: None,
            ping_path: None,
            ping_response: "pong".to_owned(),
            snapshot: Snapshot::Lease,
        }
    }

    /// The limits that each of its processes is started with.
    #[must_use]
    pub fn confines(&self) -> Confines<'_> {
        Confines {
            umask: self.umask,
            memory_limit: self.memory_limit,
            max_open_files: self.max_open_files,
            max_processes: self.max_processes,
            max_core: self.max_core,
            root: self.chroot.as_deref(),
            account: self.account.map(|account| (account.uid, account.gid)),
        }
    }

    /// The number of PHP workers at the start.
    #[must_use]
    pub fn first_workers(&self) -> usize {
        match self.workers {
            _ if self.program.is_some() => 0,
            Workers::Fixed(count) => count.into(),
            Workers::Auto(bounds) => bounds.min,
        }
    }

    /// The number of processes of its program; 0 for a pool of PHP workers.
    #[must_use]
    pub fn processes(&self) -> usize {
        match self.workers {
            Workers::Fixed(count) if self.program.is_some() => count.into(),
            Workers::Fixed(_) | Workers::Auto(_) => 0,
        }
    }

    /// The largest number of PHP workers at a time.
    #[must_use]
    pub fn most_workers(&self) -> usize {
        self.bounds().map_or_else(|| self.first_workers(), |bounds| bounds.max)
    }

    /// The bounds between which the front chooses the number of workers; `None` for a fixed number.
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        match self.workers {
            Workers::Fixed(_) => None,
            Workers::Auto(bounds) => Some(bounds),
        }
    }
}

/// A PHP script that boots an application, and takes requests by `sendoff_handle_request()`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerScript {
    /// The path of its file, outside of any `chroot`.
    #[serde(with = "crate::path::one")]
    pub file: PathBuf,
    /// Bytes of PHP's memory above which a worker is replaced after its request; `None`: no limit.
    pub max_memory: Option<u64>,
    /// Age after which a worker is replaced after its request; `None`: no limit.
    pub max_age: Option<Duration>,
    /// Folders; when a source file below them changes, the workers are replaced.
    #[serde(with = "crate::path::list")]
    pub watch: Vec<PathBuf>,
}

impl WorkerScript {
    /// The script at a path, without limits.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self { file, max_memory: None, max_age: None, watch: Vec::new() }
    }
}

/// A stock PHP program whose process becomes the master of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostProgram {
    /// Its file, such as `/usr/sbin/php-fpm8.2`.
    #[serde(with = "crate::path::one")]
    pub file: PathBuf,
    /// Its API, for which the module must have been compiled.
    pub api: PhpApi,
    /// The version of the file, which differs once a package has replaced it: then a reload gives
    /// the pool a new master.
    pub version: FileVersion,
}

/// The version of a file: its inode, its size in bytes, and the time of its last change in
/// nanoseconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileVersion {
    /// The inode.
    pub inode: u64,
    /// The size.
    pub size: u64,
    /// The time of the last change.
    pub changed: i64,
}

/// A program that answers FastCGI requests. Each process gets the listening socket of its pool as
/// descriptor 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its file, as the process sees it: inside `chroot`, if the pool has one.
    #[serde(with = "crate::path::one")]
    pub file: PathBuf,
    /// Its name and arguments as the operator wrote them; not empty.
    pub command: Vec<String>,
    /// Requests that one of its processes serves at a time; `None`: the server finds it out.
    pub requests_per_process: Option<u32>,
    /// Memory in bytes for fragments of pages that its processes share; `None`: there is none.
    pub fragments: Option<u64>,
}

impl Program {
    /// The folders in which programs without a slash in their name are looked up. Also the `PATH`
    /// of their processes, unless the pool's environment has one.
    pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/// The log of slow scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowLog {
    /// Time after which a script that still works on its request is logged once, with its PHP
    /// backtrace. The script goes on. Not zero.
    pub after: Duration,
    /// The file, opened for appending by the user who started the server.
    #[serde(with = "crate::path::one")]
    pub path: PathBuf,
}

/// The number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workers {
    /// A constant number.
    Fixed(u16),
    /// As many as requests need.
    Auto(Bounds),
}

/// The bounds of the number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The number that stays while no request comes. With 0 an idle pool has no process at all.
    pub min: usize,
    /// The largest number.
    pub max: usize,
    /// Idle timeout of the workers beyond `min`.
    pub idle: Duration,
}

/// The protection of a file, as the script read it, against changes until it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Snapshot {
    /// A read lease on the file.
    Lease,
    /// A copy.
    Copy,
}
