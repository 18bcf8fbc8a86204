//! The limit for a worker's wait for a client that may be about to take more, learned on the
//! running system.

use std::cell::Cell;
use std::time::Duration;

/// Upper bound of the limit. A spooled body is copied twice more, which a fast client does not
/// need. 50 ms is a round trip to another continent.
const LONGEST: Duration = Duration::from_millis(50);

/// Lower bound of the limit, reached after several slow clients in succession. 1,000 of them then
/// delay other requests by 0.25 s with four workers, instead of 12.5 s with 50 ms each.
const SHORTEST: Duration = Duration::from_millis(1);

/// The limit for the next response. Each response whose wait was in vain halves it, each response
/// whose client took it in time doubles it.
#[derive(Debug)]
pub struct Patience(Cell<Duration>);

impl Default for Patience {
    fn default() -> Self {
        Self(Cell::new(LONGEST))
    }
}

impl Patience {
    /// The limit for one response, counted from the moment when its send queue has no room in
    /// memory.
    pub fn limit(&self) -> Duration {
        self.0.get()
    }

    /// The client took the response in time.
    pub fn paid_off(&self) {
        self.0.set((self.0.get() * 2).min(LONGEST));
    }

    /// The limit was reached.
    pub fn ran_out(&self) {
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
