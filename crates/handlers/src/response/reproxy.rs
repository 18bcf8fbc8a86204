//! `X-Reproxy-URL: URL URL`, of perlbal: the body comes from the first URL that has one, and the
//! application is free at once.
//!
//! Only the applications of internal routes are asked, by their paths, so no application can make
//! the server ask another machine. Of the client's fields they see only ranges and conditions: no
//! cookie, no password.

use http::header::{self, HeaderName};
use http::{HeaderMap, StatusCode};
use sendoff_application_response::beginning::{ReceivedHead, ResponseStart};
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_application_response::failure::ApplicationFailure;
use sendoff_application_response::fields::is_for_server;
use sendoff_application_response::named_url::NamedUrl;
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::request::{CONDITIONS, Request};
use sendoff_message::response::{CgiHead, Field, ResponseHead};
use sendoff_site::decided_for::DecidedFor;
use sendoff_site::effects::{AccessRequirements, Effects};
use sendoff_site::{InternalTarget, Rewrites};
use sendoff_site_files::sendable::Denied;

use crate::application::proxy::{self, ProxyTarget};
use crate::application::script::Call;
use crate::context::Context;
use crate::head_rules;
use crate::outcome::Outcome;
use crate::response::internal_redirect;
use crate::response::requirements::{NotMet, check};

const FIELD: &[u8] = b"x-reproxy-url";
const EXPECTED_SIZE: &[u8] = b"x-reproxy-expected-size";

/// Maximum number of URLs of one response that are tried; the others are ignored.
const MAX_URLS: usize = 8;

/// Fields of the other application that describe its bytes, and replace the first application's.
const OF_THE_BYTES: [HeaderName; 5] = [
    header::LAST_MODIFIED,
    header::ETAG,
    header::ACCEPT_RANGES,
    header::CONTENT_RANGE,
    header::CONTENT_ENCODING,
];

/// The value of the field, if a head has it and it is not empty.
pub(crate) fn urls(head: &CgiHead) -> Option<&[u8]> {
    head.values(FIELD).find(|value| !value.is_empty())
}

/// A URL that may be asked for.
struct ReproxyTarget {
    url: String,
    request: Request,
    effects: Effects,
    internal: InternalTarget,
    /// The conditions that the client must meet, with its own request for the URL.
    requirements: [(Request, AccessRequirements); 1],
}

/// Answers with the body of the first named URL that has one.
///
/// # Errors
/// The client has gone, or its response was cut short after it had begun.
pub(crate) async fn respond(
    call: &Call<'_>,
    own: CgiHead,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let shown = &**call.log_name();
    let value = urls(&own).unwrap_or_default().to_vec();
    let expected = own.values(EXPECTED_SIZE).next().and_then(number);
    let named = value.split(u8::is_ascii_whitespace).filter(|url| !url.is_empty());
    let (mut refused, mut decided_for) = (Vec::new(), DecidedFor::AllClients);
    for url in named.take(MAX_URLS) {
        let target = match target(&call.context, &own, url, &mut decided_for) {
            Ok(target) => target,
            Err(Denied { status, why }) => {
                tracing::error!(request = shown, "X-Reproxy-URL is not asked: {why}");
                refused.push(status);
                continue;
            }
        };
        match check(&call.context, &target.requirements).await {
            Ok(()) => {}
            Err(NotMet::Password(refused)) => return Ok(refused),
            Err(NotMet::Access(Denied { status, why })) => {
                tracing::error!(request = shown, "X-Reproxy-URL is not asked: {why}");
                refused.push(status);
                continue;
            }
        }
        match ask(call, &target, expected, sink).await? {
            Ok((exchange, begun)) => {
                let sink = &mut HeadFilter::new(sink, false, |head| decided_for.limit(head));
                return pass_on(call, own, &target, exchange, begun, sink).await;
            }
            Err(ApplicationFailure { status, why, .. }) => {
                tracing::warn!(request = shown, "X-Reproxy-URL {}: {why}", target.url);
                refused.push(status);
            }
        }
    }
    // 404 only if every URL is answered with 404 or 410.
    let worst =
        refused.into_iter().max_by_key(|status| (*status != StatusCode::NOT_FOUND, *status));
    let status = worst.unwrap_or(StatusCode::BAD_GATEWAY);
    tracing::error!(request = shown, "answered with {status}: no URL of X-Reproxy-URL has a body");
    Ok(Outcome::refused(status, []))
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The internal route that passes on requests for a URL. `decided_for`: the clients for whom the
/// decisions about all URLs so far hold.
fn target(
    context: &Context<'_>,
    own: &CgiHead,
    url: &[u8],
    decided_for: &mut DecidedFor,
) -> Result<ReproxyTarget, Denied> {
    let text = url.escape_ascii().to_string();
    let denied =
        |why: &str| Denied { status: StatusCode::FORBIDDEN, why: format!("{text}: {why}") };
    let NamedUrl { origin, authority, path } =
        NamedUrl::parse(url).ok_or_else(|| denied("it is no URL"))?;
    let bad_path = |bad: sendoff_message::request::BadPath| denied(bad.0);
    let mut request =
        internal_redirect::request_for(context.request, own, &path).map_err(bad_path)?;
    let of_client = request.clone();
    request.headers = of_the_part(&request.headers);
    request.host = Some(authority);
    let gateways = &context.services.gateways[context.site.number];
    let is_meant = |application: usize, rewrites: Rewrites| {
        let gateway = gateways.get(application).map(|gateway| gateway.name());
        // The application must get the path of the URL itself.
        rewrites == Rewrites::KeepUri
            && gateway.is_some_and(|name| name.eq_ignore_ascii_case(&origin))
    };
    let mut effects = Effects::default();
    let internal = context.site.redirect_internally(&mut request, &mut effects, is_meant);
    *decided_for = decided_for.and(effects.decided_for);
    match internal {
        Ok(Some(internal)) => {
            let auth = std::mem::take(&mut effects.auth);
            let authorizers = std::mem::take(&mut effects.authorizers);
            let requirements = AccessRequirements { auth, authorizers, ..Default::default() };
            let requirements = [(of_client, requirements)];
            Ok(ReproxyTarget { url: text, request, effects, internal, requirements })
        }
        Ok(None) => Err(denied(&format!(
            "no route with internal = true and proxy = \"{origin}\" concerns its path"
        ))),
        Err(answer) => Err(answer.into_denied(url)),
    }
}

/// The client's fields that select a part: ranges and conditions.
fn of_the_part(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in CONDITIONS {
        for value in headers.get_all(&name) {
            kept.append(&name, value.clone());
        }
    }
    kept
}

/// Asks for one URL. After an error, the next URL is tried.
async fn ask(
    call: &Call<'_>,
    target: &ReproxyTarget,
    expected: Option<u64>,
    sink: &mut dyn Sink,
) -> Result<Result<(UpstreamExchange, Box<ReceivedHead>), ApplicationFailure>, Cut> {
    let context = Context { request: &target.request, effects: &target.effects, ..call.context };
    let gateway = &context.services.gateways[context.site.number][target.internal.application];
    let proxied =
        ProxyTarget { application: target.internal.application, prefix: target.internal.prefix };
    let message = match proxy::message(&context, gateway, proxied, sink) {
        Ok(message) => message,
        Err(ApplicationFailure { why, .. }) => {
            return Ok(Err(ApplicationFailure::bad_gateway(why)));
        }
    };
    let answered = proxy::ask(&Call::new(context), gateway, &message, sink).await?;
    Ok(answered.and_then(|(exchange, answer)| match answer {
        ResponseStart::Head(begun) => is_wanted(&begun.head, expected).map(|()| (exchange, begun)),
        ResponseStart::Sent(_) | ResponseStart::Tunnel | ResponseStart::Switch(_) => {
            Err(ApplicationFailure::bad_gateway("it changes the protocol"))
        }
    }))
}

/// Checks that a response is successful and has the expected size, if a size is expected.
fn is_wanted(head: &CgiHead, expected: Option<u64>) -> Result<(), ApplicationFailure> {
    match (head.status, expected) {
        (StatusCode::OK, Some(size)) if head.content_length != Some(size) => {
            let why = format!("it has not the {size} bytes of X-Reproxy-Expected-Size");
            Err(ApplicationFailure::bad_gateway(why))
        }
        (
            StatusCode::OK
            | StatusCode::PARTIAL_CONTENT
            | StatusCode::NOT_MODIFIED
            | StatusCode::RANGE_NOT_SATISFIABLE,
            _,
        ) => Ok(()),
        (status @ (StatusCode::NOT_FOUND | StatusCode::GONE), _) => Err(ApplicationFailure::new(
            StatusCode::NOT_FOUND,
            format!("it is answered with {status}"),
        )),
        (status, _) => {
            Err(ApplicationFailure::bad_gateway(format!("it is answered with {status}")))
        }
    }
}

async fn pass_on(
    call: &Call<'_>,
    own: CgiHead,
    target: &ReproxyTarget,
    exchange: UpstreamExchange,
    begun: Box<ReceivedHead>,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    sink.client().notes().upstream = Some(exchange.who());
    if let Some(report) = sink.client().report() {
        report.note(format!("led there by X-Reproxy-URL: {}", target.url));
    }
    let own = ResponseHead::of(own);
    let mut merged = HeadFilter::new(sink, false, |head| {
        head_rules::apply(head, &target.effects);
        merge(&own, head);
    });
    let context = Context { request: &target.request, effects: &target.effects, ..call.context };
    Call::new(context).pass_on(exchange, begun, &mut merged).await
}

/// As in perlbal: the head of the first application, with the length and the fields about the bytes
/// of the other application.
fn merge(own: &ResponseHead, head: &mut ResponseHead) {
    let other = std::mem::replace(head, own.clone());
    if other.status != StatusCode::OK {
        (head.status, head.reason) = (other.status, None);
    }
    head.length = other.length;
    head.is_incomplete |= other.is_incomplete;
    head.accel_expires = head.take("X-Accel-Expires");
    let is_of_the_bytes = |field: &Field| OF_THE_BYTES.iter().any(|name| field.is(name));
    head.fields.retain(|field| !is_of_the_bytes(field) && !is_for_server(field.name()));
    let has_type = head.has("Content-Type");
    head.fields.extend(
        other
            .fields
            .into_iter()
            .filter(|field| is_of_the_bytes(field) || !has_type && field.is("Content-Type")),
    );
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_head_is_the_first_ones_with_what_describes_the_bytes() {
        let block = "Status: 200\nContent-Type: a/b\nX-Own: 1\nETag: \"own\"\nContent-Range: x\nX-Reproxy-URL: u\nContent-Length: 7\n\n";
        let own = ResponseHead::of(CgiHead::parse(&Bytes::from_static(block.as_bytes())).unwrap());
        let mut head = ResponseHead::new(StatusCode::PARTIAL_CONTENT, Some(3));
        for (name, value) in [
            ("Content-Type", "c/d"),
            ("ETag", "\"s\""),
            ("Content-Range", "bytes 0-2/9"),
            ("Set-Cookie", "s=1"),
        ] {
            head.field(name, value);
        }
        merge(&own, &mut head);
        assert_eq!((head.status.as_u16(), head.length), (206, Some(3)));
        let fields: Vec<_> = head.fields.iter().map(Field::text).collect();
        assert_eq!(
            fields,
            ["Content-Type: a/b", "X-Own: 1", "ETag: \"s\"", "Content-Range: bytes 0-2/9"]
        );
    }
}
