//! The front's end of a worker's guard socket, for one link (`docs/handover.md` §3).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SendFlags;
use sendoff_fastcgi::handover::{FileId, GuardAnswer, GuardMessage};
use sendoff_link::front::MAX_FILES;
use sendoff_transport::foreign::ForeignSocket;
use tokio::time::Instant;

/// Pause before a full guard socket is tried again. The worker's guard thread empties the socket
/// even while the script is busy.
const RETRY: Duration = Duration::from_millis(5);

/// Most answers that wait for room in the guard socket: one for each file that can be open and as
/// many for released ones. The socket itself holds about 270.
const MAX_WAITING: usize = 2 * MAX_FILES;

/// A worker whose guard socket stays full for this long is broken (`docs/handover.md` §3).
const STUCK: Duration = Duration::from_secs(10);

/// Sends answers, and keeps those for which the guard socket has no room.
pub(super) struct Answers {
    guard: ForeignSocket<OwnedFd>,
    link: u8,
    waiting: RefCell<VecDeque<GuardMessage>>,
    /// Called when the worker does not read its guard socket.
    broken: Box<dyn Fn(&'static str)>,
}

/// Result of one attempt to send.
enum Attempt {
    Sent,
    Full,
    /// The worker has gone.
    Gone,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Answers {
    /// Answers for the link with this number. `broken` is called when the worker does not read its
    /// guard socket.
    pub(super) fn new(
        guard: OwnedFd,
        link: u8,
        broken: impl Fn(&'static str) + 'static,
    ) -> Rc<Self> {
        let guard = ForeignSocket::of_packets(guard);
        Rc::new(Self { guard, link, waiting: RefCell::default(), broken: Box::new(broken) })
    }

    /// Sends an answer, now or as soon as there is room; answers keep the order of the calls.
    pub(super) fn send(self: &Rc<Self>, answer: GuardAnswer, file: FileId) {
        let message = GuardMessage { answer, link: self.link, file };
        let waiting = self.waiting.borrow().len();
        if waiting >= MAX_WAITING {
            return (self.broken)("it does not read its guard socket");
        }
        if waiting > 0 {
            self.waiting.borrow_mut().push_back(message);
        } else if let Attempt::Full = self.attempt(message) {
            self.waiting.borrow_mut().push_back(message);
            tokio::task::spawn_local(Rc::clone(self).send_waiting());
        }
    }

    async fn send_waiting(self: Rc<Self>) {
        let mut deadline = Instant::now() + STUCK;
        loop {
            tokio::time::sleep(RETRY).await;
            loop {
                let Some(&message) = self.waiting.borrow().front() else { return };
                match self.attempt(message) {
                    Attempt::Sent => deadline = Instant::now() + STUCK,
                    Attempt::Full => break,
                    Attempt::Gone => return self.waiting.borrow_mut().clear(),
                }
                self.waiting.borrow_mut().pop_front();
            }
            if Instant::now() >= deadline {
                self.waiting.borrow_mut().clear();
                return (self.broken)("it does not read its guard socket");
            }
        }
    }

    #[cfg(test)]
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.guard
    }

    fn attempt(&self, message: GuardMessage) -> Attempt {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match rustix::net::send(&self.guard, &message.encode(), flags) {
                Ok(_) => return Attempt::Sent,
                Err(Errno::INTR) => {}
                // The answer must not get lost: the worker would keep the lease until its timeout.
                Err(Errno::AGAIN) => return Attempt::Full,
                Err(error) => {
                    tracing::debug!(%error, "a worker was gone before it heard about its file");
                    return Attempt::Gone;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    /// Answers, the worker's end of the guard, and the number of calls of `broken`.
    fn answers() -> (Rc<Answers>, OwnedFd, Rc<Cell<usize>>) {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let broken = Rc::new(Cell::new(0));
        let count = Rc::clone(&broken);
        (Answers::new(ours, 2, move |_| count.set(count.get() + 1)), theirs, broken)
    }

    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn answers_keep_their_order_when_the_socket_is_full() {
        run(async {
            let (answers, worker, broken) = answers();
            let all = u32::try_from(MAX_WAITING).unwrap();
            for id in 0..all {
                answers.send(GuardAnswer::Released, FileId(id));
            }
            assert!(!answers.waiting.borrow().is_empty(), "more than the socket holds");
            for id in 0..all {
                let mut raw = [0; 16];
                while let Err(error) = recv(&worker, &mut raw, RecvFlags::DONTWAIT) {
                    assert_eq!(error, Errno::AGAIN);
                    tokio::time::sleep(RETRY).await;
                }
                let message = GuardMessage::decode(&raw[..8]).unwrap();
                let expected =
                    GuardMessage { answer: GuardAnswer::Released, link: 2, file: FileId(id) };
                assert_eq!(message, expected);
            }
            assert_eq!(broken.get(), 0);
        });
    }

    #[test]
    fn a_worker_that_does_not_read_its_guard_is_broken() {
        run(async {
            let (answers, _worker, broken) = answers();
            while answers.waiting.borrow().is_empty() {
                answers.send(GuardAnswer::Recalled, FileId(1));
            }
            tokio::time::sleep(STUCK / 2).await;
            assert_eq!(broken.get(), 0);
            tokio::time::sleep(STUCK).await;
            assert_eq!((broken.get(), answers.waiting.borrow().len()), (1, 0));
            for _ in 0..2 * MAX_WAITING {
                answers.send(GuardAnswer::Recalled, FileId(1));
            }
            assert!(broken.get() > 1 && answers.waiting.borrow().len() <= MAX_WAITING);
        });
    }
}
