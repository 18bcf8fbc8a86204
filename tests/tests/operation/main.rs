//! The server under an operator: commands, configuration, signals, reload, upgrade, limits, faults.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod allocations;
mod changes_under_load;
mod chaos;
mod clock_jumps;
mod config_file;
mod control;
mod control_groups;
mod costs;
mod descriptors;
mod failures;
mod front;
mod idle;
mod late_purges;
mod lifecycle;
mod limits;
mod messages;
mod metrics;
mod options;
mod release;
mod reload;
mod signals;
mod storms;
mod systemd;
mod traces;
mod upgrade;
mod workers;
