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

/// The level of an error's lines in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Clients get an error.
    Error,
    /// Clients do not notice.
    Info,
}

/// Returns true for the first such error, which the caller then logs at this level; the lines with
/// numbers have the same level. `line` names the error and its subject without details of the
/// request, so the number of different lines stays small. Must be called on an event loop.
pub fn is_first(weight: Weight, line: &str) -> bool {
    let is_first = RECENT.with_borrow_mut(|recent| match recent.get_mut(line) {
        Some(count) => {
            *count += 1;
            false
        }
        None => recent.insert(line.to_owned(), 0).is_none(),
    });
    if is_first {
        drop(tokio::task::spawn_local(report(weight, line.to_owned())));
    }
    is_first
}

/// Logs the number of further errors every [`PAUSE`], until a pause passes without one.
async fn report(weight: Weight, line: String) {
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
        let seconds = PAUSE.as_secs();
        match weight {
            Weight::Error => {
                tracing::error!(requests = count, "again in the last {seconds} s: {line}");
            }
            Weight::Info => {
                tracing::info!(requests = count, "again in the last {seconds} s: {line}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_one_line_and_the_next_error_after_it_another() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let first = |line| (0..1000).filter(|_| is_first(Weight::Error, line)).count();
                assert_eq!((first("down"), first("another")), (1, 1));
                tokio::time::sleep(PAUSE + PAUSE / 2).await;
                assert!(!is_first(Weight::Error, "down"), "it was logged with its number");
                tokio::time::sleep(PAUSE * 3).await;
                assert!(is_first(Weight::Error, "down"));
            })
            .await;
    }

    /// Counts the lines of each level.
    #[derive(Debug, Default)]
    struct Levels(Arc<Mutex<Vec<Level>>>);

    impl Subscriber for Levels {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            if event.metadata().target() == module_path!().trim_end_matches("::tests") {
                self.0.lock().unwrap().push(*event.metadata().level());
            }
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn the_line_with_the_number_is_of_the_level_of_the_first_one() {
        let levels = Levels::default();
        let seen = Arc::clone(&levels.0);
        let _default = tracing::subscriber::set_default(levels);
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                for (weight, level) in [(Weight::Info, Level::INFO), (Weight::Error, Level::ERROR)]
                {
                    let line = format!("{weight:?}");
                    assert!(is_first(weight, &line) && !is_first(weight, &line));
                    tokio::time::sleep(PAUSE + PAUSE / 2).await;
                    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [level]);
                }
            })
            .await;
    }
}
