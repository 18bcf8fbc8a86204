//! Spans in the JSON encoding of OTLP 1.x (`ExportTraceServiceRequest`). The names of members are
//! Protobuf's in camel case, ids are hexadecimal, and numbers of 64 bits are texts.

use serde::ser::{Serialize, Serializer};
use serde_json::Value as Json;

use crate::span::{Attribute, Kind, Span, Value};

/// The process whose spans they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Its attributes, such as `service.name`.
    pub attributes: Vec<Attribute>,
    /// The version of the server.
    pub version: &'static str,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'s> {
    resource_spans: [ResourceSpans<'s>; 1],
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'s> {
    resource: Described<'s>,
    scope_spans: [ScopeSpans<'s>; 1],
}

#[derive(serde::Serialize)]
struct Described<'s> {
    attributes: Attributes<'s>,
}

#[derive(serde::Serialize)]
struct ScopeSpans<'s> {
    scope: Scope,
    spans: Vec<OneSpan<'s>>,
}

#[derive(serde::Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct OneSpan<'s> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_state: Option<&'s str>,
    name: &'s str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Attributes<'s>,
    status: Status,
}

#[derive(serde::Serialize)]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
}

struct Attributes<'s>(&'s [Attribute]);

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(key, value)| KeyValue {
            key,
            value: match value {
                Value::Text(text) => AnyValue::StringValue(text),
                Value::Number(number) => AnyValue::IntValue(number.to_string()),
            },
        }))
    }
}

#[derive(serde::Serialize)]
struct KeyValue<'s> {
    key: &'s str,
    value: AnyValue<'s>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
enum AnyValue<'s> {
    StringValue(&'s str),
    IntValue(String),
}

impl<'s> From<&'s Span> for OneSpan<'s> {
    fn from(span: &'s Span) -> Self {
        Self {
            trace_id: span.trace.to_string(),
            span_id: span.id.to_string(),
            parent_span_id: span.parent.map(|parent| parent.to_string()),
            trace_state: span.state.as_deref(),
            name: &span.name,
            kind: match span.kind {
                Kind::Internal => 1,
                Kind::Server => 2,
                Kind::Client => 3,
            },
            start_time_unix_nano: span.start.to_string(),
            end_time_unix_nano: span.end.max(span.start).to_string(),
            attributes: Attributes(&span.attributes),
            status: Status { code: span.is_error.then_some(2) },
        }
    }
}

/// The body of the request to the collector.
#[must_use]
pub fn encode(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let scope = Scope { name: "sendoff", version: resource.version };
    let scope_spans = [ScopeSpans { scope, spans: spans.iter().map(OneSpan::from).collect() }];
    let described = Described { attributes: Attributes(&resource.attributes) };
    let request = Request { resource_spans: [ResourceSpans { resource: described, scope_spans }] };
    // Numbers and texts can always be written.
    serde_json::to_vec(&request).unwrap_or_default()
}

/// The number of spans that a collector has rejected, from the body of its response 200, and its
/// words about it.
#[must_use]
pub fn rejected(response: &[u8]) -> Option<(usize, String)> {
    let response: Json = serde_json::from_slice(response).ok()?;
    let partial = response.get("partialSuccess")?;
    let count = match partial.get("rejectedSpans")? {
        Json::String(digits) => digits.parse().ok()?,
        number => usize::try_from(number.as_u64()?).ok()?,
    };
    let message = partial.get("errorMessage").and_then(Json::as_str).unwrap_or_default();
    (count > 0).then(|| (count, message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{SpanId, TraceId};
    use crate::span::sample;

    #[test]
    fn spans_have_the_names_and_types_of_the_schema() {
        let (trace, id, parent) = (TraceId::random(), SpanId::random(), SpanId::random());
        let mut span = Span {
            trace,
            id,
            parent: Some(parent),
            state: Some("a=1".to_owned()),
            kind: Kind::Server,
            start: 1_795_236_780_000_000_001,
            end: 5,
            is_error: true,
            ..sample("GET")
        };
        span.text("url.path", b"/\"");
        span.number("http.response.status_code", 500);
        let resource = Resource {
            attributes: vec![("service.name", Value::Text("shop".to_owned()))],
            version: "1.2",
        };
        let written: Json = serde_json::from_slice(&encode(&resource, &[span])).unwrap();
        let text = |text: &str| serde_json::json!({ "stringValue": text });
        let expected = serde_json::json!({"resourceSpans": [{
            "resource": {"attributes": [{"key": "service.name", "value": text("shop")}]},
            "scopeSpans": [{
                "scope": {"name": "sendoff", "version": "1.2"},
                "spans": [{
                    "traceId": trace.to_string(),
                    "spanId": id.to_string(),
                    "parentSpanId": parent.to_string(),
                    "traceState": "a=1",
                    "name": "GET",
                    "kind": 2,
                    "startTimeUnixNano": "1795236780000000001",
                    "endTimeUnixNano": "1795236780000000001",
                    "attributes": [
                        {"key": "url.path", "value": text("/\"")},
                        {"key": "http.response.status_code", "value": {"intValue": "500"}},
                    ],
                    "status": {"code": 2},
                }],
            }],
        }]});
        assert_eq!(written, expected);
    }

    #[test]
    fn a_partial_success_is_read_in_both_forms_of_numbers() {
        for (response, expected) in [
            ("{}", None),
            ("", None),
            ("{\"partialSuccess\":{}}", None),
            ("{\"partialSuccess\":{\"rejectedSpans\":\"0\"}}", None),
            (
                "{\"partialSuccess\":{\"rejectedSpans\":\"2\",\"errorMessage\":\"old\"}}",
                Some((2, "old")),
            ),
            ("{\"partialSuccess\":{\"rejectedSpans\":3}}", Some((3, ""))),
        ] {
            let read = rejected(response.as_bytes());
            let read = read.as_ref().map(|(count, why)| (*count, &**why));
            assert_eq!(read, expected, "{response}");
        }
    }
}
