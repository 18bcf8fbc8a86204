//! Both ends of a link against each other, in memory and in virtual time.
//!
//! A seed decides everything: requests and responses, the progress of each end before the other one
//! goes on, the cuts between messages, the delay of the guard's answers, and the moments when files
//! change, clients leave and processes die. For every seed, a response arrives as it was written,
//! each request ends once, and its held value comes back once.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod front;
mod site;
mod wire;
mod worker;

use front::FrontEnd;
use site::{Clients, Dice, Site};
use wire::Pipe;
use worker::WorkerEnd;

/// Faults that may happen in a run.
#[derive(Clone, Copy)]
struct Trouble {
    /// The front gives requests up.
    aborts: bool,
    /// Writers change files.
    writers: bool,
    /// A process dies.
    death: bool,
}

const REQUESTS: u32 = 6;

struct World {
    dice: Dice,
    site: Site,
    clients: Clients,
    to_worker: Pipe,
    to_front: Pipe,
    front: FrontEnd,
    worker: WorkerEnd,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let capacity = [600, 5_000, 70_000, 400_000][dice.below(4)];
        Self {
            dice,
            site: Site::default(),
            clients: Clients::default(),
            to_worker: Pipe::new(capacity),
            to_front: Pipe::new(capacity),
            front: FrontEnd::new(),
            worker: WorkerEnd::new(),
        }
    }

    fn step(&mut self, trouble: Trouble) {
        let Self { dice, site, clients, to_worker, to_front, front, worker } = self;
        site.now += 1;
        match dice.below(12) {
            0 if front.asked < REQUESTS => front.ask(dice, site, clients),
            0 | 1 => front.send(dice, to_worker),
            2 | 3 => front.receive(dice, site, clients, to_front),
            4 => front.resolve_one(site),
            5 | 6 => worker.receive(dice, site, to_worker),
            7 | 8 => worker.send(dice, to_front),
            9 => worker.work(dice, site, clients),
            10 => worker.take_answers(site),
            _ if trouble.writers && dice.below(3) == 0 => worker.change_file(dice, site),
            _ if trouble.aborts && dice.below(20) == 0 => front.give_up(site),
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.front.asked == REQUESTS && self.front.is_idle() && self.worker.is_idle()
    }
}

fn run(seed: u64, trouble: Trouble) {
    let mut world = World::new(seed);
    let death = trouble.death.then(|| world.dice.below(4_000));
    for step in 0.. {
        assert!(step < 2_000_000, "seed {seed}: nothing moves any more");
        if death == Some(step) {
            let World { dice, site, clients, to_worker, to_front, front, .. } = &mut world;
            // Bytes that have been sent arrive before the end does.
            let unread = !to_worker.is_empty();
            while !to_front.is_empty() {
                front.receive(dice, site, clients, to_front);
            }
            front.end(unread, site);
            break;
        }
        world.step(trouble);
        if world.is_done() {
            break;
        }
    }
    let is_done = world.is_done();
    let World { front, site, worker, .. } = &mut world;
    front.check(site);
    if is_done {
        worker.check(site);
    }
}

#[test]
fn responses_arrive_as_they_were_written() {
    let trouble = Trouble { aborts: false, writers: false, death: false };
    (0..50).for_each(|seed| run(seed, trouble));
}

/// `RECALL`, `RELEASE` and their answers cross in every way, and no byte of a writer is sent.
#[test]
fn files_that_change_are_sent_as_they_were() {
    let trouble = Trouble { aborts: false, writers: true, death: false };
    (0..75).for_each(|seed| run(seed, trouble));
}

#[test]
fn aborts_at_any_time_leave_a_link_that_serves_the_next_request() {
    let trouble = Trouble { aborts: true, writers: true, death: false };
    (0..75).for_each(|seed| run(seed, trouble));
}

/// A request is given to another worker only if the application has not begun.
#[test]
fn a_worker_that_dies_at_any_time_takes_one_request_with_it_at_most() {
    let trouble = Trouble { aborts: true, writers: true, death: true };
    (0..125).for_each(|seed| run(seed, trouble));
}

#[test]
#[ignore = "heavy: twenty times as many seeds"]
fn all_troubles_with_many_seeds() {
    for (aborts, writers, death) in [(false, true, false), (true, true, false), (true, true, true)]
    {
        (0..2_500).for_each(|seed| run(seed, Trouble { aborts, writers, death }));
    }
}
