//! Requests for fragments of pages: planned and answered like any request of the page's client,
//! without compression and rate, which the page has.

use std::rc::Rc;

use sendoff_exchange::head_filter::HeadRules;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::ResponseHead;
use sendoff_site::effects::Effects;
use sendoff_site::{Settled, Site};

use super::answer_or_refuse;
use super::filters::{self, SiteRules};
use super::plan::{LimitEffect, SitePlan};
use crate::cached::AddressLookup;
use crate::context::{Context, Nesting};
use crate::lscache;
use crate::services::Services;

/// A planned request for a fragment.
#[derive(Debug)]
pub(crate) struct PlannedFragment(SitePlan);

impl Services {
    /// Plans a request for a fragment. Changes it as the site's rules say.
    pub(crate) async fn plan_fragment(
        &self,
        site: &Rc<Site>,
        request: &mut Request,
        nesting: Nesting<'_>,
    ) -> PlannedFragment {
        let (site, count) = (Rc::clone(site), LimitEffect::Ignored);
        PlannedFragment(self.plan_for(site, request, nesting.depth, false, count).await)
    }

    /// Answers a planned request for a fragment.
    pub(crate) async fn answer_fragment(
        &self,
        planned: &PlannedFragment,
        request: &Request,
        nesting: Nesting<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Cut> {
        answer_plainly(&planned.context(self, request, nesting), &planned.0, sink).await
    }
}

/// Answers a planned request without compression and rate.
pub(super) async fn answer_plainly(
    context: &Context<'_>,
    planned: &SitePlan,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let sink = &mut filters::site_rules(context, sink);
    let answered = match context.site.speaks_lscache() {
        true => answer_or_refuse(context, planned, &mut lscache::strip(sink)).await,
        false => answer_or_refuse(context, planned, sink).await,
    };
    answered.map(drop)
}

impl PlannedFragment {
    fn context<'a>(
        &'a self,
        services: &'a Services,
        request: &'a Request,
        nesting: Nesting<'a>,
    ) -> Context<'a> {
        self.0.context(services, request, nesting)
    }

    /// The conditions under which the plan is also the plan for another client; `None`: it may be
    /// another one.
    pub(crate) fn settled(&self, request: &Request) -> Option<Settled> {
        let SitePlan { site, answer, effects, user, .. } = &self.0;
        // The page offers assembly to its application, and pages may differ by the offer.
        let is_settled = user.is_empty() && self.0.assembles();
        is_settled.then(|| site.settled(request, answer, effects)).flatten()
    }

    /// The look-ups for the fragment's page; `None`: it is not kept.
    pub(crate) fn lookup(&self, services: &Services, request: &Request) -> Option<AddressLookup> {
        let origin = self.0.origin()?;
        AddressLookup::of(&self.context(services, request, Nesting::default()), origin)
    }

    /// The site, and the effects of its routes.
    pub(crate) fn into_parts(self) -> (Rc<Site>, Box<Effects>) {
        (self.0.site, self.0.effects)
    }
}

/// Changes the head of a kept page as the filters around a fragment do.
pub(crate) fn change_fragment(context: &Context<'_>, head: &mut ResponseHead) {
    if context.site.speaks_lscache() {
        lscache::Stripped.change(head);
    }
    SiteRules::of(context).change(head);
}
