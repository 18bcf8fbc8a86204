//! Traces: the place of a request in its trace, and its spans once it has ended.
//!
//! ```text
//!  GET                    the request: head ... last byte
//!   ├─ queue              until a worker, or a connection to a host, has it
//!   ├─ worker, upstream   until the head of the response; the parent of the application's own spans
//!   └─ delivery           until the client has the last byte
//! ```

use std::rc::Rc;
use std::time::SystemTime;

use http::{HeaderName, HeaderValue, Method, Version};
use sendoff_config::{Config, Traces};
use sendoff_message::request::Request;
use sendoff_traces::{Decision, Kind, Parent, RequestTrace, Sampler, Sampling, Span, SpanId};
use tokio::time::Instant;

use crate::limits::Limit;
use crate::log_line::{CLIENT_LEFT, LogLine};

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Methods that are names of spans; others are `HTTP`.
const KNOWN_METHODS: [Method; 8] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::OPTIONS,
    Method::PATCH,
    Method::TRACE,
];

/// The longest `tracestate` in spans, in bytes: every implementation keeps this much.
const MAX_STATE: usize = 512;

/// Takes over the trace of the caller, or begins one, and decides whether the request's spans are
/// recorded. Only a trusted proxy decides that for the server: a client could have all of its
/// requests recorded.
pub fn begin(rules: &Traces, sampler: &Sampler, request: &mut Request) {
    let mut values = request.headers.get_all(&TRACEPARENT).iter();
    let parent = match (values.next(), values.next()) {
        (Some(value), None) => Parent::parse(value.as_bytes()),
        _ => None,
    };
    let state = parent.and_then(|_| trace_state(request));
    if parent.is_none() {
        request.headers.remove(&TRACESTATE);
    }
    let believed = parent.filter(|_| request.via.is_some()).map(|parent| parent.is_sampled);
    let Traces { per_million, most_per_second, .. } = *rules;
    let decision = sampler.decide(Sampling { per_million, most_per_second }, believed);
    if decision == Decision::Limited {
        Limit::Traces.reached();
    }
    let trace = RequestTrace::new(parent, state, decision == Decision::Recorded);
    for name in [&TRACEPARENT, &TRACESTATE] {
        request.rule(name);
    }
    set_parent(request, &trace.of_request());
    request.trace = Some(Rc::new(trace));
}

/// The list in `tracestate` (W3C Trace Context §3.3). It may be spread over several fields. A longer
/// one is passed on, but not kept for the spans.
fn trace_state(request: &Request) -> Option<String> {
    let values = request.headers.get_all(&TRACESTATE).iter();
    let values: Option<Vec<_>> = values.map(|value| value.to_str().ok()).collect();
    let state = values.filter(|values| !values.is_empty())?.join(",");
    (state.len() <= MAX_STATE).then_some(state)
}

/// The request for the application that answers: the call is the parent of its spans. `None`: there
/// is no span of the call.
pub fn for_call(request: &Request) -> Option<Request> {
    let trace = request.trace.as_ref().filter(|trace| trace.is_sampled)?;
    let mut called = request.clone();
    set_parent(&mut called, &trace.of_call());
    Some(called)
}

fn set_parent(request: &mut Request, parent: &str) {
    // Digits and dashes are always valid.
    if let Ok(value) = HeaderValue::from_str(parent) {
        request.headers.insert(TRACEPARENT.clone(), value);
    }
}

/// The line of `sendoff explain` about the trace.
pub fn explanation(trace: &RequestTrace) -> String {
    let recorded = if trace.is_sampled { "recorded" } else { "not recorded" };
    format!("trace {}, span {}, {recorded}", trace.trace, trace.span)
}

/// The spans of a request that has ended; `None`: they are not recorded.
pub fn spans(config: &Config, line: &LogLine<'_>) -> Option<Vec<Span>> {
    let request = line.request?;
    let trace = request.trace.as_deref().filter(|trace| trace.is_sampled)?;
    let ended = EndedRequest { config, line, request, trace, clock: EndClock::now() };
    let mut spans = vec![ended.whole()];
    ended.parts(&mut spans);
    Some(spans)
}

/// The end of a request on both clocks.
struct EndClock {
    instant: Instant,
    /// Nanoseconds since 1970.
    nanos: u64,
}

impl EndClock {
    fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), nanos: u64::try_from(since.as_nanos()).unwrap_or(0) }
    }

    /// An earlier time in nanoseconds since 1970.
    fn at(&self, instant: Instant) -> u64 {
        let ago = self.instant.saturating_duration_since(instant).as_nanos();
        self.nanos.saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX))
    }
}

/// A request that has ended.
struct EndedRequest<'l> {
    config: &'l Config,
    line: &'l LogLine<'l>,
    request: &'l Request,
    trace: &'l RequestTrace,
    clock: EndClock,
}

impl EndedRequest<'_> {
    /// The span of the request, by OpenTelemetry's conventions for HTTP servers.
    fn whole(&self) -> Span {
        let Self { config, line, request, trace, .. } = self;
        let mut span = self.span("HTTP", Kind::Server, line.began, self.clock.instant);
        (span.id, span.parent) = (trace.span, trace.parent);
        if KNOWN_METHODS.contains(&request.method) {
            span.name = request.method.to_string().into();
            span.text("http.request.method", request.method.as_str().as_bytes());
        } else {
            span.text("http.request.method", b"_OTHER");
            span.text("http.request.method_original", request.method.as_str().as_bytes());
        }
        let path = request.uri.split(|&byte| byte == b'?').next().unwrap_or_default();
        span.text("url.path", path);
        span.text("url.scheme", request.scheme.as_str().as_bytes());
        span.text("server.address", request.host_name().as_bytes());
        if let Some(port) = request.port {
            span.number("server.port", port);
        }
        span.text("client.address", &line.client.address());
        span.text("network.protocol.version", version(request.version).as_bytes());
        if let Some(agent) = request.headers.get(http::header::USER_AGENT) {
            span.text("user_agent.original", agent.as_bytes());
        }
        if let Some(site) = line.notes.site.and_then(|number| config.sites.get(number)) {
            span.text("sendoff.site", site.name.as_bytes());
            let route = line.notes.route.and_then(|number| site.routes.get(number));
            if let Some(route) = route.and_then(|route| route.conditions.path_text(&request.path)) {
                span.name = format!("{} {route}", span.name).into();
                span.text("http.route", route.as_bytes());
            }
        }
        if line.status == CLIENT_LEFT {
            fail(&mut span, "client_left");
            return span;
        }
        span.number("http.response.status_code", line.status);
        span.number("http.response.body.size", line.sent);
        if line.status >= 500 {
            fail(&mut span, &line.status.to_string());
        } else if !line.is_whole {
            fail(&mut span, "response_cut");
        }
        span
    }

    /// The spans of the call to an application, if there was one.
    fn parts(&self, spans: &mut Vec<Span>) {
        let Self { config, line, trace, clock, .. } = self;
        let notes = line.notes;
        let Some(call) = notes.call.as_deref() else { return };
        let begins = notes.given.or(call.begins);
        let failed = call.failed.map(|(at, _)| at);
        let answered = call.answered.or(failed).unwrap_or(clock.instant);
        let pool = notes.pool.and_then(|number| config.pools.get(number));
        if let Some(waits) = call.waits {
            let mut queue = self.span("queue", Kind::Internal, waits, begins.unwrap_or(answered));
            if let Some(pool) = pool {
                queue.text("sendoff.pool", pool.name.as_bytes());
            }
            spans.push(queue);
        }
        if let Some(begins) = begins {
            let name = if notes.given.is_some() { "worker" } else { "upstream" };
            let mut span = self.span(name, Kind::Client, begins, answered);
            span.id = trace.call;
            if let Some(pool) = pool {
                span.text("sendoff.pool", pool.name.as_bytes());
            }
            if let Some(worker) = notes.worker {
                span.number("process.pid", worker);
            }
            if let Some(upstream) = &notes.upstream {
                address(&mut span, upstream);
            }
            if let Some((_, status)) = call.failed {
                fail(&mut span, &status.to_string());
            }
            spans.push(span);
        }
        if let Some(answered) = call.answered {
            spans.push(self.span("delivery", Kind::Internal, answered, clock.instant));
        }
    }

    /// A part of the request's span, without attributes.
    fn span(&self, name: &'static str, kind: Kind, start: Instant, end: Instant) -> Span {
        let (start, end) = (self.clock.at(start), self.clock.at(end));
        Span {
            trace: self.trace.trace,
            id: SpanId::random(),
            parent: Some(self.trace.span),
            state: self.trace.state.clone(),
            name: name.into(),
            kind,
            start,
            end,
            attributes: Vec::new(),
            is_error: false,
        }
    }
}

/// Marks a span that has ended with an error of this type.
fn fail(span: &mut Span, what: &str) {
    span.text("error.type", what.as_bytes());
    span.is_error = true;
}

/// Adds the address of a host, from its name in the log: `http://127.0.0.1:8080`, `unix:/run/a`, or
/// the name of an upstream, a comma and the address.
fn address(span: &mut Span, name: &str) {
    span.text("sendoff.upstream", name.as_bytes());
    let host = name.rsplit(", ").next().unwrap_or(name);
    let host = host.split_once("://").map_or(host, |(_, host)| host);
    match host.strip_prefix("unix:") {
        Some(path) => span.text("server.address", path.as_bytes()),
        None => {
            let (host, port) = host.rsplit_once(':').unwrap_or((host, ""));
            span.text("server.address", host.trim_matches(['[', ']']).as_bytes());
            if let Ok(port) = port.parse::<u16>() {
                span.number("server.port", port);
            }
        }
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}
