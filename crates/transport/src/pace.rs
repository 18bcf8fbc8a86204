//! The lowest rate at which a client must make progress.

use std::time::Duration;

use tokio::time::Instant;

/// The slowest that a client may make progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowestPace {
    /// The longest time without a byte.
    pub pause: Duration,
    /// The lowest rate in bytes per second; 0: no lowest rate.
    pub rate: u64,
}

/// Time that a client has left. It begins with a limit, and each byte that the client sends or
/// takes adds time, up to the limit. A client that is fast enough on average may thus pause for as
/// long as the limit, and a client that sends a byte now and then is too slow.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    deadline: Instant,
}

impl Pace {
    /// Starts with `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit }
    }

    /// Notes that the client has sent or taken `bytes`. Each adds the time that it takes at the
    /// lowest rate; at rate 0 any progress restores the whole pause.
    pub fn note(&mut self, bytes: u64, slowest: SlowestPace) {
        let SlowestPace { pause, rate } = slowest;
        let nanos = u128::from(bytes) * 1_000_000_000;
        let bought = nanos.checked_div(u128::from(rate)).map_or(Duration::MAX, |nanos| {
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        });
        let now = Instant::now();
        self.deadline = now + self.left().saturating_add(bought).min(pause);
    }

    /// The time that the client has left. Pass it to [`new`](Self::new) after a wait for another
    /// party that does not count.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The time at which the client counts as too slow.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Time, at most an hour, until a client fails that makes progress by `bytes` once per
    /// interval.
    async fn lasts(bytes: u64, interval: Duration, rate: u64) -> Duration {
        let (began, mut pace) = (Instant::now(), Pace::new(LIMIT));
        while began.elapsed() < Duration::from_secs(3600) {
            let next = Instant::now() + interval;
            if pace.deadline() < next {
                return pace.deadline() - began;
            }
            tokio::time::sleep_until(next).await;
            pace.note(bytes, SlowestPace { pause: LIMIT, rate });
        }
        began.elapsed()
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_client_at_the_rate_goes_on_and_a_slower_one_runs_out_of_time() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        assert!(lasts(100, second, 100).await >= hour);
        assert!(lasts(5000, 50 * second, 100).await >= hour, "pauses within the limit");
        let slow = lasts(10, second, 100).await;
        assert!((LIMIT..2 * LIMIT).contains(&slow), "{slow:?}");
        assert!(lasts(1, 59 * second, 0).await >= hour, "without a rate only pauses count");
        assert_eq!(
            lasts(u64::MAX, 61 * second, 1).await,
            LIMIT,
            "no byte buys more than the limit"
        );
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn what_a_client_was_faster_before_counts_for_the_limit_alone() {
        let mut pace = Pace::new(LIMIT);
        pace.note(u64::MAX, SlowestPace { pause: LIMIT, rate: 1 });
        assert_eq!(pace.deadline() - Instant::now(), LIMIT);
    }
}
