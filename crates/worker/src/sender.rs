//! Files as whole responses to requests that came over FastCGI.
//!
//! Such an application cannot name files on the connection: a recall must follow the names on the
//! same socket, and connections come and go. So the threads that serve connections have a
//! [`Sender`] with permanent links to the front (`docs/handover.md` §8). If the body of a response
//! consists of ranges of files and a few bytes between them, the sender claims it for a link and
//! names the files there. If that is impossible, the ranges are read and sent on the connection.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, Timespec, fstat, openat};
use rustix::io::Errno;
use sendoff_fastcgi::channel::{Announcement, Secret};
use sendoff_fastcgi::frames::MOVED_FRAME;
use sendoff_fastcgi::handover::FileId;
use sendoff_sys::mapping::MappedFile;

use crate::filesystem::is_guarded_by_leases;
use crate::worker::HeldPart;
use crate::{Gone, HeldVersion, Worker};

/// Minimum length of a range in bytes; shorter ranges are copied, which costs less than naming
/// them.
const SMALLEST: u64 = 16 * 1024;

/// Maximum size of a file in bytes; larger files are copied: if the lease breaks just before the
/// file is named, the guard copies all of it to memory.
const LARGEST: u64 = 1 << 30;

/// Maximum number of parts in a body that is handed over.
const MOST_PARTS: usize = 64;

/// Maximum number of bytes between the ranges of files. The front reads a link only after the head
/// of the response, so the bytes that are sent on the link before the head must fit into the
/// socket's buffer.
const MOST_BYTES: usize = 16 * 1024;

/// Maximum number of blobs.
const MOST_BLOBS: usize = 24;

/// Size of one read and write, in bytes.
const PIECE: usize = 128 * 1024;

/// Pause after the front could not be reached; it may be in another network namespace.
const RETRY: Duration = Duration::from_secs(5);

/// Idle time after which a file is released, so that its lease delays no writer.
const IDLE: Duration = Duration::from_secs(60);

/// Minimum interval between two searches for idle files.
const SWEEP: Duration = Duration::from_secs(1);

/// The transport of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyTransfer {
    /// The front has the file and sends it.
    HandedOver,
    /// This process read the file and sent its bytes, or the response had no body.
    Copied,
}

/// A part of a response body.
#[derive(Debug, Clone, Copy)]
pub enum BodyPart<'p> {
    /// Bytes.
    Bytes(&'p [u8]),
    /// Bytes that are sent again and again. The second time they are stored in a sealed memory file,
    /// which the front then sends.
    Kept {
        /// The bytes.
        bytes: &'p [u8],
        /// The number of these bytes among all that the process sends so.
        number: u64,
    },
    /// `len` bytes of an open file from `offset` on; fewer if the file is shorter.
    File {
        /// The file, open for reading.
        file: BorrowedFd<'p>,
        /// Start of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        len: u64,
    },
}

/// Hands files over for connections, from any number of threads. One sender for all threads needs
/// one set of links and holds each file once. The lock is not held while bytes are copied.
#[derive(Debug)]
pub struct Sender(Mutex<Opened>);

/// The links and the held files of a sender.
#[derive(Debug)]
struct Opened {
    /// Links to the front that sent the first request.
    links: Option<Worker>,
    /// Time of the next attempt to reach the front.
    retry_at: Option<Instant>,
    kept: Vec<HeldFile>,
    blobs: Vec<SentAgain>,
    /// Maximum number of held files.
    most: usize,
    swept: Instant,
}

/// A held file, kept for further requests.
#[derive(Debug)]
struct HeldFile {
    device: u64,
    inode: u64,
    identity: HeldVersion,
    file: FileId,
    used: Instant,
}

/// Bytes that are sent again and again.
#[derive(Debug)]
struct SentAgain {
    number: u64,
    /// The blob with them, from the second time on.
    blob: Option<FileId>,
    used: Instant,
}

impl HeldFile {
    fn is(&self, stat: &Stat) -> bool {
        self.inode == stat.st_ino && self.device == stat.st_dev
    }
}

impl Sender {
    /// A sender that holds at most `most` files.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let swept = Instant::now();
        let (kept, blobs) = (Vec::new(), Vec::new());
        let opened = Opened { links: None, retry_at: None, kept, blobs, most, swept };
        Self(Mutex::new(opened))
    }

    /// Sends a response on a connection; its body is `len` bytes of an open file from `offset` on.
    /// The caller must end the response afterwards.
    ///
    /// # Errors
    /// The client has gone, or the file cannot be read to the end of the range, which is logged.
    /// The response stays without an end.
    pub fn send(
        &self,
        connection: &mut Worker,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> Result<BodyTransfer, Gone> {
        self.send_parts(connection, head, &[BodyPart::File { file, offset, len }])
    }

    /// Sends a response on a connection; its body has several parts. The caller must end the
    /// response afterwards.
    ///
    /// # Errors
    /// The client has gone.
    pub fn send_parts(
        &self,
        connection: &mut Worker,
        head: &[u8],
        parts: &[BodyPart<'_>],
    ) -> Result<BodyTransfer, Gone> {
        let is_worth_it = !connection.is_head() && is_worth_handing_over(parts);
        let claim = is_worth_it.then(|| {
            // After a panic the state may be incomplete but is never wrong: files and links may be
            // left unused.
            let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            opened.hand_over(connection, parts)
        });
        if let Some(claim) = claim.flatten() {
            // The field announces that the body is framed. The only frame says that the body has
            // moved.
            let claim = claim.to_hex();
            connection.write_head(&[b"X-Sendoff: ", &claim[..], b"\r\n", head].concat())?;
            connection.write(&MOVED_FRAME)?;
            return Ok(BodyTransfer::HandedOver);
        }
        connection.write_head(head)?;
        if connection.is_head() {
            return Ok(BodyTransfer::Copied);
        }
        for part in parts {
            match *part {
                BodyPart::Bytes(bytes) | BodyPart::Kept { bytes, .. } => connection.write(bytes)?,
                BodyPart::File { file, offset, len } => copy(connection, file, offset, len)?,
            }
        }
        Ok(BodyTransfer::Copied)
    }
}

/// True if the files of a body are large enough to hand over, and the rest is small enough.
fn is_worth_handing_over(parts: &[BodyPart<'_>]) -> bool {
    let (mut in_files, mut bytes) = (0_u64, 0);
    for part in parts {
        match part {
            BodyPart::Bytes(part) => bytes += part.len(),
            BodyPart::Kept { bytes: part, .. } => {
                in_files = in_files.saturating_add(part.len() as u64);
            }
            BodyPart::File { len, .. } => in_files = in_files.saturating_add(*len),
        }
    }
    parts.len() <= MOST_PARTS && bytes <= MOST_BYTES && in_files >= SMALLEST
}

impl Opened {
    /// Claims the body and names it on a link. Returns the claim; `None` if nothing was sent to the
    /// front.
    fn hand_over(&mut self, connection: &Worker, parts: &[BodyPart<'_>]) -> Option<Secret> {
        let announcement = connection.announcement()?;
        if !self.links(announcement)?.begin_elsewhere(announcement, b"") {
            return None;
        }
        self.sweep();
        let held = self.hold_all(parts);
        let links = self.links.as_mut()?;
        let named = held.is_some_and(|pieces| links.answer_with(&pieces));
        links.end_elsewhere();
        links.files_unuse();
        named.then_some(announcement.claim)
    }

    /// Holds the files of a body.
    fn hold_all<'p>(&mut self, parts: &[BodyPart<'p>]) -> Option<Vec<HeldPart<'p>>> {
        let files = parts.iter().filter(|part| matches!(part, BodyPart::File { .. }));
        // A file held for this body must not be dropped for another file of the same body.
        if files.count() > self.most {
            return None;
        }
        let hold = |part: &BodyPart<'p>| match *part {
            BodyPart::Bytes(bytes) => Some(HeldPart::Bytes(bytes)),
            BodyPart::Kept { bytes, number } => {
                let (file, len) = (self.store(bytes, number)?, bytes.len() as u64);
                Some(HeldPart::File { file, offset: 0, len })
            }
            BodyPart::File { file, offset, len } => {
                let file = self.hold(file, offset.checked_add(len)?)?;
                Some(HeldPart::File { file, offset, len })
            }
        };
        // All of them, so that each fragment counts as sent.
        let held: Vec<_> = parts.iter().map(hold).collect();
        held.into_iter().collect()
    }

    /// The links to the front, opened if necessary.
    fn links(&mut self, announcement: &Announcement) -> Option<&mut Worker> {
        if self.links.as_ref().is_some_and(Worker::is_lost) {
            // The held files are lost with the links.
            self.links = None;
            self.kept.clear();
            self.blobs.clear();
        }
        if self.links.is_none() {
            let now = Instant::now();
            if self.retry_at.is_some_and(|at| now < at) {
                return None;
            }
            self.retry_at = Some(now + RETRY);
            self.links = Some(Worker::register(announcement).ok()?);
            self.retry_at = None;
        }
        self.links.as_mut()
    }

    /// Holds a file of at least `end` bytes, if a lease can guard it.
    fn hold(&mut self, file: BorrowedFd<'_>, end: u64) -> Option<FileId> {
        let stat = fstat(file).ok()?;
        let identity = identity_of(&stat).filter(|identity| end <= identity.size)?;
        if identity.size > LARGEST {
            return None;
        }
        let links = self.links.as_mut()?;
        let now = Instant::now();
        if let Some(at) = self.kept.iter().position(|kept| kept.is(&stat)) {
            let kept = &mut self.kept[at];
            if kept.identity == identity && links.file_use(kept.file) {
                kept.used = now;
                return Some(kept.file);
            }
            links.file_drop(self.kept.swap_remove(at).file);
        }
        let own = open_again(file, &stat).ok()?;
        if self.kept.len() >= self.most {
            let oldest = (0..self.kept.len()).min_by_key(|at| self.kept[*at].used)?;
            links.file_drop(self.kept.swap_remove(oldest).file);
        }
        let space = MappedFile::reserve(identity.size).ok()?;
        let file = links.file_hold(own, space, identity).ok()?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        self.kept.push(HeldFile { device, inode, identity, file, used: now });
        Some(file)
    }

    /// The blob with bytes that are sent again and again. `None`: this is the first time, or there is
    /// no room.
    fn store(&mut self, bytes: &[u8], number: u64) -> Option<FileId> {
        let (links, now) = (self.links.as_mut()?, Instant::now());
        let Some(known) = self.blobs.iter_mut().find(|known| known.number == number) else {
            if self.blobs.len() >= MOST_BLOBS {
                let oldest = (0..self.blobs.len()).min_by_key(|at| self.blobs[*at].used)?;
                self.blobs.swap_remove(oldest).blob.inspect(|blob| links.file_drop(*blob));
            }
            self.blobs.push(SentAgain { number, blob: None, used: now });
            return None;
        };
        known.used = now;
        if known.blob.is_none() {
            known.blob = links.blob_store(bytes).ok();
        }
        known.blob
    }

    /// Drops files that were idle for too long, or whose lease has broken.
    fn sweep(&mut self) {
        let Some(links) = &mut self.links else { return };
        let now = Instant::now();
        if now - self.swept < SWEEP {
            return;
        }
        self.swept = now;
        self.kept.retain(|kept| {
            let stays = now - kept.used < IDLE && links.file_intact(kept.file);
            if !stays {
                links.file_drop(kept.file);
            }
            stays
        });
    }
}

/// The identity of a file that can be held: regular and not empty; else `None`.
fn identity_of(stat: &Stat) -> Option<HeldVersion> {
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let size = u64::try_from(stat.st_size).ok().filter(|size| is_regular && *size > 0)?;
    let time = |seconds: i64, nanoseconds: u64| {
        let nanoseconds = i64::try_from(nanoseconds).ok()?;
        Some(Timespec { tv_sec: seconds, tv_nsec: nanoseconds })
    };
    Some(HeldVersion {
        size,
        mtime: time(stat.st_mtime, stat.st_mtime_nsec)?,
        ctime: time(stat.st_ctime, stat.st_ctime_nsec)?,
    })
}

/// Opens the file again: the lease belongs to an open file description, which the application's
/// descriptor must not share.
fn open_again(file: BorrowedFd<'_>, stat: &Stat) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let own = openat(CWD, path, flags, Mode::empty())?;
    let again = fstat(&own)?;
    let is_same = again.st_ino == stat.st_ino && again.st_dev == stat.st_dev;
    if is_same && is_guarded_by_leases(rustix::fd::AsFd::as_fd(&own)) {
        return Ok(own);
    }
    Err(Errno::OPNOTSUPP.into())
}

/// Reads a range and sends it. If the file ends too early the response is cut, so that the body
/// does not look complete.
fn copy(
    connection: &mut Worker,
    file: BorrowedFd<'_>,
    mut offset: u64,
    mut len: u64,
) -> Result<(), Gone> {
    let mut buffer = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
    while len > 0 {
        let most = buffer.len().min(usize::try_from(len).unwrap_or(usize::MAX));
        match rustix::io::pread(file, &mut buffer[..most], offset) {
            Ok(0) if has_more(file, offset) => return Ok(()),
            Ok(0) => return Err(cut(connection, "it has become shorter")),
            Ok(n) => {
                connection.write(&buffer[..n])?;
                offset += n as u64;
                len -= n as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(cut(connection, &error.to_string())),
        }
    }
    Ok(())
}

/// True if the file claims to have bytes after `offset`. If none can be read, it is a file of
/// sysfs, whose size is a page although it contains less.
fn has_more(file: BorrowedFd<'_>, offset: u64) -> bool {
    fstat(file).is_ok_and(|stat| u64::try_from(stat.st_size).is_ok_and(|size| size > offset))
}

fn cut(connection: &mut Worker, why: &str) -> Gone {
    let entry = format!("the response is cut, because its file cannot be read to the end: {why}");
    connection.log(entry.as_bytes());
    connection.cut();
    Gone
}
