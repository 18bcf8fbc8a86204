//! Sites whose applications speak to the page cache in LSCache's language (`docs/lscache.md`): their
//! fields for the cache are obeyed, and reach no client.

use std::sync::Arc;

use sendoff_exchange::head_filter::{HeadFilter, HeadRules};
use sendoff_exchange::sink::Sink;
use sendoff_http1::Field;
use sendoff_message::lscache::{COOKIE, is_for_cache};
use sendoff_message::response::ResponseHead;
use sendoff_page_cache::purges;

use crate::cached::{host_of, purge_fragments};
use crate::context::Context;

/// The field by which LiteSpeed's servers, and their plugins' tools, tell a kept page from others.
const OUTCOME: &str = "X-LiteSpeed-Cache";

/// Most bytes of a field that `sendoff explain` shows.
const MOST_SHOWN: usize = 200;

/// Purges the pages that a response names, before its client learns of it. `sendoff explain` shows
/// the application's fields for the cache.
pub(crate) fn obey_purges(context: &Context<'_>, fields: &[Field], sink: &mut dyn Sink) {
    let Context { services, site, request, .. } = *context;
    let config = services.config.sites.get(site.number);
    let Some(config) = config.filter(|_| site.speaks_lscache()) else { return };
    if let Some(report) = sink.client().report() {
        for field in fields.iter().filter(|field| is_for_cache(field.name())) {
            let shown = |bytes: &[u8]| {
                String::from_utf8_lossy(bytes.get(..MOST_SHOWN).unwrap_or(bytes)).into_owned()
            };
            report.note(format!("page cache: {}: {}", shown(field.name()), shown(field.value())));
        }
    }
    let cache = Arc::clone(&services.page_cache);
    for purge in purges(fields, &config.name, &host_of(request), &request.headers) {
        purge_fragments(context, &purge);
        let pages = cache.purge(&purge);
        let request = request.shown();
        tracing::debug!(request, pages, "an application has kept pages forgotten");
    }
}

/// A filter that takes the fields for the cache out of responses.
pub(crate) fn strip(sink: &mut dyn Sink) -> HeadFilter<'_, Stripped> {
    HeadFilter::with_rules(sink, false, Stripped)
}

/// Takes the fields for the cache out of a head.
pub(crate) struct Stripped;

impl HeadRules for Stripped {
    fn change(&mut self, head: &mut ResponseHead) {
        head.fields.retain(|field| !is_for_cache(field.name()));
        let is_cookie = |field: &mut Field| field.is(COOKIE);
        for cookie in head.fields.extract_if(.., is_cookie).collect::<Vec<_>>() {
            let (_, value) = cookie.into_parts();
            // Plugins send some cookies in both fields.
            let is_sent = |field: &Field| field.is("Set-Cookie") && field.value() == value;
            if !head.fields.iter().any(is_sent) {
                head.field("Set-Cookie", value);
            }
        }
        let own = head.fields.iter().rev().find(|field| field.is("Cache-Status"));
        let outcome = own.and_then(|field| outcome(field.value()));
        if let Some(outcome) = outcome {
            head.field(OUTCOME, outcome);
        }
    }

    fn concern(&self, name: &str) -> bool {
        is_for_cache(name.as_bytes()) || name.eq_ignore_ascii_case(COOKIE)
    }
}

/// The outcome in LiteSpeed's words; `None`: the cache was not asked.
fn outcome(status: &[u8]) -> Option<&'static str> {
    let told = std::str::from_utf8(status).ok()?.strip_prefix("sendoff; ")?;
    Some(match told {
        _ if told.starts_with("hit; detail=private") => "hit,private",
        _ if told.starts_with("hit") => "hit",
        _ => "miss",
    })
}
