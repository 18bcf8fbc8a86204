//! The front's answers to authorities that check a site's names (ACME, RFC 8555 §8). All event
//! loops share one value: it is consulted only for the paths and handshakes of challenges.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use rustls::ServerConfig;
use sendoff_tls::{Challenge, challenge_config};

/// Folder of HTTP-01 challenges (RFC 8555 §8.3).
const FOLDER: &str = "/.well-known/acme-challenge/";

/// The challenges that are currently answered.
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
    /// A sentence: the certificate for a challenge cannot be made. Nothing changes then.
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

    /// The body of the response to a request without TLS for this path, if the path is a
    /// challenge's.
    pub(crate) fn answer(&self, path: &str) -> Option<Bytes> {
        let token = path.strip_prefix(FOLDER)?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_token.get(token).cloned()
    }

    /// The TLS configuration for an authority that validates this host by TLS-ALPN-01 (RFC 8737).
    pub(crate) fn config(&self, host: &str) -> Option<Arc<ServerConfig>> {
        let answers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        answers.by_host.get(&host.to_ascii_lowercase()).cloned()
    }
}
