//! The `sendoff` command.

mod account;
mod children;
mod explain;
mod front;
mod options;
mod supervisor;

use std::process::ExitCode;

use clap::Parser;

use options::{Command, Options};

/// Why the server cannot start or go on: one sentence for a person.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// "what: error"
    pub(crate) fn context(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

#[allow(clippy::print_stderr, reason = "the last word before the process exits")]
fn main() -> ExitCode {
    let options = Options::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("SENDOFF_LOG");
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_target(false)
        // They go to standard error too; if that is what is broken, it would panic.
        .log_internal_errors(false)
        .init();
    let result = match options.command {
        Command::Serve(serve) => supervisor::run(&serve),
        Command::Explain(explain) => explain::run(&explain),
        Command::Front { serve, inherited } => front::run(serve, &inherited),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            eprintln!("sendoff: {why}");
            ExitCode::FAILURE
        }
    }
}
