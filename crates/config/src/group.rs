//! Limits of all processes of a pool together.

use serde::{Deserialize, Serialize};

/// What all processes of a pool together may use: its workers or processes, its master, and what they have started. The kernel enforces it
/// by a control group of the pool (cgroups(7), version 2).
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
    /// Whether nothing is limited, so that the pool needs no control group.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
