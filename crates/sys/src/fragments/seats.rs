//! Seats: the permits to make fragments.

use super::layout::SEATS;
use super::locks::lock_until;
use super::{Fragments, hash};

/// The permit to make a fragment.
pub(super) enum Permit {
    Taken(usize),
    /// The process that holds this seat makes it.
    Busy(usize),
    /// All seats are taken.
    None,
}

impl Fragments {
    /// Takes the seat for making a fragment.
    pub(super) fn take(&self, key: &[u8]) -> Permit {
        let Some(_table) = self.table() else { return Permit::None };
        let hash = hash(key);
        // SAFETY: in the memory, under the lock.
        let hash_at = |seat| unsafe { (*self.seat_at(seat)).hash };
        let known = (0..SEATS).find(|seat| hash_at(*seat) == hash);
        let mut candidates = match known {
            Some(seat) => seat..seat + 1,
            None => 0..SEATS,
        };
        let taken = candidates.find(|seat| self.try_seat(*seat));
        if let Some(seat) = taken {
            // SAFETY: as above.
            unsafe { (*self.seat_at(seat)).hash = hash };
            return Permit::Taken(seat);
        }
        known.map_or(Permit::None, Permit::Busy)
    }

    /// Locks a seat if no thread holds it.
    fn try_seat(&self, seat: usize) -> bool {
        // SAFETY: a mutex in the memory.
        unsafe {
            let held = &raw mut (*self.seat_at(seat)).held;
            match libc::pthread_mutex_trylock(held) {
                0 => true,
                libc::EOWNERDEAD => libc::pthread_mutex_consistent(held) == 0,
                _ => false,
            }
        }
    }

    /// Waits for the process that makes a fragment. False: it takes too long, or this thread itself
    /// makes it.
    pub(super) fn wait(&self, seat: usize, key: &[u8], deadline: u64) -> bool {
        // SAFETY: a mutex in the memory.
        let held = unsafe { &raw mut (*self.seat_at(seat)).held };
        match lock_until(held, deadline) {
            0 => {}
            // SAFETY: this thread holds the seat.
            libc::EOWNERDEAD if unsafe { libc::pthread_mutex_consistent(held) } == 0 => {}
            _ => return false,
        }
        let _table = self.table();
        // SAFETY: this thread holds the seat. Its last holder has made its fragment, or has died.
        unsafe {
            let seat = self.seat_at(seat);
            if (*seat).hash == hash(key) {
                (*seat).hash = 0;
            }
            libc::pthread_mutex_unlock(held);
        }
        true
    }

    pub(super) fn release(&self, seat: usize) {
        let _table = self.table();
        // SAFETY: this thread holds the seat.
        unsafe {
            let seat = self.seat_at(seat);
            (*seat).hash = 0;
            libc::pthread_mutex_unlock(&raw mut (*seat).held);
        }
    }
}
