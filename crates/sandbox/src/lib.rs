//! Rights that the server's processes give up before they handle foreign data (`docs/security.md`).
//!
//! The parts are independent: if the kernel lacks one, the server runs with the others.

mod calls;
mod group;
mod memory;
mod paths;

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_no_new_privs,
};

pub use calls::allow_only_known;
pub use group::{MemoryEvents, PoolGroup, own_group};
pub use memory::{AtStart, MemoryWatch, OutOfMemory, prefer_when_out_of_memory};
pub use paths::{Landlock, kernel_knows_landlock, only_signal_children, write_only_beneath};

/// Hides this process from other processes of its user: they can neither trace it nor read its
/// memory, environment and descriptors, and it leaves no core file. Root still can. A change of
/// user or the execution of a program undoes this.
///
/// # Errors
/// The errors of prctl(2).
pub fn hide() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Undoes [`hide`], for a child that runs programs which its user may inspect.
///
/// # Errors
/// The errors of prctl(2).
pub fn show() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Gives up the privileges that executing a program could bring: setuid privileges and every
/// capability. Present capabilities stay.
///
/// # Errors
/// The kernel refuses.
pub fn forgo_new_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    if capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all() {
            match remove_capability_from_bounding_set(capability) {
                // An older kernel does not know the capability.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::process::dumpable_behavior;

    use super::*;

    #[test]
    fn what_hides_can_show_itself() {
        hide().unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        show().unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::Dumpable);
    }

    /// Privileges belong to a thread.
    #[test]
    fn nothing_is_left_to_gain() {
        let forgone = std::thread::spawn(|| {
            forgo_new_privileges().unwrap();
            assert!(rustix::thread::no_new_privs().unwrap());
            let bounding =
                |capability| rustix::thread::capability_is_in_bounding_set(capability).unwrap();
            let mut dropped = CapabilitySet::all().iter().filter(|one| !bounding(*one));
            let has_dropped = dropped.next().is_some();
            assert_eq!(has_dropped, rustix::process::geteuid().is_root());
        });
        forgone.join().unwrap();
    }
}
