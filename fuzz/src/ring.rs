//! The promise for the words of a ring, which a hostile worker writes at will: the front gets rid of
//! each request exactly once, and afterwards an honest worker finds new requests.

use std::cell::Cell;

use sendoff_ring::{ASLEEP, AWAKE, Claim, FIRST, FrontMemory, GONE, Memory, Place, Step, Taker};

const POSITIONS: u64 = 4;
const SEATS: u16 = 3;
/// The seat of the honest worker.
const HONEST: u16 = 1;

/// Memory in which every step is seen at once: the order of steps is the fuzzer's.
struct Words {
    tail: Cell<u64>,
    places: [Cell<u64>; 4],
    words: [Cell<u64>; 4],
    flags: [Cell<u32>; 3],
}

fn at(position: u64) -> usize {
    usize::try_from(position % POSITIONS).unwrap_or_default()
}

fn swap<T: Copy + PartialEq>(cell: &Cell<T>, from: T, to: T) -> bool {
    let is_found = cell.get() == from;
    if is_found {
        cell.set(to);
    }
    is_found
}

impl Memory for Words {
    fn positions(&self) -> u64 {
        POSITIONS
    }

    fn tail(&self) -> u64 {
        self.tail.get()
    }

    fn place(&self, position: u64) -> u64 {
        self.places[at(position)].get()
    }

    fn word(&self, position: u64) -> u64 {
        self.words[at(position)].get()
    }

    fn swap_word(&self, position: u64, from: u64, to: u64) -> bool {
        swap(&self.words[at(position)], from, to)
    }

    fn flag(&self, seat: u16) -> u32 {
        self.flags[usize::from(seat)].get()
    }

    fn swap_flag(&self, seat: u16, from: u32, to: u32) -> bool {
        swap(&self.flags[usize::from(seat)], from, to)
    }

    fn fence(&self) {}
}

impl FrontMemory for Words {
    fn set_tail(&self, tail: u64) {
        self.tail.set(tail);
    }

    fn set_place(&self, position: u64, place: u64) {
        self.places[at(position)].set(place);
    }

    fn set_word(&self, position: u64, word: u64) {
        self.words[at(position)].set(word);
    }

    fn set_flag(&self, seat: u16, flag: u32) {
        self.flags[usize::from(seat)].set(flag);
    }
}

fn place(number: u64) -> Place {
    Place { link: 0, slot: u16::try_from(number % 100).unwrap_or(0), length: 1 }
}

/// Checks the promise for a sequence of steps, ten bytes each.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let memory = Words {
        tail: Cell::new(FIRST),
        places: Default::default(),
        words: Default::default(),
        flags: Default::default(),
    };
    let (mut taker, mut posted, mut next) = (Taker::new(HONEST), Vec::new(), FIRST);
    for step in input.chunks_exact(10) {
        let (what, target) = (step[0] % 6, u64::from(step[1]));
        let value = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| step[2 + byte]));
        match what {
            0 => {
                let is_used = |number: u64| posted.iter().any(|posted| at(*posted) == at(number));
                if let Some(number) = (next..next + POSITIONS).find(|number| !is_used(*number)) {
                    sendoff_ring::post(&memory, number, place(number));
                    assert_eq!(sendoff_ring::claim(&memory, number), Claim::None);
                    posted.push(number);
                    next = number + 1;
                }
            }
            1 => match taker.step(&memory) {
                Step::Take(number, _) => {
                    assert_eq!(sendoff_ring::claim(&memory, number), Claim::By(HONEST));
                }
                Step::Wait => {
                    let _is_taken = sendoff_ring::wake(&memory, HONEST);
                    taker.asked();
                }
            },
            2 => memory.set_word(target, value),
            3 => memory.set_flag(u16::from(step[1]) % SEATS, u32::from(step[2] % 5)),
            4 => posted.retain(|number| !sendoff_ring::revoke(&memory, *number)),
            _ => resolve(&memory, &mut posted),
        }
    }
    posted.retain(|number| !sendoff_ring::revoke(&memory, *number));
    resolve(&memory, &mut posted);
    assert!(posted.is_empty(), "the front cannot get rid of {posted:?}");
    // The hostile worker has ended.
    memory.words.iter().for_each(|word| word.set(0));
    memory.set_flag(HONEST, AWAKE);
    let mut taker = Taker::new(HONEST);
    sendoff_ring::post(&memory, next, place(next));
    assert_eq!(taker.step(&memory), Step::Take(next, place(next)));
}

/// Frees what a worker says that it has taken, and what is damaged.
fn resolve(memory: &Words, posted: &mut Vec<u64>) {
    posted.retain(|number| {
        let is_waiting = sendoff_ring::claim(memory, *number) == Claim::None;
        if !is_waiting {
            sendoff_ring::free(memory, *number);
        }
        is_waiting
    });
}

/// Inputs to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let step =
        |what: u8, target: u8, value: u64| [&[what, target][..], &value.to_le_bytes()].concat();
    let flags = [AWAKE, ASLEEP, GONE].map(|flag| step(3, 1, flag.into()));
    let ready = FIRST << 18 | 1 << 16;
    vec![
        [step(0, 0, 0), step(1, 0, 0), step(5, 0, 0), step(0, 0, 0), step(4, 0, 0)].concat(),
        [step(0, 0, 0), step(2, 1, ready + (1 << 16)), step(1, 0, 0), step(5, 0, 0)].concat(),
        [step(0, 0, 0), step(1, 0, 0), step(2, 1, ready), step(1, 0, 0), flags.concat()].concat(),
    ]
}

/// Strings that inputs are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\x00\x00\x05\x00\x00\x00\x00\x00",
    b"\x00\x00\x06\x00\x00\x00\x00\x00",
    b"\x01\x00\x06\x00\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
];
