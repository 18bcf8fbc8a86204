//! The page cache in front of applications: a kept page is sent again, or one request makes the
//! page while others wait for it (`docs/page-cache.md`).

mod address;
mod purge;
mod renewal;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use http::header::{AUTHORIZATION, COOKIE, RANGE, UPGRADE};
use sendoff_config::{CacheDialect, Keeping, PageCache};
use sendoff_delivery::segment::Segment;
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::{self, Sink, unless_gone};
use sendoff_message::Cut;
use sendoff_message::request::{CONDITIONS, Request, is_only_cookie, may_be_read_in_part};
use sendoff_message::response::ResponseHead;
use sendoff_page_cache::{
    ApplicationOutcome, Flight, Key, LsCacheRequest, MakePermit, OriginFailure, Page, PurgeCount,
    Recorder, RecordingContext, Validity, without_ignored,
};
use sendoff_report::explain::Remark;
use sendoff_site_files::router::{Script, Upstream};
use tokio::time::timeout;

pub(crate) use self::address::AddressLookup;
pub(crate) use self::purge::{asks_to_purge, host_of, may_purge, purge, purge_fragments};
use self::purge::{forget_changed, forget_own, may_change, may_have_run};
use self::renewal::{Due, Renewal};
use crate::application::proxy::{self, Passed};
use crate::application::script;
use crate::context::Context;
use crate::outcome::Outcome;
use crate::services::Services;

/// Maximum wait for another request that makes the same page. After that the request asks the
/// application itself (nginx: `proxy_cache_lock_timeout`, 5 s, too).
const PATIENCE: Duration = Duration::from_secs(5);

/// The outcome for a fresh page.
const HIT: &str = "hit";

/// The outcome for a page that only this client gets.
const OWN_HIT: &str = "hit; detail=private";

/// The application that answers if no kept page can.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OriginApplication<'a> {
    Script(&'a Script),
    /// An application that speaks HTTP, SCGI or AJP.
    Proxy(Passed),
}

/// A request that a kept page may answer.
pub(crate) struct CacheLookup<'a> {
    keeping: Keeping,
    key: Key,
    /// `None`: the application speaks HTTP alone.
    lscache: Option<LsCacheRequest>,
    context: Context<'a>,
    origin: OriginApplication<'a>,
}

/// The treatment of kept pages that ask for assembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Templates {
    /// Their markup is text.
    Text,
    /// The caller assembles them.
    Pages,
}

/// A kept page for a client.
pub(crate) struct FreshPage {
    pub(crate) page: Arc<Page>,
    /// The value of `Cache-Status`.
    pub(crate) outcome: String,
    pub(crate) body: Segment,
}

/// The outcome of a request that a kept page may answer.
enum Answered {
    Now(Outcome),
    /// The client has got the old page, and the caller has it made anew.
    Stale(Due),
}

/// A page that is missing or too old.
struct Miss<'p> {
    old: Option<&'p Arc<Page>>,
    /// Noted before the page was looked up, to notice purges since then.
    begun: PurgeCount,
    permit: Option<MakePermit>,
}

impl OriginApplication<'_> {
    /// The key of a request, whose page depends on these variables of `.htaccess` files.
    fn key(self, context: &Context<'_>, site: &str, environment: &[(Vec<u8>, Vec<u8>)]) -> Key {
        let Context { services, request, effects, .. } = *context;
        let number = context.site.number;
        match self {
            Self::Script(Script { filename, name, path_info, upstream }) => {
                let upstream = match *upstream {
                    Upstream::Workers(pool) => {
                        ["pool:", &services.config.pools[pool].name].concat()
                    }
                    Upstream::Application(application) => {
                        services.config.sites[number].fastcgi[application].address.to_string()
                    }
                };
                let answering = [&filename[..], name, path_info, upstream.as_bytes()];
                Key::with_environment(site, request, &answering, effects, environment)
            }
            Self::Proxy(Passed { application, prefix }) => {
                let gateway = &services.gateways[number][application];
                let (prefix, form) = (prefix.to_le_bytes(), gateway.form().to_le_bytes());
                // No script has the empty name.
                let answering = [b"", gateway.name().as_bytes(), &prefix[..], &form[..]];
                Key::with_environment(site, request, &answering, effects, environment)
            }
        }
    }

    /// The name of the cookie that binds clients to the application's hosts.
    fn cookie_name<'c>(self, context: &Context<'c>) -> Option<&'c str> {
        let Context { services, site, .. } = context;
        match self {
            Self::Script(Script { upstream: Upstream::Workers(_), .. }) => None,
            Self::Script(Script { upstream: Upstream::Application(number), .. }) => {
                services.attached[site.number][*number].cookie_name()
            }
            Self::Proxy(Passed { application, .. }) => {
                services.gateways[site.number][application].hosts().cookie_name()
            }
        }
    }

    async fn respond(self, context: &Context<'_>, sink: &mut dyn Sink) -> Result<Outcome, Cut> {
        match self {
            Self::Script(script) => script::respond(context, script, sink).await,
            // On the heap, so that the future of a request for a script reserves no room for it.
            Self::Proxy(passed) => Box::pin(proxy::respond(context, passed, sink)).await,
        }
    }
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
        return origin.respond(context, sink).await.map(|outcome| (outcome, None));
    };
    match Box::pin(lookup.respond(templates, sink)).await? {
        Answered::Now(outcome) => Ok((outcome, None)),
        Answered::Stale(due) => {
            Ok((Outcome::Sent, Some(Renewal { lookup: Box::new(lookup), due })))
        }
    }
}

/// The way in which pages for the request are kept; `None`: they are not.
fn keeping(context: &Context<'_>) -> Option<Keeping> {
    match context.effects.settings.page_cache.or(context.site.page_cache)? {
        PageCache::On(keeping) => Some(keeping),
        PageCache::Off => None,
    }
}

/// True if requests with cookies get the same pages as requests without.
fn admits_cookies(keeping: Keeping) -> bool {
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

/// The value of `Cache-Status` for a page.
fn outcome(page: &Page, told: &str, now: SystemTime) -> String {
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
            head.field("Cache-Status", outcome(page, told, now));
            Some((head, body))
        }
        Err(error) => {
            tracing::debug!(%error, "a kept page is gone");
            None
        }
    }
}

impl<'a> CacheLookup<'a> {
    /// `None`: no kept page may answer, and the response may not be kept.
    pub(crate) fn of(context: &Context<'a>, origin: OriginApplication<'a>) -> Option<Self> {
        let keeping = keeping(context)?;
        let request = context.request;
        let shows_certificate =
            || request.tls.as_ref().is_some_and(|tls| tls.client_certificate.is_some());
        let is_anyones = matches!(request.method, Method::GET | Method::HEAD)
            && !request.has_body
            && context.user.is_empty()
            && !context.effects.authorized.has_variables
            && !request.headers.contains_key(AUTHORIZATION)
            && !request.headers.contains_key(UPGRADE)
            && (admits_cookies(keeping)
                || !has_cookies(request, origin.cookie_name(context)))
            // The application may not read a cookie that is part of the key.
            && !may_be_read_in_part(&request.headers)
            && !context.effects.is_ambiguous
            && !shows_certificate();
        let name = &context.services.config.sites.get(context.site.number)?.name;
        if !is_anyones {
            return None;
        }
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
        let (outcome, body) = (outcome(&page, HIT, now), cache.body(&page).ok()?);
        Some(FreshPage { page, outcome, body })
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
    fn find(&self) -> Option<Arc<Page>> {
        let (cache, fields) = (&self.context.services.page_cache, &self.context.request.headers);
        let own = self.lscache.as_ref().and_then(LsCacheRequest::private_key);
        own.and_then(|key| cache.find(key, fields)).or_else(|| cache.find(&self.key, fields))
    }

    /// A cache miss. If the page for all was not kept lately, the request makes its client's own.
    fn fly(&self) -> Flight {
        let (cache, fields) = (&self.context.services.page_cache, &self.context.request.headers);
        match (cache.fly(&self.key, fields), self.lscache.as_ref()) {
            (Flight::MakeUnshared, Some(lscache)) => {
                lscache.private_key().map_or(Flight::MakeUnshared, |key| cache.fly(key, fields))
            }
            (flight, _) => flight,
        }
    }

    /// The key for which the request makes a page anew.
    fn key_of(&self, old: &Page) -> &Key {
        let own = self.lscache.as_ref().and_then(LsCacheRequest::private_key);
        own.filter(|_| old.is_private()).unwrap_or(&self.key)
    }

    /// Answers with a kept page, or makes the page now.
    ///
    /// # Errors
    /// The client has gone, or its response was cut short after it had begun.
    async fn respond(&self, templates: Templates, sink: &mut dyn Sink) -> Result<Answered, Cut> {
        let cache = &self.context.services.page_cache;
        let until = tokio::time::Instant::now() + PATIENCE;
        let (old, begun, permit) = loop {
            let begun = cache.begun();
            let page = self.find();
            let validity = page.as_ref().map(|page| page.validity(SystemTime::now()));
            if let (Some(page), Some(Validity::Fresh)) = (&page, validity)
                && self.send(page, HIT, sink).await?
            {
                return Ok(Answered::Now(Outcome::Sent));
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
            return self.pass_on(sink).await.map(Answered::Now);
        }
        self.make(Miss { old: old.as_ref(), begun, permit }, sink).await.map(Answered::Now)
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

    /// Lets the application answer, and keeps the page if that is allowed.
    async fn make(&self, miss: Miss<'_>, sink: &mut dyn Sink) -> Result<Outcome, Cut> {
        let Miss { old, begun, .. } = miss;
        let told = if old.is_some() { "fwd=stale" } else { "fwd=uri-miss" };
        let (ended, outcome) = self.ask(miss, told, sink).await?;
        let failure = match &outcome {
            Outcome::Refused(refused) if refused.status.is_server_error() => {
                Some(OriginFailure::Silent)
            }
            Outcome::Sent if matches!(ended, ApplicationOutcome::Failed) => {
                Some(OriginFailure::Reported)
            }
            Outcome::Refused(_) | Outcome::Sent | Outcome::Switched(_) => None,
        };
        if let (Some(page), Some(failure)) = (old, failure)
            && page.may_stand_in(failure, SystemTime::now())
            && self.send(page, "hit; detail=stale-if-error", sink).await?
        {
            return Ok(Outcome::Sent);
        }
        match (ended, old) {
            (ApplicationOutcome::StillValid(said, permit), Some(old)) => {
                let (page, is_kept) = self.renewed(old, begun, &said, permit);
                let answer = answer(&self.context, &page, "hit; fwd=stale; fwd-status=304");
                if !is_kept {
                    // The answer already has the body, or its file open.
                    self.context.services.page_cache.drop_page(old);
                }
                if let Some(answer) = answer {
                    self.deliver(answer, sink).await?;
                    return Ok(Outcome::Sent);
                }
            }
            (ApplicationOutcome::OtherPage(permit), old) => {
                old.inspect(|old| self.context.services.page_cache.drop_page(old));
                let whole = Miss { old: None, begun, permit };
                return Box::pin(self.make(whole, sink)).await;
            }
            (ApplicationOutcome::StillValid(..) | ApplicationOutcome::Failed, _) => {}
            (ApplicationOutcome::Passed, _) => return Ok(outcome),
        }
        // The client has nothing yet, and the old page is gone.
        self.origin.respond(&self.context, sink).await
    }

    /// Asks the application for the whole page, or to confirm that the old page is still valid.
    async fn ask(
        &self,
        Miss { old, begun, permit }: Miss<'_>,
        told: &'static str,
        sink: &mut dyn Sink,
    ) -> Result<(ApplicationOutcome, Outcome), Cut> {
        let mut request = self.context.request.clone();
        // The kept page is a whole one, whatever copy or range this client asks about.
        for name in CONDITIONS {
            request.headers.remove(name);
        }
        let asks = old.is_some_and(|old| old.ask_in(&mut request.headers));
        let context = Context { request: &request, ..self.context };
        let (Self { key, keeping, .. }, lscache) = (self, self.lscache.as_ref());
        let Services { page_cache: cache, config, .. } = context.services;
        let (limit, request) = (config.front.page_cache.size, self.context.request);
        let order = RecordingContext {
            cache,
            limit,
            key,
            begun,
            keeping,
            lscache,
            request,
            old,
            asks,
            told,
        };
        let mut recorder = Recorder::new(sink, order, permit);
        // After a cut, other requests may still make a page that can be kept.
        let outcome = self.origin.respond(&context, &mut recorder).await?;
        Ok((recorder.into_ended(), outcome))
    }
}
