//! The status page of a pool. Names, order and formats are php-fpm's, so programs that read
//! php-fpm's page can read this one.

use std::fmt::{self, Write};
use std::time::SystemTime;

use sendoff_config::{PHP_VERSION, Workers};
use sendoff_message::Shown;

use super::log_line::json;
use crate::workers::{Described, PoolReport, WorkerReport};

/// The format of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines of names and values.
    Text,
    /// A web page.
    Html,
    /// XML.
    Xml,
    /// JSON.
    Json,
    /// Metrics for Prometheus.
    OpenMetrics,
}

/// The contents of the page.
#[derive(Debug)]
pub struct PoolPage<'a> {
    /// The name of the pool.
    pub name: &'a str,
    /// The pool's rule for the number of its workers.
    pub policy: Workers,
    /// Its state.
    pub report: PoolReport,
    /// `None`: the page is about the pool alone.
    pub workers: Option<Vec<WorkerReport>>,
    /// The time of day.
    pub now: SystemTime,
}

#[derive(Debug)]
enum PoolValue {
    Text(String),
    Number(u64),
    Time(SystemTime),
    /// The processor time of a request in percent, which the front does not know.
    NoPercentage,
}

/// A name and a value.
type Field = (&'static str, PoolValue);

/// The fields of the pool that are metrics, with their types and meanings.
const METRICS: [(&str, &str, &str); 12] = [
    ("start since", "counter", "Seconds since the front has had the pool."),
    ("accepted conn", "counter", "Requests that workers were given."),
    ("listen queue", "gauge", "Requests that wait for a worker."),
    ("max listen queue", "counter", "The most requests that waited at a time."),
    ("listen queue len", "gauge", "Requests that may wait."),
    ("idle processes", "gauge", "Workers without a request."),
    ("active processes", "gauge", "Workers with a request."),
    ("total processes", "gauge", "Workers that take requests."),
    ("max active processes", "counter", "The most workers that were busy at a time."),
    ("max children reached", "counter", "How often more workers were needed than there may be."),
    ("slow requests", "counter", "Requests that the slow log has."),
    ("memory peak", "gauge", "Always 0: the front does not know the memory of requests."),
];

/// The metrics whose names differ from their fields' names.
const METRIC_NAMES: [(&str, &str); 2] =
    [("accepted conn", "accepted_connections"), ("listen queue len", "listen_queue_length")];

impl Format {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain;charset=UTF-8",
            Self::Html => "text/html;charset=UTF-8",
            Self::Xml => "text/xml;charset=UTF-8",
            Self::Json => "application/json",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl PoolPage<'_> {
    /// The page as the format writes it.
    pub fn write(&self, format: Format) -> String {
        let pool = self.pool_fields();
        let workers = self.workers.iter().flatten().map(|worker| self.worker_fields(worker));
        let workers: Option<Vec<_>> = self.workers.is_some().then(|| workers.collect());
        match format {
            Format::Text => text(&pool, workers.as_deref()),
            Format::Html => html(&pool, workers.as_deref()),
            Format::Xml => xml(&pool, workers.as_deref()),
            Format::Json => as_json(&pool, workers.as_deref()),
            Format::OpenMetrics => open_metrics(&pool),
        }
    }

    fn pool_fields(&self) -> Vec<Field> {
        let PoolReport { started, requests, waiting, most_waiting, queue, .. } = self.report;
        let PoolReport { idle, workers, most_busy, limit_reached, slow, .. } = self.report;
        let policy = match self.policy {
            Workers::Fixed(_) => "static",
            Workers::Auto(bounds) if bounds.min == 0 => "ondemand",
            Workers::Auto(_) => "dynamic",
        };
        let mut fields = vec![
            ("pool", PoolValue::text(self.name.as_bytes())),
            ("process manager", PoolValue::text(policy.as_bytes())),
            ("start time", PoolValue::Time(started)),
            ("start since", self.since(started)),
            ("accepted conn", PoolValue::Number(requests)),
            ("listen queue", PoolValue::count(waiting)),
            ("max listen queue", PoolValue::count(most_waiting)),
            ("listen queue len", PoolValue::count(queue)),
            ("idle processes", PoolValue::count(idle)),
            ("active processes", PoolValue::count(workers.saturating_sub(idle))),
            ("total processes", PoolValue::count(workers)),
            ("max active processes", PoolValue::count(most_busy)),
            ("max children reached", PoolValue::Number(limit_reached)),
            ("slow requests", PoolValue::Number(slow)),
        ];
        fields.extend(has_memory_peak().then_some(("memory peak", PoolValue::Number(0))));
        fields
    }

    fn worker_fields(&self, worker: &WorkerReport) -> [Field; 13] {
        let WorkerReport { pid, started, requests, is_idle, ref request, took } = *worker;
        let shown = |value: fn(&Described) -> &[u8]| shown(request.as_deref().map(value));
        let uri = request.as_deref().map(|Described { uri, query, .. }| match &query[..] {
            [] => uri.clone(),
            query => [uri, &b"?"[..], query].concat(),
        });
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        [
            ("pid", PoolValue::Number(pid.unsigned_abs().into())),
            ("state", PoolValue::text(if is_idle { b"Idle" } else { b"Running" })),
            ("start time", PoolValue::Time(started)),
            ("start since", self.since(started)),
            ("requests", PoolValue::Number(requests)),
            ("request duration", PoolValue::Number(took)),
            ("request method", shown(|request| request.method.as_str().as_bytes())),
            ("request uri", self::shown(uri.as_deref())),
            (
                "content length",
                PoolValue::Number(request.as_ref().map_or(0, |request| request.body)),
            ),
            ("user", shown(|request| &request.user)),
            ("script", shown(|request| &request.script)),
            ("last request cpu", PoolValue::NoPercentage),
            ("last request memory", PoolValue::Number(0)),
        ]
    }

    /// The array that `fpm_get_status()` returns, as JSON: the fields of the page, with the names
    /// and the order that php-fpm's function uses.
    pub fn as_array(&self) -> String {
        let mut out = "{".to_owned();
        let pool = self.pool_fields().into_iter();
        members(
            &mut out,
            &pool.map(|(name, value)| (name.replace(' ', "-"), value)).collect::<Vec<_>>(),
        );
        out.push_str(",\"procs\":[");
        for (at, worker) in self.workers.iter().flatten().enumerate() {
            out.push_str(if at == 0 { "{" } else { ",{" });
            let fields = self.worker_fields(worker).into_iter().flat_map(|(name, value)| {
                let text = |value: fn(&Described) -> &[u8]| {
                    PoolValue::text(worker.request.as_deref().map(value).unwrap_or_default())
                };
                match name {
                    "request uri" => vec![
                        ("request-uri".to_owned(), text(|request| &request.uri)),
                        ("query-string".to_owned(), text(|request| &request.query)),
                    ],
                    "content length" => vec![("request-length".to_owned(), value)],
                    _ => vec![(name.replace(' ', "-"), value)],
                }
            });
            members(&mut out, &fields.collect::<Vec<_>>());
            out.push('}');
        }
        out.push_str("]}");
        out
    }

    fn since(&self, started: SystemTime) -> PoolValue {
        PoolValue::Number(self.now.duration_since(started).map_or(0, |since| since.as_secs()))
    }
}

/// True if php-fpm of the version that the build is for has the field: since PHP 8.4.
fn has_memory_peak() -> bool {
    let mut parts = PHP_VERSION.split('.').map_while(|part| part.parse().ok());
    (parts.next(), parts.next()) >= (Some(8), Some(4))
}

/// A text, or a dash if there is none.
fn shown(value: Option<&[u8]>) -> PoolValue {
    match value {
        None | Some([]) => PoolValue::text(b"-"),
        Some(value) => PoolValue::text(value),
    }
}

impl PoolValue {
    /// A text that may come from a client. Control characters become `?`: a line feed would end the
    /// line, and other formats do not allow them.
    fn text(text: &[u8]) -> Self {
        Self::Text(String::from_utf8_lossy(text).replace(char::is_control, "?"))
    }

    fn count(count: usize) -> Self {
        Self::Number(count as u64)
    }

    /// For people: times as dates.
    fn for_people(&self) -> String {
        match self {
            Self::Time(time) => Shown::new(*time).local,
            other => other.for_programs(),
        }
    }

    /// For programs: times as seconds since 1970.
    fn for_programs(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Time(time) => {
                let since = time.duration_since(SystemTime::UNIX_EPOCH);
                since.map_or(0, |since| since.as_secs()).to_string()
            }
            Self::NoPercentage => "0.00".to_owned(),
        }
    }
}

fn text(pool: &[Field], workers: Option<&[[Field; 13]]>) -> String {
    let mut out = String::new();
    lines(&mut out, pool);
    for worker in workers.unwrap_or_default() {
        out.push_str("\n************************\n");
        lines(&mut out, worker);
    }
    out
}

fn lines(out: &mut String, fields: &[Field]) {
    for (name, value) in fields {
        // php-fpm uses capitals only in this format.
        let name = if *name == "request uri" { "request URI" } else { name };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:<21} {}", format!("{name}:"), value.for_people());
    }
}

fn html(pool: &[Field], workers: Option<&[[Field; 13]]>) -> String {
    let mut out =
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>PHP-FPM Status Page</title></head>\n\
        <body>\n<table>\n"
            .to_owned();
    for (name, value) in pool {
        let _ =
            writeln!(out, "<tr><th>{name}</th><td>{}</td></tr>", marked_up(&value.for_people()));
    }
    out.push_str("</table>\n");
    if let Some(workers) = workers {
        out.push_str("<table border=\"1\">\n");
        for (at, worker) in workers.iter().enumerate() {
            if at == 0 {
                row(&mut out, "th", worker.iter().map(|(name, _)| (*name).to_owned()));
            }
            row(&mut out, "td", worker.iter().map(|(_, value)| marked_up(&value.for_people())));
        }
        out.push_str("</table>\n");
    }
    out.push_str("</body></html>\n");
    out
}

fn row(out: &mut String, element: &str, cells: impl Iterator<Item = String>) {
    out.push_str("<tr>");
    cells.for_each(|cell| {
        let _ = write!(out, "<{element}>{cell}</{element}>");
    });
    out.push_str("</tr>\n");
}

fn xml(pool: &[Field], workers: Option<&[[Field; 13]]>) -> String {
    let mut out = "<?xml version=\"1.0\" ?>\n<status>\n".to_owned();
    pool.iter().for_each(|field| out.extend([&element(field), "\n"]));
    if let Some(workers) = workers {
        out.push_str("<processes>\n");
        for worker in workers {
            let _ = writeln!(out, "<process>{}</process>", worker.each_ref().map(element).concat());
        }
        out.push_str("</processes>\n");
    }
    out.push_str("</status>\n");
    out
}

fn element((name, value): &Field) -> String {
    let name = name.replace(' ', "-");
    format!("<{name}>{}</{name}>", marked_up(&value.for_programs()))
}

/// A text inside an element of HTML or XML.
fn marked_up(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn as_json(pool: &[Field], workers: Option<&[[Field; 13]]>) -> String {
    let mut out = "{".to_owned();
    members(&mut out, pool);
    if let Some(workers) = workers {
        out.push_str(",\"processes\":[");
        for (at, worker) in workers.iter().enumerate() {
            out.push_str(if at == 0 { "{" } else { ",{" });
            members(&mut out, worker);
            out.push('}');
        }
        out.push(']');
    }
    out.push('}');
    out
}

fn members(out: &mut String, fields: &[(impl fmt::Display, PoolValue)]) {
    for (at, (name, value)) in fields.iter().enumerate() {
        let separator = if at == 0 { "" } else { "," };
        let _ = write!(out, "{separator}\"{name}\":");
        match value {
            PoolValue::Text(text) => {
                out.push('"');
                json(out, text);
                out.push('"');
            }
            number => out.push_str(&number.for_programs()),
        }
    }
}

fn open_metrics(pool: &[Field]) -> String {
    let mut out = String::from(
        "# HELP phpfpm_up Whether the pool can be reached.\n# TYPE phpfpm_up gauge\nphpfpm_up 1\n",
    );
    for (name, value) in pool {
        let Some((_, kind, help)) = METRICS.iter().find(|(of, ..)| of == name) else { continue };
        let metric = METRIC_NAMES
            .iter()
            .find(|(of, _)| of == name)
            .map_or_else(|| name.replace(' ', "_"), |(_, metric)| (*metric).to_owned());
        let value = value.for_programs();
        let _ = write!(
            out,
            "# HELP phpfpm_{metric} {help}\n# TYPE phpfpm_{metric} {kind}\nphpfpm_{metric} {value}\n"
        );
    }
    out.push_str("# EOF\n");
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_clients_send_is_quoted_in_every_format() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_316_413);
        let uri = b"/\"<&>\n\\\xff".to_vec();
        let (method, user, script) = (http::Method::GET, Vec::new(), b"/s.php".to_vec());
        let query = b"a".to_vec();
        let request = Some(Arc::new(Described { method, uri, query, body: 7, user, script }));
        let (requests, took) = (3, Duration::from_millis(2));
        let worker = WorkerReport { pid: 9, started: now, requests, is_idle: true, request, took };
        let report = PoolReport {
            started: now - Duration::from_secs(60),
            requests,
            waiting: 0,
            most_waiting: 4,
            queue: 5,
            idle: 1,
            workers: 3,
            most_busy: 3,
            limit_reached: 6,
            slow: 8,
            out_of_memory: 0,
            php: None,
        };
        let workers = Some(vec![worker]);
        let page = PoolPage { name: "www", policy: Workers::Fixed(3), report, workers, now };
        let text = page.write(Format::Text);
        assert!(text.contains("start time:           22/Nov/2026:02:59:13 +0000\n"), "{text}");
        assert!(text.contains("active processes:     2\n"), "{text}");
        assert!(text.contains("request URI:          /\"<&>?\\\u{fffd}?a\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&page.write(Format::Json)).unwrap();
        assert_eq!(json["start since"], 60);
        assert_eq!(json["processes"][0]["request uri"], "/\"<&>?\\\u{fffd}?a");
        assert_eq!(json["processes"][0]["request duration"], 2000);
        for format in [Format::Xml, Format::Html] {
            let text = page.write(format);
            assert!(text.contains(">/&quot;&lt;&amp;&gt;?\\\u{fffd}?a</"), "{text}");
            assert!(text.contains(">-</"), "no user: {text}");
        }
        let metrics = page.write(Format::OpenMetrics);
        assert!(metrics.contains("\nphpfpm_accepted_connections 3\n"), "{metrics}");
        assert!(metrics.contains("\nphpfpm_slow_requests 8\n"), "{metrics}");
        assert!(metrics.ends_with("\n# EOF\n"), "{metrics}");
    }
}
