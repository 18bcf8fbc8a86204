//! Log output of applications (`STDERR` records): one entry for each message, bounded in size and
//! number.
//!
//! Parses the records of one upstream into entries. No I/O; the caller passes the time.

use std::fmt::Write;
use std::time::{Duration, Instant};

use sendoff_report::limits::Limit;

/// The most entries per second of one upstream: enough for a page that logs a line for each of a
/// few thousand rows.
const ENTRIES_PER_SECOND: u64 = 5000;
/// The most bytes of entries per second of one upstream.
const BYTES_PER_SECOND: usize = 1024 * 1024;
/// The longest entry, in bytes of the application's text. A PHP stack trace of 60 frames takes
/// about 6 KiB.
const MAX_ENTRY: usize = 8 * 1024;
const SECOND: Duration = Duration::from_secs(1);
/// Separates the lines of an entry, so that no line can look like an entry.
const INDENT: &str = "\n    ";

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub struct LogMessage {
    /// Its severity.
    pub severity: Severity,
    /// The message, without control characters.
    pub text: String,
}

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The message reports the end of the script.
    Fatal,
    /// The script continues.
    Other,
}

/// The log output on one connection or link.
#[derive(Debug)]
pub struct ScriptLog {
    records: Records,
    /// The beginning of an unfinished record: at most 64 KiB.
    record: Vec<u8>,
}

/// The content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// One message (`docs/handover.md` §1).
    Messages,
    /// Text with any number of messages: FastCGI defines no boundaries.
    Text,
}

/// The log budget of one upstream for the current second.
#[derive(Debug, Default)]
pub struct LogBudget {
    /// Start of the current second.
    since: Option<Instant>,
    entries: u64,
    bytes: usize,
    suppressed: u64,
}

impl ScriptLog {
    /// Parses records of this kind.
    pub fn new(records: Records) -> Self {
        Self { records, record: Vec::new() }
    }

    /// Adds a part of a record. A complete record is split into messages.
    pub fn push(
        &mut self,
        text: &[u8],
        ends_record: bool,
        now: Instant,
        budget: &mut LogBudget,
        log: impl FnMut(LogMessage),
    ) {
        if !ends_record {
            self.record.extend_from_slice(text);
            return;
        }
        let mut record = std::mem::take(&mut self.record);
        let record = if record.is_empty() {
            text
        } else {
            record.extend_from_slice(text);
            &record
        };
        match self.records {
            Records::Messages => budget.take([record.trim_ascii()], now, log),
            Records::Text => budget.take(messages(record), now, log),
        }
    }
}

impl LogBudget {
    /// Logs the number of suppressed entries. To be called when a response or the upstream has
    /// ended.
    pub fn flush(&mut self, mut log: impl FnMut(LogMessage)) {
        let suppressed = std::mem::take(&mut self.suppressed);
        if suppressed > 0 {
            Limit::ScriptLog.reached_times(suppressed);
            let text = format!("{suppressed} more messages within a second were not logged");
            log(LogMessage { severity: Severity::Other, text });
        }
    }

    fn take<'a>(
        &mut self,
        messages: impl IntoIterator<Item = &'a [u8]>,
        now: Instant,
        mut log: impl FnMut(LogMessage),
    ) {
        if self.since.is_none_or(|since| now.duration_since(since) >= SECOND) {
            self.flush(&mut log);
            (self.since, self.entries, self.bytes) = (Some(now), 0, 0);
        }
        for message in messages.into_iter().filter(|message| !message.is_empty()) {
            if self.entries >= ENTRIES_PER_SECOND || self.bytes >= BYTES_PER_SECOND {
                self.suppressed += 1;
                continue;
            }
            let entry = entry(message);
            self.entries += 1;
            self.bytes += entry.text.len();
            log(entry);
        }
    }
}

/// The messages in a record. Usually each line is a message, but an uncaught exception extends to
/// the line with the place where it was thrown, and a stack trace belongs to the previous message.
fn messages(record: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = record;
    std::iter::from_fn(move || {
        let (message, after) = rest.split_at(message_len(rest));
        rest = after;
        (!message.is_empty()).then(|| message.trim_ascii())
    })
}

/// Length of the first message in bytes, with its line feed.
fn message_len(text: &[u8]) -> usize {
    let mut len = line_len(text);
    let first = without_prefix(&text[..len]);
    if !first.starts_with(b"PHP ") {
        return len;
    }
    let mut is_open = is_fatal(first) && contains(first, b"Uncaught ");
    while len < text.len() {
        let line = &text[len..len + line_len(&text[len..])];
        if !is_open && !is_trace(line) {
            break;
        }
        is_open &= !line.starts_with(b"  thrown in ");
        len += line.len();
    }
    len
}

fn line_len(text: &[u8]) -> usize {
    text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |at| at + 1)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// php-fpm puts this prefix before each message.
fn without_prefix(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"PHP message: ").unwrap_or(line)
}

fn is_fatal(line: &[u8]) -> bool {
    [&b"PHP Fatal error:"[..], b"PHP Parse error:", b"PHP Recoverable fatal error:", b"Uncaught "]
        .iter()
        .any(|word| line.starts_with(word))
}

/// A line of a stack trace: PHP's own, or Xdebug's.
fn is_trace(line: &[u8]) -> bool {
    line.starts_with(b"Stack trace:")
        || line.starts_with(b"PHP Stack trace:")
        || line.starts_with(b"PHP   ")
        || (line.starts_with(b"#") && line.get(1).is_some_and(u8::is_ascii_digit))
}

fn entry(message: &[u8]) -> LogMessage {
    let severity =
        if is_fatal(without_prefix(message)) { Severity::Fatal } else { Severity::Other };
    let kept = &message[..message.len().min(MAX_ENTRY)];
    let mut text = String::with_capacity(kept.len());
    for (number, line) in String::from_utf8_lossy(kept).lines().enumerate() {
        text.push_str(if number == 0 { "" } else { INDENT });
        for char in line.chars() {
            if char.is_control() && char != '\t' {
                text.extend(char.escape_default());
            } else {
                text.push(char);
            }
        }
    }
    if kept.len() < message.len() {
        // Writing to a String cannot fail.
        let _ok = write!(text, " ... ({} bytes more)", message.len() - kept.len());
    }
    LogMessage { severity, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "PHP Fatal error:  Uncaught Exception: one\ntwo in /srv/x.php:3\nStack trace:\n\
                         #0 /srv/x.php(9): f()\n#1 {main}\n  thrown in /srv/x.php on line 3\n";

    fn logged(log: &mut ScriptLog, text: &[u8], ends_record: bool) -> Vec<LogMessage> {
        let mut entries = Vec::new();
        let (now, mut budget) = (Instant::now(), LogBudget::default());
        log.push(text, ends_record, now, &mut budget, |entry| entries.push(entry));
        entries
    }

    fn entries(text: &str) -> Vec<LogMessage> {
        logged(&mut ScriptLog::new(Records::Text), text.as_bytes(), true)
    }

    #[test]
    fn a_fatal_with_its_trace_is_one_entry_and_an_error() {
        let all = entries(&format!("PHP Warning:  early\n{TRACE}noted by a shutdown function\n"));
        let lines = TRACE.trim_end().replace('\n', INDENT);
        let expected = [
            (Severity::Other, "PHP Warning:  early".to_owned()),
            (Severity::Fatal, lines),
            (Severity::Other, "noted by a shutdown function".to_owned()),
        ];
        let expected = expected.map(|(severity, text)| LogMessage { severity, text });
        assert_eq!(all, expected);
        // With php-fpm's prefix.
        assert_eq!(entries(&format!("PHP message: {TRACE}"))[0].severity, Severity::Fatal);
        assert_eq!(entries(&format!("PHP message: {TRACE}")).len(), 1);
        assert_eq!(entries("PHP Parse error:  x in y\nmore").len(), 2);
    }

    #[test]
    fn a_message_of_a_worker_is_one_entry_whatever_its_lines() {
        let mut log = ScriptLog::new(Records::Messages);
        let all = logged(&mut log, b"one\nPHP Warning:  two\n", true);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].text, "one\n    PHP Warning:  two");
        assert!(logged(&mut log, b"\n", true).is_empty());
        assert_eq!(logged(&mut log, TRACE.as_bytes(), true)[0].severity, Severity::Fatal);
    }

    #[test]
    fn a_record_means_the_same_however_it_is_cut() {
        let text = format!("one\r\n\n{TRACE}two");
        let whole = entries(&text);
        assert_eq!(whole.len(), 3);
        for cut in 0..text.len() {
            let mut log = ScriptLog::new(Records::Text);
            assert!(logged(&mut log, &text.as_bytes()[..cut], false).is_empty());
            assert_eq!(logged(&mut log, &text.as_bytes()[cut..], true), whole);
        }
    }

    #[test]
    fn no_text_passes_for_an_entry_of_its_own() {
        let text =
            "PHP Fatal error:  Uncaught E: x\n2026-01-01 ERROR forged\n\u{1b}[2J\n  thrown in y";
        let all = entries(text);
        assert_eq!(all.len(), 1);
        assert!(all[0].text.lines().skip(1).all(|line| line.starts_with("    ")));
        assert!(!all[0].text.contains('\u{1b}'));
    }

    #[test]
    fn entries_are_bounded_in_number_and_length_and_the_rest_is_counted() {
        let (mut budget, now) = (LogBudget::default(), Instant::now());
        let logged = |budget: &mut LogBudget, text: &[u8], now| {
            let mut entries = Vec::new();
            budget.take(messages(text), now, |entry| entries.push(entry));
            entries
        };
        let mut count = 0;
        for _ in 0..100 {
            count += logged(&mut budget, &b"line\n".repeat(100), now).len() as u64;
        }
        assert_eq!(count, ENTRIES_PER_SECOND);
        let after = logged(&mut budget, b"again", now + SECOND);
        let suppressed = 100 * 100 - ENTRIES_PER_SECOND;
        assert!(after[0].text.starts_with(&format!("{suppressed} more")), "{after:?}");
        assert_eq!(after[1].text, "again");
        let long = entries(&"x".repeat(60_000));
        assert!(long[0].text.len() < MAX_ENTRY + 100 && long[0].text.contains("51808 bytes more"));
        let mut bytes = 0;
        let mut budget = LogBudget::default();
        for _ in 0..1000 {
            let all = logged(&mut budget, "x".repeat(60_000).as_bytes(), now);
            bytes += all.iter().map(|entry| entry.text.len()).sum::<usize>();
        }
        assert!(bytes < BYTES_PER_SECOND + 2 * MAX_ENTRY, "{bytes}");
        budget.flush(|entry| assert!(entry.text.contains("more messages")));
        budget.flush(|entry| panic!("once: {entry:?}"));
    }
}
