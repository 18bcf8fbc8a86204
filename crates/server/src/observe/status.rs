//! What the front is doing at this moment, for `sendoff status`.

use serde::{Deserialize, Serialize};

/// What the front is doing, or one of its event loops.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Clients' connections.
    pub connections: usize,
    /// Those of them that have no request.
    pub idle_connections: usize,
    /// By the number of the pool.
    pub pools: Vec<PoolStatus>,
}

/// The state of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// The workers, by process id.
    pub workers: Vec<WorkerStatus>,
}

/// The state of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its process.
    pub pid: i32,
    /// The request that it works on, as method and path; `None`: none.
    pub request: Option<String>,
}

impl Status {
    /// Adds what another event loop does. Each worker has a link to every loop, and a request on one of them.
    pub(crate) fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.idle_connections += other.idle_connections;
        let count = self.pools.len().max(other.pools.len());
        self.pools.resize_with(count, PoolStatus::default);
        for (pool, other) in self.pools.iter_mut().zip(other.pools) {
            // The queue is common to all loops.
            pool.waiting = pool.waiting.max(other.waiting);
            for worker in other.workers {
                match pool.workers.binary_search_by_key(&worker.pid, |known| known.pid) {
                    Ok(at) => {
                        let known = &mut pool.workers[at];
                        known.request = known.request.take().or(worker.request);
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
        let worker =
            |pid, request: Option<&str>| WorkerStatus { pid, request: request.map(str::to_owned) };
        let of_loop = |workers| Status {
            connections: 2,
            idle_connections: 1,
            pools: vec![PoolStatus { waiting: 3, workers }],
        };
        let mut sum = Status::default();
        sum.add(of_loop(vec![worker(9, None), worker(4, Some("GET /a"))]));
        sum.add(of_loop(vec![worker(4, None), worker(9, Some("GET /b"))]));
        let workers = vec![worker(4, Some("GET /a")), worker(9, Some("GET /b"))];
        let pools = vec![PoolStatus { waiting: 3, workers }];
        assert_eq!(sum, Status { connections: 4, idle_connections: 2, pools });
    }
}
