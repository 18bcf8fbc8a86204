//! The keys of session tickets that all nodes share.
//!
//! The time of the engine is divided into periods. Each has a key, which the first node that wants
//! it makes. Tickets are made with the key of their period, and are worth nothing after the next
//! one; then the engine has forgotten the key, too. If the nodes have a secret, keys are sealed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Value, cmd};
use rustls::crypto::SecureRandom;
use rustls::crypto::aws_lc_rs::default_provider;
use sendoff_tls::{Seal, SharedKey, TICKET_NAME, TICKET_SECRET, Tickets};

use crate::engine::{Connection, Trouble};
use crate::state::FleetState;

/// The time for which a key makes tickets.
const PERIOD: Duration = Duration::from_secs(6 * 60 * 60);

/// The next key is made this time before it makes tickets, so that all nodes know it by then.
const AHEAD: Duration = Duration::from_secs(5 * 60);

/// Pause between two looks at the keys.
const PAUSE: Duration = Duration::from_secs(60);

const LEN: usize = TICKET_NAME + TICKET_SECRET;

/// The keys that this node knows.
pub(crate) struct Keys {
    /// The beginning of their names in the engine.
    prefix: String,
    /// `None`: the nodes have no secret.
    seal: Option<Seal>,
    tickets: Tickets,
    state: Arc<FleetState>,
    random: &'static dyn SecureRandom,
    /// By the number of their period. A node that has a key puts it back if the engine has lost it.
    known: BTreeMap<u64, [u8; LEN]>,
}

impl Keys {
    pub(crate) fn new(
        name: &str,
        seal: Option<Seal>,
        tickets: Tickets,
        state: Arc<FleetState>,
    ) -> Self {
        let random = default_provider().secure_random;
        // Nodes with the secret and nodes without it do not disturb each other.
        let kind = if seal.is_some() { "sealed-ticket-key" } else { "ticket-key" };
        let prefix = format!("{name}:{kind}:");
        Self { prefix, seal, tickets, state, random, known: BTreeMap::new() }
    }

    /// Looks at the keys again and again.
    pub(crate) async fn follow(&mut self, connection: &Connection) -> Result<Infallible, Trouble> {
        loop {
            tokio::time::sleep(PAUSE).await;
            self.look(connection).await?;
        }
    }

    /// Takes over the keys of other nodes, and makes those that are missing. An engine that refuses
    /// them still serves purges.
    pub(crate) async fn look(&mut self, connection: &Connection) -> Result<(), Trouble> {
        let asked = Instant::now();
        let (seconds, micros) = match connection.ask_for::<(u64, u64)>(&cmd("TIME")).await? {
            Ok(time) => time,
            Err(why) => {
                self.state.note_keyless("TIME", &why);
                return Ok(());
            }
        };
        let now = clock(seconds, micros).ok_or_else(|| Trouble::unexpected("TIME"))?;
        let mut known = BTreeMap::new();
        for period in periods(now) {
            if let Some(key) = self.key(connection, period, now).await? {
                known.insert(period, key);
            }
        }
        let shared = known.iter().filter_map(|(period, key)| {
            let (name, secret) = key.split_first_chunk()?;
            SharedKey::new(*name, secret.try_into().ok()?, times(*period, now, asked))
        });
        self.tickets.share(shared.collect());
        self.known = known;
        Ok(())
    }

    /// The key of a period; `None`: the period is over and had none, or the engine has something
    /// else at its place, or refuses it.
    async fn key(
        &self,
        connection: &Connection,
        period: u64,
        now: Duration,
    ) -> Result<Option<[u8; LEN]>, Trouble> {
        let name = format!("{}{period}", self.prefix);
        let known = self.known.get(&period).copied();
        let offered = match known {
            None if start(period) + PERIOD <= now => None,
            None => Some(self.draw()?),
            known => known,
        };
        let left = end(period).saturating_sub(now);
        let mut refusal = None;
        if let Some(key) = &offered
            && !left.is_zero()
        {
            let mut set = cmd("SET");
            let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            set.arg(&name).arg(self.sealed(&name, key)?).arg("NX").arg("PX").arg(left);
            refusal = connection.ask_for::<Value>(&set).await?.err();
        }
        let key = match connection.ask_for::<Option<Vec<u8>>>(cmd("GET").arg(&name)).await? {
            Ok(Some(value)) => {
                let key = self.opened(&name, value);
                key.ok_or_else(|| "it is no key for session tickets".into())
            }
            Ok(None) => match refusal {
                Some(why) => Err(why),
                None => return Ok(None),
            },
            Err(why) => Err(why),
        };
        Ok(key.inspect_err(|why| self.state.note_keyless(&name, why)).ok())
    }

    /// The key in a value of the engine.
    fn opened(&self, name: &str, value: Vec<u8>) -> Option<[u8; LEN]> {
        let key = match &self.seal {
            Some(seal) => seal.open(name, &value)?,
            None => value,
        };
        key.try_into().ok()
    }

    fn sealed(&self, name: &str, key: &[u8]) -> Result<Vec<u8>, Trouble> {
        let Some(seal) = &self.seal else { return Ok(key.to_vec()) };
        let sealed = seal.seal(name, key);
        sealed.ok_or_else(|| Trouble("nothing can be sealed".to_owned()))
    }

    fn draw(&self) -> Result<[u8; LEN], Trouble> {
        let mut key = [0; LEN];
        let drawn = self.random.fill(&mut key);
        drawn.map_err(|_| Trouble("this system has no random numbers".to_owned()))?;
        Ok(key)
    }
}

/// The time of the engine, since 1970; `None`: no clock shows it.
fn clock(seconds: u64, micros: u64) -> Option<Duration> {
    let is_plausible = seconds < 1 << 40 && micros < 1_000_000;
    is_plausible.then(|| Duration::from_secs(seconds) + Duration::from_micros(micros))
}

/// The periods whose keys are in use, and the next one shortly before it begins.
fn periods(now: Duration) -> impl Iterator<Item = u64> {
    let current = now.as_secs() / PERIOD.as_secs();
    let next = (now + AHEAD).as_secs() / PERIOD.as_secs();
    current.saturating_sub(1)..=next
}

/// The beginning of a period, in the time of the engine.
fn start(period: u64) -> Duration {
    Duration::from_secs(period * PERIOD.as_secs())
}

/// The end of the life of a period's key.
fn end(period: u64) -> Duration {
    start(period) + 2 * PERIOD
}

/// The times from which a key makes tickets, makes none, and is worth nothing. `now`: the time of
/// the engine, which was asked for at `asked` or later.
fn times(period: u64, now: Duration, asked: Instant) -> [Instant; 3] {
    [start(period), start(period) + PERIOD, end(period)].map(|at| asked + at.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    #[test]
    fn a_key_lives_for_two_periods() {
        let now = Instant::now();
        let at = |hours: u32| times(10, start(10) + hours * HOUR, now).map(|time| time - now);
        assert_eq!(at(0), [Duration::ZERO, 6 * HOUR, 12 * HOUR]);
        assert_eq!(at(5), [Duration::ZERO, HOUR, 7 * HOUR]);
        assert_eq!(at(8), [Duration::ZERO, Duration::ZERO, 4 * HOUR]);
        assert_eq!(at(13), [Duration::ZERO; 3]);
    }

    #[test]
    fn a_clock_that_shows_nonsense_is_none() {
        assert_eq!(clock(1, 2), Some(Duration::new(1, 2000)));
        assert_eq!(clock(u64::MAX, 0), None);
        assert_eq!(clock(0, u64::MAX), None);
    }

    #[test]
    fn the_next_key_is_made_before_it_is_used() {
        let at = |time| periods(time).collect::<Vec<_>>();
        assert_eq!(at(start(10)), [9, 10]);
        assert_eq!(at(start(11) - 2 * AHEAD), [9, 10]);
        assert_eq!(at(start(11) - AHEAD), [9, 10, 11]);
        assert_eq!(at(start(11)), [10, 11]);
    }
}
