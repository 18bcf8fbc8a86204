//! Files a worker has handed over on one link, and their way back: `OPEN`, `RECALL`, `RELEASE` (`docs/handover.md` §2, §3).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use sendoff_fastcgi::handover::{FileId, GuardAnswer, GuardMessage};
use sendoff_sys::memfd;
use sendoff_sys::sock_diag::SockDiag;
use tokio::time::Instant;

use crate::segment::{FileSegment, OpenFile, Segment};

/// Up to this size a handed-over file is sent from memory: not dearer than `sendfile` (measured per response: 10 KB 8 %
/// less CPU, 32 KB 10 % less, 60 KB equal), and what was copied to the socket cannot change any more, so nobody has to be
/// waited for when the file is about to.
const IN_MEMORY_LIMIT: u64 = 64 * 1024;

/// How long a writer is kept waiting for clients on this host that have received pages of a file but do not read
/// them. Well below the kernel's own limit (`lease-break-time`, 45 s) and the worker's (10 s).
const SETTLE_LIMIT: Duration = Duration::from_secs(5);

/// How long the copy of a file may take. Together with [`SETTLE_LIMIT`] less than the worker's 10 s, after which the
/// writer goes on and a copy would hold a mixture.
const COPY_LIMIT: Duration = Duration::from_secs(4);

/// When a full guard socket is tried again. The worker's guard thread empties it, whatever the application does.
const GUARD_RETRY: Duration = Duration::from_millis(5);

/// From this many recipients on, those that have read everything are looked for and forgotten when a new one comes.
const PRUNE_AT: usize = 1024;

/// How often a released file is looked at: nothing waits for it.
const RELEASE_INTERVAL: Duration = Duration::from_millis(200);

/// What a worker's segment could not be.
#[derive(Debug)]
pub(super) struct BadFile(pub(super) &'static str);

/// A file known by its id.
#[derive(Debug)]
struct Known {
    file: Rc<OpenFile>,
    size: u64,
    /// The contents of a file of at most [`IN_MEMORY_LIMIT`], once they were asked for.
    contents: Option<Bytes>,
}

/// The open files of one link.
#[derive(Debug)]
pub(super) struct HandedFiles {
    known: HashMap<FileId, Known>,
    /// Files that are no longer known but still owe the worker an answer.
    releasing: Rc<RefCell<HashMap<FileId, Rc<OpenFile>>>>,
    answers: Rc<Answers>,
}

/// Our end of the guard socket, for one link.
#[derive(Debug)]
struct Answers {
    guard: OwnedFd,
    link: u8,
}

impl Answers {
    async fn send(&self, answer: GuardAnswer, file: FileId) {
        let message = GuardMessage { answer, link: self.link, file }.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match rustix::net::send(&self.guard, &message, flags) {
                Ok(_) => return,
                // An answer that is not sent would hold a lease for ever.
                Err(Errno::AGAIN | Errno::INTR) => tokio::time::sleep(GUARD_RETRY).await,
                Err(error) => {
                    tracing::debug!(%error, "a worker was gone before it heard about its file");
                    return;
                }
            }
        }
    }
}

impl HandedFiles {
    pub(super) fn new(guard: OwnedFd, link: u8) -> Self {
        let answers = Rc::new(Answers { guard, link });
        Self { known: HashMap::new(), releasing: Rc::default(), answers }
    }

    /// `OPEN`: takes a file on.
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
        let size = u64::try_from(stat.st_size).map_err(|_| BadFile("a file of negative size"))?;
        let file = if memfd::is_final(&descriptor) {
            OpenFile::new(descriptor)
        } else {
            OpenFile::guarded(descriptor)
        };
        let known = Known { file, size, contents: None };
        match self.known.insert(id, known) {
            None => Ok(()),
            Some(_) => Err(BadFile("a file id that is in use already")),
        }
    }

    /// `SEGMENT`: a range of a known file.
    pub(super) fn segment(
        &mut self,
        id: FileId,
        offset: u64,
        len: u64,
    ) -> Result<Segment, BadFile> {
        let known = self.known.get_mut(&id).ok_or(BadFile("a segment of an unknown file"))?;
        let end = offset.checked_add(len).filter(|&end| end <= known.size);
        let end = end.ok_or(BadFile("a segment that reaches past the end of its file"))?;
        if known.size <= IN_MEMORY_LIMIT
            && let Some(contents) = known.contents()?
        {
            let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
            let (from, to) = range.ok_or(BadFile("a segment beyond the address space"))?;
            return Ok(Segment::Bytes(contents.slice(from..to)));
        }
        if known.file.recipients() >= PRUNE_AT
            && let Ok(diag) = SockDiag::open()
        {
            known.file.settle(|connection| diag.in_flight(connection).ok());
        }
        Ok(Segment::File(FileSegment { file: Rc::clone(&known.file), offset, len }))
    }

    /// `RECALL`: the writer waits until [`GuardAnswer::Recalled`] is sent.
    pub(super) fn recall(&mut self, id: FileId) {
        let known = self.known.remove(&id).map(|known| known.file);
        let file = known.or_else(|| self.releasing.borrow_mut().remove(&id));
        // Otherwise it was answered already: RELEASED and this RECALL have passed each other.
        let Some(file) = file else { return };
        let answers = Rc::clone(&self.answers);
        tokio::task::spawn_local(async move {
            give_back(file).await;
            answers.send(GuardAnswer::Recalled, id).await;
        });
    }

    /// `RELEASE`: nobody waits, and for a file that cannot change there is nothing to answer.
    pub(super) fn release(&mut self, id: FileId) -> Result<(), BadFile> {
        let known = self.known.remove(&id).ok_or(BadFile("a release of an unknown file"))?;
        if !known.file.is_guarded() {
            return Ok(());
        }
        self.releasing.borrow_mut().insert(id, known.file);
        let (answers, releasing) = (Rc::clone(&self.answers), Rc::clone(&self.releasing));
        tokio::task::spawn_local(async move {
            while !try_release(&releasing, id) {
                tokio::time::sleep(RELEASE_INTERVAL).await;
            }
            // Unless a recall took it over.
            if releasing.borrow_mut().remove(&id).is_some() {
                answers.send(GuardAnswer::Released, id).await;
            }
        });
        Ok(())
    }

    /// The worker has died: nobody watches the leases of its files any more, so they end as soon as may be.
    pub(super) fn orphan(&mut self) {
        let known = std::mem::take(&mut self.known).into_values().map(|known| known.file);
        let releasing = std::mem::take(&mut *self.releasing.borrow_mut()).into_values();
        for file in known.chain(releasing) {
            if file.is_guarded() && (Rc::strong_count(&file) > 1 || file.recipients() > 0) {
                tokio::task::spawn_local(give_back(file));
            }
        }
    }
}

impl Known {
    /// `None` if they are lost, as the file then is too.
    fn contents(&mut self) -> Result<Option<Bytes>, BadFile> {
        if let Some(contents) = &self.contents {
            return Ok(Some(contents.clone()));
        }
        let Some(descriptor) = self.file.descriptor() else { return Ok(None) };
        let mut contents = vec![0; usize::try_from(self.size).unwrap_or(0)];
        let mut at = 0;
        while at < contents.len() {
            match rustix::io::pread(&*descriptor, &mut contents[at..], at as u64) {
                // `open(O_RDONLY|O_TRUNC)`, which breaks no lease.
                Ok(0) => self.file.lose(),
                Ok(n) => at += n,
                Err(Errno::INTR) => {}
                Err(_) => return Err(BadFile("a file that cannot be read")),
            }
            if !self.file.is_as_it_was() {
                return Ok(None);
            }
        }
        Ok(Some(self.contents.insert(contents.into()).clone()))
    }
}

/// Whether a released file has left entirely; true also if it is no longer in the list.
fn try_release(releasing: &RefCell<HashMap<FileId, Rc<OpenFile>>>, id: FileId) -> bool {
    let releasing = releasing.borrow();
    let Some(file) = releasing.get(&id) else { return true };
    Rc::strong_count(file) == 1 && settle(file) == 0
}

fn settle(file: &OpenFile) -> usize {
    match SockDiag::open() {
        Ok(diag) => file.settle(|connection| diag.in_flight(connection).ok()),
        Err(_) => file.recipients(),
    }
}

/// Ends our use of a file's contents: copies what is not sent, and waits until what is sent cannot change.
async fn give_back(file: Rc<OpenFile>) {
    let Some(original) = file.descriptor() else { return };
    if Rc::strong_count(&file) > 1 {
        match copy(&original).await {
            // Looked at again behind the reading.
            Ok(copy) if file.is_as_it_was() => file.replace(copy),
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "a file that is about to change could not be copied: its downloads are cut");
                file.lose();
            }
        }
    }
    let deadline = Instant::now() + SETTLE_LIMIT;
    let mut pause = Duration::from_millis(1);
    while settle(&file) > 0 {
        if Instant::now() >= deadline {
            let clients = file.recipients();
            tracing::warn!(
                clients,
                "clients on this host have not read what they received of a file that is about to change"
            );
            break;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    drop(original);
}

/// An unlinked copy of the whole file, made off the event loop.
async fn copy(original: &Rc<OwnedFd>) -> io::Result<OwnedFd> {
    let original = File::from(original.as_fd().try_clone_to_owned()?);
    let deadline = Instant::now() + COPY_LIMIT;
    let copied = tokio::task::spawn_blocking(move || {
        let copy = tempfile::tempfile()?;
        let (mut at, mut buffer) = (0, vec![0; 256 * 1024]);
        loop {
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it is too large"));
            }
            let n = original.read_at(&mut buffer, at)?;
            if n == 0 {
                return Ok(copy.into());
            }
            copy.write_all_at(&buffer[..n], at)?;
            at += n as u64;
        }
    });
    copied.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn files() -> (HandedFiles, OwnedFd) {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        (HandedFiles::new(ours, 2), theirs)
    }

    fn file_of(len: usize) -> OwnedFd {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![b'x'; len]).unwrap();
        leased(&file.into_temp_path())
    }

    /// As a worker opens it.
    fn leased(path: &std::path::Path) -> OwnedFd {
        let file = OwnedFd::from(File::open(path).unwrap());
        sendoff_sys::lease::take(file.as_fd(), rustix::thread::gettid()).unwrap();
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
                files.recall(FileId(5));
                while segment.file.recipients() > 0 || Rc::strong_count(&segment.file) > 1 {
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

    /// The worker gave it up, or the kernel took it away, before the front was done.
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

    /// What `open(O_RDONLY|O_TRUNC)` does to a file, which breaks no lease.
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
                files.recall(FileId(5));
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
                let (guard, flags) = (&files.answers.guard, SendFlags::DONTWAIT);
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

    /// Nobody can change a sealed file, so nobody waits for its clients and nobody is told.
    #[tokio::test(flavor = "current_thread")]
    async fn a_sealed_file_is_released_without_an_answer() {
        let (mut files, worker) = files();
        let sealed = memfd::Sealed::new(&[b'x'; 70_000]).unwrap();
        files.open(FileId(5), sealed.fd().try_clone().unwrap()).unwrap();
        let Segment::File(segment) = files.segment(FileId(5), 0, 70_000).unwrap() else {
            panic!("expected a file segment");
        };
        let connection = sendoff_sys::sock_diag::Connection {
            local: "127.0.0.1:1".parse().unwrap(),
            peer: "127.0.0.1:2".parse().unwrap(),
        };
        segment.file.sent_to(connection, &Rc::default());
        assert_eq!(segment.file.recipients(), 0);
        files.release(FileId(5)).unwrap();
        assert!(files.segment(FileId(5), 0, 1).is_err(), "the id is forgotten");
        assert!(files.release(FileId(5)).is_err());
        assert!(segment.file.descriptor().is_some(), "what is under way is finished");
        files.orphan();
        let mut raw = [0; 8];
        let answer = rustix::net::recv(&worker, &mut raw, rustix::net::RecvFlags::DONTWAIT);
        assert_eq!(answer.unwrap_err(), Errno::AGAIN);
    }

    /// Only a file that can neither be written to nor cut is taken for one that stays.
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

    /// A client that still downloads has never read everything; it need only have read the pages of this file.
    #[test]
    fn what_is_sent_after_a_file_does_not_keep_it() {
        use std::cell::Cell;
        use std::io::Read;

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        let connection =
            sendoff_sys::sock_diag::Connection { local: server.local_addr().unwrap(), peer };
        let (file, sent) = (OpenFile::guarded(file_of(10)), Rc::new(Cell::new(0)));
        let mut send = |bytes: &[u8]| {
            server.write_all(bytes).unwrap();
            sent.set(sent.get() + bytes.len() as u64);
        };
        send(b"page");
        file.sent_to(connection, &sent);
        send(b"more");
        assert_eq!(settle(&file), 1);
        client.read_exact(&mut [0; 4]).unwrap();
        // Bytes count twice until they are acknowledged, which the client's kernel may put off.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while settle(&file) > 0 {
            assert!(std::time::Instant::now() < deadline, "the page was read");
            std::thread::yield_now();
        }
        file.replace(file_of(10));
        send(b"copy");
        file.sent_to(connection, &sent);
        assert_eq!(settle(&file), 0, "nobody changes the copy");
    }
}
