//! What `sendoff status` shows.

use std::fmt;

use sendoff_server::observe::status::{Status, WorkerStatus};
use serde::{Deserialize, Serialize};

/// The state of a server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) version: String,
    /// The supervisor.
    pub(crate) pid: u32,
    /// The front; `None`: it is being started again.
    pub(crate) front_pid: Option<u32>,
    /// Seconds.
    pub(crate) uptime: u64,
    pub(crate) listeners: Vec<String>,
    /// Names and folders.
    pub(crate) sites: Vec<(String, String)>,
    /// Clients' connections; `None`: the front did not answer.
    pub(crate) connections: Option<usize>,
    /// Those of them that have no request.
    pub(crate) idle_connections: Option<usize>,
    pub(crate) pools: Vec<PoolReport>,
    /// For how many seconds a reload has been running; `None`: none runs.
    pub(crate) reloading: Option<u64>,
    /// `None`: there was none.
    pub(crate) last_reload: Option<Reloaded>,
}

/// How a reload ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// Seconds ago.
    pub(crate) ago: u64,
    /// Why it changed nothing; `None`: it succeeded.
    pub(crate) error: Option<String>,
}

/// The state of a pool.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PoolReport {
    pub(crate) name: String,
    /// Requests that wait for a worker.
    pub(crate) waiting: usize,
    pub(crate) workers: Vec<WorkerReport>,
}

/// The state of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    pub(crate) pid: i32,
    /// The request that it works on; `None`: none.
    pub(crate) request: Option<String>,
    /// Bytes of private memory, if they could be read.
    pub(crate) memory: Option<u64>,
}

impl PoolReport {
    /// A pool of which nothing but its name is known.
    pub(crate) fn new(name: String) -> Self {
        Self { name, waiting: 0, workers: Vec::new() }
    }
}

impl Report {
    /// Adds what the front says; `None`: it has not answered.
    pub(crate) fn with(mut self, front: Option<Status>) -> Self {
        let Some(Status { connections, idle_connections, pools }) = front else { return self };
        (self.connections, self.idle_connections) = (Some(connections), Some(idle_connections));
        for (pool, status) in self.pools.iter_mut().zip(pools) {
            pool.waiting = status.waiting;
            pool.workers = status.workers.into_iter().map(WorkerReport::from).collect();
        }
        self
    }
}

impl From<WorkerStatus> for WorkerReport {
    fn from(WorkerStatus { pid, request }: WorkerStatus) -> Self {
        Self { pid, request, memory: private_memory(pid) }
    }
}

/// Resident memory that a process shares with no file, in bytes (proc_pid_status(5)).
fn private_memory(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, pid, connections, idle_connections, .. } = self;
        let uptime = Ago(self.uptime);
        writeln!(f, "sendoff {version}, process {pid}, running for {uptime}")?;
        writeln!(f, "listens on   {}", self.listeners.join(", "))?;
        for (name, root) in &self.sites {
            writeln!(f, "site         {name}: {root}")?;
        }
        match (connections, idle_connections) {
            (Some(all), Some(idle)) => writeln!(f, "connections  {all}, {idle} of them idle")?,
            _ => writeln!(f, "connections  unknown: the front does not answer")?,
        }
        for PoolReport { name, waiting, workers } in &self.pools {
            let busy = workers.iter().filter(|worker| worker.request.is_some()).count();
            let count = workers.len();
            writeln!(f, "pool         {name}: {count} workers, {busy} busy, {waiting} waiting")?;
            for WorkerReport { pid, request, memory } in workers {
                let memory = memory.map_or_else(String::new, |m| format!("{:.1} MB", mega(m)));
                let request = request.as_deref().unwrap_or("idle");
                writeln!(f, "  {pid:>8}  {memory:>9}  {request}")?;
            }
        }
        if let Some(since) = self.reloading {
            writeln!(f, "reload       running for {}", Ago(since))?;
        }
        match &self.last_reload {
            None => writeln!(f, "last reload  never"),
            Some(Reloaded { ago, error: None }) => writeln!(f, "last reload  {} ago", Ago(*ago)),
            Some(Reloaded { ago, error: Some(why) }) => {
                writeln!(f, "last reload  {} ago, it failed: {why}", Ago(*ago))
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure with one decimal")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// A time in seconds, for people.
struct Ago(u64);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, hours) = (self.0 / 86400, self.0 / 3600 % 24);
        let (minutes, seconds) = (self.0 / 60 % 60, self.0 % 60);
        match self.0 {
            86400.. => write!(f, "{days} d {hours} h"),
            3600.. => write!(f, "{hours} h {minutes} min"),
            60.. => write!(f, "{minutes} min {seconds} s"),
            _ => write!(f, "{seconds} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_text() {
        let worker = |pid, request: Option<&str>| WorkerReport {
            pid,
            request: request.map(str::to_owned),
            memory: Some(12_345_678),
        };
        let report = Report {
            version: "1.2".to_owned(),
            pid: 7,
            front_pid: Some(8),
            uptime: 90_061,
            listeners: vec!["127.0.0.1:80".to_owned(), "unix:/a".to_owned()],
            sites: vec![("shop".to_owned(), "/srv/shop".to_owned())],
            connections: Some(3),
            idle_connections: Some(1),
            pools: vec![PoolReport {
                name: "main".to_owned(),
                waiting: 0,
                workers: vec![worker(10, None), worker(11, Some("GET /a"))],
            }],
            reloading: Some(3),
            last_reload: Some(Reloaded { ago: 61, error: None }),
        };
        let expected = "sendoff 1.2, process 7, running for 1 d 1 h\n\
            listens on   127.0.0.1:80, unix:/a\n\
            site         shop: /srv/shop\n\
            connections  3, 1 of them idle\n\
            pool         main: 2 workers, 1 busy, 0 waiting\n\
            \u{20}       10    12.3 MB  idle\n\
            \u{20}       11    12.3 MB  GET /a\n\
            reload       running for 3 s\n\
            last reload  1 min 1 s ago\n";
        assert_eq!(report.to_string(), expected);
    }
}
