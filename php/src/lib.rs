//! The master of a pool of PHP workers: starts with PHP in its process, forks workers, replaces
//! them.
//!
//! PHP is in the process in one of two ways. The program `sendoff-php` links libphp and starts it
//! ([`run`]). In a *hosted* pool the process is a stock PHP program, such as php-fpm, which loads
//! this code as a module and gives itself up to it ([`host`]).

mod engine;
mod failure;
mod host;
mod inherited;
mod log;
mod master;
mod pool;
mod prepared;
mod purges;
mod slot;
mod start;
mod watch;

use std::process::ExitCode;

use clap::Parser;

pub use engine::{CStartup, StartArguments};
use failure::Failure;
use inherited::Inherited;
use log::log;
use prepared::Prepared;

/// Runs the master with the options of this process. `start_php` starts PHP in this process; false:
/// PHP has refused, and written the reason to standard error.
pub fn run(start_php: impl FnOnce(&StartArguments) -> bool) -> ExitCode {
    let inherited = Inherited::parse();
    let result = Prepared::new(&inherited).and_then(|prepared| {
        prepared.show_title();
        let started = prepared.arguments()?.is_some_and(|arguments| start_php(&arguments));
        if started { prepared.keep_workers() } else { Err(Failure::Php) }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
