//! Every interleaving of a front that posts and revokes requests and of workers that take them: no
//! request is taken twice or lost, and a worker sleeps only while no request is ready or while the
//! front owes it a message. Both sides are the real code.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sendoff_ring::{FIRST, FrontMemory, Memory, Place, Step, Taker, post, revoke, wake};

const POSITIONS: u64 = 2;
const SEATS: usize = 2;

struct Words {
    tail: AtomicU64,
    places: Vec<AtomicU64>,
    words: Vec<AtomicU64>,
    flags: Vec<AtomicU32>,
    has_fences: bool,
}

impl Words {
    fn new(has_fences: bool) -> Self {
        Self {
            tail: AtomicU64::new(FIRST),
            places: (0..POSITIONS).map(|_| AtomicU64::new(0)).collect(),
            words: (0..POSITIONS).map(|_| AtomicU64::new(0)).collect(),
            flags: (0..SEATS).map(|_| AtomicU32::new(0)).collect(),
            has_fences,
        }
    }
}

fn at<T>(all: &[T], position: u64) -> &T {
    &all[usize::try_from(position).unwrap()]
}

impl Memory for Words {
    fn positions(&self) -> u64 {
        POSITIONS
    }

    fn tail(&self) -> u64 {
        self.tail.load(Acquire)
    }

    fn place(&self, position: u64) -> u64 {
        at(&self.places, position).load(Relaxed)
    }

    fn word(&self, position: u64) -> u64 {
        at(&self.words, position).load(Acquire)
    }

    fn swap_word(&self, position: u64, from: u64, to: u64) -> bool {
        at(&self.words, position).compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    fn flag(&self, seat: u16) -> u32 {
        self.flags[usize::from(seat)].load(Relaxed)
    }

    fn swap_flag(&self, seat: u16, from: u32, to: u32) -> bool {
        self.flags[usize::from(seat)].compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    fn fence(&self) {
        if self.has_fences {
            fence(SeqCst);
        }
    }
}

impl FrontMemory for Words {
    fn set_tail(&self, tail: u64) {
        self.tail.store(tail, Release);
    }

    fn set_place(&self, position: u64, place: u64) {
        at(&self.places, position).store(place, Relaxed);
    }

    fn set_word(&self, position: u64, word: u64) {
        at(&self.words, position).store(word, Release);
    }

    fn set_flag(&self, seat: u16, flag: u32) {
        self.flags[usize::from(seat)].store(flag, Release);
    }
}

fn place_of(number: u64) -> Place {
    Place { link: 3, slot: number.try_into().unwrap(), length: 5 }
}

/// A link: messages that wait, and whether the front has closed it.
#[derive(Default)]
struct Link {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Link {
    fn look(&self) {
        self.state.lock().unwrap().0 += 1;
        self.changed.notify_one();
    }

    fn close(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_one();
    }

    /// False: it is closed.
    fn receive(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        loop {
            match &mut *state {
                (0, true) => return false,
                (0, false) => state = self.changed.wait(state).unwrap(),
                (waiting, _) => {
                    *waiting -= 1;
                    return true;
                }
            }
        }
    }
}

struct Scene {
    memory: Words,
    links: Vec<Link>,
    taken: Vec<AtomicUsize>,
}

impl Scene {
    fn new(has_fences: bool) -> Arc<Self> {
        Arc::new(Self {
            memory: Words::new(has_fences),
            links: (0..SEATS).map(|_| Link::default()).collect(),
            taken: (0..4).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// A worker until its link is closed.
    fn work(&self, seat: u16) {
        let mut taker = Taker::new(seat);
        loop {
            match taker.step(&self.memory) {
                Step::Take(number, place) => {
                    assert_eq!(place, place_of(number), "another request's place");
                    at(&self.taken, number).fetch_add(1, Relaxed);
                }
                Step::Wait if self.links[usize::from(seat)].receive() => taker.asked(),
                Step::Wait => return,
            }
        }
    }

    fn wake_one(&self) {
        let sleeper = (0..2).find(|seat| wake(&self.memory, *seat));
        if let Some(seat) = sleeper {
            self.links[usize::from(seat)].look();
        }
    }

    fn times(&self, number: u64) -> usize {
        at(&self.taken, number).load(Relaxed)
    }
}

fn post_two(has_fences: bool, workers: u16) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let scene = Scene::new(has_fences);
        let working: Vec<_> = (0..workers)
            .map(|seat| {
                let scene = Arc::clone(&scene);
                thread::spawn(move || scene.work(seat))
            })
            .collect();
        for number in FIRST..FIRST + 2 {
            post(&scene.memory, number, place_of(number));
            scene.wake_one();
        }
        scene.links.iter().for_each(Link::close);
        working.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!([FIRST, FIRST + 1].map(|number| scene.times(number)), [1, 1]);
    });
}

#[test]
fn each_request_is_taken_once_and_none_is_left() {
    post_two(true, 1);
}

/// Shows that the model detects a lost wake-up.
#[test]
#[should_panic(expected = "left == right")]
fn without_fences_the_model_finds_the_fault() {
    post_two(false, 1);
}

#[test]
fn two_workers_take_a_request_once_or_the_front_takes_it_back() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let scene = Scene::new(true);
        let working: Vec<_> = (0..2)
            .map(|seat| {
                let scene = Arc::clone(&scene);
                thread::spawn(move || scene.work(seat))
            })
            .collect();
        post(&scene.memory, FIRST, place_of(FIRST));
        scene.wake_one();
        let is_revoked = revoke(&scene.memory, FIRST);
        scene.links.iter().for_each(Link::close);
        working.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(scene.times(FIRST) + usize::from(is_revoked), 1);
    });
}
