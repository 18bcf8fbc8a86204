//! The queue of requests that wait for a worker or a connection.
//!
//! A request can leave the queue from any position at the cost of a look-up, so a request whose
//! client has gone leaves at once and is not counted any longer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::UpstreamError;

/// A free worker or connection goes to a request of the same event loop, unless a request of
/// another loop has waited this much longer: waking another loop costs about 25 µs.
pub const LOCALITY: Duration = Duration::from_millis(1);

/// The limits of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests that may wait, on all event loops together; the next one is refused.
    pub requests: usize,
    /// The longest wait of a request.
    pub wait: Duration,
}

impl Default for QueueLimits {
    /// 4096 requests, 60 s each.
    fn default() -> Self {
        Self { requests: 4096, wait: Duration::from_secs(60) }
    }
}

impl QueueLimits {
    /// Counts a request that begins to wait, among all that wait.
    ///
    /// # Errors
    /// As many requests wait as may.
    pub fn enter<'r>(&self, waiting: &'r AtomicUsize) -> Result<WaitingGuard<'r>, UpstreamError> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let guard = WaitingGuard(waiting);
        if before < self.requests { Ok(guard) } else { Err(UpstreamError::queue_full(self)) }
    }
}

/// Counts a request as waiting until dropped.
#[derive(Debug)]
pub struct WaitingGuard<'r>(&'r AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The waiting requests, oldest first; `L` identifies an event loop.
#[derive(Debug)]
pub struct WaitQueue<L, W> {
    /// One line for each event loop. Numbers increase, so each line is in the order of arrival.
    lines: Vec<(L, BTreeMap<u64, QueueEntry<W>>)>,
    last: u64,
    len: usize,
}

#[derive(Debug)]
struct QueueEntry<W> {
    since: Instant,
    waiter: W,
}

/// A request's position in the queue.
#[derive(Debug, Clone, Copy)]
pub struct Number<L>(L, u64);

impl<L, W> Default for WaitQueue<L, W> {
    fn default() -> Self {
        Self { lines: Vec::new(), last: 0, len: 0 }
    }
}

impl<L: Copy + Eq, W> WaitQueue<L, W> {
    /// The number of waiting requests.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time since which the oldest request has waited.
    pub fn oldest(&self) -> Option<Instant> {
        let heads = self.lines.iter().filter_map(|(_, line)| line.first_key_value());
        heads.map(|(_, waiting)| waiting.since).min()
    }

    /// Adds a request of an event loop, which has waited since the given time. Returns the number
    /// by which it can be removed.
    pub fn push(&mut self, event_loop: L, since: Instant, waiter: W) -> Number<L> {
        self.last += 1;
        self.len += 1;
        let at = self.lines.iter().position(|(of, _)| *of == event_loop);
        let at = at.unwrap_or_else(|| {
            self.lines.push((event_loop, BTreeMap::new()));
            self.lines.len() - 1
        });
        self.lines[at].1.insert(self.last, QueueEntry { since, waiter });
        Number(event_loop, self.last)
    }

    /// Removes a request; `None` if it has left before.
    pub fn remove(&mut self, Number(event_loop, number): Number<L>) -> Option<W> {
        let (_, line) = self.lines.iter_mut().find(|(of, _)| *of == event_loop)?;
        let waiting = line.remove(&number)?;
        self.len -= 1;
        Some(waiting.waiter)
    }

    /// Removes all requests.
    pub fn take(&mut self) -> Vec<W> {
        self.len = 0;
        let waiting = self.lines.drain(..).flat_map(|(_, line)| line.into_values());
        waiting.map(|waiting| waiting.waiter).collect()
    }

    /// Removes the request that gets a worker or connection of this event loop: the oldest one,
    /// with an advantage of [`LOCALITY`] for requests of the same loop.
    pub fn pop(&mut self, event_loop: L) -> Option<(L, W)> {
        let lines = self.lines.iter_mut().filter(|(_, line)| !line.is_empty());
        let (of, line) = lines.min_by_key(|(of, line)| {
            let since = line.first_key_value().map(|(_, head)| head.since);
            let ahead = if *of == event_loop { LOCALITY } else { Duration::ZERO };
            since.map(|since| since.checked_sub(ahead).unwrap_or(since))
        })?;
        let (_, QueueEntry { waiter, .. }) = line.pop_first()?;
        self.len -= 1;
        Some((*of, waiter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_unless_one_of_the_same_loop_has_waited_about_as_long() {
        let now = Instant::now();
        for (later, first) in [(LOCALITY / 2, 'b'), (LOCALITY * 2, 'a')] {
            let mut queue = WaitQueue::default();
            queue.push(0, now, 'a');
            queue.push(1, now + later, 'b');
            assert_eq!(queue.oldest(), Some(now));
            assert_eq!(queue.pop(1).unwrap().1, first);
        }
    }

    #[test]
    fn requests_leave_from_anywhere_and_once() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        let numbers: Vec<_> = (0..6).map(|n| queue.push(n % 2, now, n)).collect();
        assert_eq!(queue.remove(numbers[2]), Some(2));
        assert_eq!(queue.remove(numbers[2]), None);
        assert_eq!(queue.len(), 5);
        let left: Vec<_> = std::iter::from_fn(|| queue.pop(0)).collect();
        assert_eq!(left, [(0, 0), (0, 4), (1, 1), (1, 3), (1, 5)]);
        assert!(queue.is_empty() && queue.oldest().is_none());
        assert_eq!(queue.remove(numbers[5]), None);
    }

    /// The cost of leaving must not depend on the length of the queue: 4,096 requests leave from
    /// the middle of 4,096, and of 16 times as many, in about the same time each.
    #[test]
    fn a_full_queue_is_left_as_quickly_as_a_short_one() {
        let time = |others: usize| {
            let mut queue = WaitQueue::default();
            let now = Instant::now();
            let all: Vec<_> = (0..others + 4096).map(|n| queue.push(0, now, n)).collect();
            let begun = std::time::Instant::now();
            for &number in &all[others / 2..others / 2 + 4096] {
                queue.remove(number);
            }
            assert_eq!(queue.len(), others);
            begun.elapsed()
        };
        // The best of several runs: the machine may be busy.
        let best = |others| (0..20).map(|_| time(others)).min().unwrap();
        let (few, many) = (best(0), best(15 * 4096));
        assert!(many < few * 20 + Duration::from_millis(5), "{few:?}, {many:?}");
    }
}
