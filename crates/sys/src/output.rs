//! Output of the processes of a pool: their master reads it from pipes and logs it line by line.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use crate::master::poll_until;

/// Maximum length of a logged line in bytes; a longer line is logged in pieces.
const MAX_LINE: usize = 8 * 1024;
/// Maximum number of lines that a pool logs per second.
const LINES_PER_SECOND: u32 = 5000;
/// Maximum number of bytes in the lines that a pool logs per second.
const BYTES_PER_SECOND: usize = 1024 * 1024;
const SECOND: Duration = Duration::from_secs(1);
/// Number of bytes at the end of a process's output that are logged even beyond these limits: both
/// parts of a PHP worker's report of its crash (`php/src/backtrace.c`).
const LAST_WORDS: usize = 32 * 1024;
/// Maximum number of streams that stay open after their process has ended, because processes that
/// it has started still write to them.
const MAX_LEFT: usize = 64;

/// Output streams of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// The log of a master.
pub trait LineLog: Debug {
    /// Logs a line of a process. `text` has no control characters except tabs.
    fn line(&self, process: Pid, stream: OutputStream, text: &str);

    /// Logs that this number of lines was not logged.
    fn suppressed(&self, lines: u64);
}

/// A pipe for the output of a process: the master's end, which is non-blocking, and the process's.
///
/// # Errors
/// The system has no descriptor left.
pub fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    // The two ends have flags of their own, so the process cannot clear this one.
    fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// The output streams of all processes of a pool.
#[derive(Debug)]
pub struct Outputs<L> {
    streams: Vec<ProcessOutput>,
    log: LimitedLog<L>,
}

impl<L: LineLog> Outputs<L> {
    /// No streams yet.
    pub fn new(log: L) -> Self {
        Self { streams: Vec::new(), log: LimitedLog::new(log) }
    }

    /// True if no process can write any more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Adds a stream of a new process: the master's end of its [`output_pipe`].
    pub fn add(&mut self, process: Pid, stream: OutputStream, pipe: OwnedFd) {
        let (line, withheld) = (Vec::new(), Vec::new());
        self.streams.push(ProcessOutput { process, stream, pipe, line, withheld, is_left: false });
    }

    /// Waits until one of `others` or a stream is readable, or the deadline has passed; may return
    /// early. Reads once from each readable stream, and logs the complete lines. Returns the events
    /// of `others`.
    ///
    /// # Errors
    /// Errors of `poll(2)`, except `EINTR`.
    pub fn wait(
        &mut self,
        others: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> io::Result<Vec<PollFlags>> {
        let streams = self.streams.iter().map(AsFd::as_fd);
        let all = others.iter().copied().chain(streams);
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        poll_until(&mut fds, deadline)?;
        let mut events: Vec<_> = fds.iter().map(PollFd::revents).collect();
        let of_streams = events.split_off(others.len());
        self.read(of_streams.iter().map(|events| !events.is_empty()));
        Ok(events)
    }

    /// Reads once from each stream that is readable.
    fn read(&mut self, readable: impl IntoIterator<Item = bool>) {
        let log = &mut self.log;
        let mut readable = readable.into_iter();
        self.streams.retain_mut(|output| {
            !readable.next().unwrap_or(false) || output.read(log) != Reading::Ended
        });
    }

    /// Logs the remaining output of a process that has ended. A stream stays open as long as
    /// processes that it has started can write to it, so that they can go on.
    pub fn process_ended(&mut self, process: Pid) {
        let log = &mut self.log;
        self.streams.retain_mut(|output| {
            output.process != process || output.is_left || output.process_ended(log)
        });
        let left = self.streams.iter().filter(|output| output.is_left).count();
        let mut surplus = left.saturating_sub(MAX_LEFT);
        self.streams.retain(|output| {
            let goes = surplus > 0 && output.is_left;
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// Logs the number of suppressed lines once their second is over; otherwise returns the end of
    /// that second.
    pub fn flush(&mut self, now: Instant) -> Option<Instant> {
        self.log.flush(now)
    }
}

/// One output stream of one process.
#[derive(Debug)]
struct ProcessOutput {
    process: Pid,
    stream: OutputStream,
    /// The read end of a non-blocking pipe.
    pipe: OwnedFd,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    /// The end of the lines that were suppressed since the last logged line.
    withheld: Vec<u8>,
    /// True after the end of its process.
    is_left: bool,
}

impl ProcessOutput {
    /// Reads once, and logs the complete lines; at the end of the stream also an incomplete one,
    /// and the last suppressed ones.
    fn read(&mut self, log: &mut LimitedLog<impl LineLog>) -> Reading {
        let mut bytes = [0; MAX_LINE];
        let read = match rustix::io::read(&self.pipe, &mut bytes[..]) {
            Ok(n @ 1..) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Reading::Empty,
            Ok(_) | Err(_) => {
                self.log_last_words(log);
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

    /// Logs the remaining output after the process has ended. Returns false at the end of the
    /// stream.
    fn process_ended(&mut self, log: &mut LimitedLog<impl LineLog>) -> bool {
        // Other processes may go on writing, so reading is limited to the default maximum size of a
        // pipe, 1 MiB.
        let mut reads = 1024 * 1024 / MAX_LINE;
        let mut last = Reading::More;
        while reads > 0 && last == Reading::More {
            last = self.read(log);
            reads -= 1;
        }
        self.log_last_words(log);
        self.is_left = true;
        last != Reading::Ended
    }

    fn log_last_words(&mut self, log: &mut LimitedLog<impl LineLog>) {
        self.finish(log);
        for line in std::mem::take(&mut self.withheld).split(|byte| *byte == b'\n') {
            log.last_word(self.process, self.stream, line);
        }
    }

    fn finish(&mut self, log: &mut LimitedLog<impl LineLog>) {
        // An empty line is no sign that lines are logged again.
        if !self.line.trim_ascii().is_empty() {
            if log.line(self.process, self.stream, &self.line) {
                self.withheld.clear();
            } else {
                self.withhold();
            }
        }
        self.line.clear();
    }

    /// Keeps a suppressed line, in place of the oldest ones if they are too many.
    fn withhold(&mut self) {
        self.withheld.extend_from_slice(&self.line);
        self.withheld.push(b'\n');
        if self.withheld.len() > 2 * LAST_WORDS {
            let newest = &self.withheld[self.withheld.len() - LAST_WORDS..];
            let cut = newest.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            self.withheld = newest[cut..].to_vec();
        }
    }
}

impl AsFd for ProcessOutput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Result of an attempt to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    More,
    Empty,
    Ended,
}

/// The log of a pool, with limits per second.
#[derive(Debug)]
struct LimitedLog<L> {
    log: L,
    /// Start of the second that the counts are for.
    since: Instant,
    lines: u32,
    bytes: usize,
    suppressed: u64,
}

impl<L: LineLog> LimitedLog<L> {
    fn new(log: L) -> Self {
        Self { log, since: Instant::now(), lines: 0, bytes: 0, suppressed: 0 }
    }

    fn flush(&mut self, now: Instant) -> Option<Instant> {
        if now - self.since >= SECOND {
            (self.since, self.lines, self.bytes) = (now, 0, 0);
            let suppressed = std::mem::take(&mut self.suppressed);
            if suppressed > 0 {
                self.log.suppressed(suppressed);
            }
        }
        (self.suppressed > 0).then(|| self.since + SECOND)
    }

    /// Logs a line. Returns false if it is suppressed.
    fn line(&mut self, process: Pid, stream: OutputStream, line: &[u8]) -> bool {
        let line = line.trim_ascii_end();
        self.flush(Instant::now());
        if self.lines >= LINES_PER_SECOND || self.bytes >= BYTES_PER_SECOND {
            self.suppressed += 1;
            return false;
        }
        self.lines += 1;
        self.bytes += line.len();
        self.log.line(process, stream, &printable(line));
        true
    }

    /// Logs a line that was suppressed.
    fn last_word(&mut self, process: Pid, stream: OutputStream, line: &[u8]) {
        let line = line.trim_ascii_end();
        if !line.is_empty() {
            self.suppressed = self.suppressed.saturating_sub(1);
            self.log.line(process, stream, &printable(line));
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
#[allow(clippy::unwrap_used, reason = "the panic is the failure report")]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Lines(Rc<RefCell<Vec<String>>>);

    impl LineLog for Lines {
        fn line(&self, _: Pid, _: OutputStream, text: &str) {
            self.0.borrow_mut().push(text.to_owned());
        }

        fn suppressed(&self, lines: u64) {
            self.0.borrow_mut().push(format!("{lines} suppressed"));
        }
    }

    fn process() -> Pid {
        Pid::from_raw(7).unwrap()
    }

    #[test]
    fn lines_cannot_speak_to_a_terminal() {
        assert_eq!(printable(b"a\tb\x1b[2J\xff\r"), "a\tb\\u{1b}[2J\u{fffd}\\r");
    }

    #[test]
    fn more_lines_than_may_be_are_counted() {
        let mut log = LimitedLog::new(Lines::default());
        for _ in 0..LINES_PER_SECOND + 3 {
            log.line(process(), OutputStream::Output, b"x");
        }
        // If the machine stalls for a second, no line is suppressed.
        if log.since.elapsed() < SECOND {
            assert_eq!((log.lines, log.suppressed), (LINES_PER_SECOND, 3));
            assert_eq!(log.flush(log.since), Some(log.since + SECOND));
            assert_eq!(log.flush(log.since + SECOND), None);
        }
        assert_eq!(log.suppressed, 0);
    }

    /// The end of the process may be noticed before or after the end of its stream.
    #[test]
    fn last_words_are_logged_even_after_a_flood() {
        let ways: [fn(&mut Outputs<Lines>, OwnedFd); 2] = [
            |outputs, _| outputs.process_ended(process()),
            |outputs, theirs| {
                drop(theirs);
                while !outputs.is_empty() {
                    outputs.read([true]);
                }
            },
        ];
        for ends_by in ways {
            last_words_after_a_flood(ends_by);
        }
    }

    fn last_words_after_a_flood(ends_by: fn(&mut Outputs<Lines>, OwnedFd)) {
        let lines = Lines::default();
        let mut outputs = Outputs::new(lines.clone());
        let (ours, theirs) = output_pipe().unwrap();
        outputs.add(process(), OutputStream::Error, ours);
        let flood = [b'x', b'\n'].repeat(2 * MAX_LINE);
        rustix::io::write(&theirs, &flood).unwrap();
        for _ in 0..3 {
            outputs.read([true]);
        }
        rustix::io::write(&theirs, b"it crashes\n  #0 f()\n").unwrap();
        outputs.read([true]);
        let before = outputs.log.suppressed;
        ends_by(&mut outputs, theirs);
        let logged = lines.0.borrow();
        assert_eq!(logged[logged.len() - 2..], ["it crashes", "  #0 f()"]);
        let [before, after] = [before, outputs.log.suppressed].map(|n| usize::try_from(n).unwrap());
        assert!(after <= before && logged.len() + after >= 2 * MAX_LINE + 2, "{before} {after}");
    }

    #[test]
    fn a_stream_ends_with_the_last_process_that_has_it() {
        let lines = Lines::default();
        let mut outputs = Outputs::new(lines.clone());
        let (ours, theirs) = output_pipe().unwrap();
        outputs.add(process(), OutputStream::Error, ours);
        outputs.process_ended(process());
        rustix::io::write(&theirs, b"by a child\n").unwrap();
        outputs.read([true]);
        assert_eq!(*lines.0.borrow(), ["by a child"]);
        drop(theirs);
        outputs.read([true]);
        assert!(outputs.is_empty());
        let kept: Vec<_> = (0..=MAX_LEFT)
            .map(|_| {
                let (ours, theirs) = output_pipe().unwrap();
                outputs.add(process(), OutputStream::Error, ours);
                theirs
            })
            .collect();
        outputs.process_ended(process());
        assert_eq!(outputs.streams.len(), MAX_LEFT);
        assert_eq!(rustix::io::write(&kept[1], b"x"), Ok(1));
    }
}
