//! The access log: who writes its lines.
//!
//! Event loops format lines and pass them on in batches. One thread writes them, so a slow disk delays no client and
//! lines of different loops never mix.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sendoff_config::LogFormat;

use super::log_line::{self, Line};

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
    format: Arc<LogFormat>,
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
    pub(crate) fn start(file: File, format: LogFormat) -> std::io::Result<Self> {
        let (batches, waiting) = sync_channel(MAX_BATCHES);
        let dropped = Arc::<AtomicU64>::default();
        let reopened = Reopened::default();
        let (counted, next) = (Arc::clone(&dropped), Arc::clone(&reopened));
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(file, &waiting, &counted, &next))?;
        Ok(Self { batches, format: Arc::new(format), dropped, reopened, thread })
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
            format: Arc::clone(&self.format),
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
    format: Arc<LogFormat>,
    dropped: Arc<AtomicU64>,
}

impl AccessLog {
    /// Adds a line. `site`: the name of the request's site. `date`: an IMF-fixdate.
    pub(crate) fn write(&self, line: &Line<'_>, site: Option<&str>, date: &[u8]) {
        let mut batch = self.batch.borrow_mut();
        let date = std::str::from_utf8(date).unwrap_or_default();
        log_line::write(&mut batch, &self.format, line, site, date);
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tokio::time::Instant;

    use super::super::log_line::{BodyBytes, Notes};
    use super::*;
    use crate::request::tests::request;

    #[test]
    fn lines_are_in_the_combined_format_and_cannot_be_forged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = Writer::start(file.reopen().unwrap(), LogFormat::combined()).unwrap();
        let log = writer.log();
        let mut asked = request(None);
        let forged = HeaderValue::from_bytes(b"x\t1.2.3.4 - -").unwrap();
        asked.headers.insert("user-agent", forged);
        let line = Line {
            client: &asked.peer,
            request: Some(&asked),
            request_line: &"GET /a\"b\n1.2.3.4 - - HTTP/1.1",
            began: Instant::now(),
            status: 200,
            sent: 123,
            body: BodyBytes::default(),
            notes: &Notes::default(),
        };
        log.write(&line, None, b"Sat, 21 Nov 2026 04:53:00 GMT");
        log.flush();
        drop(log);
        writer.finish();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let expected = "127.0.0.1 - - [21/Nov/2026:04:53:00 +0000] \"GET /a\\x22b\\x0A1.2.3.4 - - HTTP/1.1\" 200 123 \"-\" \"x\\x091.2.3.4 - -\"\n";
        assert_eq!(text, expected);
    }

    /// The pipe is not read, which blocks its writer as a stalled disk does: lines are dropped and counted, and the event loop
    /// goes on.
    #[test]
    fn a_log_that_takes_nothing_holds_up_no_request() {
        let (reader, pipe) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        let writer = Writer::start(pipe, LogFormat::combined()).unwrap();
        let log = writer.log();
        let mut asked = request(None);
        let long = HeaderValue::from_bytes(&[b'r'; 1000]).unwrap();
        asked.headers.insert("referer", long);
        let line = Line {
            client: &asked.peer,
            request: Some(&asked),
            request_line: &"GET / HTTP/1.1",
            began: Instant::now(),
            status: 200,
            sent: 0,
            body: BodyBytes::default(),
            notes: &Notes::default(),
        };
        while writer.dropped.load(Ordering::Relaxed) == 0 {
            log.write(&line, None, b"");
        }
        drop((log, reader));
        writer.finish();
    }
}
