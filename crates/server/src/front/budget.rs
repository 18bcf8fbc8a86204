//! How the descriptors that this process may have (`RLIMIT_NOFILE`) are divided.

/// Event loops, logs, standard streams, sockets to the supervisor, temporary files of request bodies.
const RESERVED: usize = 128;

/// The least that each part gets, whatever the limit: a front must be able to answer something.
const LEAST: usize = 16;

/// Descriptors for each purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Clients' connections, per event loop.
    pub(super) connections: usize,
    /// Static files that are kept open, per event loop.
    pub(super) static_files: usize,
}

impl Budget {
    /// Divides `limit` descriptors among `loops` event loops with `listeners` listeners each, where up to `workers` workers have
    /// a link and a guard socket on every loop.
    ///
    /// Of what is left a half is for connections, a quarter for static files and a quarter for files that workers hand over.
    pub(super) fn new(limit: usize, loops: usize, listeners: usize, workers: usize) -> Self {
        let fixed = RESERVED + loops * (listeners + 2 * workers);
        let rest = limit.saturating_sub(fixed) / loops.max(1);
        Self { connections: (rest / 2).max(LEAST), static_files: (rest / 4).max(LEAST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_for_workers_is_shared() {
        let budget = Budget::new(4096, 2, 1, 32);
        assert_eq!(budget, Budget { connections: 959, static_files: 479 });
        assert_eq!(Budget::new(64, 2, 1, 32).connections, LEAST);
        let budget = Budget::new(1 << 20, 64, 3, 256);
        assert!(64 * (budget.connections + budget.static_files) < 1 << 20);
    }
}
