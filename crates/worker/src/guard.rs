//! When leases are looked at: when the kernel says that one breaks, before anything leaves after a pause, and now and
//! then for files that are not needed any more.
//!
//! The kernel tells the helper thread of a break. But a process that is stopped (`SIGSTOP`, a frozen cgroup, a debugger)
//! hears nothing, and after `fs.lease-break-time` the writer goes on without it. So the application's thread must not be
//! trusted with what it holds after a pause. Being stopped does not stop the clock: if [`PAUSE`] has passed
//! since the leases were looked at, they are looked at again before anything is sent.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sendoff_fastcgi::handover::Record;
use sendoff_sys::lease::Told;

use crate::files::die;
use crate::state::State;

/// The kernel waits for no less than a second for a process that it tells of a break.
const PAUSE: Duration = Duration::from_millis(500);

/// For how long a worker that has nothing to do keeps a deleted file on the disk, at most.
pub(crate) const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

impl State {
    /// Does the worker's part for leases that are being broken. Ends the process if it would have to lie.
    pub(crate) fn serve_breaks(&mut self, links: &[OwnedFd], told: Told) {
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

    /// To be called before anything leaves: what is queued afterwards is what the files held when they were read, unless
    /// the process stops between this and the system call that sends.
    pub(crate) fn look_after_pause(&mut self, links: &[OwnedFd]) {
        let now = Instant::now();
        if now.duration_since(self.files.looked_at) >= PAUSE {
            self.files.looked_at = now;
            self.serve_breaks(links, Told::Anything);
        }
    }

    /// Releases files that have no name any more and that the request at hand does not use.
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
