//! The counters that the page of the demonstration shows.

use crate::cpu::{self, CpuTime};
use crate::processes::{held, memory_kb, temporary_bytes};
use anyhow::Result;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of small pages that count: about ten seconds of them.
const KEPT: usize = 400;

/// Times of the last small pages; `None` for a page that did not come.
#[derive(Debug, Default)]
pub(crate) struct PageTimes(VecDeque<Option<Duration>>);

impl PageTimes {
    pub(crate) fn note(&mut self, time: Option<Duration>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(time);
    }

    /// The time in ms within which this share of the pages came; `None` if fewer came.
    fn percentile(&self, share: f64) -> Option<f64> {
        let mut times: Vec<Duration> = self.0.iter().flatten().copied().collect();
        times.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "at most KEPT"
        )]
        let at = (self.0.len() as f64 * share) as usize;
        times.get(at).map(|time| time.as_secs_f64() * 1e3)
    }
}

/// All that the page shows.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    pub(crate) readers: usize,
    pub(crate) servers: Vec<Counters>,
}

/// The state of one server.
#[derive(Debug, Serialize)]
pub(crate) struct Counters {
    name: String,
    /// Processor time of all processes since the number of readers changed.
    cpu_seconds: f64,
    memory_mb: f64,
    /// Temporary files, such as responses that nginx keeps for slow clients.
    disk_mb: f64,
    /// Processes that wait until a peer takes bytes.
    held: Option<usize>,
    /// Time of a small page: its median and its 99th percentile.
    page_ms: Option<f64>,
    slow_page_ms: Option<f64>,
    failure: Option<String>,
}

impl Counters {
    pub(crate) fn of(
        name: &str,
        roots: &[u32],
        since: CpuTime,
        times: &PageTimes,
        failure: Option<String>,
    ) -> Result<Self> {
        let (used, processes) = (cpu::sample(roots)? - since, cpu::tree(roots)?);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 KB")]
        let (memory, disk) = (memory_kb(&processes) as f64, temporary_bytes(&processes) as f64);
        Ok(Self {
            name: name.to_owned(),
            cpu_seconds: (used.front + used.worker).as_secs_f64(),
            memory_mb: memory / 1024.0,
            disk_mb: disk / (1024.0 * 1024.0),
            held: held(&processes),
            page_ms: times.percentile(0.5),
            slow_page_ms: times.percentile(0.99),
            failure,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_pages_that_did_not_come_as_the_slowest() {
        let mut times = PageTimes::default();
        assert_eq!(times.percentile(0.5), None);
        (1..=98).for_each(|ms| times.note(Some(Duration::from_millis(ms))));
        times.note(None);
        times.note(None);
        assert_eq!(times.percentile(0.5), Some(51.0));
        assert_eq!(times.percentile(0.99), None);
    }

    #[test]
    fn old_pages_do_not_count() {
        let mut times = PageTimes::default();
        (0..KEPT).for_each(|_| times.note(None));
        (0..KEPT).for_each(|_| times.note(Some(Duration::from_millis(2))));
        assert_eq!(times.percentile(0.99), Some(2.0));
    }
}
