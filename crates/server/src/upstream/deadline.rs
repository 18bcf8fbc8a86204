//! The deadline of scripts (`--request-timeout`): a script that neither ends nor sends anything for that long is stuck.
//!
//! Sending counts, not the time since the request began: a download or an event stream may take hours. Time in which the
//! script waits for a slow client does not count; that is what `--send-timeout` is for. After the client has left nothing
//! is sent any more, so a script that goes on has one deadline left. What a script does after `fastcgi_finish_request()`
//! is not limited, as under php-fpm.
//!
//! A task on each event loop looks at the loop's links, a few times per deadline. Requests themselves pay with one flag per
//! record.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::link::Links;
use super::master::Master;
use super::pool::Pool;

/// How often links are looked at: so many times per deadline, within these bounds. A deadline passes unnoticed for one
/// interval at most.
const LOOKS: u32 = 8;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// A worker that does not come back from a request.
#[derive(Debug)]
pub(super) struct Stuck {
    pub(super) pid: i32,
    /// The request, for the log.
    pub(super) request: Rc<str>,
}

/// What is known of a script's progress.
#[derive(Debug)]
pub(super) struct Watch {
    /// When the script was last seen to do something.
    alive: Instant,
    /// It has sent something since the last look.
    spoke: bool,
    /// The client's socket, as long as the worker may write to it: such output does not pass the front.
    client: Option<OwnedFd>,
    /// What the kernel had been given for the client at the last look.
    written: Option<u64>,
    /// The deadline has passed. It passes once.
    expired: bool,
}

impl Watch {
    /// A worker gets a request now, and the socket of its `client` if it may write to it.
    pub(super) fn new(client: Option<BorrowedFd<'_>>) -> Self {
        // Without a copy of the socket only what passes the front counts as progress.
        let client = client.and_then(|client| client.try_clone_to_owned().ok());
        let written = client.as_ref().and_then(written);
        Self { alive: Instant::now(), spoke: false, client, written, expired: false }
    }

    /// The script has sent something.
    pub(super) fn spoke(&mut self) {
        self.spoke = true;
    }

    /// The worker writes to the client no more, or it does not matter any more.
    pub(super) fn forget_client(&mut self) {
        self.client = None;
    }

    /// Whether the deadline has passed.
    pub(super) fn has_expired(&self) -> bool {
        self.expired
    }

    /// Looks at the script. Returns whether its deadline has passed since the last look. `is_excused`: the script waits
    /// for its client.
    pub(super) fn expires(&mut self, now: Instant, limit: Duration, is_excused: bool) -> bool {
        let before = self.written;
        self.written = self.client.as_ref().and_then(written).or(before);
        if std::mem::take(&mut self.spoke) || is_excused || self.written != before {
            self.alive = now;
        }
        let is_late = !self.expired && now.saturating_duration_since(self.alive) >= limit;
        self.expired |= is_late;
        is_late
    }
}

fn written(client: &OwnedFd) -> Option<u64> {
    sendoff_sys::tcp::written(client.as_fd()).ok()
}

/// Takes workers that are stuck out of the pool and has the master replace them. Their requests end with
/// [`Event::TimedOut`](super::Event::TimedOut). Runs on each event loop, for ever.
pub async fn enforce(limit: Duration, pool: Arc<Pool>, links: Rc<Links>, master: Master) {
    let mut ticks = interval((limit / LOOKS).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unsaid: Vec<Stuck> = Vec::new();
    loop {
        let now = ticks.tick().await;
        for (&worker, link) in links.borrow().iter() {
            let Some(stuck) = link.expire(now, limit) else { continue };
            pool.remove(worker);
            tracing::error!(
                worker = stuck.pid,
                request = &*stuck.request,
                "the script has sent nothing for {limit:?} (--request-timeout), its worker is replaced"
            );
            unsaid.push(stuck);
        }
        // A master that is behind with its messages is told at the next look.
        unsaid.retain(|stuck| master.replace(stuck.pid, &stuck.request).is_err());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
    use sendoff_fastcgi::record::{Header, Kind};
    use sendoff_pool::ToMaster;
    use tokio::io::AsyncWriteExt;

    use super::super::Event;
    use super::super::link::tests::{begin, link, run};
    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    #[test]
    fn what_a_script_does_moves_its_deadline_and_nothing_else_does() {
        let start = Instant::now();
        let mut watch = Watch::new(None);
        assert!(!watch.expires(start + LIMIT / 2, LIMIT, false));
        watch.spoke();
        assert!(!watch.expires(start + LIMIT, LIMIT, false));
        assert!(!watch.expires(start + LIMIT * 2 - LIMIT / 8, LIMIT, false));
        assert!(!watch.expires(start + LIMIT * 2, LIMIT, true), "its client is slow");
        assert!(!watch.has_expired());
        assert!(watch.expires(start + LIMIT * 3, LIMIT, false));
        assert!(!watch.expires(start + LIMIT * 9, LIMIT, false), "once");
        assert!(watch.has_expired());
    }

    #[test]
    fn what_the_worker_writes_to_the_client_is_progress() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let mut watch = Watch::new(Some(socket.as_fd()));
        let start = Instant::now();
        socket.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
        assert!(!watch.expires(start + LIMIT, LIMIT, false));
        socket.write_all(b"\r\n").unwrap();
        assert!(!watch.expires(start + LIMIT * 2, LIMIT, false));
        assert!(watch.expires(start + LIMIT * 3, LIMIT, false));
    }

    /// Expects the master to be told, and nobody to get the worker any more.
    async fn is_replaced(pool: &Pool, links: &Links, master: &OwnedFd) {
        let mut message = [0; 100];
        let (len, _) = loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if let Ok(received) = recv(master, &mut message, RecvFlags::DONTWAIT) {
                break received;
            }
        };
        let expected = ToMaster::Replace { pid: 1, request: "GET /".into() };
        assert_eq!(ToMaster::decode(&message[..len]), Some(expected));
        assert_eq!(pool.workers(), 0);
        while !links.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[test]
    fn a_request_that_gets_no_answer_ends_and_so_does_one_that_its_client_has_left() {
        for left in [false, true] {
            run(async {
                let (pool, links, mut worker) = link();
                let kind = SocketType::SEQPACKET;
                let (ours, master) =
                    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
                let exchange = begin(&pool, &links).await;
                let since = Instant::now();
                let enforcing = enforce(
                    LIMIT,
                    Arc::clone(&pool),
                    Rc::clone(&links),
                    Master::new(&ours).unwrap(),
                );
                tokio::task::spawn_local(enforcing);
                let wire = [&Header::new(Kind::STDOUT, 1, 1).encode()[..], b"x"].concat();
                worker.write_all(&wire).await.unwrap();
                let exchange = super::super::Exchange::Worker(exchange);
                assert!(matches!(exchange.next().await, Event::Segment(_)));
                if left {
                    drop(exchange);
                } else {
                    assert!(matches!(exchange.next().await, Event::TimedOut));
                }
                is_replaced(&pool, &links, &master).await;
                assert!(since.elapsed() >= LIMIT);
            });
        }
    }
}
