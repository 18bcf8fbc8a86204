//! The front process: takes over the supervisor's descriptors, gives up privileges, and serves.

use std::fs::File;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::process::{Resource, Rlimit, Signal};
use sendoff_config::{Config, LogTarget};
use sendoff_report::explain::{SECRET_LEN, Secret};
use sendoff_server::front::Front;
use sendoff_sys::process::take_inherited;
use sendoff_sys::title;
use sendoff_tls::Vault;

use crate::failure::Failure;
use crate::options::Inherited;
use crate::orders::Inbox;
use crate::rights;

/// Serves until the supervisor orders the end.
///
/// # Errors
/// The descriptors or the configuration left by the supervisor are unusable, or the system refuses
/// a call.
pub(crate) fn run(inherited: &Inherited) -> Result<(), Failure> {
    let supervisor = rustix::process::getppid();
    rights::hide()?;
    title::set("sendoff: front");
    let config = Config::read(take(inherited.config_fd)?)
        .map_err(|error| Failure::Internal(format!("the configuration cannot be read: {error}")))?;
    crate::log::start(&config.log);
    let vault = Vault::read(take(inherited.keys_fd)?)
        .map_err(|error| Failure::Internal(format!("the credentials cannot be read: {error}")))?;
    let listeners = take_listeners(&inherited.listeners)?;
    let pool_sockets = take_list("--pool-fds", &inherited.pool_fds)?;
    let ready = take(inherited.ready_fd)?;
    let orders = take(inherited.orders_fd)?;
    let explain = inherited.explain_fd.map(take).transpose()?.and_then(read_secret);
    let script_purges = inherited.purges_fd.map(take).transpose()?;
    raise_descriptor_limit();
    // Open logs before the change of user: log folders belong to root.
    let access_logs = config.log_targets().into_iter().map(open_log).collect::<Result<_, _>>()?;
    rights::become_front(&config)?;
    die_with(supervisor)?;
    crate::unready::warn(&config);
    let folders = rights::confine_front(&config);
    let front =
        Front { config, vault, access_logs, explain, listeners, pool_sockets, script_purges };
    let announce = move || {
        // The write fails if an earlier front has already told the supervisor; that is harmless.
        let _ = rustix::io::write(&ready, b"r");
    };
    front.run(announce, || Inbox::new(orders, folders)).map_err(Failure::system("the front stops"))
}

pub(crate) fn take(number: RawFd) -> Result<OwnedFd, Failure> {
    take_inherited(number)
        .map_err(|error| Failure::Internal(format!("inherited descriptor {number}: {error}")))
}

/// Takes the listeners of each event loop, given as numbers of descriptors.
fn take_listeners(numbers: &str) -> Result<Vec<Vec<OwnedFd>>, Failure> {
    let of_loop = |numbers: &str| take_list("--listeners", numbers);
    numbers.split(';').map(of_loop).collect()
}

/// Takes the descriptors in a comma-separated list of numbers.
fn take_list(option: &str, numbers: &str) -> Result<Vec<OwnedFd>, Failure> {
    let numbers = numbers.split(',').filter(|number| !number.is_empty());
    let descriptor = |number: &str| {
        let parsed = number.parse();
        take(parsed.map_err(|_| Failure::Internal(format!("{option}: {number:?}")))?)
    };
    numbers.map(descriptor).collect()
}

/// Reads the secret of `explain`. A restarted front shares the descriptor's file offset with the
/// previous one, so it reads at an explicit position.
fn read_secret(file: OwnedFd) -> Option<Secret> {
    let mut text = [0; SECRET_LEN];
    let read = File::from(file).read_at(&mut text, 0).ok()?;
    Secret::new(&text[..read])
}

fn open_log(target: &LogTarget) -> Result<File, Failure> {
    let name = match target {
        LogTarget::Stdout => "-".to_owned(),
        LogTarget::File(path) => path.display().to_string(),
    };
    crate::log::open_target(target).map_err(Failure::input(format!("the access log {name}")))
}

/// Ends this process when the supervisor dies. Call it after the change of user, which would reset
/// the setting.
pub(crate) fn die_with(supervisor: Option<rustix::process::Pid>) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(std::io::Error::from)
        .map_err(Failure::system("cannot tie its life to the supervisor's"))?;
    if rustix::process::getppid() == supervisor {
        Ok(())
    } else {
        Err(Failure::System("the supervisor is gone".to_owned()))
    }
}

/// Raises the limit of open descriptors to the maximum: each connection and each file being sent
/// needs one.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays where it is");
    }
}
