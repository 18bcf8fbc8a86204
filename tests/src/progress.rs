//! Reports the progress of a long test: a line on stderr every ten seconds, also while the test is
//! stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two lines. A shorter test prints none.
const PERIOD: Duration = Duration::from_secs(10);

/// Reports until it is dropped.
pub struct Progress {
    done: Arc<AtomicU64>,
    /// Dropped first, which ends the reporter.
    end: Option<Sender<()>>,
    reporter: Option<JoinHandle<()>>,
}

impl Progress {
    /// Reports as in "1234 of 10000 programs after 70 s". `what` is the noun behind the total;
    /// without a total (0), a line says "`what`: 70 s so far".
    pub fn new(total: u64, what: &str) -> Self {
        Self::every(PERIOD, total, what, |line| eprintln!("{line}"))
    }

    /// The same with a time between two lines, each of which is given to `say`.
    pub fn every(
        period: Duration,
        total: u64,
        what: &str,
        mut say: impl FnMut(String) + Send + 'static,
    ) -> Self {
        let done = Arc::<AtomicU64>::default();
        let (end, ended) = channel();
        let (what, count, since) = (what.to_owned(), Arc::clone(&done), Instant::now());
        let reporter = std::thread::spawn(move || {
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let seconds = since.elapsed().as_secs();
                say(match total {
                    0 => format!("  {what}: {seconds} s so far"),
                    _ => {
                        let count = count.load(Ordering::Relaxed);
                        format!("  {count} of {total} {what} after {seconds} s")
                    }
                });
            }
        });
        Self { done, end: Some(end), reporter: Some(reporter) }
    }

    /// Counts one unit as done.
    pub fn advance(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end = None;
        if let Some(reporter) = self.reporter.take() {
            // The reporter cannot fail.
            let _ = reporter.join();
        }
    }
}
