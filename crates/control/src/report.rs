//! The report that `sendoff status` shows.

mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use sendoff_acme::CertificateReport;
use sendoff_config::{GroupLimits, PoolConfig};
use sendoff_report::status::{
    Encryption, FleetStatus, ProgramStatus, RequestStatus, SiteStatus, Status, UpstreamStatus,
    WarmingStatus, WorkerStatus,
};
use sendoff_report::workers::PhpReport;
use serde::{Deserialize, Serialize};

use crate::confinement::Confinement;
use crate::php::HostReport;

pub(crate) use text::{Ago, mega};

/// The state of a server.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServerReport {
    /// Version of the server.
    pub version: String,
    /// Process id of the supervisor.
    pub pid: u32,
    /// Process id of the front; `None` while the front is being restarted.
    pub front_pid: Option<u32>,
    /// The rights of the front; `None` if unknown.
    pub confinement: Option<Confinement>,
    /// In seconds.
    pub uptime: u64,
    /// Addresses on which the server listens.
    pub listeners: Vec<String>,
    /// The configuration file; `None` for a server started by `sendoff serve`.
    #[serde(default)]
    pub config: Option<PathBuf>,
    /// Requests that belong to no site, because they were malformed.
    pub refused: u64,
    /// The sites, in the order of the configuration.
    pub sites: Vec<SiteReport>,
    /// Connections of clients; `None` if the front did not answer.
    pub connections: Option<usize>,
    /// Connections without a request.
    pub idle_connections: Option<usize>,
    /// Counts of limits that were met since the front started, by the limits' names. Limits that
    /// were never met are absent.
    pub limits: BTreeMap<String, u64>,
    /// The side that encrypts TLS connections: the kernel or the server; or no TLS at all.
    pub tls: Encryption,
    /// The pools, in the order of the configuration.
    pub pools: Vec<PoolReport>,
    /// The upstreams with their hosts.
    pub upstreams: Vec<UpstreamStatus>,
    /// Requests for applications that wait or are being answered, the oldest first: at most 1000 of
    /// each event loop.
    pub requests: Vec<RequestStatus>,
    /// The sites whose pages are made before clients ask for them.
    #[serde(default)]
    pub warming: Vec<WarmingStatus>,
    /// The state of the node; `None`: it belongs to no fleet, or the front did not answer.
    #[serde(default)]
    pub fleet: Option<FleetStatus>,
    /// Time of the report, in seconds since 1970.
    pub time: u64,
    /// The certificates that the server obtains by itself.
    pub certificates: Vec<CertificateReport>,
    /// Seconds since the running reload began; `None` if none is running.
    pub reloading: Option<u64>,
    /// The last reload; `None` if there was none.
    pub last_reload: Option<Reloaded>,
}

/// The outcome of a reload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reloaded {
    /// Seconds since its end.
    pub ago: u64,
    /// The reason why nothing changed; `None` after a success.
    pub error: Option<String>,
}

/// A site, and the responses sent for it since the front has the site.
#[derive(Debug, Serialize, Deserialize)]
pub struct SiteReport {
    /// Name of the site.
    pub name: String,
    /// Root folder of the site.
    pub root: String,
    /// Volume of these responses.
    #[serde(flatten)]
    pub sent: SiteStatus,
}

/// The state of a pool.
#[derive(Debug, Serialize, Deserialize)]
pub struct PoolReport {
    name: String,
    /// Requests waiting for a worker.
    waiting: usize,
    /// Requests given to workers since the front has the pool.
    requests: u64,
    workers: Vec<WorkerReport>,
    /// The pool's program; `None` if the workers run PHP.
    program: Option<ProgramReport>,
    /// The stock PHP program that hosts the workers; `None` if `sendoff-php` has them, or if they
    /// run no PHP.
    #[serde(default)]
    host: Option<HostReport>,
    /// PHP's state as its workers report it; `None` until the first report.
    php: Option<PhpReport>,
    /// Limits that all processes of the pool share; `None` if there are none.
    group: Option<GroupReport>,
}

/// The limits that a pool's processes share, and their current use.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct GroupReport {
    /// In bytes.
    memory_limit: Option<u64>,
    /// Number of processors.
    cpu_limit: Option<f64>,
    processes_limit: Option<u64>,
    /// `None`: the limits have no effect, because the server may not make control groups.
    used: Option<GroupUse>,
}

impl GroupReport {
    /// The limits of a pool and their use; `None` if the pool has no limits.
    fn new(limits: GroupLimits, used: Option<GroupUse>) -> Option<Self> {
        (!limits.is_none()).then(|| Self {
            memory_limit: limits.memory,
            cpu_limit: limits.cpu.map(|parts| f64::from(parts) / 1000.0),
            processes_limit: limits.processes,
            used,
        })
    }
}

/// Resources that a pool's processes use.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct GroupUse {
    /// Bytes, including the page cache; `None` if there is no limit, or if the number is unknown.
    pub memory: Option<u64>,
    /// Processes and threads; `None` if there is no limit, or if the number is unknown.
    pub processes: Option<u64>,
    /// Number of processes that the kernel has killed for lack of memory since the group was made.
    pub out_of_memory: u64,
}

/// The state of a program.
#[derive(Debug, Serialize, Deserialize)]
struct ProgramReport {
    /// Its command.
    command: Vec<String>,
    #[serde(flatten)]
    status: ProgramStatus,
}

/// The state of a worker.
#[derive(Debug, Serialize, Deserialize)]
struct WorkerReport {
    pid: i32,
    /// The worker's current request; `None` if it is idle.
    request: Option<String>,
    /// Details of that request; `None` if unknown.
    at_work: Option<RequestStatus>,
    /// Private memory in bytes, if it could be read.
    memory: Option<u64>,
}

impl PoolReport {
    /// A pool known only by its configuration and the use of its control group.
    #[must_use]
    pub fn new(pool: &PoolConfig, group: Option<GroupUse>) -> Self {
        let program = pool.program.as_ref().map(|program| ProgramReport {
            command: program.command.clone(),
            status: ProgramStatus::default(),
        });
        let (name, workers) = (pool.name.clone(), Vec::new());
        let host = pool.host.as_ref().map(HostReport::new);
        let group = GroupReport::new(pool.group, group);
        Self { name, waiting: 0, requests: 0, workers, program, host, php: None, group }
    }
}

impl ServerReport {
    /// Adds the front's status; `None` if the front has not answered.
    #[must_use]
    pub fn with(mut self, front: Option<Status>) -> Self {
        let Some(front) = front else { return self };
        let Status { connections, idle_connections, tls, refused, sites, pools, .. } = front;
        let Status { upstreams, limits, requests, warming, fleet, .. } = front;
        (self.warming, self.fleet) = (warming, fleet);
        self.limits = limits;
        self.requests = requests;
        self.tls = tls;
        self.refused = refused;
        self.upstreams = upstreams;
        for (site, sent) in self.sites.iter_mut().zip(sites) {
            site.sent = sent;
        }
        (self.connections, self.idle_connections) = (Some(connections), Some(idle_connections));
        for (pool, status) in self.pools.iter_mut().zip(pools) {
            (pool.waiting, pool.requests) = (status.waiting, status.requests);
            pool.php = status.php;
            pool.workers = status.workers.into_iter().map(WorkerReport::from).collect();
            pool.workers.sort_by_key(by_age);
            if let (Some(program), Some(status)) = (&mut pool.program, status.program) {
                program.status = status;
            }
        }
        self
    }
}

impl From<WorkerStatus> for WorkerReport {
    fn from(WorkerStatus { pid, request, at_work }: WorkerStatus) -> Self {
        Self { pid, request, at_work, memory: private_memory(pid) }
    }
}

/// Sort key: busy workers first, by descending age of their requests; then idle ones.
fn by_age(worker: &WorkerReport) -> (bool, Reverse<u64>) {
    let age = worker.at_work.as_ref().map_or(0, |request| request.age);
    (worker.request.is_none(), Reverse(age))
}

/// Resident memory of a process that no file backs, in bytes (`RssAnon`, proc_pid_status(5)).
fn private_memory(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
