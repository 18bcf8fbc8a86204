//! From a request to the handler that answers it.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method, StatusCode};
use rustls::ServerConfig;
use sendoff_auth::{Access, challenge};
use sendoff_compress::{Compressed, Maker, Policy, translate_tags};
use sendoff_config::{Compress, FrontConfig, Party, ProxyProtocol, TlsVersion, TrustedProxies};
use sendoff_exchange::clients::OneRequest;
use sendoff_exchange::layer::Layer;
use sendoff_exchange::responder::Responder;
use sendoff_exchange::service::Service;
use sendoff_htaccess::ErrorDocument;
use sendoff_http1::BodyFraming;
use sendoff_lua_host::ScriptAnswer;
use sendoff_message::Cut;
use sendoff_message::request::RouteId;
use sendoff_message::request::{Body, CONDITIONS, Request, Scheme, TLS_13, Who as Client};
use sendoff_message::response::ResponseHead;
use sendoff_report::at_work::{Listed, Phase};
use sendoff_report::explain::{FileWay, is_asked};
use sendoff_report::limits::Limit;
use sendoff_report::log_line::Line;
use sendoff_site::decision::User;
use sendoff_site::effects::{Answer, Effects, Failure};
use sendoff_site::router::{Route, Upstream};
use sendoff_site::{Around, Site};

use super::authorize::{self, Denial, Verdict};
use super::context::Context;
use super::error::{Outcome, Refused};
use super::services::Services;
use super::subrequest::Asker;
use super::{error, explain, file, kept, lua, metrics, pool_page, proxy, respond, status_page};
use crate::filter;

/// The methods of which the server itself speaks, when a request is about the server or not allowed.
const ALLOW: (&str, Bytes) = ("Allow", Bytes::from_static(b"GET, HEAD, POST, OPTIONS"));

/// Seconds after which a client may ask again that has too many requests under way.
const WHILE_BUSY: u64 = 1;

/// Fields of a request that describe its body, which the request for an error page has not.
const OF_THE_BODY: [HeaderName; 2] = [header::CONTENT_LENGTH, header::CONTENT_TYPE];

/// Which handler answers a request.
#[derive(Debug)]
pub struct Plan {
    who: Who,
    /// The client gets the table of `sendoff explain` instead of the response.
    explained: bool,
    /// `None`: no application is to answer.
    listed: Option<Listed>,
}

/// Who answers.
#[derive(Debug)]
enum Who {
    Site(Planned),
    /// The server itself answers a request that concerns no resource (`OPTIONS *`).
    Server,
    /// The server itself refuses TRACE, which would show credentials to scripts in a page (RFC 9110 §9.3.8).
    Trace,
    /// The server itself answers an authority that checks whether a name leads here.
    Challenge(Bytes),
    /// The site cannot be opened.
    Broken(String),
}

/// Whether a request counts where routes limit how often clients may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    Counts,
    WasCounted,
}

/// How a site answers.
#[derive(Debug)]
struct Planned {
    site: Rc<Site>,
    answer: Answer,
    /// Boxed, because they are moved through several futures.
    effects: Box<Effects>,
    /// The field as the client has sent it, if the application sees another value (`compress/etag.rs`).
    if_none_match: Option<HeaderValue>,
    /// The user whose password the client has shown; empty: none was asked for.
    user: Vec<u8>,
    /// What an authorizer has answered in place of `answer`.
    denial: RefCell<Option<Box<Denial>>>,
    /// For each route that limits how many requests a client has under way: this one.
    _under_way: Vec<OneRequest>,
}

impl Planned {
    /// An answer that no route counts.
    fn new(site: Rc<Site>, answer: Answer, effects: Box<Effects>, user: Vec<u8>) -> Self {
        let (if_none_match, denial, _under_way) = (None, RefCell::default(), Vec::new());
        Self { site, answer, effects, if_none_match, user, denial, _under_way }
    }
}

impl Service for Services {
    type Plan = Plan;

    fn limits(&self) -> &FrontConfig {
        &self.config.front
    }

    fn trusted_proxies(&self) -> &TrustedProxies {
        &self.config.trusted_proxies
    }

    fn party(&self, listener: usize) -> Option<&Rc<Party>> {
        self.sites.party(listener)
    }

    fn tls(&self, listener: usize, server_name: Option<&str>) -> io::Result<Arc<ServerConfig>> {
        let site = self.sites.number_of(listener, server_name);
        let config = site.and_then(|site| self.tls.get(site)?.clone());
        config.ok_or_else(|| io::Error::other("no site with a certificate listens here"))
    }

    fn challenge(&self, server_name: &str) -> Option<Arc<ServerConfig>> {
        self.challenges.config(server_name)
    }

    async fn plan(&self, request: &mut Request) -> Plan {
        let secret = self.explain.as_deref();
        let explained = is_asked(secret, &mut request.headers);
        let who = if request.method == Method::TRACE {
            Who::Trace
        } else if let Some(answer) = self.challenge_of(request) {
            Who::Challenge(answer)
        } else if request.is_about_server() {
            Who::Server
        } else {
            match self.sites.of(request) {
                Ok(site) => {
                    if let Some(answer) = self.before_rules(&site, request) {
                        let (effects, user) = (Box::default(), Vec::new());
                        let planned = Planned::new(site, answer, effects, user);
                        return Plan { who: Who::Site(planned), explained, listed: None };
                    }
                    Who::Site(self.plan_for(site, request, 0, explained, Count::Counts).await)
                }
                Err(error) => Who::Broken(error.to_string()),
            }
        };
        let mut plan = Plan { who, explained, listed: None };
        if let Who::Site(Planned { site, .. }) = &plan.who
            && Self::wants_body(&plan)
        {
            let name = self.config.sites.get(site.number).map_or("", |site| &*site.name);
            plan.listed = Some(self.at_work.list(request, name));
        }
        plan
    }

    fn max_body(&self, plan: &Plan) -> u64 {
        let limit = self.config.front.limits.max_body;
        match &plan.who {
            Who::Site(planned) => planned.effects.body_limit(limit),
            Who::Server | Who::Trace | Who::Challenge(_) | Who::Broken(_) => limit,
        }
    }

    fn wants_body(plan: &Plan) -> bool {
        let Who::Site(Planned { answer, .. }) = &plan.who else { return false };
        matches!(
            answer,
            Answer::Route(Route::Script(_))
                | Answer::Proxy { .. }
                | Answer::Lua(ScriptAnswer::AfterBody)
        )
    }

    fn streams_body(&self, plan: &Plan, request: &Request, framing: BodyFraming) -> bool {
        let Who::Site(Planned { site, answer, effects, .. }) = &plan.who else { return false };
        let knows_length = matches!(framing, BodyFraming::Length(1..));
        let may_stream = match answer {
            // Only HTTP tells the end of a body whose length is not known before.
            Answer::Proxy { application, .. } => {
                let gateway = &self.gateways[site.number][*application];
                knows_length || matches!(gateway.proxy().protocol, ProxyProtocol::Http { .. })
            }
            Answer::Route(Route::Script(script)) => {
                knows_length && matches!(script.upstream, Upstream::Application(_))
            }
            _ => false,
        };
        let is_read = !matches!(request.method, Method::GET | Method::HEAD);
        may_stream && is_read && !plan.explained && effects.stream_body == Some(true)
    }

    async fn answer(
        &self,
        plan: Plan,
        request: &Request,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut> {
        if let Some(listed) = &plan.listed {
            listed.task().is(Phase::Waiting);
            responder.notes().task = Some(Rc::clone(listed.task()));
        }
        let planned = match &plan.who {
            Who::Site(Planned { answer: Answer::Lua(ScriptAnswer::AfterBody), site, .. }) => {
                return Box::pin(self.answer_after_body(site, plan.explained, request, responder))
                    .await;
            }
            Who::Site(planned) => planned,
            Who::Server => {
                let responder = &mut common(self, responder);
                return error::respond_empty(responder, StatusCode::NO_CONTENT, ALLOW).await;
            }
            Who::Trace => {
                let responder = &mut common(self, responder);
                return error::respond(responder, StatusCode::METHOD_NOT_ALLOWED, [ALLOW]).await;
            }
            Who::Challenge(answer) => {
                let responder = &mut common(self, responder);
                let kind = Bytes::from_static(b"application/octet-stream");
                return respond::respond(StatusCode::OK, &kind, answer, responder).await;
            }
            Who::Broken(why) => {
                let request = request.shown();
                tracing::error!(request, "answered with 500: the site cannot be opened: {why}");
                let responder = &mut common(self, responder);
                return error::respond(responder, StatusCode::INTERNAL_SERVER_ERROR, []).await;
            }
        };
        self.answer_for(planned, plan.explained, request, responder).await
    }

    async fn refuse(&self, status: StatusCode, responder: &mut dyn Responder) -> Result<(), Cut> {
        error::respond(&mut common(self, responder), status, []).await
    }

    fn log(&self, line: &Line<'_>) {
        let number = line.notes.site;
        self.meters.note(line);
        if !line.notes.is_unlogged
            && let Some((log, format)) = self.logs.of(&self.config, number)
        {
            let site = number.and_then(|number| self.config.sites.get(number));
            let time = self.clock.shown();
            log.write(line, format, site.map(|site| &*site.name), &time);
        }
    }
}

impl Services {
    /// How a site answers a request.
    async fn plan_for(
        &self,
        site: Rc<Site>,
        request: &mut Request,
        depth: u8,
        is_explained: bool,
        count: Count,
    ) -> Planned {
        let asker = Asker { services: self, site: &site, depth };
        let around = Around { pools: &self.config.pools, asks: Some(&asker), is_explained };
        let (mut answer, effects) = site.decide(around, request).await;
        if count == Count::Counts
            && let Some((route, wait)) = self.rates.take(&effects.rates, &request.peer)
        {
            let (limit, retry_after) = (Limit::Rate, wait.as_secs() + 1);
            answer = Answer::TooOften { limit, route, retry_after };
        }
        let mut under_way = Vec::new();
        if count == Count::Counts {
            let who = Client::of(&request.peer);
            for &(route, most) in &effects.concurrency {
                match self.requests.begin(route, who, most) {
                    Some(one) => under_way.push(one),
                    None => {
                        let limit = Limit::Concurrency;
                        answer = Answer::TooOften { limit, route, retry_after: WHILE_BUSY };
                    }
                }
            }
        }
        let of = effects.compress.unwrap_or(site.compression.of);
        let if_none_match = match of {
            Compress::Off => None,
            Compress::Static | Compress::All => {
                translate_tags(&mut request.headers, request.version)
            }
        };
        let mut planned = Planned::new(site, answer, effects, Vec::new());
        (planned.if_none_match, planned._under_way) = (if_none_match, under_way);
        if planned.asks_for_password() && !matches!(planned.answer, Answer::TooOften { .. }) {
            // On the heap, because few requests come here.
            Box::pin(planned.authenticate(self, request, None)).await;
        }
        if planned.asks_authorizers() {
            Box::pin(planned.authorize(self, request)).await;
        }
        planned.filter();
        planned
    }

    /// Decides again, now that a script can see the body that it has asked for, and answers.
    async fn answer_after_body(
        &self,
        site: &Rc<Site>,
        explained: bool,
        request: &Request,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut> {
        let mut request = request.clone();
        request.has_body = !request.body.is_empty();
        // A path that scripts and routes have changed would be changed once more.
        let planned = match request.restart() {
            Ok(()) => {
                let site = Rc::clone(site);
                self.plan_for(site, &mut request, 0, explained, Count::WasCounted).await
            }
            Err(bad) => {
                let answer = Answer::refused(StatusCode::BAD_REQUEST, bad.0.to_owned());
                let (effects, user) = (Box::default(), Vec::new());
                Planned::new(Rc::clone(site), answer, effects, user)
            }
        };
        self.answer_for(&planned, explained, &request, responder).await
    }

    /// Answers a subrequest of a script, which is `depth` subrequests deep.
    pub(super) async fn answer_script(
        &self,
        site: &Rc<Site>,
        request: &mut Request,
        depth: u8,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut> {
        let planned =
            self.plan_for(Rc::clone(site), request, depth, false, Count::WasCounted).await;
        self.answer_for(&planned, false, request, responder).await
    }

    async fn answer_for(
        &self,
        planned: &Planned,
        explained: bool,
        request: &Request,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut> {
        let Planned { site, answer, effects, if_none_match, user, .. } = planned;
        let of = effects.compress.unwrap_or(site.compression.of);
        let maker = match answer {
            _ if planned.denial.borrow().is_some() => Maker::Application,
            Answer::Route(Route::Script(_))
            | Answer::Proxy { .. }
            | Answer::Lua(ScriptAnswer::Body { .. }) => Maker::Application,
            _ => Maker::Server,
        };
        let asked = if_none_match.as_ref();
        let policy = || Policy::new(&site.compression, of, maker, request, asked);
        // The table itself is not compressed.
        let compression = if explained { None } else { policy() };
        let compression = compression.as_ref();
        let context = Context { services: self, site, request, effects, compression, user };
        responder.notes().site = Some(site.number);
        responder.notes().is_unlogged = effects.access_log == Some(false);
        let named = if user.is_empty() { &effects.authorized.user } else { user };
        if !named.is_empty() {
            responder.notes().user = Some(String::from_utf8_lossy(named).into_owned());
        }
        let mut compressed;
        let responder = match compression {
            Some(policy) => {
                compressed = Box::new(Compressed::new(responder, policy, &self.compressor));
                &mut *compressed as &mut dyn Responder
            }
            None => responder,
        };
        let responder = &mut filtered(&context, responder);
        if explained {
            return Box::pin(answer_explained(&context, planned, policy(), responder)).await;
        }
        answer_or_refuse(&context, planned, responder).await
    }

    /// The answer to an authority that asks in the clear (HTTP-01, RFC 8555 §8.3), whatever sites say about requests.
    fn challenge_of(&self, request: &Request) -> Option<Bytes> {
        let is_asked =
            request.tls.is_none() && matches!(request.method, Method::GET | Method::HEAD);
        let path = std::str::from_utf8(&request.path).ok().filter(|_| is_asked)?;
        self.challenges.answer(path)
    }

    /// The answer where the site's rules have no say: what asks for another connection.
    fn before_rules(&self, site: &Site, request: &Request) -> Option<Answer> {
        if let Some(location) = site.by_https(request) {
            return Some(Answer::Redirect { status: StatusCode::PERMANENT_REDIRECT, location });
        }
        let tls = request.tls.as_ref()?;
        let site_tls = |site: usize| self.config.sites.get(site).and_then(|site| site.tls.as_ref());
        // The connection was made for another site, by a version that this one refuses.
        let wanted = site_tls(site.number).map(|tls| tls.oldest);
        if wanted == Some(TlsVersion::Tls13) && tls.version != TLS_13 {
            let why = "the site asks for TLS 1.3, and the connection has an older version";
            return Some(Answer::refused(StatusCode::MISDIRECTED_REQUEST, why.to_owned()));
        }
        // The client has shown its certificate, or none, to another site (RFC 9110 §15.5.20).
        let shown_to = self.sites.number_of(request.listener, tls.server_name.as_deref())?;
        let asks = |site: usize| site_tls(site).and_then(|tls| tls.clients.as_ref());
        let is_misdirected = shown_to != site.number && asks(shown_to) != asks(site.number);
        is_misdirected.then(|| {
            let why = "the site asks for other client certificates than the one that the connection was made for";
            Answer::refused(StatusCode::MISDIRECTED_REQUEST, why.to_owned())
        })
    }
}

/// The protocol's responder behind the filters. A worker that writes a response itself knows the common fields and no rules.
fn filtered<'r>(
    context: &Context<'r>,
    responder: &'r mut dyn Responder,
) -> Layer<'r, impl FnMut(&mut ResponseHead)> {
    let Context { services, site, request, effects, .. } = *context;
    let has_no_rules = effects.response_headers.is_empty()
        && effects.lua.fields.is_empty()
        && effects.lua_response.is_empty()
        && effects.cache.is_none()
        && effects.htaccess.as_ref().is_none_or(|response| !response.changes_heads());
    let context = *context;
    let hides_server = effects.response_headers.iter().any(|changes| changes.hides("Server"));
    Layer::new(responder, has_no_rules, move |head| {
        change(&context, head);
        if let Some(hsts) = site.hsts.as_ref().filter(|_| request.scheme == Scheme::Https) {
            filter::set_default(head, "Strict-Transport-Security", hsts);
        }
        filter::common(head, &services.clock, hides_server);
    })
}

/// Changes a head as the rules of the site say.
fn change(context: &Context<'_>, head: &mut ResponseHead) {
    filter::apply(head, context.effects);
    if let Some(response) = &context.effects.htaccess {
        context.site.change(context.request, response, head);
    }
    context.site.run_on_head(&context.effects.lua_response, context.request, head);
}

/// The protocol's responder behind the filter for common fields.
fn common<'r>(
    services: &'r Services,
    responder: &'r mut dyn Responder,
) -> Layer<'r, impl FnMut(&mut ResponseHead)> {
    Layer::new(responder, false, |head| filter::common(head, &services.clock, false))
}

impl Planned {
    fn asks_for_password(&self) -> bool {
        !self.effects.auth.is_empty() || matches!(self.answer, Answer::Authenticate { .. })
    }

    /// Checks the name and the password that a route or `.htaccess` files ask for. `failure`: the request is for the page of this error.
    async fn authenticate(
        &mut self,
        services: &Services,
        request: &mut Request,
        failure: Option<Failure<'_>>,
    ) {
        if !self.check_route(services, request).await {
            return;
        }
        let Answer::Authenticate { realm, users } = &self.answer else { return };
        let (realm, users) = (realm.clone(), users.clone());
        if self.check(services, request, &realm, &users).await {
            let user = User { file: users, name: self.user.clone() };
            let around = Around { pools: &services.config.pools, asks: None, is_explained: false };
            let effects = &mut self.effects;
            self.answer = self.site.answer_to(around, request, effects, user, failure).await;
            // The files may have led to a path for which a route asks for another password.
            self.check_route(services, request).await;
        }
    }

    /// Whether authorizers are asked. An answer that turns the client away shows nothing that needs access, but the target of a redirect may.
    /// A script that asks for the request's body has not answered yet.
    fn asks_authorizers(&self) -> bool {
        let Self { answer, effects, .. } = self;
        let is_open = matches!(answer, Answer::Redirect { .. }) || !answer.turns_away();
        let is_late = matches!(answer, Answer::Lua(ScriptAnswer::AfterBody));
        !effects.authorizers.is_empty() && is_open && !is_late
    }

    /// A static file goes to the application that a route has it filtered by.
    fn filter(&mut self) {
        let (Some(number), Answer::Route(Route::File(entry))) = (self.effects.filter, &self.answer)
        else {
            return;
        };
        let answer = match self.site.router.filter(entry, number) {
            Some(script) => {
                self.effects.filtered = Some(Rc::clone(entry));
                Answer::Route(Route::Script(script))
            }
            None => {
                let why = "the file that is to be filtered lies in no folder of the site";
                Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why.to_owned())
            }
        };
        self.answer = answer;
    }

    /// Asks the authorizers, one after the other, until one does not allow the request: the client gets the response of that authorizer.
    /// An authorizer that fails allows nothing.
    async fn authorize(&mut self, services: &Services, request: &Request) {
        for authorizer in std::mem::take(&mut self.effects.authorizers) {
            let Self { site, effects, user, .. } = &*self;
            let context = Context { services, site, request, effects, compression: None, user };
            let (who, verdict) = authorize::ask(&context, &authorizer).await;
            let authorized = &mut self.effects.authorized;
            let (status, came) = match verdict {
                Verdict::Granted(variables) => {
                    authorized.notes.push(format!("allowed by the authorizer {who}"));
                    self.effects.grant(variables);
                    continue;
                }
                Verdict::Denied(denial) => {
                    let status = denial.status();
                    self.denial = RefCell::new(Some(denial));
                    (status, "not allowed by")
                }
                Verdict::Failed(status) => {
                    authorized.has_failed = true;
                    (status, "no answer of")
                }
            };
            authorized.notes.push(format!("{came} the authorizer {who}"));
            self.answer = Answer::Route(Route::Refused { status, why: None });
            return;
        }
    }

    /// Checks what routes ask for, once. Returns false, with the answer for that, if the client has not shown all of it.
    async fn check_route(&mut self, services: &Services, request: &Request) -> bool {
        for auth in std::mem::take(&mut self.effects.auth) {
            if !self.check(services, request, &auth.realm, &auth.users).await {
                // Another file may have it.
                self.user.clear();
                return false;
            }
        }
        true
    }

    /// Checks the client's name and password against a file. Returns false, with the answer for that, if they are wrong.
    async fn check(
        &mut self,
        services: &Services,
        request: &Request,
        realm: &str,
        users: &Path,
    ) -> bool {
        let field = request.headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        match services.auth.check(&self.site.line, users, field, &request.peer).await {
            Ok(Access::User(name)) => {
                self.user = name;
                return true;
            }
            Ok(Access::Denied) => {
                let why = if field.is_some() { "a wrong name or password" } else { "no password" };
                let (request, client) = (request.shown(), &request.peer);
                tracing::warn!(request, %client, "answered with 401: {why}");
                self.answer = Answer::Unauthorized { challenge: challenge(realm) };
            }
            Ok(Access::TooMany) => {
                Limit::Passwords.reached();
                let why = format!("too many passwords from {} wait to be checked", request.peer);
                self.answer = Answer::refused(StatusCode::TOO_MANY_REQUESTS, why);
            }
            Err(error) => {
                let why = format!("the password file {}: {error}", users.display());
                self.answer = Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why);
            }
        }
        false
    }
}

/// Answers with the table of what the response would be. `policy`: how it would be compressed.
async fn answer_explained(
    context: &Context<'_>,
    planned: &Planned,
    policy: Option<Policy<'_>>,
    responder: &mut dyn Responder,
) -> Result<(), Cut> {
    let (request, answer) = (context.request, &planned.answer);
    let encrypts = request.tls.as_ref().is_some_and(|tls| !tls.by_kernel);
    let way = if encrypts { FileWay::Encrypted } else { FileWay::Sendfile };
    let mut table = explain::Table::new(responder, before(answer, request), way);
    let answered = answer_or_refuse(context, planned, &mut table).await;
    let (mut report, head) = table.into_report();
    context.effects.authorized.notes.iter().for_each(|note| report.note(note.clone()));
    if context.effects.filtered.is_some() {
        report.note("the file passes through a filter".to_owned());
    }
    if let Some((policy, mut head)) = policy.zip(head) {
        change(context, &mut head);
        let accepts = request.headers.contains_key(header::ACCEPT_ENCODING);
        let policy = if accepts { policy } else { policy.for_everything() };
        report.compression(policy.explanation(&head));
    }
    explain::send(context, responder, &report, answered.err()).await
}

/// Answers with a handler's response, or with an error page if the handler refuses.
async fn answer_or_refuse(
    context: &Context<'_>,
    planned: &Planned,
    responder: &mut dyn Responder,
) -> Result<(), Cut> {
    let denial = planned.denial.take();
    let outcome = match denial {
        Some(denial) => Box::pin(denial.pass_on(context, responder)).await?,
        None => handle(context, &planned.answer, responder).await?,
    };
    match outcome {
        Outcome::Sent => Ok(()),
        // On the heap, because few requests come here, and this future would be the largest part of every task.
        Outcome::Refused(refused) => Box::pin(refuse(context, refused, responder)).await,
    }
}

async fn handle(
    context: &Context<'_>,
    answer: &Answer,
    responder: &mut dyn Responder,
) -> Result<Outcome, Cut> {
    let request = context.request;
    match answer {
        _ if kept::asks_to_purge(context) && !answer.turns_away() => {
            Box::pin(kept::purge(context, responder)).await
        }
        Answer::Route(Route::Script(script)) => {
            kept::respond(context, kept::Maker::Script(script), responder).await
        }
        Answer::Proxy { application, prefix } => {
            let passed = proxy::Passed { application: *application, prefix: *prefix };
            kept::respond(context, kept::Maker::Proxy(passed), responder).await
        }
        Answer::Route(Route::File(entry)) => file::respond(context, entry, responder).await,
        Answer::Route(Route::Folder) => {
            error::redirect_to_folder(request, responder).await?;
            Ok(Outcome::Sent)
        }
        Answer::Route(Route::Refused { status, why }) => {
            if let Some(why) = why {
                let (request, code, why) = (request.shown(), status.as_u16(), one_line(why));
                tracing::warn!(request, "answered with {code}: {why}");
            }
            Ok(Outcome::refused(*status, []))
        }
        Answer::Redirect { status, location } => {
            respond::redirect(*status, location, responder).await?;
            Ok(Outcome::Sent)
        }
        Answer::Respond { status, content_type, body } => {
            respond::respond(*status, content_type, body, responder).await?;
            Ok(Outcome::Sent)
        }
        Answer::Lua(answer) => Box::pin(lua::respond(context, answer, responder)).await,
        Answer::PoolPage(page) => {
            pool_page::respond(context, *page, responder).await?;
            Ok(Outcome::Sent)
        }
        Answer::Metrics => Box::pin(metrics::respond(context, responder)).await,
        Answer::Ready if context.services.is_leaving.load(Ordering::Relaxed) => {
            Ok(Outcome::refused(StatusCode::SERVICE_UNAVAILABLE, []))
        }
        Answer::Ready => {
            let (kind, text) = (Bytes::from_static(b"text/plain"), Bytes::from_static(b"ready\n"));
            respond::respond(StatusCode::OK, &kind, &text, responder).await?;
            Ok(Outcome::Sent)
        }
        Answer::StatusPage => Box::pin(status_page::respond(context, responder)).await,
        Answer::TooOften { limit, route, retry_after } => {
            limit.refuses(&request.peer, || too_often(context, *limit, *route));
            let after = [("Retry-After", Bytes::from(retry_after.to_string()))];
            Ok(Outcome::refused(StatusCode::TOO_MANY_REQUESTS, after))
        }
        Answer::Unauthorized { challenge } => {
            let challenge = [("WWW-Authenticate", challenge.clone())];
            Ok(Outcome::refused(StatusCode::UNAUTHORIZED, challenge))
        }
        // It has been authenticated before.
        Answer::Authenticate { .. } => Ok(Outcome::refused(StatusCode::UNAUTHORIZED, [])),
    }
}

/// What is logged of a request that met a limit of a route: an example of those of which nothing is logged.
fn too_often(context: &Context<'_>, limit: Limit, route: RouteId) -> String {
    let Context { services, site, request, .. } = context;
    let config = services.config.sites.get(site.number);
    let mut routes = config.iter().flat_map(|site| &site.routes);
    let origin = routes.find(|one| RouteId::of(&one.origin) == route);
    let origin = origin.map_or("a route", |route| &*route.origin);
    let (site, request) = (config.map_or("", |site| &*site.name), request.shown());
    let what = match limit {
        Limit::Concurrency => "has as many requests under way as `concurrency`",
        _ => "asks more often than `rate`",
    };
    format!(
        "{request} of site {site}: answered with 429, because the client {what} allows ({origin})"
    )
}

/// Answers with the site's page for a status, or with the server's own.
async fn refuse(
    context: &Context<'_>,
    refused: Refused,
    responder: &mut dyn Responder,
) -> Result<(), Cut> {
    let Refused { status, fields } = refused;
    let rules = context.effects.htaccess.as_deref();
    let page = match rules.and_then(|rules| rules.error_document(status)) {
        Some(ErrorDocument::Path(path)) => Some(String::from_utf8_lossy(path).into_owned()),
        Some(ErrorDocument::Text(text)) => {
            let text = text.clone().into();
            return error::respond_text(responder, status, fields, text).await;
        }
        Some(ErrorDocument::Redirect(location)) => {
            let location = location.clone().into();
            return respond::redirect(StatusCode::FOUND, &location, responder).await;
        }
        None => context.site.error_page(status).map(str::to_owned),
    };
    let Some(page) = page else { return error::respond(responder, status, fields).await };
    let failure = Failure { status, request: context.request, decision: rules };
    let mut request = for_page(context.request, &page);
    let planned = plan_page(context, &mut request, failure).await;
    if !planned.answer.has_contents() {
        let why = match &planned.answer {
            Answer::Route(Route::Refused { why: Some(why), .. }) => why,
            _ => "it is no file and no script that the client may ask for",
        };
        let (request, page, why) = (request.shown(), one_line(&page), one_line(why));
        tracing::warn!(
            request,
            "the page {page} for status {} is not shown: {why}",
            status.as_u16()
        );
        return error::respond(responder, status, fields).await;
    }
    let Planned { effects, user, answer, .. } = &planned;
    let context = Context { request: &request, effects, user, ..*context };
    let mut with_status = Layer::new(responder, false, |head| {
        (head.status, head.reason) = (status, None);
        for (name, value) in &fields {
            head.field(name, value.clone());
        }
    });
    match handle(&context, answer, &mut with_status).await? {
        Outcome::Sent => Ok(()),
        // The page itself fails.
        Outcome::Refused(_) => error::respond(responder, status, fields).await,
    }
}

/// Who answers the request for the page of an error: as if the client had asked for the page (nginx and Apache do the same).
async fn plan_page(context: &Context<'_>, request: &mut Request, failure: Failure<'_>) -> Planned {
    let services = context.services;
    let around = Around { pools: &services.config.pools, asks: None, is_explained: false };
    let (answer, effects) = context.site.decide_page(around, request, failure).await;
    let user = context.user.to_vec();
    let site = Rc::clone(context.site);
    let mut planned = Planned::new(site, answer, effects, user);
    if context.effects.authorized.has_failed && !planned.effects.authorizers.is_empty() {
        // It has just failed to answer.
        planned.answer = Answer::Route(Route::Refused { status: failure.status, why: None });
    } else if planned.asks_for_password() {
        if failure.status == StatusCode::UNAUTHORIZED {
            // The client has just failed to show one.
            planned.answer = Answer::Route(Route::Refused { status: failure.status, why: None });
        } else {
            Box::pin(planned.authenticate(services, request, Some(failure))).await;
        }
    }
    if planned.asks_authorizers() {
        Box::pin(planned.authorize(services, request)).await;
    }
    planned.filter();
    planned
}

/// The request for the page of an error.
fn for_page(failed: &Request, page: &str) -> Request {
    let mut request = Request { body: Body::default(), has_body: false, ..failed.clone() };
    for name in CONDITIONS.into_iter().chain(OF_THE_BODY) {
        request.headers.remove(name);
    }
    if request.method != Method::HEAD {
        request.method = Method::GET;
    }
    let (path, query) = page.split_once('?').map_or((page, None), |(path, q)| (path, Some(q)));
    request.path = path.as_bytes().to_vec();
    request.query = query.map(|query| query.to_owned().into());
    request
}

/// A reason for the log. It may name files, whose names clients choose at uploads: they begin no lines of their own.
fn one_line(why: &str) -> String {
    why.replace(char::is_control, "\u{fffd}")
}

/// What `sendoff explain` shows about the handler.
fn before(answer: &Answer, request: &Request) -> explain::Before {
    match answer {
        Answer::Route(Route::Script(_)) | Answer::Proxy { .. } => explain::Before::Script,
        Answer::Route(Route::File(_)) => {
            explain::Before::File(String::from_utf8_lossy(&request.path).into_owned())
        }
        _ => explain::Before::Server,
    }
}
