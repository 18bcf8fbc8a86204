//! Spans on their way from the event loops to the collector.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::sampler::Sampler;
use crate::span::Span;

/// The most spans that wait; further ones are dropped and counted. A span takes about 1 KiB.
const MOST_WAITING: usize = 8192;

/// The most spans of a request to the collector. More than these wake the exporter.
const BATCH: usize = 512;

/// Spans that wait for the collector, and the counts of all. All event loops share them; they
/// outlive a reload.
#[derive(Debug, Default)]
pub struct Spans {
    /// Chooses the requests whose spans come here.
    pub sampler: Sampler,
    waiting: Mutex<VecDeque<Span>>,
    full_batch: Notify,
    sent: AtomicU64,
    dropped: AtomicU64,
    rejected: AtomicU64,
}

/// Numbers of spans since the front started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The collector has them.
    pub sent: u64,
    /// They were lost: the collector was away, or too slow.
    pub dropped: u64,
    /// The collector does not want them.
    pub rejected: u64,
}

impl Spans {
    /// Adds the spans of a request. They are dropped if too many wait.
    pub fn push(&self, spans: Vec<Span>) {
        let mut waiting = self.waiting();
        if waiting.len() + spans.len() > MOST_WAITING {
            drop(waiting);
            return self.note_dropped(spans.len());
        }
        waiting.extend(spans);
        if waiting.len() >= BATCH {
            self.full_batch.notify_one();
        }
    }

    /// Takes the oldest spans, as many as one request to the collector may have.
    pub fn take(&self) -> Vec<Span> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(BATCH);
        waiting.drain(..count).collect()
    }

    /// Returns when there are enough spans for a request to the collector.
    pub async fn batch_is_full(&self) {
        while self.waiting().len() < BATCH {
            self.full_batch.notified().await;
        }
    }

    /// Notes that the collector has `accepted` spans, and has rejected others.
    pub fn note_sent(&self, accepted: usize, rejected: usize) {
        self.sent.fetch_add(accepted as u64, Ordering::Relaxed);
        self.rejected.fetch_add(rejected as u64, Ordering::Relaxed);
    }

    /// Notes that spans were lost.
    pub fn note_dropped(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Numbers of spans since the front started.
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { sent: of(&self.sent), dropped: of(&self.dropped), rejected: of(&self.rejected) }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::sample;

    #[test]
    fn the_queue_is_bounded_and_loses_the_newest() {
        let spans = Spans::default();
        spans.push(vec![sample("first")]);
        (0..MOST_WAITING).for_each(|_| spans.push(vec![sample("a"), sample("b")]));
        let lost = MOST_WAITING as u64 + 2;
        assert_eq!(spans.counts(), Counts { dropped: lost, ..Counts::default() });
        let batch = spans.take();
        assert_eq!((batch.len(), &*batch[0].name), (BATCH, "first"));
        spans.note_sent(BATCH - 2, 2);
        assert_eq!((spans.counts().sent, spans.counts().rejected), (510, 2));
    }
}
