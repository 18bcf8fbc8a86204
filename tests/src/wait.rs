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

/// Checks until `condition` holds; false if it does not hold within `limit`. It checks the less
/// often the longer it has waited, every 1 to 10 ms: the processors are for the servers.
pub fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        let waited = start.elapsed();
        if waited > limit {
            return false;
        }
        let pause = (waited / 16).clamp(Duration::from_millis(1), Duration::from_millis(10));
        std::thread::sleep(pause);
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
