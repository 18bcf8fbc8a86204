//! A node: connects to the engine, sends and obeys purges, and shares keys and counts, as long as
//! the engine serves; otherwise tries again.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use sendoff_config::Fleet;
use sendoff_tls::{FleetSecrets, Seal, SealKey, Tickets};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::counts::{self, Counts};
use crate::engine::{Client, Connection, Trouble};
use crate::keys::Keys;
use crate::outbox::Outbox;
use crate::position::Positions;
use crate::reader::{BATCH, Reader};
use crate::record::{PURGES, add};
use crate::state::FleetState;

/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A connection that has lasted for this time was not a failure.
const LASTING: Duration = Duration::from_secs(10);

/// The note that purges wait stays for this time after the last one, so that a stream of purges
/// does not write it again and again.
const QUIET: Duration = Duration::from_secs(1);

/// Pause between two looks whether a server that this one has replaced has ended.
const WATCH: Duration = Duration::from_secs(1);

/// Obeys the purges of other nodes, without telling other nodes of them.
pub trait Obey: Send + Sync {
    /// Obeys a purge.
    ///
    /// # Errors
    /// A sentence: this is no purge.
    fn obey(&self, purge: &[u8]) -> Result<(), String>;

    /// Purges everything, because purges may be missing.
    fn obey_everything(&self);
}

/// The parts of the server that a node works with. They outlive a change of its configuration.
#[derive(Clone)]
pub struct Parts {
    /// Purges for other nodes.
    pub outbox: Arc<Outbox>,
    /// Obeys the purges of other nodes.
    pub obey: Arc<dyn Obey>,
    /// The last record that was read.
    pub positions: Arc<Positions>,
    /// The keys of session tickets.
    pub tickets: Tickets,
    /// Counts of requests, for limits that the nodes share.
    pub counts: Arc<dyn Counts>,
    /// The figures.
    pub state: Arc<FleetState>,
    /// Becomes true once all purges have been obeyed that were made before the server started.
    pub is_settled: watch::Sender<bool>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

/// A node of a fleet.
pub struct Node {
    /// A random name, by which the node knows its own records.
    pub(crate) me: String,
    pub(crate) stream: String,
    /// The stream of counts.
    pub(crate) counts: String,
    pub(crate) parts: Parts,
    name: String,
    seal_key: Option<SealKey>,
    client: Client,
    /// Most records to ask for at once: half as many after each failure.
    pub(crate) batch: Cell<u32>,
    /// The next record is too long to be read.
    pub(crate) skips: Cell<bool>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.me).finish_non_exhaustive()
    }
}

/// Tells of a panic of the node's thread.
struct Panics<'n>(&'n FleetState);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.away("the thread that talks to it has panicked; a reload starts it again");
        }
    }
}

impl Node {
    /// A node that knows its secrets. It has not connected to the engine yet.
    #[must_use]
    pub fn new(fleet: &Fleet, secrets: &FleetSecrets, parts: Parts) -> Self {
        Self {
            me: format!("{:016x}", fastrand::u64(..)),
            stream: format!("{}:purges", fleet.name),
            counts: format!("{}:counts", fleet.name),
            name: fleet.name.clone(),
            seal_key: secrets.seal_key.clone(),
            client: Client::new(fleet.engine.clone(), secrets.engine_password.as_ref()),
            parts,
            batch: Cell::new(BATCH),
            skips: Cell::new(false),
        }
    }

    /// Belongs to the fleet until the future is dropped. Needs a runtime for local tasks.
    pub async fn run(self) -> Infallible {
        let Parts { tickets, state, .. } = &self.parts;
        let _panics = Panics(state);
        let seal = self.seal_key.as_ref().map(Seal::new);
        let mut keys = Keys::new(&self.name, seal, tickets.clone(), Arc::clone(state));
        if self.parts.positions.begin_notes() {
            // They are unknown, so the other nodes purge everything.
            self.parts.outbox.push_everything();
        }
        tokio::select! {
            never = self.connect_always(&mut keys) => never,
            never = self.note_unsent() => never,
            never = self.watch_predecessors() => never,
        }
    }

    /// Takes over the purges that a server could not send which this one has replaced.
    async fn watch_predecessors(&self) -> Infallible {
        let Parts { outbox, positions, .. } = &self.parts;
        while positions.has_predecessors() {
            sleep(WATCH).await;
            if positions.has_lost_purges() {
                outbox.push_everything();
            }
        }
        pending().await
    }

    /// Tries again and again.
    async fn connect_always(&self, keys: &mut Keys) -> Infallible {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let Err(Trouble(why)) = self.session(keys).await;
            self.parts.state.away(&why);
            if begun.elapsed() > LASTING {
                pause = FIRST_PAUSE;
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Keeps a note on disk while purges wait.
    async fn note_unsent(&self) -> Infallible {
        let Parts { outbox, positions, .. } = &self.parts;
        loop {
            outbox.is_unsent().await;
            positions.note_unsent(true);
            loop {
                outbox.is_sent().await;
                sleep(QUIET).await;
                if outbox.is_empty() {
                    break;
                }
            }
            positions.note_unsent(false);
        }
    }

    /// Serves as long as the engine does.
    async fn session(&self, keys: &mut Keys) -> Result<Infallible, Trouble> {
        // One connection waits for records, the other one sends. Counts wait on a third one.
        let reading = &self.client.connect().await?;
        let sending = &self.client.connect().await?;
        let mut reader = Reader::catch_up(self, reading).await?;
        self.parts.is_settled.send_replace(true);
        keys.look(sending).await?;
        let counting = &self.client.connect().await?;
        let last = counts::begin(self, counting).await?;
        self.parts.state.connected();
        tokio::select! {
            done = reader.follow() => done,
            done = self.send(sending) => done,
            done = keys.follow(sending) => done,
            done = counts::send(self, sending) => done,
            done = counts::follow(self, counting, last) => done,
        }
    }

    /// Sends purges as they come.
    async fn send(&self, connection: &Connection) -> Result<Infallible, Trouble> {
        loop {
            let batch = self.parts.outbox.next().await;
            let mut commands = redis::pipe();
            for purge in &batch.purges {
                commands.add_command(add(&PURGES, &self.stream, &self.me, Some(purge)));
            }
            connection.ask_all(&commands).await?;
            self.parts.state.note_sent(batch.purges.len());
            self.parts.outbox.sent(&batch);
        }
    }
}
