//! What the supervisor has to do with systemd: it says how it is (sd_notify(3)), answers the watchdog, and takes listening sockets
//! that systemd has opened (sd_listen_fds(3)). Without systemd none of this does anything.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::SocketAddrAny;
use rustix::net::sockopt;
use sd_notify::NotifyState;
use sendoff_config::ListenAddress;
use sendoff_sys::process::take_inherited;

use crate::listen::Given;

/// What systemd tells its process by. Children do not get it: they would speak in the supervisor's name.
pub(crate) const VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// Those of them that are about the process that systemd has started, and not about the service.
pub(crate) const OF_PROCESS: [&str; 4] =
    ["WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Says that another process is the service's main process from now on.
pub(crate) fn main_process(pid: u32) {
    notify(&[NotifyState::MainPid(pid)]);
}

/// Says that the server serves, and where.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says that a reload runs; [`ready`] says that it has ended.
pub(crate) fn reloading() {
    let now = NotifyState::monotonic_usec_now().ok();
    notify(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
}

/// Says that the server ends.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("open responses are finished")]);
}

/// Says that the server is alive.
pub(crate) fn alive() {
    notify(&[NotifyState::Watchdog]);
}

/// Says in a sentence how the server is.
pub(crate) fn status(sentence: &str) {
    notify(&[NotifyState::Status(sentence)]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be told how the server is");
    }
}

/// How often systemd wants to hear that the server is alive: in half of the time after which it takes it for dead. `None`: it
/// does not ask.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// Takes over the listening sockets that systemd has opened; call it once. What is no such socket is closed, with a warning.
pub(crate) fn listeners() -> Given {
    let numbers = sd_notify::listen_fds().map(|numbers| numbers.collect::<Vec<_>>());
    let numbers = numbers.unwrap_or_else(|error| {
        tracing::warn!(%error, "the sockets that systemd passes on cannot be used");
        Vec::new()
    });
    let mut given = Given::default();
    for number in numbers {
        let Ok(socket) = take_inherited(number) else { continue };
        match address(&socket) {
            // The file of a UNIX socket is systemd's.
            Some(address) => given.add([address.clone(), address], vec![socket], false),
            None => tracing::warn!("descriptor {number} of systemd is no listening stream socket"),
        }
    }
    given
}

/// `None`: it is no socket that listens for streams.
fn address(socket: &OwnedFd) -> Option<ListenAddress> {
    sockopt::socket_acceptconn(socket).ok().filter(|listens| *listens)?;
    let address: SocketAddrAny = rustix::net::getsockname(socket).ok()?;
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Some(ListenAddress::Tcp(address));
    }
    let address = rustix::net::SocketAddrUnix::try_from(address).ok()?;
    let path = address.path()?;
    Some(ListenAddress::Unix(path.to_str().ok()?.into()))
}
