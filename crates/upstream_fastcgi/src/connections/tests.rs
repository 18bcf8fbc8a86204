//! The clock stands still while a task can run, and then jumps to the next timer.

use std::cell::Cell;
use std::pin::Pin;
use std::thread;

use sendoff_upstream::error::UpstreamErrorKind;
use sendoff_upstream::queue::LOCALITY;
use tokio::task::LocalSet;
use tokio::time::advance;

use super::*;

/// A test that holds another reference can see if the connection is closed.
type Connection = Arc<()>;

const PATIENCE: Duration = Duration::from_secs(1);
/// Timers fire up to a millisecond late.
const MOMENT: Duration = Duration::from_millis(1);
/// After this time without a process taking a new connection, all processes count as busy.
const LATE: Duration = WAKE_UP.saturating_add(MOMENT);

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

fn connections() -> Arc<Connections<Connection>> {
    Connections::new(PATIENCE, QueueLimits::default())
}

fn is_closed(connection: &Connection) -> bool {
    Arc::strong_count(connection) == 1
}

type Waiting = Pin<Box<dyn Future<Output = Result<Grant<Connection>, UpstreamError>>>>;

async fn poll_once(waiting: &mut Waiting) -> Option<Result<Grant<Connection>, UpstreamError>> {
    tokio::select! {
        biased;
        result = waiting => Some(result),
        () = std::future::ready(()) => None,
    }
}

impl Connections<Connection> {
    /// The number of all connections, of untaken ones and of idle ones.
    fn counts(&self) -> (usize, usize, usize) {
        let state = self.state();
        assert!(state.wanted <= state.untaken);
        (state.open, state.untaken, state.idle.len())
    }

    async fn new_permit(self: &Arc<Self>, repeatable: bool) -> ConnectionPermit<Connection> {
        match self.acquire(repeatable).await.unwrap() {
            Grant::New(permit) => permit,
            Grant::Shared => panic!("it takes one request at a time"),
            Grant::Kept(..) => panic!("a kept connection"),
        }
    }

    async fn taken_place(self: &Arc<Self>) -> ConnectionPermit<Connection> {
        let mut permit = self.new_permit(true).await;
        permit.note_taken();
        permit
    }

    async fn kept(self: &Arc<Self>) -> (ConnectionPermit<Connection>, Connection) {
        match self.acquire(true).await.unwrap() {
            Grant::Kept(permit, connection) => (permit, connection),
            Grant::New(_) => panic!("a new connection"),
            Grant::Shared => panic!("it takes one request at a time"),
        }
    }

    /// A connection in use, of an application that turned out to have only one process.
    async fn only_permit(self: &Arc<Self>) -> ConnectionPermit<Connection> {
        let before = self.taken_place().await;
        let mut permit = self.new_permit(true).await;
        advance(LATE).await;
        before.keep(Connection::default());
        permit.note_taken();
        permit
    }

    /// A request that finds no connection and waits.
    async fn waiting(self: &Arc<Self>, repeatable: bool) -> Waiting {
        let of = Arc::clone(self);
        let mut waiting: Waiting = Box::pin(async move { of.acquire(repeatable).await });
        assert!(poll_once(&mut waiting).await.is_none());
        waiting
    }
}

async fn gets_new(waiting: &mut Waiting) -> ConnectionPermit<Connection> {
    match poll_once(waiting).await {
        Some(Ok(Grant::New(permit))) => permit,
        other => panic!("{other:?}"),
    }
}

async fn gets_kept(waiting: &mut Waiting) -> (ConnectionPermit<Connection>, Connection) {
    match poll_once(waiting).await {
        Some(Ok(Grant::Kept(permit, connection))) => (permit, connection),
        other => panic!("{other:?}"),
    }
}

/// Waits until a new connection may be tried, which is after `expected`.
async fn gets_new_after(expected: Duration, waiting: Waiting) -> ConnectionPermit<Connection> {
    let begun = Instant::now();
    let Ok(Grant::New(permit)) = waiting.await else { panic!("no new connection") };
    let waited = begun.elapsed();
    assert!(waited >= expected && waited <= expected + MOMENT, "{waited:?}, not {expected:?}");
    permit
}

#[test]
fn new_then_untaken_then_in_use_then_idle_then_in_use_again() {
    run(async {
        let connections = connections();
        let mut permit = connections.new_permit(true).await;
        assert!(!permit.was_taken());
        assert_eq!(connections.counts(), (1, 1, 0));
        permit.note_taken();
        assert_eq!(connections.counts(), (1, 0, 0));
        permit.keep(Connection::default());
        assert_eq!(connections.counts(), (1, 0, 1));
        let (permit, _connection) = connections.kept().await;
        assert!(permit.was_taken());
        assert_eq!(connections.counts(), (1, 0, 0));
        drop(permit);
        assert_eq!(connections.counts(), (0, 0, 0));
    });
}

#[test]
fn a_repeatable_request_gets_the_newest_idle_connection_for_another_the_oldest_is_closed() {
    run(async {
        let connections = connections();
        let both = [Connection::default(), Connection::default()];
        let permits = [connections.taken_place().await, connections.taken_place().await];
        permits.into_iter().zip(&both).for_each(|(permit, one)| permit.keep(Arc::clone(one)));
        let new = connections.new_permit(false).await;
        assert_eq!(both.each_ref().map(is_closed), [true, false]);
        assert_eq!(connections.counts(), (2, 1, 1));
        let (_permit, connection) = connections.kept().await;
        assert!(Arc::ptr_eq(&connection, &both[1]));
        drop(new);
        assert_eq!(connections.counts(), (1, 0, 0));
    });
}

#[test]
fn one_new_connection_is_tried_at_a_time_the_next_when_it_is_taken_or_has_had_its_time() {
    run(async {
        let connections = connections();
        let mut first = connections.new_permit(true).await;
        let mut second = connections.waiting(true).await;
        let third = connections.waiting(true).await;
        first.note_taken();
        let _untaken = gets_new(&mut second).await;
        let _another = gets_new_after(PATIENCE, third).await;
        assert_eq!(connections.counts(), (3, 2, 0));
    });
}

#[test]
fn when_all_are_busy_the_next_free_one_is_closed_and_none_is_tried_for_twice_as_long_each_time() {
    run(async {
        let connections = connections();
        let mut busy = connections.taken_place().await;
        let mut hold = HOLD_MIN;
        for _ in 0..8 {
            let mut new = connections.new_permit(true).await;
            let connection = Connection::default();
            advance(LATE).await;
            busy.keep(Arc::clone(&connection));
            assert!(is_closed(&connection));
            assert_eq!(connections.counts(), (1, 1, 0));
            // Taken by the process that was set free: this shows nothing about other processes.
            new.note_taken();
            let next = connections.waiting(true).await;
            drop(gets_new_after(hold, next).await);
            hold = (hold * 2).min(HOLD_MAX);
            busy = new;
        }
        // A connection is taken while all known processes are busy, so there are more processes.
        let _other = connections.taken_place().await;
        let mut new = connections.new_permit(true).await;
        advance(LATE).await;
        busy.keep(Connection::default());
        new.note_taken();
        let next = connections.waiting(true).await;
        gets_new_after(HOLD_MIN, next).await;
    });
}

#[test]
fn another_process_is_set_free_if_the_first_did_not_take_the_new_connection() {
    run(async {
        let connections = connections();
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(connections.taken_place().await);
        }
        let _untaken = connections.new_permit(true).await;
        advance(WAKE_UP * 2).await;
        let closed = [WAKE_UP, WAKE_UP, MOMENT].map(|pause| (pause, Connection::default()));
        let mut seen = Vec::new();
        for (permit, (pause, connection)) in permits.into_iter().zip(closed) {
            permit.keep(Arc::clone(&connection));
            seen.push(is_closed(&connection));
            advance(pause).await;
        }
        // The second response comes in time, the third when the connection is overdue.
        assert_eq!(seen, [true, false, true]);
        assert_eq!(connections.counts(), (2, 1, 1));
    });
}

#[test]
fn the_oldest_waiter_is_served_and_one_that_left_is_passed_over() {
    run(async {
        let connections = connections();
        let permit = connections.only_permit().await;
        let gone = connections.waiting(true).await;
        let mut first = connections.waiting(true).await;
        let mut second = connections.waiting(true).await;
        drop(gone);
        permit.keep(Connection::default());
        let (permit, connection) = gets_kept(&mut first).await;
        assert!(poll_once(&mut second).await.is_none());
        permit.keep(connection);
        gets_kept(&mut second).await;
        assert_eq!(connections.counts(), (0, 0, 0));
    });
}

#[test]
fn a_waiter_of_the_same_event_loop_goes_before_one_that_has_waited_little_longer() {
    run(async {
        for (longer, is_before) in [(LOCALITY / 2, true), (LOCALITY * 2, false)] {
            let connections = connections();
            let permit = connections.only_permit().await;
            let mut other = connections.waiting(true).await;
            let elsewhere = thread::spawn(|| thread::current().id()).join().unwrap();
            {
                let mut state = connections.state();
                let (_, waiter) = state.waiting.pop(thread::current().id()).unwrap();
                state.waiting.push(elsewhere, Instant::now(), waiter);
            }
            advance(longer).await;
            let mut near = connections.waiting(true).await;
            permit.keep(Connection::default());
            let (served, passed) =
                if is_before { (&mut near, &mut other) } else { (&mut other, &mut near) };
            let _permit = gets_kept(served).await;
            assert!(poll_once(passed).await.is_none());
        }
    });
}

#[test]
fn a_waiter_that_may_not_be_repeated_gets_a_new_connection_for_one_that_is_free() {
    run(async {
        let connections = connections();
        let permit = connections.only_permit().await;
        let mut waiting = connections.waiting(false).await;
        let connection = Connection::default();
        permit.keep(Arc::clone(&connection));
        let _permit = gets_new(&mut waiting).await;
        assert!(is_closed(&connection));
        assert_eq!(connections.counts(), (1, 1, 0));
    });
}

#[test]
fn a_waiter_that_gives_up_leaves_nothing_behind_whenever_it_does() {
    run(async {
        let connections = connections();
        // Before a connection is assigned.
        let permit = connections.only_permit().await;
        drop(connections.waiting(true).await);
        permit.keep(Connection::default());
        assert_eq!(connections.counts(), (1, 0, 1));
        // While a kept connection is on its way to the waiter: the process becomes free for the
        // next.
        let (permit, connection) = connections.kept().await;
        let (first, mut second) =
            (connections.waiting(true).await, connections.waiting(true).await);
        permit.keep(Arc::clone(&connection));
        drop(first);
        assert!(is_closed(&connection));
        let permit = gets_new(&mut second).await;
        assert_eq!(connections.counts(), (1, 1, 0));
        // While permission to make a connection is on its way to the waiter.
        let (first, mut second) =
            (connections.waiting(true).await, connections.waiting(true).await);
        advance(HOLD_MIN).await;
        drop(permit);
        drop(first);
        drop(gets_new(&mut second).await);
        assert_eq!(connections.counts(), (0, 0, 0));
    });
}

/// Regression: requests whose clients had left kept the queue full.
#[test]
fn a_request_that_is_dropped_leaves_room_for_the_next() {
    run(async {
        let limits = QueueLimits { requests: 2, ..QueueLimits::default() };
        let connections = Connections::new(PATIENCE, limits);
        let _untaken = connections.new_permit(true).await;
        let gone = [connections.waiting(true).await, connections.waiting(true).await];
        assert!(connections.acquire(true).await.is_err());
        drop(gone);
        assert!(connections.state().waiting.is_empty());
        drop(connections.waiting(true).await);
    });
}

#[test]
fn a_connection_that_died_while_idle_makes_room_for_the_next_request() {
    run(async {
        let connections = connections();
        connections.only_permit().await.keep(Connection::default());
        // A request that gets a dead connection drops its permit.
        let (permit, _dead) = connections.kept().await;
        let mut next = connections.waiting(true).await;
        drop(permit);
        drop(gets_new(&mut next).await);
        assert_eq!(connections.counts(), (0, 0, 0));
    });
}

#[test]
fn after_a_connection_that_failed_the_next_is_tried_at_once_or_later_if_the_listener_is_full() {
    run(async {
        let connections = connections();
        let _busy = connections.taken_place().await;
        let permit = connections.new_permit(true).await;
        let (mut first, second) =
            (connections.waiting(true).await, connections.waiting(true).await);
        drop(permit);
        let permit = gets_new(&mut first).await;
        permit.back_off();
        drop(permit);
        let permit = gets_new_after(HOLD_MIN, second).await;
        drop(permit);
        assert_eq!(connections.counts(), (1, 0, 0));
    });
}

#[test]
fn where_there_is_no_connection_at_all_nobody_waits() {
    run(async {
        let connections = connections();
        let permit = connections.new_permit(true).await;
        permit.back_off();
        let mut next = connections.waiting(true).await;
        drop(permit);
        gets_new(&mut next).await;
    });
}

#[test]
fn idle_connections_are_few_and_closed_when_they_are_old_or_say_something() {
    run(async {
        let connections = connections();
        let mut permits = Vec::new();
        for _ in 0..=MAX_IDLE {
            permits.push(connections.taken_place().await);
        }
        let kept: Vec<Connection> = permits.iter().map(|_| Connection::default()).collect();
        permits.into_iter().zip(&kept).for_each(|(permit, one)| permit.keep(Arc::clone(one)));
        assert_eq!(connections.counts(), (MAX_IDLE, 0, MAX_IDLE));
        assert!(is_closed(&kept[MAX_IDLE]));
        connections.close_old(|one| !Arc::ptr_eq(one, &kept[0]));
        assert!(is_closed(&kept[0]));
        assert_eq!(connections.counts(), (MAX_IDLE - 1, 0, MAX_IDLE - 1));
        // One connection is used again in the meantime.
        advance(IDLE_TIME / 2).await;
        let (permit, connection) = connections.kept().await;
        permit.keep(connection);
        advance(IDLE_TIME / 2).await;
        connections.close_old(|_| true);
        assert_eq!(connections.counts(), (1, 0, 1));
        assert!(!is_closed(&kept[MAX_IDLE - 1]));
    });
}

/// The process whose connection was closed for it may still be busy, and others that are free hold
/// idle connections.
#[test]
fn idle_connections_are_closed_while_a_new_one_waits_for_a_process() {
    run(async {
        let connections = connections();
        let permits = [connections.taken_place().await, connections.taken_place().await];
        permits.into_iter().for_each(|permit| permit.keep(Connection::default()));
        let _untaken = connections.new_permit(false).await;
        connections.close_old(|_| true);
        assert_eq!(connections.counts(), (2, 1, 1));
        advance(LATE).await;
        connections.close_old(|_| true);
        assert_eq!(connections.counts(), (1, 1, 0));
    });
}

#[test]
fn a_connection_that_was_used_for_long_is_closed_and_its_process_looks_at_a_new_one() {
    run(async {
        let connections = connections();
        let (first, second) = (connections.taken_place().await, connections.taken_place().await);
        advance(MAX_AGE + MOMENT).await;
        let connection = Connection::default();
        first.keep(Arc::clone(&connection));
        assert!(is_closed(&connection));
        assert_eq!(connections.counts(), (1, 0, 0));
        let _busy = connections.only_permit().await;
        let mut waiting = connections.waiting(true).await;
        second.keep(connection);
        let _permit = gets_new(&mut waiting).await;
        assert_eq!(connections.counts(), (2, 1, 0));
    });
}

#[test]
fn requests_wait_in_a_bounded_queue_and_for_a_bounded_time() {
    run(async {
        let limits = QueueLimits::default();
        let connections = Connections::new(limits.wait * 2, limits);
        let _untaken = connections.new_permit(true).await;
        let mut waiting = Vec::new();
        for _ in 0..limits.requests {
            waiting.push(connections.waiting(true).await);
        }
        let refused = connections.acquire(true).await.unwrap_err();
        assert_eq!(refused.kind(), UpstreamErrorKind::QueueFull);
        let begun = Instant::now();
        for one in waiting {
            assert_eq!(one.await.unwrap_err().kind(), UpstreamErrorKind::WaitTimedOut);
        }
        assert!(begun.elapsed() <= limits.wait + MOMENT);
        assert_eq!(connections.counts(), (1, 1, 0));
    });
}

#[test]
fn an_event_loop_that_ends_takes_nobodys_turn_with_it() {
    let connections = connections();
    let busy = Cell::new(None);
    run(async {
        busy.set(Some(connections.only_permit().await));
        let waiting = connections.waiting(true).await;
        // Starts the task that tries new connections.
        tokio::task::yield_now().await;
        drop(waiting);
    });
    run(async {
        let next = connections.waiting(true).await;
        // This runtime's clock has not jumped, so the first connection had no time to be taken.
        gets_new_after(LATE + HOLD_MIN, next).await;
    });
}

/// A busy machine wakes a free process late: responses on other connections in the meantime do not
/// prove that no process is free.
#[test]
fn a_process_has_time_to_wake_up_while_others_go_on() {
    run(async {
        let connections = connections();
        let mut busy = vec![connections.taken_place().await];
        for open in 2..=6 {
            let mut new = connections.new_permit(true).await;
            for _ in 0..3 {
                let connection = Connection::default();
                busy.pop().unwrap().keep(Arc::clone(&connection));
                assert!(!is_closed(&connection));
                advance(WAKE_UP / 4).await;
                busy.push(connections.kept().await.0);
            }
            new.note_taken();
            assert_eq!(connections.counts(), (open, 0, 0));
            busy.push(new);
        }
    });
}

#[test]
fn up_to_a_limit_connections_are_made_at_once_and_beyond_it_none() {
    run(async {
        let connections = connections();
        connections.limit(NonZeroUsize::new(3));
        let mut untaken = Vec::new();
        for _ in 0..3 {
            untaken.push(connections.new_permit(true).await);
        }
        let mut waiting = connections.waiting(true).await;
        advance(HOLD_MAX * 2).await;
        assert!(poll_once(&mut waiting).await.is_none());
        let mut permit = untaken.pop().unwrap();
        permit.note_taken();
        // A failed connection leaves its permit to the next.
        drop(untaken.pop());
        let another = gets_new(&mut waiting).await;
        assert_eq!(connections.counts(), (3, 2, 0));
        // The limit may shrink later.
        connections.limit(NonZeroUsize::new(2));
        let connection = Connection::default();
        permit.keep(Arc::clone(&connection));
        assert!(is_closed(&connection));
        assert_eq!(connections.counts(), (2, 2, 0));
        let mut waiting = connections.waiting(true).await;
        connections.limit(NonZeroUsize::new(3));
        drop((gets_new(&mut waiting).await, another, untaken));
        assert_eq!(connections.counts(), (0, 0, 0));
    });
}
