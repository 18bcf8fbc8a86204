//! `sendoff-php`: starts PHP once and keeps workers forked from it. `sendoff serve` runs it.

mod engine;
mod master;
mod pool;

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use rustix::process::{Gid, Pid, Signal, Uid, getppid, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use sendoff_sys::process::{become_user, exit_now, take_inherited};

use engine::Engine;
use master::{Master, Role, WorkerStart};
use pool::Ends;

/// Folders with `php.ini` and `conf.d`; the first that exists counts.
const INI_DIRS: [&str; 2] = ["/etc/php/8.2/fpm", "/etc/php/8.2/embed"];

/// Keeps PHP workers running and gives their sockets to the front.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// The socket on which the front learns of workers (inherited descriptor).
    #[arg(long, value_name = "N")]
    pool_fd: RawFd,
    /// How many workers to keep.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Links of each worker: event loops of the front.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=pool::MAX_LINKS))]
    links: u8,
    /// Requests after which a worker makes room for a new one; 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_requests: u64,
    /// The user workers run as.
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    /// The group workers run as.
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
    /// What keeps a file as it was read until it is sent: a lease, or a copy.
    #[arg(long, value_enum, default_value_t = Snapshot::Lease)]
    snapshot: Snapshot,
    /// A setting on top of php.ini.
    #[arg(long, value_name = "KEY=VALUE")]
    php_ini: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Snapshot {
    Lease,
    Copy,
}

impl Options {
    fn account(&self) -> Option<(Uid, Gid)> {
        Some((Uid::from_raw(self.uid?), Gid::from_raw(self.gid?)))
    }
}

/// A line for the server's log.
fn log(line: impl std::fmt::Display) {
    use std::io::Write as _;
    // Nothing can be done about a log that cannot be written.
    let _ = writeln!(io::stderr(), "sendoff-php: {line}");
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log(why);
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|e| format!("cannot tie its life to the supervisor's: {e}"))?;
    if getppid() != parent {
        return Err("the supervisor is gone".into());
    }
    let pool = take_inherited(options.pool_fd)
        .map_err(|e| format!("--pool-fd {}: {e}", options.pool_fd))?;
    let engine = Engine::start(&ini_dir(), &options.php_ini).ok_or("PHP does not start")?;
    let role = Master::new(options, pool)
        .and_then(Master::run)
        .map_err(|e| format!("cannot keep workers: {e}"))?;
    match role {
        Role::Master => Ok(()),
        Role::Worker(start) => serve(options, &engine, start),
    }
}

/// The life of a worker.
fn serve(options: &Options, engine: &Engine, start: WorkerStart) -> ! {
    if let Err(e) = prepare(options, start.master) {
        log(format_args!("cannot prepare a worker: {e}"));
        exit_now(1);
    }
    let Ends { links, guard } = start.ends;
    // Without leases the guard has no use, but the front takes its end for the worker's.
    let (guard, _kept) = match options.snapshot {
        Snapshot::Lease => (Some(guard), None),
        Snapshot::Copy => (None, Some(guard)),
    };
    exit_now(engine.serve(links, guard, start.busy.as_fd(), options.max_requests))
}

/// Gives up privileges, and ties the worker's life to its master's. In this order: a change of user unties it.
fn prepare(options: &Options, master: Pid) -> io::Result<()> {
    if let Some((uid, gid)) = options.account() {
        become_user(uid, gid, CapabilitySet::LEASE)?;
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(master) {
        return Err(io::Error::other("the master is gone"));
    }
    Ok(())
}

fn ini_dir() -> PathBuf {
    let found = INI_DIRS.iter().find(|dir| Path::new(dir).is_dir());
    PathBuf::from(found.unwrap_or(&INI_DIRS[0]))
}
