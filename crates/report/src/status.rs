//! What the front is doing at this moment, for `sendoff status`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workers::PhpReport;

pub use crate::at_work::{Phase, RequestStatus};

/// What the front is doing, or one of its event loops.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Clients' connections.
    pub connections: usize,
    /// Those of them that have no request.
    pub idle_connections: usize,
    /// Which of them are encrypted by what.
    pub tls: Encryption,
    /// Requests that belong to no site, because they could not be understood.
    pub refused: u64,
    /// What was sent for each site, by its number.
    pub sites: Vec<SiteStatus>,
    /// By the number of the pool.
    pub pools: Vec<PoolStatus>,
    /// Those that sites have, by their names.
    pub upstreams: Vec<UpstreamStatus>,
    /// How often limits were met since the front started, by their names; those that were met.
    pub limits: BTreeMap<String, u64>,
    /// Requests that applications are to answer, or answer: the oldest first, at most 1000 of each event loop.
    pub requests: Vec<RequestStatus>,
}

/// What encrypts connections.
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

/// What was sent for a site since the front has it.
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
    /// Adds what another one has counted.
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
    /// How many times requests called for more workers than there may be.
    pub limit_reached: u64,
    /// Requests that the slow log has.
    pub slow: u64,
    /// Processes that the kernel has ended because there was no memory left.
    pub out_of_memory: u64,
    /// The workers, by process id.
    pub workers: Vec<WorkerStatus>,
    /// What is known of the pool's program; `None`: its workers run PHP.
    pub program: Option<ProgramStatus>,
    /// What its workers have said of PHP; `None`: nothing yet.
    pub php: Option<PhpReport>,
}

/// The state of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: String,
    /// Its hosts; none: their names have not been looked up yet, or lead nowhere.
    pub hosts: Vec<HostStatus>,
}

/// The state of a host of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Where it is.
    pub address: String,
    /// Its share of requests among hosts of its rank.
    pub weight: u32,
    /// Hosts of a higher rank get requests while none of a lower one is up.
    pub rank: u16,
    /// Requests that it has, with those that wait for a connection to it.
    pub busy: usize,
    /// Requests that it was given.
    pub requests: u64,
    /// Failures since its last answer.
    pub failures: u32,
    /// Milliseconds until it is tried again; `None`: it is up.
    pub down_for: Option<u64>,
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
    /// The request that it works on, as method and path; `None`: none, or it is a program's and not known.
    pub request: Option<String>,
    /// More about that request; `None`: nothing is known.
    pub at_work: Option<RequestStatus>,
}

impl Status {
    /// Adds what another event loop does. Each worker has a link to every loop, and a request on one of them.
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
        };
        assert_eq!(sum, expected);
    }
}
