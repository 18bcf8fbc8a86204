//! Times at which leases are checked: when the kernel signals a break, before anything is sent
//! after a pause, and periodically for files that are no longer needed.
//!
//! The kernel signals a break to the helper thread. But a process that is stopped (`SIGSTOP`, a
//! frozen cgroup, a debugger) does not react, and after `fs.lease-break-time` the kernel lets the
//! writer proceed. So the contents of held files are uncertain after a pause. Monotonic time passes
//! while a process is stopped: if [`PAUSE`] has elapsed since the last check of all leases, they
//! are checked again before anything is sent.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sendoff_fastcgi::handover::Record;
use sendoff_sys::lease::LeaseBreak;

use crate::files::die;
use crate::state::State;

/// After signalling a break the kernel waits at least 1 s for the process.
const PAUSE: Duration = Duration::from_millis(500);

/// Longest time for which an idle worker keeps a deleted file on the disk.
pub(crate) const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

impl State {
    /// Handles leases that are being broken. Ends the process if it would otherwise send wrong
    /// bytes.
    pub(crate) fn serve_breaks(&mut self, links: &[OwnedFd], told: LeaseBreak) {
        for file in self.files.newly_broken(told) {
            let Self { files, queue, link, .. } = self;
            match files.on_break(file, queue, *link) {
                Ok(tell) => {
                    for link in tell.iter() {
                        self.tell(links, link, Record::Recall(file));
                    }
                    if self.unguarded {
                        self.files.expect_no_answers();
                    }
                }
                Err(error) => die(&error),
            }
        }
    }

    /// Call it before anything is sent: the queue then has the contents that the files had when
    /// they were read, unless the process is stopped between this check and the system call that
    /// sends.
    pub(crate) fn look_after_pause(&mut self, links: &[OwnedFd]) {
        let now = Instant::now();
        if now.duration_since(self.files.looked_at) >= PAUSE {
            self.files.looked_at = now;
            self.serve_breaks(links, LeaseBreak::Anything);
        }
    }

    /// Releases files that have been deleted and that the current request does not use.
    pub(crate) fn release_deleted(&mut self, links: &[OwnedFd]) {
        for file in self.files.deleted() {
            // RELEASE must not overtake what it releases.
            if !self.queue.names(file) {
                for link in self.files.release(file).iter() {
                    self.tell(links, link, Record::Release(file));
                }
            }
        }
    }
}
