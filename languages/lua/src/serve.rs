//! The threads that serve connections, and their shutdown.
//!
//! ```text
//!  Accepting ──▶ Idle ──▶ Serving ──▶ Idle … ──▶ Accepting
//! ```
//!
//! At shutdown no more connections are accepted, idle ones are closed, and open requests are
//! answered.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use sendoff_lua_host::SharedByScripts;
use sendoff_sys::process::SignalFd;
use sendoff_worker::listener::Acceptor;
use sendoff_worker::{Roles, Sender, Stopper, Worker};

use crate::messages;
use crate::respond::Responder;

/// Maximum number of files that stay held for further requests.
const HELD_FILES: usize = 256;

/// Pause after a failed accept, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The state of a thread.
#[derive(Debug)]
enum State {
    /// The thread waits for a connection.
    Accepting,
    /// The thread waits for a request on its connection.
    Idle(Stopper),
    /// The thread answers a request.
    Serving,
    /// The thread has ended.
    Ended,
}

/// State that all threads share, including the process's first thread.
#[derive(Debug)]
struct SharedByThreads {
    acceptor: Acceptor,
    /// Web servers that may connect over TCP (FastCGI §3.2).
    peers: Option<String>,
    scripts: Vec<PathBuf>,
    shared: Arc<SharedByScripts>,
    sender: Arc<Sender>,
    states: Mutex<States>,
    changed: Condvar,
}

#[derive(Debug)]
struct States {
    is_stopping: bool,
    threads: Vec<State>,
}

/// Serves until a signal asks the process to end; open requests then have `stop_timeout`.
pub(crate) fn run(
    listener: OwnedFd,
    threads: usize,
    scripts: Vec<PathBuf>,
    shared: SharedByScripts,
    stop_timeout: Duration,
) -> Result<(), String> {
    let signals = [Signal::TERM, Signal::INT, Signal::QUIT];
    // Before the threads start, so that they inherit the blocked signals.
    let mut signals = SignalFd::new(&signals).map_err(|error| error.to_string())?;
    let states =
        States { is_stopping: false, threads: (0..threads).map(|_| State::Accepting).collect() };
    let shared = Arc::new(SharedByThreads {
        acceptor: Acceptor::new(listener).map_err(|error| error.to_string())?,
        peers: std::env::var("FCGI_WEB_SERVER_ADDRS").ok(),
        scripts,
        shared: Arc::new(shared),
        sender: Arc::new(Sender::new(HELD_FILES)),
        states: Mutex::new(states),
        changed: Condvar::new(),
    });
    for number in 0..threads {
        let shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(format!("lua-{number}"));
        let started = thread.stack_size(sendoff_lua::STACK).spawn(move || serve(&shared, number));
        started.map_err(|error| format!("a thread cannot be started: {error}"))?;
    }
    loop {
        match poll(&mut [PollFd::new(&signals, PollFlags::IN)], None) {
            Ok(_) if signals.take().is_some() => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).to_string()),
        }
    }
    shared.stop(stop_timeout);
    Ok(())
}

impl SharedByThreads {
    fn states(&self) -> MutexGuard<'_, States> {
        // No code can panic while it is locked.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the state of a thread. Returns true if the thread may continue.
    fn note(&self, number: usize, state: State) -> bool {
        let mut states = self.states();
        let goes_on = !states.is_stopping;
        states.threads[number] = match state {
            State::Accepting if !goes_on => State::Ended,
            State::Idle(stopper) => {
                if !goes_on {
                    stopper.stop();
                }
                State::Idle(stopper)
            }
            state => state,
        };
        // The first thread waits for this only during shutdown, and the call is a system call.
        if !goes_on {
            self.changed.notify_one();
        }
        goes_on
    }

    /// Waits until all threads have ended.
    fn stop(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut states = self.states();
        states.is_stopping = true;
        self.acceptor.end();
        for state in &states.threads {
            if let State::Idle(stopper) = state {
                stopper.stop();
            }
        }
        while !states.threads.iter().all(|state| matches!(state, State::Ended)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(states, left);
            states = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The main function of each thread.
fn serve(shared: &SharedByThreads, number: usize) {
    let new = || {
        let (data, sender) = (Arc::clone(&shared.shared), Arc::clone(&shared.sender));
        Responder::new(shared.scripts.clone(), data, sender)
    };
    let mut responder = new();
    while shared.note(number, State::Accepting) {
        match shared.acceptor.accept(shared.peers.as_deref()) {
            Ok(None) => {}
            Ok(Some(connection)) => {
                let served =
                    AssertUnwindSafe(|| serve_connection(shared, number, &responder, connection));
                // The panic's message is on standard error. Incomplete state of the panic
                // disappears with the Lua state.
                if catch_unwind(served).is_err() {
                    responder = new();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                messages::say(&format!("no connection can be accepted: {error}"));
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn serve_connection(
    shared: &SharedByThreads,
    number: usize,
    responder: &Responder,
    connection: OwnedFd,
) {
    let roles = Roles { responder: true, authorizer: false, filter: false };
    let mut worker = Worker::on_connection(connection, roles);
    worker.hands_over();
    loop {
        shared.note(number, State::Idle(worker.stopper()));
        match worker.accept_on_connection() {
            Ok(true) => {
                shared.note(number, State::Serving);
                responder.answer(&mut worker);
            }
            Ok(false) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    shared.note(number, State::Serving);
    worker.close();
}
