//! The `sendoff` command.

mod account;
mod children;
mod configure;
mod explain;
mod failure;
mod front;
mod listen;
mod options;
mod supervisor;

use std::process::ExitCode;

use clap::Parser;

use failure::Failure;
use options::{Command, Options};

fn main() -> ExitCode {
    let options = Options::try_parse().unwrap_or_else(|error| options::refuse(&error));
    let result = match options.command {
        Command::Serve(serve) => supervisor::run(serve),
        Command::Explain(explain) => explain::run(&explain),
        Command::Front(inherited) => front::run(&inherited),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Said(_)) {
                say(&failure);
            }
            failure.exit_code()
        }
    }
}

/// Writes events that pass `filter` (`tracing_subscriber::EnvFilter`) to standard error from now on.
fn start_log(filter: &str) {
    let filter = tracing_subscriber::EnvFilter::try_new(filter);
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_target(false)
        // They go to standard error too; if that is what is broken, it would panic.
        .log_internal_errors(false)
        .init();
}

#[allow(clippy::print_stderr, reason = "the last words of a process")]
fn say(sentence: &impl std::fmt::Display) {
    eprintln!("sendoff: {sentence}");
}
