//! The front's view of a script's progress. The rules are in [`deadline`](super::deadline).

use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use sendoff_transport::lent::LentSocket;
use tokio::time::Instant;

/// A worker whose request takes too long.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) pid: i32,
    /// The request, for the log.
    pub(super) request: Rc<str>,
}

/// Progress of a script.
#[derive(Debug)]
pub(super) struct Watch {
    /// When the worker got the request.
    begun: Instant,
    /// The script has been reported as slow; that happens once per request.
    slow: bool,
    /// Time of the last progress.
    alive: Instant,
    /// The script has sent something since the last check.
    spoke: bool,
    /// The client's socket, for as long as the worker may write to it: output written there does
    /// not pass the front.
    client: Option<Rc<LentSocket>>,
    /// Bytes that the kernel had accepted for the client at the last check. `None` before the first
    /// check, which always counts as progress. A check is a system call, and most requests end
    /// before the first one.
    written: Option<u64>,
    /// The deadline has passed; that is reported once per request.
    expired: bool,
}

impl Watch {
    /// A worker gets a request now, and the socket of its `client` if it may write to it.
    pub(super) fn new(client: Option<Rc<LentSocket>>) -> Self {
        let begun = Instant::now();
        let (slow, spoke, written, expired) = (false, false, None, false);
        Self { begun, slow, alive: begun, spoke, client, written, expired }
    }

    /// The script has sent something. `may_write_to_client`: the worker may still write to the
    /// client's socket.
    pub(super) fn spoke(&mut self, may_write_to_client: bool) {
        self.spoke = true;
        if !may_write_to_client {
            self.client = None;
        }
    }

    /// True once the deadline has passed.
    pub(super) fn has_expired(&self) -> bool {
        self.expired
    }

    /// Returns true once per request: when the script has worked on it for `limit`.
    pub(super) fn becomes_slow(&mut self, now: Instant, limit: Duration) -> bool {
        let is_slow = !self.slow && now.saturating_duration_since(self.begun) >= limit;
        self.slow |= is_slow;
        is_slow
    }

    /// Checks the script. Returns true if its deadline has passed since the last check.
    /// `is_excused`: the script waits for its client.
    pub(super) fn expires(&mut self, now: Instant, limit: Duration, is_excused: bool) -> bool {
        let before = self.written;
        self.written = self.client.as_deref().and_then(written).or(before);
        if std::mem::take(&mut self.spoke) || is_excused || self.written != before {
            self.alive = now;
        }
        let is_late = !self.expired && now.saturating_duration_since(self.alive) >= limit;
        self.expired |= is_late;
        is_late
    }
}

fn written(client: &LentSocket) -> Option<u64> {
    sendoff_sys::tcp::written(client.as_fd()).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    #[test]
    fn what_a_script_does_moves_its_deadline_and_nothing_else_does() {
        let start = Instant::now();
        let mut watch = Watch::new(None);
        assert!(!watch.expires(start + LIMIT / 2, LIMIT, false));
        watch.spoke(false);
        assert!(!watch.expires(start + LIMIT, LIMIT, false));
        assert!(!watch.expires(start + LIMIT * 2 - LIMIT / 8, LIMIT, false));
        assert!(!watch.expires(start + LIMIT * 2, LIMIT, true), "its client is slow");
        assert!(!watch.has_expired());
        assert!(watch.expires(start + LIMIT * 3, LIMIT, false));
        assert!(!watch.expires(start + LIMIT * 9, LIMIT, false), "once");
        assert!(watch.has_expired());
    }

    #[test]
    fn a_script_is_slow_once_whatever_it_sends() {
        let start = Instant::now();
        let mut watch = Watch::new(None);
        watch.spoke(false);
        assert!(!watch.becomes_slow(start + LIMIT / 2, LIMIT));
        assert!(watch.becomes_slow(start + LIMIT * 2, LIMIT));
        assert!(!watch.becomes_slow(start + LIMIT * 3, LIMIT));
    }

    #[test]
    fn what_the_worker_writes_to_the_client_is_progress() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let mut watch = Watch::new(Some(Rc::new(LentSocket::of(socket.as_fd()).unwrap())));
        let start = Instant::now();
        socket.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
        assert!(!watch.expires(start + LIMIT, LIMIT, false));
        socket.write_all(b"\r\n").unwrap();
        assert!(!watch.expires(start + LIMIT * 2, LIMIT, false));
        assert!(watch.expires(start + LIMIT * 3, LIMIT, false));
    }
}
