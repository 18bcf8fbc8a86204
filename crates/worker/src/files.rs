//! Held files and their leases.
//!
//! ```text
//!          drop()                    every link answered RELEASED
//!  Stands ────────▶ Releasing ──────────────────────────────────┐
//!    │                  │ break: RECALL                         ▼
//!    │ break: RECALL    ▼        every link answered, or 5 s    lease and descriptor given up; the entry goes when
//!    └─────────────▶ Broken ───────────────────────────────▶    the mapping has been dropped too
//!
//!  Sealed (a blob, see `blob.rs`) ── drop(): RELEASE, which is not answered ──▶ gone
//! ```
//!
//! Everything here happens under the lock of `Shared`. That settles the races:
//! - A lease is taken, checked and entered under the lock. If it breaks meanwhile, the helper thread finds the entry when
//!   it gets the lock; the writer waits that long. If the hold fails, closing the descriptor ends the lease, and the
//!   signal that was on its way finds no entry.
//! - A descriptor number may have been reused when its signal is looked at. So a signal is only a hint: the lease itself
//!   is asked (`F_GETLEASE`).
//! - A break between `file_use` and `write_file`: the file was in use, so a private copy lies at the same address, and
//!   `write_file` sends bytes from there.
//! - A break while a batch is half sent: segments of which a byte has left are in the front's custody, the `RECALL` goes
//!   behind them; the others become bytes. An `OPEN` whose descriptor has left stays, or the front would give the
//!   descriptor to another file.
//! - Ids count up and are never used again; at the end of the numbers holds are refused.
//! - A file dropped while its recall is pending: the entry stays, without its mapping, until the answers have come.
//! - A forked child has neither the helper thread nor a say in the leases, but copies of the descriptors. Leases are
//!   therefore unlocked, not only closed. What was mapped when it was forked may change under it. If the child outlives
//!   the worker without calling `exec`, writers wait for the kernel's time limit.
//! - The process dies: nothing is unlocked. The front shares the open file, copies what it has, closes; that ends the lease.

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
use sendoff_sys::lease;
use sendoff_sys::mapping::MappedFile;
use sendoff_sys::memfd::Sealed;

use crate::log;
use crate::numbers::{most_held, out_of_the_way};

/// How long the front may take to answer `RECALL`, from when the break is noticed. A writer is held for 5 s at most
/// (`docs/handover.md` §3); the rest is for noticing the break and giving the lease up. The kernel would let the writer go
/// after 45 s.
const RECALL_TIMEOUT: Duration = Duration::from_millis(4900);

/// The part of it that the worker's own copies may take. 1 GiB takes 0.3 s where it was measured.
const COPY_LIMIT: Duration = Duration::from_secs(4);

/// A queue in which segments name more bytes of one file than this, and than the file has, is sent: a break turns them into
/// bytes, and a script can name a file of 20 MB a thousand times.
pub(crate) const MOST_UNSENT: u64 = 64 << 20;

/// What the application knows of the file it wants held.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
}

impl Identity {
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
    lease: Lease,
    /// `None` once dropped.
    region: Option<MappedFile>,
    /// The use it was last in; see `Files::current_use`.
    used_in: u64,
    pub(crate) size: u64,
    /// The links on which the front knows the file, or, in `Releasing` and `Broken`, has yet to answer.
    pub(crate) links: LinkSet,
}

#[derive(Debug)]
enum Lease {
    Stands(OwnedFd),
    Releasing(OwnedFd),
    Broken {
        fd: OwnedFd,
        deadline: Instant,
    },
    Ended,
    /// No lease, and no need of one. The contents are mapped in here instead of in a region.
    Sealed(Sealed),
}

impl Held {
    pub(crate) fn sealed(contents: Sealed) -> Self {
        let size = contents.bytes().len() as u64;
        let lease = Lease::Sealed(contents);
        Self { lease, region: None, used_in: 0, size, links: LinkSet::default() }
    }

    pub(crate) fn as_sealed(&self) -> Option<&Sealed> {
        match &self.lease {
            Lease::Sealed(contents) => Some(contents),
            _ => None,
        }
    }

    pub(crate) fn stands(&self) -> bool {
        matches!(self.lease, Lease::Stands(_) | Lease::Sealed(_))
    }

    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        match &self.lease {
            Lease::Stands(fd) | Lease::Releasing(fd) | Lease::Broken { fd, .. } => Some(fd),
            Lease::Sealed(contents) => Some(contents.fd()),
            Lease::Ended => None,
        }
    }

    /// The snapshot, if it can be read.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.lease {
            Lease::Sealed(contents) => Some(contents.bytes()),
            _ => self.region.as_ref()?.bytes(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Files {
    held: HashMap<FileId, Held>,
    last_id: u32,
    /// Counts the times that everything ceased to be in use.
    current_use: u64,
    most: usize,
    /// When all leases were looked at last; see `guard.rs`.
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

    /// Holds a file; `helper` is the thread that will be told of the break.
    pub(crate) fn hold(
        &mut self,
        fd: OwnedFd,
        mut region: MappedFile,
        identity: Identity,
        helper: Pid,
    ) -> io::Result<FileId> {
        let id = self.next_id()?;
        let fd = out_of_the_way(fd);
        lease::take(fd.as_fd(), helper)?;
        // From here on no process writes; what was written before shows now.
        if !identity.fits(&fstat(&fd)?) {
            return Err(Errno::STALE.into());
        }
        region.map(fd.as_fd())?;
        let held = Held {
            lease: Lease::Stands(fd),
            region: Some(region),
            used_in: self.current_use,
            size: identity.size,
            links: LinkSet::default(),
        };
        Ok(self.enter(id, held))
    }

    /// The id that the next file gets, if one more may be held.
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

    /// Puts the file in use; `false` if its lease has broken.
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

    /// Gives the mapping back. The links that must be told to release the file.
    pub(crate) fn drop_mapping(&mut self, file: FileId) -> LinkSet {
        let Some(held) = self.held.get_mut(&file) else { return LinkSet::default() };
        epoch::advance();
        held.region = None;
        let mut tell = LinkSet::default();
        if matches!(held.lease, Lease::Sealed(_)) {
            return self.held.remove(&file).map(|held| held.links).unwrap_or_default();
        }
        held.lease = match std::mem::replace(&mut held.lease, Lease::Ended) {
            Lease::Stands(fd) => {
                tell = held.links;
                Lease::Releasing(fd)
            }
            other => other,
        };
        self.remove_if_done(file);
        tell
    }

    /// The held files that have been deleted, are not in use, and are not being released.
    pub(crate) fn deleted(&self) -> Vec<FileId> {
        let idle = self.held.iter().filter(|(_, held)| held.used_in != self.current_use);
        let deleted =
            idle.filter(|(_, held)| matches!(&held.lease, Lease::Stands(fd) if is_deleted(fd)));
        deleted.map(|(file, _)| *file).collect()
    }

    /// Whether anything is held that may be deleted one day.
    pub(crate) fn any_deletable(&self) -> bool {
        self.held.values().any(|held| matches!(held.lease, Lease::Stands(_)))
    }

    /// Gives a file back before the application drops its mapping, which has no access from now on. The links that must
    /// be told to release it.
    pub(crate) fn release(&mut self, file: FileId) -> LinkSet {
        let Some(held) = self.held.get_mut(&file) else { return LinkSet::default() };
        // A mapping that cannot be taken away keeps the file, which is no more than untidy.
        if held.region.as_mut().is_some_and(|region| region.forbid().is_err()) {
            return LinkSet::default();
        }
        epoch::advance();
        held.lease = match std::mem::replace(&mut held.lease, Lease::Ended) {
            Lease::Stands(fd) => Lease::Releasing(fd),
            other => other,
        };
        let tell = held.links;
        self.remove_if_done(file);
        tell
    }

    /// Gives a forked child's mapping back. The lease is its parent's: an unlock would end it for both.
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
            if matches!(held.lease, Lease::Ended) && held.region.is_none() {
                self.held.remove(&file);
            }
        }
    }

    /// The front has answered `RELEASE` or `RECALL` on a link: `false` if it was not asked.
    pub(crate) fn answered(&mut self, file: FileId, link: usize) -> bool {
        match self.held.get_mut(&file) {
            Some(Held { lease: Lease::Ended, .. }) => true,
            // Its lease was given up before the front came to read `RECALL`.
            None => file.0 <= self.last_id,
            Some(held) if held.stands() || link >= 256 || !held.links.contains(link) => false,
            Some(held) => {
                held.links.remove(link);
                self.remove_if_done(file);
                true
            }
        }
    }

    /// The held files whose lease is being broken and was not so far.
    pub(crate) fn newly_broken(&self, told: lease::Told) -> Vec<FileId> {
        let concerned = |fd: &OwnedFd| match told {
            lease::Told::Broken(number) => fd.as_raw_fd() == number,
            lease::Told::Anything => true,
        };
        let broken = self.held.iter().filter(|(_, held)| match &held.lease {
            Lease::Stands(fd) | Lease::Releasing(fd) => {
                concerned(fd) && lease::look(fd.as_fd()) != lease::Lease::Stands
            }
            Lease::Broken { .. } | Lease::Ended | Lease::Sealed(_) => false,
        });
        broken.map(|(file, _)| *file).collect()
    }

    /// When the first broken lease is given up without an answer.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.broken().map(|(_, deadline)| deadline).min()
    }

    fn broken(&self) -> impl Iterator<Item = (FileId, Instant)> {
        self.held.iter().filter_map(|(file, held)| match held.lease {
            Lease::Broken { deadline, .. } => Some((*file, deadline)),
            _ => None,
        })
    }

    /// The broken leases whose time is up, and the links that have not answered.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<(FileId, LinkSet)> {
        self.broken()
            .filter(|(_, deadline)| *deadline <= now)
            .filter_map(|(file, _)| Some((file, self.held.get(&file)?.links)))
            .collect()
    }

    /// The front has gone and will answer no more. The process may live on and serve others.
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

/// Ends a lease even if the front still has the file open; the descriptor goes with it.
fn end(lease: &mut Lease) {
    if let Lease::Stands(fd) | Lease::Releasing(fd) | Lease::Broken { fd, .. } =
        std::mem::replace(lease, Lease::Ended)
    {
        // It can only have ended already, by the kernel's own time limit.
        let _ended = lease::give_up(fd.as_fd());
    }
}

impl Files {
    /// The worker's part in a break (`docs/handover.md` §3): makes the mapping private and turns the segments in `queue`,
    /// which is output for `link`, into bytes. Returns the links on which `RECALL` must be sent.
    ///
    /// # Errors
    /// The snapshot could not be saved. The writer must not be let go while this process lives.
    pub(crate) fn on_break(
        &mut self,
        file: FileId,
        queue: &mut Queue,
        link: usize,
    ) -> io::Result<LinkSet> {
        let current_use = self.current_use;
        let Some(held) = self.held.get_mut(&file) else { return Ok(LinkSet::default()) };
        let Held { lease, region, used_in, links, .. } = held;
        // Until all is saved the descriptor stays where it is: its end would let the writer go.
        let (Lease::Stands(fd) | Lease::Releasing(fd)) = &*lease else {
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
        // Not from the mapping: it may have been dropped.
        let read = |offset, len, out: &mut Vec<u8>| {
            if Instant::now() >= copy_until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            read_range(fd, offset, len, out)
        };
        if queue.take_back(file, read)? {
            links.remove(link);
        }
        // Was this process stopped until the kernel let the writer go?
        if copied && lease::look(fd.as_fd()) == lease::Lease::Ended {
            return Err(io::Error::other(
                "the kernel took a lease away before this process noticed",
            ));
        }
        if let Lease::Stands(fd) | Lease::Releasing(fd) = std::mem::replace(lease, Lease::Ended) {
            *lease = Lease::Broken { fd, deadline: noticed + RECALL_TIMEOUT };
        }
        let tell = held.links;
        self.remove_if_done(file);
        Ok(tell)
    }
}

/// Whether an open file has lost its last name.
fn is_deleted(fd: &OwnedFd) -> bool {
    fstat(fd.as_fd()).is_ok_and(|stat| stat.st_nlink == 0)
}

fn read_range(fd: &OwnedFd, mut offset: u64, len: u64, out: &mut Vec<u8>) -> io::Result<()> {
    let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
    out.try_reserve_exact(len).map_err(|_| Errno::NOMEM)?;
    out.resize(len, 0);
    let mut rest = &mut out[..];
    while !rest.is_empty() {
        match rustix::io::pread(fd, &mut *rest, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                offset += n as u64;
                rest = &mut rest[n..];
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Dying is better than wrong bytes: the front then copies what it holds, and the request at hand is lost.
pub(crate) fn die(what: &dyn std::fmt::Display) -> ! {
    log(format_args!("ending, so that a file that changes is not sent with wrong bytes: {what}"));
    sendoff_sys::process::exit_now(EXIT_UNSAVED)
}

/// `EX_SOFTWARE` in `<sysexits.h>`.
const EXIT_UNSAVED: i32 = 70;
