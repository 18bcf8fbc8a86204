//! The challenges that the server answers: of all servers that share the folder, and of all nodes
//! of the fleet. Other work of the agent does not delay them.

use std::convert::Infallible;
use std::rc::Rc;

use sendoff_tls::Challenge;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::agent::{ADOPT, TICK};
use crate::nodes::Nodes;
use crate::now;
use crate::server::Server;
use crate::store::Store;

/// The challenges that the server answers.
pub(crate) struct Answers<S> {
    server: Rc<S>,
    store: Rc<Store>,
    nodes: Option<Rc<Nodes>>,
    /// `None` if unknown.
    answered: Mutex<Option<Vec<Challenge>>>,
}

impl<S: Server> Answers<S> {
    pub(crate) fn new(server: Rc<S>, store: Rc<Store>, nodes: Option<Rc<Nodes>>) -> Self {
        Self { server, store, nodes, answered: Mutex::default() }
    }

    /// Looks for challenges again and again.
    pub(crate) async fn follow(&self) -> Infallible {
        let mut said = None;
        loop {
            for _ in 0..ADOPT {
                let why = self.refresh().await.err();
                if let Some(why) = &why
                    && said.as_ref() != Some(why)
                {
                    tracing::error!("{why}");
                }
                said = why;
                sleep(TICK).await;
            }
            // A restarted front does not know the challenges.
            self.answered.lock().await.take_if(|answered| !answered.is_empty());
        }
    }

    /// Passes the current challenges to the server. Returns when it answers them.
    ///
    /// # Errors
    /// A sentence: it takes none.
    pub(crate) async fn refresh(&self) -> Result<(), String> {
        let mut answered = self.answered.lock().await;
        let mut challenges = self.store.challenges(now());
        if let Some(nodes) = &self.nodes {
            for challenge in nodes.challenges().await {
                if !challenges.contains(&challenge) {
                    challenges.push(challenge);
                }
            }
        }
        if answered.as_ref() != Some(&challenges) {
            let done = self.server.answer(&challenges).await;
            done.map_err(|error| format!("the front takes no challenges: {error}"))?;
            *answered = Some(challenges);
        }
        Ok(())
    }
}
