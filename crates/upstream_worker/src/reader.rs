//! The task of a link: receives the worker's records and obeys the output of the link's state
//! machine.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sendoff_delivery::Snapshots;
use sendoff_delivery::segment::Segment;
use sendoff_link::front::{self, Hangup, Output};
use sendoff_message::response::ResponseEnd;
use sendoff_report::limits::lacks_descriptor;
use sendoff_sys::fdpass;
use sendoff_transport::descriptors;
use sendoff_upstream::inbox::Event;
use sendoff_upstream::script_log::{LogBudget, Records, ScriptLog};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::claims::Claims;
use super::files::{BadFile, HandedFiles};
use super::guard::Answers;
use super::link::{Ending, Link, LocalPool, Server, Work};
use super::pool::{Pool, WorkerId};
use super::region::{BadRegion, LinkRegion};
use super::register::{LinkOrigin, NewLink};

/// Size of the buffer for one `recvmsg`, in bytes.
pub(super) const RECEIVE: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next `recvmsg`.
const RECEIVE_MIN: usize = 16 * 1024;

/// Pause between two attempts to receive a file when no descriptor is free.
const DESCRIPTORS_PAUSE: Duration = Duration::from_millis(5);

/// Limit on the bytes that are read although the inbox of their response is full: more than the
/// buffers of a link hold.
const MOST_AHEAD: usize = 1 << 20;

/// Interval between two looks whether the worker of a response with a full inbox has taken another
/// request.
const LOOK_AHEAD: Duration = Duration::from_millis(20);

/// Completes when the other end is closed or has shut its output down, but not when bytes wait to
/// be read. (`EPOLLPRI` would also report urgent data, but tokio does not register sockets for it.)
const HANGUP: Interest = Interest::PRIORITY;

impl From<front::Broken> for Ending {
    fn from(broken: front::Broken) -> Self {
        Self::Broken(broken.to_string())
    }
}

impl From<BadFile> for Ending {
    fn from(BadFile(what): BadFile) -> Self {
        Self::Broken(what.to_owned())
    }
}

impl From<BadRegion> for Ending {
    fn from(BadRegion(what): BadRegion) -> Self {
        Self::Broken(what)
    }
}

fn unreadable(error: io::Error) -> Ending {
    Ending::Broken(format!("its link cannot be read: {error}"))
}

impl Link {
    /// Makes the link, starts its task and adds the link to its pool. `pools`: the event loop's
    /// pools, by number.
    ///
    /// # Errors
    /// The socket could not be registered with the event loop, or there is no such pool.
    pub fn start(
        new: NewLink,
        event_loop: usize,
        pools: &[LocalPool],
        claims: &Rc<Claims>,
        snapshots: &Arc<Snapshots>,
    ) -> io::Result<()> {
        let NewLink { origin, pid, number, socket, guard } = new;
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let (rules, home) = match origin {
            LinkOrigin::Pool { pool, worker } => {
                let pool = pools.get(pool).ok_or_else(|| io::Error::other("no such pool"))?;
                (front::Origin::Pool, Some((pool.clone(), worker)))
            }
            LinkOrigin::Channel => (front::Origin::Channel, None),
        };
        let link = Self::new(UnixStream::from_std(socket)?, pid, rules);
        if let Some((pool, worker)) = &home {
            pool.links.borrow_mut().insert(*worker, Rc::clone(&link));
            if pool.shared.link_made(*worker, pid, event_loop) {
                link.join_ring(&pool.shared, *worker);
            }
        }
        let home = home.map(|(pool, worker)| Home { pool, worker, event_loop });
        let weak = Rc::downgrade(&link);
        let answers = Answers::new(guard, number, move |why| {
            if let Some(link) = weak.upgrade() {
                link.break_off(why);
            }
        });
        let files = HandedFiles::new(answers, Arc::clone(snapshots));
        let mut reader = Reader::new(files, Rc::clone(claims), home.clone());
        tokio::task::spawn_local(async move {
            let failure = match reader.run(&link).await {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            if let Some(Home { pool, worker, event_loop }) = home {
                pool.shared.remove(worker);
                pool.links.borrow_mut().remove(&worker);
                pool.link_ended(worker, event_loop);
            }
            reader.end(&link);
            link.lose(failure);
        });
        Ok(())
    }
}

impl Link {
    /// Gives a worker whose last link has just been made its seat in the ring. A worker without one
    /// would get no request, so its link is closed; the link's task then takes it out of the pool.
    fn join_ring(self: &Rc<Self>, pool: &Pool, worker: WorkerId) {
        match pool.ring_for(worker) {
            Some(Ok((seat, files))) => self.pass_ring(seat, files),
            Some(Err(error)) => {
                tracing::error!(worker = self.pid(), "the worker cannot get the ring: {error}");
                self.close();
            }
            None if pool.has_ring() => {
                tracing::error!(worker = self.pid(), "the ring of the pool has no seat left");
                self.close();
            }
            None => {}
        }
    }
}

/// The pool that a link belongs to.
#[derive(Debug, Clone)]
struct Home {
    pool: LocalPool,
    worker: WorkerId,
    event_loop: usize,
}

/// Receives on a link and obeys the output of its state machine.
struct Reader {
    buffer: BytesMut,
    descriptors: VecDeque<OwnedFd>,
    files: HandedFiles,
    region: LinkRegion,
    log: ScriptLog,
    budget: LogBudget,
    claims: Rc<Claims>,
    /// `None` on a link that a process of an application has opened.
    home: Option<Home>,
    /// Bytes of the response that were read although its inbox is full.
    ahead: usize,
}

impl Reader {
    fn new(files: HandedFiles, claims: Rc<Claims>, home: Option<Home>) -> Self {
        Self {
            buffer: BytesMut::new(),
            descriptors: VecDeque::new(),
            files,
            region: LinkRegion::default(),
            log: ScriptLog::new(Records::Messages),
            budget: LogBudget::default(),
            claims,
            home,
            ahead: 0,
        }
    }

    /// True if the link must be read although the inbox is full: the worker has written the whole
    /// response and has taken another request from the ring, whose client must not wait for this
    /// one. A worker has at most what fits into the socket's buffer ahead.
    fn is_ahead(&self) -> bool {
        let has_claim = |home: &Home| home.pool.shared.has_claim(home.worker);
        self.ahead < MOST_AHEAD && self.home.as_ref().is_some_and(has_claim)
    }

    /// Lets the worker look into the ring if it has fallen asleep before a request was posted.
    fn wake_free_worker(&self, link: &Rc<Link>) {
        if let Some(Home { pool, worker, .. }) = &self.home
            && pool.shared.must_look(*worker)
        {
            link.look();
        }
    }

    async fn run(&mut self, link: &Rc<Link>) -> Result<std::convert::Infallible, Ending> {
        // After a hangup the link is read without waiting for the client. At most the socket buffer
        // is left, a few hundred kilobytes. The worker no longer watches its leases, so writers
        // wait until the front has read to the end.
        let mut has_hung_up = false;
        loop {
            while !has_hung_up && let Some(inbox) = link.full_inbox() {
                if self.is_ahead() {
                    self.ahead += RECEIVE;
                    break;
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK_AHEAD), if self.home.is_some() => {}
                    () = inbox.room.notified() => {}
                    hung_up = link.socket.ready(HANGUP) => {
                        has_hung_up = true;
                        hung_up.map_err(unreadable)?;
                    }
                }
            }
            self.receive(link).await?;
            loop {
                let output = link.front.borrow_mut().next(&mut self.buffer, &mut self.descriptors);
                let Some(output) = output? else { break };
                self.handle(link, output)?;
            }
        }
    }

    async fn receive(&mut self, link: &Link) -> Result<(), Ending> {
        if self.buffer.capacity() - self.buffer.len() < RECEIVE_MIN {
            self.buffer.reserve(RECEIVE);
        }
        let mut waits = false;
        let received = loop {
            // `poll_read_ready` uses the socket's slot for one reader; `async_io` would join and
            // leave a list of waiters each time.
            poll_fn(|cx| link.socket.poll_read_ready(cx)).await.map_err(unreadable)?;
            let received = link.socket.try_io(Interest::READABLE, || {
                descriptors::receive(link.socket.as_fd(), &mut self.buffer, &mut self.descriptors)
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Bytes that came without descriptors have been read, so files can still be
                // released.
                Err(error) if fdpass::is_short(&error) => {
                    if !std::mem::replace(&mut waits, true) {
                        lacks_descriptor(&error, "a file that a worker hands over waits");
                    }
                    tokio::time::sleep(DESCRIPTORS_PAUSE).await;
                }
                received => break received,
            }
        };
        if self.descriptors.is_empty() && self.buffer.len() < self.buffer.capacity() {
            // A short read has emptied the socket (unless it stopped at descriptors): clear the
            // readiness instead of reading once more. Bytes that arrive meanwhile raise a new
            // event.
            let _ = link
                .socket
                .try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        }
        match received {
            Ok(0) => Err(Ending::Ended(Hangup::Closed)),
            Ok(_) => Ok(()),
            // The worker died with unread data in its receive queue.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(Ending::Ended(Hangup::Reset))
            }
            Err(error) => Err(unreadable(error)),
        }
    }

    fn handle(&mut self, link: &Rc<Link>, output: Output<Server>) -> Result<(), Ending> {
        match output {
            Output::Event(event) => self.event(link, event)?,
            Output::Piece(piece) => {
                if let Some(bytes) = self.region.piece(piece)? {
                    link.deliver(Event::Piece(bytes));
                }
            }
            Output::Ended { recipient, app_status, free } => {
                self.budget.flush(|entry| link.log(entry));
                if let Some(inbox) = recipient {
                    inbox.push(Event::End(ResponseEnd::of(app_status)));
                }
                self.ahead = 0;
                if free.is_some() {
                    // Dropping the work may give the worker its next request at once.
                    drop(free);
                    self.wake_free_worker(link);
                }
            }
            Output::Ready(work) => {
                drop(work);
                self.wake_free_worker(link);
            }
            Output::Taken { number, at, is_known } => self.taken(link, number, at, is_known)?,
            Output::Open(id, descriptor) => self.files.open(id, descriptor)?,
            Output::Recall(id) => self.files.recall(id)?,
            Output::Release(id) => self.files.release(id)?,
            Output::Region(descriptor) => self.region.announce(&descriptor)?,
            Output::Claim(secret) => {
                let claimed_on = Rc::clone(link);
                let recipient = self.claims.take(secret, move |inbox| claimed_on.abandon(inbox));
                let work = Work::new(None, "claimed".into(), None);
                link.front.borrow_mut().claim(work, recipient);
                if link.flush().is_err() {
                    link.close();
                }
            }
            Output::Log { text, ends_record } => {
                let (now, log) = (Instant::now(), |entry| link.log(entry));
                self.log.push(&text, ends_record, now, &mut self.budget, log);
            }
        }
        Ok(())
    }

    fn taken(&self, link: &Rc<Link>, number: u64, at: u64, is_known: bool) -> Result<(), Ending> {
        let Some(Home { pool, worker, event_loop }) = &self.home else { return Ok(()) };
        if is_known {
            pool.shared.forget_adopted(number);
            return Ok(());
        }
        if pool.taken(link, *worker, *event_loop, number, at) {
            return Ok(());
        }
        Err(Ending::Broken("it answers a request that it has not taken".to_owned()))
    }

    fn event(&mut self, link: &Link, event: front::Event<OwnedFd>) -> Result<(), Ending> {
        link.deliver(match event {
            front::Event::Bytes(bytes) => Event::Segment(Segment::Bytes(bytes)),
            front::Event::Segment { file, offset, length } => {
                Event::Segment(self.files.segment(file, offset, length)?)
            }
            front::Event::Length(length) => Event::Length(length),
            front::Event::Sent(sent) => Event::Sent(sent),
            front::Event::Named(file) => Event::Named(file),
            front::Event::Explanation(text) => Event::Explanation(text),
        });
        Ok(())
    }

    fn end(&mut self, link: &Link) {
        self.files.orphan();
        self.budget.flush(|entry| link.log(entry));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use rustix::fs::{Mode, OFlags};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use sendoff_fastcgi::handover::{FileId, Record};
    use sendoff_fastcgi::record::EndRequest;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::link::tests::{begin, link, run};
    use sendoff_upstream::inbox::INBOX_EVENTS;

    /// Opens the file as a worker does. The thread that would be told of the lease break has ended.
    fn leased(path: &Path) -> OwnedFd {
        let file = OwnedFd::from(File::open(path).unwrap());
        let take = || sendoff_sys::lease::take(file.as_fd(), rustix::thread::gettid());
        thread::scope(|scope| scope.spawn(take).join().unwrap()).unwrap();
        file
    }

    /// Opens the file for writing as soon as no lease is in the way.
    async fn open_for_writing(path: &Path) -> File {
        loop {
            match rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
                Ok(file) => return file.into(),
                Err(error) => assert_eq!(error, rustix::io::Errno::AGAIN),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn send_opened(worker: &UnixStream, id: FileId, file: &OwnedFd) {
        let mut record = Vec::new();
        Record::Open(id).encode(1, &mut record);
        let (mut space, fds) =
            ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [file.as_fd()]);
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        worker.writable().await.unwrap();
        sendmsg(worker, &[IoSlice::new(&record)], &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    /// A client reads nothing, its response waits in the link, and the worker dies: a writer waits
    /// only until the files are copied, and the response is complete.
    #[test]
    fn a_worker_that_dies_while_its_link_is_not_read() {
        const SEGMENTS: usize = 4000;
        for size in [70_000, 9_000_000] {
            run(async {
                let (pool, links, mut worker) = link();
                let exchange = begin(&pool, &links).await;
                let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
                fs::write(&path, vec![b'o'; size]).unwrap();
                let mut records = Vec::new();
                for _ in 0..SEGMENTS {
                    let length = size as u64;
                    Record::Segment { file: FileId(1), offset: 0, length }.encode(1, &mut records);
                }
                records.extend(EndRequest { app_status: 0, protocol_status: 0 }.encode(1));
                send_opened(&worker, FileId(1), &leased(&path)).await;
                worker.write_all(&records).await.unwrap();
                while exchange.inbox().waiting() <= INBOX_EVENTS {
                    tokio::task::yield_now().await;
                }
                assert!(exchange.inbox().waiting() < SEGMENTS, "a part of it waits in the link");
                drop(worker);
                let writer = open_for_writing(&path).await;
                std::os::unix::fs::FileExt::write_all_at(&writer, &vec![b'n'; size], 0).unwrap();
                for _ in 0..SEGMENTS {
                    let Event::Segment(Segment::File(part)) = exchange.inbox().next().await else {
                        panic!("a segment of the file");
                    };
                    let mut last = [0];
                    let copy = part.file.descriptor().expect("it could be copied");
                    rustix::io::pread(&*copy, &mut last, part.len - 1).unwrap();
                    assert_eq!(last, *b"o", "the file as it was handed over");
                }
                assert!(matches!(exchange.inbox().next().await, Event::End(_)));
                assert_eq!(pool.workers(), 0);
            });
        }
    }
}
