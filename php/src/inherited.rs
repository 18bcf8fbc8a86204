//! The options of a master, which the supervisor sets.

use std::os::fd::{OwnedFd, RawFd};

use clap::Parser;
use sendoff_sys::process::take_inherited;

use crate::failure::Failure;

/// Keeps PHP workers running and gives their sockets to the front. Its configuration is in an
/// inherited file.
#[derive(Debug, Parser)]
#[command(name = "sendoff-php", version)]
pub(crate) struct Inherited {
    /// The configuration (inherited descriptor).
    #[arg(long, value_name = "N")]
    pub(crate) config_fd: RawFd,
    /// The number of the pool in the configuration.
    #[arg(long, value_name = "N")]
    pub(crate) pool: usize,
    /// The socket on which the front receives workers (inherited descriptor).
    #[arg(long, value_name = "N")]
    pub(crate) pool_fd: RawFd,
    /// The file for the messages that PHP prints at its start, which the supervisor reads
    /// (inherited descriptor).
    #[arg(long, value_name = "N")]
    pub(crate) said_fd: Option<RawFd>,
    /// The pipe into which the master writes a byte when PHP has started (inherited descriptor).
    #[arg(long, value_name = "N")]
    pub(crate) started_fd: Option<RawFd>,
    /// The folder of the pool's control group, if it has one (inherited descriptor).
    #[arg(long, value_name = "N")]
    pub(crate) group_fd: Option<RawFd>,
    /// The counters by which fragments are purged (inherited descriptor).
    #[arg(long, value_name = "N")]
    pub(crate) purges_fd: Option<RawFd>,
    /// The folder that the server works in, if the program was started in another one (inherited
    /// descriptor).
    #[arg(long, value_name = "N")]
    pub(crate) folder_fd: Option<RawFd>,
}

/// Takes a descriptor that an option names.
pub(crate) fn take(option: &str, number: RawFd) -> Result<OwnedFd, Failure> {
    take_inherited(number).map_err(|error| Failure::Internal(format!("{option} {number}: {error}")))
}
