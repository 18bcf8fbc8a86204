//! Requests that went to an application over FastCGI and whose bodies may come on a link
//! (`docs/handover.md` §8).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::rc::{Rc, Weak};

use sendoff_fastcgi::channel::Secret;
use sendoff_upstream::inbox::Inbox;

/// Returns 128 random bits.
///
/// # Errors
/// The kernel has no random bits.
pub fn random_secret() -> io::Result<Secret> {
    let mut raw = [0; 16];
    // getrandom(2) returns up to 256 bytes at once or fails.
    rustix::rand::getrandom(&mut raw, rustix::rand::GetRandomFlags::empty())?;
    Ok(Secret(raw))
}

/// The number of secrets of one system call: getrandom(2) returns up to 256 bytes at once or fails.
const DRAWN: usize = 16;

/// The requests of one event loop whose bodies may come on a link.
#[derive(Debug, Default)]
pub struct Claims {
    open: RefCell<HashMap<Secret, Weak<Claim>>>,
    /// Secrets of the next claims.
    drawn: RefCell<Vec<Secret>>,
}

/// A request whose body may come on a link. Dropped before the body has ended, it gives the body
/// up.
pub struct Claim {
    secret: Secret,
    claims: Rc<Claims>,
    inbox: Rc<Inbox>,
    /// Gives the body up on the link where it was claimed; `None` until then.
    give_up: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl Claims {
    /// A new claim.
    ///
    /// # Errors
    /// The kernel has no random bits.
    pub fn add(self: &Rc<Self>) -> io::Result<Rc<Claim>> {
        let secret = self.draw()?;
        let claim = Rc::new(Claim {
            secret,
            claims: Rc::clone(self),
            inbox: Rc::default(),
            give_up: RefCell::default(),
        });
        self.open.borrow_mut().insert(secret, Rc::downgrade(&claim));
        Ok(claim)
    }

    /// 128 random bits that no other claim has.
    fn draw(&self) -> io::Result<Secret> {
        let mut drawn = self.drawn.borrow_mut();
        if drawn.is_empty() {
            let mut raw = [0; 16 * DRAWN];
            rustix::rand::getrandom(&mut raw, rustix::rand::GetRandomFlags::empty())?;
            drawn.extend(raw.as_chunks().0.iter().copied().map(Secret));
        }
        drawn.pop().ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Takes the claim with this secret and returns the inbox for its body; `None` if the request
    /// is unknown or gone. `give_up` is called with that inbox if the body is no longer wanted.
    pub(super) fn take(
        &self,
        secret: Secret,
        give_up: impl FnOnce(&Rc<Inbox>) + 'static,
    ) -> Option<Rc<Inbox>> {
        let claim = self.open.borrow_mut().remove(&secret)?.upgrade()?;
        let inbox = Rc::clone(&claim.inbox);
        *claim.give_up.borrow_mut() = Some(Box::new(move || give_up(&inbox)));
        claim.inbox.wake_reader();
        Some(Rc::clone(&claim.inbox))
    }
}

impl Claim {
    /// The secret that the application names in the head of its framed response.
    pub fn secret(&self) -> Secret {
        self.secret
    }

    /// Body received on the link.
    pub fn inbox(&self) -> &Rc<Inbox> {
        &self.inbox
    }

    /// True once the application has begun to answer on a link.
    pub fn is_claimed(&self) -> bool {
        self.give_up.borrow().is_some()
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("is_claimed", &self.is_claimed()).finish_non_exhaustive()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.open.borrow_mut().remove(&self.secret);
        if let Some(give_up) = self.give_up.take()
            && !self.inbox.has_ended()
        {
            give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_has_a_secret_of_its_own() {
        let claims = Rc::new(Claims::default());
        let all: Vec<_> = (0..3 * DRAWN + 1).map(|_| claims.add().unwrap()).collect();
        assert_eq!(claims.open.borrow().len(), all.len());
        drop(all);
        assert!(claims.open.borrow().is_empty());
    }
}
