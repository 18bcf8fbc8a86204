//! The supervisor's interface to systemd: it reports its state (sd_notify(3)), answers the
//! watchdog, and takes listening sockets that systemd has opened (sd_listen_fds(3)). Without
//! systemd all of this does nothing.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::SocketAddrAny;
use rustix::net::sockopt;
use sd_notify::NotifyState;
use sendoff_config::ListenAddress;
use sendoff_sys::process::take_inherited;

use crate::listen::Given;

/// Environment variables through which systemd addresses the supervisor. Children do not inherit
/// them: they would speak in the supervisor's name.
pub(crate) const VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// The variables that concern the process that systemd has started, and not the service.
pub(crate) const OF_PROCESS: [&str; 4] =
    ["WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Reports that another process is now the service's main process.
pub(crate) fn main_process(pid: u32) {
    notify(&[NotifyState::MainPid(pid)]);
}

/// Reports that the server serves, with its addresses.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that a reload is running; [`ready`] reports its end.
pub(crate) fn reloading() {
    let now = NotifyState::monotonic_usec_now().ok();
    notify(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
}

/// Reports that the server is ending.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("open responses are finished")]);
}

/// Reports that the server is alive.
pub(crate) fn alive() {
    notify(&[NotifyState::Watchdog]);
}

/// Reports the server's state in a sentence.
pub(crate) fn status(sentence: &str) {
    notify(&[NotifyState::Status(sentence)]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be told how the server is");
    }
}

/// Interval of the reports to the watchdog: half of the time after which systemd considers the
/// server dead. `None` if systemd has no watchdog for the service.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// Takes over the listening sockets that systemd has opened; may be called once. Other descriptors
/// from systemd are closed, with a warning.
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
            // The file of a UNIX socket belongs to systemd.
            Some(address) => given.add([address.clone(), address], vec![socket], false),
            None => tracing::warn!("descriptor {number} of systemd is no listening stream socket"),
        }
    }
    given
}

/// The address of a listening stream socket; `None` for other descriptors.
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
