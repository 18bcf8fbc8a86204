//! The plan of a request, made before its body is read: the handler, and the treatment of the body.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use sendoff_compress::translate_tags;
use sendoff_config::{Compress, GatewayProtocol, PageCache, TlsVersion};
use sendoff_exchange::clients::RequestPermit;
use sendoff_exchange::service::{self, BodyTerms, Intake};
use sendoff_grpc::{self as grpc, WebCall};
use sendoff_http1::client::remove_nominated;
use sendoff_lua_host::ScriptAnswer;
use sendoff_message::request::{LimitKey, Request, RouteId, TLS_13, Who as Client};
use sendoff_report::at_work::AtWorkGuard;
use sendoff_report::explain::is_asked;
use sendoff_report::limits::Limit;
use sendoff_site::effects::{Answer, Effects, RouteLimit};
use sendoff_site::{DecisionContext, Site};
use sendoff_site_files::router::{PathTarget, Upstream};

use crate::application::authorizer::Denial;
use crate::application::proxy::ProxyTarget;
use crate::cached::OriginApplication;
use crate::context::{Context, Nesting};
use crate::esi;
use crate::services::Services;
use crate::subrequest::Asker;

/// `Retry-After` in seconds for a client that has too many requests in flight.
const WHILE_BUSY: u64 = 1;

/// The handler of a request, and the treatment of its body.
#[derive(Debug)]
pub struct Plan {
    pub(super) who: Answerer,
    /// The client gets the table of `sendoff explain` instead of the response.
    pub(super) explained: bool,
    /// The entry in `sendoff status`; `None`: no application is to answer.
    pub(super) listed: Option<AtWorkGuard>,
    body: BodyTerms,
}

impl service::Plan for Plan {
    fn body(&self) -> BodyTerms {
        self.body
    }
}

/// The part of the server that answers.
#[derive(Debug)]
pub(super) enum Answerer {
    Site(SitePlan),
    /// The server itself.
    Server(ServerAnswer),
}

/// The server's answer to a request that no site answers.
#[derive(Debug)]
pub(super) enum ServerAnswer {
    /// The request concerns no resource (`OPTIONS *`).
    Options,
    /// TRACE is refused, which would show credentials to scripts in a page (RFC 9110 §9.3.8).
    Trace,
    /// An authority checks whether a name leads here.
    Challenge(Bytes),
    /// The site cannot be opened.
    Broken(String),
}

/// A request's effect on the limits `rate` and `concurrency` of routes.
#[derive(Debug, Clone, Copy)]
pub(super) enum LimitEffect<'c> {
    /// It counts, but not for the limits of these routes, which have counted it.
    Counts { counted: &'c [RouteId] },
    /// It is a part of a request that counts.
    Ignored,
}

/// A site's plan for a request.
#[derive(Debug)]
pub(super) struct SitePlan {
    pub(super) site: Rc<Site>,
    pub(super) answer: Answer,
    /// Boxed, because they are moved through several futures.
    pub(super) effects: Box<Effects>,
    /// The field as the client sent it, if the application sees another value (`compress/etag.rs`).
    pub(super) if_none_match: Option<HeaderValue>,
    /// The user whose password the client has shown; empty: no password was required.
    pub(super) user: Vec<u8>,
    /// The response of an authorizer that does not allow the request, in place of `answer`.
    pub(super) denial: RefCell<Option<Box<Denial>>>,
    /// The uses of limits by this request.
    pub(super) uses: LimitUses,
}

/// The uses of the limits of routes by a request.
#[derive(Debug, Default)]
pub(super) struct LimitUses {
    /// The routes whose limits have counted the request.
    pub(super) counted: Vec<RouteId>,
    /// Its places in `concurrency` limits.
    pub(super) under_way: Vec<RequestPermit>,
}

impl SitePlan {
    /// A plan that no limit of a route counts.
    pub(super) fn new(
        site: Rc<Site>,
        answer: Answer,
        effects: Box<Effects>,
        user: Vec<u8>,
    ) -> Self {
        let (if_none_match, denial, uses) = (None, RefCell::default(), LimitUses::default());
        Self { site, answer, effects, if_none_match, user, denial, uses }
    }

    /// Counts the request for the limits of its routes that have not counted it yet, and refuses it
    /// if it exceeds one.
    fn count(&mut self, services: &Services, request: &Request) {
        let Effects { rates, concurrency, .. } = &*self.effects;
        let LimitUses { counted, under_way } = &mut self.uses;
        let client = LimitKey::Client(Client::of(&request.peer));
        let rates: Vec<_> = (rates.iter().filter(|limit| !counted.contains(&limit.route)))
            .map(|limit| (limit.route, limit.by.unwrap_or(client), limit.most))
            .collect();
        if let Some((route, wait)) = services.rates.take(&rates) {
            let (limit, retry_after) = (Limit::Rate, wait.as_secs() + 1);
            self.answer = Answer::TooOften { limit, route, retry_after };
        }
        for &RouteLimit { route, by, most } in concurrency {
            if counted.contains(&route) {
                continue;
            }
            match services.requests.begin(route, by.unwrap_or(client), most) {
                Some(one) => under_way.push(one),
                None => {
                    let limit = Limit::Concurrency;
                    self.answer = Answer::TooOften { limit, route, retry_after: WHILE_BUSY };
                }
            }
        }
        *counted = (self.effects.rates.iter().map(|limit| limit.route))
            .chain(concurrency.iter().map(|limit| limit.route))
            .collect();
    }

    /// The way of the request's body to the handler. `may_stream`: the request itself allows a
    /// handler to take the body while it arrives.
    fn intake(&self, services: &Services, request: &Request, may_stream: bool) -> Intake {
        let Self { site, answer, effects, .. } = self;
        let streamed = match answer {
            // Only HTTP can transmit a body whose length is not known before its end.
            Answer::Proxy { application, .. } => {
                let gateway = &services.gateways[site.number][*application];
                let web = WebCall::of(request, gateway.proxy());
                if web.is_some_and(WebCall::needs_whole_body) {
                    return Intake::Whole;
                }
                match gateway.proxy().protocol {
                    GatewayProtocol::Http2 { .. } if may_stream && grpc::is_call(request) => {
                        return Intake::Duplex;
                    }
                    GatewayProtocol::Http { .. } | GatewayProtocol::Http2 { .. } => Intake::Stream,
                    GatewayProtocol::Scgi
                    | GatewayProtocol::Uwsgi
                    | GatewayProtocol::Ajp { .. } => Intake::StreamOfKnownLength,
                }
            }
            Answer::Path(PathTarget::Script(script)) => match script.upstream {
                Upstream::Application(_) => Intake::StreamOfKnownLength,
                Upstream::Workers(_) => Intake::Whole,
            },
            Answer::Lua(ScriptAnswer::AfterBody) => Intake::Whole,
            _ => return Intake::Unused,
        };
        if may_stream && effects.settings.stream_body == Some(true) {
            streamed
        } else {
            Intake::Whole
        }
    }

    /// The application that answers; `None`: the server itself does.
    pub(super) fn origin(&self) -> Option<OriginApplication<'_>> {
        match &self.answer {
            Answer::Path(PathTarget::Script(script)) => Some(OriginApplication::Script(script)),
            Answer::Proxy { application, prefix } => {
                let proxied = ProxyTarget { application: *application, prefix: *prefix };
                Some(OriginApplication::Proxy(proxied))
            }
            _ => None,
        }
    }

    /// The context of the request for a handler, without compression.
    pub(super) fn context<'a>(
        &'a self,
        services: &'a Services,
        request: &'a Request,
        nesting: Nesting<'a>,
    ) -> Context<'a> {
        let Self { site, effects, user, .. } = self;
        Context { services, site, request, effects, compression: None, user, nesting }
    }

    /// True if this server is an intermediary (RFC 9110 §3.7) for the request: it passes it on, or
    /// keeps the response.
    fn passes_on(&self) -> bool {
        matches!(self.answer, Answer::Proxy { .. })
            || matches!(
                self.effects.settings.page_cache.or(self.site.page_cache),
                Some(PageCache::On(_))
            )
    }

    /// True if the response is an application's, and is assembled if it asks for that.
    pub(super) fn assembles(&self) -> bool {
        let is_of_application =
            matches!(self.answer, Answer::Proxy { .. } | Answer::Path(PathTarget::Script(_)));
        is_of_application && self.site.assembles(&self.effects)
    }

    /// Passes a static file to the application that a route names as its filter.
    pub(super) fn filter(&mut self) {
        let (Some(number), Answer::Path(PathTarget::File(entry))) =
            (self.effects.settings.filter, &self.answer)
        else {
            return;
        };
        let answer = match self.site.router.filter(entry, number) {
            Some(script) => {
                self.effects.filtered = Some(Rc::clone(entry));
                Answer::Path(PathTarget::Script(script))
            }
            None => {
                let why = "the file that is to be filtered lies in no folder of the site";
                Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why.to_owned())
            }
        };
        self.answer = answer;
    }
}

impl Services {
    /// Plans a request. Changes the request as the site's rules say.
    pub(super) async fn plan_request(&self, request: &mut Request) -> Plan {
        let explained = is_asked(self.explain.as_deref(), &mut request.headers);
        let who = if request.method == Method::TRACE {
            Answerer::Server(ServerAnswer::Trace)
        } else if let Some(answer) = self.challenge_of(request) {
            Answerer::Server(ServerAnswer::Challenge(answer))
        } else if request.is_about_server() {
            Answerer::Server(ServerAnswer::Options)
        } else {
            match self.sites.of(request) {
                Ok(site) => Answerer::Site(match self.before_rules(&site, request) {
                    Some(answer) => SitePlan::new(site, answer, Box::default(), Vec::new()),
                    None => {
                        let count = LimitEffect::Counts { counted: &[] };
                        self.plan_for(site, request, 0, explained, count).await
                    }
                }),
                Err(error) => Answerer::Server(ServerAnswer::Broken(error.to_string())),
            }
        };
        let max = self.config.front.limits.max_body;
        let Answerer::Site(plan) = &who else {
            let body = BodyTerms { max, intake: Intake::Unused };
            return Plan { who, explained, listed: None, body };
        };
        let may_stream = !explained && !matches!(request.method, Method::GET | Method::HEAD);
        let intake = plan.intake(self, request, may_stream);
        let body = BodyTerms { max: plan.effects.body_limit(max), intake };
        let listed = body.is_wanted().then(|| {
            let name = self.config.sites.get(plan.site.number).map_or("", |site| &*site.name);
            self.at_work.list(request, name)
        });
        Plan { who, explained, listed, body }
    }

    /// Plans a request for a site. `depth` is the number of subrequests around the request.
    pub(super) async fn plan_for(
        &self,
        site: Rc<Site>,
        request: &mut Request,
        depth: u8,
        is_explained: bool,
        count: LimitEffect<'_>,
    ) -> SitePlan {
        let asker = Asker { services: self, site: &site, depth };
        let decision_context =
            DecisionContext { pools: &self.config.pools, asks: Some(&asker), is_explained };
        let (answer, effects) = site.decide(decision_context, request).await;
        let of = effects.settings.compress.unwrap_or(site.compression.of);
        let if_none_match = match of {
            Compress::Off => None,
            Compress::Static | Compress::All => {
                translate_tags(&mut request.headers, request.version)
            }
        };
        let mut planned = SitePlan::new(site, answer, effects, Vec::new());
        planned.if_none_match = if_none_match;
        if let LimitEffect::Counts { counted } = count {
            planned.uses.counted = counted.to_vec();
            planned.count(self, request);
        }
        if planned.asks_for_password() && !matches!(planned.answer, Answer::TooOften { .. }) {
            // On the heap, because few requests come here.
            Box::pin(planned.authenticate(self, request, None)).await;
            if let LimitEffect::Counts { .. } = count {
                // `.htaccess` files may have led the request to a path with limits of its own.
                planned.count(self, request);
            }
        }
        if planned.asks_authorizers() {
            Box::pin(planned.authorize(self, request)).await;
        }
        planned.filter();
        // Pages are kept for the fields that the application has seen.
        if planned.passes_on() {
            remove_nominated(&mut request.headers);
        }
        if planned.assembles() {
            esi::offer(request);
        }
        planned
    }

    /// The answer to an authority that asks without TLS (HTTP-01, RFC 8555 §8.3). The site's rules
    /// do not apply to it.
    fn challenge_of(&self, request: &Request) -> Option<Bytes> {
        let is_asked =
            request.tls.is_none() && matches!(request.method, Method::GET | Method::HEAD);
        let path = std::str::from_utf8(&request.path).ok().filter(|_| is_asked)?;
        self.challenges.answer(path)
    }

    /// The answer to a request that needs another connection: over TLS, with a newer version, or
    /// with another client certificate. The site's rules do not apply to it.
    pub(super) fn before_rules(&self, site: &Site, request: &Request) -> Option<Answer> {
        if let Some(location) = site.by_https(request) {
            return Some(Answer::Redirect { status: StatusCode::PERMANENT_REDIRECT, location });
        }
        let demand = self.tls_of(Some(site.number)).and_then(|tls| tls.clients.as_ref());
        let Some(tls) = &request.tls else {
            let is_required = demand.is_some_and(|demand| demand.required);
            return is_required.then(|| {
                let why = "the site asks for client certificates, and the connection is in the clear or a proxy's";
                Answer::refused(StatusCode::FORBIDDEN, why.to_owned())
            });
        };
        // The connection was made for another site, with a version of TLS that this site refuses.
        let wanted = self.config.sites.get(site.number).and_then(|site| site.tls.as_ref());
        let wanted = wanted.map(|tls| tls.oldest);
        if wanted == Some(TlsVersion::Tls13) && tls.version != TLS_13 {
            let why = "the site asks for TLS 1.3, and the connection has an older version";
            return Some(Answer::refused(StatusCode::MISDIRECTED_REQUEST, why.to_owned()));
        }
        // The client was asked for its certificate by another site, before a reload, or over QUIC,
        // which does not ask (RFC 9110 §15.5.20).
        (demand != tls.demand.as_ref()).then(|| {
            let why = "the site asks for other client certificates than the one that the connection was made for";
            Answer::refused(StatusCode::MISDIRECTED_REQUEST, why.to_owned())
        })
    }
}
