//! Held files: their use as body bytes, and their life.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sendoff_fastcgi::handover::{FileId, Record};
use sendoff_link::worker::{FLUSH_LIMIT, JOIN_LIMIT, Request};
use sendoff_sys::mapping::MappedFile;

use super::Worker;
use crate::Gone;
use crate::files::{Held, HeldVersion, MOST_UNSENT};
use crate::state::State;

/// Bytes of a mapping that are copied under the lock at a time.
const MAPPED_PIECE: usize = 1024 * 1024;

/// Queues a range of a file whose lease is intact. Returns the length of the segment that contains
/// the range.
pub(super) fn queue_range(state: &mut State, id: u16, file: FileId, offset: u64, len: u64) -> u64 {
    let State { queue, files, link, .. } = state;
    if let Some(held) = files.get_mut(file)
        && !held.links.contains(*link)
    {
        held.links.insert(*link);
        queue.record(id, Record::Open(file));
    }
    queue.segment(id, file, offset, len)
}

impl Worker {
    /// Writes `len` bytes of a held file, from `offset` on, to the body.
    ///
    /// # Errors
    /// The client has gone, or the file is not held or shorter.
    pub fn write_file(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), Gone> {
        if self.is_closed() {
            return Err(Gone);
        }
        let Some((id, accepts)) =
            self.requests.running().map(|request| (request.id(), request.accepts_files()))
        else {
            return Err(Gone);
        };
        let mut state = self.shared.lock();
        let handed_over = state.files.use_file(file) && accepts;
        let held = state.files.get(file).filter(|held| held.contains(offset, len)).ok_or(Gone)?;
        let most = held.size.max(MOST_UNSENT);
        if len == 0 {
            return Ok(());
        }
        if !handed_over {
            drop(state);
            return self.write_mapped(file, offset, len);
        }
        let joined = queue_range(&mut state, id, file, offset, len);
        let queue = &state.queue;
        let full = queue.len() > FLUSH_LIMIT
            || (joined > len && joined >= JOIN_LIMIT)
            || (queue.named() > most && queue.unsent_bytes(file) > most);
        drop(state);
        if let Some(open) = self.response.open_mut() {
            open.uses_stdout();
            open.wrote_body(len);
        }
        if full { self.send() } else { Ok(()) }
    }

    /// Writes the range as bytes from the mapping, which is a private copy after a break.
    fn write_mapped(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), Gone> {
        let id = self.requests.running().map(Request::id).ok_or(Gone)?;
        let mut offset = usize::try_from(offset).map_err(|_| Gone)?;
        let end = offset + usize::try_from(len).map_err(|_| Gone)?;
        while offset < end {
            let next = end.min(offset + MAPPED_PIECE);
            let mut state = self.shared.lock();
            let State { queue, files, .. } = &mut *state;
            let bytes = files.get(file).and_then(Held::bytes).ok_or(Gone)?;
            queue.stdout(id, &bytes[offset..next]);
            drop(state);
            if let Some(open) = self.response.open_mut() {
                open.uses_stdout();
                open.wrote_body((next - offset) as u64);
            }
            offset = next;
            // A response that fits keeps its length.
            if offset < end || self.shared.lock().queue.len() > FLUSH_LIMIT {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Holds an open file under a read lease and maps it. It is then in use.
    ///
    /// # Errors
    /// `EACCES`: not the owner and without `CAP_LEASE`. `EAGAIN`: another process has it open for
    /// writing. `ESTALE`: it is not the file described. `EMFILE`: too many held files.
    /// `EOPNOTSUPP`: no guard. Also errors of `fcntl(2)` and `mmap(2)`.
    pub fn file_hold(
        &mut self,
        fd: OwnedFd,
        region: MappedFile,
        identity: HeldVersion,
    ) -> io::Result<FileId> {
        let helper = self.helper.as_ref().ok_or(Errno::OPNOTSUPP)?;
        if self.shared.is_forked() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let mut state = self.shared.lock();
        if state.unguarded {
            return Err(Errno::OPNOTSUPP.into());
        }
        let is_first = !state.files.any_deletable();
        let file = state.files.hold(fd, region, identity, helper.tid)?;
        if is_first {
            // From now on the helper thread checks for deleted files.
            helper.wake();
        }
        Ok(file)
    }

    /// Puts a file in use; `true` if its mapping is complete and the lease is intact.
    pub fn file_use(&mut self, file: FileId) -> bool {
        if self.shared.is_forked() {
            return false;
        }
        let mut state = self.shared.lock();
        state.look_after_pause(&self.shared.links);
        state.files.use_file(file)
    }

    /// Ends the use of all files.
    pub fn files_unuse(&mut self) {
        if !self.shared.is_forked() {
            self.shared.lock().files.unuse_all();
        }
    }

    /// True if the lease is intact.
    #[must_use]
    pub fn file_intact(&self, file: FileId) -> bool {
        !self.shared.is_forked() && self.shared.lock().files.get(file).is_some_and(Held::stands)
    }

    /// Drops the mapping. The lease ends when the front has released the file.
    pub fn file_drop(&mut self, file: FileId) {
        if self.shared.is_forked() {
            if let Some(mut state) = self.shared.try_lock() {
                state.files.drop_in_child(file);
            }
            return;
        }
        if self.shared.lock().queue.names(file) {
            // RELEASE must not overtake segments of the file. If the client has gone there are
            // none.
            let _gone = self.send();
        }
        let mut state = self.shared.lock();
        for link in state.files.drop_mapping(file).iter() {
            state.tell(&self.shared.links, link, Record::Release(file));
        }
        if let (false, Some(helper)) = (state.backlog.is_empty(), &self.helper) {
            helper.wake();
        }
    }
}
