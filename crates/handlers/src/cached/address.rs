//! Kept pages of an address whose plan is known.

use std::sync::Arc;
use std::time::SystemTime;

use http::header::COOKIE;
use sendoff_config::{CacheDialect, Keeping};
use sendoff_delivery::segment::Segment;
use sendoff_message::response::ResponseHead;
use sendoff_page_cache::{Key, LsCacheRequest, Page, Validity};

use super::lookup::{admits_cookies, keeping};
use super::{CacheLookup, HIT, OriginApplication, answer};
use crate::context::Context;

/// The common part of all lookups for an address.
#[derive(Debug)]
pub(crate) struct AddressLookup {
    keeping: Keeping,
    /// In LSCache's language: without the cookies.
    key: Key,
}

impl AddressLookup {
    /// The lookups for the address of a request. The request must depend on no variables of
    /// `.htaccess` files. `None`: its page is not kept.
    pub(crate) fn of(context: &Context<'_>, origin: OriginApplication<'_>) -> Option<Self> {
        // Other conditions on the request are checked here, too.
        let _may_be_kept = CacheLookup::of(context, origin)?;
        let name = &context.services.config.sites.get(context.site.number)?.name;
        Some(Self { keeping: keeping(context)?, key: origin.key(context, name, &[]) })
    }

    /// The fresh page of the address for a client that may have kept pages: `context` is about
    /// another request by it, which a kept page answers.
    pub(crate) fn find(&self, context: &Context<'_>) -> Option<Arc<Page>> {
        let (cache, request) = (&context.services.page_cache, context.request);
        let fields = &request.headers;
        let page = match self.keeping.dialect {
            CacheDialect::Http if !admits_cookies(self.keeping) && fields.contains_key(COOKIE) => {
                None
            }
            CacheDialect::Http => cache.find(&self.key, fields),
            CacheDialect::LsCache => {
                let asked = LsCacheRequest::of(request, &[], &self.key)?;
                let own = asked.private_key().and_then(|key| cache.find(key, fields));
                own.or_else(|| cache.find(&asked.key, fields))
            }
        };
        page.filter(|page| page.validity(SystemTime::now()) == Validity::Fresh)
    }

    /// The response with a page; `None`: the page's body is gone.
    pub(crate) fn answer(
        context: &Context<'_>,
        page: &Page,
    ) -> Option<(ResponseHead, Option<Segment>)> {
        answer(context, page, HIT)
    }
}
