//! The two formats of the metrics: Prometheus' text format 0.0.4, which every reader knows, and
//! OpenMetrics 1.0, for readers that prefer it.

use http::HeaderMap;
use http::header::ACCEPT;

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The format that a client prefers by its `Accept` (RFC 9110 §12.5.1); the text format if the
    /// client prefers neither.
    pub fn preferred(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut open_metrics = 0.0_f32;
        // The most specific range that matches the format counts.
        let mut text = (0, 0.0_f32);
        for range in values.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let mut quality = 1.0;
            let mut is_known = true;
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                match key.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => is_known = matches!(value.trim_matches('"'), "1.0.0" | "0.0.4"),
                    _ => {}
                }
            }
            match &*name {
                "application/openmetrics-text" if is_known => {
                    open_metrics = open_metrics.max(quality);
                }
                "text/plain" if is_known => {
                    text = (3, if text.0 == 3 { text.1.max(quality) } else { quality });
                }
                "text/*" if text.0 < 2 => text = (2, quality),
                "*/*" if text.0 < 1 => text = (1, quality),
                _ => {}
            }
        }
        if open_metrics > text.1 { Self::OpenMetrics } else { Self::Text }
    }

    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts `text`, which is OpenMetrics, to this format.
    pub fn written(self, text: String) -> String {
        match self {
            Self::Text => as_text(&text),
            Self::OpenMetrics => text,
        }
    }
}

/// Converts OpenMetrics to the text format: the lines about a counter name it with `_total`, and no
/// `# EOF` marks the end.
fn as_text(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            break;
        }
        // "# HELP name text" stands above "# TYPE name counter".
        let kind = match line.strip_prefix("# HELP ") {
            Some(_) => lines.peek().copied(),
            None => Some(line),
        };
        let is_counter =
            kind.is_some_and(|kind| kind.starts_with("# TYPE ") && kind.ends_with(" counter"));
        let mut words = line.splitn(4, ' ');
        if let (true, Some("#"), Some(what), Some(name), Some(rest)) =
            (is_counter, words.next(), words.next(), words.next(), words.next())
        {
            out.extend(["# ", what, " ", name, "_total ", rest, "\n"]);
        } else {
            out.extend([line, "\n"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        use Exposition::{OpenMetrics, Text};
        for (accept, expected) in [
            (None, Text),
            (Some("*/*"), Text),
            (Some("text/plain;version=0.0.4"), Text),
            (Some("text/html"), Text),
            (Some("application/openmetrics-text"), OpenMetrics),
            (Some("application/openmetrics-text; version=1.0.0; charset=utf-8"), OpenMetrics),
            (Some("application/openmetrics-text;version=2.0.0, */*;q=0.1"), Text),
            (Some("application/openmetrics-text, text/plain"), Text),
            (Some("application/openmetrics-text;q=0.4, text/plain;q=0.5"), Text),
            (Some("application/openmetrics-text;q=0.6, text/*;q=0.5"), OpenMetrics),
            (Some("application/openmetrics-text;q=0.6, text/plain;q=0.5, */*"), OpenMetrics),
            // Prometheus 2.
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                ),
                OpenMetrics,
            ),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(Exposition::preferred(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn counters_are_described_by_the_name_of_their_value() {
        let open_metrics = "# HELP a_b One two.\n# TYPE a_b counter\na_b_total{c=\"d\"} 1\n\
            # HELP e f\n# TYPE e gauge\ne 2.0\n# EOF\n";
        let text = "# HELP a_b_total One two.\n# TYPE a_b_total counter\na_b_total{c=\"d\"} 1\n\
            # HELP e f\n# TYPE e gauge\ne 2.0\n";
        assert_eq!(Exposition::Text.written(open_metrics.to_owned()), text);
        assert_eq!(Exposition::OpenMetrics.written(open_metrics.to_owned()), open_metrics);
    }
}
