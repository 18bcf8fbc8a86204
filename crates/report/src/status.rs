//! The current activity of the front, for `sendoff status`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workers::PhpReport;

pub use crate::at_work::{Phase, RequestStatus};
pub use crate::warming::{WarmedPages, WarmingStatus};

/// The current activity of the front or of one of its event loops.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Clients' connections.
    pub connections: usize,
    /// Clients' connections without a request.
    pub idle_connections: usize,
    /// The encryption of those connections.
    pub tls: Encryption,
    /// Requests without a site, because they could not be understood.
    pub refused: u64,
    /// The figures of each site, by site number.
    pub sites: Vec<SiteStatus>,
    /// The state of each pool, by pool number.
    pub pools: Vec<PoolStatus>,
    /// The upstreams of the sites, by name.
    pub upstreams: Vec<UpstreamStatus>,
    /// The limits that were met since the front started, with their counts, by label.
    pub limits: BTreeMap<String, u64>,
    /// Requests that applications answer or are to answer, the oldest first; at most 1000 of each
    /// event loop.
    pub requests: Vec<RequestStatus>,
    /// The sites whose pages are made before clients ask for them.
    pub warming: Vec<WarmingStatus>,
    /// The state of the node, if it belongs to a fleet.
    pub fleet: Option<FleetStatus>,
}

/// The party that encrypts connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encryption {
    /// No site has TLS.
    #[default]
    None,
    /// The server: the kernel has no TLS.
    ByServer,
    /// The kernel: this number of connections at present.
    ByKernel(usize),
}

impl Encryption {
    /// Adds the connections of another event loop.
    fn add(&mut self, other: Self) {
        *self = match (*self, other) {
            (Self::ByKernel(one), Self::ByKernel(other)) => Self::ByKernel(one + other),
            (Self::None, other) => other,
            (one, _) => one,
        };
    }
}

/// Figures of a site since the front has had it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Requests that were answered, or whose client left.
    pub requests: u64,
    /// Bytes of bodies that came as parts of files and were not copied by the server.
    pub handed_over: u64,
    /// Bytes of bodies that came as bytes.
    pub copied: u64,
}

impl SiteStatus {
    /// Adds the figures of another event loop.
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.handed_over += other.handed_over;
        self.copied += other.copied;
    }
}

/// The state of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// Requests that workers were given since the front has the pool.
    pub requests: u64,
    /// Number of times that requests needed another worker when the pool already had the most
    /// allowed.
    pub limit_reached: u64,
    /// Requests that the slow log has.
    pub slow: u64,
    /// Processes that the kernel has ended because there was no memory left.
    pub out_of_memory: u64,
    /// The workers, by process id.
    pub workers: Vec<WorkerStatus>,
    /// The state of the pool's program; `None`: the pool's workers run PHP.
    pub program: Option<ProgramStatus>,
    /// The report that its workers sent about PHP; `None`: none has arrived yet.
    pub php: Option<PhpReport>,
}

/// The state of a node of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// Name of the fleet.
    pub name: String,
    /// Address of the engine.
    pub engine: String,
    /// The reason why the engine does not serve, as a sentence about "it"; `None`: it serves.
    pub why: Option<String>,
    /// Seconds for which it has served, or has not.
    pub since: u64,
    /// Purges that were sent to other nodes.
    pub sent: u64,
    /// Purges of other nodes that were obeyed.
    pub obeyed: u64,
    /// Number of times that all pages were purged, because purges of other nodes may be missing.
    pub restarts: u64,
    /// Things in the engine that no node has written.
    pub broken: u64,
    /// Purges that wait until the engine serves.
    pub waiting: usize,
}

/// The state of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: String,
    /// Its hosts; empty: their names have not been resolved yet, or have no address.
    pub hosts: Vec<HostStatus>,
}

/// The state of a host of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its address.
    pub address: String,
    /// Its share of requests among hosts of its rank.
    pub weight: u32,
    /// Hosts of a higher rank get requests while none of a lower one is up.
    pub rank: u16,
    /// Requests in flight to it, including those that wait for a connection.
    pub busy: usize,
    /// Requests that it was given.
    pub requests: u64,
    /// Failures since its last answer.
    pub failures: u32,
    /// Milliseconds until it is tried again; `None`: it is up.
    pub down_for: Option<u64>,
    /// It is not tried before a check succeeds, unless no other host is up.
    pub awaits_check: bool,
    /// The reason why it is not up, as a sentence about "it".
    pub why: String,
}

/// The state of a program, beside its processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Requests that its processes work on; which process has which request is not known.
    pub busy: usize,
    /// Why no process runs: completes the sentence "the program ...".
    pub down: Option<String>,
}

/// The state of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its process.
    pub pid: i32,
    /// Method and path of the current request; `None`: there is none, or the process belongs to a
    /// program, whose requests are not known.
    pub request: Option<String>,
    /// More about that request; `None`: nothing is known.
    pub at_work: Option<RequestStatus>,
}

impl Status {
    /// Adds the activity of another event loop. Each worker has a link to every loop, and a request
    /// on one of them.
    pub fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.idle_connections += other.idle_connections;
        self.tls.add(other.tls);
        self.refused += other.refused;
        self.sites.resize_with(self.sites.len().max(other.sites.len()), SiteStatus::default);
        self.sites.iter_mut().zip(other.sites).for_each(|(site, other)| site.add(other));
        // The same in all loops.
        self.upstreams = other.upstreams;
        self.limits = other.limits;
        self.fleet = other.fleet.or(self.fleet.take());
        self.warming.extend(other.warming);
        self.requests.extend(other.requests);
        self.requests.sort_by_key(|request| Reverse(request.age));
        let count = self.pools.len().max(other.pools.len());
        self.pools.resize_with(count, PoolStatus::default);
        for (pool, other) in self.pools.iter_mut().zip(other.pools) {
            // These are common to all loops.
            pool.requests = pool.requests.max(other.requests);
            pool.waiting = pool.waiting.max(other.waiting);
            pool.limit_reached = pool.limit_reached.max(other.limit_reached);
            pool.slow = pool.slow.max(other.slow);
            pool.out_of_memory = pool.out_of_memory.max(other.out_of_memory);
            pool.program = other.program.or(pool.program.take());
            pool.php = other.php.or(pool.php.take());
            for worker in other.workers {
                match pool.workers.binary_search_by_key(&worker.pid, |known| known.pid) {
                    Ok(at) => {
                        let known = &mut pool.workers[at];
                        known.request = known.request.take().or(worker.request);
                        known.at_work = known.at_work.take().or(worker.at_work);
                    }
                    Err(at) => pool.workers.insert(at, worker),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_listed_once_with_the_request_that_one_loop_knows() {
        let worker = |pid, request: Option<&str>| {
            let request = request.map(str::to_owned);
            WorkerStatus { pid, request, at_work: None }
        };
        let pool = |workers| PoolStatus {
            waiting: 3,
            requests: 5,
            workers,
            slow: 2,
            out_of_memory: 3,
            ..PoolStatus::default()
        };
        let of_loop = |workers| Status {
            connections: 2,
            idle_connections: 1,
            tls: Encryption::ByKernel(2),
            refused: 1,
            sites: vec![SiteStatus { requests: 2, handed_over: 3, copied: 4 }],
            pools: vec![pool(workers)],
            upstreams: vec![UpstreamStatus { name: "app".to_owned(), hosts: Vec::new() }],
            limits: BTreeMap::from([("rate".to_owned(), 7)]),
            requests: Vec::new(),
            warming: Vec::new(),
            fleet: None,
        };
        let mut sum = Status::default();
        sum.add(of_loop(vec![worker(9, None), worker(4, Some("GET /a"))]));
        sum.add(of_loop(vec![worker(4, None), worker(9, Some("GET /b"))]));
        let workers = vec![worker(4, Some("GET /a")), worker(9, Some("GET /b"))];
        let pools = vec![pool(workers)];
        let sites = vec![SiteStatus { requests: 4, handed_over: 6, copied: 8 }];
        let tls = Encryption::ByKernel(4);
        let upstreams = vec![UpstreamStatus { name: "app".to_owned(), hosts: Vec::new() }];
        let (connections, idle_connections) = (4, 2);
        let limits = BTreeMap::from([("rate".to_owned(), 7)]);
        let expected = Status {
            connections,
            idle_connections,
            tls,
            refused: 2,
            sites,
            pools,
            upstreams,
            limits,
            requests: Vec::new(),
            warming: Vec::new(),
            fleet: None,
        };
        assert_eq!(sum, expected);
    }
}
