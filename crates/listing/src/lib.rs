//! The entries of a folder (`listing = true` in a route): a page, or JSON for programs
//! (`docs/listing.md`).
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use http::header::ACCEPT;
use httpdate::fmt_http_date;
use percent_encoding::percent_encode;
use sendoff_message::request::{NOT_IN_PATH, Request};
use sendoff_site::listing::ListEntry;
use sendoff_site_files::router::ListKind;
use serde_json::json;

/// The page loads nothing and runs no scripts, whatever a name contains.
pub const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:1rem auto;\
max-width:60rem;padding:0 1rem}h1{font-size:1.25rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
th,td{padding:.3rem .5rem;text-align:left;vertical-align:top;border-bottom:1px solid #8884}td:first-child{overflow-wrap:anywhere}\
th+th,td+td{text-align:right;white-space:nowrap}@media(max-width:30rem){th:last-child,td:last-child{display:none}}";

/// The entries in a form for clients.
#[derive(Debug)]
pub struct Listing {
    /// The value of `Content-Type`.
    pub media_type: &'static str,
    /// The body.
    pub body: String,
}

impl Listing {
    /// The entries in the form and the order that the request asks for. `is_cut`: the folder has
    /// more.
    #[must_use]
    pub fn of(request: &Request, mut entries: Vec<ListEntry>, is_cut: bool) -> Self {
        let order = Order::of(request);
        order.sort(&mut entries);
        if wants_json(request) {
            return Self { media_type: "application/json", body: json_of(&entries) };
        }
        let body = page(request, order, &entries, is_cut);
        Self { media_type: "text/html; charset=utf-8", body }
    }
}

fn wants_json(request: &Request) -> bool {
    let has = |accepted: &[u8], kind: &str| {
        let mut members = accepted.split(|&byte| byte == b',');
        members.any(|member| {
            let name = member.split(|&byte| byte == b';').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(kind.as_bytes())
        })
    };
    let mut values = request.headers.get_all(ACCEPT).iter().map(|value| value.as_bytes());
    values.any(|value| has(value, "application/json") && !has(value, "text/html"))
}

/// The key by which entries are sorted; folders always come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Name,
    Size,
    Time,
}

impl Key {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Name, "name", "Name"),
        (Self::Size, "size", "Size"),
        (Self::Time, "time", "Modified"),
    ];
}

/// The order of the entries, by the query: `sort=name`, `size` or `time`, and `order=desc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    key: Key,
    is_descending: bool,
}

impl Order {
    fn of(request: &Request) -> Self {
        let query = request.query.as_deref().unwrap_or_default();
        let says = |wanted: &str| query.split(|&b| b == b'&').any(|part| part == wanted.as_bytes());
        let key = Key::ALL.iter().find(|(_, word, _)| says(&format!("sort={word}")));
        Self { key: key.map_or(Key::Name, |(key, ..)| *key), is_descending: says("order=desc") }
    }

    fn sort(self, entries: &mut [ListEntry]) {
        entries.sort_by_cached_key(|entry| (shown(&entry.name).to_lowercase(), entry.name.clone()));
        if self.is_descending {
            entries.reverse();
        }
        // Stable sorts: entries with the same size or time stay in the order of their names.
        let of = |entry: &ListEntry| match (self.key, entry.kind) {
            (Key::Size, ListKind::File(size)) => size,
            (Key::Time, _) => entry.modified,
            (Key::Name | Key::Size, _) => 0,
        };
        if self.is_descending {
            entries.sort_by_key(|entry| Reverse(of(entry)));
        } else {
            entries.sort_by_key(of);
        }
        entries.sort_by_key(|entry| entry.kind != ListKind::Folder);
    }

    /// The query of the link in a column's head: the other order of the column that is sorted by.
    fn link(self, key: Key, word: &str) -> String {
        let turns = self.key == key && !self.is_descending;
        format!("?sort={word}&amp;order={}", if turns { "desc" } else { "asc" })
    }
}

/// The name for people: without control characters, and with a mark for bytes that are not UTF-8.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The relative URL of an entry. `./` keeps a name with a colon from being read as a scheme.
fn link(entry: &ListEntry) -> String {
    let slash = if entry.kind == ListKind::Folder { "/" } else { "" };
    format!("./{}{slash}", percent_encode(&entry.name, NOT_IN_PATH))
}

fn time(entry: &ListEntry) -> String {
    // The largest time that fits is far beyond the year 9999, which the format cannot write.
    let seconds = entry.modified.min(253_402_300_799);
    fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The keys of nginx's `autoindex_format json`, and the URL.
fn json_of(entries: &[ListEntry]) -> String {
    let entries = entries.iter().map(|entry| {
        let name = String::from_utf8_lossy(&entry.name);
        let (url, mtime) = (link(entry), time(entry));
        match entry.kind {
            ListKind::Folder => {
                json!({"name": name, "type": "directory", "mtime": mtime, "url": url})
            }
            ListKind::File(size) => {
                json!({"name": name, "type": "file", "mtime": mtime, "size": size, "url": url})
            }
        }
    });
    serde_json::Value::Array(entries.collect()).to_string()
}

fn page(request: &Request, order: Order, entries: &[ListEntry], is_cut: bool) -> String {
    let path = shown(&request.path);
    let path = escape(&path);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Index of {path}</title>\n\
         <style>{STYLE}</style>\n<h1>Index of <bdi>{path}</bdi></h1>\n<table>\n<thead><tr>"
    );
    for (key, word, title) in Key::ALL {
        let sorted = match (order.key == key, order.is_descending) {
            (false, _) => "",
            (true, false) => " aria-sort=\"ascending\"",
            (true, true) => " aria-sort=\"descending\"",
        };
        let link = order.link(key, word);
        let _written = write!(out, "<th scope=\"col\"{sorted}><a href=\"{link}\">{title}</a></th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    if request.path != b"/" {
        out.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in entries {
        row(&mut out, entry);
    }
    out.push_str("</tbody>\n</table>\n");
    if is_cut {
        let _written =
            writeln!(out, "<p>The folder has more entries; these are {}.</p>", entries.len());
    }
    out
}

fn row(out: &mut String, entry: &ListEntry) {
    let (name, link, time) = (shown(&entry.name), link(entry), time(entry));
    let (slash, size) = match entry.kind {
        ListKind::Folder => ("/", String::new()),
        ListKind::File(bytes) => ("", size(bytes)),
    };
    // "Fri, 27 Nov 2026 08:54:11 GMT" without the weekday and the seconds.
    let short = time.get(5..22).unwrap_or(&time);
    let _written = writeln!(
        out,
        "<tr><td><a href=\"{}\"><bdi>{}</bdi>{slash}</a></td><td>{size}</td><td>{short}</td></tr>",
        escape(&link),
        escape(&name)
    );
}

/// A size as people read it: `512`, `1.5K`, `20M`.
fn size(bytes: u64) -> String {
    let (mut unit, mut rest) = (1_u64, bytes);
    let mut units = ["K", "M", "G", "T", "P", "E"].iter();
    let mut name = "";
    while rest >= 1024
        && let Some(next) = units.next()
    {
        (unit, rest, name) = (unit << 10, rest >> 10, next);
    }
    let tenths = u128::from(bytes) * 10 / u128::from(unit);
    match name {
        "" => bytes.to_string(),
        _ if tenths < 100 => format!("{}.{}{name}", tenths / 10, tenths % 10),
        _ => format!("{}{name}", tenths / 10),
    }
}

/// Text for HTML, also in attributes.
fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, expected) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1536, "1.5K"),
            (10 * 1024 + 1, "10K"),
            (1 << 20, "1.0M"),
            (u64::MAX, "15E"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let entry = |name: &[u8]| ListEntry {
            name: name.to_vec(),
            kind: ListKind::File(1),
            modified: u64::MAX,
        };
        let mut out = String::new();
        row(&mut out, &entry(b"javascript:\"><script>'\n&%?#\xff"));
        assert!(!out.contains("<script") && !out.contains("href=\"javascript"), "{out}");
        assert!(out.contains("href=\"./javascript:"), "{out}");
        assert!(out.contains("%25%3F%23%FF\""), "{out}");
        assert_eq!(out.matches('\n').count(), 1, "{out}");
    }
}
