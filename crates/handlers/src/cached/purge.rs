//! Kept pages that are purged: by requests to purge, and by requests that have changed something
//! (RFC 9111 §4.4).

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::request::{Request, host_name};
use sendoff_message::response::ResponseHead;
use sendoff_page_cache::{FragmentPurge, PURGE_METHODS, Purge, ordered};

use crate::context::Context;
use crate::outcome::Outcome;
use crate::server_pages;

/// The request method that purges pages, as in other caches.
const PURGE: &str = "PURGE";

/// True if the request may change kept pages.
pub(super) fn may_change(context: &Context<'_>) -> bool {
    let method = &context.request.method;
    // A `PURGE` that is not allowed does nothing.
    let is_safe = method.is_safe() || method.as_str() == PURGE;
    !is_safe && context.services.page_cache.is_in_use()
}

/// True if the application may have changed something although no head of a response came: the
/// client has gone, or the application has failed. Another refusal comes without the application.
pub(super) fn may_have_run(outcome: &Result<Outcome, Cut>) -> bool {
    match outcome {
        Err(_) => true,
        Ok(Outcome::Refused(refused)) => {
            matches!(refused.status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT)
        }
        Ok(Outcome::Sent | Outcome::Switched(_)) => false,
    }
}

/// Purges the page at the address of a request that has changed something, and the page to which
/// its client is redirected (RFC 9111 §4.4).
pub(super) fn forget_changed(context: &Context<'_>, head: &ResponseHead) {
    if !head.status.is_success() && !head.status.is_redirection() {
        return;
    }
    forget_own(context);
    let (cache, host) = (&context.services.page_cache, host_of(context.request));
    for field in &head.fields {
        if (field.is("location") || field.is("content-location"))
            && let Some(purge) = Purge::of_location(site_name(context), &host, field.value())
        {
            cache.purge(&purge);
        }
    }
}

/// Purges the page at the address of the request.
pub(super) fn forget_own(context: &Context<'_>) {
    let (site, host) = (site_name(context), host_of(context.request));
    context.services.page_cache.purge(&Purge::page(site, &host, &context.request.uri));
}

/// The name of the request's site, whose pages alone the request may purge.
fn site_name<'c>(context: &Context<'c>) -> &'c str {
    context.services.config.sites.get(context.site.number).map_or("", |site| &site.name)
}

/// True if the response to the request may purge kept pages.
pub(crate) fn may_purge(context: &Context<'_>) -> bool {
    may_change(context) || context.site.speaks_lscache() && context.services.page_cache.is_in_use()
}

/// The host whose pages a request is about.
pub(crate) fn host_of(request: &Request) -> String {
    host_name(request.host.as_deref().unwrap_or_default())
}

/// True if the request asks to purge pages, and may. `is_refused`: a rule of the site turns it away.
/// That does not matter for clients in the site's `purge_from`, which name pages by expressions
/// instead of paths.
pub(crate) fn asks_to_purge(context: &Context<'_>, is_refused: bool) -> bool {
    let Context { site, request, effects, .. } = *context;
    let method = request.method.as_str();
    PURGE_METHODS.contains(&method)
        && (method == PURGE && effects.settings.purge == Some(true) && !is_refused
            || site.lets_purge(&request.peer))
}

/// Purges the pages that the request names: by its address, which may end with `*`, or also by its
/// fields if it comes from an address that the site names.
///
/// # Errors
/// The client has gone.
pub(crate) async fn purge(context: &Context<'_>, sink: &mut dyn Sink) -> Result<Outcome, Cut> {
    let Context { site, request, .. } = *context;
    let purge = match site.lets_purge(&request.peer) {
        true => ordered(site_name(context), request),
        // A route that lets clients purge may be for some paths only.
        false => Purge::of(site_name(context), &host_of(request), &request.uri),
    };
    purge_fragments(context, &purge);
    let cache = Arc::clone(&context.services.page_cache);
    let request = context.request.shown();
    let Ok(pages) = tokio::task::spawn_blocking(move || cache.purge(&purge)).await else {
        return Ok(Outcome::refused(StatusCode::INTERNAL_SERVER_ERROR, []));
    };
    tracing::info!(request, pages, "kept pages are forgotten");
    let kind = Bytes::from_static(b"text/plain");
    let body = Bytes::from(format!("purged: {pages}\n"));
    server_pages::send_text(StatusCode::OK, &kind, &body, sink).await?;
    Ok(Outcome::Sent)
}

/// Purges the fragments that the workers and the scripts of the request's site keep, as far as a
/// purge of its pages concerns them.
pub(crate) fn purge_fragments(context: &Context<'_>, purge: &Purge) {
    let Context { services, site, .. } = *context;
    let tags = match purge.of_fragments() {
        FragmentPurge::Nothing => return,
        FragmentPurge::Tags(tags) => Some(tags),
        FragmentPurge::Everything => None,
    };
    let Some(site) = services.config.sites.get(site.number) else { return };
    services.sites.purge_fragments(&site.name, tags.as_deref());
    let numbers = services.config.pools_of(site);
    for pool in numbers.filter_map(|number| services.pools.get(number)) {
        pool.shared.purge_fragments(tags.as_deref());
    }
}
