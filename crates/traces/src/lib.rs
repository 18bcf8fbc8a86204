//! OpenTelemetry traces of requests, without I/O.
//!
//! ```text
//!  traceparent ─▶ Parent ─▶ Sampler ─▶ RequestTrace ─▶ Span, at the end of the request
//!                                          │              │
//!                traceparent for applications             └─▶ Spans ─▶ Batch ─▶ OTLP in JSON
//! ```
#![forbid(unsafe_code)]

mod context;
mod otlp;
mod queue;
mod sampler;
mod span;

pub use context::{Parent, RequestTrace, SpanId, TraceId};
pub use otlp::{Resource, encode, rejected};
pub use queue::{Counts, Spans};
pub use sampler::{Decision, Sampler, Sampling};
pub use span::{Attribute, Kind, Span, Value};
