//! `sendoff upgrade`: another program, usually a newer one, takes over the listeners, and the
//! running server drains.
//!
//! ```text
//!  old supervisor                             new supervisor (a child of the old one)
//!    starts it, with one end of a socket ──▶
//!    listeners, one message each ─────────▶   opens only missing listeners, starts front, pools
//!    counters of purges, the same ────────▶
//!              ◀───────────────────────────   ready, or why it cannot serve
//!    ready: tells systemd who is the main
//!    process, drains, ends                    serves
//!    not ready in time: ends it, goes on
//! ```
//!
//! Both processes hold the same listening sockets, so there is no moment without a listener, and no
//! connection in a backlog is lost.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bytes::BytesMut;
use rustix::io::FdFlags;
use rustix::net::SendFlags;
use sendoff_config::ListenAddress;
use sendoff_sys::process::take_inherited;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::children::this_program;
use crate::failure::Failure;
use crate::fragment_purges::{FragmentPurges, Keeper};
use crate::listen::Given;
use crate::machine::inode;
use crate::orders::{self, Socket};
use crate::systemd;

/// The option that names the new supervisor's end of the socket.
pub(crate) const OPTION: &str = "--take-over-fd";

/// Time limit for the new server to become ready.
const PATIENCE: Duration = Duration::from_secs(90);

/// Maximum size in bytes of a message to the new server: a path, and some words around it.
const MAX_MESSAGE: usize = 8192;

/// Messages of the old server to the new one.
#[derive(Debug, Serialize, Deserialize)]
enum ToNew {
    /// The sockets of a listener come along.
    Listener {
        /// The address in the configuration, and the bound address.
        addresses: [ListenAddress; 2],
        /// True if the server owns the file of the socket, and must remove it at its end.
        owns_file: bool,
    },
    /// The counters by which these processes purge fragments come along.
    Purges(Keeper),
    /// That was all.
    Complete,
}

/// Messages of the new server to the old one.
#[derive(Debug, Serialize, Deserialize)]
enum ToOld {
    /// The new server serves.
    Ready,
    /// The new server cannot serve; the reason.
    Failed(String),
}

/// The server that this one replaces.
#[derive(Debug)]
pub(crate) struct Predecessor(OwnedFd);

impl Predecessor {
    /// Takes the socket to the old server, from the number on the command line.
    ///
    /// # Errors
    /// There is no such descriptor.
    pub(crate) fn new(number: RawFd) -> Result<Self, Failure> {
        let socket = take_inherited(number);
        socket.map(Self).map_err(|error| Failure::Internal(format!("{OPTION} {number}: {error}")))
    }

    /// Receives the listeners, and the counters by which fragments are purged.
    ///
    /// # Errors
    /// The old server has ended, or its message is invalid.
    pub(crate) fn possessions(&self) -> Result<(Given, FragmentPurges), Failure> {
        self.receive().map_err(Failure::system("the listeners cannot be taken over"))
    }

    fn receive(&self) -> io::Result<(Given, FragmentPurges)> {
        let (mut given, mut purges) = (Given::default(), FragmentPurges::default());
        loop {
            let mut message = BytesMut::with_capacity(MAX_MESSAGE);
            let mut sockets = VecDeque::new();
            if sendoff_sys::fdpass::receive(self.0.as_fd(), &mut message, &mut sockets)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match serde_json::from_slice(&message)? {
                ToNew::Listener { addresses, owns_file } => {
                    given.add(addresses, sockets.into(), owns_file);
                }
                ToNew::Purges(keeper) => {
                    let counters = sockets.pop_front().ok_or(io::ErrorKind::InvalidData)?;
                    purges.add(keeper, counters);
                }
                ToNew::Complete => return Ok((given, purges)),
            }
        }
    }

    /// Reports that this server serves; the old one then drains.
    pub(crate) fn ready(&self) {
        self.tell(&ToOld::Ready);
    }

    /// Reports that this server is ending; the old one then continues.
    pub(crate) fn failed(&self, why: &Failure) {
        self.tell(&ToOld::Failed(why.to_string()));
    }

    fn tell(&self, message: &ToOld) {
        let Ok(text) = serde_json::to_vec(message) else { return };
        // The send fails if the predecessor has been killed, which is harmless.
        let _ = rustix::net::send(&self.0, &text, SendFlags::NOSIGNAL);
    }
}

/// A new server that is starting.
#[derive(Debug)]
pub(crate) struct Successor {
    child: Child,
    socket: Socket,
    /// It serves, and outlives this process.
    lives_on: bool,
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.lives_on {
            // It may have ended by itself.
            let _ = self.child.start_kill();
        }
    }
}

impl Successor {
    /// Starts the program file that is now at this program's path, with the same arguments.
    ///
    /// # Errors
    /// The system refuses to start it.
    pub(crate) fn start() -> Result<Self, String> {
        let failed = |error: io::Error| format!("the new server cannot be started: {error}");
        let program = this_program().map_err(|failure| failure.to_string())?;
        let (socket, theirs) = orders::sockets().map_err(failed)?;
        let mut command = Command::new(&program);
        command.args(arguments()).arg(format!("{OPTION}={}", theirs.as_raw_fd()));
        for name in systemd::OF_PROCESS {
            command.env_remove(name);
        }
        let inherit = |flags| rustix::io::fcntl_setfd(&theirs, flags).map_err(io::Error::from);
        inherit(FdFlags::empty()).map_err(failed)?;
        let child = command.stdin(Stdio::null()).spawn();
        inherit(FdFlags::CLOEXEC).map_err(failed)?;
        let program = program.display();
        let child = child.map_err(|error| format!("{program} cannot be started: {error}"))?;
        Ok(Self { child, socket, lives_on: false })
    }

    /// Sends the listeners and the counters of purges, and waits until the new server serves.
    ///
    /// # Errors
    /// A sentence with the reason why it does not serve. It has been killed then.
    pub(crate) async fn take_over(
        mut self,
        given: Given,
        purges: Vec<(Keeper, OwnedFd)>,
    ) -> Result<u32, String> {
        let pid = self.child.id().unwrap_or_default();
        let answered = timeout(PATIENCE, self.hand_over(given, purges)).await;
        let why = match answered {
            Ok(Ok(ToOld::Ready)) => {
                self.lives_on = true;
                return Ok(pid);
            }
            Ok(Ok(ToOld::Failed(why))) => why,
            Ok(Err(error)) => format!("it says nothing: {error}"),
            Err(_) => format!("it is not ready after {} s", PATIENCE.as_secs()),
        };
        Err(why)
    }

    async fn give(&self, given: Given, purges: Vec<(Keeper, OwnedFd)>) -> io::Result<()> {
        for (addresses, sockets, owns_file) in given.into_parts() {
            let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
            let message = ToNew::Listener { addresses, owns_file };
            self.socket.send_when_possible(&message, &sockets).await?;
        }
        for (keeper, counters) in purges {
            self.socket.send_when_possible(&ToNew::Purges(keeper), &[counters.as_fd()]).await?;
        }
        self.socket.send_when_possible(&ToNew::Complete, &[]).await
    }

    async fn hand_over(
        &mut self,
        given: Given,
        purges: Vec<(Keeper, OwnedFd)>,
    ) -> io::Result<ToOld> {
        // Sending fails if the new program has already ended; its answer may still be in the
        // socket.
        let _ = self.give(given, purges).await;
        match self.socket.receive().await? {
            Some((answer, _)) => Ok(answer),
            // The kernel closes the socket when the process ends.
            None => {
                let ended = self.child.wait().await?;
                Err(io::Error::other(format!("it ended ({ended})")))
            }
        }
    }
}

/// True if a different program file is now at this program's path.
pub(crate) fn is_another_there() -> bool {
    let there = this_program().ok().and_then(|program| inode(&program));
    there.is_some() && there != inode(Path::new("/proc/self/exe"))
}

/// The arguments of this process, without the option for its predecessor.
fn arguments() -> impl Iterator<Item = OsString> {
    let is_kept = |argument: &OsString| !argument.as_encoded_bytes().starts_with(OPTION.as_bytes());
    std::env::args_os().skip(1).filter(is_kept)
}
