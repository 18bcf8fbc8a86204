//! `SENDOFF_ACCEPT`: the parameter that lists the records that the front accepts in answer to a
//! request (`docs/handover.md` §1).

use sendoff_config::Delivery;
use sendoff_fastcgi::direct::ACCEPT_DIRECT;
use sendoff_fastcgi::handover::{
    ACCEPT_EXPLAIN, ACCEPT_FILE, ACCEPT_NAMED, ACCEPT_REGION, ACCEPT_RELAY,
};
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;

/// The words of `SENDOFF_ACCEPT` in a request to a worker. While descriptors are scarce, `relay`
/// takes the place of `file`. `direct`: the client's socket was offered.
pub(crate) fn accepted(delivery: Delivery, explained: bool, direct: bool) -> Vec<u8> {
    let takes_files = delivery.accepts_files() && descriptors::level() < Level::Scarce;
    let files = if takes_files { ACCEPT_FILE } else { ACCEPT_RELAY };
    words([
        Some(files),
        Some(ACCEPT_NAMED),
        direct.then_some(ACCEPT_DIRECT),
        delivery.accepts_regions().then_some(ACCEPT_REGION),
        explained.then_some(ACCEPT_EXPLAIN),
    ])
}

/// Joins words to a value of `SENDOFF_ACCEPT`.
pub(crate) fn words<const N: usize>(words: [Option<&[u8]>; N]) -> Vec<u8> {
    let mut value = Vec::with_capacity(64);
    for word in words.into_iter().flatten() {
        if !value.is_empty() {
            value.push(b' ');
        }
        value.extend_from_slice(word);
    }
    value
}
