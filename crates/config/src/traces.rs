//! Traces of requests (OpenTelemetry).

use serde::{Deserialize, Serialize};

use crate::proxy::Proxy;

/// Traces of requests, and the collector that gets them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// The collector. It speaks OTLP over HTTP/1.1.
    pub collector: Proxy,
    /// The path of its requests, in origin form.
    pub target: String,
    /// Further fields of its requests.
    pub headers: Vec<(String, String)>,
    /// The share of requests that are recorded if no trusted proxy decides, in parts per million.
    pub per_million: u32,
    /// The most requests that are recorded per second.
    pub most_per_second: u32,
    /// The name of the server in traces.
    pub service_name: String,
}
