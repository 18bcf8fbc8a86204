//! Output of a program's processes: each line goes to the log, with the pool's name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::Pid;

/// Maximum length of a logged line in bytes; a longer line is logged in pieces.
const MAX_LINE: usize = 8 * 1024;
/// Maximum number of lines that a pool logs per second.
const LINES_PER_SECOND: u32 = 5000;
/// Maximum number of bytes in the lines that a pool logs per second.
const BYTES_PER_SECOND: usize = 1024 * 1024;
const SECOND: Duration = Duration::from_secs(1);

/// Output streams of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStream {
    Output,
    Error,
}

/// One output stream of one process.
#[derive(Debug)]
pub(super) struct ProcessOutput {
    pid: Pid,
    stream: OutputStream,
    /// The read end of a non-blocking pipe.
    pipe: OwnedFd,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
}

impl ProcessOutput {
    pub(super) fn new(pid: Pid, stream: OutputStream, pipe: OwnedFd) -> Self {
        Self { pid, stream, pipe, line: Vec::new() }
    }

    pub(super) fn is_of(&self, pid: Pid) -> bool {
        self.pid == pid
    }

    /// Reads once, and logs the complete lines; at the end of the stream also an incomplete one.
    pub(super) fn read(&mut self, log: &mut Log<'_>) -> Reading {
        let mut bytes = [0; MAX_LINE];
        let read = match rustix::io::read(&self.pipe, &mut bytes[..]) {
            Ok(n @ 1..) => n,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Reading::Empty,
            Ok(_) | Err(_) => {
                self.finish(log);
                return Reading::Ended;
            }
        };
        for &byte in &bytes[..read] {
            if byte == b'\n' {
                self.finish(log);
            } else {
                self.line.push(byte);
                if self.line.len() == MAX_LINE {
                    self.finish(log);
                }
            }
        }
        Reading::More
    }

    /// Logs the remaining output after the process has ended.
    pub(super) fn end(mut self, log: &mut Log<'_>) {
        // A process that left the process group may keep the write end open, so reading is limited
        // to the default maximum size of a pipe, 1 MiB.
        let mut reads = 1024 * 1024 / MAX_LINE;
        while reads > 0 && self.read(log) == Reading::More {
            reads -= 1;
        }
        self.finish(log);
    }

    fn finish(&mut self, log: &mut Log<'_>) {
        log.line(self.pid, self.stream, &self.line);
        self.line.clear();
    }
}

impl AsFd for ProcessOutput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Result of an attempt to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    More,
    Empty,
    Ended,
}

/// The log of a pool, with limits per second.
#[derive(Debug)]
pub(super) struct Log<'a> {
    pool: &'a str,
    /// Start of the second that the counts are for.
    since: Instant,
    lines: u32,
    bytes: usize,
    suppressed: u64,
}

impl<'a> Log<'a> {
    pub(super) fn new(pool: &'a str) -> Self {
        Self { pool, since: Instant::now(), lines: 0, bytes: 0, suppressed: 0 }
    }

    /// Logs the number of suppressed lines once their second is over; otherwise returns the end of
    /// that second.
    pub(super) fn flush(&mut self, now: Instant) -> Option<Instant> {
        if now - self.since >= SECOND {
            (self.since, self.lines, self.bytes) = (now, 0, 0);
            let suppressed = std::mem::take(&mut self.suppressed);
            if suppressed > 0 {
                tracing::warn!(
                    pool = self.pool,
                    "{suppressed} more lines within a second were not logged"
                );
            }
        }
        (self.suppressed > 0).then(|| self.since + SECOND)
    }

    fn line(&mut self, pid: Pid, stream: OutputStream, line: &[u8]) {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return;
        }
        self.flush(Instant::now());
        if self.lines >= LINES_PER_SECOND || self.bytes >= BYTES_PER_SECOND {
            self.suppressed += 1;
            return;
        }
        self.lines += 1;
        self.bytes += line.len();
        let (pool, process, text) = (self.pool, pid.as_raw_nonzero(), printable(line));
        match stream {
            OutputStream::Output => tracing::info!(pool, process, "{text}"),
            OutputStream::Error => tracing::warn!(pool, process, "{text}"),
        }
    }
}

/// Bytes as one line of text without control characters, which would act on a terminal.
fn printable(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    for char in String::from_utf8_lossy(line).chars() {
        if char.is_control() && char != '\t' {
            text.extend(char.escape_default());
        } else {
            text.push(char);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cannot_speak_to_a_terminal() {
        assert_eq!(printable(b"a\tb\x1b[2J\xff\r"), "a\tb\\u{1b}[2J\u{fffd}\\r");
    }

    #[test]
    fn more_lines_than_may_be_are_counted() {
        let mut log = Log::new("p");
        let pid = Pid::from_raw(7).unwrap();
        for _ in 0..LINES_PER_SECOND + 3 {
            log.line(pid, OutputStream::Output, b"x");
        }
        // If the machine stalls for a second, no line is suppressed.
        if log.since.elapsed() < SECOND {
            assert_eq!((log.lines, log.suppressed), (LINES_PER_SECOND, 3));
            assert_eq!(log.flush(log.since), Some(log.since + SECOND));
            assert_eq!(log.flush(log.since + SECOND), None);
        }
        assert_eq!(log.suppressed, 0);
    }
}
