//! The `sendoff` command.

mod account;
mod children;
mod configure;
mod explain;
mod failure;
mod front;
mod kept;
mod listen;
mod log;
mod options;
mod orders;
mod signals;
mod supervisor;

use std::process::ExitCode;

use clap::Parser;

use failure::Failure;
use options::{Command, Options};

fn main() -> ExitCode {
    let options = Options::try_parse().unwrap_or_else(|error| options::refuse(&error));
    let result = match options.command {
        Command::Serve(serve) => supervisor::run(*serve),
        Command::Explain(explain) => explain::run(&explain),
        Command::Front(inherited) => front::run(&inherited),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Said(_)) {
                log::say(&failure);
            }
            failure.exit_code()
        }
    }
}
