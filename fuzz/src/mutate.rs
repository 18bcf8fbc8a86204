//! Makes inputs from valid ones.

use fastrand::Rng;

/// Identifies an input of a run: the same case gives the same input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the input, from 0.
    pub number: u64,
}

/// Maximum number of changes to one input.
const MAX_CHANGES: usize = 8;

/// Maximum length of an input in bytes: small inputs find as much, and more of them can be tried.
const MAX_LEN: usize = 4096;

/// The input of a case: a valid one, changed in up to [`MAX_CHANGES`] places.
pub(crate) fn input(seeds: &[Vec<u8>], words: &[&[u8]], case: Case) -> Vec<u8> {
    let mut rng = Rng::with_seed(case.seed ^ case.number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut input = seeds[rng.usize(..seeds.len())].clone();
    for _ in 0..rng.usize(..=MAX_CHANGES) {
        change(&mut input, seeds, words, &mut rng);
    }
    input.truncate(MAX_LEN);
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&[u8]], rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    let end = at + rng.usize(..=input.len() - at).min(rng.usize(..64));
    let insert = |input: &mut Vec<u8>, bytes: &[u8]| drop(input.splice(at..at, bytes.to_vec()));
    match rng.u8(..8) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = if rng.bool() { rng.u8(..) } else { *byte ^ (1 << rng.u8(..8)) };
            }
        }
        2 => insert(input, &[rng.u8(..)]),
        3 | 4 => insert(input, words[rng.usize(..words.len())]),
        5 => drop(input.drain(at..end)),
        6 => {
            let again = input[at..end].to_vec();
            insert(input, &again);
        }
        _ => {
            let other = &seeds[rng.usize(..seeds.len())];
            let from = rng.usize(..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}
