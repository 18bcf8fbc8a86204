//! The task of a link: receives what the worker sends, and does what the link's machine says of it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sendoff_fastcgi::handover::FileId;
use sendoff_link::front::{self, Hangup, Output};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::claims::Claims;
use super::files::{BadFile, HandedFiles};
use super::guard::Answers;
use super::link::{Ending, Link, Links, Server, Work};
use super::pool::Pool;
use super::region::{BadRegion, LinkRegion};
use super::register::{NewLink, Origin};
use crate::delivery::Snapshots;
use crate::descriptors::{self, Level};
use crate::segment::{OpenFile, Segment};
use crate::upstream::inbox::Event;
use crate::upstream::script_log::{Budget, Records, ScriptLog};

/// What one `recvmsg` may bring, in bytes.
pub(super) const RECEIVE: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next `recvmsg`.
const RECEIVE_MIN: usize = 16 * 1024;

/// How long a link waits for descriptors to become free.
const DESCRIPTORS_LIMIT: Duration = Duration::from_secs(1);

/// How often it looks.
const DESCRIPTORS_PAUSE: Duration = Duration::from_millis(5);

/// Files that a worker has released or that were recalled, and that clients are still to get: at most this many per link.
/// Guarded files count among a worker's 256 until the front has answered, so only sealed ones can come near.
const MAX_LEAVING: usize = 1024;

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

impl Link {
    /// Makes the link, starts its task and tells the pool.
    ///
    /// # Errors
    /// The socket could not be registered with the event loop.
    pub fn start(
        new: NewLink,
        event_loop: usize,
        pool: &Arc<Pool>,
        links: &Rc<Links>,
        claims: &Rc<Claims>,
        snapshots: &Arc<Snapshots>,
    ) -> io::Result<()> {
        let NewLink { origin, pid, number, socket, guard } = new;
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let rules = match origin {
            Origin::Pool(_) => front::Origin::Pool,
            Origin::Channel => front::Origin::Channel,
        };
        let link = Self::new(UnixStream::from_std(socket)?, pid, rules);
        if let Origin::Pool(worker) = origin {
            links.borrow_mut().insert(worker, Rc::clone(&link));
            pool.link_made(worker, event_loop);
        }
        let (pool, links) = (Arc::clone(pool), Rc::clone(links));
        let weak = Rc::downgrade(&link);
        let answers = Answers::new(guard, number, move |why| {
            if let Some(link) = weak.upgrade() {
                link.break_off(why);
            }
        });
        let files = HandedFiles::new(answers, Arc::clone(snapshots));
        let mut reader = Reader::new(files, Rc::clone(claims));
        tokio::task::spawn_local(async move {
            let failure = match reader.run(&link).await {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            if let Origin::Pool(worker) = origin {
                pool.remove(worker);
                links.borrow_mut().remove(&worker);
            }
            reader.end(&link);
            link.lose(failure);
        });
        Ok(())
    }
}

/// Waits until there are descriptors for files that may come: the kernel drops those for which there are none, and the link
/// with them is of no more use. It waits for a bounded time, because what other links hold may be freed by what comes on this one.
async fn await_descriptors() {
    let mut waited = Duration::ZERO;
    while descriptors::level() == Level::Out && waited < DESCRIPTORS_LIMIT {
        tokio::time::sleep(DESCRIPTORS_PAUSE).await;
        waited += DESCRIPTORS_PAUSE;
    }
}

/// Receives on a link and does what its machine says.
struct Reader {
    buffer: BytesMut,
    descriptors: VecDeque<OwnedFd>,
    files: HandedFiles,
    /// Files of which a segment was passed on and which may be on their way to clients, also after their release.
    sent: HashMap<FileId, Weak<OpenFile>>,
    region: LinkRegion,
    log: ScriptLog,
    budget: Budget,
    claims: Rc<Claims>,
}

impl Reader {
    fn new(files: HandedFiles, claims: Rc<Claims>) -> Self {
        Self {
            buffer: BytesMut::new(),
            descriptors: VecDeque::new(),
            files,
            sent: HashMap::new(),
            region: LinkRegion::default(),
            log: ScriptLog::new(Records::Messages),
            budget: Budget::default(),
            claims,
        }
    }

    async fn run(&mut self, link: &Rc<Link>) -> Result<std::convert::Infallible, Ending> {
        loop {
            while let Some(inbox) = link.full_inbox() {
                inbox.room.notified().await;
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
        await_descriptors().await;
        if self.buffer.capacity() - self.buffer.len() < RECEIVE_MIN {
            self.buffer.reserve(RECEIVE);
        }
        let received = link.socket.async_io(Interest::READABLE, || {
            sendoff_sys::fdpass::receive(
                link.socket.as_fd(),
                &mut self.buffer,
                &mut self.descriptors,
            )
        });
        let received = received.await;
        if let Some(last) = self.descriptors.back() {
            descriptors::note(last);
        }
        if self.descriptors.is_empty() && self.buffer.len() < self.buffer.capacity() {
            // A short read has emptied the socket (unless it stopped at descriptors): forget that it was readable
            // instead of asking once more. Bytes that arrive meanwhile are a new event.
            let _ = link
                .socket
                .try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        }
        match received {
            Ok(0) => Err(Ending::Ended(Hangup::Closed)),
            Ok(_) => Ok(()),
            // The worker died with something in its receive queue.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(Ending::Ended(Hangup::Reset))
            }
            Err(error) => Err(Ending::Broken(format!("its link cannot be read: {error}"))),
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
            Output::Ended { recipient, free } => {
                self.budget.flush(|entry| link.log(entry));
                if let Some(inbox) = recipient {
                    inbox.push(Event::End);
                }
                // The worker may get its next request right here.
                drop(free);
            }
            Output::Ready(work) => drop(work),
            Output::Open(id, descriptor) => {
                self.files.open(id, descriptor)?;
                self.check_leaving(link)?;
            }
            Output::Recall(id) => self.files.recall(id),
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

    fn event(&mut self, link: &Link, event: front::Event<OwnedFd>) -> Result<(), Ending> {
        link.deliver(match event {
            front::Event::Bytes(bytes) => Event::Segment(Segment::Bytes(bytes)),
            front::Event::Segment { file, offset, length } => {
                let segment = self.files.segment(file, offset, length)?;
                if let Segment::File(part) = &segment {
                    self.sent.entry(file).or_insert_with(|| Rc::downgrade(&part.file));
                }
                Event::Segment(segment)
            }
            front::Event::Length(length) => Event::Length(length),
            front::Event::Sent(sent) => Event::Sent(sent),
            front::Event::Named(file) => Event::Named(file),
            front::Event::Explanation(text) => Event::Explanation(text),
        });
        Ok(())
    }

    /// Files that the worker does not have open any more hold descriptors as long as clients are to get them.
    fn check_leaving(&mut self, link: &Link) -> Result<(), Ending> {
        let limit = MAX_LEAVING + link.front.borrow().files();
        if self.sent.len() > limit {
            self.sent.retain(|_, file| file.strong_count() > 0);
        }
        if self.sent.len() > limit {
            let why =
                format!("more than {MAX_LEAVING} files that it has released are on their way");
            return Err(Ending::Broken(why));
        }
        Ok(())
    }

    fn end(&mut self, link: &Link) {
        self.files.orphan();
        self.budget.flush(|entry| link.log(entry));
    }
}
