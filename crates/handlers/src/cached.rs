//! The page cache in front of applications: a kept page is sent again, or one request makes the
//! page while others wait for it (`docs/page-cache.md`).

mod address;
mod lookup;
mod make;
mod origin;
mod purge;
mod renewal;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use http::header::RANGE;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::{self, Sink, unless_gone};
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;
use sendoff_page_cache::{Flight, Page, Validity};
use sendoff_report::explain::Remark;
use tokio::time::timeout;

pub(crate) use self::address::AddressLookup;
use self::lookup::why_passed_on;
pub(crate) use self::lookup::{CacheLookup, FreshPage};
use self::make::Miss;
pub(crate) use self::origin::OriginApplication;
pub(crate) use self::purge::{asks_to_purge, host_of, may_purge, purge, purge_fragments};
use self::purge::{forget_changed, forget_own, may_change, may_have_run};
use self::renewal::{Due, Renewal};
use crate::context::Context;
use crate::outcome::Outcome;

/// Maximum wait for another request that makes the same page. After that the request asks the
/// application itself (nginx: `proxy_cache_lock_timeout`, 5 s, too).
const PATIENCE: Duration = Duration::from_secs(5);

/// The outcome for a fresh page.
const HIT: &str = "hit";

/// The outcome for a page that only this client gets.
const OWN_HIT: &str = "hit; detail=private";

/// The treatment of kept pages that ask for assembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Templates {
    /// Their markup is text.
    Text,
    /// The caller assembles them.
    Pages,
}

/// The outcome of a request that a kept page may answer.
enum Reply {
    Now(Outcome),
    /// The client has got the old page, and the caller has it made anew.
    Stale(Due),
}

/// Answers with a kept page, or lets the application answer.
///
/// # Errors
/// The client has gone, or its response was cut short after it had begun.
pub(crate) async fn respond(
    context: &Context<'_>,
    origin: OriginApplication<'_>,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    respond_before_renewal(context, origin, Templates::Text, sink).await.map(|(outcome, _)| outcome)
}

/// As [`respond`]. If an old page that asks for assembly is sent as [`Templates::Pages`], the caller
/// has it made anew while it assembles the old one.
///
/// # Errors
/// The client has gone, or its response was cut short after it had begun.
pub(crate) async fn respond_before_renewal<'a>(
    context: &Context<'a>,
    origin: OriginApplication<'a>,
    templates: Templates,
    sink: &mut dyn Sink,
) -> Result<(Outcome, Option<Renewal<'a>>), Cut> {
    if may_change(context) {
        // Pages are purged before the client learns of the change. The client's socket is not lent,
        // because a borrower could not wait for the purge.
        let mut has_answered = false;
        let note = |head: &mut ResponseHead| {
            has_answered = true;
            forget_changed(context, head);
        };
        let outcome = origin.respond(context, &mut HeadFilter::new(sink, false, note)).await;
        if !has_answered && may_have_run(&outcome) {
            forget_own(context);
        }
        return outcome.map(|outcome| (outcome, None));
    }
    let Some(lookup) = CacheLookup::of(context, origin) else {
        if let Some(report) = sink.client().report()
            && let Some(why) = why_passed_on(context, origin)
        {
            report.note(format!("the page cache passes the request on: {why}"));
        }
        return origin.respond(context, sink).await.map(|outcome| (outcome, None));
    };
    match Box::pin(lookup.respond(templates, sink)).await? {
        Reply::Now(outcome) => Ok((outcome, None)),
        Reply::Stale(due) => Ok((Outcome::Sent, Some(Renewal { lookup: Box::new(lookup), due }))),
    }
}

/// The value of `Cache-Status` for a page.
fn cache_status(page: &Page, told: &str, now: SystemTime) -> String {
    let ttl = page.seconds_left(now).to_string();
    let told = if page.is_private() { OWN_HIT } else { told };
    // `format!` takes 200 instructions more.
    ["sendoff; ", told, "; ttl=", &ttl].concat()
}

/// The response with a page, of whose use `told` tells the client; `None`: the page's body is gone.
fn answer(
    context: &Context<'_>,
    page: &Page,
    told: &str,
) -> Option<(ResponseHead, Option<Segment>)> {
    let (cache, now) = (&context.services.page_cache, SystemTime::now());
    match cache.answer(page, context.request, now) {
        Ok((mut head, body)) => {
            head.field("Cache-Status", cache_status(page, told, now));
            Some((head, body))
        }
        Err(error) => {
            tracing::debug!(%error, "a kept page is gone");
            None
        }
    }
}

impl CacheLookup<'_> {
    /// Answers with a kept page, or makes the page now.
    ///
    /// # Errors
    /// The client has gone, or its response was cut short after it had begun.
    async fn respond(&self, templates: Templates, sink: &mut dyn Sink) -> Result<Reply, Cut> {
        let cache = &self.context.services.page_cache;
        let until = tokio::time::Instant::now() + PATIENCE;
        let (old, begun, permit) = loop {
            let begun = cache.begun();
            let page = self.find();
            let validity = page.as_ref().map(|page| page.validity(SystemTime::now()));
            if let (Some(page), Some(Validity::Fresh)) = (&page, validity)
                && self.send(page, HIT, sink).await?
            {
                return Ok(Reply::Now(Outcome::Sent));
            }
            if let (Some(page), Some(Validity::Stale)) = (&page, validity) {
                match self.send_stale(page, begun, templates, sink).await? {
                    Some(answered) => return Ok(answered),
                    // The page is forgotten now.
                    None => continue,
                }
            }
            if self.context.request.method == Method::HEAD {
                // Its response has no body that could be kept.
                break (page, begun, None);
            }
            match self.fly() {
                Flight::Make(permit) => break (page, begun, Some(permit)),
                Flight::MakeUnshared => break (page, begun, None),
                Flight::Wait(mut done) => {
                    let wait =
                        timeout(until.duration_since(tokio::time::Instant::now()), done.changed());
                    // Ends when the request that makes the page has ended, successfully or not, or
                    // after `PATIENCE`.
                    if unless_gone(sink, wait).await?.is_err() {
                        break (page, begun, None);
                    }
                }
            }
        };
        if old.is_none() && self.context.request.headers.contains_key(RANGE) {
            // A range makes no page that others could wait for.
            drop(permit);
            return self.pass_on(sink).await.map(Reply::Now);
        }
        self.make(Miss { old: old.as_ref(), begun, permit }, sink).await.map(Reply::Now)
    }

    /// Lets the application answer a request for a range: the page may be too large to be kept, and
    /// the application may be able to start in its middle.
    async fn pass_on(&self, sink: &mut dyn Sink) -> Result<Outcome, Cut> {
        let tell = |head: &mut ResponseHead| head.field("Cache-Status", "sendoff; fwd=uri-miss");
        let mut told = HeadFilter::new(sink, false, tell);
        self.origin.respond(&self.context, &mut told).await
    }

    /// Sends a page. Returns false if its body is gone.
    async fn send(&self, page: &Arc<Page>, told: &str, sink: &mut dyn Sink) -> Result<bool, Cut> {
        let Some(answer) = answer(&self.context, page, told) else { return Ok(false) };
        self.deliver(answer, sink).await?;
        Ok(true)
    }

    async fn deliver(
        &self,
        (head, body): (ResponseHead, Option<Segment>),
        sink: &mut dyn Sink,
    ) -> Result<(), Cut> {
        if let Some(report) = sink.client().report() {
            report.answered_by("the page cache".to_owned());
            let (how, why) = match body {
                Some(Segment::Bytes(_)) => ("bytes", "short pages stay in memory"),
                Some(Segment::File(_)) | None => ("file", ""),
            };
            report.remark(Remark {
                how: how.to_owned(),
                what: "a kept page".to_owned(),
                why: why.to_owned(),
                ..Remark::default()
            });
        }
        let body = body.filter(|_| self.context.request.method != Method::HEAD);
        sink::respond(sink, head, body.into_iter().collect::<Vec<Segment>>()).await
    }
}
