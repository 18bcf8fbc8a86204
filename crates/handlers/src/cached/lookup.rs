//! Requests that a kept page may answer, and the search for the page.

use std::sync::Arc;
use std::time::SystemTime;

use http::Method;
use http::header::{AUTHORIZATION, COOKIE, UPGRADE};
use sendoff_config::{CacheDialect, Keeping, PageCache};
use sendoff_delivery::segment::Segment;
use sendoff_message::request::{Request, is_only_cookie, may_be_read_in_part};
use sendoff_page_cache::{Flight, Key, LsCacheRequest, Page, Validity, without_ignored};

use super::{HIT, OriginApplication, cache_status};
use crate::context::Context;

/// A request that a kept page may answer.
pub(crate) struct CacheLookup<'a> {
    pub(super) keeping: Keeping,
    pub(super) key: Key,
    /// `None`: the application speaks HTTP alone.
    pub(super) lscache: Option<LsCacheRequest>,
    pub(super) context: Context<'a>,
    pub(super) origin: OriginApplication<'a>,
}

/// A kept page for a client.
pub(crate) struct FreshPage {
    pub(crate) page: Arc<Page>,
    /// The value of `Cache-Status`.
    pub(crate) status: String,
    pub(crate) body: Segment,
}

impl<'a> CacheLookup<'a> {
    /// `None`: no kept page may answer, and the response may not be kept.
    pub(crate) fn of(context: &Context<'a>, origin: OriginApplication<'a>) -> Option<Self> {
        let keeping = keeping(context)?;
        if reason_against(context, origin, keeping).is_some() {
            return None;
        }
        let request = context.request;
        let name = &context.services.config.sites.get(context.site.number)?.name;
        let environment = context.effects.environment();
        if keeping.dialect == CacheDialect::Http {
            let key = origin.key(context, name, environment);
            return Some(Self { keeping, key, lscache: None, context: *context, origin });
        }
        let key = match without_ignored(request, environment) {
            Some((request, environment)) => {
                origin.key(&Context { request: &request, ..*context }, name, &environment)
            }
            None => origin.key(context, name, environment),
        };
        let asked = LsCacheRequest::of(request, environment, &key)?;
        let (key, lscache) = (asked.key.clone(), Some(asked));
        Some(Self { keeping, key, lscache, context: *context, origin })
    }

    /// The page for the request if it is fresh and asks for assembly. Its head is the stored one.
    pub(crate) fn fresh_template(&self) -> Option<FreshPage> {
        let (cache, now) = (&self.context.services.page_cache, SystemTime::now());
        // Pages that other servers have purged are gone before this one is looked up.
        let _now = cache.begun();
        let page = self.find().filter(|page| page.asks_for_assembly())?;
        if page.validity(now) != Validity::Fresh {
            return None;
        }
        let (status, body) = (cache_status(&page, HIT, now), cache.body(&page).ok()?);
        Some(FreshPage { page, status, body })
    }

    /// True if the request would get a fresh page.
    pub(crate) fn is_fresh(&self) -> bool {
        let cache = &self.context.services.page_cache;
        // Pages that other servers have purged are gone before this one is looked up.
        let _now = cache.begun();
        let now = SystemTime::now();
        self.find().is_some_and(|page| page.validity(now) == Validity::Fresh)
    }

    /// Completes when no request makes the page, and a page that was made is kept.
    pub(crate) async fn is_settled(&self) {
        while let Flight::Wait(mut done) = self.fly() {
            // Ends with the request that makes the page.
            let _ = done.changed().await;
        }
    }

    /// The page for the request: the client's own before the page for all.
    pub(super) fn find(&self) -> Option<Arc<Page>> {
        let (cache, fields) = (&self.context.services.page_cache, &self.context.request.headers);
        let own = self.lscache.as_ref().and_then(LsCacheRequest::private_key);
        own.and_then(|key| cache.find(key, fields)).or_else(|| cache.find(&self.key, fields))
    }

    /// A cache miss. If the page for all was not kept lately, the request makes its client's own.
    pub(super) fn fly(&self) -> Flight {
        let (cache, fields) = (&self.context.services.page_cache, &self.context.request.headers);
        match (cache.fly(&self.key, fields), self.lscache.as_ref()) {
            (Flight::MakeUnshared, Some(lscache)) => {
                lscache.private_key().map_or(Flight::MakeUnshared, |key| cache.fly(key, fields))
            }
            (flight, _) => flight,
        }
    }

    /// The key for which the request makes a page anew.
    pub(super) fn key_of(&self, old: &Page) -> &Key {
        let own = self.lscache.as_ref().and_then(LsCacheRequest::private_key);
        own.filter(|_| old.is_private()).unwrap_or(&self.key)
    }
}

/// The way in which pages for the request are kept; `None`: they are not.
pub(super) fn keeping(context: &Context<'_>) -> Option<Keeping> {
    match context.effects.settings.page_cache.or(context.site.page_cache)? {
        PageCache::On(keeping) => Some(keeping),
        PageCache::Off => None,
    }
}

/// The reason for which the page cache passes a request on, for `sendoff explain`; `None`: there is
/// none, or no page is kept here.
pub(super) fn why_passed_on(
    context: &Context<'_>,
    origin: OriginApplication<'_>,
) -> Option<&'static str> {
    reason_against(context, origin, keeping(context)?)
}

/// The reason for which a request gets no kept page, and makes none; `None`: it may.
fn reason_against(
    context: &Context<'_>,
    origin: OriginApplication<'_>,
    keeping: Keeping,
) -> Option<&'static str> {
    let Context { request, effects, .. } = *context;
    let has = |name| request.headers.contains_key(name);
    Some(match () {
        () if !matches!(request.method, Method::GET | Method::HEAD) => "its method",
        () if request.has_body => "its body",
        () if !context.user.is_empty() => "a user has logged in",
        () if effects.authorized.has_variables => "an authorizer tells clients apart",
        () if has(AUTHORIZATION) => "it has the field Authorization",
        () if has(UPGRADE) => "it asks for another protocol",
        () if !admits_cookies(keeping) && has_cookies(request, origin.cookie_name(context)) => {
            "it has cookies"
        }
        // The application may not read a cookie that is part of the key.
        () if may_be_read_in_part(&request.headers) => "applications read many cookies in part",
        () if effects.is_ambiguous => "applications read it in different ways",
        () if request.tls.as_ref().is_some_and(|tls| tls.client_certificate.is_some()) => {
            "the client has shown a certificate"
        }
        () => return None,
    })
}

/// True if requests with cookies get the same pages as requests without.
pub(super) fn admits_cookies(keeping: Keeping) -> bool {
    keeping.cookies || keeping.fresh.is_none()
}

/// True if the request has cookies by which pages may differ. The cookie `of_server`, which binds
/// the client to a host, is none of them.
fn has_cookies(request: &Request, of_server: Option<&str>) -> bool {
    match of_server {
        Some(name) => !is_only_cookie(&request.headers, name),
        None => request.headers.contains_key(COOKIE),
    }
}
