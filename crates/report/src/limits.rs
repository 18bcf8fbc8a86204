//! Counts of how often each limit of the front was met. Limits are met rarely, so all event loops
//! share the counters.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::seldom::Seldom;

/// A limit of the front, as the metric `sendoff_limits_reached` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// No place for another connection: one waits in the backlog.
    Connections,
    /// A client has as many connections as it may.
    ConnectionsPerClient,
    /// An idle connection was closed to make room for another one.
    IdleConnections,
    /// There is no descriptor for a connection, a process of a pool, a file of a worker or a spool.
    Descriptors,
    /// The queue for workers or for connections to an application is full.
    Queue,
    /// A request waited too long for a worker or for a connection to an application.
    QueueTime,
    /// A script or an application was silent for too long.
    RequestTimeout,
    /// An application took too long to be connected to.
    ConnectTimeout,
    /// A client took too long for a request head.
    HeadTimeout,
    /// A client paused for too long in a request body, or sent it too slowly.
    BodyTimeout,
    /// A client took no byte of its response for too long, or too few.
    SendTimeout,
    /// A client was cut because it held most of the memory for clients.
    QueuedBytes,
    /// A client has asked more often than a route allows.
    Rate,
    /// A client has as many requests under way as a route allows.
    Concurrency,
    /// Too many attempts with passwords from one address.
    Passwords,
    /// An HTTP/2 connection was closed because its client was a burden.
    Http2Abuse,
    /// An HTTP/3 connection was closed because its client was a burden.
    Http3Abuse,
    /// A response was not compressed because encoders had no memory left.
    Encoders,
    /// A message of a script was not logged because there were too many.
    ScriptLog,
    /// The spans of a request were not recorded because there were too many.
    Traces,
}

impl Limit {
    /// Every limit, with its label.
    pub const ALL: [(Self, &'static str); 20] = [
        (Self::Connections, "connections"),
        (Self::ConnectionsPerClient, "connections_per_client"),
        (Self::IdleConnections, "idle_connections"),
        (Self::Descriptors, "descriptors"),
        (Self::Queue, "queue"),
        (Self::QueueTime, "queue_time"),
        (Self::RequestTimeout, "request_timeout"),
        (Self::ConnectTimeout, "connect_timeout"),
        (Self::HeadTimeout, "head_timeout"),
        (Self::BodyTimeout, "body_timeout"),
        (Self::SendTimeout, "send_timeout"),
        (Self::QueuedBytes, "queued_bytes"),
        (Self::Rate, "rate"),
        (Self::Concurrency, "concurrency"),
        (Self::Passwords, "passwords"),
        (Self::Http2Abuse, "http2_abuse"),
        (Self::Http3Abuse, "http3_abuse"),
        (Self::Encoders, "encoders"),
        (Self::ScriptLog, "script_log"),
        (Self::Traces, "traces"),
    ];

    /// Counts that the limit was met.
    pub fn reached(self) {
        self.reached_times(1);
    }

    /// Counts that the limit was met several times.
    pub fn reached_times(self, times: u64) {
        COUNTS[self as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// Counts that the client has met the limit, and logs `what` about it: at most one line per
    /// [`LOG_PAUSE`]. The line ends with the number of refusals since the last line that were
    /// counted but not logged.
    pub fn refuses(self, client: &dyn fmt::Display, what: impl FnOnce() -> String) {
        self.reached();
        let (now, at) = (START.elapsed().as_secs(), self as usize);
        let next = |due| (now >= due).then_some(now + LOG_PAUSE.as_secs());
        if let Ok(due) = NEXT_LINE[at].fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            let left_out = UNLOGGED[at].swap(0, Ordering::Relaxed);
            let since = now.saturating_sub(due.saturating_sub(LOG_PAUSE.as_secs()));
            let more = left_out_lines(left_out, since);
            tracing::warn!(%client, "{}{more}", what());
        } else {
            UNLOGGED[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The limits that were met: their labels and counts.
    pub fn met() -> BTreeMap<String, u64> {
        let all = Self::ALL.into_iter().map(|(limit, label)| (label.to_owned(), limit.count()));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Number of times that the limit was met since this process started.
    pub fn count(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}

/// Counts that something waits for a descriptor, and logs `what` with the error, at intervals,
/// whatever waits.
pub fn lacks_descriptor(error: &io::Error, what: &str) {
    static SAID: Seldom = Seldom::new();
    Limit::Descriptors.reached();
    if SAID.is_due() {
        tracing::error!(%error, "{what}; a higher limit of open files would help");
    }
}

/// The end of a log line: the number of such lines left out since the last one.
fn left_out_lines(count: u64, seconds: u64) -> String {
    match count {
        0 => String::new(),
        1 => format!("; 1 more such line was left out in the {seconds} s before"),
        count => format!("; {count} more such lines were left out in the {seconds} s before"),
    }
}

/// The least time between two log lines about the same limit, so that an attack does not fill the
/// disk.
const LOG_PAUSE: Duration = Duration::from_secs(10);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When the next line about each limit may be logged, in seconds since [`START`].
static NEXT_LINE: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];

/// Refusals of each limit since its last line in the log.
static UNLOGGED: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];

static COUNTS: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_of_the_log() {
        let (limit, at) = (Limit::Concurrency, Limit::Concurrency as usize);
        (0..1000).for_each(|_| limit.refuses(&"192.0.2.1", || "refused".to_owned()));
        assert_eq!(limit.count(), 1000);
        assert_eq!(UNLOGGED[at].load(Ordering::Relaxed), 999);
        assert_eq!(Limit::met().get("concurrency"), Some(&1000));
        NEXT_LINE[at].store(0, Ordering::Relaxed);
        limit.refuses(&"192.0.2.1", || "refused".to_owned());
        assert_eq!(UNLOGGED[at].load(Ordering::Relaxed), 0);
        let more = left_out_lines(999, 12);
        assert_eq!(more, "; 999 more such lines were left out in the 12 s before");
    }

    #[test]
    fn every_limit_has_a_place_and_a_label_of_its_own() {
        for (number, (limit, label)) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number, "{label}");
            let same = Limit::ALL.iter().filter(|(_, other)| *other == label).count();
            assert_eq!(same, 1, "{label}");
        }
    }
}
