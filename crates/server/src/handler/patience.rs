//! How long a worker is kept waiting for a client that may be about to take more, learned on the running system.

use std::cell::Cell;
use std::time::Duration;

/// What spooling costs a fast client is paid twice: the body is written to a file and sent from it. 50 ms is a round trip to
/// another continent.
const LONGEST: Duration = Duration::from_millis(50);

/// Slow clients in a row bring the wait down to this. 1,000 of them then delay other requests by 0.25 s behind four
/// workers, where 50 ms each took 12.5 s.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long the next response may keep its worker waiting. Halved by each response that waited in vain, doubled by each
/// whose client took it in time.
#[derive(Debug)]
pub(crate) struct Patience(Cell<Duration>);

impl Default for Patience {
    fn default() -> Self {
        Self(Cell::new(LONGEST))
    }
}

impl Patience {
    /// For one response, from when its send queue is long for the first time.
    pub(super) fn limit(&self) -> Duration {
        self.0.get()
    }

    /// The client took the response in time.
    pub(super) fn paid_off(&self) {
        self.0.set((self.0.get() * 2).min(LONGEST));
    }

    /// The limit was reached.
    pub(super) fn ran_out(&self) {
        self.0.set((self.0.get() / 2).max(SHORTEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_clients_shorten_it_and_fast_ones_restore_it() {
        let patience = Patience::default();
        let waited: Duration = (0..1000)
            .map(|_| {
                let waited = patience.limit();
                patience.ran_out();
                waited
            })
            .sum();
        assert!(waited < Duration::from_millis(1100), "{waited:?}");
        assert_eq!(patience.limit(), SHORTEST);
        (0..6).for_each(|_| patience.paid_off());
        assert_eq!(patience.limit(), LONGEST);
    }
}
