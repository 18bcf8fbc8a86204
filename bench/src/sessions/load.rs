//! Many sessions at once, on one thread.

use super::BANKING;
use super::bank::{Bank, Printing, Visit};
use super::banking::CHECKS;
use super::client::{Fault, Line, Request};
use super::model::Limits;
use super::tally::{Ending, Tally};
use anyhow::Result;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Bytes per second of each connection.
pub(crate) const SPEED: u32 = 100_000;
/// Customers of the bank.
const CUSTOMERS: u32 = 10_000;
/// A page is given up after this many times the tolerable time.
const GIVEN_UP: u32 = 3;

/// A run of sessions.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) bank: Arc<Bank>,
    pub(crate) addr: SocketAddr,
    pub(crate) printing: Printing,
    pub(crate) sessions: usize,
    /// Time in which the sessions begin; its pages do not count.
    pub(crate) ramp: Duration,
    pub(crate) time: Duration,
    /// Factor of the time for which users think: 1, or less for a short trial.
    pub(crate) thinking: f64,
    pub(crate) speed: u32,
    pub(crate) limits: Limits,
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
            tally: RefCell::new(Tally::new(&BANKING)),
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
    let mut random = fastrand::Rng::with_seed(number);
    sleep(shared.load.ramp.mul_f64(random.f64())).await;
    while Instant::now() < shared.until {
        session(&shared, &mut random).await;
        // A server that refuses connections must not keep this thread busy.
        tokio::task::yield_now().await;
    }
}

async fn session(shared: &Shared, random: &mut fastrand::Rng) {
    let load = &shared.load;
    let mut lines = [Line::new(load.addr, load.speed), Line::new(load.addr, load.speed)];
    let user = random.u32(1..=CUSTOMERS);
    let mut state = 0;
    let mut check = 0;
    loop {
        if BANKING.states[state].name == "check_detail_html" {
            check = random.usize(..CHECKS);
        }
        if Instant::now() >= shared.until {
            return;
        }
        let visit = Visit { state, user, check };
        let counts = Instant::now() >= shared.from;
        shared.pending.set(shared.pending.get() + u64::from(counts));
        let ending = visit_page(load, &mut lines, visit, random).await;
        let is_right = matches!(ending, Ending::Right { .. });
        if counts {
            shared.pending.set(shared.pending.get() - 1);
            shared.tally.borrow_mut().add(state, ending, load.limits);
        }
        let Some(next) = BANKING.next(state, random).filter(|_| is_right) else {
            break;
        };
        if BANKING.is_looked_at(state) {
            sleep(BANKING.think.sample(random).mul_f64(load.thinking)).await;
        }
        state = next;
    }
    // The next user arrives after the time in which this one would have thought.
    sleep(BANKING.think.sample(random).mul_f64(load.thinking)).await;
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

/// The page, then all files that it embeds, over both connections.
async fn page_and_files(
    load: &Load,
    lines: &mut [Line; 2],
    visit: Visit,
    random: &mut fastrand::Rng,
) -> Result<u64, Fault> {
    let [first, second] = lines;
    let path = Bank::path(load.printing, visit);
    let (head, [padding, end]) = load.bank.page(visit);
    let request = Request { path: &path, since: None, body: [&head, padding, end] };
    let bytes = first.exchange(&request, random).await?;
    let embedded = BANKING.states[visit.state].embedded;
    let (even, odd): (Vec<_>, Vec<_>) =
        embedded.iter().copied().enumerate().partition(|(place, _)| place % 2 == 0);
    let mut other = random.fork();
    let (one, two) =
        tokio::try_join!(files(load, second, &even, random), files(load, first, &odd, &mut other))?;
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
        let is_kept = random.f64() < BANKING.files[usize::from(index)].kept;
        let since = is_kept.then_some(&*load.bank.date);
        let body = [load.bank.file(index), b"", b""];
        bytes += line.exchange(&Request { path: &path, since, body }, random).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "faults.rs"]
mod faults;
