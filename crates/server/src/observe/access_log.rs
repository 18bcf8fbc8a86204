//! The access log, in the combined log format.
//!
//! Event loops format lines and pass them on in batches. One thread writes them, so a slow disk delays no client and
//! lines of different loops never mix.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::request::Endpoint;

/// A batch from this size on, in bytes, is passed on at once.
const FLUSH_AT: usize = 32 * 1024;

/// Batches that may wait for the disk; further lines are dropped and counted.
const MAX_BATCHES: usize = 128;

/// How long a line may stay in its batch.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The thread that writes. It ends when the last [`AccessLog`] has been dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    batches: SyncSender<String>,
    dropped: Arc<AtomicU64>,
    reopened: Reopened,
    thread: JoinHandle<()>,
}

/// The file that takes the place of the current one before the next batch is written.
type Reopened = Arc<Mutex<Option<File>>>;

impl Writer {
    /// Starts the thread on a log that was opened for appending.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(file: File) -> std::io::Result<Self> {
        let (batches, waiting) = sync_channel(MAX_BATCHES);
        let dropped = Arc::<AtomicU64>::default();
        let reopened = Reopened::default();
        let (counted, next) = (Arc::clone(&dropped), Arc::clone(&reopened));
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(file, &waiting, &counted, &next))?;
        Ok(Self { batches, dropped, reopened, thread })
    }

    /// Writes to `file` from the next batch on. Does not wait for a disk that is slow.
    pub(crate) fn reopen(&self, file: File) {
        *self.reopened.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        // Wakes the thread, so that the old file is closed even if no request comes. If the queue is full, the thread will look anyway.
        let _ = self.batches.try_send(String::new());
    }

    /// The log for one event loop.
    pub(crate) fn log(&self) -> AccessLog {
        AccessLog {
            batches: self.batches.clone(),
            batch: RefCell::default(),
            dropped: Arc::clone(&self.dropped),
        }
    }

    /// Waits until everything is written. The event loops must have ended.
    pub(crate) fn finish(self) {
        drop(self.batches);
        // A panic of the thread has been reported already.
        let _ended = self.thread.join();
    }
}

fn write(
    mut file: File,
    batches: &Receiver<String>,
    dropped: &AtomicU64,
    next: &Mutex<Option<File>>,
) {
    for batch in batches {
        if let Some(next) = next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            file = next;
        }
        if let Err(error) = file.write_all(batch.as_bytes()) {
            tracing::error!(%error, "the access log cannot be written, lines are lost");
        }
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::error!("the access log is written too slowly: {dropped} lines were dropped");
        }
    }
}

/// The access log for one event loop.
#[derive(Debug)]
pub(crate) struct AccessLog {
    batches: SyncSender<String>,
    batch: RefCell<String>,
    dropped: Arc<AtomicU64>,
}

/// The contents of a line.
pub(crate) struct Line<'a> {
    pub(crate) client: &'a Endpoint,
    /// The request line as sent.
    pub(crate) request: &'a dyn fmt::Display,
    pub(crate) status: u16,
    /// Bytes of the body that were sent, chunked coding included.
    pub(crate) sent: u64,
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
}

impl AccessLog {
    /// Adds a line. `date`: an IMF-fixdate, `Sat, 21 Nov 2026 04:53:00 GMT`.
    pub(crate) fn write(&self, line: &Line<'_>, date: &[u8]) {
        let mut batch = self.batch.borrow_mut();
        // Its parts, for "21/Nov/2026:04:53:00 +0000".
        let part =
            |range: std::ops::Range<usize>| date.get(range).unwrap_or_default().escape_ascii();
        let (day, month, year, time) = (part(5..7), part(8..11), part(12..16), part(17..25));
        let dash = |value: &[u8]| if value.is_empty() { "-".to_owned() } else { escape(value) };
        // Writing to a String cannot fail.
        let _ = writeln!(
            batch,
            "{} - - [{day}/{month}/{year}:{time} +0000] \"{}\" {} {} \"{}\" \"{}\"",
            line.client.address().escape_ascii(),
            escape(line.request.to_string().as_bytes()),
            line.status,
            line.sent,
            dash(line.referer),
            dash(line.user_agent),
        );
        if batch.len() >= FLUSH_AT {
            drop(batch);
            self.flush();
        }
    }

    /// Passes the batch on to the thread. If the thread is too slow, lines are lost, not requests.
    pub(crate) fn flush(&self) {
        let batch = std::mem::take(&mut *self.batch.borrow_mut());
        if batch.is_empty() {
            return;
        }
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
            self.batches.try_send(batch)
        {
            self.dropped.fetch_add(batch.lines().count() as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for AccessLog {
    /// The last lines are those of responses that are cut when their event loop ends.
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes quotes and everything that is not printable ASCII as `\xHH`, as nginx and Apache do, so that a line stays one line.
fn escape(value: &[u8]) -> String {
    let mut out = String::with_capacity(value.len());
    for &byte in value {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => {
                let _ = write!(out, "\\x{byte:02X}");
            }
            _ => out.push(char::from(byte)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Endpoint {
        Endpoint::Ip(([127, 0, 0, 1], 5).into())
    }

    #[test]
    fn lines_are_in_the_combined_format_and_cannot_be_forged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = Writer::start(file.reopen().unwrap()).unwrap();
        let log = writer.log();
        let line = Line {
            client: &client(),
            request: &"GET /a\"b HTTP/1.1",
            status: 200,
            sent: 123,
            referer: b"",
            user_agent: b"x\n1.2.3.4 - -",
        };
        log.write(&line, b"Sat, 21 Nov 2026 04:53:00 GMT");
        log.flush();
        drop(log);
        writer.finish();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let expected = "127.0.0.1 - - [21/Nov/2026:04:53:00 +0000] \"GET /a\\x22b HTTP/1.1\" 200 123 \"-\" \"x\\x0A1.2.3.4 - -\"\n";
        assert_eq!(text, expected);
    }

    /// The pipe is not read, which blocks its writer as a stalled disk does: lines are dropped and counted, and the event loop
    /// goes on.
    #[test]
    fn a_log_that_takes_nothing_holds_up_no_request() {
        let (reader, pipe) = std::io::pipe().unwrap();
        let writer = Writer::start(File::from(std::os::fd::OwnedFd::from(pipe))).unwrap();
        let log = writer.log();
        let line = Line {
            client: &client(),
            request: &"GET / HTTP/1.1",
            status: 200,
            sent: 0,
            referer: &[b'r'; 1000],
            user_agent: b"",
        };
        while writer.dropped.load(Ordering::Relaxed) == 0 {
            log.write(&line, b"");
        }
        drop((log, reader));
        writer.finish();
    }
}
