//! What the front answers to authorities that check a site's names (ACME, RFC 8555 §8). One value for all event loops: it is asked only
//! for paths and handshakes of that kind.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use rustls::ServerConfig;
use sendoff_tls::{Challenge, challenge_config};

/// Where HTTP-01 asks (RFC 8555 §8.3).
const FOLDER: &str = "/.well-known/acme-challenge/";

/// The challenges that are answered now.
#[derive(Debug, Default)]
pub struct Challenges(RwLock<Answers>);

#[derive(Debug, Default)]
struct Answers {
    by_token: HashMap<String, Bytes>,
    by_host: HashMap<String, Arc<ServerConfig>>,
}

impl Challenges {
    /// Answers these challenges from now on, and no others.
    ///
    /// # Errors
    /// A sentence: there is no certificate for one of them. Then nothing changes.
    pub fn replace(&self, challenges: Vec<Challenge>) -> Result<(), String> {
        let mut answers = Answers::default();
        for challenge in challenges {
            match challenge {
                Challenge::Http { token, answer } => {
                    answers.by_token.insert(token, answer.into());
                }
                Challenge::Tls { host, digest } => {
                    let config = challenge_config(&host, &digest)?;
                    answers.by_host.insert(host.to_ascii_lowercase(), config);
                }
            }
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = answers;
        Ok(())
    }

    /// The response to a request in the clear for this path.
    pub(crate) fn answer(&self, path: &str) -> Option<Bytes> {
        let token = path.strip_prefix(FOLDER)?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_token.get(token).cloned()
    }

    /// How an authority is met that asks for this host.
    pub(crate) fn config(&self, host: &str) -> Option<Arc<ServerConfig>> {
        let answers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        answers.by_host.get(&host.to_ascii_lowercase()).cloned()
    }
}
