//! Pages of applications that are kept: sent again, or made while others wait (`docs/page-cache.md`).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{
    AUTHORIZATION, COOKIE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderName, Method};
use sendoff_config::{Keeping, PageCache};
use tokio::time::timeout;

use super::context::Context;
use super::error::Outcome;
use super::script;
use super::services::Services;
use crate::cut::Cut;
use crate::observe::explain::Remark;
use crate::page_cache::{Ended, Flight, Key, Order, Page, Recorder, Ticket, Validity};
use crate::responder::{self, Responder, unless_gone};
use crate::response::ResponseHead;
use crate::segment::Segment;
use crate::site::router::{Script, Upstream};

/// How long a request waits for another one that makes the same page; then it asks the application itself (nginx: 5 s, too).
const PATIENCE: Duration = Duration::from_secs(5);

/// Fields of a request that are about the copy that the client has; the page that is kept is a whole one.
const OF_CLIENT: [HeaderName; 6] =
    [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE];

/// A request that a kept page may answer.
pub(super) struct Wish<'a> {
    keeping: Keeping,
    key: Key,
    context: Context<'a>,
    script: &'a Script,
}

impl<'a> Wish<'a> {
    /// `None`: no kept page may answer, and the response may not be kept.
    pub(super) fn of(context: &Context<'a>, script: &'a Script) -> Option<Self> {
        let Some(PageCache::On(keeping)) = context.effects.page_cache else { return None };
        let request = context.request;
        let shows_certificate =
            || request.tls.as_ref().is_some_and(|tls| tls.client_certificate.is_some());
        let is_anyones = matches!(request.method, Method::GET | Method::HEAD)
            && !request.has_body
            && context.user.is_empty()
            && !request.headers.contains_key(AUTHORIZATION)
            && (keeping.cookies
                || keeping.fresh.is_none()
                || !request.headers.contains_key(COOKIE))
            && !shows_certificate();
        let name = &context.services.config.sites.get(context.site.number)?.name;
        is_anyones.then(|| {
            let config = &context.services.config;
            let upstream = match script.upstream {
                Upstream::Workers(pool) => format!("pool:{}", config.pools[pool].name),
                Upstream::Application(number) => {
                    config.sites[context.site.number].fastcgi[number].address.to_string()
                }
            };
            let key = Key::new(name, request, (script, &upstream), context.effects);
            Self { keeping, key, context: *context, script }
        })
    }

    /// Answers with a kept page, or with one that is made now.
    ///
    /// # Errors
    /// The client has gone, or its response was cut short after it had begun.
    pub(super) async fn respond(&self, responder: &mut dyn Responder) -> Result<Outcome, Cut> {
        let cache = &self.context.services.page_cache;
        let until = tokio::time::Instant::now() + PATIENCE;
        let (old, ticket) = loop {
            let page = cache.find(&self.key, &self.context.request.headers);
            let validity = page.as_ref().map(|page| page.validity(SystemTime::now()));
            if let (Some(page), Some(Validity::Fresh)) = (&page, validity)
                && self.send(page, "hit", responder).await?
            {
                return Ok(Outcome::Sent);
            }
            if self.context.request.method == Method::HEAD {
                // Its response has no body that could be kept.
                break (None, None);
            }
            let flight = cache.fly(&self.key, &self.context.request.headers);
            if let (Some(page), Some(Validity::Stale)) = (&page, validity)
                && self.send(page, "hit; detail=stale", responder).await?
            {
                if let Flight::First(ticket) = flight {
                    self.renew(page, ticket).await;
                }
                return Ok(Outcome::Sent);
            }
            match flight {
                Flight::First(ticket) => break (page, Some(ticket)),
                Flight::Alone => break (page, None),
                Flight::Second(mut done) => {
                    let wait =
                        timeout(until.duration_since(tokio::time::Instant::now()), done.changed());
                    // The maker of the page has ended, well or not, or it takes too long.
                    if unless_gone(responder, wait).await?.is_err() {
                        break (page, None);
                    }
                }
            }
        };
        self.make(old.as_ref(), ticket, responder).await
    }

    /// Sends a page. Returns false if its body is gone.
    async fn send(
        &self,
        page: &Arc<Page>,
        told: &str,
        responder: &mut dyn Responder,
    ) -> Result<bool, Cut> {
        let (cache, now) = (&self.context.services.page_cache, SystemTime::now());
        let (mut head, body) = match page.answer(cache.folder(), &self.context.request.headers, now)
        {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(%error, "a kept page is gone");
                cache.forget(page);
                return Ok(false);
            }
        };
        head.field("Cache-Status", format!("sendoff; {told}; ttl={}", page.seconds_left(now)));
        if let Some(report) = responder.report() {
            report.answered_by("the page cache".to_owned());
            report.remark(Remark {
                how: "file".to_owned(),
                what: "a kept page".to_owned(),
                ..Remark::default()
            });
        }
        let body = body.filter(|_| self.context.request.method != Method::HEAD);
        responder::respond(responder, head, body.into_iter().collect::<Vec<Segment>>()).await?;
        Ok(true)
    }

    /// Makes a page anew whose old form the client has got.
    async fn renew(&self, old: &Arc<Page>, ticket: Ticket) {
        let asked = self.ask(Some(old), "fwd=stale", None, Some(ticket)).await;
        if let Ok((Ended::StillValid(said, ticket), _)) = asked {
            self.renewed(old, &said, ticket);
        }
    }

    /// Has the application answer, and keeps the page if that is allowed.
    async fn make(
        &self,
        old: Option<&Arc<Page>>,
        ticket: Option<Ticket>,
        responder: &mut dyn Responder,
    ) -> Result<Outcome, Cut> {
        let told = if old.is_some() { "fwd=stale" } else { "fwd=uri-miss" };
        let (ended, outcome) = self.ask(old, told, Some(responder), ticket).await?;
        let failed = match &outcome {
            Outcome::Refused(refused) => refused.status.is_server_error(),
            Outcome::Sent => matches!(ended, Ended::Failed),
        };
        if let Some(page) = old.filter(|page| failed && page.may_stand_in(SystemTime::now()))
            && self.send(page, "hit; detail=stale-if-error", responder).await?
        {
            return Ok(Outcome::Sent);
        }
        match (ended, old) {
            (Ended::StillValid(said, ticket), Some(old)) => {
                let page = self.renewed(old, &said, ticket).unwrap_or_else(|| Arc::clone(old));
                if self.send(&page, "hit; fwd=stale; fwd-status=304", responder).await? {
                    return Ok(Outcome::Sent);
                }
            }
            (Ended::StillValid(..) | Ended::Failed, _) => {}
            (Ended::Passed, _) => return Ok(outcome),
        }
        // The client has nothing yet, and the old page is gone.
        script::respond(&self.context, self.script, responder).await
    }

    /// Asks the application for the whole page, or whether the old one is still valid.
    async fn ask(
        &self,
        old: Option<&Arc<Page>>,
        told: &'static str,
        client: Option<&mut dyn Responder>,
        ticket: Option<Ticket>,
    ) -> Result<(Ended, Outcome), Cut> {
        let mut request = self.context.request.clone();
        for name in OF_CLIENT {
            request.headers.remove(name);
        }
        let asks = old.is_some_and(|old| old.ask_in(&mut request.headers));
        let context = Context { request: &request, ..self.context };
        let Self { key, keeping, .. } = self;
        let Services { page_cache: cache, config, .. } = context.services;
        let (limit, request) = (config.front.page_cache.size, self.context.request);
        let order = Order { cache, limit, key, keeping, request, old, asks, told };
        // Each gets a lifetime of its own, which does not go through an `Option`.
        let client = client.map(|client| client as &mut dyn Responder);
        let mut recorder = Recorder::new(client, order, ticket);
        // After a cut others may still make a page that can be kept.
        let outcome = script::respond(&context, self.script, &mut recorder).await?;
        Ok((recorder.into_ended(), outcome))
    }

    /// The old page with a new time, if it may be kept: the application says that it is still valid.
    fn renewed(
        &self,
        old: &Page,
        said: &ResponseHead,
        ticket: Option<Ticket>,
    ) -> Option<Arc<Page>> {
        let cache = &self.context.services.page_cache;
        let renewed = cache.renew(old, &self.keeping, self.context.request, said);
        if let Some(mut ticket) = ticket {
            ticket.ends(renewed.is_some());
        }
        renewed
    }
}
