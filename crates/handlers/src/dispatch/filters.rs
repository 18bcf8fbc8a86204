//! The filters around a site's response, in their order: the handler writes to the first filter.
//!
//! ```text
//!  application ─▶ rate limit ─▶ record for the page cache ─▶ site rules ─▶ compression ─▶ protocol
//!                 pass_on.rs    cached.rs, CacheLookup::ask   here          answer_for
//! ```
//!
//! A page whose application limits its rate (`X-Accel-Limit-Rate`) is recorded at that rate, too. Other
//! handlers write to the site rules.

use bytes::Bytes;
use http::Version;
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::Sink;
use sendoff_message::request::{Request, Scheme};
use sendoff_message::response::ResponseHead;

use crate::application::bound;
use crate::context::Context;
use crate::head_rules;
use crate::services::Services;

/// The time for which clients remember that a site speaks HTTP/3, in seconds.
const ALT_SVC_LIFETIME: u32 = 86_400;

/// Applies the site's rules to the head, and adds the common fields. The client's socket may be
/// lent only if there are no rules, because a worker that writes a response itself knows only the
/// common fields.
pub(super) fn site_rules<'r>(
    context: &Context<'r>,
    sink: &'r mut dyn Sink,
) -> HeadFilter<'r, impl FnMut(&mut ResponseHead)> {
    let Context { services, site, request, effects, .. } = *context;
    let hsts = site.hsts.as_ref().filter(|_| request.scheme == Scheme::Https);
    let alt_svc = site.h3.then(|| alt_svc(request)).flatten();
    let has_no_rules = effects.response_headers.is_empty()
        && effects.lua.fields.is_empty()
        && effects.lua_response.is_empty()
        && effects.cache.is_none()
        && hsts.is_none()
        && alt_svc.is_none()
        && effects.htaccess.as_ref().is_none_or(|response| !response.changes_heads());
    let context = *context;
    let hides_server = effects.response_headers.iter().any(|changes| changes.hides("Server"));
    HeadFilter::new(sink, has_no_rules, move |head| {
        change(&context, head);
        bound::add_cookies(head);
        if let Some(hsts) = hsts {
            head_rules::set_default(head, "Strict-Transport-Security", hsts);
        }
        if let Some(alt_svc) = &alt_svc {
            head_rules::set_default(head, "Alt-Svc", alt_svc);
        }
        head_rules::common(head, &services.clock, hides_server);
    })
}

/// `Alt-Svc` (RFC 7838 §3) for a client that may speak HTTP/3 at the port that it has connected to.
fn alt_svc(request: &Request) -> Option<Bytes> {
    let is_due = request.scheme == Scheme::Https && request.version != Version::HTTP_3;
    let port = request.local.port().filter(|_| is_due)?;
    Some(format!("h3=\":{port}\"; ma={ALT_SVC_LIFETIME}").into())
}

/// Applies the rules of the site to a head.
pub(super) fn change(context: &Context<'_>, head: &mut ResponseHead) {
    head_rules::apply(head, context.effects);
    if let Some(response) = &context.effects.htaccess {
        context.site.change(context.request, response, head);
    }
    context.site.run_on_head(&context.effects.lua_response, context.request, head);
}

/// Adds the common fields to a response that concerns no site.
pub(super) fn common<'r>(
    services: &'r Services,
    sink: &'r mut dyn Sink,
) -> HeadFilter<'r, impl FnMut(&mut ResponseHead)> {
    HeadFilter::new(sink, false, |head| head_rules::common(head, &services.clock, false))
}
