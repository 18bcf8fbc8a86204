use std::time::Duration;

use sendoff_report::workers::PoolReport;

use super::*;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn pool_with(workers: u32, loops: usize) -> Arc<Pool> {
    let pool = Pool::new(loops);
    for worker in 0..workers {
        (0..loops).for_each(|event_loop| {
            pool.link_made(WorkerId(worker), 100 + worker.cast_signed(), event_loop);
        });
    }
    pool
}

#[test]
fn a_worker_takes_requests_once_every_loop_has_its_link() {
    let pool = Pool::new(2);
    pool.link_made(WorkerId(7), 70, 0);
    assert_eq!(pool.workers(), 0);
    pool.link_made(WorkerId(7), 70, 1);
    assert_eq!(pool.workers(), 1);
}

#[test]
fn the_oldest_waiter_is_served_and_one_that_left_is_passed_over() {
    block_on(async {
        let pool = pool_with(1, 1);
        let permit = pool.acquire(0).await.unwrap();
        let mut gone = Box::pin(pool.acquire(0));
        let mut first = Box::pin(pool.acquire(0));
        let mut second = Box::pin(pool.acquire(0));
        for waiter in [&mut gone, &mut first, &mut second] {
            assert!(futures_poll(waiter).await.is_none());
        }
        drop(gone);
        drop(permit);
        let permit = first.await.unwrap();
        assert!(futures_poll(&mut second).await.is_none());
        drop(permit);
        assert_eq!(second.await.unwrap().worker(), WorkerId(0));
    });
}

#[test]
fn the_load_is_that_since_the_last_look() {
    block_on(async {
        let pool = pool_with(3, 1);
        pool.take_load();
        let permits = (pool.acquire(0).await.unwrap(), pool.acquire(0).await.unwrap());
        drop(permits);
        let idle = Load { workers: 3, waiting: 0, oldest: Duration::ZERO, peak: 0 };
        assert_eq!(pool.take_load(), Load { peak: 2, ..idle });
        assert_eq!(pool.take_load(), idle);
        let _busy = (pool.acquire(0).await.unwrap(), pool.acquire(0).await.unwrap());
        let _last = pool.acquire(0).await.unwrap();
        let mut waiter = Box::pin(pool.acquire(0));
        assert!(futures_poll(&mut waiter).await.is_none());
        let load = pool.take_load();
        assert_eq!((load.waiting, load.peak), (1, 3));
        drop(waiter);
        assert_eq!(pool.take_load().waiting, 0);
    });
}

#[test]
fn the_worker_that_was_idle_longest_retires_and_is_not_given_out_again() {
    block_on(async {
        let pool = pool_with(3, 1);
        let permit = pool.acquire(0).await.unwrap();
        assert_eq!(permit.worker(), WorkerId(2));
        assert_eq!(pool.retire(1), [WorkerId(0)]);
        assert_eq!(pool.workers(), 2);
        // The third worker is busy, and busy workers stay.
        assert_eq!(pool.retire(5), [WorkerId(1)]);
        drop(permit);
        assert_eq!(pool.acquire(0).await.unwrap().worker(), WorkerId(2));
    });
}

#[test]
fn a_lost_worker_is_not_given_out_again() {
    block_on(async {
        let pool = pool_with(2, 1);
        let permit = pool.acquire(0).await.unwrap();
        pool.remove(permit.worker());
        let lost = permit.worker();
        drop(permit);
        let other = pool.acquire(0).await.unwrap();
        assert_ne!(other.worker(), lost);
        assert!(futures_poll(&mut Box::pin(pool.acquire(0))).await.is_none());
    });
}

/// Requests whose clients have left must not delay the next request or have it refused.
#[test]
fn a_request_that_is_dropped_leaves_the_queue_at_once() {
    block_on(async {
        let limits = QueueLimits { requests: 3, ..QueueLimits::default() };
        let pool = Pool::with_limits(1, limits);
        pool.link_made(WorkerId(0), 100, 0);
        let permit = pool.acquire(0).await.unwrap();
        let mut gone: Vec<_> = (0..3).map(|_| Box::pin(pool.acquire(0))).collect();
        for waiter in &mut gone {
            assert!(futures_poll(waiter).await.is_none());
        }
        assert_eq!(pool.acquire(0).await.unwrap_err().kind(), UpstreamErrorKind::QueueFull);
        drop(gone);
        assert_eq!(pool.take_load().waiting, 0);
        let mut live = Box::pin(pool.acquire(0));
        assert!(futures_poll(&mut live).await.is_none(), "there is room");
        drop(permit);
        assert_eq!(live.await.unwrap().worker(), WorkerId(0));
    });
}

/// The worker is granted to a request that is dropped before it is polled.
#[test]
fn a_ticket_that_was_granted_to_a_dropped_request_goes_to_the_next() {
    block_on(async {
        let pool = pool_with(1, 1);
        let permit = pool.acquire(0).await.unwrap();
        let (mut first, mut second) = (Box::pin(pool.acquire(0)), Box::pin(pool.acquire(0)));
        for waiter in [&mut first, &mut second] {
            assert!(futures_poll(waiter).await.is_none());
        }
        drop(permit);
        drop(first);
        assert_eq!(second.await.unwrap().worker(), WorkerId(0));
        assert_eq!(pool.state().idle, [WorkerId(0)]);
    });
}

#[test]
fn a_request_waits_for_a_bounded_time() {
    block_on(async {
        let limits = QueueLimits { wait: Duration::from_millis(1), ..QueueLimits::default() };
        let pool = Pool::with_limits(1, limits);
        let error = pool.acquire(0).await.unwrap_err();
        assert_eq!(error.kind(), UpstreamErrorKind::WaitTimedOut);
        assert_eq!(pool.take_load().waiting, 0);
    });
}

#[test]
fn a_report_counts_requests_of_the_pool_and_of_each_worker() {
    block_on(async {
        let pool = pool_with(2, 2);
        let first = pool.acquire(0).await.unwrap();
        let second = pool.acquire(1).await.unwrap();
        let mut waiter = Box::pin(pool.acquire(0));
        let mut gone = Box::pin(pool.acquire(1));
        assert!(futures_poll(&mut waiter).await.is_none());
        assert!(futures_poll(&mut gone).await.is_none());
        drop(gone);
        let (method, uri) = (http::Method::GET, b"/a.php".to_vec());
        let (query, user, script) = (Vec::new(), Vec::new(), b"/srv/a.php".to_vec());
        let described = Arc::new(Described { method, uri, query, body: 3, user, script });
        second.describe(Arc::clone(&described), Instant::now());
        pool.note_slow();
        pool.note_limit_reached();
        let busy = pool.report();
        assert_eq!((busy.idle, busy.workers, busy.most_busy), (0, 2, 2));
        assert_eq!((busy.waiting, busy.most_waiting, busy.requests), (1, 2, 2));
        assert_eq!((busy.slow, busy.limit_reached), (1, 1));
        assert_eq!(busy.queue, QueueLimits::default().requests);
        drop(first);
        let third = waiter.await.unwrap();
        assert_eq!(third.worker(), WorkerId(1));
        drop((second, third));
        let idle = PoolReport { idle: 2, waiting: 0, requests: 3, ..busy };
        assert_eq!(pool.report(), idle);
        let [zero, one] = &pool.worker_reports()[..] else { panic!("two workers") };
        assert_eq!((zero.pid, zero.requests, one.pid, one.requests), (100, 1, 101, 2));
        assert!(zero.is_idle && one.is_idle && one.request.is_none());
        assert_eq!(zero.request.as_ref(), Some(&described));
        assert_eq!(zero.took, pool.worker_reports()[0].took, "it has ended");
        pool.remove(WorkerId(0));
        assert_eq!(pool.report(), PoolReport { idle: 1, workers: 1, ..idle });
        assert_eq!(pool.worker_reports().len(), 1);
    });
}

/// Polls a future once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}
