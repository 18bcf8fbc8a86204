//! `SENDOFF_ACCEPT`: the parameter that announces what the front accepts in answer to a request (`docs/handover.md` §1).

use sendoff_config::Delivery;
use sendoff_fastcgi::direct::ACCEPT_DIRECT;
use sendoff_fastcgi::handover::{
    ACCEPT_EXPLAIN, ACCEPT_FILE, ACCEPT_NAMED, ACCEPT_REGION, ACCEPT_RELAY,
};
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;

/// The words of `SENDOFF_ACCEPT` in a request to a worker. A request that is explained has none that would let bytes go around
/// the table; where descriptors are scarce it has none that would bring files.
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

/// A value for `SENDOFF_ACCEPT`.
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
