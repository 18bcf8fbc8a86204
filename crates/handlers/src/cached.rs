//! The page cache in front of applications: a kept page is sent again, or one request makes the
//! page while others wait for it (`docs/page-cache.md`).

mod address;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, RANGE, UPGRADE};
use http::{Method, StatusCode};
use sendoff_config::{CacheDialect, Keeping, PageCache};
use sendoff_delivery::segment::Segment;
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::{self, Discard, Sink, unless_gone};
use sendoff_message::Cut;
use sendoff_message::request::{
    CONDITIONS, Request, host_name, is_only_cookie, may_be_read_in_part,
};
use sendoff_message::response::ResponseHead;
use sendoff_page_cache::{
    ApplicationOutcome, Flight, FragmentPurge, Key, LsCacheRequest, MakePermit, OriginFailure,
    PURGE_METHODS, Page, Purge, PurgeCount, Recorder, RecordingContext, Validity, ordered,
    without_ignored,
};
use sendoff_report::explain::Remark;
use sendoff_site_files::router::{Script, Upstream};
use tokio::time::timeout;

pub(crate) use self::address::AddressLookup;
use crate::application::proxy::{self, Passed};
use crate::application::script;
use crate::context::Context;
use crate::error::Outcome;
use crate::respond;
use crate::services::Services;

/// Maximum wait for another request that makes the same page. After that the request asks the
/// application itself (nginx: `proxy_cache_lock_timeout`, 5 s, too).
const PATIENCE: Duration = Duration::from_secs(5);

/// The outcome for a fresh page.
const HIT: &str = "hit";

/// The outcome for a page that only this client gets.
const OWN_HIT: &str = "hit; detail=private";

/// The request method that purges pages, as in other caches.
const PURGE: &str = "PURGE";

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

/// An old page that is to be made anew.
struct Due {
    old: Arc<Page>,
    begun: PurgeCount,
    permit: MakePermit,
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

/// An old page that the client has got, and that is still to be made anew.
pub(crate) struct Renewal<'a> {
    lookup: Box<CacheLookup<'a>>,
    due: Due,
}

impl Renewal<'_> {
    /// Makes the page anew.
    pub(crate) async fn run(self) {
        let Self { lookup, due: Due { old, begun, permit } } = self;
        Box::pin(lookup.renew(&old, begun, permit)).await;
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

/// True if the request may change kept pages.
fn may_change(context: &Context<'_>) -> bool {
    let method = &context.request.method;
    // A `PURGE` that is not allowed does nothing.
    let is_safe = method.is_safe() || method.as_str() == PURGE;
    !is_safe && context.services.page_cache.is_in_use()
}

/// True if the application may have changed something although no head of a response came: the
/// client has gone, or the application has failed. Another refusal comes without the application.
fn may_have_run(outcome: &Result<Outcome, Cut>) -> bool {
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
fn forget_changed(context: &Context<'_>, head: &ResponseHead) {
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
fn forget_own(context: &Context<'_>) {
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
    respond::respond(StatusCode::OK, &kind, &body, sink).await?;
    Ok(Outcome::Sent)
}

/// Purges the fragments that the workers of the request's site keep, as far as a purge of its pages
/// concerns them.
pub(crate) fn purge_fragments(context: &Context<'_>, purge: &Purge) {
    let Context { services, site, .. } = *context;
    let tags = match purge.of_fragments() {
        FragmentPurge::Nothing => return,
        FragmentPurge::Tags(tags) => Some(tags),
        FragmentPurge::Everything => None,
    };
    let Some(site) = services.config.sites.get(site.number) else { return };
    let of_php = [site.pool, site.worker.as_ref().map(|worker| worker.pool)];
    let attachments = site.fastcgi.iter();
    let of_programs = attachments.map(|attachment| services.config.pool_at(&attachment.address));
    let numbers = of_php.into_iter().chain(of_programs).flatten();
    for pool in numbers.filter_map(|number| services.pools.get(number)) {
        pool.shared.purge_fragments(tags.as_deref());
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

    /// Sends an old page, and has it made anew meanwhile if no other request does that: a slow
    /// client does not delay the new page. `None`: the body is gone.
    async fn send_stale(
        &self,
        page: &Arc<Page>,
        begun: PurgeCount,
        templates: Templates,
        sink: &mut dyn Sink,
    ) -> Result<Option<Answered>, Cut> {
        let cache = &self.context.services.page_cache;
        let flight = cache.fly(self.key_of(page), &self.context.request.headers);
        let send = self.send(page, "hit; detail=stale", sink);
        let is_sent = match flight {
            Flight::Make(permit) if templates == Templates::Pages && page.asks_for_assembly() => {
                let due = Due { old: Arc::clone(page), begun, permit };
                return send.await.map(|is_sent| is_sent.then_some(Answered::Stale(due)));
            }
            Flight::Make(permit) => tokio::join!(send, self.renew(page, begun, permit)).0,
            Flight::Wait(_) | Flight::MakeUnshared => send.await,
        };
        is_sent.map(|is_sent| is_sent.then_some(Answered::Now(Outcome::Sent)))
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

    /// Renews a page after the client has got the stale one.
    async fn renew(&self, old: &Arc<Page>, begun: PurgeCount, permit: MakePermit) {
        let request = self.context.request;
        if request.method == Method::HEAD || request.trace.is_some() {
            // A response to HEAD has no body that could be kept, and the client does not wait.
            let request = Request { method: Method::GET, trace: None, ..request.clone() };
            let context = Context { request: &request, ..self.context };
            let (key, lscache) = (self.key.clone(), self.lscache.clone());
            let get = CacheLookup { key, lscache, context, ..*self };
            return Box::pin(get.renew(old, begun, permit)).await;
        }
        let miss = Miss { old: Some(old), begun, permit: Some(permit) };
        match self.ask(miss, "fwd=stale", &mut Discard::default()).await {
            Ok((ApplicationOutcome::StillValid(said, permit), _)) => {
                if let (_, false) = self.renewed(old, begun, &said, permit) {
                    self.context.services.page_cache.drop_page(old);
                }
            }
            Ok((ApplicationOutcome::OtherPage(permit), _)) => {
                self.context.services.page_cache.drop_page(old);
                let whole = Miss { old: None, begun, permit };
                let _only_kept = self.ask(whole, "fwd=stale", &mut Discard::default()).await;
            }
            Ok((ApplicationOutcome::Passed | ApplicationOutcome::Failed, _)) | Err(_) => {}
        }
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

    /// The old page with a new validity, because the application says that it is still valid; true:
    /// the page is kept.
    fn renewed(
        &self,
        old: &Page,
        begun: PurgeCount,
        said: &ResponseHead,
        permit: Option<MakePermit>,
    ) -> (Arc<Page>, bool) {
        let cache = &self.context.services.page_cache;
        let (renewed, is_kept) =
            cache.renew(old, begun, &self.keeping, self.lscache.as_ref(), said);
        if let Some(mut permit) = permit {
            permit.ends(is_kept);
        }
        (renewed, is_kept)
    }
}
