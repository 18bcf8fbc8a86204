//! Files a worker has handed over on one link, and their way back: `OPEN`, `RECALL`, `RELEASE`
//! (`docs/handover.md` §2, §3).

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags};
use sendoff_delivery::Snapshots;
use sendoff_delivery::copying;
use sendoff_delivery::segment::{FileSegment, OpenFile, Segment};
use sendoff_delivery::snapshots::{Advice, Contents, Identity, Reservation, in_memory_limit};
use sendoff_fastcgi::handover::{FileId, GuardAnswer};
use sendoff_sys::memfd;

use super::guard::Answers;

/// Files of up to this size, in bytes, are copied on the event loop, in less than 0.2 ms; a copy on
/// another thread adds some 0.05 ms. Larger ones would keep other connections waiting.
const COPY_HERE_LIMIT: u64 = 256 * 1024;

/// Time limit for copying a recalled file. The worker gives up the lease after 4.9 s
/// (`docs/handover.md` §3); a copy made later could mix old and new bytes.
const COPY_LIMIT: Duration = Duration::from_secs(4);

/// Interval between two checks of a released file that clients are still downloading. No writer
/// waits for it.
const RELEASE_INTERVAL: Duration = Duration::from_millis(200);

/// Most files per link that a worker has released or that were recalled while clients are still to
/// get them. Guarded files count among a worker's 256 until the front has answered, so only sealed
/// files can reach this limit.
const MAX_LEAVING: usize = 1024;

/// A rule that a worker's file or segment breaks.
#[derive(Debug)]
pub(super) struct BadFile(pub(super) &'static str);

/// A file known by its id.
#[derive(Debug)]
struct RegisteredFile {
    file: Rc<OpenFile>,
    identity: Identity,
}

/// The open files of one link.
#[derive(Debug)]
pub(super) struct HandedFiles {
    known: HashMap<FileId, RegisteredFile>,
    /// Files whose id is forgotten but whose `RELEASE` is not answered yet.
    releasing: Rc<RefCell<HashMap<FileId, Rc<OpenFile>>>>,
    /// Files that the worker no longer has open. Each holds a descriptor until all clients have got
    /// it.
    leaving: Vec<Weak<OpenFile>>,
    answers: Rc<Answers>,
    snapshots: Arc<Snapshots>,
}

impl HandedFiles {
    pub(super) fn new(answers: Rc<Answers>, snapshots: Arc<Snapshots>) -> Self {
        Self {
            known: HashMap::new(),
            releasing: Rc::default(),
            leaving: Vec::new(),
            answers,
            snapshots,
        }
    }

    /// `OPEN`: registers a file.
    pub(super) fn open(&mut self, id: FileId, descriptor: OwnedFd) -> Result<(), BadFile> {
        let unusable = |_| BadFile("an open file that cannot be looked at");
        let stat = rustix::fs::fstat(&descriptor).map_err(unusable)?;
        let flags = rustix::fs::fcntl_getfl(&descriptor).map_err(unusable)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || flags & OFlags::RWMODE != OFlags::RDONLY
            || flags.contains(OFlags::PATH)
        {
            return Err(BadFile("an open file that is not a regular file opened for reading"));
        }
        let identity = Identity::new(&stat);
        let file = if memfd::is_final(&descriptor) {
            OpenFile::new(descriptor)
        } else {
            OpenFile::guarded(descriptor, identity, &self.snapshots)
        };
        match self.known.insert(id, RegisteredFile { file, identity }) {
            None => Ok(()),
            Some(_) => Err(BadFile("a file id that is in use already")),
        }
    }

    /// `SEGMENT`: returns a range of a known file.
    pub(super) fn segment(
        &mut self,
        id: FileId,
        offset: u64,
        len: u64,
    ) -> Result<Segment, BadFile> {
        let RegisteredFile { file, identity } =
            self.known.get(&id).ok_or(BadFile("a segment of an unknown file"))?;
        let end = offset.checked_add(len).filter(|&end| end <= identity.size());
        let end = end.ok_or(BadFile("a segment that reaches past the end of its file"))?;
        // A sealed file cannot change: it is copied only to send it from memory.
        if file.is_guarded() || identity.size() <= in_memory_limit() {
            share(file, *identity, &self.snapshots);
        }
        if let Some(contents) = file.memory() {
            let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
            let (from, to) = range.ok_or(BadFile("a segment beyond the address space"))?;
            return Ok(Segment::Bytes(contents.slice(from..to)));
        }
        Ok(Segment::File(FileSegment { file: Rc::clone(file), offset, len }))
    }

    /// `RECALL`: a writer waits until [`GuardAnswer::Recalled`] is sent. That happens at once,
    /// unless bytes that are still to be sent must be copied first.
    pub(super) fn recall(&mut self, id: FileId) -> Result<(), BadFile> {
        self.snapshots.count_recall();
        if let Some(known) = self.known.remove(&id) {
            self.leave(&known.file)?;
            self.give_back(id, known.file);
        } else if let Some(file) = self.releasing.borrow_mut().remove(&id) {
            self.give_back(id, file);
        }
        // Otherwise RELEASED has been sent and has crossed this RECALL on the way: no further
        // answer.
        Ok(())
    }

    fn give_back(&self, id: FileId, file: Rc<OpenFile>) {
        match give_back(file) {
            None => self.answers.send(GuardAnswer::Recalled, id),
            Some(saving) => {
                let answers = Rc::clone(&self.answers);
                tokio::task::spawn_local(async move {
                    saving.await;
                    answers.send(GuardAnswer::Recalled, id);
                });
            }
        }
    }

    /// `RELEASE`: no writer waits. The release of a file that cannot change is not answered.
    pub(super) fn release(&mut self, id: FileId) -> Result<(), BadFile> {
        let known = self.known.remove(&id).ok_or(BadFile("a release of an unknown file"))?;
        self.leave(&known.file)?;
        known.file.forget();
        if !known.file.is_guarded() {
            return Ok(());
        }
        if has_left(&known.file) {
            self.answers.send(GuardAnswer::Released, id);
            return Ok(());
        }
        self.releasing.borrow_mut().insert(id, known.file);
        let (answers, releasing) = (Rc::clone(&self.answers), Rc::clone(&self.releasing));
        tokio::task::spawn_local(async move {
            while releasing.borrow().get(&id).is_some_and(|file| !has_left(file)) {
                tokio::time::sleep(RELEASE_INTERVAL).await;
            }
            // A recall may have taken the file over.
            if releasing.borrow_mut().remove(&id).is_some() {
                answers.send(GuardAnswer::Released, id);
            }
        });
        Ok(())
    }

    /// Counts a file that the worker no longer has open, if clients are still to get it.
    fn leave(&mut self, file: &Rc<OpenFile>) -> Result<(), BadFile> {
        if Rc::strong_count(file) == 1 {
            return Ok(());
        }
        if self.leaving.len() == MAX_LEAVING {
            self.leaving.retain(|file| file.strong_count() > 0);
        }
        if self.leaving.len() == MAX_LEAVING {
            return Err(BadFile("more released files on their way to clients than the limit"));
        }
        self.leaving.push(Rc::downgrade(file));
        Ok(())
    }

    /// The worker has died and no longer watches its leases: each ends as soon as the bytes that
    /// are still to be sent have been copied.
    pub(super) fn orphan(&mut self) {
        let known = std::mem::take(&mut self.known).into_values().map(|known| known.file);
        let releasing = std::mem::take(&mut *self.releasing.borrow_mut()).into_values();
        for saving in known.chain(releasing).filter_map(give_back) {
            tokio::task::spawn_local(saving);
        }
    }
}

/// Sends the file from a snapshot, if there is one or if it is time to make one.
fn share(file: &Rc<OpenFile>, identity: Identity, snapshots: &Arc<Snapshots>) {
    let Some(descriptor) = file.own_descriptor() else { return };
    match snapshots.ask(identity, &descriptor) {
        Advice::Join { snapshot, is_witness } => file.join(snapshot, is_witness),
        Advice::Copy(reservation) if identity.size() <= COPY_HERE_LIMIT => {
            let copied = copy(&descriptor, identity.size(), Instant::now() + COPY_LIMIT);
            take_copy(file, &descriptor, reservation, copied);
        }
        Advice::Copy(reservation) => {
            let file = Rc::downgrade(file);
            tokio::task::spawn_local(async move {
                let copied = copy_off_the_loop(&descriptor, identity.size()).await;
                if let Some(file) = file.upgrade() {
                    take_copy(&file, &descriptor, reservation, copied);
                }
            });
        }
        Advice::Read => {}
    }
}

fn take_copy(
    file: &OpenFile,
    descriptor: &Arc<OwnedFd>,
    reservation: Reservation,
    copied: io::Result<Contents>,
) {
    match copied {
        Ok(contents) => {
            if let Some(snapshot) = reservation.fulfil(descriptor, contents) {
                file.join(snapshot, true);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            file.lose("it became shorter while it was copied");
        }
        // Without a copy the file is read for each response.
        Err(error) => tracing::debug!(%error, "a file could not be copied into memory"),
    }
}

fn copy(from: &OwnedFd, len: u64, deadline: Instant) -> io::Result<Contents> {
    if len <= in_memory_limit() {
        return copying::into_memory(from, len).map(Contents::Memory);
    }
    copying::into_sealed(from, len, deadline).map(|copy| Contents::File(Arc::new(copy)))
}

async fn copy_off_the_loop(from: &Arc<OwnedFd>, len: u64) -> io::Result<Contents> {
    let (from, deadline) = (Arc::clone(from), Instant::now() + COPY_LIMIT);
    let copied = tokio::task::spawn_blocking(move || copy(&from, len, deadline));
    copied.await.map_err(io::Error::other)?
}

/// True if no range of a released file is still to be read from it.
fn has_left(file: &Rc<OpenFile>) -> bool {
    file.leased().is_none() || Rc::strong_count(file) == 1
}

/// Gives up a file's own descriptor. If bytes that are still to be sent exist only in a large file,
/// returns the copying of them, which the caller must await.
fn give_back(file: Rc<OpenFile>) -> Option<impl Future<Output = ()>> {
    file.forget();
    let (from, identity, snapshots) = file.leased()?;
    if Rc::strong_count(&file) == 1 {
        return None;
    }
    let room = snapshots.reserve_unshared(identity);
    let (has_room, deadline) = (room.is_some(), Instant::now() + COPY_LIMIT);
    if identity.size() <= COPY_HERE_LIMIT {
        let copied = save(&from, identity.size(), has_room, deadline);
        take_saved(&file, &from, room, copied);
        return None;
    }
    Some(async move {
        let original = Arc::clone(&from);
        let saving = move || save(&original, identity.size(), has_room, deadline);
        let copied = tokio::task::spawn_blocking(saving).await.map_err(io::Error::other);
        take_saved(&file, &from, room, copied.unwrap_or_else(Err));
    })
}

/// Copies into memory if there is room, else to disk.
fn save(from: &OwnedFd, len: u64, has_room: bool, deadline: Instant) -> io::Result<Contents> {
    if has_room && let Ok(copied) = copy(from, len, deadline) {
        return Ok(copied);
    }
    copying::into_unlinked(from, len, deadline).map(|copy| Contents::File(Arc::new(copy)))
}

fn take_saved(
    file: &OpenFile,
    from: &Arc<OwnedFd>,
    room: Option<Reservation>,
    copied: io::Result<Contents>,
) {
    match (copied, room) {
        (Ok(contents), Some(room)) => match room.fulfil(from, contents) {
            Some(snapshot) => file.join(snapshot, false),
            None => file.lose("its lease ended while it was copied"),
        },
        (Ok(Contents::File(copy)), None) => file.replace(copy),
        (Ok(Contents::Memory(_)), None) => unreachable!("memory is used only where there is room"),
        (Err(error), _) => {
            file.lose(&format!("it is about to change and could not be copied: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    use rustix::net::SendFlags;
    use sendoff_fastcgi::handover::GuardMessage;

    use super::*;
    use sendoff_delivery::SnapshotLimits;

    fn files() -> (HandedFiles, OwnedFd) {
        files_sharing(&Snapshots::new(SnapshotLimits::default()))
    }

    fn files_sharing(snapshots: &Arc<Snapshots>) -> (HandedFiles, OwnedFd) {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let answers = Answers::new(ours, 2, |why| panic!("{why}"));
        (HandedFiles::new(answers, Arc::clone(snapshots)), theirs)
    }

    fn file_of(len: usize) -> OwnedFd {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![b'x'; len]).unwrap();
        leased(&file.into_temp_path())
    }

    /// Opens the file as a worker does. The thread that would be told of the lease break has ended.
    fn leased(path: &std::path::Path) -> OwnedFd {
        let file = OwnedFd::from(File::open(path).unwrap());
        let began = Instant::now();
        // A process that another test starts has, until it executes its program, a copy of the
        // descriptor that has written the file.
        while let Err(error) = sendoff_sys::lease::take(file.as_fd(), rustix::thread::gettid()) {
            let goes_on = error.kind() == io::ErrorKind::WouldBlock
                && began.elapsed() < Duration::from_secs(10);
            assert!(goes_on, "{error}");
            std::thread::yield_now();
        }
        file
    }

    #[test]
    fn only_regular_files_opened_for_reading_are_taken_and_only_once() {
        let (mut files, _worker) = files();
        assert!(files.open(FileId(1), File::open("/dev/null").unwrap().into()).is_err());
        assert!(files.open(FileId(1), File::open("/").unwrap().into()).is_err());
        assert!(files.open(FileId(1), tempfile::tempfile().unwrap().into()).is_err());
        files.open(FileId(1), file_of(10)).unwrap();
        assert!(files.open(FileId(1), file_of(10)).is_err());
    }

    #[test]
    fn only_ranges_inside_a_known_file_are_taken() {
        let (mut files, _worker) = files();
        files.open(FileId(1), file_of(100)).unwrap();
        files.open(FileId(2), file_of(100_000)).unwrap();
        assert!(files.segment(FileId(3), 0, 1).is_err());
        for (id, size) in [(FileId(1), 100), (FileId(2), 100_000)] {
            assert!(files.segment(id, 0, size).is_ok());
            assert!(files.segment(id, size, 0).is_ok());
            assert!(files.segment(id, 1, size).is_err());
            assert!(files.segment(id, u64::MAX, 2).is_err());
        }
        assert!(matches!(files.segment(FileId(1), 1, 2).unwrap(), Segment::Bytes(b) if b == "xx"));
        assert!(matches!(files.segment(FileId(2), 1, 2).unwrap(), Segment::File(_)));
    }

    fn answer(worker: &OwnedFd) -> GuardMessage {
        let mut raw = [0; 16];
        let (n, _) = rustix::net::recv(worker, &mut raw, rustix::net::RecvFlags::DONTWAIT).unwrap();
        GuardMessage::decode(&raw[..n]).unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_recall_copies_what_is_not_sent_and_answers() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let (mut files, worker) = files();
                let original = tempfile::NamedTempFile::new().unwrap().into_temp_path();
                std::fs::write(&original, [b'o'; 70_000]).unwrap();
                files.open(FileId(5), leased(&original)).unwrap();
                let Segment::File(segment) = files.segment(FileId(5), 0, 70_000).unwrap() else {
                    panic!("expected a file segment");
                };
                files.recall(FileId(5)).unwrap();
                while Rc::strong_count(&segment.file) > 1 {
                    tokio::task::yield_now().await;
                }
                std::fs::write(&original, [b'n'; 70_000]).unwrap();
                let mut sent = vec![0; 70_000];
                let copy = segment.file.descriptor().unwrap();
                rustix::io::pread(&*copy, &mut sent, 0).unwrap();
                assert!(sent.iter().all(|&byte| byte == b'o'), "the snapshot is sent");
                let expected =
                    GuardMessage { answer: GuardAnswer::Recalled, link: 2, file: FileId(5) };
                assert_eq!(answer(&worker), expected);
                assert!(files.segment(FileId(5), 0, 1).is_err(), "the id is forgotten");
            })
            .await;
    }

    /// A writer comes while another thread copies the file to share it: the copy for the writer is
    /// finished first, and the other copy then finds a truncated file.
    #[test]
    fn a_copy_that_comes_too_late_takes_nothing_from_a_file_that_has_one() {
        let snapshots = Snapshots::new(SnapshotLimits::default());
        let (mut files, worker) = files_sharing(&snapshots);
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&path, [b'o'; 70_000]).unwrap();
        files.open(FileId(1), leased(&path)).unwrap();
        let Segment::File(segment) = files.segment(FileId(1), 0, 70_000).unwrap() else {
            panic!("expected a file segment");
        };
        let (descriptor, identity, _) = segment.file.leased().unwrap();
        let Advice::Copy(reservation) = snapshots.ask(identity, &descriptor) else {
            panic!("the second request makes a copy");
        };
        files.recall(FileId(1)).unwrap();
        assert_eq!(answer(&worker).answer, GuardAnswer::Recalled);
        sendoff_sys::lease::give_up(descriptor.as_fd()).unwrap();
        std::fs::write(&path, b"").unwrap();
        let late = copy(&descriptor, 70_000, Instant::now() + COPY_LIMIT);
        assert_eq!(late.as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        take_copy(&segment.file, &descriptor, reservation, late);
        let mut sent = vec![0; 70_000];
        let kept = segment.file.descriptor().expect("the copy for the writer");
        assert_eq!(rustix::io::pread(&*kept, &mut sent, 0), Ok(70_000));
        assert!(sent.iter().all(|&byte| byte == b'o'));
        assert_eq!(snapshots.usage().cuts, 0);
    }

    /// Descriptors of this process that lead to a file.
    fn descriptors_of(path: &std::path::Path) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let target = |fd: std::fs::DirEntry| std::fs::read_link(fd.path());
        all.filter_map(|fd| target(fd.ok()?).ok()).filter(|target| target == path).count()
    }

    /// Eight workers hand the same files over: the front keeps one copy of each, and few
    /// descriptors.
    #[test]
    fn links_share_copies_and_close_what_they_do_not_need() {
        let snapshots = Snapshots::new(SnapshotLimits::default());
        for (len, copies) in [(10_000, 0), (200_000, 1)] {
            let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
            std::fs::write(&path, vec![b'x'; len]).unwrap();
            let before = snapshots.usage();
            let (mut links, mut segments) = (Vec::new(), Vec::new());
            for _ in 0..8 {
                let (mut link, worker) = files_sharing(&snapshots);
                link.open(FileId(1), leased(&path)).unwrap();
                for _ in 0..2 {
                    segments.push(link.segment(FileId(1), 1, len as u64 - 1).unwrap());
                }
                links.push((link, worker));
            }
            let usage = snapshots.usage();
            assert_eq!(usage.bytes - before.bytes, len as u64);
            assert_eq!(usage.descriptors - before.descriptors, copies);
            assert_eq!(descriptors_of(&path), 3, "those that vouch for the copy");
            // A recall and a worker's death close the descriptors without waiting for the segments.
            for (number, (link, worker)) in links.iter_mut().enumerate() {
                if number % 2 == 0 {
                    link.recall(FileId(1)).unwrap();
                    assert_eq!(answer(worker).answer, GuardAnswer::Recalled);
                } else {
                    link.orphan();
                }
            }
            assert_eq!(descriptors_of(&path), 0);
            drop(segments);
            let after = snapshots.usage();
            assert_eq!(after.recalls, before.recalls + 4);
            let (bytes, descriptors) = (after.bytes, after.descriptors);
            assert_eq!(
                (bytes, descriptors),
                (before.bytes, before.descriptors),
                "a copy without witnesses goes"
            );
        }
    }

    /// The worker gave the lease up, or the kernel took it away, before the front was done.
    #[tokio::test(flavor = "current_thread")]
    async fn a_file_whose_lease_has_ended_is_not_sent() {
        let (mut files, _worker) = files();
        for (id, len) in [(FileId(1), 100), (FileId(2), 70_000)] {
            let file = file_of(len);
            let workers = file.try_clone().unwrap();
            files.open(id, file).unwrap();
            sendoff_sys::lease::give_up(workers.as_fd()).unwrap();
            let Segment::File(segment) = files.segment(id, 0, 100).unwrap() else {
                panic!("nothing of it may be kept in memory");
            };
            assert!(segment.file.descriptor().is_none());
        }
    }

    /// `open(O_RDONLY|O_TRUNC)` cuts the file and breaks no lease.
    #[tokio::test(flavor = "current_thread")]
    async fn a_file_that_was_cut_without_a_word_is_lost() {
        let (mut files, _worker) = files();
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&file, [b'x'; 100]).unwrap();
        files.open(FileId(1), leased(&file)).unwrap();
        let flags = OFlags::RDONLY | OFlags::TRUNC;
        rustix::fs::open(&*file, flags, rustix::fs::Mode::empty()).unwrap();
        let Segment::File(segment) = files.segment(FileId(1), 0, 100).unwrap() else {
            panic!("there is nothing to keep in memory");
        };
        assert!(segment.file.descriptor().is_none());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_release_is_answered_when_the_last_segment_is_gone() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                tokio::time::pause();
                let (mut files, worker) = files();
                files.open(FileId(5), file_of(70_000)).unwrap();
                let segment = files.segment(FileId(5), 0, 70_000).unwrap();
                files.release(FileId(5)).unwrap();
                tokio::time::sleep(RELEASE_INTERVAL * 3).await;
                let mut raw = [0; 8];
                let early = rustix::net::recv(&worker, &mut raw, rustix::net::RecvFlags::DONTWAIT);
                assert!(early.is_err(), "not while a segment is on its way");
                drop(segment);
                tokio::time::sleep(RELEASE_INTERVAL * 3).await;
                assert_eq!(answer(&worker).answer, GuardAnswer::Released);
                files.recall(FileId(5)).unwrap();
                tokio::time::sleep(RELEASE_INTERVAL * 3).await;
                let again = rustix::net::recv(&worker, &mut raw, rustix::net::RecvFlags::DONTWAIT);
                assert!(again.is_err(), "a RECALL that crossed the answer gets none of its own");
            })
            .await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_answer_waits_for_room_in_the_guard_socket() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                tokio::time::pause();
                let (mut files, worker) = files();
                let mut waiting = 0;
                let (guard, flags) = (files.answers.socket(), SendFlags::DONTWAIT);
                while rustix::net::send(guard, &[0; 8], flags).is_ok() {
                    waiting += 1;
                }
                files.open(FileId(5), file_of(70_000)).unwrap();
                files.release(FileId(5)).unwrap();
                tokio::time::sleep(RELEASE_INTERVAL * 3).await;
                for _ in 0..waiting {
                    let mut raw = [0; 8];
                    rustix::net::recv(&worker, &mut raw, rustix::net::RecvFlags::DONTWAIT).unwrap();
                }
                tokio::time::sleep(RELEASE_INTERVAL).await;
                assert_eq!(answer(&worker).answer, GuardAnswer::Released);
            })
            .await;
    }

    /// A sealed file cannot change, so the worker waits for no answer.
    #[tokio::test(flavor = "current_thread")]
    async fn a_sealed_file_is_released_without_an_answer() {
        let (mut files, worker) = files();
        let sealed = memfd::Sealed::new(&[b'x'; 70_000]).unwrap();
        files.open(FileId(5), sealed.fd().try_clone().unwrap()).unwrap();
        let Segment::File(segment) = files.segment(FileId(5), 0, 70_000).unwrap() else {
            panic!("expected a file segment");
        };
        files.release(FileId(5)).unwrap();
        assert!(files.segment(FileId(5), 0, 1).is_err(), "the id is forgotten");
        assert!(files.release(FileId(5)).is_err());
        assert!(segment.file.descriptor().is_some(), "what is under way is finished");
        files.orphan();
        let mut raw = [0; 8];
        let answer = rustix::net::recv(&worker, &mut raw, rustix::net::RecvFlags::DONTWAIT);
        assert_eq!(answer.unwrap_err(), rustix::io::Errno::AGAIN);
    }

    /// A file needs both seals, against writing and against shrinking, to count as sealed.
    #[test]
    fn half_a_seal_is_none() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        for (seals, guarded) in [
            (SealFlags::empty(), true),
            (SealFlags::WRITE, true),
            (SealFlags::SHRINK | SealFlags::SEAL, true),
            (SealFlags::WRITE | SealFlags::SHRINK, false),
        ] {
            let (mut files, _worker) = files();
            let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
            let made = File::from(memfd_create(c"half", flags).unwrap());
            made.set_len(70_000).unwrap();
            fcntl_add_seals(&made, seals).unwrap();
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&made));
            files.open(FileId(1), File::open(path).unwrap().into()).unwrap();
            let Segment::File(segment) = files.segment(FileId(1), 0, 1).unwrap() else {
                panic!("expected a file segment");
            };
            assert_eq!(segment.file.is_guarded(), guarded, "{seals:?}");
        }
    }
}
