//! Held files: what reaches the front, and what happens when another process writes to them.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]
#![allow(unsafe_code, reason = "a region of address space is given away")]

#[path = "../../worker/tests/front/mod.rs"]
mod front;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use front::{Front, Link, Seen, connect};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use sendoff_fastcgi::handover::{FileId, GuardAnswer, Record};
use sendoff_sys::lease;
use sendoff_sys::mapping::MappedFile;
use sendoff_worker::{Identity, Timespec, Worker};

/// A folder of its own for each test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Address space that is never given back.
fn reserve(len: usize) -> *mut std::ffi::c_void {
    // SAFETY: the kernel chooses an address that is not in use.
    unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE) }
        .unwrap()
}

struct Mapped {
    id: FileId,
    addr: usize,
    len: usize,
}

impl Mapped {
    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped by `hold`, and the test knows until when.
        unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.addr), self.len)
        }
    }

    fn permissions(&self) -> String {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let (range, _) = line.split_once(' ').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let hex = |text| usize::from_str_radix(text, 16).unwrap();
            (hex(from)..hex(to)).contains(&self.addr)
        });
        line.unwrap().split(' ').nth(1).unwrap().to_owned()
    }
}

fn identity(file: &File) -> Identity {
    use std::os::unix::fs::MetadataExt;
    let meta = file.metadata().unwrap();
    Identity {
        size: meta.len(),
        mtime: Timespec { tv_sec: meta.mtime(), tv_nsec: meta.mtime_nsec() },
        ctime: Timespec { tv_sec: meta.ctime(), tv_nsec: meta.ctime_nsec() },
    }
}

fn try_hold(worker: &mut Worker, path: &Path) -> std::io::Result<Mapped> {
    let file = File::open(path).unwrap();
    let identity = identity(&file);
    let len = usize::try_from(identity.size).unwrap();
    let addr = reserve(len.max(1));
    // SAFETY: the space was reserved just now, for this alone.
    let region = unsafe { MappedFile::new(addr, identity.size) }?;
    let id = worker.file_hold(OwnedFd::from(file), region, identity)?;
    Ok(Mapped { id, addr: addr.expose_provenance(), len })
}

fn hold(worker: &mut Worker, path: &Path) -> Mapped {
    try_hold(worker, path).unwrap()
}

/// A writer of a file; reports when its write has returned.
fn writer(change: impl FnOnce() + Send + 'static) -> Receiver<()> {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        change();
        done.send(()).unwrap();
    });
    is_done
}

fn overwrite(path: &Path) -> Receiver<()> {
    let path = path.to_owned();
    writer(move || {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[b'!'; 5000], 0).unwrap();
    })
}

fn begin(front: &mut Front, worker: &mut Worker, id: u16) {
    front.links[0].ask(id);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
}

fn read_segment(link: &Link, fd: usize, offset: u64, len: u64) -> Vec<u8> {
    let file = File::from(link.fds[fd].try_clone().unwrap());
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Sends the whole file once, so that the front knows it.
fn introduce(front: &mut Front, worker: &mut Worker, file: &Mapped) {
    begin(front, worker, 1);
    worker.write_file(file.id, 0, file.len as u64).unwrap();
    worker.finish(0, false);
    let response = front.links[0].response();
    assert!(response.contains(&Seen::Record(Record::Open(file.id))), "{response:?}");
}

/// As a child between fork and exec has one: a lease ends with the last of the descriptors.
#[test]
fn a_dropped_file_has_no_lease_though_a_descriptor_is_left() {
    let folder = Folder::new("left");
    let (_front, mut worker) = connect(1);
    let file = File::open(folder.file("a", &[b'a'; 20_000])).unwrap();
    let _left = file.try_clone().unwrap();
    let identity = identity(&file);
    // SAFETY: the space was reserved just now, for this alone.
    let region = unsafe { MappedFile::new(reserve(20_000), identity.size) }.unwrap();
    let id = worker.file_hold(OwnedFd::from(file), region, identity).unwrap();
    worker.file_drop(id);
    let mut options = OpenOptions::new();
    let writing = options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    assert!(writing.open(folder.0.join("a")).is_ok());
}

#[test]
fn a_page_leaves_as_bytes_file_bytes_file_bytes() {
    let folder = Folder::new("page");
    let (a, b) = (folder.file("a", &[b'a'; 20_000]), folder.file("b", &[b'b'; 4096]));
    let (mut front, mut worker) = connect(1);
    let (a, b) = (hold(&mut worker, &a), hold(&mut worker, &b));
    assert_eq!((a.bytes(), b.bytes()), (&[b'a'; 20_000][..], &[b'b'; 4096][..]));
    let segment = |file: &Mapped, offset, length| {
        Seen::Record(Record::Segment { file: file.id, offset, length })
    };
    let text = |text: &str| Seen::Stdout(text.into());
    for id in 1..3 {
        begin(&mut front, &mut worker, id);
        assert!(worker.file_use(a.id) && worker.file_use(b.id));
        worker.write(b"hello").unwrap();
        worker.write_file(a.id, 0, 20_000).unwrap();
        worker.write(b"world").unwrap();
        worker.write_file(b.id, 96, 4000).unwrap();
        worker.write_file(b.id, 4096, 0).unwrap();
        worker.write(b"bye").unwrap();
        assert!(worker.write_file(a.id, 19_999, 2).is_err(), "range outside the file");
        worker.finish(0, false);
        let mut expected = vec![
            Seen::Record(Record::Length(24_013)),
            text("\r\nhello"),
            Seen::Record(Record::Open(a.id)),
            segment(&a, 0, 20_000),
            text("world"),
            Seen::Record(Record::Open(b.id)),
            segment(&b, 96, 4000),
            text("bye"),
            Seen::End(0),
        ];
        if id > 1 {
            expected.retain(|seen| !matches!(seen, Seen::Record(Record::Open(_))));
        }
        assert_eq!(front.links[0].response(), expected);
    }
    assert_eq!(front.links[0].fds.len(), 2);
    assert_eq!(read_segment(&front.links[0], 0, 0, 20_000), [b'a'; 20_000]);
    assert_eq!(read_segment(&front.links[0], 1, 96, 4000), [b'b'; 4000]);
}

/// More descriptors than one message may carry.
#[test]
fn many_files_arrive_with_their_descriptors_in_order() {
    let folder = Folder::new("many");
    let (mut front, mut worker) = connect(1);
    begin(&mut front, &mut worker, 1);
    for i in 0..150_u8 {
        let path = folder.file(&i.to_string(), &[i; 10]);
        let file = hold(&mut worker, &path);
        worker.write_file(file.id, 0, 10).unwrap();
    }
    worker.finish(0, false);
    front.links[0].response();
    assert_eq!(front.links[0].fds.len(), 150);
    for i in 0..150_u8 {
        assert_eq!(read_segment(&front.links[0], i.into(), 0, 10), [i; 10]);
    }
}

#[test]
fn a_writer_waits_for_the_front_and_the_application_keeps_its_bytes() {
    let folder = Folder::new("writer");
    let (mut front, mut worker) = connect(1);
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |path| drop(OpenOptions::new().write(true).truncate(true).open(path).unwrap()),
        |path| {
            rustix::fs::ftruncate(OpenOptions::new().write(true).open(path).unwrap(), 7).unwrap();
        },
        |path| fs::write(path, b"short").unwrap(),
        |path| OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap(),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let path = folder.file(&i.to_string(), &[b'x'; 50_000]);
        let file = hold(&mut worker, &path);
        introduce(&mut front, &mut worker, &file);
        let done = writer(move || change(&path));
        assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Recall(file.id))));
        assert_eq!(done.try_recv(), Err(TryRecvError::Empty), "the front still has the file");
        assert_eq!(file.bytes(), [b'x'; 50_000]);
        front.answer(GuardAnswer::Recalled, 0, file.id);
        done.recv().unwrap();
        assert_eq!(file.bytes(), [b'x'; 50_000]);
        assert!(!worker.file_use(file.id) && !worker.file_intact(file.id));

        begin(&mut front, &mut worker, 2);
        worker.write_file(file.id, 1, 49_999).unwrap();
        worker.finish(0, false);
        let mut expected = b"\r\n".to_vec();
        expected.extend([b'x'; 49_999]);
        let response = front.links[0].response();
        assert!(response.contains(&Seen::Stdout(expected)), "bytes from the copy");
        worker.file_drop(file.id);
        assert_eq!(file.permissions(), "---p");
    }
}

#[test]
fn a_writer_need_not_wait_for_a_front_that_does_not_know_the_file() {
    let folder = Folder::new("unknown");
    let (mut front, mut worker) = connect(1);
    let (used, idle) = (folder.file("used", &[b'x'; 9000]), folder.file("idle", &[b'x'; 9000]));
    let (used_map, idle_map) = (hold(&mut worker, &used), hold(&mut worker, &idle));
    worker.files_unuse();
    assert!(worker.file_use(used_map.id) && worker.file_intact(idle_map.id));
    begin(&mut front, &mut worker, 1);
    // Queued, then turned into bytes: neither OPEN nor SEGMENT may leave.
    worker.write(b"<").unwrap();
    worker.write_file(used_map.id, 8990, 10).unwrap();
    worker.write_file(used_map.id, 0, 3).unwrap();
    worker.write(b">").unwrap();
    overwrite(&used).recv().unwrap();
    overwrite(&idle).recv().unwrap();
    assert_eq!(used_map.bytes(), [b'x'; 9000]);
    assert_eq!(idle_map.permissions(), "---p", "nobody looks at it, so nothing was copied");
    worker.finish(0, false);
    let seen = [
        Seen::Record(Record::Length(15)),
        Seen::Stdout(b"\r\n<xxxxxxxxxxxxx>".to_vec()),
        Seen::End(0),
    ];
    assert_eq!(front.links[0].response(), seen);
    assert!(front.links[0].fds.is_empty());
}

/// A break turns what waits into bytes, so a file that is named again and again does not wait. A whole response still does:
/// its length is announced.
#[test]
fn a_file_that_is_named_again_and_again_leaves_before_the_response_ends() {
    const SIZE: u64 = 80 << 20;
    let folder = Folder::new("again");
    let path = folder.file("f", b"");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(SIZE).unwrap();
    let (mut front, mut worker) = connect(1);
    let file = hold(&mut worker, &path);
    begin(&mut front, &mut worker, 1);
    worker.write_file(file.id, 0, SIZE).unwrap();
    assert!(!front.links[0].has_more());
    worker.finish(0, false);
    let response = front.links[0].response();
    assert_eq!(response[0], Seen::Record(Record::Length(SIZE)));

    begin(&mut front, &mut worker, 2);
    for _ in 0..2 {
        worker.write_file(file.id, 0, SIZE).unwrap();
    }
    assert!(front.links[0].has_more());
    worker.finish(0, false);
    front.links[0].response();
}

/// A break while half of the output waits for the front to read.
#[test]
fn a_recall_goes_behind_the_segments_that_have_left() {
    let folder = Folder::new("half");
    let path = folder.file("f", &[b'x'; 9000]);
    let (mut front, mut worker) = connect(1);
    let file = hold(&mut worker, &path);
    let id = file.id;
    front.links[0].ask(1);
    let application = thread::spawn(move || {
        assert!(worker.accept());
        worker.write_head(b"\r\n").unwrap();
        worker.write_file(id, 0, 9000).unwrap();
        worker.write(&vec![b'y'; 3_000_000]).unwrap();
        worker.write_file(id, 8000, 1000).unwrap();
        worker.finish(0, false);
        worker
    });
    let link = &mut front.links[0];
    assert_eq!(link.next(), Some(Seen::Stdout(b"\r\n".to_vec())));
    assert_eq!(link.next(), Some(Seen::Record(Record::Open(id))));
    assert_eq!(
        link.next(),
        Some(Seen::Record(Record::Segment { file: id, offset: 0, length: 9000 }))
    );
    let done = overwrite(&path);
    let (mut bytes, mut recalled) = (Vec::new(), false);
    loop {
        match front.links[0].next().unwrap() {
            Seen::Stdout(more) => bytes.extend(more),
            Seen::Record(Record::Recall(of)) => {
                assert_eq!(of, id);
                assert_eq!(done.try_recv(), Err(TryRecvError::Empty));
                recalled = true;
                front.answer(GuardAnswer::Recalled, 0, id);
            }
            // The break may come so late that even the last segment has left.
            Seen::Record(Record::Segment { offset: 8000, length: 1000, .. }) if !recalled => {
                bytes.extend([b'x'; 1000]);
            }
            Seen::End(0) => break,
            other => panic!("{other:?}"),
        }
    }
    while !recalled {
        recalled = front.links[0].next() == Some(Seen::Record(Record::Recall(id)));
        front.answer(GuardAnswer::Recalled, 0, id);
    }
    done.recv().unwrap();
    assert!(bytes[..3_000_000].iter().all(|b| *b == b'y'));
    assert_eq!(bytes[3_000_000..], [b'x'; 1000]);
    application.join().unwrap();
}

#[test]
fn a_released_file_is_guarded_until_the_front_has_let_it_go() {
    let folder = Folder::new("release");
    let (mut front, mut worker) = connect(2);
    for answer in [GuardAnswer::Recalled, GuardAnswer::Released] {
        let path = folder.file("f", &[b'x'; 9000]);
        let file = hold(&mut worker, &path);
        introduce(&mut front, &mut worker, &file);
        worker.file_drop(file.id);
        assert_eq!(file.permissions(), "---p");
        assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Release(file.id))));
        let done = overwrite(&path);
        assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Recall(file.id))));
        assert_eq!(done.try_recv(), Err(TryRecvError::Empty));
        // Answers that were not asked for.
        front.answer(answer, 1, file.id);
        front.answer(answer, 255, file.id);
        front.answer(answer, 0, FileId(file.id.0 + 1));
        rustix::io::write(&front.guard, b"not a guard message").unwrap();
        assert_eq!(done.try_recv(), Err(TryRecvError::Empty));
        front.answer(answer, 0, file.id);
        done.recv().unwrap();
    }
    let path = folder.file("f", &[b'x'; 9000]);
    let file = hold(&mut worker, &path);
    introduce(&mut front, &mut worker, &file);
    worker.file_drop(file.id);
    assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Release(file.id))));
    front.answer(GuardAnswer::Released, 0, file.id);
    // The answer may come before the break or after it; either lets him go.
    overwrite(&path).recv().unwrap();
}

/// The front says nothing, for five seconds.
#[test]
fn a_silent_front_does_not_hold_up_a_writer_for_ever() {
    let folder = Folder::new("silent");
    let path = folder.file("f", &[b'x'; 9000]);
    let other = folder.file("g", &[b'x'; 9000]);
    let (mut front, mut worker) = connect(1);
    let (file, unknown) = (hold(&mut worker, &path), hold(&mut worker, &other));
    introduce(&mut front, &mut worker, &file);
    let start = Instant::now();
    let done = overwrite(&path);
    assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Recall(file.id))));
    overwrite(&other).recv().unwrap();
    assert!(start.elapsed() < Duration::from_secs(4), "another break is served meanwhile");
    done.recv().unwrap();
    assert!((4..20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!((file.bytes(), unknown.bytes()), (&[b'x'; 9000][..], &[b'x'; 9000][..]));
    front.answer(GuardAnswer::Recalled, 0, file.id);
    worker.file_drop(file.id);
    assert!(try_hold(&mut worker, &path).is_ok());
}

/// `RECALL` finds no room in the link. The front then reads `OPEN` and `SEGMENT` of a file whose lease has ended, which it can
/// see, and the worker goes on.
#[test]
fn a_front_that_does_not_read_its_link_does_not_hold_up_a_writer_for_ever() {
    let folder = Folder::new("unread");
    let path = folder.file("f", &[b'x'; 9000]);
    let (mut front, mut worker) = connect(1);
    let file = hold(&mut worker, &path);
    let id = file.id;
    front.links[0].ask(1);
    let application = thread::spawn(move || {
        assert!(worker.accept());
        worker.write_head(b"\r\n").unwrap();
        worker.write_file(id, 0, 9000).unwrap();
        worker.write(&vec![b'y'; 3_000_000]).unwrap();
        worker.finish(0, false);
        worker
    });
    while rustix::io::ioctl_fionread(&front.links[0].socket).unwrap() < 50_000 {
        thread::yield_now();
    }
    let start = Instant::now();
    overwrite(&path).recv().unwrap();
    assert!((4..20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(file.bytes(), [b'x'; 9000]);

    let (mut seen, mut recalled) = (Vec::new(), false);
    while seen.last() != Some(&Seen::End(0)) || !recalled {
        match front.links[0].next().unwrap() {
            Seen::Stdout(_) => {}
            Seen::Record(Record::Recall(of)) => recalled = of == id,
            other => seen.push(other),
        }
    }
    assert!(seen.contains(&Seen::Record(Record::Segment { file: id, offset: 0, length: 9000 })));
    assert_eq!(lease::look(front.links[0].fds[0].as_fd()), lease::Lease::Ended);
    front.answer(GuardAnswer::Recalled, 0, id);
    let mut worker = application.join().unwrap();
    begin(&mut front, &mut worker, 2);
    worker.write_file(id, 0, 9000).unwrap();
    worker.finish(0, false);
    let mut expected = b"\r\n".to_vec();
    expected.extend([b'x'; 9000]);
    assert!(front.links[0].response().contains(&Seen::Stdout(expected)), "bytes from the copy");
}

/// A lease belongs to the open file, which the child shares: its unlock would end its parent's guard.
#[test]
fn a_forked_child_leaves_the_lease_to_its_parent() {
    use sendoff_sys::process::{Forked, exit_now, fork};
    let folder = Folder::new("forked");
    let path = folder.file("f", &[b'x'; 9000]);
    let (_front, mut worker) = connect(1);
    let file = hold(&mut worker, &path);
    match fork().unwrap() {
        Forked::Child => {
            worker.file_drop(file.id);
            exit_now(0);
        }
        Forked::Parent(child) => {
            let options = rustix::process::WaitOptions::empty();
            rustix::process::waitpid(Some(child), options).unwrap();
        }
    }
    assert!(worker.file_use(file.id));
    overwrite(&path).recv().unwrap();
    assert!(file.bytes() == [b'x'; 9000], "nobody asked before he wrote");
}

/// Otherwise it would keep them on the disk for as long as no request comes.
#[test]
fn an_idle_worker_lets_go_of_deleted_files() {
    let folder = Folder::new("deleted");
    let path = |name| folder.file(name, &[b'x'; 9000]);
    let (mut front, mut worker) = connect(1);
    let (kept, idle) = (hold(&mut worker, &path("kept")), hold(&mut worker, &path("idle")));
    introduce(&mut front, &mut worker, &idle);
    worker.files_unuse();
    let used = hold(&mut worker, &path("used"));
    fs::remove_file(folder.0.join("idle")).unwrap();
    fs::remove_file(folder.0.join("used")).unwrap();
    assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Release(idle.id))));
    assert!(!worker.file_use(idle.id), "its mapping is gone");
    assert_eq!(idle.permissions(), "---p");
    front.answer(GuardAnswer::Released, 0, idle.id);
    let deleted = || {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        let idle = folder.0.join("idle (deleted)");
        targets.filter(|target| *target == idle).count()
    };
    // The other descriptor is the front's, which is this process too.
    front.links[0].fds.clear();
    let end = Instant::now() + Duration::from_secs(10);
    while deleted() > 0 {
        assert!(Instant::now() < end, "the worker still has it open");
        thread::yield_now();
    }
    assert!(worker.file_intact(used.id) && worker.file_intact(kept.id));
    assert_eq!((used.bytes(), kept.bytes()), (&[b'x'; 9000][..], &[b'x'; 9000][..]));
    worker.file_drop(idle.id);
}

/// A blob has no name that could be deleted, so a worker that holds only blobs does not look.
#[test]
fn an_idle_worker_that_held_a_blob_before_lets_go_of_a_deleted_file() {
    let folder = Folder::new("blob-before");
    let (mut front, mut worker) = connect(1);
    front.links[0].socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    worker.blob_store(b"held first").unwrap();
    let file = hold(&mut worker, &folder.file("f", &[b'x'; 9000]));
    introduce(&mut front, &mut worker, &file);
    worker.files_unuse();
    fs::remove_file(folder.0.join("f")).unwrap();
    assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Release(file.id))));
    assert!(!worker.file_use(file.id), "its mapping is gone");
}

#[test]
fn what_cannot_be_guarded_is_refused() {
    let folder = Folder::new("refused");
    let path = folder.file("f", &[b'x'; 9000]);
    let (front, mut worker) = connect(1);
    let refused = |result: std::io::Result<Mapped>| {
        result.err().and_then(|error| Errno::from_io_error(&error))
    };

    let open_for_writing = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(refused(try_hold(&mut worker, &path)), Some(Errno::AGAIN));
    drop(open_for_writing);

    let file = File::open(&path).unwrap();
    let mut changed = identity(&file);
    changed.mtime.tv_nsec ^= 1;
    // SAFETY: the space was reserved just now, for this alone.
    let region = unsafe { MappedFile::new(reserve(9000), 9000) }.unwrap();
    let error = worker.file_hold(OwnedFd::from(file), region, changed).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::STALE));
    overwrite(&path).recv().unwrap();

    let held: Vec<_> = std::iter::from_fn(|| try_hold(&mut worker, &path).ok()).collect();
    assert!((16..=sendoff_worker::MAX_HELD).contains(&held.len()), "{}", held.len());
    assert_eq!(refused(try_hold(&mut worker, &path)), Some(Errno::MFILE));
    worker.file_drop(held[0].id);
    hold(&mut worker, &path);
    // All leases break at once.
    overwrite(&path).recv().unwrap();

    drop(front);
    assert!(!worker.accept(), "the front has gone");
}

#[test]
fn the_applications_thread_is_not_interrupted() {
    let folder = Folder::new("signal");
    let (_front, mut worker) = connect(1);
    let paths: Vec<_> = (0..20).map(|i| folder.file(&i.to_string(), &[b'x'; 9000])).collect();
    let held: Vec<_> = paths.iter().map(|path| hold(&mut worker, path)).collect();
    let writers: Vec<_> = paths.iter().map(|path| overwrite(path)).collect();
    let nap = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let slept = rustix::thread::nanosleep(&nap);
    assert!(matches!(slept, rustix::thread::NanosleepRelativeResult::Ok), "{slept:?}");
    writers.iter().for_each(|done| done.recv().unwrap());
    assert!(held.iter().all(|file| file.bytes() == [b'x'; 9000]));
}

/// One writer keeps rewriting a file while the application keeps reading and sending it: every response is of one piece.
#[test]
fn no_response_is_torn_however_often_the_file_changes() {
    const LEN: usize = 100_000;
    let folder = Folder::new("race");
    let path = folder.file("f", &[b'0'; LEN]);
    let (mut front, mut worker) = connect(1);
    let (rewrite, wishes) = mpsc::channel::<()>();
    let rewriting = {
        let path = path.clone();
        thread::spawn(move || {
            for (letter, ()) in (b'a'..=b'z').cycle().zip(wishes) {
                let cut = letter % 3 == 0;
                let file = OpenOptions::new().write(true).truncate(cut).open(&path);
                file.unwrap().write_all(&[letter; LEN]).unwrap();
            }
        })
    };
    let application = thread::spawn(move || {
        let mut file: Option<Mapped> = None;
        while worker.accept() {
            worker.files_unuse();
            if let Some(old) = file.take_if(|file| !worker.file_use(file.id)) {
                worker.file_drop(old.id);
            }
            file = file.or_else(|| try_hold(&mut worker, &path).ok());
            worker.write_head(b"\r\n").unwrap();
            if let Some(file) = &file {
                let first = file.bytes()[0];
                worker.write(&[first]).unwrap();
                worker.write_file(file.id, 0, LEN as u64).unwrap();
                assert!(file.bytes().iter().all(|byte| *byte == first), "the mapping is torn");
            }
            worker.finish(0, false);
        }
    });
    let mut known = HashMap::new();
    let (mut segments, mut bodies) = (0, 0);
    for id in 1..1000 {
        if id % 5 == 0 {
            rewrite.send(()).unwrap();
        }
        front.links[0].ask(id);
        let mut body = Vec::new();
        loop {
            match front.links[0].next().unwrap() {
                Seen::Stdout(bytes) => body.extend(bytes),
                Seen::Record(Record::Open(file)) => {
                    let fd = front.links[0].fds.pop_front().unwrap();
                    assert!(known.insert(file, File::from(fd)).is_none());
                }
                Seen::Record(Record::Segment { file, offset: 0, length }) => {
                    let start = body.len();
                    body.resize(start + usize::try_from(length).unwrap(), 0);
                    known[&file].read_exact_at(&mut body[start..], 0).unwrap();
                    segments += 1;
                }
                Seen::Record(Record::Recall(file)) => {
                    known.remove(&file);
                    front.answer(GuardAnswer::Recalled, 0, file);
                }
                Seen::Record(Record::Release(file)) => {
                    known.remove(&file);
                    front.answer(GuardAnswer::Released, 0, file);
                }
                Seen::Record(Record::Length(_)) => {}
                Seen::End(0) => break,
                other => panic!("{other:?}"),
            }
        }
        if let Some(first) = body.get(2) {
            assert_eq!(body.len(), LEN + 3);
            assert!(body[2..].iter().all(|byte| byte == first), "response {id} is torn");
            bodies += 1;
        }
    }
    drop(front);
    drop(known);
    application.join().unwrap();
    drop(rewrite);
    rewriting.join().unwrap();
    assert!(segments > 0 && bodies > 0, "{segments} {bodies}");
}
