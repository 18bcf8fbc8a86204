//! Control groups of pools (cgroups(7), version 2), which limit all processes of a pool together.
//!
//! ```text
//! BASE               the control group that the server was started in
//!  ├─ sendoff-server   supervisor, front, and the rest: a group that divides its
//!  │                  resources must have no processes itself
//!  ├─ pool-www         master and workers of pool www
//!  └─ pool-www.2       the same after a reload or an upgrade, while pool-www
//!                      finishes its requests
//! ```
//!
//! A server whose pools have no shared limits makes no control groups.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sendoff_config::{GroupLimits, PoolConfig};
use sendoff_control::GroupUse;
use sendoff_sandbox::MemoryEvents;

/// The group of the server's own processes.
const SERVER: &str = "sendoff-server";
/// Prefix of the names of pools' groups.
const POOL: &str = "pool-";
/// Maximum number of characters of a pool's name in the name of its group.
const MAX_NAME: usize = 100;
/// Maximum number of groups of one pool: each reload adds one while the old workers are still busy.
const MOST_OF_A_POOL: usize = 100;
/// Attempts to move processes: new ones may start during each attempt.
const MOVES: usize = 5;
/// Time limit for processes to leave a group at the end of the server, and the interval of
/// checking.
const LEAVING: Duration = Duration::from_millis(500);
const LEAVING_CHECK: Duration = Duration::from_millis(10);
/// The period of `cpu.max`, in microseconds: the kernel's default.
const PERIOD: u64 = 100_000;

/// Advice if the server may not make control groups.
const REMEDY: &str = "start the server by systemd with Delegate=yes in its unit (docs/security.md)";

/// Makes the control groups of pools.
#[derive(Debug, Default)]
pub(crate) struct ControlGroups {
    /// The group in which the pools' groups are made; `None` if none was needed, or none could be
    /// made.
    base: RefCell<Option<Rc<Base>>>,
    /// Another server, which this one replaces, also has groups there.
    has_predecessor: bool,
}

/// The control group that contains the groups of the pools.
#[derive(Debug)]
struct Base {
    folder: PathBuf,
    /// Groups that could not be removed yet, because they still had processes.
    left: RefCell<Vec<PathBuf>>,
}

/// The control group of a pool. Dropping the value removes the group as soon as its processes have
/// ended.
#[derive(Debug)]
pub(crate) struct PoolGroup {
    base: Rc<Base>,
    folder: PathBuf,
    limits: GroupLimits,
    /// Controllers that are not available, so their limits have no effect.
    missing: Vec<&'static str>,
}

impl ControlGroups {
    /// `has_predecessor`: see the field of this name.
    pub(crate) fn new(has_predecessor: bool) -> Self {
        Self { base: RefCell::default(), has_predecessor }
    }

    /// A control group for each of these pools whose processes share limits. One line of the log
    /// names the limits that have no effect.
    pub(crate) fn of<'p>(
        &self,
        pools: impl Iterator<Item = &'p PoolConfig>,
    ) -> Vec<Option<PoolGroup>> {
        let mut refused: Vec<(String, Vec<&str>)> = Vec::new();
        let groups = pools.map(|pool| {
            if pool.group.is_none() {
                return None;
            }
            let (group, why) = match self.claim(pool) {
                Ok((group, why)) => (Some(group), why),
                Err(why) => (None, Some(why)),
            };
            if let Some(why) = why {
                match refused.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, names)) => names.push(&pool.name),
                    None => refused.push((why, vec![&pool.name])),
                }
            }
            group
        });
        let groups = groups.collect();
        for (why, names) in refused {
            let names = names.join(", ");
            tracing::warn!(
                "total_memory, total_cpu and total_processes do not hold for {names}: {why}; {REMEDY}"
            );
        }
        groups
    }

    /// Makes a control group for a pool. Also returns a sentence about limits that have no effect
    /// there.
    fn claim(&self, pool: &PoolConfig) -> Result<(PoolGroup, Option<String>), String> {
        let base = match &*self.base.borrow() {
            Some(base) => Rc::clone(base),
            None => Rc::new(Base::find()?),
        };
        let missing = base.enable(pool.group)?;
        if self.base.borrow().is_none() && !self.has_predecessor {
            base.clean();
        }
        *self.base.borrow_mut() = Some(Rc::clone(&base));
        base.remove_left();
        let failed = |error: io::Error| {
            format!("no control group can be made below {}: {error}", base.folder.display())
        };
        let folder = base.new_folder(&pool.name).map_err(failed)?;
        let group = PoolGroup { base, folder, limits: pool.group, missing };
        group.limit().map_err(|error| {
            format!("{} does not take the limits: {error}", group.folder.display())
        })?;
        let missing = &group.missing;
        let why = (!missing.is_empty()).then(|| {
            let folder = group.base.folder.display();
            format!("the control group {folder} has no controller {}", missing.join(", "))
        });
        Ok((group, why))
    }
}

/// The controllers that these limits need.
fn controllers(limits: GroupLimits) -> impl Iterator<Item = &'static str> {
    let wanted = [
        ("memory", limits.memory.is_some()),
        ("cpu", limits.cpu.is_some()),
        ("pids", limits.processes.is_some()),
    ];
    wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| name)
}

impl Base {
    /// The control group of this process, or its parent if a server has made the group for itself.
    fn find() -> Result<Self, String> {
        let folder = sendoff_sandbox::own_group()?;
        let folder = match folder.parent() {
            Some(above) if folder.ends_with(SERVER) => above.to_owned(),
            _ => folder,
        };
        Ok(Self { folder, left: RefCell::default() })
    }

    /// Enables the controllers for the child groups. Returns the controllers that are missing.
    fn enable(&self, limits: GroupLimits) -> Result<Vec<&'static str>, String> {
        let shown = self.folder.display();
        let failed = |error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => format!("other processes are in the control group {shown}, too"),
            _ => format!("the control group {shown} may not be divided: {error}"),
        };
        let list = |file| fs::read_to_string(self.folder.join(file)).map_err(failed);
        let (there, on) = (list("cgroup.controllers")?, list("cgroup.subtree_control")?);
        let has = |list: &str, name: &str| list.split_whitespace().any(|known| known == name);
        let (wanted, missing): (Vec<_>, Vec<_>) =
            controllers(limits).partition(|name| has(&there, name));
        if wanted.is_empty() {
            return Err(format!(
                "the control group {shown} has no controller {}",
                missing.join(", ")
            ));
        }
        let wanted = wanted.into_iter().filter(|name| !has(&on, name));
        let text: Vec<_> = wanted.map(|name| format!("+{name}")).collect();
        let divide = || match &text[..] {
            [] => Ok(()),
            text => fs::write(self.folder.join("cgroup.subtree_control"), text.join(" ")),
        };
        let mut done = Err(Errno::BUSY.into());
        for _ in 0..=MOVES {
            if self.is_divisible() {
                done = divide();
            }
            if !matches!(&done, Err(error) if Errno::from_io_error(error) == Some(Errno::BUSY)) {
                break;
            }
            self.move_own(&self.folder, &self.folder.join(SERVER)).map_err(failed)?;
        }
        done.map(|()| missing).map_err(|error| {
            self.move_back();
            failed(error)
        })
    }

    /// True if the group has no processes, or is the root group, which may have some. The kernel
    /// refuses to distribute memory in a group with processes (cgroups(7), "no internal processes"
    /// rule). It would distribute processors and numbers of processes only among threaded groups,
    /// which no process can enter.
    fn is_divisible(&self) -> bool {
        let is_root = !self.folder.join("cgroup.type").exists();
        is_root
            || fs::read_to_string(self.folder.join("cgroup.procs")).is_ok_and(|all| all.is_empty())
    }

    /// Moves this server's processes from one group to another, which is made if it is missing.
    fn move_own(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::create_dir(to) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let processes = fs::read_to_string(from.join("cgroup.procs"))?;
        for process in processes.lines().filter_map(|line| line.parse().ok()) {
            if is_own(process) {
                match fs::write(to.join("cgroup.procs"), process.to_string()) {
                    Err(error) if Errno::from_io_error(&error) != Some(Errno::SRCH) => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Restores the base to the state before a server made its group there, unless another server
    /// has processes in it. No controller was enabled in a base that had processes.
    fn move_back(&self) {
        let own = self.folder.join(SERVER);
        if !own.is_dir() {
            return;
        }
        let others = |processes: String| {
            processes.lines().any(|process| process.parse().is_ok_and(|process| !is_own(process)))
        };
        if self.pools().next().is_some()
            || fs::read_to_string(own.join("cgroup.procs")).is_ok_and(others)
        {
            return;
        }
        // Each step may fail, and then the later ones fail too; the only consequence is an empty
        // group.
        let controllers = fs::read_to_string(self.folder.join("cgroup.subtree_control"));
        for name in controllers.unwrap_or_default().split_whitespace() {
            let _ = fs::write(self.folder.join("cgroup.subtree_control"), format!("-{name}"));
        }
        let _ = self.move_own(&own, &self.folder);
        let _ = fs::remove_dir(&own);
    }

    /// The existing groups of pools.
    fn pools(&self) -> impl Iterator<Item = PathBuf> {
        let all = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let pools =
            all.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(POOL.as_bytes()));
        pools.map(|entry| entry.path()).filter(|path| path.is_dir())
    }

    /// Removes empty groups that a killed server has left behind. Groups with processes stay.
    fn clean(&self) {
        self.pools().for_each(|pool| drop(fs::remove_dir(pool)));
    }

    /// Makes a group for a pool, named after it; characters that are unsafe in a folder's name
    /// become `_`.
    fn new_folder(&self, pool: &str) -> io::Result<PathBuf> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let plain = pool.chars().map(|c| if is_plain(c) { c } else { '_' });
        let name: String = plain.take(MAX_NAME).collect();
        for number in 1..=MOST_OF_A_POOL {
            let suffix = if number == 1 { String::new() } else { format!(".{number}") };
            let folder = self.folder.join(format!("{POOL}{name}{suffix}"));
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done.map(|()| folder),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes groups whose processes have ended.
    fn remove_left(&self) {
        self.left.borrow_mut().retain(|folder| {
            let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
            !fs::remove_dir(folder).map_or_else(is_gone, |()| true)
        });
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let until = Instant::now() + LEAVING;
        self.remove_left();
        // Processes that the kernel kills at the death of their master take a moment to end.
        while !self.left.borrow().is_empty() && Instant::now() < until {
            std::thread::sleep(LEAVING_CHECK);
            self.remove_left();
        }
        self.move_back();
    }
}

impl PoolGroup {
    /// Sets the limits whose controllers are available.
    fn limit(&self) -> io::Result<()> {
        let GroupLimits { memory, cpu, processes } = self.limits;
        let time = cpu.map(|parts| format!("{} {PERIOD}", u64::from(parts) * PERIOD / 1000));
        let limits = [
            ("memory", "memory.max", memory.map(|bytes| bytes.to_string())),
            ("cpu", "cpu.max", time),
            ("pids", "pids.max", processes.map(|number| number.to_string())),
        ];
        for (controller, file, value) in limits {
            let value = value.filter(|_| !self.missing.contains(&controller));
            value.map(|value| fs::write(self.folder.join(file), value)).transpose()?;
        }
        Ok(())
    }

    /// Opens the group's folder for a master, which will enter the group.
    ///
    /// # Errors
    /// The group was removed, and cannot be made again.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        if let Err(error) = fs::create_dir(&self.folder) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
        } else {
            self.limit()?;
        }
        Ok(File::open(&self.folder)?.into())
    }

    /// Resources that the pool's processes use.
    pub(crate) fn used(&self) -> GroupUse {
        let read = |file: &str| fs::read_to_string(self.folder.join(file)).ok();
        let number = |file| read(file)?.trim().parse().ok();
        let events = read("memory.events").unwrap_or_default();
        GroupUse {
            memory: number("memory.current"),
            processes: number("pids.current"),
            out_of_memory: MemoryEvents::parse(&events).ended,
        }
    }
}

impl Drop for PoolGroup {
    fn drop(&mut self) {
        self.base.left.borrow_mut().push(std::mem::take(&mut self.folder));
        self.base.remove_left();
    }
}

/// True for this process, its children, and their descendants.
fn is_own(process: u32) -> bool {
    let parent = |process: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The line is "12 (name) S 1 ...", and the name may contain parentheses.
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let own = std::process::id();
    std::iter::successors(Some(process), |process| parent(*process).filter(|parent| *parent > 0))
        .any(|process| process == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_processes_are_known_by_their_parents() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_own(std::process::id()) && is_own(child.id()));
        assert!(!is_own(1) && !is_own(u32::MAX));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
