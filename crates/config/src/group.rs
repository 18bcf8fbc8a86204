//! Limits of all processes of a pool together.

use serde::{Deserialize, Serialize};

/// Limits of all processes of a pool together: its workers or processes, its master, and the
/// processes that they started. The kernel enforces them by a control group of the pool
/// (cgroups(7), version 2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupLimits {
    /// Bytes of memory, without swap space (`memory.max`); `None`: any number.
    pub memory: Option<u64>,
    /// Thousandths of a processor (`cpu.max`), not zero; `None`: any number.
    pub cpu: Option<u32>,
    /// Processes and threads (`pids.max`); `None`: any number.
    pub processes: Option<u64>,
}

impl GroupLimits {
    /// True if there is no limit, so that the pool needs no control group.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
