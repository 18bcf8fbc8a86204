//! Counts of how often each limit of the front was met. A limit is met rarely, so the counters are shared by all event loops.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit of the front, as the metric `sendoff_limits_reached` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// No place for another connection: one waits in the backlog.
    Connections,
    /// An idle connection was closed to make room for another one.
    IdleConnections,
    /// The system has no descriptor for an accepted connection.
    Descriptors,
    /// The queue for workers or for connections to an application is full.
    Queue,
    /// A request waited too long for a worker or for a connection to an application.
    QueueTime,
    /// A script or an application was silent for too long.
    RequestTimeout,
    /// An application took too long to be connected to.
    ConnectTimeout,
    /// A client took no byte of its response for too long.
    SendTimeout,
    /// A client has asked more often than a route allows.
    Rate,
    /// Too many attempts with passwords from one address.
    Passwords,
    /// An HTTP/2 connection was closed because its client was a burden.
    Http2Abuse,
    /// A response was not compressed because encoders had no memory left.
    Encoders,
    /// A message of a script was not logged because there were too many.
    ScriptLog,
}

impl Limit {
    /// Every limit, with its label.
    pub(crate) const ALL: [(Self, &'static str); 13] = [
        (Self::Connections, "connections"),
        (Self::IdleConnections, "idle_connections"),
        (Self::Descriptors, "descriptors"),
        (Self::Queue, "queue"),
        (Self::QueueTime, "queue_time"),
        (Self::RequestTimeout, "request_timeout"),
        (Self::ConnectTimeout, "connect_timeout"),
        (Self::SendTimeout, "send_timeout"),
        (Self::Rate, "rate"),
        (Self::Passwords, "passwords"),
        (Self::Http2Abuse, "http2_abuse"),
        (Self::Encoders, "encoders"),
        (Self::ScriptLog, "script_log"),
    ];

    /// Counts that the limit was met.
    pub(crate) fn reached(self) {
        self.reached_times(1);
    }

    /// Counts that the limit was met several times.
    pub(crate) fn reached_times(self, times: u64) {
        COUNTS[self as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// How often it was met since this process started.
    pub(crate) fn count(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}

static COUNTS: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_place_and_a_label_of_its_own() {
        for (number, (limit, label)) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number, "{label}");
            let same = Limit::ALL.iter().filter(|(_, other)| *other == label).count();
            assert_eq!(same, 1, "{label}");
        }
    }
}
