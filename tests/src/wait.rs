//! Waits for conditions without an event, such as the end of a process in `/proc`.

use std::time::{Duration, Instant};

/// Scales a time limit of the product for an emulated machine: with `SENDOFF_TEST_EMULATED=N`, N
/// times `bound`.
///
/// # Panics
/// If the variable is not a number.
pub fn emulated(bound: Duration) -> Duration {
    let slower = std::env::var("SENDOFF_TEST_EMULATED").ok();
    bound * slower.map_or(1, |times| times.parse().expect("SENDOFF_TEST_EMULATED is a number"))
}

/// Checks until `condition` holds; false if it does not hold within `limit`.
pub fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Calls `look` until it returns a value.
///
/// # Panics
/// With `what` in its message if there is no value within [`crate::LIMIT`].
pub fn for_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(crate::LIMIT, || {
        found = look();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("waited in vain for {what}"))
}
