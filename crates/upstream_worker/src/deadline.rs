//! The deadline of scripts (`--request-timeout`): a script that neither ends nor sends anything for
//! that long is stuck.
//!
//! The deadline runs from the last output, not from the beginning of the request: a download or an
//! event stream may take hours. Time in which the script waits for a slow client does not count;
//! `--send-timeout` limits that. After the client has left, the script can send nothing, so it has
//! one more deadline to end. After `fastcgi_finish_request()` a script has no limit, as under
//! php-fpm.
//!
//! A script that works on a request for `slow_after` is slow, no matter what it sends: its
//! backtrace goes to the pool's slow log.
//!
//! A task on each event loop checks the loop's links a few times per deadline. The cost for a
//! request is one flag per record.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::link::Links;
use super::master::Master;
use super::pool::Pool;
use super::watch::Late;

/// Checks per deadline, within the bounds below. A script is found one interval after its deadline
/// at the latest, or two intervals if the worker has the client's socket.
const LOOKS: u32 = 8;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// Time limits of scripts.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Longest time without output; a script beyond it is stuck. A request may have its own
    /// deadline.
    pub stuck: Option<Duration>,
    /// Longest time for the whole request; a script beyond it is slow.
    pub slow: Option<Duration>,
}

/// Takes stuck workers out of the pool and has the master replace them; their requests end with
/// [`Event::Failed`](sendoff_upstream::inbox::Event::Failed). Has slow workers traced. Runs on each
/// event loop and never returns.
pub async fn enforce(deadlines: Deadlines, pool: Arc<Pool>, links: Rc<Links>, master: Master) {
    let Deadlines { stuck: limit, slow } = deadlines;
    let shortest = limit.into_iter().chain(slow).min().unwrap_or(Duration::MAX);
    let mut ticks = interval((shortest / LOOKS).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unsaid: Vec<Late> = Vec::new();
    loop {
        // The pool may be idle for days.
        while unsaid.is_empty() && links.borrow().is_empty() {
            pool.next_link().await;
        }
        let now = ticks.tick().await;
        for (&worker, link) in links.borrow().iter() {
            if let Some((late, after)) =
                slow.and_then(|slow| Some((link.becomes_slow(now, slow)?, slow)))
            {
                let (worker, request) = (late.pid, &*late.request);
                pool.note_slow();
                tracing::warn!(worker, request, "the script has worked for {after:?} (slow_after)");
                // If the master is behind with its messages, the trace is skipped.
                let _ = master.trace(late.pid);
            }
            let Some((stuck, limit)) = link.expire(now, limit) else { continue };
            pool.remove(worker);
            tracing::error!(
                worker = stuck.pid,
                request = &*stuck.request,
                "the script has sent nothing for {limit:?} (request_timeout, --request-timeout), its worker is replaced"
            );
            unsaid.push(stuck);
        }
        // If the master is behind with its messages, the next check tells it.
        unsaid.retain(|stuck| master.replace(stuck.pid, &stuck.request).is_err());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
    use sendoff_fastcgi::record::{Header, Kind};
    use sendoff_pool_messages::ToMaster;
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::*;
    use crate::link::tests::{begin, link, run};
    use sendoff_upstream::inbox::Event;

    use sendoff_upstream::error::UpstreamErrorKind;

    const LIMIT: Duration = Duration::from_millis(200);

    /// Expects that the master receives this message.
    async fn is_told(master: &OwnedFd, expected: &ToMaster<'_>) {
        let mut message = [0; 100];
        let (len, _) = loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if let Ok(received) = recv(master, &mut message, RecvFlags::DONTWAIT) {
                break received;
            }
        };
        assert_eq!(ToMaster::decode(&message[..len]).as_ref(), Some(expected));
    }

    /// Expects that the master is asked to replace the worker and that the worker gets no more
    /// requests.
    async fn is_replaced(pool: &Pool, links: &Links, master: &OwnedFd) {
        is_told(master, &ToMaster::Replace { pid: 1, request: "GET /".into() }).await;
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
                    Deadlines { stuck: Some(LIMIT), slow: None },
                    Arc::clone(&pool),
                    Rc::clone(&links),
                    Master::new(&ours).unwrap(),
                );
                tokio::task::spawn_local(enforcing);
                let wire = [&Header::new(Kind::STDOUT, 1, 1).encode()[..], b"x"].concat();
                worker.write_all(&wire).await.unwrap();
                assert!(matches!(exchange.inbox().next().await, Event::Segment(_)));
                if left {
                    drop(exchange);
                } else {
                    let Event::Failed(error) = exchange.inbox().next().await else {
                        panic!("it ends")
                    };
                    assert_eq!(error.kind(), UpstreamErrorKind::Silent);
                }
                is_replaced(&pool, &links, &master).await;
                assert!(since.elapsed() >= LIMIT);
            });
        }
    }

    #[test]
    fn a_script_that_works_for_long_is_traced_once_and_goes_on() {
        run(async {
            let (pool, links, mut worker) = link();
            let kind = SocketType::SEQPACKET;
            let (ours, master) =
                socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            let exchange = begin(&pool, &links).await;
            let deadlines = Deadlines { stuck: None, slow: Some(LIMIT) };
            let enforcing = enforce(
                deadlines,
                Arc::clone(&pool),
                Rc::clone(&links),
                Master::new(&ours).unwrap(),
            );
            tokio::task::spawn_local(enforcing);
            is_told(&master, &ToMaster::Trace { pid: 1 }).await;
            tokio::time::sleep(LIMIT).await;
            let again = recv(&master, &mut [0; 100], RecvFlags::DONTWAIT);
            assert_eq!(again.unwrap_err(), rustix::io::Errno::AGAIN);
            let wire = [&Header::new(Kind::STDOUT, 1, 1).encode()[..], b"x"].concat();
            worker.write_all(&wire).await.unwrap();
            assert!(matches!(exchange.inbox().next().await, Event::Segment(_)));
        });
    }
}
