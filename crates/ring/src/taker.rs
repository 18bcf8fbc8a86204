//! The worker's side of a ring.

use crate::{ASLEEP, AWAKE, FIRST, GONE, Memory, Place, claimed, position, ready};

/// The next thing for a worker that has ended its last request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It has taken the request with this number, which is there.
    Take(u64, Place),
    /// It waits for its links, then asks again.
    Wait,
}

/// One worker's state.
///
/// ```text
///           no request                 a message, and the front has not taken it
///  Awake ────────────────▶ Asleep ─────────────────────────────────────────────────▶ Awake
///   ▲ │ │                     │ the front has taken it: its message is still to come
///   │ │ │ asked(), given()    ▼
///   │ │ └─────────────────── Owed
///   │ └──── promised() ────▶ Promised: a request that it has taken comes on a link
///   └───── given(), withdrawn() ┘
/// ```
#[derive(Debug)]
pub struct Taker {
    seat: u16,
    /// Requests with lower numbers are not ready any more.
    cursor: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Awake,
    Asleep,
    Owed,
    Promised(u64),
}

impl Taker {
    /// A worker with this seat.
    #[must_use]
    pub fn new(seat: u16) -> Self {
        Self { seat, cursor: FIRST, state: State::Awake }
    }

    /// Takes a request, or notes that the worker sleeps.
    pub fn step(&mut self, memory: &impl Memory) -> Step {
        loop {
            match self.state {
                State::Owed | State::Promised(_) => return Step::Wait,
                State::Asleep if memory.swap_flag(self.seat, ASLEEP, AWAKE) => {
                    self.state = State::Awake;
                }
                State::Asleep => self.state = State::Owed,
                State::Awake => {
                    if memory.flag(self.seat) == GONE {
                        return Step::Wait;
                    }
                    if let Some(number) = self.take(memory) {
                        let place = memory.place(position(memory, number));
                        return Step::Take(number, Place::decode(place));
                    }
                    if !memory.swap_flag(self.seat, AWAKE, ASLEEP) {
                        return Step::Wait;
                    }
                    self.state = State::Asleep;
                    // A request that was posted before the front could see the flag is found now.
                    memory.fence();
                    if !self.sees_request(memory) {
                        return Step::Wait;
                    }
                }
            }
        }
    }

    /// Notes the message that asks the worker to look into the ring. It may be late: a worker that
    /// has meanwhile taken a request that comes on a link takes nothing else.
    pub fn asked(&mut self) {
        if !matches!(self.state, State::Promised(_)) {
            self.state = State::Awake;
        }
    }

    /// The request with this number does not come: its client has left.
    pub fn withdrawn(&mut self, number: u64) {
        if self.state == State::Promised(number) {
            self.state = State::Awake;
        }
    }

    /// A request has come on a link.
    pub fn given(&mut self) {
        self.state = State::Awake;
    }

    /// It has taken the request with this number, which comes on a link: nothing else may be taken
    /// before.
    pub fn promised(&mut self, number: u64) {
        self.state = State::Promised(number);
    }

    fn take(&mut self, memory: &impl Memory) -> Option<u64> {
        while let Some(number) = self.first_ready(memory) {
            let (from, to) = (ready(number), claimed(number, self.seat));
            self.cursor = number + 1;
            if memory.swap_word(position(memory, number), from, to) {
                return Some(number);
            }
        }
        None
    }

    fn sees_request(&mut self, memory: &impl Memory) -> bool {
        self.first_ready(memory).is_some()
    }

    /// The oldest request that is ready; moves the cursor there.
    fn first_ready(&mut self, memory: &impl Memory) -> Option<u64> {
        let tail = memory.tail();
        self.cursor = self.cursor.max(tail.saturating_sub(memory.positions()));
        while self.cursor < tail {
            if memory.word(position(memory, self.cursor)) == ready(self.cursor) {
                return Some(self.cursor);
            }
            self.cursor += 1;
        }
        None
    }
}
