//! The body of a page while it is made: its last bytes are in memory, the others in a file, which
//! becomes the page's file if the body is complete.
//!
//! The event loop hands pieces over. At most one job per page writes them, on a thread that may
//! wait for the disk.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

use super::LARGEST;
use super::flights::MakePermit;
use super::page::{Facts, Page};
use super::purge::PurgeCount;
use super::store::PageCache;

/// Bytes that a page collects in memory before they are written.
const PIECE: usize = 128 * 1024;

/// Most bytes that wait to be written. A slow disk must not fill the memory.
const MOST_UNWRITTEN: u64 = 64 << 20;

/// Pages that are being made may have 1/`PART` of the bytes of all pages.
const PART: u64 = 4;

/// Bytes that are counted while this value lives.
#[derive(Debug)]
struct UnfinishedBytesGuard {
    cache: Arc<PageCache>,
    bytes: u64,
}

impl UnfinishedBytesGuard {
    /// Counts more bytes. Returns false if the pages that are being made would have too many.
    fn add(&mut self, bytes: u64, limit: u64) -> bool {
        let most = (limit / PART).max(limit.min(LARGEST as u64));
        self.bytes += bytes;
        self.cache.unfinished.all.fetch_add(bytes, Ordering::Relaxed) + bytes <= most
    }
}

impl Drop for UnfinishedBytesGuard {
    fn drop(&mut self) {
        self.cache.unfinished.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A page that is being made.
pub(super) struct Recording {
    facts: Facts,
    /// Most bytes of all pages.
    limit: u64,
    counted: UnfinishedBytesGuard,
    /// Bytes that have not been handed to the writer.
    memory: Vec<u8>,
    writer: Option<Arc<BodyFileWriter>>,
}

impl Recording {
    pub(super) fn new(cache: &Arc<PageCache>, facts: Facts, limit: u64) -> Self {
        let counted = UnfinishedBytesGuard { cache: Arc::clone(cache), bytes: 0 };
        Self { facts, limit, counted, memory: Vec::new(), writer: None }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.counted.bytes
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The page cannot be kept.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.counted.add(bytes.len() as u64, self.limit) {
            return Err(io::Error::other("too many pages are being made"));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PIECE - self.memory.len()));
            self.memory.extend_from_slice(now);
            rest = later;
            if self.memory.len() == PIECE {
                let piece = std::mem::take(&mut self.memory);
                self.writer().hand_over(piece)?;
            }
        }
        Ok(())
    }

    /// Ends the body: the page is kept once all of it is written. Requests that wait for `permit`
    /// wait until then.
    pub(super) fn finish(mut self, begun: PurgeCount, permit: Option<MakePermit>) {
        let (piece, writer) = (std::mem::take(&mut self.memory), Arc::clone(self.writer()));
        let Self { facts, limit, counted, .. } = &mut self;
        let counted = UnfinishedBytesGuard {
            cache: Arc::clone(&counted.cache),
            bytes: std::mem::take(&mut counted.bytes),
        };
        let end = RecordingEnd { facts: facts.clone(), limit: *limit, counted, begun, permit };
        writer.finish(piece, Box::new(end));
    }

    fn writer(&mut self) -> &Arc<BodyFileWriter> {
        self.writer.get_or_insert_with(|| BodyFileWriter::new(&self.counted.cache))
    }
}

impl Drop for Recording {
    /// Without [`finish`](Self::finish) the unwritten bytes are dropped.
    fn drop(&mut self) {
        if let Some(writer) = &self.writer {
            writer.give_up();
        }
    }
}

/// Actions when a body is completely written.
#[derive(Debug)]
struct RecordingEnd {
    facts: Facts,
    limit: u64,
    counted: UnfinishedBytesGuard,
    begun: PurgeCount,
    permit: Option<MakePermit>,
}

/// Writes one body.
#[derive(Debug)]
struct BodyFileWriter {
    cache: Arc<PageCache>,
    queue: Mutex<Queue>,
    /// Used by one job at a time.
    file: Mutex<BodyFile>,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Vec<u8>>,
    end: Option<Box<RecordingEnd>>,
    /// A job is writing.
    has_job: bool,
    /// The file cannot be written: further pieces are dropped.
    has_failed: bool,
}

/// The part of a body that is on disk.
#[derive(Debug, Default)]
struct BodyFile {
    file: Option<NamedTempFile>,
    crc: crc32fast::Hasher,
    len: u64,
    error: Option<io::Error>,
}

impl BodyFileWriter {
    fn new(cache: &Arc<PageCache>) -> Arc<Self> {
        let (queue, file) = (Mutex::default(), Mutex::default());
        Arc::new(Self { cache: Arc::clone(cache), queue, file })
    }

    fn hand_over(self: &Arc<Self>, piece: Vec<u8>) -> io::Result<()> {
        let mut queue = lock(&self.queue);
        if queue.has_failed {
            return Err(io::Error::other("its file cannot be written"));
        }
        let len = piece.len() as u64;
        let unwritten = &self.cache.unfinished.unwritten;
        if unwritten.fetch_add(len, Ordering::Relaxed) > MOST_UNWRITTEN {
            unwritten.fetch_sub(len, Ordering::Relaxed);
            return Err(io::Error::other("the disk is too slow"));
        }
        queue.pieces.push_back(piece);
        self.start(queue);
        Ok(())
    }

    fn finish(self: &Arc<Self>, piece: Vec<u8>, end: Box<RecordingEnd>) {
        self.cache.unfinished.unwritten.fetch_add(piece.len() as u64, Ordering::Relaxed);
        let mut queue = lock(&self.queue);
        queue.pieces.push_back(piece);
        queue.end = Some(end);
        self.start(queue);
    }

    fn give_up(&self) {
        let mut queue = lock(&self.queue);
        if queue.end.is_none() {
            queue.pieces.drain(..).for_each(|piece| self.count_written(&piece));
        }
    }

    fn start(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        if !std::mem::replace(&mut queue.has_job, true) {
            let writer = Arc::clone(self);
            drop(tokio::task::spawn_blocking(move || writer.write_all()));
        }
    }

    /// Writes all pieces that have been handed over.
    fn write_all(&self) {
        let mut file = lock(&self.file);
        loop {
            let mut queue = lock(&self.queue);
            let Some(piece) = queue.pieces.pop_front() else {
                queue.has_job = false;
                let end = queue.end.take();
                drop(queue);
                if let Some(end) = end {
                    self.end(std::mem::take(&mut file), *end);
                }
                return;
            };
            drop(queue);
            file.write(&self.cache, &piece);
            if let Some(error) = &file.error {
                self.cache.note_failure(error);
                lock(&self.queue).has_failed = true;
            }
            self.count_written(&piece);
        }
    }

    fn count_written(&self, piece: &[u8]) {
        self.cache.unfinished.unwritten.fetch_sub(piece.len() as u64, Ordering::Relaxed);
    }

    fn end(&self, file: BodyFile, end: RecordingEnd) {
        let RecordingEnd { facts, limit, counted, begun, permit } = end;
        let made = Page::new(facts.clone());
        let kept = file.into_parts(facts).and_then(|(facts, file)| {
            drop(counted);
            self.cache.keep(facts, file, begun, limit)
        });
        if kept.is_err() {
            self.cache.drop_older(&made);
        }
        self.cache.ends(kept, permit);
    }
}

impl BodyFile {
    /// Appends bytes. After a failure further bytes are dropped.
    fn write(&mut self, cache: &PageCache, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.append(cache, bytes).err();
        }
    }

    fn append(&mut self, cache: &PageCache, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(cache.new_body()?),
        };
        file.write_all(bytes)?;
        self.crc.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Completes the facts with the body's length and checksum, and returns them with its file.
    fn into_parts(self, mut facts: Facts) -> io::Result<(Facts, NamedTempFile)> {
        let Self { file, crc, len, error } = self;
        if let Some(error) = error {
            return Err(error);
        }
        let file = file.ok_or_else(|| io::Error::other("nothing was written"))?;
        (facts.len, facts.crc) = (len, crc.finalize());
        Ok((facts, file))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use http::StatusCode;
    use sendoff_config::{CacheDialect, Keeping, PageStore};
    use sendoff_message::request::sample::request;
    use sendoff_message::response::ResponseHead;

    use super::super::freshness::judge;
    use super::super::key::Key;
    use super::super::page::facts;
    use super::*;
    use crate::lscache::Labels;

    /// Other requests wait for the page while it is recorded.
    #[tokio::test]
    async fn a_page_whose_file_cannot_be_written_is_not_recorded_to_its_end() {
        let folder = tempfile::tempdir().unwrap().path().to_owned();
        let cache = PageCache::new(&PageStore { folder, size: 0 });
        let (fresh, dialect) = (Some(Duration::from_secs(60)), CacheDialect::Http);
        let keeping = Keeping { fresh, stale: None, cookies: false, dialect };
        let (head, now) = (ResponseHead::new(StatusCode::OK, None), SystemTime::now());
        let times = judge(&keeping, &head, now).unwrap();
        let facts = facts(
            &Key::of_text(b"a".to_vec()),
            &request(None),
            &head,
            times,
            Labels::default(),
            now,
        );
        let mut recording = Recording::new(&cache, facts, u64::MAX);
        recording.push(&[b'x'; PIECE]).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while cache.unfinished.unwritten.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            tokio::task::yield_now().await;
        }
        assert!(recording.push(&[b'x'; PIECE]).is_err());
    }
}
