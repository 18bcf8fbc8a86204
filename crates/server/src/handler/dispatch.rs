//! From a request to the handler that answers it.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{Method, StatusCode};
use rustls::ServerConfig;
use sendoff_config::{FrontConfig, TrustedProxies};
use sendoff_htaccess::ErrorDocument;

use super::context::Context;
use super::error::{Outcome, Refused};
use super::services::Services;
use super::{error, explain, file, pool_page, respond, script};
use crate::auth::Access;
use crate::cut::Cut;
use crate::filter;
use crate::layer::Layer;
use crate::observe::explain::is_asked;
use crate::observe::log_line::Line;
use crate::request::{Body, Request, Scheme};
use crate::responder::Responder;
use crate::response::ResponseHead;
use crate::service::Service;
use crate::site::Site;
use crate::site::decision::User;
use crate::site::effects::{Answer, Effects};
use crate::site::router::Route;

/// The methods of which the server itself speaks, when a request is about the server or not allowed.
const ALLOW: (&str, Bytes) = ("Allow", Bytes::from_static(b"GET, HEAD, POST, OPTIONS"));

/// Fields that concern the page that was asked for and not the error page in its place.
const OF_THE_PAGE: [HeaderName; 8] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
];

/// Which handler answers a request.
#[derive(Debug)]
pub(crate) struct Plan {
    who: Who,
    /// The client gets the table of `sendoff explain` instead of the response.
    explained: bool,
}

/// Who answers.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every request is for a site, and needs no allocation for it"
)]
enum Who {
    Site(Planned),
    /// The server itself answers a request that concerns no resource (`OPTIONS *`).
    Server,
    /// The server itself refuses TRACE, which would show credentials to scripts in a page (RFC 9110 §9.3.8).
    Trace,
    /// The site cannot be opened.
    Broken(String),
}

/// How a site answers.
#[derive(Debug)]
struct Planned {
    site: Rc<Site>,
    answer: Answer,
    effects: Effects,
    /// The user whose password the client has shown; empty: none was asked for.
    user: Vec<u8>,
}

impl Service for Services {
    type Plan = Plan;

    fn limits(&self) -> &FrontConfig {
        &self.config.front
    }

    fn trusted_proxies(&self) -> &TrustedProxies {
        &self.config.trusted_proxies
    }

    fn tls(&self, listener: usize, server_name: Option<&str>) -> io::Result<Arc<ServerConfig>> {
        let site = self.sites.number_of(listener, server_name);
        let config = site.and_then(|site| self.tls.get(site)?.clone());
        config.ok_or_else(|| io::Error::other("no site with a certificate listens here"))
    }

    async fn plan(&self, request: &mut Request) -> Plan {
        let secret = self.explain.as_deref();
        let explained = is_asked(secret, &mut request.headers);
        let who = if request.method == Method::TRACE {
            Who::Trace
        } else if request.is_about_server() {
            Who::Server
        } else {
            match self.sites.of(request) {
                Ok(site) => {
                    if let Some(answer) = self.before_rules(&site, request) {
                        let (effects, user) = (Effects::default(), Vec::new());
                        let planned = Planned { site, answer, effects, user };
                        return Plan { who: Who::Site(planned), explained };
                    }
                    let (answer, effects) = site.decide(&self.config.pools, request);
                    let mut planned = Planned { site, answer, effects, user: Vec::new() };
                    if planned.asks_for_password() {
                        // On the heap, because few requests come here.
                        Box::pin(planned.authenticate(self, request)).await;
                    }
                    Who::Site(planned)
                }
                Err(error) => Who::Broken(error.to_string()),
            }
        };
        Plan { who, explained }
    }

    fn max_body(&self, plan: &Plan) -> u64 {
        let limit = self.config.front.limits.max_body;
        match &plan.who {
            Who::Site(planned) => planned.effects.body_limit(limit),
            Who::Server | Who::Trace | Who::Broken(_) => limit,
        }
    }

    fn wants_body(plan: &Plan) -> bool {
        matches!(&plan.who, Who::Site(Planned { answer: Answer::Route(Route::Script(_)), .. }))
    }

    async fn answer(
        &self,
        plan: Plan,
        request: &Request,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut> {
        let planned = match &plan.who {
            Who::Site(planned) => planned,
            Who::Server => {
                let responder = &mut common(self, responder);
                return error::respond_empty(responder, StatusCode::NO_CONTENT, ALLOW).await;
            }
            Who::Trace => {
                let responder = &mut common(self, responder);
                return error::respond(responder, StatusCode::METHOD_NOT_ALLOWED, [ALLOW]).await;
            }
            Who::Broken(why) => {
                let request = shown(request);
                tracing::error!(request, "answered with 500: the site cannot be opened: {why}");
                let responder = &mut common(self, responder);
                return error::respond(responder, StatusCode::INTERNAL_SERVER_ERROR, []).await;
            }
        };
        let Planned { site, answer, effects, user } = planned;
        let context = Context { services: self, site, request, effects, user };
        responder.notes().site = Some(site.number);
        if !user.is_empty() {
            responder.notes().user = Some(String::from_utf8_lossy(user).into_owned());
        }
        let responder = &mut filtered(&context, responder);
        if !plan.explained {
            return answer_or_refuse(&context, answer, responder).await;
        }
        let mut table = explain::Table::new(responder, before(answer, request));
        let answered = answer_or_refuse(&context, answer, &mut table).await;
        let report = table.into_report();
        explain::send(&context, responder, &report, answered.err()).await
    }

    async fn refuse(&self, status: StatusCode, responder: &mut dyn Responder) -> Result<(), Cut> {
        error::respond(&mut common(self, responder), status, []).await
    }

    fn log(&self, line: &Line<'_>) {
        if let Some(log) = &self.access_log {
            let site = line.notes.site.and_then(|number| self.config.sites.get(number));
            log.write(line, site.map(|site| &*site.name), &self.clock.date());
        }
    }
}

impl Services {
    /// The answer where the site's rules have no say: what asks for another connection.
    fn before_rules(&self, site: &Site, request: &Request) -> Option<Answer> {
        if let Some(location) = site.by_https(request) {
            return Some(Answer::Redirect { status: StatusCode::PERMANENT_REDIRECT, location });
        }
        // The client has shown its certificate, or none, to another site (RFC 9110 §15.5.20).
        let tls = request.tls.as_ref()?;
        let shown_to = self.sites.number_of(request.listener, tls.server_name.as_deref())?;
        let asks = |site: usize| {
            self.config.sites.get(site).and_then(|site| site.tls.as_ref()?.clients.as_ref())
        };
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
        && effects.cache.is_none()
        && effects.htaccess.as_ref().is_none_or(|response| !response.changes_heads());
    Layer::new(responder, has_no_rules, move |head| {
        filter::apply(head, effects);
        if let Some(response) = &effects.htaccess {
            site.change(request, response, head);
        }
        if let Some(hsts) = site.hsts.as_ref().filter(|_| request.scheme == Scheme::Https) {
            filter::set_default(head, "Strict-Transport-Security", hsts);
        }
        filter::common(head, &services.clock);
    })
}

/// The protocol's responder behind the filter for common fields.
fn common<'r>(
    services: &'r Services,
    responder: &'r mut dyn Responder,
) -> Layer<'r, impl FnMut(&mut ResponseHead)> {
    Layer::new(responder, false, |head| filter::common(head, &services.clock))
}

impl Planned {
    fn asks_for_password(&self) -> bool {
        self.effects.auth.is_some() || matches!(self.answer, Answer::Authenticate { .. })
    }

    /// Checks the name and the password that a route or `.htaccess` files ask for.
    async fn authenticate(&mut self, services: &Services, request: &mut Request) {
        if let Some(auth) = self.effects.auth.clone() {
            self.check(services, request, &auth.realm, &auth.users).await;
        }
        if let Answer::Authenticate { realm, users } = &self.answer {
            let (realm, users) = (realm.clone(), users.clone());
            if self.check(services, request, &realm, &users).await {
                let user = User { file: users, name: self.user.clone() };
                let pools = &services.config.pools;
                self.answer = self.site.answer(pools, request, &mut self.effects, Some(user));
            }
        }
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
        let client = request.peer.address();
        match services.auth.check(users, field, &client).await {
            Ok(Access::User(name)) => {
                self.user = name;
                return true;
            }
            Ok(Access::Denied) => {
                let why = if field.is_some() { "a wrong name or password" } else { "no password" };
                let (request, client) = (shown(request), &request.peer);
                tracing::warn!(request, %client, "answered with 401: {why}");
                let realm = realm.replace(['\\', '"'], "");
                let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"").into();
                self.answer = Answer::Unauthorized { challenge };
            }
            Err(error) => {
                let why = format!("the password file {}: {error}", users.display());
                self.answer = Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why);
            }
        }
        false
    }
}

fn shown(request: &Request) -> String {
    request.shown()
}

/// Answers with a handler's response, or with an error page if the handler refuses.
async fn answer_or_refuse(
    context: &Context<'_>,
    answer: &Answer,
    responder: &mut dyn Responder,
) -> Result<(), Cut> {
    match handle(context, answer, responder).await? {
        Outcome::Sent => Ok(()),
        Outcome::Refused(refused) => refuse(context, refused, responder).await,
    }
}

async fn handle(
    context: &Context<'_>,
    answer: &Answer,
    responder: &mut dyn Responder,
) -> Result<Outcome, Cut> {
    let request = context.request;
    match answer {
        Answer::Route(Route::Script(script)) => script::respond(context, script, responder).await,
        Answer::Route(Route::File(entry)) => file::respond(context, entry, responder).await,
        Answer::Route(Route::Folder) => {
            error::redirect_to_folder(request, responder).await?;
            Ok(Outcome::Sent)
        }
        Answer::Route(Route::Refused { status, why }) => {
            if let Some(why) = why {
                let (request, code) = (shown(request), status.as_u16());
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
        Answer::PoolPage(page) => {
            pool_page::respond(context, *page, responder).await?;
            Ok(Outcome::Sent)
        }
        Answer::Unauthorized { challenge } => {
            let challenge = [("WWW-Authenticate", challenge.clone())];
            Ok(Outcome::refused(StatusCode::UNAUTHORIZED, challenge))
        }
        // It has been authenticated before.
        Answer::Authenticate { .. } => Ok(Outcome::refused(StatusCode::UNAUTHORIZED, [])),
    }
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
    let mut request = for_page(context.request, &page);
    let mut effects = Effects::default();
    let failed = context.request;
    let answer = context.site.answer_error(&mut request, &mut effects, status, failed, rules);
    let context = Context { request: &request, effects: &effects, ..*context };
    let mut with_status = Layer::new(responder, false, |head| {
        (head.status, head.reason) = (status, None);
        for (name, value) in &fields {
            head.field(name, value.clone());
        }
    });
    match handle(&context, &answer, &mut with_status).await? {
        Outcome::Sent => Ok(()),
        // The page itself is missing or fails.
        Outcome::Refused(_) => error::respond(responder, status, fields).await,
    }
}

/// The request for the page of an error.
fn for_page(request: &Request, path: &str) -> Request {
    let mut headers = request.headers.clone();
    for name in OF_THE_PAGE {
        headers.remove(name);
    }
    let method = if request.method == Method::HEAD { Method::HEAD } else { Method::GET };
    let (path, query) = path.split_once('?').map_or((path, None), |(path, q)| (path, Some(q)));
    Request {
        method,
        target: request.target.clone(),
        uri: request.uri.clone(),
        path: path.as_bytes().to_vec(),
        query: query.map(|query| query.to_owned().into()),
        host: request.host.clone(),
        headers,
        version: request.version,
        scheme: request.scheme,
        tls: request.tls.clone(),
        port: request.port,
        body: Body::default(),
        has_body: false,
        id: request.id.clone(),
        listener: request.listener,
        peer: request.peer.clone(),
        local: request.local.clone(),
    }
}

/// What `sendoff explain` shows about the handler.
fn before(answer: &Answer, request: &Request) -> explain::Before {
    match answer {
        Answer::Route(Route::Script(_)) => explain::Before::Script,
        Answer::Route(Route::File(_)) => {
            explain::Before::File(String::from_utf8_lossy(&request.path).into_owned())
        }
        _ => explain::Before::Server,
    }
}
