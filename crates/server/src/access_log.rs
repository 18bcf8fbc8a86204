//! The access log, in the combined format that every log reader knows.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

/// A buffer longer than this is written at once, in bytes.
const FLUSH_AT: usize = 32 * 1024;

/// How long a line may wait in the buffer.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// One event loop's end of the access log.
#[derive(Debug)]
pub(crate) struct AccessLog {
    file: File,
    buffer: RefCell<String>,
}

/// One line.
pub(crate) struct Entry<'a> {
    pub(crate) client: IpAddr,
    /// An IMF-fixdate: `Sat, 21 Nov 2026 04:53:00 GMT`.
    pub(crate) date: &'a str,
    /// The request line as sent.
    pub(crate) request: &'a str,
    pub(crate) status: u16,
    /// Bytes sent, head included.
    pub(crate) sent: u64,
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
}

impl AccessLog {
    /// Every loop appends to the same file.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        Ok(Self { file: file.try_clone()?, buffer: RefCell::default() })
    }

    pub(crate) fn write(&self, entry: &Entry<'_>) {
        let mut buffer = self.buffer.borrow_mut();
        // "Sat, 21 Nov 2026 04:53:00 GMT" becomes "21/Nov/2026:04:53:00 +0000".
        let date = entry.date.as_bytes();
        let part =
            |range: std::ops::Range<usize>| date.get(range).unwrap_or_default().escape_ascii();
        let (day, month, year, time) = (part(5..7), part(8..11), part(12..16), part(17..25));
        let dash = |value: &[u8]| if value.is_empty() { "-".to_owned() } else { escape(value) };
        // Writing to a String cannot fail.
        let _ = writeln!(
            buffer,
            "{} - - [{day}/{month}/{year}:{time} +0000] \"{}\" {} {} \"{}\" \"{}\"",
            entry.client,
            escape(entry.request.as_bytes()),
            entry.status,
            entry.sent,
            dash(entry.referer),
            dash(entry.user_agent),
        );
        if buffer.len() >= FLUSH_AT {
            drop(buffer);
            self.flush();
        }
    }

    /// Writes what waits. A log that cannot be written loses lines, not requests.
    pub(crate) fn flush(&self) {
        let mut buffer = self.buffer.borrow_mut();
        if !buffer.is_empty() {
            if let Err(error) = (&self.file).write_all(buffer.as_bytes()) {
                tracing::error!(%error, "the access log cannot be written, lines are lost");
            }
            buffer.clear();
        }
    }
}

/// Quotes and anything that is not printable ASCII as `\xHH`, as nginx and Apache do: a line stays one line.
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

    #[test]
    fn lines_are_in_the_combined_format_and_cannot_be_forged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = AccessLog::new(file.as_file()).unwrap();
        log.write(&Entry {
            client: "127.0.0.1".parse().unwrap(),
            date: "Sat, 21 Nov 2026 04:53:00 GMT",
            request: "GET /a\"b HTTP/1.1",
            status: 200,
            sent: 123,
            referer: b"",
            user_agent: b"x\n1.2.3.4 - -",
        });
        log.flush();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let expected = "127.0.0.1 - - [21/Nov/2026:04:53:00 +0000] \"GET /a\\x22b HTTP/1.1\" 200 123 \"-\" \"x\\x0A1.2.3.4 - -\"\n";
        assert_eq!(text, expected);
    }
}
