//! `X-Accel-Redirect: /uri` to a location that another application serves: the request goes to the
//! other application, and the application that has named the URI is free at once. Only routes with
//! `internal` are such locations.
//!
//! As in nginx, the status and the fields are the other application's; some fields of the first
//! application stay.

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderName};
use http::{HeaderMap, Method, StatusCode};
use percent_encoding::percent_encode;
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::request::{BadPath, CONDITIONS, NOT_IN_PATH, Request, decode_path};
use sendoff_message::response::{CgiHead, Field, ResponseHead};
use sendoff_site::effects::Effects;
use sendoff_site::naming::Naming;
use sendoff_site::{InternalTarget, Rewrites};
use sendoff_site_files::sendable::Denied;

use crate::application::proxy::{self, ProxyTarget};
use crate::context::Context;
use crate::head_rules;
use crate::outcome::Outcome;
use crate::response::named;

/// Fields that describe the body of the client's request, and fields that ask for another protocol.
pub(crate) const OF_THE_BODY: [HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::EXPECT,
    header::UPGRADE,
];

/// Fields of the first application that replace the other application's, besides [`LIFETIMES`].
const STAY: [&str; 2] = ["content-disposition", "accept-ranges"];

/// Fields by which a response says how long it may be kept. One of the first application replaces all
/// of the other's.
const LIFETIMES: [&str; 3] = ["cache-control", "expires", "pragma"];

/// Fields that say so to some caches alone, and count more there.
const TARGETED: [&str; 2] = ["cdn-cache-control", "surrogate-control"];

/// A request that an application has redirected, and the internal route that passes it on.
pub(crate) struct InternalRedirect {
    request: Request,
    effects: Effects,
    target: InternalTarget,
}

/// The internal route to which an application redirects the request by a URI. `None`: no such route
/// passes the URI on, so the URI names a file if the application `may_name` files.
///
/// # Errors
/// The URI is no path, or a route denies access to it, to everyone or to this client.
pub(crate) fn by_uri(
    context: &Context<'_>,
    naming: &Naming<'_>,
    may_name: bool,
    head: &CgiHead,
    uri: &[u8],
) -> Result<Option<InternalRedirect>, Denied> {
    let has_internal_routes = context.site.has_internal_routes();
    if !(has_internal_routes || may_name && naming.has_guards()) {
        return Ok(None);
    }
    let mut request = request_for(context.request, head, uri).map_err(|bad| Denied {
        status: StatusCode::FORBIDDEN,
        why: format!("{}: {}", uri.escape_ascii(), bad.0),
    })?;
    let named = request.clone();
    let mut effects = Effects::default();
    let target = match has_internal_routes {
        true => context.site.redirect_internally(&mut request, &mut effects, |_, _: Rewrites| true),
        false => Ok(None),
    };
    naming.note_decided_for(effects.decided_for);
    let target = target.map_err(|answer| answer.into_denied(uri))?;
    match &target {
        Some(_) => naming.may_pass_on(&named)?,
        None if may_name => naming.may_name(&named)?,
        None => {}
    }
    Ok(target.map(|target| InternalRedirect { request, effects, target }))
}

/// The request for a URI that a head names. As in nginx, its method is GET (HEAD if the client has
/// used HEAD), and it has no body.
///
/// # Errors
/// The URI is no path.
pub(crate) fn request_for(asked: &Request, head: &CgiHead, uri: &[u8]) -> Result<Request, BadPath> {
    let mut request = Request { is_internal_redirect: true, ..asked.without_body() };
    OF_THE_BODY.into_iter().for_each(|name| drop(request.headers.remove(name)));
    if !reads(asked, head) {
        remove_conditions(&mut request.headers);
    }
    if request.method != Method::HEAD {
        request.method = Method::GET;
    }
    request.uri = encoded(uri)?;
    request.restart()?;
    Ok(request)
}

/// True if ranges and conditions of the client apply to the response: they apply to successful
/// responses to GET and HEAD.
fn reads(asked: &Request, head: &CgiHead) -> bool {
    [Method::GET, Method::HEAD].contains(&asked.method) && head.status == StatusCode::OK
}

fn remove_conditions(headers: &mut HeaderMap) {
    CONDITIONS.into_iter().for_each(|name| drop(headers.remove(name)));
}

/// The URI, percent-encoded if the application did not do so (nginx accepts such a URI, too).
pub(crate) fn encoded(uri: &[u8]) -> Result<Bytes, BadPath> {
    let is_fine = |byte: &u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(byte);
    if uri.iter().all(is_fine) {
        return Ok(Bytes::copy_from_slice(uri));
    }
    let mut sides = uri.splitn(2, |&byte| byte == b'?');
    let path = decode_path(sides.next().unwrap_or_default())?;
    let mut out = BytesMut::from(percent_encode(&path, NOT_IN_PATH).to_string().as_bytes());
    if let Some(query) = sides.next() {
        out.extend_from_slice(b"?");
        let query = percent_encode(query, percent_encoding::CONTROLS).to_string();
        out.extend_from_slice(query.replace(' ', "%20").as_bytes());
    }
    Ok(out.freeze())
}

/// Answers with the response of the other application. `own` is the head of the first one.
///
/// # Errors
/// The client has gone, or its response was cut short after it had begun.
pub(crate) async fn follow(
    context: &Context<'_>,
    own: CgiHead,
    redirect: &InternalRedirect,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let InternalRedirect { request, effects, target } = redirect;
    if let Some(report) = sink.client().report()
        && let Some(name) = named::named(&own)
    {
        report.note(format!("led there by {}", name.text()));
    }
    let own = ResponseHead::of(own);
    let context = Context { request, effects, ..*context };
    let mut merged = HeadFilter::new(sink, false, |head| {
        head_rules::apply(head, effects);
        merge(&own, head);
    });
    let proxied = ProxyTarget { application: target.application, prefix: target.prefix };
    proxy::respond(&context, proxied, &mut merged).await
}

/// Merges the lasting fields of the first application into the head of the other.
fn merge(own: &ResponseHead, head: &mut ResponseHead) {
    let is_found = head.status.is_success() || head.status == StatusCode::NOT_MODIFIED;
    let of_lifetime = |field: &Field| LIFETIMES.iter().any(|name| field.is(name));
    let stays = |field: &&Field| {
        // Fields about the contents do not apply to an error.
        field.is("set-cookie")
            || is_found && (of_lifetime(field) || STAY.iter().any(|name| field.is(name)))
    };
    let kept: Vec<_> = own.fields.iter().filter(stays).cloned().collect();
    let has_lifetime = kept.iter().any(of_lifetime);
    let replaced = |field: &Field| {
        let has_it = || kept.iter().any(|kept| kept.is(field.name()));
        !field.is("set-cookie") && (has_it() || has_lifetime && of_lifetime(field))
    };
    head.fields.retain(|field| !replaced(field));
    if is_found
        && !head.has("Content-Type")
        && let Some(own) = own.fields.iter().find(|field| field.is("content-type"))
    {
        head.fields.push(own.clone());
    }
    head.accel_expires = own
        .value("X-Accel-Expires")
        .map(Bytes::copy_from_slice)
        .or_else(|| leads_only_this_client(own, head).then(|| Bytes::from_static(b"0")));
    head.fields.extend(kept);
    head.fields.extend(own.fields.iter().filter(|field| field.is("vary")).cloned());
    head.is_incomplete |= own.is_incomplete;
}

/// True if the first application does not allow to keep the other's response for other clients, whom
/// it may lead elsewhere. It allows that by its own fields. Errors, which may be about this client,
/// and fields for some caches alone are not weighed against each other.
fn leads_only_this_client(own: &ResponseHead, other: &ResponseHead) -> bool {
    let says = |head: &ResponseHead, names: &[&str]| names.iter().any(|name| head.has(name));
    !other.status.is_success()
        || says(own, &TARGETED)
        || says(own, &["x-accel-buffering"])
        || says(other, &TARGETED)
        || !says(own, &LIFETIMES) && says(other, &LIFETIMES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_message::request::sample::request;

    fn head(block: &str) -> CgiHead {
        CgiHead::parse(&Bytes::copy_from_slice(block.as_bytes())).unwrap()
    }

    #[test]
    fn a_request_that_is_led_elsewhere_has_no_body_and_its_own_target() {
        let mut asked = request(Some("a.test"));
        asked.method = Method::POST;
        for (name, value) in [
            ("content-type", "a/b"),
            ("upgrade", "websocket"),
            ("range", "bytes=0-1"),
            ("x-a", "b"),
        ] {
            asked.headers.append(name, value.parse().unwrap());
        }
        let target = request_for(&asked, &head("A: b\n\n"), b"/b%20c?d=%2f").unwrap();
        assert_eq!((target.method, &target.path[..]), (Method::GET, &b"/b c"[..]));
        assert_eq!(target.query.as_deref(), Some(&b"d=%2f"[..]));
        assert!(target.is_internal_redirect);
        assert_eq!(target.headers.keys().collect::<Vec<_>>(), ["x-a"]);
        let mut get = request(None);
        get.headers.append("range", "bytes=0-1".parse().unwrap());
        assert!(request_for(&get, &head("A: b\n\n"), b"/x").unwrap().headers.contains_key("range"));
        let missing = request_for(&get, &head("Status: 404\n\n"), b"/x").unwrap();
        assert!(!missing.headers.contains_key("range"));
        for bad in [&b"x"[..], b"", b"/%zz", b"/%00", b"/../x", b"http://a/b"] {
            assert!(request_for(&get, &head("A: b\n\n"), bad).is_err(), "{bad:?}");
        }
        let raw = request_for(&get, &head("A: b\n\n"), "/ä b?c d".as_bytes()).unwrap();
        assert_eq!(raw.uri, "/%C3%A4%20b?c%20d");
    }

    #[test]
    fn cookies_of_both_stay_and_what_is_said_of_the_contents() {
        let block = "Set-Cookie: a=1\nCache-Control: private\nX-Own: 1\nContent-Type: text/html\nETag: \"own\"\nX-Accel-Expires: 5\n\n";
        let own = ResponseHead::of(head(block));
        let other = |status: u16| {
            let mut other = ResponseHead::new(StatusCode::from_u16(status).unwrap(), None);
            for (name, value) in [
                ("Content-Type", "image/png"),
                ("ETag", "\"s\""),
                ("Cache-Control", "max-age=1"),
                ("Set-Cookie", "s=1"),
            ] {
                other.field(name, value);
            }
            merge(&own, &mut other);
            other.fields.iter().map(Field::text).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(
            other(206),
            "Content-Type: image/png; ETag: \"s\"; Set-Cookie: s=1; Set-Cookie: a=1; Cache-Control: private"
        );
        assert_eq!(
            other(404),
            "Content-Type: image/png; ETag: \"s\"; Cache-Control: max-age=1; Set-Cookie: s=1; Set-Cookie: a=1"
        );
        let mut dated = ResponseHead::new(StatusCode::OK, None);
        dated.field("Expires", "Thu, 01 Jan 2099 00:00:00 GMT");
        merge(&own, &mut dated);
        assert!(!dated.has("Expires") && dated.has("Cache-Control"));
        let mut bare = ResponseHead::new(StatusCode::OK, None);
        merge(&own, &mut bare);
        assert_eq!(bare.value("content-type"), Some(&b"text/html"[..]));
        assert_eq!(bare.accel_expires.as_deref(), Some(&b"5"[..]));
        for (own, other) in [(false, true), (true, false)] {
            let own = ResponseHead { is_incomplete: own, ..bare.clone() };
            let mut merged = ResponseHead { is_incomplete: other, ..bare.clone() };
            merge(&own, &mut merged);
            assert!(merged.is_incomplete);
        }
    }
}
