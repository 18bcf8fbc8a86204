//! The `sendoff` command.

mod account;
mod acme;
mod check;
mod children;
mod configure;
mod convert;
mod explain;
mod failure;
mod fragment_purges;
mod front;
mod generate;
mod groups;
mod htaccess;
mod listen;
mod log;
mod machine;
mod options;
mod orders;
mod page_folder;
mod php_build;
mod php_host;
mod php_start;
mod program;
mod refusal;
mod rights;
mod signals;
mod source;
mod supervised;
mod supervisor;
mod systemd;
mod unready;
mod upgrade;

use std::process::ExitCode;

use clap::Parser;

use failure::Failure;
use options::{Command, Options, Stop};
use source::Source;

#[global_allocator]
static ALLOCATOR: sendoff_sys::blocks::Allocator = sendoff_sys::blocks::Allocator;

fn main() -> ExitCode {
    let options = Options::try_parse().unwrap_or_else(|error| refusal::refuse(&error));
    // The call fails only for signals that do not exist.
    let _ = sendoff_sys::process::survive_large_files();
    let result = match options.command {
        Command::Serve(serve) if serve.print_config => check::print_config(&serve),
        Command::Serve(serve) => supervisor::run(Source::CommandLine(serve), options.take_over_fd),
        Command::Run(run) => {
            supervisor::run(Source::File(run.file.path().to_owned()), options.take_over_fd)
        }
        Command::Check(check) => check::run(&check),
        Command::Convert(convert) => convert::run(&convert),
        Command::Explain(explain) => explain::run(&explain),
        Command::Status(status) if status.watch => {
            sendoff_control::watch(&status.control.selection()).map_err(Failure::from)
        }
        Command::Status(status) => {
            ask(&sendoff_control::Command::Status, &status.control, status.json)
        }
        Command::Purge(options::Purge { control, warm: true, .. }) => {
            ask(&sendoff_control::Command::Warm, &control, false)
        }
        Command::Purge(options::Purge { control, url, all: _, warm: false, json }) => {
            ask(&sendoff_control::Command::Purge(url), &control, json)
        }
        Command::Reload(which) => ask(&sendoff_control::Command::Reload, &which, false),
        Command::Reopen(which) => ask(&sendoff_control::Command::Reopen, &which, false),
        Command::Upgrade(which) => ask(&sendoff_control::Command::Upgrade, &which, false),
        Command::Stop(Stop { control, now: false }) => {
            ask(&sendoff_control::Command::Stop, &control, false)
        }
        Command::Stop(Stop { control, now: true }) => {
            ask(&sendoff_control::Command::StopNow, &control, false)
        }
        Command::Generate(generate) => generate::run(&generate),
        Command::Front(inherited) => front::run(&inherited),
        Command::Acme(inherited) => acme::run(&inherited),
        Command::Program(inherited) => program::run(&inherited),
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

/// Sends a command to a running server, and prints its answer.
fn ask(
    command: &sendoff_control::Command,
    which: &options::Control,
    json: bool,
) -> Result<(), Failure> {
    Ok(sendoff_control::run(command, &which.selection(), json)?)
}
