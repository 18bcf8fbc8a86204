//! The rights that the kernel reports for the front.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The rights of the front, as far as `/proc` shows them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Confinement {
    /// The user it runs as, who may signal it.
    user: u32,
    /// The user whose files it opens.
    files_of: u32,
    /// True if executing a program cannot give it privileges.
    no_new_privileges: bool,
    /// True if it has no capability.
    no_capabilities: bool,
    /// True if its system calls are filtered.
    system_calls: bool,
    /// True if Landlock lets it change files only in its own folders, and execute none.
    files: bool,
}

impl Confinement {
    /// The rights of a process; `None` if it has ended, or if there is no /proc.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Self::parse(&status, sendoff_sandbox::kernel_knows_landlock())
    }

    fn parse(status: &str, files: bool) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = status.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
        };
        let mut users = field("Uid")?.split_whitespace().map(str::parse);
        Some(Self {
            user: users.next()?.ok()?,
            files_of: users.next_back()?.ok()?,
            no_new_privileges: field("NoNewPrivs")? == "1",
            no_capabilities: field("CapPrm")?.bytes().all(|digit| digit == b'0'),
            system_calls: field("Seccomp") == Some("2"),
            files,
        })
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, files_of, .. } = self;
        write!(f, "user {user}")?;
        if files_of != user {
            write!(f, ", opens files as user {files_of}")?;
        }
        let parts = [
            (self.no_new_privileges, "new privileges"),
            (self.no_capabilities, "capabilities"),
            (self.system_calls, "system calls"),
            (self.files, "files (the kernel has no Landlock)"),
        ];
        let open: Vec<_> = parts.iter().filter(|(is, _)| !is).map(|(_, what)| *what).collect();
        if open.is_empty() {
            f.write_str(", confined")
        } else {
            write!(f, ", not confined: {}", open.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tsendoff\nUid:\t61184\t61184\t61184\t33\nCapPrm:\t0000000000000000\n\
                          NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn what_is_not_confined_is_named() {
        let shown = |status: &str, files| Confinement::parse(status, files).unwrap().to_string();
        assert_eq!(shown(STATUS, true), "user 61184, opens files as user 33, confined");
        let open = STATUS.replace("CapPrm:\t0", "CapPrm:\t8").replace("Seccomp:\t2", "Seccomp:\t0");
        assert_eq!(
            shown(&open.replace("33", "61184"), false),
            "user 61184, not confined: capabilities, system calls, files (the kernel has no Landlock)"
        );
        assert!(Confinement::parse("", true).is_none());
    }
}
