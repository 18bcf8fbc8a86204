//! Configuration of a pool: of PHP workers, or of processes of another program.

use std::path::PathBuf;
use std::time::Duration;

use sendoff_sys::master::Confines;
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::group::GroupLimits;

/// Configuration of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Its name in logs, which no other pool has.
    pub name: String,
    /// What its processes run; `None`: they are PHP workers, and what is said here of scripts is about PHP's.
    pub program: Option<Program>,
    /// The PHP script that its workers run once, to take requests there one after the other (worker mode); `None`: each request runs its
    /// own script. Not with a `program`.
    pub worker: Option<WorkerScript>,
    /// The user and the group of its workers; `None`: those of the supervisor, which must not be root then.
    pub account: Option<Account>,
    /// The permissions that files made by scripts do not get (umask(2)), at most 0o777; `None`: the supervisor's.
    pub umask: Option<u32>,
    /// The folder that is `/` for scripts (chroot(2)); `None`: the system's. Only root can start such a pool. The front takes it
    /// off the beginning of `SCRIPT_FILENAME` and `DOCUMENT_ROOT`.
    #[serde(with = "crate::path::optional")]
    pub chroot: Option<PathBuf>,
    /// The working folder of workers before and after a script, which itself runs in its own folder. A path inside `chroot`.
    #[serde(with = "crate::path::one")]
    pub chdir: PathBuf,
    /// Environment variables of scripts, with their values, beside `USER` and `HOME`. Scripts see no others. None of the names
    /// is empty or contains `=`.
    pub environment: Vec<(String, String)>,
    /// How many workers there are.
    pub workers: Workers,
    /// Settings on top of php.ini, each `KEY=VALUE` in the syntax of php.ini. Scripts may change them where PHP allows it.
    pub php_ini: Vec<String>,
    /// Settings on top of those, by name, with values that are taken as they are (`php_value`). Scripts may change them where PHP
    /// allows it.
    pub php_values: Vec<(String, String)>,
    /// As `php_values`, for settings that neither scripts nor `.user.ini` files can change (`php_admin_value`).
    pub php_admin_values: Vec<(String, String)>,
    /// Requests after which a worker is replaced; 0: never.
    pub max_requests: u64,
    /// How long a script may send nothing before it counts as stuck and its worker is replaced; `None`: for ever.
    pub request_timeout: Option<Duration>,
    /// Requests that may wait for a worker, or for a process of the program.
    pub max_waiting: u64,
    /// Where scripts are logged that run for long; `None`: nowhere.
    pub slow_log: Option<SlowLog>,
    /// The most bytes of memory of its own that a worker may have (`RLIMIT_DATA`); `None`: any number. PHP's `memory_limit`
    /// counts what the script allocates; this also counts what libraries do.
    pub memory_limit: Option<u64>,
    /// The most descriptors that a worker may have (`RLIMIT_NOFILE`); `None`: as many as the supervisor.
    pub max_open_files: Option<u64>,
    /// The most processes and threads that the user of its workers may have, in and out of the pool, when a worker starts another one
    /// (`RLIMIT_NPROC`); `None`: as many as the supervisor's limit says.
    pub max_processes: Option<u64>,
    /// The most bytes of the core file of a worker that crashes (`RLIMIT_CORE`); `None`: as many as the supervisor's limit says.
    pub max_core: Option<u64>,
    /// What all processes of the pool together may use.
    pub group: GroupLimits,
    /// Whether programs that scripts start get no privileges by being setuid, and scripts cannot signal processes of other pools and of
    /// the server.
    pub no_new_privileges: bool,
    /// The request path, on every site whose scripts the pool runs, that is answered with the state of the pool; `None`: none.
    pub status_path: Option<String>,
    /// The request path, on every site whose scripts the pool runs, that is answered with `ping_response`; `None`: none.
    pub ping_path: Option<String>,
    /// The body of the response for `ping_path`.
    pub ping_response: String,
    /// What keeps a file as the script read it until it is sent.
    pub snapshot: Snapshot,
}

impl PoolConfig {
    /// The default of [`max_waiting`](Self::max_waiting). At 4096 requests a client has left long before its turn comes.
    pub const MAX_WAITING: u64 = 4096;

    /// A pool of this name and these workers: every other value is its default.
    #[must_use]
    pub fn new(name: &str, workers: Workers) -> Self {
        Self {
            name: name.to_owned(),
            program: None,
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

    /// What its processes are confined to.
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

    /// PHP workers to start with.
    #[must_use]
    pub fn first_workers(&self) -> usize {
        match self.workers {
            _ if self.program.is_some() => 0,
            Workers::Fixed(count) => count.into(),
            Workers::Auto(bounds) => bounds.min,
        }
    }

    /// Processes of its program.
    #[must_use]
    pub fn processes(&self) -> usize {
        match self.workers {
            Workers::Fixed(count) if self.program.is_some() => count.into(),
            Workers::Fixed(_) | Workers::Auto(_) => 0,
        }
    }

    /// PHP workers that there may be at a time.
    #[must_use]
    pub fn most_workers(&self) -> usize {
        self.bounds().map_or_else(|| self.first_workers(), |bounds| bounds.max)
    }

    /// Between which numbers of workers the front chooses, unless the operator has chosen.
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
    /// Its file, outside of any `chroot`.
    #[serde(with = "crate::path::one")]
    pub file: PathBuf,
    /// Bytes of PHP's memory after which a worker is replaced, when its request has ended; `None`: any.
    pub max_memory: Option<u64>,
    /// Time after which a worker is replaced, when its request has ended; `None`: any.
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

/// A program that answers FastCGI requests. Each process gets the listening socket of its pool as descriptor 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its file, as the process sees it: inside `chroot`, if the pool has one.
    #[serde(with = "crate::path::one")]
    pub file: PathBuf,
    /// Its name and arguments as the operator wrote them; not empty.
    pub command: Vec<String>,
    /// Requests that one of its processes serves at a time; `None`: that is found out.
    pub requests_per_process: Option<u32>,
}

impl Program {
    /// Where programs are looked for whose name has no slash, and the `PATH` of their processes, unless the pool's environment has
    /// one.
    pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/// Where scripts are logged that run for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowLog {
    /// How long: a script that has worked on its request for this time is logged once, with its PHP backtrace, and goes on. Not
    /// zero.
    pub after: Duration,
    /// The file, opened for appending by the user who started the server.
    #[serde(with = "crate::path::one")]
    pub path: PathBuf,
}

/// How many workers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workers {
    /// Always this many.
    Fixed(u16),
    /// As many as requests need.
    Auto(Bounds),
}

/// Between which numbers of workers to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Kept even while no request comes. With 0 an idle pool has no process at all.
    pub min: usize,
    /// Never exceeded.
    pub max: usize,
    /// Workers beyond `min` that had no request for this long are ended.
    pub idle: Duration,
}

/// What keeps a file as the script read it until it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Snapshot {
    /// A read lease on the file.
    Lease,
    /// A copy.
    Copy,
}
