//! Landlock: folders in which a process may change files, and processes that it may signal
//! (landlock(7)).

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// Newest version of the rules that is used. An older kernel enforces the rules that it knows.
const RULES: ABI = ABI::V6;

/// Degree to which the kernel enforces the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landlock {
    /// All rules are enforced.
    Whole,
    /// Some rules are enforced: the kernel is older than the others.
    Partial,
    /// No rule is enforced: the kernel was built, or started, without Landlock.
    Missing,
}

/// Restricts this thread, and the threads that it starts: they execute no programs, and make,
/// change and remove files only beneath these folders. Files that are already open stay as they
/// are. They signal only their own process and its children, and bind no TCP port. Folders that
/// cannot be opened are left out. Reading is not restricted.
///
/// # Errors
/// The kernel refuses, for example because the process may still gain privileges.
pub fn write_only_beneath(folders: &[&Path]) -> io::Result<Landlock> {
    let rules = || {
        let mut rules = Ruleset::default()
            .handle_access(writing() | AccessFs::Execute)?
            .handle_access(AccessNet::BindTcp)?
            .scope(Scope::Signal)?
            .create()?;
        for folder in folders {
            if let Ok(folder) = PathFd::new(folder) {
                rules = rules.add_rule(PathBeneath::new(folder, writing()))?;
            }
        }
        Ok(rules)
    };
    enforce(rules)
}

/// Restricts this thread, and the threads that it starts, to signalling their own process and its
/// children.
///
/// # Errors
/// As [`write_only_beneath`].
pub fn only_signal_children() -> io::Result<Landlock> {
    enforce(|| Ruleset::default().scope(Scope::Signal)?.create())
}

/// True if this kernel has rules for files.
#[must_use]
pub fn kernel_knows_landlock() -> bool {
    let oldest = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1));
    oldest.and_then(Ruleset::create).is_ok()
}

/// The kinds of access that change files.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_all(RULES) & !(AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir)
}

fn enforce(rules: impl FnOnce() -> Result<RulesetCreated, RulesetError>) -> io::Result<Landlock> {
    let status = rules().and_then(RulesetCreated::restrict_self).map_err(io::Error::other)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Whole,
        RulesetStatus::PartiallyEnforced => Landlock::Partial,
        RulesetStatus::NotEnforced => Landlock::Missing,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind::PermissionDenied;
    use std::process::Command;
    use std::thread;

    use rustix::process::{Pid, test_kill_process};

    use super::*;

    /// Rules apply to a thread, and to the threads that it starts.
    #[test]
    fn only_what_is_beneath_the_folders_is_written() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("a"), "text").unwrap();
        let parent = rustix::process::getppid().unwrap();
        let confined = thread::spawn(move || {
            let enforced = write_only_beneath(&[own.path(), Path::new("/no/such/folder")]).unwrap();
            if !kernel_knows_landlock() {
                assert_eq!(enforced, Landlock::Missing);
                return;
            }
            fs::create_dir(own.path().join("new")).unwrap();
            fs::write(own.path().join("a"), "text").unwrap();
            fs::rename(own.path().join("a"), own.path().join("new/a")).unwrap();
            tempfile::tempfile_in(own.path()).unwrap();
            let there = other.path().join("a");
            assert_eq!(fs::read_to_string(&there).unwrap(), "text");
            let refused = |done: io::Result<()>| done.unwrap_err().kind() == PermissionDenied;
            assert!(refused(fs::write(&there, "other")));
            assert!(refused(fs::remove_file(&there)));
            assert!(refused(fs::write(other.path().join("b"), "other")));
            assert!(refused(Command::new("true").status().map(drop)));
            if enforced == Landlock::Whole {
                assert!(signals_no_process(parent));
            }
        });
        confined.join().unwrap();
    }

    #[test]
    fn a_process_that_signals_only_children_is_not_confined_otherwise() {
        let parent = rustix::process::getppid().unwrap();
        let confined = thread::spawn(move || {
            if only_signal_children().unwrap() == Landlock::Whole {
                assert!(signals_no_process(parent));
            }
            let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
            child.kill().unwrap();
            assert!(!child.wait().unwrap().success());
        });
        confined.join().unwrap();
    }

    fn signals_no_process(parent: Pid) -> bool {
        test_kill_process(parent) == Err(rustix::io::Errno::PERM)
    }
}
