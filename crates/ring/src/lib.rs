//! The ring of a pool: requests that the front posts in shared memory, and that its workers take
//! (`docs/handover.md` §9). No I/O: the memory is behind the trait [`Memory`].
//!
//! ```text
//!   front                          a word of the ring                        a worker
//!   post()    ───────────▶ READY ──────────────────────▶ CLAIMED by its seat ───▶ TAKEN on its link
//!   revoke()               READY ──▶ 0   (by compare-and-swap, so only one of the two succeeds)
//! ```
//! A worker that finds no request notes in its flag that it sleeps, looks once more, and waits for
//! its links. The front takes a sleeping worker by compare-and-swap on the flag before it sends
//! anything to it, so a worker that sleeps gets exactly one message.
#![forbid(unsafe_code)]

mod taker;

pub use taker::{Step, Taker};

/// The memory of a ring. Positions are below [`Self::positions`], seats below the number that the
/// front has set up.
pub trait Memory {
    /// The number of positions; a power of two.
    fn positions(&self) -> u64;
    /// The number of the next request that will be posted (acquire).
    fn tail(&self) -> u64;
    /// The place of the request at a position, as [`Place::encode`] gives it.
    fn place(&self, position: u64) -> u64;
    /// The word at a position (acquire).
    fn word(&self, position: u64) -> u64;
    /// Replaces `from` at a position; false if the word is another one (acquire and release).
    fn swap_word(&self, position: u64, from: u64, to: u64) -> bool;
    /// The flag of a seat.
    fn flag(&self, seat: u16) -> u32;
    /// Replaces `from` in the flag of a seat; false if the flag is another one (acquire and
    /// release).
    fn swap_flag(&self, seat: u16, from: u32, to: u32) -> bool;
    /// Orders the stores before it and the loads behind it, for all processes (sequentially
    /// consistent).
    fn fence(&self);
}

/// The front's side of the memory.
pub trait FrontMemory: Memory {
    /// Sets the number of the next request (release).
    fn set_tail(&self, tail: u64);
    /// Sets the place of the request at a position.
    fn set_place(&self, position: u64, place: u64);
    /// Sets a word (release).
    fn set_word(&self, position: u64, word: u64);
    /// Sets a flag (release).
    fn set_flag(&self, seat: u16, flag: u32);
}

/// A worker that is awake: it looks into the ring before it sleeps. The value of a new seat.
pub const AWAKE: u32 = 0;
/// A worker that waits for its links and that no event loop has taken.
pub const ASLEEP: u32 = 1;
/// A worker that must take no more requests.
pub const GONE: u32 = 2;

/// The number of the first request.
pub const FIRST: u64 = 1;

const SEAT_BITS: u32 = 16;
const STATE_BITS: u32 = 2;
const READY: u64 = 1;
const CLAIMED: u64 = 2;

/// A word: number of the request (46 bits), state (2 bits), seat (16 bits).
const fn word(number: u64, state: u64, seat: u16) -> u64 {
    number << (SEAT_BITS + STATE_BITS) | state << SEAT_BITS | seat as u64
}

const fn ready(number: u64) -> u64 {
    word(number, READY, 0)
}

const fn claimed(number: u64, seat: u16) -> u64 {
    word(number, CLAIMED, seat)
}

fn position(memory: &impl Memory, number: u64) -> u64 {
    number & (memory.positions() - 1)
}

/// The state of a posted request, as its word in the ring says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// No worker has taken it.
    None,
    /// The worker with this seat says that it has taken it.
    By(u16),
    /// No worker of ours has written this.
    Nonsense,
}

/// The place of a posted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The worker's number for the link on which it answers.
    pub link: u8,
    /// The slot with the request's bytes.
    pub slot: u16,
    /// The number of these bytes; 0: the request comes on the link once it is taken.
    pub length: u32,
}

impl Place {
    /// The place as it stands in the memory.
    #[must_use]
    pub fn encode(self) -> u64 {
        u64::from(self.link) << 48 | u64::from(self.slot) << 32 | u64::from(self.length)
    }

    /// Reads a place.
    #[must_use]
    pub fn decode(raw: u64) -> Self {
        let [_, link, slot @ .., a, b, c, d] = raw.to_be_bytes();
        Self { link, slot: u16::from_be_bytes(slot), length: u32::from_be_bytes([a, b, c, d]) }
    }
}

/// Makes a request visible to the workers. The caller has written its bytes, has checked that its
/// position is unused, and posts requests in the order of their numbers.
pub fn post(memory: &impl FrontMemory, number: u64, place: Place) {
    memory.set_place(position(memory, number), place.encode());
    memory.set_word(position(memory, number), ready(number));
    memory.set_tail(number + 1);
    // A worker that has set its flag before this either sees the request, or its flag is seen by
    // the caller.
    memory.fence();
}

/// Reads the word of a posted request.
pub fn claim(memory: &impl Memory, number: u64) -> Claim {
    let found = memory.word(position(memory, number));
    if found == ready(number) {
        return Claim::None;
    }
    let seat = u16::try_from(found & u64::from(u16::MAX)).unwrap_or(u16::MAX);
    if found == claimed(number, seat) { Claim::By(seat) } else { Claim::Nonsense }
}

/// Takes a posted request back. False: a worker has taken it.
pub fn revoke(memory: &impl Memory, number: u64) -> bool {
    memory.swap_word(position(memory, number), ready(number), 0)
}

/// Frees the position of a request that a worker has taken, or whose word is nonsense.
pub fn free(memory: &impl FrontMemory, number: u64) {
    memory.set_word(position(memory, number), 0);
}

/// Takes a worker that sleeps. The caller owes it a message.
pub fn wake(memory: &impl Memory, seat: u16) -> bool {
    memory.swap_flag(seat, ASLEEP, AWAKE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_the_round_trip() {
        for place in [
            Place { link: 0, slot: 0, length: 0 },
            Place { link: 7, slot: 0x0102, length: 0x0304_0506 },
            Place { link: u8::MAX, slot: u16::MAX, length: u32::MAX },
        ] {
            assert_eq!(Place::decode(place.encode()), place);
        }
    }
}
