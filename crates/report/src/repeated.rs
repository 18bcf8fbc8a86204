//! Errors that many requests have in common, as when no host of an upstream can be reached. The log
//! gets the first one at once, and then their number every [`PAUSE`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

/// The time between two lines of the log about the same error.
const PAUSE: Duration = Duration::from_secs(10);

thread_local! {
    /// Errors of this event loop that were logged in the last [`PAUSE`], with the number of
    /// requests that have met each since.
    static RECENT: RefCell<HashMap<String, u64>> = RefCell::default();
}

/// Returns true for the first such error, which the caller then logs. `line` names the error and
/// its subject without details of the request, so the number of different lines stays small. Must
/// be called on an event loop.
pub fn is_first(line: &str) -> bool {
    let is_first = RECENT.with_borrow_mut(|recent| match recent.get_mut(line) {
        Some(count) => {
            *count += 1;
            false
        }
        None => recent.insert(line.to_owned(), 0).is_none(),
    });
    if is_first {
        drop(tokio::task::spawn_local(report(line.to_owned())));
    }
    is_first
}

/// Logs the number of further errors every [`PAUSE`], until a pause passes without one.
async fn report(line: String) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let count = RECENT.with_borrow_mut(|recent| match recent.get_mut(&line) {
            Some(count @ 1..) => std::mem::take(count),
            _ => {
                recent.remove(&line);
                0
            }
        });
        if count == 0 {
            return;
        }
        tracing::error!(requests = count, "again in the last {} s: {line}", PAUSE.as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_one_line_and_the_next_error_after_it_another() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let first = |line| (0..1000).filter(|_| is_first(line)).count();
                assert_eq!((first("down"), first("another")), (1, 1));
                tokio::time::sleep(PAUSE + PAUSE / 2).await;
                assert!(!is_first("down"), "it was logged with its number");
                tokio::time::sleep(PAUSE * 3).await;
                assert!(is_first("down"));
            })
            .await;
    }
}
