//! Held files and their leases.
//!
//! ```text
//!          drop()                    every link answered RELEASED
//!  Stands ────────▶ Releasing ──────────────────────────────────┐
//!    │                  │ break: RECALL                         ▼
//!    │ break: RECALL    ▼        every link answered, or 5 s    lease and descriptor given up;
//!    └─────────────▶ Broken ───────────────────────────────▶    the entry goes with the mapping
//!
//!  Sealed (a blob, see `blob.rs`) ── drop(): RELEASE, which is not answered ──▶ gone
//! ```
//!
//! All functions are called under the lock of `SharedOutput`, which decides the races:
//! - A lease is taken, checked and entered under the lock. If it breaks meanwhile, the helper
//!   thread finds the entry when it gets the lock; the writer waits until then. If the hold fails,
//!   closing the descriptor ends the lease, and the pending signal finds no entry.
//! - A descriptor number may have been reused when its signal is handled. So a signal is only a
//!   hint; the lease itself is queried (`F_GETLEASE`).
//! - A break between `file_use` and `write_file`: the file was in use, so a private copy lies at
//!   the same address, and `write_file` sends its bytes.
//! - A break while a batch is half sent: segments whose first byte has been sent are in the front's
//!   custody, and the `RECALL` follows them; the other segments become bytes. An `OPEN` whose
//!   descriptor has left stays, or the front would assign the descriptor to another file.
//! - Ids are assigned in ascending order and never reused; when they run out, files are no longer
//!   held.
//! - A file is dropped while its recall is pending: the entry stays, without its mapping, until all
//!   links have answered.
//! - A forked child has copies of the descriptors, but no helper thread, and must not change the
//!   leases. So a lease is ended by `F_UNLCK`, not only by closing the descriptor. Files that were
//!   mapped at the fork may change in the child. If the child outlives the worker without calling
//!   `exec`, writers wait for the kernel's time limit.
//! - The process dies: no lease is unlocked. The front shares the open file, copies what it has to
//!   send, and closes it, which ends the lease.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Stat, Timespec, fstat};
use rustix::io::Errno;
use rustix::thread::Pid;
use sendoff_fastcgi::handover::FileId;
use sendoff_link::worker::Queue;
use sendoff_sys::epoch;
use sendoff_sys::file::read_range;
use sendoff_sys::lease;
use sendoff_sys::mapping::MappedFile;
use sendoff_sys::memfd::Sealed;

use crate::log;
use crate::numbers::{most_held, out_of_the_way};

/// Time for the front to answer `RECALL`, from when the worker notices the break. A writer is held
/// for 5 s at most (`docs/handover.md` §3); the difference is for noticing the break and giving the
/// lease up. The kernel lets the writer go after 45 s (`fs.lease-break-time`).
const RECALL_TIMEOUT: Duration = Duration::from_millis(4900);

/// The share of [`RECALL_TIMEOUT`] for the worker's own copies. Copying 1 GiB took 0.3 s.
const COPY_LIMIT: Duration = Duration::from_secs(4);

/// Bound, in bytes, on the unsent segments of one file, or the size of the file if that is larger:
/// then the queue is sent. A break turns unsent segments into bytes, and a script can name a file
/// of 20 MB a thousand times.
pub(crate) const MOST_UNSENT: u64 = 64 << 20;

/// The version of a file that the application wants held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldVersion {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub mtime: Timespec,
    /// Time of the last change of the inode.
    pub ctime: Timespec,
}

impl HeldVersion {
    fn fits(&self, stat: &Stat) -> bool {
        let time = |time: Timespec| (i128::from(time.tv_sec), i128::from(time.tv_nsec));
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && u64::try_from(stat.st_size) == Ok(self.size)
            && time(self.mtime) == (stat.st_mtime.into(), stat.st_mtime_nsec.into())
            && time(self.ctime) == (stat.st_ctime.into(), stat.st_ctime_nsec.into())
    }
}

/// A set of a worker's links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinkSet([u64; 4]);

impl LinkSet {
    pub(crate) fn insert(&mut self, link: usize) {
        self.0[link / 64] |= 1 << (link % 64);
    }

    pub(crate) fn remove(&mut self, link: usize) {
        self.0[link / 64] &= !(1 << (link % 64));
    }

    pub(crate) fn contains(self, link: usize) -> bool {
        self.0[link / 64] & (1 << (link % 64)) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..256).filter(move |link| self.contains(*link))
    }
}

#[derive(Debug)]
pub(crate) struct Held {
    lease: LeaseState,
    /// `None` after the application has dropped the mapping.
    region: Option<MappedFile>,
    /// The value of `Files::current_use` when the file was used last.
    used_in: u64,
    pub(crate) size: u64,
    /// The links on which the front knows the file or, in `Releasing` and `Broken`, has not
    /// answered yet.
    pub(crate) links: LinkSet,
}

#[derive(Debug)]
enum LeaseState {
    Stands(OwnedFd),
    Releasing(OwnedFd),
    Broken {
        fd: OwnedFd,
        deadline: Instant,
    },
    Ended,
    /// A sealed memory file, which needs no lease. The contents are mapped here instead of in a
    /// region.
    Sealed(Sealed),
}

impl Held {
    pub(crate) fn sealed(contents: Sealed) -> Self {
        let size = contents.bytes().len() as u64;
        let lease = LeaseState::Sealed(contents);
        Self { lease, region: None, used_in: 0, size, links: LinkSet::default() }
    }

    pub(crate) fn as_sealed(&self) -> Option<&Sealed> {
        match &self.lease {
            LeaseState::Sealed(contents) => Some(contents),
            _ => None,
        }
    }

    pub(crate) fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.size)
    }

    pub(crate) fn stands(&self) -> bool {
        matches!(self.lease, LeaseState::Stands(_) | LeaseState::Sealed(_))
    }

    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        match &self.lease {
            LeaseState::Stands(fd) | LeaseState::Releasing(fd) | LeaseState::Broken { fd, .. } => {
                Some(fd)
            }
            LeaseState::Sealed(contents) => Some(contents.fd()),
            LeaseState::Ended => None,
        }
    }

    /// The contents, if they are mapped readable.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.lease {
            LeaseState::Sealed(contents) => Some(contents.bytes()),
            _ => self.region.as_ref()?.bytes(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Files {
    held: HashMap<FileId, Held>,
    last_id: u32,
    /// Incremented when all files cease to be in use; a file is in use if its `used_in` equals
    /// this.
    current_use: u64,
    most: usize,
    /// When all leases were last checked; see `guard.rs`.
    pub(crate) looked_at: Instant,
}

impl Default for Files {
    fn default() -> Self {
        let looked_at = Instant::now();
        Self { held: HashMap::new(), last_id: 0, current_use: 1, most: most_held(), looked_at }
    }
}

impl Files {
    pub(crate) fn get(&self, file: FileId) -> Option<&Held> {
        self.held.get(&file)
    }

    pub(crate) fn get_mut(&mut self, file: FileId) -> Option<&mut Held> {
        self.held.get_mut(&file)
    }

    /// Holds a file. The kernel signals the thread `helper` when the lease breaks.
    pub(crate) fn hold(
        &mut self,
        fd: OwnedFd,
        mut region: MappedFile,
        identity: HeldVersion,
        helper: Pid,
    ) -> io::Result<FileId> {
        let id = self.next_id()?;
        let fd = out_of_the_way(fd);
        lease::take(fd.as_fd(), helper)?;
        // With the lease no process can write, and earlier writes show in `fstat`.
        if !identity.fits(&fstat(&fd)?) {
            return Err(Errno::STALE.into());
        }
        region.map(fd.as_fd())?;
        let held = Held {
            lease: LeaseState::Stands(fd),
            region: Some(region),
            used_in: self.current_use,
            size: identity.size,
            links: LinkSet::default(),
        };
        Ok(self.enter(id, held))
    }

    /// The id of the next file. Fails if no further file may be held.
    pub(crate) fn next_id(&self) -> io::Result<FileId> {
        if self.held.len() >= self.most {
            return Err(Errno::MFILE.into());
        }
        Ok(FileId(self.last_id.checked_add(1).ok_or(Errno::OVERFLOW)?))
    }

    pub(crate) fn enter(&mut self, id: FileId, held: Held) -> FileId {
        self.last_id = id.0;
        self.held.insert(id, held);
        id
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.values()
    }

    /// Marks the file as in use; `false` if its lease has broken.
    pub(crate) fn use_file(&mut self, file: FileId) -> bool {
        let current_use = self.current_use;
        self.held.get_mut(&file).is_some_and(|held| {
            let stands = held.stands();
            if stands {
                held.used_in = current_use;
            }
            stands
        })
    }

    pub(crate) fn unuse_all(&mut self) {
        self.current_use += 1;
    }

    /// Drops the mapping. Returns the links on which the file must be released.
    pub(crate) fn drop_mapping(&mut self, file: FileId) -> LinkSet {
        let Some(held) = self.held.get_mut(&file) else { return LinkSet::default() };
        epoch::advance();
        held.region = None;
        let mut tell = LinkSet::default();
        if matches!(held.lease, LeaseState::Sealed(_)) {
            return self.held.remove(&file).map(|held| held.links).unwrap_or_default();
        }
        held.lease = match std::mem::replace(&mut held.lease, LeaseState::Ended) {
            LeaseState::Stands(fd) => {
                tell = held.links;
                LeaseState::Releasing(fd)
            }
            other => other,
        };
        self.remove_if_done(file);
        tell
    }

    /// The held files that have been deleted, are not in use, and are not being released.
    pub(crate) fn deleted(&self) -> Vec<FileId> {
        let idle = self.held.iter().filter(|(_, held)| held.used_in != self.current_use);
        let deleted = idle
            .filter(|(_, held)| matches!(&held.lease, LeaseState::Stands(fd) if is_deleted(fd)));
        deleted.map(|(file, _)| *file).collect()
    }

    /// True if any held file has a name that may be deleted.
    pub(crate) fn any_deletable(&self) -> bool {
        self.held.values().any(|held| matches!(held.lease, LeaseState::Stands(_)))
    }

    /// Releases a file while the application still has its mapping, which becomes inaccessible.
    /// Returns the links on which the file must be released.
    pub(crate) fn release(&mut self, file: FileId) -> LinkSet {
        let Some(held) = self.held.get_mut(&file) else { return LinkSet::default() };
        // If the mapping cannot be made inaccessible, the file stays held, which does no harm.
        if held.region.as_mut().is_some_and(|region| region.forbid().is_err()) {
            return LinkSet::default();
        }
        epoch::advance();
        held.lease = match std::mem::replace(&mut held.lease, LeaseState::Ended) {
            LeaseState::Stands(fd) => LeaseState::Releasing(fd),
            other => other,
        };
        let tell = held.links;
        self.remove_if_done(file);
        tell
    }

    /// Drops the mapping in a forked child. The lease belongs to the parent: an unlock would end it
    /// for both.
    pub(crate) fn drop_in_child(&mut self, file: FileId) {
        if let Some(held) = self.held.get_mut(&file) {
            held.region = None;
        }
    }

    fn remove_if_done(&mut self, file: FileId) {
        if let Some(held) = self.held.get_mut(&file) {
            let answered = held.links.is_empty() && !held.stands();
            if answered {
                end(&mut held.lease);
            }
            if matches!(held.lease, LeaseState::Ended) && held.region.is_none() {
                self.held.remove(&file);
            }
        }
    }

    /// The front has answered `RELEASE` or `RECALL` on a link; `false` if the link owed no answer.
    pub(crate) fn answered(&mut self, file: FileId, link: usize) -> bool {
        match self.held.get_mut(&file) {
            Some(Held { lease: LeaseState::Ended, .. }) => true,
            // The lease was given up before the front read `RECALL`.
            None => file.0 <= self.last_id,
            Some(held) if held.stands() || link >= 256 || !held.links.contains(link) => false,
            Some(held) => {
                held.links.remove(link);
                self.remove_if_done(file);
                true
            }
        }
    }

    /// The held files whose lease is newly found to be breaking or ended.
    pub(crate) fn newly_broken(&self, told: lease::LeaseBreak) -> Vec<FileId> {
        let concerned = |fd: &OwnedFd| match told {
            lease::LeaseBreak::Broken(number) => fd.as_raw_fd() == number,
            lease::LeaseBreak::Anything => true,
        };
        let broken = self.held.iter().filter(|(_, held)| match &held.lease {
            LeaseState::Stands(fd) | LeaseState::Releasing(fd) => {
                concerned(fd) && lease::look(fd.as_fd()) != lease::Lease::Stands
            }
            LeaseState::Broken { .. } | LeaseState::Ended | LeaseState::Sealed(_) => false,
        });
        broken.map(|(file, _)| *file).collect()
    }

    /// The earliest time at which a broken lease is given up without an answer.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.broken().map(|(_, deadline)| deadline).min()
    }

    fn broken(&self) -> impl Iterator<Item = (FileId, Instant)> {
        self.held.iter().filter_map(|(file, held)| match held.lease {
            LeaseState::Broken { deadline, .. } => Some((*file, deadline)),
            _ => None,
        })
    }

    /// The broken leases past their deadline, and the links that have not answered.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<(FileId, LinkSet)> {
        self.broken()
            .filter(|(_, deadline)| *deadline <= now)
            .filter_map(|(file, _)| Some((file, self.held.get(&file)?.links)))
            .collect()
    }

    /// The front has ended and will not answer. The process may live on and serve other fronts.
    pub(crate) fn expect_no_answers(&mut self) {
        let gone = |held: &Held| !held.stands();
        let waiting: Vec<FileId> =
            self.held.iter().filter(|(_, held)| gone(held)).map(|(file, _)| *file).collect();
        waiting.into_iter().for_each(|file| self.give_up(file));
    }

    /// Gives up a lease without waiting for answers.
    pub(crate) fn give_up(&mut self, file: FileId) {
        if let Some(held) = self.held.get_mut(&file) {
            held.links = LinkSet::default();
        }
        self.remove_if_done(file);
    }
}

/// Ends a lease even if the front still has the file open, and closes the descriptor.
fn end(lease: &mut LeaseState) {
    if let LeaseState::Stands(fd) | LeaseState::Releasing(fd) | LeaseState::Broken { fd, .. } =
        std::mem::replace(lease, LeaseState::Ended)
    {
        // This fails only if the kernel's time limit has already ended the lease.
        let _ended = lease::give_up(fd.as_fd());
    }
}

impl Files {
    /// The worker's part in a lease break (`docs/handover.md` §3): makes the mapping private and
    /// turns the segments in `queue`, which is the output for `link`, into bytes. Returns the links
    /// on which `RECALL` must be sent.
    ///
    /// # Errors
    /// The contents could not be saved. The writer must not proceed while this process lives.
    pub(crate) fn on_break(
        &mut self,
        file: FileId,
        queue: &mut Queue,
        link: usize,
    ) -> io::Result<LinkSet> {
        let current_use = self.current_use;
        let Some(held) = self.held.get_mut(&file) else { return Ok(LinkSet::default()) };
        let Held { lease, region, used_in, links, .. } = held;
        // The descriptor stays open until everything is saved: closing it would let the writer
        // proceed.
        let (LeaseState::Stands(fd) | LeaseState::Releasing(fd)) = &*lease else {
            return Ok(LinkSet::default());
        };
        epoch::advance();
        let noticed = Instant::now();
        let copy_until = noticed + COPY_LIMIT;
        let mut copied = queue.names(file);
        if let Some(region) = region {
            if *used_in == current_use {
                region.replace_by_copy(fd.as_fd(), copy_until)?;
                copied = true;
            } else {
                region.forbid()?;
            }
        }
        // Read from the file: the mapping may have been dropped.
        let read = |offset, len, out: &mut Vec<u8>| {
            if Instant::now() >= copy_until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            read_range(fd, offset, len, out)
        };
        if queue.take_back(file, read)? {
            links.remove(link);
        }
        // The kernel ends the lease if this process was stopped for longer than
        // `fs.lease-break-time`.
        if copied && lease::look(fd.as_fd()) == lease::Lease::Ended {
            return Err(io::Error::other(
                "the kernel took a lease away before this process noticed",
            ));
        }
        if let LeaseState::Stands(fd) | LeaseState::Releasing(fd) =
            std::mem::replace(lease, LeaseState::Ended)
        {
            *lease = LeaseState::Broken { fd, deadline: noticed + RECALL_TIMEOUT };
        }
        let tell = held.links;
        self.remove_if_done(file);
        Ok(tell)
    }
}

/// True if an open file has no name left.
fn is_deleted(fd: &OwnedFd) -> bool {
    fstat(fd.as_fd()).is_ok_and(|stat| stat.st_nlink == 0)
}

/// Ends the process rather than sending wrong bytes: the front then copies what it holds, and the
/// current request is lost.
pub(crate) fn die(what: &dyn std::fmt::Display) -> ! {
    log(format_args!("ending, so that a file that changes is not sent with wrong bytes: {what}"));
    sendoff_sys::process::exit_now(EXIT_UNSAVED)
}

/// `EX_SOFTWARE` in `<sysexits.h>`.
const EXIT_UNSAVED: i32 = 70;
