//! The keys of session tickets: of this server, and of a fleet.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use ::aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use rustls::crypto::aws_lc_rs;
use rustls::server::ProducesTickets;

/// Time for which clients may keep a ticket, in seconds: keys change every six hours, and the
/// previous ones are known for as long.
const LIFETIME: u32 = 12 * 60 * 60;

/// Most keys of a fleet that are known: some in use, and expired ones, which must not come back if
/// the clock of the engine is put back.
const MOST_KEYS: usize = 16;

/// Bytes by which a ticket names its key.
pub const TICKET_NAME: usize = 16;

/// Bytes of a key's secret.
pub const TICKET_SECRET: usize = 32;

/// The keys of session tickets. They change every six hours; a ticket is valid for twelve. All
/// event loops share them, so that any loop can resume a session, and they outlive a reload.
///
/// While there are keys of a fleet, tickets are made with them, so that any node can resume a
/// session. At other times the server makes them with keys of its own.
#[derive(Debug, Clone)]
pub struct Tickets(Arc<TicketKeys>);

/// A key that all nodes of a fleet know.
pub struct SharedKey {
    name: [u8; TICKET_NAME],
    key: RandomizedNonceKey,
    /// From this time on it makes tickets.
    begins: Instant,
    /// From this time on it makes no tickets.
    ends: Instant,
    /// From this time on its tickets are worth nothing.
    expires: Instant,
}

#[derive(Debug)]
struct TicketKeys {
    own: Arc<dyn ProducesTickets>,
    shared: RwLock<Vec<SharedKey>>,
}

impl Tickets {
    /// New keys of this server. No fleet shares any yet.
    ///
    /// # Errors
    /// A sentence: the system has no random numbers.
    pub fn new() -> Result<Self, String> {
        let own = aws_lc_rs::Ticketer::new()
            .map_err(|error| format!("no keys for session tickets: {error}"))?;
        Ok(Self(Arc::new(TicketKeys { own, shared: RwLock::default() })))
    }

    /// Makes tickets with these keys of a fleet from now on. A known key does not live longer than
    /// it was said before; tickets of known keys that are not among these stay valid for as long.
    pub fn share(&self, mut keys: Vec<SharedKey>) {
        let now = Instant::now();
        let mut shared = self.0.shared.write().unwrap_or_else(PoisonError::into_inner);
        for mut known in std::mem::take(&mut *shared) {
            if let Some(key) = keys.iter_mut().find(|key| key.name == known.name) {
                key.ends = key.ends.min(known.ends);
                key.expires = key.expires.min(known.expires);
            } else if keys.len() < MOST_KEYS {
                known.ends = known.ends.min(now);
                keys.push(known);
            }
        }
        *shared = keys;
    }

    /// Uses no keys of a fleet any more.
    pub fn unshare(&self) {
        self.0.shared.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn producer(&self) -> Arc<dyn ProducesTickets> {
        Arc::clone(&self.0) as Arc<dyn ProducesTickets>
    }
}

impl SharedKey {
    /// A key that makes tickets from `begins` until `ends`, which are worth nothing from `expires`
    /// on; `None`: the secret cannot be a key.
    #[must_use]
    pub fn new(
        name: [u8; TICKET_NAME],
        secret: &[u8; TICKET_SECRET],
        [begins, ends, expires]: [Instant; 3],
    ) -> Option<Self> {
        // Several nodes draw nonces for one key: with this algorithm, two equal ones do no harm.
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, secret).ok()?;
        Some(Self { name, key, begins, ends, expires })
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut text = plain.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(&self.name), &mut text).ok()?;
        Some([&self.name[..], nonce.as_ref(), &text].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let ticket = ticket.strip_prefix(&self.name)?;
        let (nonce, text) = ticket.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        Some(self.key.open_in_place(nonce, Aad::from(&self.name), &mut text).ok()?.to_vec())
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey")
    }
}

impl TicketKeys {
    fn encrypt_at(&self, now: Instant, plain: &[u8]) -> Option<Vec<u8>> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let current = shared.iter().find(|key| key.begins <= now && now < key.ends);
        current.and_then(|key| key.encrypt(plain)).or_else(|| self.own.encrypt(plain))
    }

    fn decrypt_at(&self, now: Instant, ticket: &[u8]) -> Option<Vec<u8>> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let mut valid = shared.iter().filter(|key| now < key.expires);
        valid.find_map(|key| key.decrypt(ticket)).or_else(|| self.own.decrypt(ticket))
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(Instant::now(), plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(Instant::now(), cipher)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// A key that is used for six hours from `begins` on.
    fn key(number: u8, begins: Instant) -> SharedKey {
        let times = [begins, begins + 6 * HOUR, begins + 12 * HOUR];
        SharedKey::new([number; TICKET_NAME], &[number; TICKET_SECRET], times).unwrap()
    }

    #[test]
    fn nodes_resume_sessions_of_each_other_until_the_key_expires() {
        let now = Instant::now();
        let [one, other] = [(); 2].map(|()| Tickets::new().unwrap());
        let own = one.0.encrypt_at(now, b"session").unwrap();
        assert_eq!(other.0.decrypt_at(now, &own), None);
        one.share(vec![key(1, now), key(2, now + 6 * HOUR)]);
        other.share(vec![key(2, now + 6 * HOUR), key(1, now)]);
        let first = one.0.encrypt_at(now + 5 * HOUR, b"session").unwrap();
        let second = one.0.encrypt_at(now + 6 * HOUR, b"session").unwrap();
        assert!(first.starts_with(&[1; TICKET_NAME]) && second.starts_with(&[2; TICKET_NAME]));
        let at = |hours| other.0.decrypt_at(now + hours * HOUR, &first);
        assert_eq!(at(11).as_deref(), Some(&b"session"[..]));
        assert_eq!(at(12), None);
        assert_eq!(other.0.decrypt_at(now, &second).as_deref(), Some(&b"session"[..]));
        assert!(one.0.decrypt_at(now, &own).is_some(), "its own tickets stay valid");
    }

    #[test]
    fn a_node_without_valid_keys_of_the_fleet_uses_its_own() {
        let now = Instant::now();
        let tickets = Tickets::new().unwrap();
        tickets.share(vec![key(1, now)]);
        let late = tickets.0.encrypt_at(now + 6 * HOUR, b"session").unwrap();
        assert!(!late.starts_with(&[1; TICKET_NAME]));
        assert!(tickets.0.decrypt_at(now + 20 * HOUR, &late).is_some());
        tickets.unshare();
        assert!(!tickets.0.encrypt_at(now, b"session").unwrap().starts_with(&[1; TICKET_NAME]));
    }

    /// The clock of the engine may have been put back.
    #[test]
    fn no_key_lives_longer_than_it_was_said_before() {
        let now = Instant::now();
        let tickets = Tickets::new().unwrap();
        tickets.share(vec![key(1, now)]);
        let ticket = tickets.0.encrypt_at(now, b"session").unwrap();
        tickets.share(vec![key(2, now)]);
        assert!(tickets.0.encrypt_at(now, b"").unwrap().starts_with(&[2; TICKET_NAME]));
        tickets.share(vec![key(1, now + HOUR)]);
        assert!(tickets.0.decrypt_at(now + 11 * HOUR, &ticket).is_some());
        assert!(tickets.0.decrypt_at(now + 12 * HOUR, &ticket).is_none());
    }

    #[test]
    fn a_ticket_that_was_changed_is_worth_nothing() {
        let now = Instant::now();
        let tickets = Tickets::new().unwrap();
        tickets.share(vec![key(1, now)]);
        let ticket = tickets.0.encrypt_at(now, b"session").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.0.decrypt_at(now, &changed), None, "byte {at}");
            assert_eq!(tickets.0.decrypt_at(now, &ticket[..at]), None, "{at} bytes");
        }
    }
}
