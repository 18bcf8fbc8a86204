//! Waiting for something that announces itself by no event, such as a process leaving `/proc`.

use std::time::{Duration, Instant};

/// Looks until `condition` holds; false if it still does not after `limit`.
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

/// Looks until `look` finds something.
///
/// # Panics
/// With `what` if nothing is found within [`crate::LIMIT`].
pub fn for_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(crate::LIMIT, || {
        found = look();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("waited in vain for {what}"))
}
