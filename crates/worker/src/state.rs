//! State that both threads of a worker use, under the lock of `output.rs`.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;
use sendoff_fastcgi::handover::{FileId, Record};
use sendoff_link::worker::Queue;

use crate::files::Files;
use crate::region::Regions;

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Output for `link`.
    pub(crate) queue: Queue,
    /// The link of the current request; after its end, of the last one.
    pub(crate) link: usize,
    /// Writing to a link has failed, so the worker will end.
    pub(crate) lost: bool,
    pub(crate) files: Files,
    pub(crate) regions: Regions,
    /// `RECALL` and `RELEASE` records that wait for room in a link.
    pub(crate) backlog: Vec<(usize, Record)>,
    /// True once the guard socket is closed: no further file may be held.
    pub(crate) unguarded: bool,
}

impl State {
    /// Sends the part of the backlog for which the links have room.
    pub(crate) fn send_backlog(&mut self, links: &[OwnedFd]) {
        let Self { backlog, queue, link: current, .. } = self;
        let mut wire = Vec::new();
        backlog.retain(|(link, record)| {
            if link == current && queue.in_flight() {
                queue.record(0, *record);
                return false;
            }
            wire.clear();
            record.encode(0, &mut wire);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // The kernel takes a record of this length completely or not at all. On a lost link it
            // is dropped.
            matches!(
                rustix::net::send(&links[*link], &wire, flags),
                Err(Errno::AGAIN | Errno::INTR)
            )
        });
    }

    /// Discards output that will not be sent, and forgets the files that it would have opened on
    /// the link. Unless the link is lost, no byte of it has been sent, so it contains no `RECALL`
    /// that the front needs.
    pub(crate) fn discard_queue(&mut self) {
        for file in self.queue.unsent_opens() {
            if let Some(held) = self.files.get_mut(file) {
                held.links.remove(self.link);
            }
        }
        self.regions.end_pieces(self.link, &mut self.queue);
        if self.lost {
            self.queue.clear();
        } else {
            self.queue.discard();
        }
    }

    /// Writes a `RECALL` or `RELEASE` to a link, or adds it to the backlog until the link has room.
    pub(crate) fn tell(&mut self, links: &[OwnedFd], link: usize, record: Record) {
        if link == self.link && self.queue.in_flight() {
            self.queue.record(0, record);
        } else {
            self.backlog.push((link, record));
            self.send_backlog(links);
        }
    }

    /// True if the file's `RECALL` has not been sent.
    pub(crate) fn recall_waits(&self, file: FileId) -> bool {
        let recall = Record::Recall(file);
        self.queue.has_recall(file) || self.backlog.iter().any(|(_, record)| *record == recall)
    }
}
