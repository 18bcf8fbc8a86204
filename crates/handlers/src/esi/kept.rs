//! Kept pages that ask for assembly. Their markup is read once on each event loop, and stays together
//! with the plans of their fragments.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use http::Method;
use lru::LruCache;
use sendoff_esi::Template;
use sendoff_esi::body::Body;
use sendoff_esi::head::PageHead;
use sendoff_exchange::sink::Sink;
use sendoff_message::request::Request;
use sendoff_message::response::ResponseEnd;
use sendoff_page_cache::Page;

use super::PageToAssemble;
use super::assembly::Budget;
use super::fragment::LEFT_OUT;
use super::plan::{FragmentPlan, KeptFragment};
use crate::cached::{CacheLookup, FreshPage, OriginApplication};
use crate::context::Context;

/// Most bytes of all markup that an event loop remembers.
const MOST: usize = 16 << 20;

/// Bytes of the plan of a fragment, roughly: its key, its effects, the head of its page.
const PLAN: usize = 4 << 10;

/// The markup of the pages that clients have got lately, by the names of the files with their
/// bodies.
#[derive(Debug)]
pub struct KeptMarkup(RefCell<Remembered>);

#[derive(Debug)]
struct Remembered {
    by_body: LruCache<String, Rc<Markup>>,
    weight: usize,
}

/// The markup of a page, and the plans of its fragments as far as they are known.
#[derive(Debug)]
pub(super) struct Markup {
    pub(super) template: Template,
    /// By the numbers of the includes. Empty for a page that is not kept.
    plans: Vec<RefCell<Option<FragmentPlan>>>,
    /// The kept page that was sent last, and its head.
    last: RefCell<Option<(Arc<Page>, PageHead)>>,
}

impl Default for KeptMarkup {
    fn default() -> Self {
        Self(RefCell::new(Remembered { by_body: LruCache::unbounded(), weight: 0 }))
    }
}

impl KeptMarkup {
    /// The markup of a kept page; `None`: it cannot be read.
    fn of(&self, page: &Page, body: &Body) -> Option<Rc<Markup>> {
        let name = page.body_name();
        if let Some(known) = self.0.borrow_mut().by_body.get(name) {
            return Some(Rc::clone(known));
        }
        let text = body.text().ok()?;
        let template = Template::parse(&text).ok()?;
        let plans = (0..template.includes).map(|_| RefCell::default()).collect();
        let markup = Rc::new(Markup { template, plans, last: RefCell::default() });
        self.0.borrow_mut().insert(name.to_owned(), Rc::clone(&markup));
        Some(markup)
    }
}

impl Remembered {
    fn insert(&mut self, name: String, markup: Rc<Markup>) {
        self.weight += markup.weight();
        if let Some(before) = self.by_body.put(name, markup) {
            self.weight -= before.weight();
        }
        while self.weight > MOST
            && let Some((_, oldest)) = self.by_body.pop_lru()
        {
            self.weight -= oldest.weight();
        }
    }
}

impl Markup {
    /// The markup of a page that is not kept: it is read for one client.
    pub(super) fn for_one(template: Template) -> Self {
        Self { template, plans: Vec::new(), last: RefCell::default() }
    }

    fn weight(&self) -> usize {
        self.template.weight() + PLAN * self.plans.len()
    }

    /// The head of a page with this markup, in front of what its fragments add.
    fn head(&self, page: &Arc<Page>) -> PageHead {
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((known, head)) if Arc::ptr_eq(known, page) => head.clone(),
            _ => {
                let head = PageHead::of(page.stored_head());
                *last = Some((Arc::clone(page), head.clone()));
                head
            }
        }
    }

    /// The kept fragments for the client of a page, by the numbers of their includes. Purges count as
    /// of the moment when the page was looked up, so nothing may be awaited in between.
    pub(super) fn kept(&self, context: &Context<'_>) -> Vec<Option<KeptFragment>> {
        let (now, mut free) = (SystemTime::now(), Vec::new());
        let plans = self.plans.iter();
        plans.map(|plan| plan.borrow().as_ref()?.kept(context, now, &mut free)).collect()
    }

    /// True if a plan of this include would be remembered.
    pub(super) fn lacks_plan(&self, include: usize) -> bool {
        let place = self.plans.get(include);
        place.is_some_and(|plan| plan.borrow().as_ref().is_none_or(FragmentPlan::is_over))
    }

    /// Remembers the plan of an include; `None`: it has none that holds for other clients.
    pub(super) fn remember(&self, include: usize, plan: Option<FragmentPlan>) {
        if let Some(place) = self.plans.get(include) {
            *place.borrow_mut() = plan;
        }
    }
}

/// The kept page for a request that depends on nothing else; `None`: it goes the whole way.
pub(super) fn find(
    context: &Context<'_>,
    origin: OriginApplication<'_>,
    budget: &Budget,
    sink: &mut dyn Sink,
) -> Option<PageToAssemble> {
    // Other parts of the server have remarks for `sendoff explain`.
    let is_usual = context.nesting.depth == 0
        && context.request.method == Method::GET
        && is_plain(context.request)
        && sink.client().report().is_none();
    if !is_usual {
        return None;
    }
    let FreshPage { page, status, body: segment } =
        CacheLookup::of(context, origin)?.fresh_template()?;
    budget.take_bytes(segment.len()).ok()?;
    let mut body = Body::default();
    body.push(segment);
    let markup = context.services.markup.of(&page, &body)?;
    let mut head = markup.head(&page);
    head.age = page.age(SystemTime::now());
    head.bare.field("Cache-Status", status);
    let fragments = markup.kept(context);
    Some(PageToAssemble { head, body, ending: ResponseEnd::Complete, markup, fragments })
}

/// True if fragments are requested with the fields of this request, so that it leaves none out. Fields
/// by which clients steer applications may be among them: they are part of the page's key.
fn is_plain(request: &Request) -> bool {
    request.host.is_some() && !request.headers.keys().any(|name| LEFT_OUT.contains(name))
}
