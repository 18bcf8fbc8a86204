//! The `sendoff` command.

mod account;
mod check;
mod children;
mod configure;
mod explain;
mod failure;
mod front;
mod listen;
mod log;
mod machine;
mod options;
mod source;
mod supervisor;

use std::process::ExitCode;

use clap::Parser;

use failure::Failure;
use options::{Command, Options};
use source::Source;

fn main() -> ExitCode {
    let options = Options::try_parse().unwrap_or_else(|error| options::refuse(&error));
    let result = match options.command {
        Command::Serve(serve) if serve.print_config => check::print_config(&serve),
        Command::Serve(serve) => supervisor::run(&Source::CommandLine(serve)),
        Command::Run(run) => supervisor::run(&Source::File(run.config)),
        Command::Check(check) => check::run(&check),
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
