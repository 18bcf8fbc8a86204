//! Every interleaving of a worker that lends chunks and a front that returns them: no chunk is
//! written while it is being read, and the front reads exactly the lent bytes. The bookkeeping is
//! the worker's real code; the counters replace the shared ones, with the orderings of `shared.rs`.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]
#![allow(unsafe_code, reason = "loom watches unguarded memory")]

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, mpsc};
use loom::thread;
use sendoff_fastcgi::region::{ChunkLender, Layout};

const CHUNKS: u32 = 2;
const ATTEMPTS: u32 = 4;

struct Memory {
    returns: Vec<AtomicU32>,
    chunks: Vec<UnsafeCell<u32>>,
}

// SAFETY: loom checks this here.
unsafe impl Sync for Memory {}
// SAFETY: loom checks this here.
unsafe impl Send for Memory {}

/// Lends a chunk per attempt if one is free. Returns the number of lent chunks.
fn worker(memory: &Memory, pieces: &mpsc::Sender<Option<(u32, u32)>>) -> u32 {
    let mut lender = ChunkLender::new(Layout::new(4096, CHUNKS).unwrap());
    let mut lent = 0;
    for attempt in 0..ATTEMPTS {
        if let Some(chunk) = lender.lend(|chunk| memory.returns[chunk as usize].load(Acquire)) {
            // SAFETY: loom panics if the front reads at this moment.
            memory.chunks[chunk as usize].with_mut(|bytes| unsafe { *bytes = attempt });
            pieces.send(Some((chunk, attempt))).unwrap();
            lent += 1;
        }
        thread::yield_now();
    }
    lent
}

/// Reads each piece and returns its chunk.
fn front(memory: &Memory, pieces: &mpsc::Receiver<Option<(u32, u32)>>, give_back: Ordering) {
    let mut lent = [0; CHUNKS as usize];
    while let Some((chunk, expected)) = pieces.recv().unwrap() {
        let chunk = chunk as usize;
        // SAFETY: loom panics if the worker writes at this moment.
        let found = memory.chunks[chunk].with(|bytes| unsafe { *bytes });
        assert_eq!(found, expected, "another piece's bytes");
        lent[chunk] += 1;
        memory.returns[chunk].store(lent[chunk], give_back);
    }
}

fn model(give_back: Ordering) {
    loom::model(move || {
        let memory = Arc::new(Memory {
            returns: (0..CHUNKS).map(|_| AtomicU32::new(0)).collect(),
            chunks: (0..CHUNKS).map(|_| UnsafeCell::new(u32::MAX)).collect(),
        });
        let (sender, receiver) = mpsc::channel();
        let at_work = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                assert!(worker(&memory, &sender) >= CHUNKS, "free chunks were not found");
                sender.send(None).unwrap();
            })
        };
        front(&memory, &receiver, give_back);
        at_work.join().unwrap();
    });
}

#[test]
fn a_chunk_is_not_written_while_it_is_read() {
    model(Release);
}

/// Shows that the model detects a wrong ordering.
#[test]
#[should_panic(expected = "Causality violation")]
fn without_release_the_model_finds_the_fault() {
    model(Relaxed);
}
