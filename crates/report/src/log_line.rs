//! A line of the access log and the data for it.

use std::fmt::{self, Write};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use sendoff_config::{LogFormat, LogPart, Values, Variable};
use sendoff_message::Shown;
use sendoff_message::request::{Endpoint, Request, protocol};
use tokio::time::Instant;

use super::mode::Mode;
use crate::Medium;
use crate::at_work::{Phase, Task};

/// The status in the log if the client left before a response began; nginx logs the same.
pub const CLIENT_LEFT: u16 = 499;

/// The contents of a line.
pub struct LogLine<'a> {
    /// The client's end of its connection.
    pub client: &'a Endpoint,
    /// `None`: the request was refused before it could be understood.
    pub request: Option<&'a Request>,
    /// The request line as sent.
    pub request_line: &'a dyn fmt::Display,
    /// When its head began to be read.
    pub began: Instant,
    /// The status code; [`CLIENT_LEFT`]: no response began.
    pub status: u16,
    /// Bytes of the body that were sent, chunked coding included.
    pub sent: u64,
    /// Bytes of the body by the way in which they came.
    pub body: BodyBytes,
    /// The response was sent completely, as far as the protocol knows.
    pub is_whole: bool,
    /// Notes of the handlers.
    pub notes: &'a Notes,
}

/// Bytes of a response's body by the way in which they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyBytes {
    /// As parts of files.
    pub(crate) handed_over: u64,
    /// As bytes.
    pub copied: u64,
}

impl BodyBytes {
    /// Counts a piece of the body.
    pub fn note(&mut self, medium: Medium, len: u64) {
        match medium {
            Medium::Bytes => self.copied += len,
            Medium::File | Medium::ShortFile => self.handed_over += len,
        }
    }
}

/// Facts about a request that its handlers note for the log and the meters.
#[derive(Debug, Clone, Default)]
pub struct Notes {
    /// The number of its site.
    pub site: Option<usize>,
    /// The number of the last route of the site that concerns the path.
    pub route: Option<usize>,
    /// True if a route turns logging off for the request.
    pub is_unlogged: bool,
    /// Names and values of the maps that the format of the log names.
    pub maps: Vec<(String, Vec<u8>)>,
    /// The name that the client has authenticated with.
    pub user: Option<String>,
    /// The process id of the worker that answered.
    pub worker: Option<u32>,
    /// The application that answered over FastCGI, HTTP, SCGI or AJP.
    pub upstream: Option<String>,
    /// Time that the request waited for a worker.
    pub queued: Option<Duration>,
    /// The number of the pool that was to answer.
    pub pool: Option<usize>,
    /// The time at which a worker got the request.
    pub given: Option<Instant>,
    /// Its entry in `sendoff status`; `None`: no application is to answer it.
    pub task: Option<Rc<Task>>,
    /// Time that the worker spent on the request.
    pub(crate) served: Option<Duration>,
    /// The way in which the body came. Parts of files are not noted here: they are recognized by
    /// [`BodyBytes`].
    pub mode: Mode,
    /// Bytes of the body that an application has generated; bytes of files are not counted.
    pub generated: u64,
    /// The times of the call to the application that answers, if the request is traced.
    pub call: Option<Box<CallTimes>>,
}

/// The times of a call to a worker or an application, with all its attempts.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallTimes {
    /// The request begins to wait.
    pub waits: Option<Instant>,
    /// The application, or its first host, gets the request. Workers: [`Notes::given`].
    pub begins: Option<Instant>,
    /// The head of the response has come.
    pub answered: Option<Instant>,
    /// There is no response: the time, and the status for the client.
    pub failed: Option<(Instant, u16)>,
}

impl Notes {
    /// Notes the progress of the request.
    pub fn note_phase(&mut self, phase: Phase) {
        if let Some(task) = &self.task {
            task.note_phase(phase);
        }
        if let Some(call) = &mut self.call {
            let now = Instant::now();
            match phase {
                Phase::Waiting => _ = call.waits.get_or_insert(now),
                Phase::Running => _ = call.begins.get_or_insert(now),
                Phase::Sending => call.answered = Some(now),
                Phase::ReadingBody | Phase::AfterResponse => {}
            }
        }
    }

    /// Notes that the application has given no response, so that the client gets this status.
    pub fn note_failure(&mut self, status: u16) {
        if let Some(call) = &mut self.call {
            call.failed = Some((Instant::now(), status));
        }
    }

    /// Notes that the worker is free again.
    pub fn note_worker_free(&mut self) {
        self.served = self.given.map(|given| given.elapsed());
    }
}

/// Adds a line to `out`. `site`: the name of the request's site.
pub(super) fn write(
    out: &mut String,
    format: &LogFormat,
    line: &LogLine<'_>,
    site: Option<&str>,
    time: &Shown,
) {
    let mut values = FieldWriter { out, values: format.values };
    for part in &format.parts {
        match part {
            LogPart::Text(text) => values.out.push_str(text),
            LogPart::Field(name) => {
                // Requests have few fields: comparing them all costs less than hashing the name.
                let mut fields = line.request.iter().flat_map(|request| &request.headers);
                let field = fields.find(|(known, _)| known.as_str() == name);
                values.bytes(field.map(|(_, value)| value.as_bytes()));
            }
            LogPart::Map(name) => {
                let map = line.notes.maps.iter().find(|(known, _)| known == name);
                values.bytes(map.map(|(_, value)| &value[..]));
            }
            LogPart::Variable(variable) => values.variable(*variable, line, site, time),
        }
    }
    out.push('\n');
}

/// Writes the values of one line.
struct FieldWriter<'o> {
    out: &'o mut String,
    values: Values,
}

impl FieldWriter<'_> {
    fn variable(
        &mut self,
        variable: Variable,
        line: &LogLine<'_>,
        site: Option<&str>,
        time: &Shown,
    ) {
        let LogLine { request, notes, .. } = *line;
        let tls = request.and_then(|request| request.tls.as_deref());
        let trace = request.and_then(|request| request.trace.as_deref());
        match variable {
            Variable::RemoteAddr => match line.client {
                Endpoint::Ip(address) => self.clean(|out| push_ip(out, address.ip())),
                Endpoint::Unix(_) => self.clean(|out| out.push_str("unix:")),
            },
            Variable::RemotePort => self.number(line.client.port().map(u64::from)),
            Variable::RemoteUser => self.bytes(notes.user.as_deref().map(str::as_bytes)),
            Variable::TimeLocal => self.clean(|out| out.push_str(&time.local)),
            Variable::TimeIso8601 => self.clean(|out| out.push_str(&time.iso8601)),
            Variable::Request => self.shown(line.request_line),
            Variable::RequestMethod => {
                self.bytes(request.map(|request| request.method.as_str().as_bytes()));
            }
            Variable::RequestUri => self.bytes(request.map(|request| &request.uri[..])),
            Variable::Uri => self.bytes(request.map(|request| &request.path[..])),
            Variable::QueryString => {
                self.bytes(request.and_then(|request| request.query.as_deref()));
            }
            Variable::ServerProtocol => {
                self.bytes(request.map(|request| protocol(request.version).as_bytes()));
            }
            Variable::Scheme => {
                self.bytes(request.map(|request| request.scheme.as_str().as_bytes()));
            }
            Variable::SslProtocol => self.bytes(tls.map(|tls| tls.version.as_bytes())),
            Variable::SslCipher => self.bytes(tls.map(|tls| tls.cipher.as_bytes())),
            Variable::Host => {
                self.bytes(request.map(Request::host_name).as_deref().map(str::as_bytes));
            }
            Variable::ServerPort => {
                self.number(request.and_then(|request| request.port).map(u64::from));
            }
            Variable::Site => self.bytes(site.map(str::as_bytes)),
            Variable::Status => self.number(Some(line.status.into())),
            Variable::BodyBytesSent => self.number(Some(line.sent)),
            Variable::BytesHandedOver => self.number(Some(line.body.handed_over)),
            Variable::BytesCopied => self.number(Some(line.body.copied)),
            Variable::RequestTime => self.seconds(Some(line.began.elapsed())),
            Variable::QueueTime => self.seconds(notes.queued),
            Variable::Worker => self.number(notes.worker.map(u64::from)),
            Variable::Upstream => self.bytes(notes.upstream.as_deref().map(str::as_bytes)),
            Variable::RequestId => {
                self.bytes(request.and_then(|request| request.id.as_deref()).map(str::as_bytes));
            }
            Variable::TraceId => self.id(trace.map(|trace| &trace.trace as &dyn fmt::Display)),
            Variable::SpanId => self.id(trace.map(|trace| &trace.span as &dyn fmt::Display)),
        }
    }

    /// Bytes that a client may have chosen: they are escaped.
    fn bytes(&mut self, value: Option<&[u8]>) {
        match (value, self.values) {
            (None | Some([]), Values::Plain) => self.out.push('-'),
            (Some(bytes), Values::Plain) => plain(self.out, bytes),
            (None, Values::Json) => self.out.push_str("null"),
            (Some(bytes), Values::Json) => {
                self.out.push('"');
                for chunk in bytes.utf8_chunks() {
                    json(self.out, chunk.valid());
                    if !chunk.invalid().is_empty() {
                        self.out.push('\u{fffd}');
                    }
                }
                self.out.push('"');
            }
        }
    }

    /// A text without special characters: it is not escaped.
    fn clean(&mut self, write: impl FnOnce(&mut String)) {
        let quote = if self.values == Values::Json { "\"" } else { "" };
        self.out.push_str(quote);
        write(self.out);
        self.out.push_str(quote);
    }

    /// A text that is never empty, escaped while it is formatted, without an intermediate string.
    fn shown(&mut self, value: &dyn fmt::Display) {
        // Writing to a String cannot fail.
        let _ = match self.values {
            Values::Plain => write!(Plain(self.out), "{value}"),
            Values::Json => {
                self.out.push('"');
                let written = write!(Json(self.out), "{value}");
                self.out.push('"');
                written
            }
        };
    }

    /// An id without special characters.
    fn id(&mut self, value: Option<&dyn fmt::Display>) {
        match value {
            Some(id) => self.shown(id),
            None => self.bytes(None),
        }
    }

    fn number(&mut self, value: Option<u64>) {
        match value {
            Some(number) => self.out.push_str(itoa::Buffer::new().format(number)),
            None => self.bytes(None),
        }
    }

    /// Seconds with milliseconds, as nginx writes times.
    fn seconds(&mut self, value: Option<Duration>) {
        match value {
            Some(time) => {
                let _ = write!(self.out, "{}.{:03}", time.as_secs(), time.subsec_millis());
            }
            None => self.bytes(None),
        }
    }
}

/// Writes an address as its `Display` does; IPv4 with a tenth of the instructions.
pub fn push_ip(out: &mut String, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            let mut separator = "";
            for octet in ip.octets() {
                out.push_str(separator);
                out.push_str(itoa::Buffer::new().format(octet));
                separator = ".";
            }
        }
        IpAddr::V6(ip) => {
            // Writing to a String cannot fail.
            let _ = write!(out, "{ip}");
        }
    }
}

struct Plain<'o>(&'o mut String);

impl Write for Plain<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        plain(self.0, text.as_bytes());
        Ok(())
    }
}

struct Json<'o>(&'o mut String);

impl Write for Json<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        json(self.0, text);
        Ok(())
    }
}

/// Writes quotes, backslashes and everything that is not printable ASCII as `\xHH`, as nginx and
/// Apache do, so that a line stays one line.
fn plain(out: &mut String, mut bytes: &[u8]) {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20 | 0x7f..);
    let text = |clean| std::str::from_utf8(clean).unwrap_or_default();
    // Most values have no special character. The fold has no early exit, so the compiler can
    // vectorize it.
    if !bytes.iter().fold(false, |any, byte| any | is_special(byte)) {
        return out.push_str(text(bytes));
    }
    while let Some(at) = bytes.iter().position(is_special) {
        out.push_str(text(&bytes[..at]));
        // Writing to a String cannot fail.
        let _ = write!(out, "\\x{:02X}", bytes[at]);
        bytes = &bytes[at + 1..];
    }
    out.push_str(text(bytes));
}

/// Writes the contents of a string (RFC 8259 §7).
pub(super) fn json(out: &mut String, mut text: &str) {
    let is_special = |c: char| matches!(c, '"' | '\\' | '\0'..='\x1f' | '\x7f');
    while let Some((before, special)) = text.find(is_special).map(|at| text.split_at(at)) {
        out.push_str(before);
        let mut rest = special.chars();
        match rest.next() {
            Some(c @ ('"' | '\\')) => out.extend(['\\', c]),
            Some(c) => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            None => {}
        }
        text = rest.as_str();
    }
    out.push_str(text);
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use sendoff_message::request::sample::request;
    use sendoff_traces::RequestTrace;

    /// Sat, 21 Nov 2026 04:53:00 GMT.
    fn time() -> Shown {
        Shown::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_236_780))
    }

    fn line(format: &str, request: Option<&Request>, request_line: &str, notes: &Notes) -> String {
        let client = Endpoint::Ip(([192, 0, 2, 1], 5).into());
        let line = LogLine {
            client: &client,
            request,
            request_line: &request_line,
            began: Instant::now(),
            status: 200,
            sent: 123,
            body: BodyBytes { handed_over: 100, copied: 23 },
            is_whole: true,
            notes,
        };
        let mut out = String::new();
        write(&mut out, &format.parse().unwrap(), &line, Some("shop"), &time());
        out
    }

    #[test]
    fn lines_are_in_the_combined_format_and_cannot_be_forged() {
        let mut asked = request(Some("a"));
        let forged = http::HeaderValue::from_bytes(b"x\t1.2.3.4 - -\xff").unwrap();
        asked.headers.insert("user-agent", forged);
        let written = line("combined", Some(&asked), "GET /a\"b\n HTTP/1.1", &Notes::default());
        let expected = "192.0.2.1 - - [21/Nov/2026:04:53:00 +0000] \"GET /a\\x22b\\x0A HTTP/1.1\" 200 123 \"-\" \"x\\x091.2.3.4 - -\\xFF\"\n";
        assert_eq!(written, expected);
        let unknown = line("combined", None, "\u{e4}", &Notes::default());
        assert!(unknown.contains("\"\\xC3\\xA4\" 200 123 \"-\" \"-\""), "{unknown}");
    }

    #[test]
    fn addresses_look_as_ever() {
        for ip in ["0.9.10.99", "100.101.110.255", "127.0.0.1", "2001:db8::1", "::ffff:1.2.3.4"] {
            let mut out = String::new();
            push_ip(&mut out, ip.parse().unwrap());
            assert_eq!(out, ip);
        }
    }

    #[test]
    fn every_variable_has_its_value() {
        let mut asked = request(Some("Shop.example:8080"));
        (asked.query, asked.id) = (Some("a=b".into()), Some("id-1".into()));
        asked.uri = "/%61?a=b".into();
        let trace = Rc::new(RequestTrace::new(None, None, true));
        asked.trace = Some(Rc::clone(&trace));
        asked.path = b"/a".to_vec();
        let notes = Notes {
            is_unlogged: false,
            site: Some(0),
            maps: vec![("kind".to_owned(), b"a\"\n\xff".to_vec())],
            user: Some("eve".to_owned()),
            worker: Some(4711),
            upstream: Some("unix:/a".to_owned()),
            queued: Some(Duration::from_micros(1_012_345)),
            ..Notes::default()
        };
        let format = "$remote_port $remote_user $time_iso8601 $request_method $request_uri $uri $query_string \
            $server_protocol $scheme $host $server_port $site $bytes_handed_over $bytes_copied $queue_time \
            $worker $upstream $request_id $http_x_none $map_kind $map_none";
        let expected = "5 eve 2026-11-21T04:53:00+00:00 GET /%61?a=b /a a=b \
            HTTP/1.1 http shop.example 80 shop 100 23 1.012 \
            4711 unix:/a id-1 - a\\x22\\x0A\\xFF -\n";
        assert_eq!(line(format, Some(&asked), "", &notes), expected);
        let ids = line("$trace_id $span_id", Some(&asked), "", &notes);
        assert_eq!(ids, format!("{} {}\n", trace.trace, trace.span));
        let time = line("$request_time", None, "", &notes);
        assert!(time.starts_with("0.0") && time.len() == 6, "{time}");
        let nothing =
            line("$worker $queue_time $request_id $trace_id $uri", None, "", &Notes::default());
        assert_eq!(nothing, "- - - - -\n");
    }

    /// Any bytes give one line of valid JSON; its strings are the bytes, with U+FFFD for invalid
    /// UTF-8.
    #[test]
    fn json_is_valid_whatever_clients_send() {
        let all: Vec<u8> = (0..=255).chain("\u{e4}\u{2028}\u{1f418}".bytes()).collect();
        for bytes in [&all[..], b"", b"\\u0041\"", b"\xf0\x9f", b"\x80ok"] {
            let mut asked = request(Some("a"));
            asked.uri = bytes.to_vec().into();
            let written = line("json", Some(&asked), "x", &Notes::default());
            assert_eq!(written.matches('\n').count(), 1);
            let object: serde_json::Value = serde_json::from_str(&written).unwrap();
            assert_eq!(object["uri"], String::from_utf8_lossy(bytes).into_owned());
            assert_eq!(
                (&object["worker"], &object["status"]),
                (&serde_json::Value::Null, &200.into())
            );
            assert_eq!(object["bytes_handed_over"], 100);
        }
    }

    /// Run by hand: `cargo test --release -p sendoff-report how_long -- --ignored --nocapture`.
    #[test]
    #[ignore = "heavy: it measures"]
    fn how_long_a_line_takes() {
        let mut asked = request(Some("a"));
        asked
            .headers
            .insert("user-agent", http::HeaderValue::from_static("Mozilla/5.0 (X11; Linux)"));
        for format in ["combined", "json"] {
            let format: LogFormat = format.parse().unwrap();
            let (client, notes) = (Endpoint::Ip(([192, 0, 2, 1], 5).into()), Notes::default());
            let (mut out, time) = (String::with_capacity(1 << 20), time());
            let (began, lines) = (Instant::now(), 1_000_000_u32);
            for _ in 0..lines {
                let line = LogLine {
                    client: &client,
                    request: Some(&asked),
                    request_line: &"GET /index.php?a=b HTTP/1.1",
                    began,
                    status: 200,
                    sent: 123,
                    body: BodyBytes::default(),
                    is_whole: true,
                    notes: &notes,
                };
                out.clear();
                write(&mut out, &format, &line, None, &time);
            }
            println!("{:?} a line of {} bytes", began.elapsed() / lines, out.len());
            assert!(!out.is_empty());
        }
    }
}
