//! The helper thread: receives signals of lease breaks from the kernel, and answers from the front.
//!
//! It only ever waits for all of its sources together, so that a slow front does not delay the next
//! break.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::thread::{Pid, gettid};
use sendoff_fastcgi::handover::{GUARD_MESSAGE_LEN, GuardMessage};
use sendoff_sys::lease::{self, Breaks};

use crate::files::die;
use crate::guard::RELEASE_INTERVAL;
use crate::log;
use crate::output::SharedOutput;
use crate::state::State;

/// Stack size in bytes; the thread makes no deep calls.
const STACK: usize = 128 * 1024;

/// The application's handle on the thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) tid: Pid,
    shared: Arc<SharedOutput>,
    wake: Arc<HelperWake>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct HelperWake {
    event: OwnedFd,
    end: AtomicBool,
}

impl Helper {
    pub(crate) fn start(shared: Arc<SharedOutput>, guard: OwnedFd) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake = Arc::new(HelperWake { event, end: AtomicBool::new(false) });
        let (started, starting) = mpsc::channel();
        let run = {
            let (shared, wake) = (shared.clone(), wake.clone());
            move || match Breaks::open() {
                Ok(breaks) => {
                    // The creating thread waits for this one, so it still exists.
                    let _received = started.send(Ok(gettid()));
                    Loop { shared, wake, breaks, guard: Some(guard) }.run_or_die();
                }
                Err(error) => {
                    let _received = started.send(Err(error));
                }
            }
        };
        let builder = Builder::new().name("sendoff-guard".into()).stack_size(STACK);
        let thread = lease::spawn_deaf(builder, run)?;
        let tid = starting.recv().map_err(io::Error::other)??;
        Ok(Self { tid, shared, wake, thread: Some(thread) })
    }

    /// Wakes the thread, so that it recomputes its deadline.
    pub(crate) fn wake(&self) {
        // This fails only if the counter is full, which wakes the thread too.
        let _full = rustix::io::write(&self.wake.event, &1_u64.to_ne_bytes());
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.shared.is_forked() {
            // After a fork the thread exists only in the parent: do not join it or touch its state.
            Box::leak(Box::new(thread));
            return;
        }
        self.wake.end.store(true, Ordering::Release);
        self.wake();
        // If it panicked, it has ended the process.
        thread.map(JoinHandle::join);
    }
}

struct Loop {
    shared: Arc<SharedOutput>,
    wake: Arc<HelperWake>,
    breaks: Breaks,
    /// `None` once the front has closed it.
    guard: Option<OwnedFd>,
}

impl Loop {
    fn run_or_die(mut self) {
        let run = std::panic::AssertUnwindSafe(|| self.run());
        match std::panic::catch_unwind(run) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => die(&error),
            Err(_) => die(&"the guard thread failed"),
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let mut swept = Instant::now();
        while !self.wake.end.load(Ordering::Acquire) {
            self.wait()?;
            // The read only clears the counter.
            let _empty = rustix::io::read(&self.wake.event, &mut [0_u8; 8]);
            while let Some(told) = self.breaks.next()? {
                self.shared.lock().serve_breaks(&self.shared.links, told);
            }
            self.take_answers();
            let mut state = self.shared.lock();
            state.send_backlog(&self.shared.links);
            give_up_overdue(&mut state);
            if swept.elapsed() >= RELEASE_INTERVAL {
                swept = Instant::now();
                state.release_deleted(&self.shared.links);
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let (deadline, waiting) = {
            let state = self.shared.lock();
            let waiting: Vec<usize> = state.backlog.iter().map(|(link, _)| *link).collect();
            let sweep = || state.files.any_deletable().then(|| Instant::now() + RELEASE_INTERVAL);
            (state.files.next_deadline().into_iter().chain(sweep()).min(), waiting)
        };
        let mut sources = vec![
            PollFd::new(&self.breaks, PollFlags::IN),
            PollFd::new(&self.wake.event, PollFlags::IN),
        ];
        sources.extend(self.guard.as_ref().map(|guard| PollFd::new(guard, PollFlags::IN)));
        sources.extend(
            waiting.iter().map(|link| PollFd::new(&self.shared.links[*link], PollFlags::OUT)),
        );
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match poll(&mut sources, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_answers(&mut self) {
        while let Some(guard) = &self.guard {
            let mut raw = [0; GUARD_MESSAGE_LEN + 1];
            let flags = rustix::net::RecvFlags::DONTWAIT;
            let n = match rustix::net::recv(guard.as_fd(), &mut raw, flags) {
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                // The front has ended, so no more requests will come.
                Ok((0, _)) | Err(_) => {
                    self.guard = None;
                    let mut state = self.shared.lock();
                    state.unguarded = true;
                    state.files.expect_no_answers();
                    drop(state);
                    self.shared.stop();
                    return;
                }
                Ok((_, n)) => n,
            };
            match GuardMessage::decode(&raw[..n.min(raw.len())]) {
                // RELEASED and RECALLED may cross; each means that the front has finished with the
                // file.
                Ok(GuardMessage { link, file, .. }) => {
                    if !self.shared.lock().files.answered(file, link.into()) {
                        log(format_args!(
                            "an answer on link {link} for file {} that was not asked",
                            file.0
                        ));
                    }
                }
                Err(error) => log(format_args!("the front: {error}")),
            }
        }
    }
}

/// Gives up leases whose writers have waited too long. The front checks the lease after each read
/// of the file, and its copies are right. It may read `OPEN` and `SEGMENT` records after that; it
/// then cuts the response. A `RECALL` that still waits for room is sent, so that the front closes
/// its descriptor.
fn give_up_overdue(state: &mut State) {
    for (file, links) in state.files.overdue(Instant::now()) {
        let links: Vec<usize> = links.iter().collect();
        let what = if state.recall_waits(file) { "no room for" } else { "no answer to" };
        log(format_args!(
            "{what} RECALL of file {} on links {links:?}: giving up its lease",
            file.0
        ));
        state.files.give_up(file);
    }
}
