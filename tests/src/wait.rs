//! Waits for conditions without an event, such as the end of a process in `/proc`.

use std::time::{Duration, Instant};

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
