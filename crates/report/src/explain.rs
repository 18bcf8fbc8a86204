//! `sendoff explain`: a request whose response goes into a table instead of to the client.
//!
//! A client that knows the [`Secret`] asks for the table with a request field. The request is
//! answered as usual, but the sink collects the segments in a `Report` instead of sending
//! them, and the client gets the table at the end.

use std::fmt::{self, Write};

use http::{HeaderMap, HeaderName, StatusCode};

use crate::Medium;

/// The request field with the secret, and the response field which tells that the secret was right.
pub const FIELD: &str = "sendoff-explain";

/// Characters of a secret.
pub const SECRET_LEN: usize = 64;

/// The most rows and remarks of one table, because a script can write forever.
const MAX_ROWS: usize = 1000;

/// The number of previous rows that a read is compared with, to be merged into one of them: a loop
/// may read at several lines in turn.
const LOOKED_AT: usize = 16;

/// Bytes of a remark that are kept; the rest is cut.
const MAX_TEXT: usize = 1024;

/// The value of the request field [`FIELD`] that asks for the table.
pub struct Secret([u8; SECRET_LEN]);

impl Secret {
    /// `None` if the text is too short.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        text.first_chunk().map(|text| Self(*text))
    }

    /// Compares in constant time.
    fn is(&self, given: &[u8]) -> bool {
        let differences = self.0.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        given.len() == SECRET_LEN && std::hint::black_box(differences) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// True if the request carries the secret. The field is then removed, so the application does not
/// see it; with a wrong secret the field is passed on.
pub fn is_asked(secret: Option<&Secret>, fields: &mut HeaderMap) -> bool {
    let Some(secret) = secret else { return false };
    static NAME: HeaderName = HeaderName::from_static(FIELD);
    let right = fields.get(&NAME).is_some_and(|given| secret.is(given.as_bytes()));
    if right {
        fields.remove(&NAME);
    }
    right
}

/// The application's description of the segments that follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remark {
    /// The way in which the application handed them over: `bytes`, `file`, `file recognised`;
    /// empty: unknown.
    pub how: String,
    /// The place in the application that produced them.
    pub from: String,
    /// A description of the segments.
    pub what: String,
    /// The reason why they are bytes instead of a file.
    pub why: String,
}

impl Remark {
    /// Decodes the content of an `EXPLAIN` record: four texts separated by tabs. The worker is not
    /// trusted.
    pub fn decode(content: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&content[..content.len().min(MAX_TEXT)]);
        let mut texts = text.split('\t').map(printable);
        let mut next = || texts.next().unwrap_or_default();
        Self { how: next(), from: next(), what: next(), why: next() }
    }
}

/// Replaces control characters, because the text goes to a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The way in which a segment reaches the client: what the application did, and how the front sends
/// it.
fn mode(how: &str, medium: Medium, way: FileWay) -> String {
    let way = match way {
        FileWay::Sendfile if medium == Medium::ShortFile => "read",
        FileWay::Sendfile => "sendfile",
        FileWay::Encrypted => "encrypted",
    };
    match (how, medium) {
        ("" | "bytes", Medium::Bytes) => "bytes".to_owned(),
        ("" | "bytes", Medium::File | Medium::ShortFile) => format!("file, {way}"),
        (how, Medium::Bytes) => format!("{how}, from memory"),
        (how, Medium::File | Medium::ShortFile) => format!("{how}, {way}"),
    }
}

/// The way in which ranges of files are sent.
#[derive(Debug, Clone, Copy, Default)]
pub enum FileWay {
    /// `sendfile(2)`.
    #[default]
    Sendfile,
    /// Read and encrypted by this process: TLS in user space.
    Encrypted,
}

#[derive(Debug)]
struct Row {
    mode: String,
    remark: Remark,
    bytes: u64,
    segments: u64,
}

/// Reads at one place in the application, for one reason.
#[derive(Debug)]
struct Reads {
    first: Remark,
    /// Number of further reads: a loop reads many files, or one file many times.
    more: u64,
}

impl Reads {
    /// Adds a read of the same place and reason; returns false for any other read.
    fn take(&mut self, other: &Remark) -> bool {
        let is_alike = self.first.from == other.from && self.first.why == other.why;
        self.more += u64::from(is_alike);
        is_alike
    }

    /// The text of the table for these reads.
    fn what(&self) -> String {
        match self.more {
            0 => self.first.what.clone(),
            more => format!("{} and {more} more", self.first.what),
        }
    }
}

/// The pieces of a response.
#[derive(Debug, Default)]
pub struct Report {
    way: FileWay,
    status: Option<StatusCode>,
    length: Option<u64>,
    answered_by: String,
    /// The compression of the response, or the reason why there is none.
    compression: Option<String>,
    /// Further remarks about the whole response.
    notes: Vec<String>,
    remark: Remark,
    rows: Vec<Row>,
    /// Reads that returned plain bytes instead of a lazy string.
    reads: Vec<Reads>,
    /// Rows and remarks beyond `MAX_ROWS`.
    left_out: u64,
}

impl Report {
    /// A report on a response whose files leave in this way.
    pub fn new(way: FileWay) -> Self {
        Self { way, ..Self::default() }
    }

    /// Notes the head of the response; `length`: bytes of its body, if they are announced.
    pub fn begin(&mut self, status: StatusCode, length: Option<u64>) {
        (self.status, self.length) = (Some(status), length);
    }

    /// Notes the worker or application that answers.
    pub fn answered_by(&mut self, who: String) {
        self.answered_by = who;
    }

    /// Notes how the response is compressed, or why it is not.
    pub fn compression(&mut self, what: Option<String>) {
        self.compression = what;
    }

    /// Adds a line about the whole response.
    pub fn note(&mut self, note: String) {
        if self.notes.len() < MAX_ROWS {
            self.notes.push(note);
        }
    }

    /// Adds a remark about the segments that follow, about a read that returned plain bytes, or about
    /// the response as a whole.
    pub fn remark(&mut self, remark: Remark) {
        if remark.how == "note" {
            return self.note(remark.what);
        }
        if remark.how != "read" {
            self.remark = remark;
            return;
        }
        if self.reads.iter_mut().rev().take(LOOKED_AT).any(|reads| reads.take(&remark)) {
            return;
        }
        if self.reads.len() < MAX_ROWS {
            self.reads.push(Reads { first: remark, more: 0 });
        } else {
            self.left_out += 1;
        }
    }

    /// Adds a piece of the body, of this number of bytes.
    pub fn piece(&mut self, medium: Medium, bytes: u64) {
        let mode = mode(&self.remark.how, medium, self.way);
        if let Some(last) = self.rows.last_mut()
            && last.mode == mode
            && last.remark == self.remark
        {
            last.bytes += bytes;
            last.segments += 1;
        } else if self.rows.len() < MAX_ROWS {
            let remark = self.remark.clone();
            self.rows.push(Row { mode, remark, bytes, segments: 1 });
        } else {
            self.left_out += 1;
        }
    }

    /// The table as text. Paths beneath `root` are shown relative to it.
    pub fn page(&self, request: &str, client: &str, root: &str, cut: Option<&str>) -> String {
        let folder = format!("{}/", root.trim_end_matches('/'));
        let short = |text: &str| text.replace(&folder, "");
        let status = self.status.map_or_else(|| "no answer".to_owned(), |code| code.to_string());
        let total: u64 = self.rows.iter().map(|row| row.bytes).sum();
        let framing = match self.length {
            Some(length) => format!("Content-Length: {length}"),
            None => "length not known before the end".to_owned(),
        };
        let mut page = format!("{}: {status}, {total} bytes, {framing}\n", printable(request));
        if !self.answered_by.is_empty() {
            line(&mut page, &format!("answered by {}", self.answered_by));
        }
        line(&mut page, &format!("asked by {client}"));
        if let Some(what) = &self.compression {
            line(&mut page, what);
        }
        self.notes.iter().for_each(|note| line(&mut page, &printable(note)));
        page.push('\n');
        let mut cells = vec![["bytes", "how", "from", "what", "why not a file"].map(str::to_owned)];
        for Row { mode, remark, bytes, segments } in &self.rows {
            let bytes =
                if *segments > 1 { format!("{bytes} in {segments}") } else { bytes.to_string() };
            let Remark { from, what, why, .. } = remark;
            cells.push([bytes, mode.clone(), short(from), short(what), short(why)]);
        }
        table(&mut page, &cells);
        if !self.reads.is_empty() {
            page.push('\n');
            let head = ["reads that gave no lazy string", "", "why"].map(str::to_owned);
            let rows = self.reads.iter().map(|reads| {
                let Remark { from, why, .. } = &reads.first;
                [short(from), short(&reads.what()), short(why)]
            });
            table(&mut page, &std::iter::once(head).chain(rows).collect::<Vec<_>>());
        }
        if self.left_out > 0 {
            line(&mut page, &format!("\n{} more were left out", self.left_out));
        }
        if let Some(why) = cut {
            line(&mut page, &format!("\nThe response was cut short: {why}"));
        }
        page
    }
}

fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

fn table<const N: usize>(page: &mut String, rows: &[[String; N]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for row in rows {
        let mut text = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{cell:width$}  ");
        }
        line(page, text.trim_end());
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn only_the_whole_secret_is_right() {
        let text = [b'a'; SECRET_LEN];
        let secret = Secret::new(&text).unwrap();
        assert!(Secret::new(&text[1..]).is_none());
        for (given, right) in [
            (&text[..], true),
            (&text[1..], false),
            (&[&text[..], b"a"].concat(), false),
            (&[&text[1..], b"b"].concat(), false),
            (b"", false),
        ] {
            assert_eq!(secret.is(given), right);
            let mut fields = HeaderMap::new();
            fields.insert(FIELD, http::HeaderValue::from_bytes(given).unwrap());
            assert_eq!(is_asked(Some(&secret), &mut fields), right);
            assert_eq!(fields.is_empty(), right, "what was not for us stays");
            assert!(!is_asked(None, &mut fields));
        }
    }

    #[test]
    fn a_hostile_worker_cannot_write_to_the_terminal_or_fill_the_memory() {
        let remark = Remark::decode(b"bytes\t\x1b[2J\t\xff\n\tx\ty");
        assert_eq!(remark.from, "?[2J");
        assert_eq!(remark.what, "\u{fffd}?");
        assert_eq!(remark.why, "x");
        let mut report = Report::default();
        for number in 0..2 * MAX_ROWS {
            report.remark(Remark::decode(format!("read\t{number}").as_bytes()));
            report.remark(Remark::decode(format!("bytes\t{number}").as_bytes()));
            report.piece(Medium::Bytes, 1);
        }
        let page = report.page("GET /", "::1", "/", None);
        assert!(page.contains(&format!("{} more were left out", 2 * MAX_ROWS)), "{page}");
    }

    #[test]
    fn reads_of_one_place_for_one_reason_are_one_row() {
        let mut report = Report::default();
        for number in 0..3 {
            let read = format!("read\t/srv/x.php:3\treadfile({number})\ttoo many held files");
            report.remark(Remark::decode(read.as_bytes()));
            report.remark(Remark::decode(b"read\t/srv/x.php:4\treadfile(a)\tnot a plain file"));
        }
        let page = report.page("GET /x.php", "::1", "/srv", None);
        let words = |row: &str| row.split_whitespace().collect::<Vec<_>>().join(" ");
        let rows: Vec<_> = page.lines().map(words).collect();
        assert_eq!(rows[rows.len() - 2], "x.php:3 readfile(0) and 2 more too many held files");
        assert_eq!(rows[rows.len() - 1], "x.php:4 readfile(a) and 2 more not a plain file");
    }

    #[test]
    fn neighbours_of_one_origin_are_one_row() {
        let mut report = Report::default();
        report.begin(StatusCode::OK, Some(5));
        report.remark(Remark::decode(b"bytes\t/srv/x.php:3\techo\tjoined"));
        report.piece(Medium::Bytes, 2);
        report.piece(Medium::Bytes, 3);
        let page = report.page("GET /x.php", "::1", "/srv", None);
        assert!(page.contains("\n5 in 2  bytes  x.php:3  echo  joined\n"), "{page}");
    }
}
