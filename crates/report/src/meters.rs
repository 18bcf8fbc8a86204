//! Counters of one event loop about requests, by site and by pool. They are plain memory of one
//! thread, so a request costs a few additions; the event loops are summed when the metrics are
//! asked for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use sendoff_config::Config;

use super::log_line::{BodyBytes, LogLine};
use super::mode::Mode;
use super::status::SiteStatus;

/// The upper bounds of a histogram's buckets, in microseconds. One more bucket takes longer times.
pub const BOUNDS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 5_000_000, 10_000_000, 60_000_000,
];

/// The most statuses that are counted separately per site. Scripts may send any status; further
/// ones count as [`OTHER_STATUS`].
const MOST_STATUSES: usize = 32;

/// Stands for all statuses beyond [`MOST_STATUSES`].
pub const OTHER_STATUS: u16 = 0;

/// A histogram of times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of times per bucket: one bucket for each of [`BOUNDS`], and one for longer times.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The sum of all times, in microseconds.
    pub sum: u64,
}

impl Histogram {
    fn note(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // The loop has no early exit, so the compiler can vectorize it.
        let bucket: usize = BOUNDS.iter().map(|bound| usize::from(micros > *bound)).sum();
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(micros);
    }

    fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, other)| *sum += other);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Number of times that were noted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Responses whose bodies came in the same way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentResponses {
    /// Responses that were begun.
    pub responses: u64,
    /// Bytes of bodies that came as parts of files and were not copied by the server.
    pub handed_over: u64,
    /// Bytes of bodies that came as bytes.
    pub copied: u64,
}

impl SentResponses {
    fn note(&mut self, BodyBytes { handed_over, copied }: BodyBytes) {
        self.add(Self { responses: 1, handed_over, copied });
    }

    fn add(&mut self, other: Self) {
        self.responses += other.responses;
        self.handed_over += other.handed_over;
        self.copied += other.copied;
    }
}

/// Counters of a site since the front has had it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteMeter {
    /// By [`Mode`].
    pub sent: [SentResponses; Mode::ALL.len()],
    /// Number of responses by status, in the order in which the statuses first occurred.
    pub statuses: Vec<(u16, u64)>,
    /// Times from the head of a request to the last byte of its response.
    pub duration: Histogram,
}

impl SiteMeter {
    fn note(&mut self, line: &LogLine<'_>, mode: Mode) {
        self.sent[mode as usize].note(line.body);
        self.note_status(line.status, 1);
        self.duration.note(line.began.elapsed());
    }

    fn note_status(&mut self, status: u16, times: u64) {
        if let Some((_, count)) = self.statuses.iter_mut().find(|(known, _)| *known == status) {
            *count += times;
        } else if self.statuses.len() < MOST_STATUSES {
            self.statuses.push((status, times));
        } else {
            // The last entry becomes the sum of its status and all further ones.
            match &mut self.statuses[MOST_STATUSES - 1] {
                (OTHER_STATUS, count) => *count += times,
                (last, count) => (*last, *count) = (OTHER_STATUS, *count + times),
            }
        }
    }

    /// Adds the counts of another event loop.
    pub fn add(&mut self, other: &Self) {
        self.sent.iter_mut().zip(other.sent).for_each(|(sum, other)| sum.add(other));
        other.statuses.iter().for_each(|(status, times)| self.note_status(*status, *times));
        self.duration.add(&other.duration);
    }

    fn status(&self) -> SiteStatus {
        let mut all = SentResponses::default();
        self.sent.iter().for_each(|sent| all.add(*sent));
        let SentResponses { responses: requests, handed_over, copied } = all;
        SiteStatus { requests, handed_over, copied }
    }
}

/// Counters of a pool since the front has had it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolMeter {
    /// By [`Mode`].
    pub sent: [SentResponses; Mode::ALL.len()],
    /// Times that requests waited for a worker.
    pub queue: Histogram,
    /// Times that workers spent on requests.
    pub service: Histogram,
}

impl PoolMeter {
    /// Adds the counts of another event loop.
    pub fn add(&mut self, other: &Self) {
        self.sent.iter_mut().zip(other.sent).for_each(|(sum, other)| sum.add(other));
        self.queue.add(&other.queue);
        self.service.add(&other.service);
    }
}

/// A meter that is allocated at its first count: of a thousand sites most are idle.
type Lazy<M> = Rc<RefCell<Option<Box<M>>>>;

/// The meters of one event loop.
#[derive(Debug, Default)]
pub struct Meters {
    /// By the number of the site.
    sites: Vec<Lazy<SiteMeter>>,
    /// By the number of the pool.
    pools: Vec<Lazy<PoolMeter>>,
    refused: Rc<Cell<u64>>,
}

impl Meters {
    /// Meters for another configuration. Sites and pools keep the meters that `before` has under
    /// the same name.
    pub fn renewed(config: &Config, before: &Self, config_before: &Config) -> Self {
        let sites = |config: &Config| config.sites.iter().map(|site| site.name.clone()).collect();
        let pools = |config: &Config| config.pools.iter().map(|pool| pool.name.clone()).collect();
        Self {
            sites: kept(sites(config), sites(config_before), &before.sites),
            pools: kept(pools(config), pools(config_before), &before.pools),
            refused: Rc::clone(&before.refused),
        }
    }

    /// Counts a request.
    pub fn note(&self, line: &LogLine<'_>) {
        let mode = match line.notes.mode {
            Mode::Relay | Mode::Region if line.body.handed_over > 0 => Mode::File,
            mode => mode,
        };
        match line.notes.site.and_then(|number| self.sites.get(number)) {
            Some(site) => site.borrow_mut().get_or_insert_default().note(line, mode),
            None => self.refused.set(self.refused.get() + 1),
        }
        if let Some(pool) = line.notes.pool.and_then(|number| self.pools.get(number)) {
            let mut pool = pool.borrow_mut();
            let pool = pool.get_or_insert_default();
            pool.sent[mode as usize].note(line.body);
            line.notes.queued.inspect(|time| pool.queue.note(*time));
            line.notes.served.inspect(|time| pool.service.note(*time));
        }
    }

    /// Requests without a site, because they could not be understood.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// The meters of the sites, by site number; `None`: no request was answered for the site.
    pub fn sites(&self) -> Vec<Option<Box<SiteMeter>>> {
        self.sites.iter().map(|site| site.borrow().clone()).collect()
    }

    /// The meters of the pools, by pool number; `None`: the pool has answered no request.
    pub fn pools(&self) -> Vec<Option<Box<PoolMeter>>> {
        self.pools.iter().map(|pool| pool.borrow().clone()).collect()
    }

    /// The figures of each site for `sendoff status`.
    pub fn site_statuses(&self) -> Vec<SiteStatus> {
        let status = |site: &Lazy<SiteMeter>| site.borrow().as_ref().map(|site| site.status());
        self.sites.iter().map(|site| status(site).unwrap_or_default()).collect()
    }
}

/// A meter for each name: the existing meter of that name, or a new one.
fn kept<M>(names: Vec<String>, names_before: Vec<String>, before: &[Lazy<M>]) -> Vec<Lazy<M>> {
    let mut known: HashMap<_, _> = names_before.into_iter().zip(before).collect();
    names.iter().map(|name| known.remove(name).cloned().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::log_line::Notes;
    use super::*;

    #[test]
    fn a_time_is_counted_in_the_bucket_of_the_next_bound() {
        let mut times = Histogram::default();
        for micros in [0, 100, 101, 60_000_000, 60_000_001] {
            times.note(Duration::from_micros(micros));
        }
        let at = |bound: usize| times.buckets[bound];
        assert_eq!([at(0), at(1), at(15), at(16)], [2, 1, 1, 1]);
        assert_eq!((times.count(), times.sum), (5, 120_000_202));
    }

    #[test]
    fn statuses_that_scripts_invent_take_bounded_memory() {
        let mut meter = SiteMeter::default();
        for status in 200..300 {
            meter.note_status(status, 1);
        }
        assert_eq!(meter.statuses.len(), MOST_STATUSES);
        let others = 100 - (MOST_STATUSES as u64 - 1);
        assert_eq!(meter.statuses.last(), Some(&(OTHER_STATUS, others)));
        let mut sum = SiteMeter::default();
        sum.add(&meter);
        sum.add(&meter);
        assert_eq!(sum.statuses[0], (200, 2));
        assert_eq!(sum.statuses.last(), Some(&(OTHER_STATUS, 2 * others)));
    }

    /// Run by hand: `cargo test --release -p sendoff-report how_long_counting -- --ignored
    /// --nocapture`. Under `valgrind --tool=callgrind` it counts instructions.
    #[test]
    #[ignore = "heavy: it measures"]
    fn how_long_counting_a_request_takes() {
        let asked = sendoff_message::request::sample::request(Some("a"));
        let site = || Lazy::<SiteMeter>::default();
        let meters = Meters {
            sites: vec![site(), site()],
            pools: vec![Lazy::default()],
            refused: Rc::default(),
        };
        let time = Some(Duration::from_micros(80));
        let notes = Notes {
            site: Some(1),
            pool: Some(0),
            queued: time,
            served: time,
            mode: Mode::Relay,
            ..Notes::default()
        };
        let (began, requests) = (tokio::time::Instant::now(), 100_000_u32);
        for _ in 0..requests {
            meters.note(&LogLine {
                client: &asked.peer,
                request: Some(&asked),
                request_line: &"GET / HTTP/1.1",
                began,
                status: 200,
                sent: 5,
                body: BodyBytes { handed_over: 0, copied: 5 },
                is_whole: true,
                notes: &notes,
            });
        }
        println!("{:?} a request", began.elapsed() / requests);
        let counted = meters.sites()[1].as_ref().unwrap().duration.count();
        assert_eq!(counted, u64::from(requests));
    }
}
