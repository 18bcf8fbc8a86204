//! Many sessions at once, on one thread.

use super::client::{Fault, Line, READ, Request};
use super::contents::{Contents, Printing, Visit};
use super::model::{Kind, Limits, Scenario};
use super::tally::{Ending, Tally};
use anyhow::Result;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// Bytes per second of each connection.
pub(crate) const SPEED: u32 = 100_000;
/// Customers of the site.
const CUSTOMERS: u32 = 10_000;
/// A page is given up after this many times the tolerable time.
const GIVEN_UP: u32 = 3;
/// A download that is younger than this at the end of the run does not count.
const JUDGED: Duration = Duration::from_secs(1);

/// A run of sessions.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) contents: Arc<Contents>,
    pub(crate) addr: SocketAddr,
    pub(crate) printing: Printing,
    pub(crate) sessions: usize,
    /// The first session of each user has up to this many pages behind it, as if it had begun long
    /// ago; all others begin with the first page.
    pub(crate) behind: usize,
    /// Time in which the sessions begin; its pages do not count.
    pub(crate) ramp: Duration,
    pub(crate) time: Duration,
    /// Factor of the time for which users think: 1, or less for a short trial.
    pub(crate) thinking: f64,
    pub(crate) speed: u32,
    /// Limits of pages; downloads have limits by the speed of the line.
    pub(crate) limits: Limits,
}

impl Load {
    fn scenario(&self) -> &'static Scenario {
        self.contents.scenario
    }

    fn choose(&self, random: &mut fastrand::Rng) -> usize {
        (self.scenario().items.choose)(random, self.contents.groups)
    }
}

struct Shared {
    load: Load,
    tally: RefCell<Tally>,
    /// Pages that count begin from here on.
    from: Instant,
    until: Instant,
    /// Pages that count and have not ended.
    pending: Cell<u64>,
}

/// Runs the sessions. A page that has not ended when the tolerable time after the end of the run is
/// over has failed.
pub(crate) fn run(load: Load) -> Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let (from, until) = (Instant::now() + load.ramp, Instant::now() + load.ramp + load.time);
        let tolerable = load.limits.tolerable;
        let shared = Rc::new(Shared {
            tally: RefCell::new(Tally::new(load.scenario())),
            from,
            until,
            pending: Cell::new(0),
            load,
        });
        for number in 0..shared.load.sessions {
            tokio::task::spawn_local(user(Rc::clone(&shared), number as u64));
        }
        sleep_until(until).await;
        let end = until + tolerable;
        while shared.pending.get() > 0 && Instant::now() < end {
            sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..shared.pending.get() {
            let ending = Ending::Failed("a page did not end".into());
            shared.tally.borrow_mut().add(0, ending, shared.load.limits);
        }
        Ok(shared.tally.take())
    })
}

/// One user after the other.
async fn user(shared: Rc<Shared>, number: u64) {
    let load = &shared.load;
    let mut random = fastrand::Rng::with_seed(number);
    sleep(load.ramp.mul_f64(random.f64())).await;
    let behind = random.usize(..=load.behind);
    let mut first = (0..behind).fold(0, |at, _| load.scenario().next(at, &mut random).unwrap_or(0));
    while Instant::now() < shared.until {
        session(&shared, first, &mut random).await;
        first = 0;
        // A server that refuses connections must not keep this thread busy.
        tokio::task::yield_now().await;
    }
}

async fn session(shared: &Shared, first: usize, random: &mut fastrand::Rng) {
    let load = &shared.load;
    let scenario = load.scenario();
    let mut lines = [Line::new(load.addr, load.speed), Line::new(load.addr, load.speed)];
    let user = random.u32(1..=CUSTOMERS);
    let mut state = first;
    let mut item = load.choose(random);
    loop {
        if state == scenario.items.chosen_at {
            item = load.choose(random);
        }
        if Instant::now() >= shared.until {
            return;
        }
        let visit = Visit { state, user, item };
        let counts = Instant::now() >= shared.from;
        shared.pending.set(shared.pending.get() + u64::from(counts));
        let ending = match scenario.states[state].kind {
            Kind::Download => download(shared, &mut lines[0], item, random).await,
            _ => Some(visit_page(load, &mut lines, visit, random).await),
        };
        let is_right = matches!(ending, Some(Ending::Right { .. } | Ending::Downloaded { .. }));
        if counts {
            shared.pending.set(shared.pending.get() - 1);
            if let Some(ending) = ending {
                shared.tally.borrow_mut().add(state, ending, load.limits);
            }
        }
        let Some(next) = scenario.next(state, random).filter(|_| is_right) else {
            break;
        };
        if scenario.is_looked_at(state) {
            sleep(scenario.think.sample(random).mul_f64(load.thinking)).await;
        }
        state = next;
    }
    // The next user arrives after the time in which this one would have thought.
    sleep(scenario.think.sample(random).mul_f64(load.thinking)).await;
}

async fn visit_page(
    load: &Load,
    lines: &mut [Line; 2],
    visit: Visit,
    random: &mut fastrand::Rng,
) -> Ending {
    let started = Instant::now();
    let patience = load.limits.tolerable * GIVEN_UP;
    match timeout(patience, page_and_files(load, lines, visit, random)).await {
        Ok(Ok(bytes)) => Ending::Right { time: started.elapsed(), bytes },
        Ok(Err(fault)) => fault.into(),
        Err(_) => Ending::Failed(format!("a page took more than {patience:?}")),
    }
}

/// A download. If the run ends meanwhile, its rate until then counts; `None` if it had just begun.
async fn download(
    shared: &Shared,
    line: &mut Line,
    item: usize,
    random: &mut fastrand::Rng,
) -> Option<Ending> {
    let load = &shared.load;
    let started = Instant::now();
    let limits = |bytes: u64| Limits::of_download(bytes, load.speed);
    let size = load.scenario().size(0, item) as u64;
    let patience = limits(size).tolerable * GIVEN_UP;
    let given_up = started + patience;
    match timeout_at(given_up.min(shared.until), stored(load, line, 0, item, random)).await {
        Ok(Ok(bytes)) => {
            Some(Ending::Downloaded { time: started.elapsed(), bytes, limits: limits(size) })
        }
        Ok(Err(fault)) => Some(fault.into()),
        Err(_) if Instant::now() >= given_up => {
            Some(Ending::Failed(format!("a download took more than {patience:?}")))
        }
        Err(_) if started.elapsed() < JUDGED => None,
        Err(_) => {
            let bytes = line.read();
            // The last piece of a whole download counts when it is read, not when the line has
            // carried it; the next piece of this one is on the line.
            let limits = limits(bytes + READ as u64);
            Some(Ending::Downloaded { time: started.elapsed(), bytes, limits })
        }
    }
}

/// The page, then all files that it embeds, over both connections.
async fn page_and_files(
    load: &Load,
    lines: &mut [Line; 2],
    visit: Visit,
    random: &mut fastrand::Rng,
) -> Result<u64, Fault> {
    let [first, second] = lines;
    let path = load.contents.path(load.printing, visit);
    let (head, [padding, end]) = load.contents.page(visit);
    let request = Request { path: &path, since: None, body: [&head, padding, end] };
    let bytes = first.exchange(&request, random).await?;
    let embedded = load.scenario().states[visit.state].embedded;
    let (even, odd): (Vec<_>, Vec<_>) =
        embedded.iter().copied().enumerate().partition(|(place, _)| place % 2 == 0);
    let mut other = random.fork();
    let (one, two) = tokio::try_join!(files(load, second, &even, random), async {
        let bytes = files(load, first, &odd, &mut other).await?;
        Ok(bytes + pictures(load, first, visit, &mut other).await?)
    })?;
    Ok(bytes + one + two)
}

async fn files(
    load: &Load,
    line: &mut Line,
    indices: &[(usize, u8)],
    random: &mut fastrand::Rng,
) -> Result<u64, Fault> {
    let mut bytes = 0;
    for &(_, index) in indices {
        let path = format!("/files/{index}.gif");
        let is_kept = random.f64() < load.scenario().files[usize::from(index)].kept;
        let since = is_kept.then_some(&*load.contents.date);
        let body = [load.contents.file(index), b"", b""];
        bytes += line.exchange(&Request { path: &path, since, body }, random).await?;
    }
    Ok(bytes)
}

/// The pictures of the item that the page shows.
async fn pictures(
    load: &Load,
    line: &mut Line,
    visit: Visit,
    random: &mut fastrand::Rng,
) -> Result<u64, Fault> {
    let mut bytes = 0;
    for &class in load.scenario().states[visit.state].pictures {
        bytes += stored(load, line, class, visit.item, random).await?;
    }
    Ok(bytes)
}

/// An item's own file.
async fn stored(
    load: &Load,
    line: &mut Line,
    class: usize,
    item: usize,
    random: &mut fastrand::Rng,
) -> Result<u64, Fault> {
    let path = load.contents.stock_path(class, item);
    let (mark, rest) = load.contents.stored(class, item);
    line.exchange(&Request { path: &path, since: None, body: [mark.as_bytes(), rest, b""] }, random)
        .await
}

#[cfg(test)]
#[path = "faults.rs"]
mod faults;
