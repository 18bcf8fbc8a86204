//! The number of PHP workers with `--workers auto`: it grows while requests wait although the
//! processors have time, and shrinks once workers have been idle for a while. With a lower bound of
//! 0 the last worker ends too, and the first request asks for one at once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sendoff_config::Bounds;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::link::Links;
use super::master::Master;
use super::pool::{Load, Pool};

/// Interval between two decisions.
const TICK: Duration = Duration::from_millis(100);

/// A request that waits this long shows that there are too few workers.
const WAIT: Duration = Duration::from_millis(10);

/// A request that waits this long gets a worker even if the processors are busy: some scripts
/// compute for minutes, and the kernel divides the processors fairly.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// With less than this fraction of the processors' time idle, further workers would only take time
/// from the others.
const SPARE: f64 = 0.1;

/// Time after which a master that has not started the wanted workers is told again: it may have
/// been restarted.
const REPEAT: Duration = Duration::from_secs(1);

/// Decides the number of workers, without a clock or sockets.
#[derive(Debug)]
struct Tuner {
    bounds: Bounds,
    /// Wanted number of workers.
    target: usize,
    /// Largest number of busy workers since `since`.
    peak: usize,
    since: Instant,
    /// Requests call for more workers than the limit allows.
    is_at_limit: bool,
}

impl Tuner {
    fn new(bounds: Bounds, now: Instant) -> Self {
        Self { bounds, target: bounds.min, peak: 0, since: now, is_at_limit: false }
    }

    /// Returns the wanted number of workers. `idle_cpu`: fraction of the processors' time since the
    /// last call in which they were idle.
    fn decide(&mut self, load: Load, idle_cpu: f64, now: Instant) -> usize {
        // A restarted front finds the workers of the previous one.
        self.target = self.target.max(load.workers).min(self.bounds.max);
        self.peak = self.peak.max(load.peak);
        let first = load.workers == 0 && load.waiting > 0;
        let needed =
            first || (load.oldest >= WAIT && idle_cpu >= SPARE) || load.oldest >= LONG_WAIT;
        // Once reached, the limit counts as reached until no request waits.
        self.is_at_limit =
            load.workers >= self.bounds.max && (needed || (self.is_at_limit && load.waiting > 0));
        if needed && load.workers >= self.target {
            let most = self.target.max(1);
            let more = if idle_cpu >= SPARE { load.waiting.clamp(1, most) } else { 1 };
            self.target = (self.target + more).min(self.bounds.max);
            (self.peak, self.since) = (self.target, now);
        } else if load.waiting == 0 && now - self.since >= self.bounds.idle {
            // One spare worker, so that the next request need not wait for a fork; none if all
            // workers were idle.
            let kept = if self.peak == 0 { 0 } else { self.peak + 1 };
            self.target = self.target.min(kept).max(self.bounds.min);
            (self.peak, self.since) = (0, now);
        }
        self.target
    }
}

/// Keeps the number of workers right: tells the master over the pool socket, and closes the links
/// of surplus workers. Runs on one event loop and never returns.
pub async fn tune(bounds: Bounds, pool: Arc<Pool>, links: Rc<Links>, master: Master) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tuner = Tuner::new(bounds, Instant::now());
    let mut cpu = CpuTime::read();
    let mut told = (bounds.min, Instant::now());
    loop {
        // A pool without workers costs nothing until a request comes.
        if told.0 == 0 && tuner.target == 0 && pool.workers() == 0 {
            pool.news().await;
            ticks.reset_immediately();
        }
        let now = ticks.tick().await;
        let load = pool.take_load();
        let before = std::mem::replace(&mut cpu, CpuTime::read());
        let was_at_limit = tuner.is_at_limit;
        let mut target = tuner.decide(load, cpu.idle_since(before), now);
        if tuner.is_at_limit && !was_at_limit {
            pool.note_limit_reached();
        }
        let surplus = pool.retire(load.workers.saturating_sub(target));
        // Workers that are busy just now retire at a later tick.
        target = target.max(load.workers - surplus.len());
        let is_late = load.workers < target && now - told.1 >= REPEAT;
        if (target != told.0 || is_late) && master.keep_workers(target).is_ok() {
            told = (target, now);
        }
        // The master must know the new number first: it would replace workers that end
        // unexpectedly.
        for worker in surplus {
            if let Some(link) = links.borrow().get(&worker) {
                link.close();
            }
        }
    }
}

/// The processors' time since the machine started, in clock ticks (proc_stat(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CpuTime {
    idle: u64,
    all: u64,
}

impl CpuTime {
    /// If the file cannot be read, the processors count as idle. It stays open, and only its first
    /// line is read, ten numbers of at most 20 digits: one system call instead of twelve.
    fn read() -> Self {
        static STAT: LazyLock<io::Result<File>> = LazyLock::new(|| File::open("/proc/stat"));
        let mut start = [0; 256];
        let read = STAT.as_ref().map_or(0, |stat| stat.read_at(&mut start, 0).unwrap_or(0));
        Self::parse(&String::from_utf8_lossy(&start[..read]))
    }

    fn parse(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; guest time is part of user's.
        let ticks: Vec<u64> =
            line.split_ascii_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        Self { idle: ticks.iter().skip(3).take(2).sum(), all: ticks.iter().sum() }
    }

    /// Fraction of the time since `before` in which the processors were idle; 1 if no time has
    /// passed.
    fn idle_since(self, before: Self) -> f64 {
        let part = |now: u64, then: u64| {
            // The difference between two readings is small.
            f64::from(u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX))
        };
        let all = part(self.all, before.all);
        if all == 0.0 { 1.0 } else { part(self.idle, before.idle) / all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(30);

    fn tuner() -> (Tuner, Instant) {
        let now = Instant::now();
        (Tuner::new(Bounds { min: 4, max: 20, idle: IDLE }, now), now)
    }

    fn waiting(workers: usize, waiting: usize, oldest: Duration) -> Load {
        Load { workers, waiting, oldest, peak: workers }
    }

    fn busy(workers: usize, peak: usize) -> Load {
        Load { workers, waiting: 0, oldest: Duration::ZERO, peak }
    }

    #[test]
    fn waiting_requests_call_for_workers_up_to_the_bound() {
        let (mut tuner, now) = tuner();
        assert_eq!(tuner.decide(waiting(4, 3, WAIT), 0.9, now), 7);
        // The workers asked for have not come yet.
        assert_eq!(tuner.decide(waiting(5, 9, WAIT), 0.9, now), 7);
        assert_eq!(tuner.decide(waiting(7, 100, WAIT), 0.9, now), 14);
        assert_eq!(tuner.decide(waiting(14, 100, WAIT), 0.9, now), 20);
        assert_eq!(tuner.decide(waiting(20, 100, WAIT), 0.9, now), 20);
    }

    #[test]
    fn the_limit_is_reached_once_until_no_request_waits() {
        let (mut tuner, now) = tuner();
        for (workers, count, oldest, is_at_limit) in [
            (19, 9, WAIT, false),
            (20, 0, Duration::ZERO, false),
            (20, 9, WAIT, true),
            (20, 1, Duration::ZERO, true),
            (20, 0, Duration::ZERO, false),
            (20, 1, Duration::ZERO, false),
        ] {
            tuner.decide(waiting(workers, count, oldest), 0.9, now);
            assert_eq!(tuner.is_at_limit, is_at_limit, "{workers} {count} {oldest:?}");
        }
    }

    #[test]
    fn busy_processors_want_no_more_workers_unless_a_request_waits_for_long() {
        let (mut tuner, now) = tuner();
        assert_eq!(tuner.decide(waiting(4, 9, WAIT), 0.05, now), 4);
        assert_eq!(tuner.decide(waiting(4, 9, LONG_WAIT), 0.05, now), 5);
        assert_eq!(tuner.decide(waiting(4, 9, WAIT / 2), 0.9, now), 5);
    }

    #[test]
    fn workers_that_were_idle_go() {
        let (mut tuner, now) = tuner();
        assert_eq!(tuner.decide(waiting(4, 4, WAIT), 0.9, now), 8);
        assert_eq!(tuner.decide(busy(8, 5), 0.9, now + IDLE / 2), 8);
        // The window that began with the request for workers had eight busy ones.
        assert_eq!(tuner.decide(busy(8, 3), 0.9, now + IDLE), 8);
        assert_eq!(tuner.decide(busy(8, 5), 0.9, now + IDLE * 3 / 2), 8);
        assert_eq!(tuner.decide(busy(8, 3), 0.9, now + IDLE * 2), 6);
        assert_eq!(tuner.decide(busy(6, 1), 0.9, now + IDLE * 3), 4);
    }

    #[test]
    fn without_a_lower_bound_the_last_worker_goes_and_the_first_request_gets_one_at_once() {
        let now = Instant::now();
        let mut tuner = Tuner::new(Bounds { min: 0, max: 20, idle: IDLE }, now);
        assert_eq!(tuner.decide(busy(0, 0), 0.9, now), 0);
        assert_eq!(tuner.decide(waiting(0, 3, Duration::ZERO), 0.0, now), 1, "busy processors");
        // The worker asked for has not come yet.
        assert_eq!(tuner.decide(waiting(0, 3, WAIT), 0.9, now), 1);
        assert_eq!(tuner.decide(waiting(1, 2, WAIT), 0.9, now), 2);
        assert_eq!(tuner.decide(busy(2, 1), 0.9, now + IDLE), 2);
        assert_eq!(tuner.decide(busy(2, 1), 0.9, now + IDLE * 2), 2);
        assert_eq!(tuner.decide(busy(2, 0), 0.9, now + IDLE * 3), 0);
    }

    /// A busy machine may need longer to start the first worker than workers may be idle.
    #[test]
    fn a_request_that_waits_for_the_first_worker_keeps_it_wanted() {
        let now = Instant::now();
        let mut tuner = Tuner::new(Bounds { min: 0, max: 20, idle: IDLE }, now);
        assert_eq!(tuner.decide(waiting(0, 1, Duration::ZERO), 0.0, now), 1);
        assert_eq!(tuner.decide(waiting(0, 1, IDLE * 2), 0.0, now + IDLE * 2), 1);
    }

    #[test]
    fn a_new_front_keeps_what_it_finds() {
        let (mut tuner, now) = tuner();
        assert_eq!(tuner.decide(busy(9, 0), 0.9, now), 9);
    }

    #[test]
    fn idle_time_is_read_from_the_first_line() {
        let before = CpuTime::parse("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = CpuTime::parse("cpu  150 0 100 740 110 0 0 0 50 0\n");
        assert_eq!(before, CpuTime { idle: 800, all: 1000 });
        assert!((after.idle_since(before) - 0.5).abs() < 1e-9);
        assert!((before.idle_since(before) - 1.0).abs() < 1e-9);
    }
}
