//! The folder, and during an attempt of a fleet's node also the values that all nodes share: each
//! step is written to both.

use std::future::pending;
use std::io;

use sendoff_fleet::FleetLock;
use sendoff_tls::Challenge;
use serde::Serialize;

use crate::nodes::Nodes;
use crate::now;
use crate::schedule::Record;
use crate::store::Store;
use crate::trouble::Trouble;

/// The place where an attempt notes its steps.
pub(crate) struct Ledger<'a> {
    pub(crate) store: &'a Store,
    /// `None`: the node is alone, or its engine is away.
    pub(crate) nodes: Option<(&'a Nodes, &'a FleetLock)>,
}

impl Ledger<'_> {
    pub(crate) async fn store_account(&self, account: &impl Serialize) -> Result<(), Trouble> {
        let stored = self.store.store_account(account);
        stored.map_err(|error| Trouble::here("the account cannot be stored", error))?;
        let Some((nodes, lock)) = self.nodes else { return Ok(()) };
        nodes.put_account(lock, self.store).await.map_err(unshared)
    }

    pub(crate) async fn store_record(&self, file: &str, record: &Record) -> Result<(), Trouble> {
        self.store.store_record(file, record).map_err(unwritten)?;
        let Some((nodes, lock)) = self.nodes else { return Ok(()) };
        nodes.put_record(lock, file, record).await.map_err(unshared)
    }

    /// Has every server and every node answer these challenges.
    pub(crate) async fn store_challenges(&self, challenges: &[Challenge]) -> Result<(), Trouble> {
        self.store.store_challenges(challenges, now()).map_err(unwritten)?;
        let Some((nodes, lock)) = self.nodes else { return Ok(()) };
        nodes.put_challenges(lock, challenges).await.map_err(unshared)
    }

    /// Waits until the lock of the nodes is lost; for ever, if there is none.
    pub(crate) async fn lost(&self) -> Trouble {
        match self.nodes {
            Some((nodes, lock)) => Trouble::here("the attempt is given up", nodes.keep(lock).await),
            None => pending().await,
        }
    }

    /// True if the authority may meet another server.
    pub(crate) fn has_others(&self) -> bool {
        self.nodes.is_some() || !self.store.is_alone()
    }
}

fn unwritten(error: io::Error) -> Trouble {
    Trouble::here("the folder cannot be written", error)
}

fn unshared(error: impl std::fmt::Display) -> Trouble {
    Trouble::here("nothing is shared with other nodes", error)
}
