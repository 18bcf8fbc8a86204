//! The ring of a pool, as all event loops share it (`docs/handover.md` §9): which requests are
//! posted, and which workers sleep. What the front knows itself stands here; from the memory it
//! reads only who has taken a request and who sleeps.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sendoff_ring::{ASLEEP, AWAKE, Claim, FIRST, FrontMemory, GONE, Memory, Place};
use sendoff_sys::ring::{Front, Shape};
use sendoff_upstream::error::UpstreamError;
use tokio::time::Instant;

use super::state::{State, Worker};
use super::{Pool, WorkerId, WorkerPermit};

/// Slots for requests, and the bytes of a slot. A request without a free slot, or for which a slot
/// is too short, is only announced in the ring. The slot that was freed last is used next, so a pool
/// touches as many as it has waiting requests.
const SLOTS: u16 = 256;
const SLOT_LEN: u32 = 8 * 1024;

/// Workers with a link at the same time: the most that a master starts, and as many that are ending.
const SEATS: u16 = 2048;

/// The least and the largest number of positions: twice the requests that may wait, because workers
/// may keep some positions for as long as their scripts run.
const LEAST_POSITIONS: usize = 4096;
const MOST_POSITIONS: usize = 1 << 20;

/// A worker that is said to have taken a request, and works on another one at this many looks of
/// the event loop, has not taken it. Looks are counted instead of seconds: an event loop that was
/// stopped, or that has waited for a disk, has not read the worker's link meanwhile either.
const CLAIM_LOOKS: u32 = 1000;

/// An idle worker that neither sleeps nor takes a request for this time, and at this many looks,
/// believes that it may take none: a script has overwritten its flag.
const SILENCE: Duration = Duration::from_secs(1);
const SILENT_LOOKS: u32 = 100;

/// The requests and the seats of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Front,
    next: u64,
    entries: BTreeMap<u64, Entry>,
    /// Positions that a request in `entries` has.
    used: Box<[bool]>,
    free_slots: Vec<u16>,
    /// A seat for each number below [`SEATS`].
    seats: Box<[Option<Seat>]>,
    /// The seat at which the search for a free one begins.
    next_seat: u16,
    /// Workers that were taken out of their sleep and get the record `LOOK` next.
    owed: Vec<WorkerId>,
}

/// A posted request.
#[derive(Debug)]
struct Entry {
    event_loop: usize,
    since: Instant,
    slot: Option<u16>,
    /// The front knows who works on it, and waits for the record `TAKEN`.
    is_adopted: bool,
    /// Looks of the event loop at which a worker had taken it.
    looks: u32,
}

#[derive(Debug)]
struct Seat {
    worker: WorkerId,
    /// Event loops whose link to the worker has not ended.
    links: usize,
    /// Set while the worker is idle, and neither sleeps nor takes what waits.
    silence: Option<Silence>,
}

#[derive(Debug)]
struct Silence {
    since: Instant,
    looks: u32,
    /// Requests that the worker has had.
    requests: u64,
}

/// A change of a posted request that its event loop has to deal with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// This worker has taken it.
    Claimed(WorkerId),
    /// A worker has overwritten its word. It has left the ring, and so have those below.
    Overwritten,
    /// It has waited for too long.
    TimedOut,
    /// There is no worker, and none will come.
    Refused,
}

/// A request in the ring.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) number: u64,
    /// Its bytes are there; otherwise it is only announced.
    pub(crate) is_whole: bool,
    /// A worker that was asleep: the caller lets it look into the ring.
    pub(crate) wake: Option<WorkerId>,
}

impl Ring {
    /// A ring for a pool in which this number of requests may wait.
    pub(super) fn new(requests: usize) -> io::Result<Self> {
        let positions = requests.clamp(LEAST_POSITIONS / 2, MOST_POSITIONS / 2) * 2;
        let positions = positions.next_power_of_two();
        let memory = Front::create(Shape {
            positions: u32::try_from(positions).map_err(io::Error::other)?,
            slots: SLOTS.into(),
            slot_len: SLOT_LEN,
            seats: SEATS.into(),
        })?;
        Ok(Self {
            memory,
            next: FIRST,
            entries: BTreeMap::new(),
            used: vec![false; positions].into(),
            free_slots: (0..SLOTS).rev().collect(),
            seats: (0..SEATS).map(|_| None).collect(),
            next_seat: 0,
            owed: Vec::new(),
        })
    }

    /// Gives a worker a seat; `None` if all are in use.
    pub(super) fn join(&mut self, worker: WorkerId, links: usize) -> Option<u16> {
        // In turn: a worker that has been told to end may still use its seat for a moment.
        let mut seats = (0..SEATS).map(|n| (self.next_seat + n) % SEATS);
        let seat = seats.find(|seat| self.seats[usize::from(*seat)].is_none())?;
        self.next_seat = (seat + 1) % SEATS;
        self.seats[usize::from(seat)] = Some(Seat { worker, links, silence: None });
        self.memory.memory().set_flag(seat, AWAKE);
        Some(seat)
    }

    /// Lets a worker take nothing more.
    pub(super) fn leave(&self, seat: u16) {
        self.memory.memory().set_flag(seat, GONE);
    }

    fn position(&self, number: u64) -> usize {
        let positions = self.memory.memory().positions();
        usize::try_from(number & (positions - 1)).unwrap_or_default()
    }

    fn claim(&self, number: u64) -> Claim {
        sendoff_ring::claim(self.memory.memory(), number)
    }

    /// Posts a request. Returns its number, and whether its bytes are there.
    fn post(&mut self, event_loop: usize, bytes: Option<&[u8]>) -> Option<(u64, bool)> {
        let link = u8::try_from(event_loop).ok()?;
        let all = u64::try_from(self.used.len()).unwrap_or_default();
        // Workers look back no further than the number of positions.
        let oldest = self.first_waiting().map_or(self.next, |(number, _)| number);
        let free = |at: &u64| !self.used[self.position(*at)];
        let number = (self.next..oldest + all).find(free)?;
        self.next = number + 1;
        let bytes = bytes.filter(|bytes| bytes.len() <= SLOT_LEN as usize);
        let slot = bytes.and_then(|_| self.free_slots.pop());
        let mut place = Place { link, slot: 0, length: 0 };
        if let (Some(slot), Some(bytes)) = (slot, bytes) {
            self.memory.write(slot, bytes);
            place = Place { link, slot, length: u32::try_from(bytes.len()).ok()? };
        }
        let at = self.position(number);
        self.used[at] = true;
        let since = Instant::now();
        self.entries.insert(number, Entry { event_loop, since, slot, is_adopted: false, looks: 0 });
        sendoff_ring::post(self.memory.memory(), number, place);
        Some((number, slot.is_some()))
    }

    /// Forgets a request that a worker has taken, or that was revoked.
    fn forget(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        sendoff_ring::free(self.memory.memory(), number);
        let at = self.position(number);
        self.used[at] = false;
        self.free_slots.extend(entry.slot);
    }

    fn revoke(&mut self, number: u64) -> bool {
        let is_revoked = self.entries.contains_key(&number)
            && sendoff_ring::revoke(self.memory.memory(), number);
        if is_revoked {
            self.forget(number);
        }
        is_revoked
    }

    /// The oldest request that no worker has taken, with its number. Workers take the oldest first,
    /// so only a few are passed over.
    fn first_waiting(&self) -> Option<(u64, &Entry)> {
        let first = self.entries.iter().find(|(number, _)| self.claim(**number) == Claim::None);
        first.map(|(number, entry)| (*number, entry))
    }

    /// Number of requests that no worker has taken.
    pub(super) fn waiting(&self) -> usize {
        let taken = self.entries.keys().take_while(|number| self.claim(**number) != Claim::None);
        self.entries.len() - taken.count()
    }

    /// Since when the oldest of these has waited.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.first_waiting().map(|(_, entry)| entry.since)
    }

    /// True if a worker has taken a request that the front does not know it to work on.
    pub(super) fn has_claim(&self, seat: u16) -> bool {
        self.entries
            .iter()
            .any(|(number, entry)| !entry.is_adopted && self.claim(*number) == Claim::By(seat))
    }

    /// Takes a worker that sleeps.
    pub(super) fn wake(&self, seat: u16) -> bool {
        sendoff_ring::wake(self.memory.memory(), seat)
    }

    /// Takes a worker that sleeps and whose answers the front has read: its link carries nothing
    /// that was sent before. A worker can answer a request from the ring and sleep again before the
    /// front reads its link.
    pub(super) fn take_idle(&mut self, worker: WorkerId, seat: u16) -> bool {
        if self.memory.memory().flag(seat) != ASLEEP || self.has_claim(seat) || !self.wake(seat) {
            return false;
        }
        // It takes nothing from now on.
        let is_idle = !self.has_claim(seat);
        if !is_idle {
            self.owed.push(worker);
        }
        is_idle
    }

    /// Sets the flag of an idle worker that is silent. Its caller lets it look into the ring.
    /// `requests`: the number that the worker has had.
    fn renew_silent(&mut self, seat: u16, requests: u64) -> bool {
        let flag = self.memory.memory().flag(seat);
        let is_heard = flag == ASLEEP || self.has_claim(seat);
        let Some(Some(known)) = self.seats.get_mut(usize::from(seat)) else { return false };
        if is_heard {
            known.silence = None;
            return false;
        }
        let known_before = known.silence.take().filter(|silence| silence.requests == requests);
        let new = || Silence { since: Instant::now(), looks: 0, requests };
        let mut silence = known_before.unwrap_or_else(new);
        silence.looks += 1;
        if silence.looks < SILENT_LOOKS || silence.since.elapsed() < SILENCE {
            known.silence = Some(silence);
            return false;
        }
        if flag != AWAKE {
            tracing::error!("a worker has damaged the ring of its pool: the flag of a worker");
        }
        self.memory.memory().set_flag(seat, AWAKE);
        true
    }

    /// The seat of a worker, until its last link has ended.
    fn seat(&self, worker: WorkerId) -> Option<u16> {
        let is_its = |seat: &Option<Seat>| seat.as_ref().is_some_and(|seat| seat.worker == worker);
        self.seats.iter().position(is_its).and_then(|at| u16::try_from(at).ok())
    }

    fn fds(&self) -> io::Result<[OwnedFd; 2]> {
        let [requests, claims] = self.memory.fds();
        Ok([requests.try_clone()?, claims.try_clone()?])
    }
}

impl State {
    fn seat(&self, worker: WorkerId) -> Option<u16> {
        self.workers.get(&worker).and_then(|worker| worker.seat)
    }

    /// Takes the worker that has slept for the shortest time.
    fn take_sleeper(&mut self) -> Option<WorkerId> {
        let ring = self.ring.as_ref()?;
        let is_taken = |worker: &WorkerId| self.seat(*worker).is_some_and(|seat| ring.wake(seat));
        let at = self.idle.iter().rposition(is_taken)?;
        Some(self.idle[at])
    }

    /// Takes an idle worker that is silent.
    fn take_silent(&mut self) -> Option<WorkerId> {
        let Self { ring, workers, idle, .. } = self;
        let ring = ring.as_mut()?;
        ring.oldest().filter(|since| since.elapsed() >= SILENCE)?;
        let mut is_silent = |worker: &&WorkerId| {
            let known = workers.get(*worker);
            let known = known.and_then(|worker| Some((worker.seat?, worker.requests)));
            known.is_some_and(|(seat, requests)| ring.renew_silent(seat, requests))
        };
        idle.iter().find(|worker| is_silent(worker)).copied()
    }
}

impl Pool {
    /// True if the workers take requests from a ring.
    pub(crate) fn has_ring(&self) -> bool {
        self.state().ring.is_some()
    }

    /// The descriptors of the ring and the seat of a worker whose last link has just been made.
    pub(crate) fn ring_for(&self, worker: WorkerId) -> Option<io::Result<(u16, [OwnedFd; 2])>> {
        let state = self.state();
        let seat = state.seat(worker)?;
        Some(state.ring.as_ref()?.fds().map(|fds| (seat, fds)))
    }

    /// Takes a worker that sleeps, to send it a request. The caller owes it that, or the record
    /// `LOOK`.
    pub(crate) fn sleeper(self: &Arc<Self>, event_loop: usize) -> Option<WorkerPermit> {
        let mut state = self.state();
        let State { ring, workers, idle, .. } = &mut *state;
        let ring = ring.as_mut()?;
        let seat = |worker| workers.get(worker).and_then(|worker: &Worker| worker.seat);
        let at = idle
            .iter()
            .rposition(|worker| seat(worker).is_some_and(|seat| ring.take_idle(*worker, seat)))?;
        let worker = idle.remove(at);
        state.note_idle();
        state.note_request(worker);
        Some(WorkerPermit { pool: Arc::clone(self), worker, event_loop })
    }

    /// Posts a request in the ring; without bytes it is only announced.
    ///
    /// # Errors
    /// The queue is full, or no worker can start.
    pub(crate) fn post(
        &self,
        event_loop: usize,
        bytes: Option<&[u8]>,
    ) -> Result<Posted, UpstreamError> {
        let mut state = self.state();
        if state.complete == 0 && (state.cannot_start || state.is_abandoned) {
            return Err(state.not_started());
        }
        // An idle worker takes one of the requests at once, but may not have done so yet.
        let waiting = state.waiting();
        if waiting >= self.limits.requests && waiting >= self.limits.requests + state.idle() {
            return Err(self.queue_full());
        }
        let posted = state.ring.as_mut().and_then(|ring| ring.post(event_loop, bytes));
        let (number, is_whole) = posted.ok_or_else(|| self.queue_full())?;
        // A worker may have fallen asleep since the caller looked.
        let wake = state.take_sleeper();
        if wake.is_none() {
            state.least_idle = 0;
            state.counts.most_busy = state.counts.most_busy.max(state.complete);
            let waiting = state.waiting().saturating_sub(state.idle.len());
            state.counts.most_waiting = state.counts.most_waiting.max(waiting);
        }
        drop(state);
        self.news.notify_one();
        Ok(Posted { number, is_whole, wake })
    }

    /// Handles the record `TAKEN` of a worker for a request that is not known to be with it.
    /// `None`: the worker has not taken it.
    pub(crate) fn taken(
        self: &Arc<Self>,
        number: u64,
        worker: WorkerId,
        event_loop: usize,
    ) -> Option<WorkerPermit> {
        let mut state = self.state();
        let ring = state.ring.as_mut()?;
        // Another event loop may have noticed the worker's end already.
        let seat = ring.seat(worker);
        let entry = ring.entries.get(&number)?;
        let is_its = seat.is_some_and(|seat| ring.claim(number) == Claim::By(seat));
        if !is_its || entry.event_loop != event_loop || entry.is_adopted {
            return None;
        }
        ring.forget(number);
        Some(self.give_known(&mut state, worker, event_loop))
    }

    /// Notes that a worker works on a request that it has taken without telling so far.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        number: u64,
        worker: WorkerId,
        event_loop: usize,
    ) -> Option<WorkerPermit> {
        let mut state = self.state();
        state.ring.as_mut()?.entries.get_mut(&number)?.is_adopted = true;
        Some(self.give_known(&mut state, worker, event_loop))
    }

    fn give_known(
        self: &Arc<Self>,
        state: &mut State,
        worker: WorkerId,
        event_loop: usize,
    ) -> WorkerPermit {
        state.idle.retain(|idle| *idle != worker);
        state.note_idle();
        state.note_request(worker);
        WorkerPermit { pool: Arc::clone(self), worker, event_loop }
    }

    /// Handles the record `TAKEN` for a request that is known to be with its worker.
    pub(crate) fn forget_adopted(&self, number: u64) {
        if let Some(ring) = &mut self.state().ring {
            ring.forget(number);
        }
    }

    /// Takes a request back. False: a worker has taken it.
    pub(crate) fn revoke(&self, number: u64) -> bool {
        self.state().ring.as_mut().is_some_and(|ring| ring.revoke(number))
    }

    /// True if this worker, which has just become free, sleeps although a request waits. The caller
    /// lets it look into the ring.
    pub(crate) fn must_look(&self, worker: WorkerId) -> bool {
        let state = self.state();
        let Some(ring) = state.ring.as_ref().filter(|ring| !ring.entries.is_empty()) else {
            return false;
        };
        ring.first_waiting().is_some() && state.seat(worker).is_some_and(|seat| ring.wake(seat))
    }

    /// A worker that was taken out of its sleep, or that sleeps although a request waits, as when
    /// the worker that was woken for it has ended, or that is silent (`State::take_silent`). The caller lets it look into the ring.
    pub(crate) fn sleeper_for_waiting(&self) -> Option<WorkerId> {
        let mut state = self.state();
        let ring = state.ring.as_mut()?;
        if let Some(worker) = ring.owed.pop() {
            return Some(worker);
        }
        ring.first_waiting()?;
        state.take_sleeper().or_else(|| state.take_silent())
    }

    /// True if the worker has taken a request that the front does not know it to work on.
    pub(crate) fn has_claim(&self, worker: WorkerId) -> bool {
        let state = self.state();
        let Some(seat) = state.seat(worker) else { return false };
        state.ring.as_ref().is_some_and(|ring| ring.has_claim(seat))
    }

    /// The changes of an event loop's posted requests.
    pub(crate) fn examine(&self, event_loop: usize) -> Vec<(u64, Finding)> {
        let mut state = self.state();
        let is_refused = state.complete == 0 && (state.cannot_start || state.is_abandoned);
        let Some(ring) = &mut state.ring else { return Vec::new() };
        let mut found = Vec::new();
        let Ring { memory, entries, seats, .. } = ring;
        for (&number, entry) in entries {
            if entry.event_loop != event_loop || entry.is_adopted {
                continue;
            }
            found.push(match sendoff_ring::claim(memory.memory(), number) {
                Claim::By(seat) => {
                    entry.looks += 1;
                    match seats.get(usize::from(seat)).and_then(Option::as_ref) {
                        Some(seat) if entry.looks < CLAIM_LOOKS => {
                            (number, Finding::Claimed(seat.worker))
                        }
                        _ => (number, Finding::Overwritten),
                    }
                }
                Claim::Nonsense => (number, Finding::Overwritten),
                Claim::None if is_refused => (number, Finding::Refused),
                Claim::None if entry.since.elapsed() >= self.limits.wait => {
                    (number, Finding::TimedOut)
                }
                Claim::None => continue,
            });
        }
        found.retain(|(number, finding)| match finding {
            Finding::Claimed(_) => true,
            Finding::Overwritten => {
                ring.forget(*number);
                true
            }
            Finding::TimedOut | Finding::Refused => ring.revoke(*number),
        });
        found
    }

    /// The longest wait of a request for a worker.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.limits.wait
    }

    /// An error if there is no worker, and none will come.
    pub(crate) fn refusal(&self) -> Result<(), UpstreamError> {
        let state = self.state();
        let is_refused = state.complete == 0 && (state.cannot_start || state.is_abandoned);
        if is_refused { Err(state.not_started()) } else { Ok(()) }
    }

    /// The reason for [`Finding::TimedOut`] or [`Finding::Refused`].
    pub(crate) fn why(&self, finding: Finding) -> UpstreamError {
        match finding {
            Finding::TimedOut => self.timed_out(),
            Finding::Refused => self.state().not_started(),
            Finding::Claimed(_) | Finding::Overwritten => {
                UpstreamError::broken("a worker of its pool has damaged the ring")
            }
        }
    }

    /// Handles the end of an event loop's link to a worker. Returns the requests of this event loop
    /// that the worker had taken; they have left the ring.
    pub(crate) fn link_ended(&self, worker: WorkerId, event_loop: usize) -> Vec<u64> {
        let mut state = self.state();
        let Some(ring) = &mut state.ring else { return Vec::new() };
        let Some(seat) = ring.seat(worker) else { return Vec::new() };
        let (at, claim) = (usize::from(seat), Claim::By(seat));
        let of_loop = ring.entries.iter().filter(|(_, entry)| entry.event_loop == event_loop);
        let taken = of_loop.filter(|(number, _)| ring.claim(**number) == claim);
        let taken: Vec<u64> = taken.map(|(number, _)| *number).collect();
        taken.iter().for_each(|number| ring.forget(*number));
        if let Some(seat) = &mut ring.seats[at] {
            seat.links = seat.links.saturating_sub(1);
            if seat.links == 0 {
                ring.seats[at] = None;
            }
        }
        taken
    }
}
