//! The plan of a fragment, remembered for the next request for its page.
//!
//! Most of the work on a kept fragment is to find out that it is one: the site, its routes and
//! files, the application, the key. All of this depends on the fragment's address alone, unless a
//! route or a file asks more about the client ([`Site::settled`]); then nothing is remembered. The
//! page itself is looked up each time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sendoff_delivery::segment::Segment;
use sendoff_esi::terms::Terms;
use sendoff_message::request::Request;
use sendoff_page_cache::Page;
use sendoff_site::effects::Effects;
use sendoff_site::{Settled, Site};

use super::fragment::Fragment;
use crate::cached::AddressLookup;
use crate::context::Context;
use crate::dispatch::{PlannedFragment, change_fragment};
use crate::services::Services;

/// Time after which a fragment is planned again: scripts may have been added or removed. Outcomes of
/// `.htaccess` files are kept for as long.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The plan of a fragment that may be kept.
#[derive(Debug)]
pub(crate) struct FragmentPlan {
    site: Rc<Site>,
    settled: Settled,
    lookup: AddressLookup,
    effects: Box<Effects>,
    made: Instant,
    /// The page that was sent last, with its terms.
    last: RefCell<Option<(Arc<Page>, Rc<Terms>)>>,
}

/// A kept fragment.
pub(super) struct KeptFragment {
    pub(super) terms: Rc<Terms>,
    /// In seconds.
    pub(super) age: u64,
    pub(super) body: Segment,
}

impl FragmentPlan {
    /// The plan that was made for a fragment at a time; `None`: it may be another one for another
    /// client, or its page is not kept.
    pub(super) fn of(
        services: &Services,
        request: &Request,
        planned: PlannedFragment,
        made: Instant,
    ) -> Option<Self> {
        let settled = planned.settled(request)?;
        let lookup = planned.lookup(services, request)?;
        let (site, effects) = planned.into_parts();
        // The age must be the page's own, which grows.
        if effects.response_headers.iter().any(|changes| changes.concern("age")) {
            return None;
        }
        Some(Self { site, settled, lookup, effects, made, last: RefCell::default() })
    }

    /// True if the fragment must be planned again.
    pub(super) fn is_over(&self) -> bool {
        self.made.elapsed() >= MAX_AGE
    }

    /// The kept fragment for the client of a page; `None`: it must be requested. `context` is about
    /// the page, which is kept, too. `free`: folders without `.htaccess` files.
    pub(super) fn kept(
        &self,
        context: &Context<'_>,
        now: SystemTime,
        free: &mut Vec<Rc<[u8]>>,
    ) -> Option<KeptFragment> {
        let holds = Rc::ptr_eq(&self.site, context.site)
            && !self.is_over()
            && self.site.is_still(&self.settled, free);
        if !holds {
            return None;
        }
        let page = self.lookup.find(context)?;
        let body = context.services.page_cache.body(&page).ok()?;
        let terms = self.terms(context, &page)?;
        Some(KeptFragment { terms, age: page.age(now), body })
    }

    /// The terms of a page, after the site's rules; `None`: it is no fragment as it is.
    fn terms(&self, context: &Context<'_>, page: &Arc<Page>) -> Option<Rc<Terms>> {
        let last = self.last.borrow();
        if let Some((_, terms)) = last.as_ref().filter(|(known, _)| Arc::ptr_eq(known, page)) {
            return Some(Rc::clone(terms));
        }
        drop(last);
        if page.asks_for_assembly() {
            return None;
        }
        let (mut head, _) = AddressLookup::answer(context, page)?;
        change_fragment(&Context { effects: &self.effects, ..*context }, &mut head);
        if Fragment::unfit(&head).is_some() {
            return None;
        }
        let terms = Rc::new(Terms::of(&head));
        *self.last.borrow_mut() = Some((Arc::clone(page), Rc::clone(&terms)));
        Some(terms)
    }
}
