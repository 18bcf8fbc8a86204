//! The filters around a response, in their order. Each filter is a sink that passes the response on
//! to the next sink; the protocol's sink is the last.
//!
//! ```text
//!  filter      does                               if                     made by
//!
//!     response of an application, or a body that its head names
//!  Paced       limits the rate                    X-Accel-Limit-Rate     Call::pass_on_changed
//!  HeadFilter  adds the charset                   X-Accel-Charset        Call::pass_on_changed
//!  HeadFilter  binds the client to a host         the upstream does so   Call::pass_on
//!  WebResponse speaks gRPC-Web                    the client's call does  proxy::respond
//!  Recorder    records for the page cache         the page may be kept   CacheLookup::ask
//!  HeadFilter  purges changed pages               the method is unsafe   respond_before_renewal
//!  Capture     takes a page with fragments in     the site assembles     esi::ask
//!
//!     response of another handler, kept page, assembled page, error page
//!  Stripped    removes the fields for the cache   the site has LSCache   answer_for
//!  Paced       limits the rate                    limit_rate             answer_for
//!  SiteRules   changes the head                   always                 answer_for
//!  Compressed  compresses                         the client accepts it  answer_for
//!
//!     protocol
//! ```
//!
//! [`Call`](crate::application::script::Call) is continued in `response/pass_on.rs`;
//! `respond_before_renewal` is in `cached.rs`, `CacheLookup::ask` in `cached/make.rs`, and a response
//! passes one filter of the two. `answer_for` is in `dispatch/mod.rs`. Before these, some handlers
//! change a head by a [`HeadFilter`] of their own, such as the status of an error page.

use bytes::Bytes;
use http::Version;
use sendoff_application_response::host_cookie;
use sendoff_exchange::head_filter::{HeadFilter, HeadRules};
use sendoff_exchange::sink::Sink;
use sendoff_message::request::{Request, Scheme};
use sendoff_message::response::ResponseHead;

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
) -> HeadFilter<'r, SiteRules<'r>> {
    let rules = SiteRules::of(context);
    let effects = context.effects;
    let has_no_rules = effects.response_headers.is_empty()
        && effects.lua.fields.is_empty()
        && effects.lua_response.is_empty()
        && effects.cache.is_none()
        && rules.hsts.is_none()
        && rules.alt_svc.is_none()
        && effects.htaccess.as_ref().is_none_or(|response| !response.changes_heads());
    HeadFilter::with_rules(sink, has_no_rules, rules)
}

/// The rules of a site for the heads of responses to a request.
pub(super) struct SiteRules<'r> {
    context: Context<'r>,
    hsts: Option<&'r Bytes>,
    alt_svc: Option<Bytes>,
    /// Names of the fields that Lua scripts have set or removed.
    set_by_scripts: Vec<Bytes>,
}

impl<'r> SiteRules<'r> {
    pub(super) fn of(context: &Context<'r>) -> Self {
        let Context { site, request, .. } = *context;
        let hsts = site.hsts.as_ref().filter(|_| request.scheme == Scheme::Https);
        let alt_svc = site.h3.then(|| alt_svc(request)).flatten();
        Self { context: *context, hsts, alt_svc, set_by_scripts: Vec::new() }
    }
}

impl HeadRules for SiteRules<'_> {
    fn change(&mut self, head: &mut ResponseHead) {
        let Self { context, hsts, alt_svc, set_by_scripts } = self;
        *set_by_scripts = change(context, head);
        host_cookie::add_cookies(head);
        if let Some(hsts) = hsts {
            head_rules::set_default(head, "Strict-Transport-Security", hsts);
        }
        if let Some(alt_svc) = alt_svc {
            head_rules::set_default(head, "Alt-Svc", alt_svc);
        }
        let mut changes = context.effects.response_headers.iter();
        let hides_server = changes.any(|changes| changes.hides("Server"));
        head_rules::common(head, &context.services.clock, hides_server);
    }

    fn concern(&self, name: &str) -> bool {
        let effects = self.context.effects;
        let is = |set: &Bytes| set.eq_ignore_ascii_case(name.as_bytes());
        effects.response_headers.iter().any(|changes| changes.concern(name))
            || effects.lua.fields.iter().any(|(set, _)| is(set))
            || effects.htaccess.as_ref().is_some_and(|files| files.concerns_field(name))
            || self.set_by_scripts.iter().any(is)
    }
}

/// `Alt-Svc` (RFC 7838 §3) for a client that may speak HTTP/3 at the port that it has connected to.
/// Behind a proxy that speaks TLS there is none: the client has connected to the proxy's port.
fn alt_svc(request: &Request) -> Option<Bytes> {
    let is_due = request.tls.is_some() && request.version != Version::HTTP_3;
    let port = request.local.port().filter(|_| is_due)?;
    Some(format!("h3=\":{port}\"; ma={ALT_SVC_LIFETIME}").into())
}

/// Applies the rules of the site to a head. Returns the names of the fields that Lua scripts have
/// set or removed.
pub(super) fn change(context: &Context<'_>, head: &mut ResponseHead) -> Vec<Bytes> {
    head_rules::apply(head, context.effects);
    if let Some(response) = &context.effects.htaccess {
        context.site.change(context.request, response, head);
    }
    context.site.run_on_head(&context.effects.lua_response, context.request, head)
}

/// Adds the common fields to a response that concerns no site.
pub(super) fn common<'r>(
    services: &'r Services,
    sink: &'r mut dyn Sink,
) -> HeadFilter<'r, impl FnMut(&mut ResponseHead)> {
    HeadFilter::new(sink, false, |head| head_rules::common(head, &services.clock, false))
}
