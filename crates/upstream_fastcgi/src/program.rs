//! The program of a pool, as its master describes it: its listening socket and its processes.
//!
//! The listening socket has no name in the file system. The front has a descriptor of its inode and
//! connects through `/proc` (proc_pid_fd(5)); no other process can connect.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sendoff_pool_messages::{MAX_STATE, OUT_OF_MEMORY, ProgramState};
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::packets::Packets;
use sendoff_upstream_worker::master::Master;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// The most processes that are remembered as having answered.
const MOST_SERVED: usize = 1024;

/// The program of a pool, shared by all event loops.
#[derive(Debug)]
pub struct Program {
    /// The pool's name.
    name: String,
    master: Master,
    /// Processes that were reported to the master because they have answered a request.
    served: Mutex<BTreeSet<u32>>,
    said: watch::Sender<MasterReport>,
}

/// The last message of the master.
#[derive(Debug, Default)]
struct MasterReport {
    /// The inode of the listening socket; `None`: no message has arrived yet.
    socket: Option<Arc<OwnedFd>>,
    state: ProgramState,
}

impl Program {
    /// The program of the pool with this name, in an unknown state.
    #[must_use]
    pub fn new(name: &str, master: Master) -> Arc<Self> {
        let (name, served) = (name.to_owned(), Mutex::default());
        Arc::new(Self { name, master, served, said: watch::Sender::new(MasterReport::default()) })
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Receives the master's messages on the pool socket. `purges` gets the counters of purges, if
    /// the pool keeps fragments. Returns when the supervisor closes the
    /// other end.
    ///
    /// # Errors
    /// The pool socket cannot be read.
    pub async fn receive(
        &self,
        pool_socket: OwnedFd,
        out_of_memory: impl Fn(),
        purges: impl Fn(OwnedFd),
    ) -> io::Result<()> {
        let packets = Packets::new(pool_socket)?;
        loop {
            let Some((message, mut fds)) = packets.next(MAX_STATE).await? else { return Ok(()) };
            if *message == OUT_OF_MEMORY {
                out_of_memory();
                continue;
            }
            match (ProgramState::decode(&message), fds.pop_front()) {
                (Some(state), Some(socket)) => {
                    let socket = Some(Arc::new(socket));
                    fds.pop_front().into_iter().for_each(&purges);
                    self.served().retain(|pid| state.processes.contains(pid));
                    self.said.send_replace(MasterReport { socket, state });
                }
                _ => tracing::error!(pool = self.name, "a message that makes no sense was dropped"),
            }
        }
    }

    /// Notes that a process has answered a request. The master is told once per process; it
    /// restarts such a process without a pause.
    pub(super) fn note_answer(&self, pid: u32) {
        let mut served = self.served();
        // The master's state lacks the children of its processes, so they are never removed one by
        // one.
        if served.len() >= MOST_SERVED {
            served.clear();
        }
        if served.insert(pid) && self.master.has_served(pid).is_err() {
            // The master is behind with its messages: the next answer reports the process again.
            served.remove(&pid);
        }
    }

    /// Notes that a process has died while it worked on a request.
    pub(super) fn note_death_at_work(&self) {
        // If the message is lost, the master starts the next process after a pause.
        let _ = self.master.died_at_work();
    }

    fn served(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // A panic elsewhere cannot leave the set inconsistent.
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the master is gone, so that no process will be started any more.
    pub fn set_abandoned(&self) {
        self.said.send_modify(|said| said.state.down = Some("has lost its master".to_owned()));
    }

    /// The ids of its processes, or the reason why none runs.
    #[must_use]
    pub fn state(&self) -> ProgramState {
        self.said.borrow().state.clone()
    }

    /// True once the master has reported the state of the program.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.said.borrow().socket.is_some()
    }

    /// Connects to the program. In a front that has just started, waits for the first message of
    /// the master.
    ///
    /// # Errors
    /// An error of `connect(2)`.
    pub(super) async fn connect(&self) -> io::Result<UnixStream> {
        // The sender lives as long as this value.
        let _ = self.said.subscribe().wait_for(|said| said.socket.is_some()).await;
        let socket = self.said.borrow().socket.clone().ok_or(io::ErrorKind::NotFound)?;
        // The descriptor stays open until the path has been looked up.
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        UnixStream::connect(path).await
    }

    /// Returns when no process runs and none will be started soon.
    pub(super) async fn down(&self) -> UpstreamError {
        let mut said = self.said.subscribe();
        let said = said.wait_for(|said| said.state.down.is_some()).await;
        let why = said.as_ref().ok().and_then(|said| said.state.down.as_deref());
        let why = format!("no process of it runs: the last one {}", why.unwrap_or("is gone"));
        // The request was not read, but a retry would find no process either.
        UpstreamError::new(UpstreamErrorKind::Overloaded, Retry::Unsafe, why)
    }
}
