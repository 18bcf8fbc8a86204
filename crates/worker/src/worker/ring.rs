//! Requests from the ring of the pool (`docs/handover.md` §9).

use std::os::fd::{AsFd, OwnedFd};

use rustix::time::{ClockId, clock_gettime};
use sendoff_fastcgi::handover::Record;
use sendoff_link::worker::{Error, Request};
use sendoff_ring::{Place, Step, Taker};
use sendoff_sys::ring::Worker as Memory;

use super::Worker;
use crate::Bad;
use crate::input::RecordInput;

/// The id of all requests of a front.
pub(super) const REQUEST_ID: u16 = 1;

/// This worker's side of the ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Memory,
    taker: Taker,
    /// Bytes of the request that was taken.
    input: RecordInput,
    /// The number of the current request, and when it was taken, until the front is told.
    taken: Option<(u64, u64)>,
}

impl Worker {
    pub(super) fn map_ring(
        &mut self,
        seat: u16,
        requests: &OwnedFd,
        claims: &OwnedFd,
    ) -> Result<(), Bad> {
        let memory = Memory::open(requests.as_fd(), claims.as_fd())?;
        if u32::from(seat) >= memory.seats() {
            return Err(Error::Ring.into());
        }
        let (taker, input) = (Taker::new(seat), RecordInput::default());
        self.ring = Some(Ring { memory, taker, input, taken: None });
        Ok(())
    }

    /// Notes that the front asks this worker to look into the ring.
    pub(super) fn note_asked(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.taker.asked();
        }
    }

    /// The client of the request with this number has left.
    pub(super) fn note_withdrawn(&mut self, number: u64) {
        if let Some(ring) = &mut self.ring {
            ring.taker.withdrawn(number);
        }
    }

    /// Notes that a request has come on a link.
    pub(super) fn note_request(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.taker.given();
        }
    }

    /// Takes a request from the ring. `false`: the worker must wait for its links.
    pub(super) fn take_from_ring(&mut self) -> Result<bool, Bad> {
        // A request that was taken could not be answered on a lost link, and no other worker would
        // get it.
        if self.ring.is_none() || self.shared.is_stopping() || self.shared.lock().lost {
            return Ok(false);
        }
        let Some(mut ring) = self.ring.take() else { return Ok(false) };
        let taken = match ring.taker.step(ring.memory.memory()) {
            Step::Wait => Ok(false),
            Step::Take(number, place) => self.take(&mut ring, number, place),
        };
        self.ring = Some(ring);
        taken
    }

    fn take(&mut self, ring: &mut Ring, number: u64, place: Place) -> Result<bool, Bad> {
        let Place { link, slot, length } = place;
        let at = usize::from(link);
        if at >= self.shared.links.len() {
            return Err(Error::Ring.into());
        }
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        if length == 0 {
            // The request comes on the link once the front knows who has taken it.
            ring.taker.promised(number);
            let mut state = self.shared.lock();
            state.link = at;
            state.queue.record(REQUEST_ID, Record::Taken { number, at: now });
            let _lost_is_noted = self.shared.flush(state);
            return Ok(false);
        }
        if !ring.memory.read(slot, length, ring.input.buffer()) {
            return Err(Error::Ring.into());
        }
        while let Some(part) = ring.input.next()? {
            self.take_part(at, part)?;
        }
        if !self.requests.running().is_some_and(Request::is_complete) {
            return Err(Error::Ring.into());
        }
        self.requests.from_ring(number);
        ring.taken = Some((number, now));
        Ok(true)
    }

    /// The number of the current request, if it is from the ring, and when it was taken; once.
    pub(super) fn taken_from_ring(&mut self) -> Option<(u64, u64)> {
        self.ring.as_mut()?.taken.take()
    }
}
