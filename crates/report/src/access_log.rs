//! The access log and the thread that writes it.
//!
//! Event loops format lines and pass them on in batches. One thread writes them, so a slow disk
//! delays no client and lines of different loops never mix.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sendoff_config::{Config, LogFormat};
use sendoff_message::Shown;

use super::log_line::{self, LogLine};

/// A batch from this size on, in bytes, is passed on at once.
const FLUSH_AT: usize = 32 * 1024;

/// Batches that may wait for the disk; further lines are dropped and counted.
const MAX_BATCHES: usize = 128;

/// Least time between two reports of lost lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time that a line stays in its batch.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// A file that lines go to.
#[derive(Debug)]
pub struct LogFile {
    /// Only the writer thread takes this lock.
    current: Mutex<Current>,
    /// The file that replaces the current one before the next line is written (log rotation).
    next: Mutex<Option<File>>,
}

#[derive(Debug)]
struct Current {
    file: File,
    /// The last write ended in the middle of a line, for example because the disk was full.
    is_torn: bool,
}

/// Lines that could not be written, with the reason.
struct Lost {
    lines: usize,
    error: io::Error,
}

impl LogFile {
    /// A log that was opened for appending.
    pub fn new(file: File) -> Arc<Self> {
        let current = Mutex::new(Current { file, is_torn: false });
        Arc::new(Self { current, next: Mutex::default() })
    }

    fn write(&self, lines: &str) -> Result<(), Lost> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = self.next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            *current = Current { file, is_torn: false };
        }
        if !lines.is_empty() {
            current
                .end_torn_line()
                .map_err(|error| Lost { lines: lines.lines().count(), error })?;
        }
        current.write(lines.as_bytes())
    }
}

impl Current {
    fn end_torn_line(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        Ok(())
    }

    fn write(&mut self, mut lines: &[u8]) -> Result<(), Lost> {
        while !lines.is_empty() {
            match self.file.write(lines) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return Err(lost(lines, io::ErrorKind::WriteZero.into())),
                Err(error) => return Err(lost(lines, error)),
                Ok(written) => {
                    self.is_torn = lines[written - 1] != b'\n';
                    lines = &lines[written..];
                }
            }
        }
        Ok(())
    }
}

fn lost(rest: &[u8], error: io::Error) -> Lost {
    Lost { lines: rest.iter().filter(|&&byte| byte == b'\n').count(), error }
}

/// Lines and their files. An empty text only makes the thread switch to the file's `next`.
type Batch = Vec<(Arc<LogFile>, String)>;

/// The thread that writes. It ends when the last [`LogSender`] has been dropped.
#[derive(Debug)]
pub struct LogWriter {
    sender: LogSender,
    thread: JoinHandle<()>,
}

/// The event loops' end of the queue to the writer thread.
#[derive(Debug, Clone)]
pub struct LogSender {
    batches: SyncSender<Batch>,
    dropped: Arc<Dropped>,
}

/// Counts of lost lines.
#[derive(Debug, Default)]
struct Dropped {
    /// Lost lines that the log has not reported yet.
    unsaid: AtomicU64,
    /// All lost lines since the front started.
    all: AtomicU64,
}

impl Dropped {
    fn count(&self, lines: usize) {
        self.unsaid.fetch_add(lines as u64, Ordering::Relaxed);
        self.all.fetch_add(lines as u64, Ordering::Relaxed);
    }
}

impl LogWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start() -> io::Result<Self> {
        let (batches, waiting) = sync_channel(MAX_BATCHES);
        let dropped = Arc::<Dropped>::default();
        let counted = Arc::clone(&dropped);
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(&waiting, &counted))?;
        Ok(Self { sender: LogSender { batches, dropped }, thread })
    }

    /// Has lines of these logs written to other files from the next batch on. Does not wait for a
    /// slow disk.
    pub fn reopen(&self, files: impl Iterator<Item = (Arc<LogFile>, File)>) {
        let replace = |(log, file): (Arc<LogFile>, File)| {
            *log.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
            (log, String::new())
        };
        // One batch for all logs wakes the thread, so the old files are closed even if no request
        // comes. If the queue is full, the files wait for the next line.
        let _ = self.sender.batches.try_send(files.map(replace).collect());
    }

    /// A sender for one event loop.
    pub fn sender(&self) -> LogSender {
        self.sender.clone()
    }

    /// Waits until everything is written. The event loops must have ended.
    pub fn finish(self) {
        drop(self.sender);
        // A panic of the thread has been reported already.
        let _ended = self.thread.join();
    }
}

fn write(batches: &Receiver<Batch>, dropped: &Dropped) {
    let mut reported: Option<Instant> = None;
    for batch in batches {
        for (file, lines) in batch {
            if let Err(Lost { lines, error }) = file.write(&lines) {
                dropped.count(lines);
                // A full disk stays full for a while.
                if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
                    tracing::error!(%error, "an access log cannot be written, lines are lost");
                }
            }
        }
        if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            let dropped = dropped.unsaid.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                reported = Some(Instant::now());
                tracing::error!(
                    "{dropped} lines of access logs were lost: the disk is full or too slow"
                );
            }
        }
    }
    let dropped = dropped.unsaid.swap(0, Ordering::Relaxed);
    if dropped > 0 {
        tracing::error!("{dropped} lines of access logs were lost: the disk is full or too slow");
    }
}

impl LogSender {
    /// Passes lines on. If the queue is full, the lines are dropped and counted: the request does
    /// not wait.
    fn send(&self, batch: Batch) {
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
            self.batches.try_send(batch)
        {
            let lost: usize = batch.iter().map(|(_, lines)| lines.lines().count()).sum();
            self.dropped.count(lost);
        }
    }

    /// Lines that were lost since the front started.
    pub fn dropped(&self) -> u64 {
        self.dropped.all.load(Ordering::Relaxed)
    }
}

/// A log on one event loop.
#[derive(Debug)]
pub struct AccessLog {
    file: Arc<LogFile>,
    sender: LogSender,
    lines: RefCell<String>,
}

impl AccessLog {
    pub(crate) fn new(file: Arc<LogFile>, sender: LogSender) -> Self {
        Self { file, sender, lines: RefCell::default() }
    }

    /// Adds a line. `site`: the name of the request's site.
    pub fn write(&self, line: &LogLine<'_>, format: &LogFormat, site: Option<&str>, time: &Shown) {
        let mut lines = self.lines.borrow_mut();
        log_line::write(&mut lines, format, line, site, time);
        if lines.len() >= FLUSH_AT {
            drop(lines);
            self.flush();
        }
    }

    /// Passes the gathered lines on to the thread.
    pub(crate) fn flush(&self) {
        self.sender.send(self.take().into_iter().collect());
    }

    /// Takes the lines that have not been passed on; `None`: there are none.
    fn take(&self) -> Option<(Arc<LogFile>, String)> {
        let mut lines = self.lines.borrow_mut();
        // After a full batch, reserves the same capacity: a string that grows is copied several
        // times.
        let room = if lines.len() >= FLUSH_AT { lines.capacity() } else { 0 };
        let lines = std::mem::replace(&mut *lines, String::with_capacity(room));
        (!lines.is_empty()).then(|| (Arc::clone(&self.file), lines))
    }
}

impl Drop for AccessLog {
    /// Passes on the lines of responses that were cut when their event loop ended.
    fn drop(&mut self) {
        if let Some(lines) = self.take() {
            self.sender.send(vec![lines]);
        }
    }
}

/// The logs of a configuration on one event loop.
#[derive(Debug, Default)]
pub struct Logs {
    files: Vec<Rc<AccessLog>>,
    /// The index of the server's log in `files`.
    of_server: Option<usize>,
    /// The index of each site's log in `files`.
    of_sites: Vec<Option<usize>>,
}

impl Logs {
    /// Logs for `config`. `files` are the files of the configuration's log targets, in their order;
    /// a log of `before` that has the same file is kept.
    pub fn new(config: &Config, files: &[Arc<LogFile>], before: &Self, sender: &LogSender) -> Self {
        let known: HashMap<_, _> =
            before.files.iter().map(|log| (Arc::as_ptr(&log.file), log)).collect();
        let log = |file: &Arc<LogFile>| match known.get(&Arc::as_ptr(file)) {
            Some(log) => Rc::clone(log),
            None => Rc::new(AccessLog::new(Arc::clone(file), sender.clone())),
        };
        let targets = config.log_targets().into_iter().enumerate();
        let numbers: HashMap<_, _> = targets.map(|(number, to)| (to, number)).collect();
        let number = |site| config.log_of(site).and_then(|log| numbers.get(&log.to).copied());
        Self {
            files: files.iter().map(log).collect(),
            of_server: number(None),
            of_sites: (0..config.sites.len()).map(|site| number(Some(site))).collect(),
        }
    }

    /// The log of a site's requests with its format, or the server's log for requests without a
    /// site. `config` must be the configuration that `self` was made from.
    pub fn of<'c>(
        &self,
        config: &'c Config,
        site: Option<usize>,
    ) -> Option<(&AccessLog, &'c LogFormat)> {
        let file = match site {
            Some(site) => *self.of_sites.get(site)?,
            None => self.of_server,
        };
        Some((self.files.get(file?)?, &config.log_of(site)?.format))
    }

    /// Logs that `before` does not have.
    pub fn new_since<'l>(&'l self, before: &Self) -> impl Iterator<Item = &'l Rc<AccessLog>> {
        let known: HashSet<_> = before.files.iter().map(Rc::as_ptr).collect();
        self.files.iter().filter(move |log| !known.contains(&Rc::as_ptr(log)))
    }
}

/// Passes gathered lines on every `FLUSH_INTERVAL`; forgets a log once it has been dropped.
#[derive(Debug, Default)]
pub struct Flusher(RefCell<Vec<Weak<AccessLog>>>);

impl Flusher {
    /// Adds logs.
    pub fn add<'l>(&self, logs: impl Iterator<Item = &'l Rc<AccessLog>>) {
        self.0.borrow_mut().extend(logs.map(Rc::downgrade));
    }

    /// Runs forever. Logs with few lines share a batch.
    pub async fn run(&self, sender: &LogSender) {
        loop {
            tokio::time::sleep(FLUSH_INTERVAL).await;
            let (mut batch, mut size) = (Batch::new(), 0);
            self.0.borrow_mut().retain(|log| {
                let Some(log) = log.upgrade() else { return false };
                if let Some((file, lines)) = log.take() {
                    size += lines.len();
                    batch.push((file, lines));
                }
                if size >= FLUSH_AT {
                    sender.send(std::mem::take(&mut batch));
                    size = 0;
                }
                true
            });
            if !batch.is_empty() {
                sender.send(batch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::HeaderValue;
    use tokio::time::Instant;

    use super::super::log_line::{BodyBytes, Notes};
    use super::*;
    use sendoff_message::request::sample::request;

    #[test]
    fn lines_are_in_the_combined_format_and_cannot_be_forged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = LogWriter::start().unwrap();
        let log = AccessLog::new(LogFile::new(file.reopen().unwrap()), writer.sender());
        let mut asked = request(None);
        let forged = HeaderValue::from_bytes(b"x\t1.2.3.4 - -").unwrap();
        asked.headers.insert("user-agent", forged);
        let line = LogLine {
            client: &asked.peer,
            request: Some(&asked),
            request_line: &"GET /a\"b\n1.2.3.4 - - HTTP/1.1",
            began: Instant::now(),
            status: 200,
            sent: 123,
            body: BodyBytes::default(),
            is_whole: true,
            notes: &Notes::default(),
        };
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_236_780);
        log.write(&line, &LogFormat::combined(), None, &Shown::new(time));
        log.flush();
        drop(log);
        writer.finish();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let expected = "127.0.0.1 - - [21/Nov/2026:04:53:00 +0000] \"GET /a\\x22b\\x0A1.2.3.4 - - HTTP/1.1\" 200 123 \"-\" \"x\\x091.2.3.4 - -\"\n";
        assert_eq!(text, expected);
    }

    /// Nothing reads the pipe, so its writer blocks as it does on a stalled disk: lines are dropped
    /// and counted, and the event loop continues.
    #[test]
    fn a_log_that_takes_nothing_holds_up_no_request() {
        let (reader, pipe) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        let writer = LogWriter::start().unwrap();
        let log = AccessLog::new(LogFile::new(pipe), writer.sender());
        let format = LogFormat::combined();
        let mut asked = request(None);
        let long = HeaderValue::from_bytes(&[b'r'; 1000]).unwrap();
        asked.headers.insert("referer", long);
        let line = LogLine {
            client: &asked.peer,
            request: Some(&asked),
            request_line: &"GET / HTTP/1.1",
            began: Instant::now(),
            status: 200,
            sent: 0,
            body: BodyBytes::default(),
            is_whole: true,
            notes: &Notes::default(),
        };
        let time = Shown::new(SystemTime::now());
        while writer.sender.dropped() == 0 {
            log.write(&line, &format, None, &time);
        }
        drop((log, reader));
        writer.finish();
    }
}
