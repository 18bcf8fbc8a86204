//! From a request to the handler that answers it.

use std::rc::Rc;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{Method, StatusCode};
use sendoff_config::{FrontConfig, TrustedProxies};

use super::context::Context;
use super::error::{Outcome, Refused};
use super::services::Services;
use super::{error, explain, file, respond, script};
use crate::cut::Cut;
use crate::filter;
use crate::layer::Layer;
use crate::observe::explain::is_asked;
use crate::observe::log_line::Line;
use crate::request::{Body, Request};
use crate::responder::Responder;
use crate::service::Service;
use crate::site::Site;
use crate::site::router::Route;
use crate::site::rules::{self, Effects};

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
    answer: Answer,
    /// The client gets the table of `sendoff explain` instead of the response.
    explained: bool,
}

#[derive(Debug)]
enum Answer {
    Site(Rc<Site>, rules::Answer, Effects),
    /// The server itself answers a request that concerns no resource (`OPTIONS *`).
    Server,
    /// The server itself refuses TRACE, which would show credentials to scripts in a page (RFC 9110 §9.3.8).
    Trace,
    /// The site cannot be opened.
    Broken(String),
}

impl Service for Services {
    type Plan = Plan;

    fn limits(&self) -> &FrontConfig {
        &self.config.front
    }

    fn trusted_proxies(&self) -> &TrustedProxies {
        &self.config.trusted_proxies
    }

    fn plan(&self, request: &mut Request) -> Plan {
        let secret = self.explain.as_deref();
        let explained = is_asked(secret, &mut request.headers);
        let answer = if request.method == Method::TRACE {
            Answer::Trace
        } else if request.is_about_server() {
            Answer::Server
        } else {
            match self.sites.of(request) {
                Ok(site) => {
                    let (answer, effects) = site.decide(request);
                    Answer::Site(site, answer, effects)
                }
                Err(error) => Answer::Broken(error.to_string()),
            }
        };
        Plan { answer, explained }
    }

    fn max_body(&self, plan: &Plan) -> u64 {
        let own = match &plan.answer {
            Answer::Site(_, _, effects) => effects.max_body,
            Answer::Server | Answer::Trace | Answer::Broken(_) => None,
        };
        own.unwrap_or(self.config.front.limits.max_body)
    }

    fn wants_body(plan: &Plan) -> bool {
        matches!(plan.answer, Answer::Site(_, rules::Answer::Route(Route::Script(_)), _))
    }

    async fn answer(
        &self,
        plan: Plan,
        request: &Request,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut> {
        let none = Effects::default();
        let effects = match &plan.answer {
            Answer::Site(_, _, effects) => effects,
            _ => &none,
        };
        let responder = &mut filtered(self, effects, responder);
        match &plan.answer {
            Answer::Site(site, answer, effects) => {
                responder.notes().site = Some(site.number);
                let context = Context { services: self, site, request, effects };
                if !plan.explained {
                    return answer_or_refuse(&context, answer, responder).await;
                }
                let mut table = explain::Table::new(responder, before(answer, request));
                let answered = answer_or_refuse(&context, answer, &mut table).await;
                let report = table.into_report();
                explain::send(&context, responder, &report, answered.err()).await
            }
            Answer::Server => error::respond_empty(responder, StatusCode::NO_CONTENT, ALLOW).await,
            Answer::Trace => {
                error::respond(responder, StatusCode::METHOD_NOT_ALLOWED, [ALLOW]).await
            }
            Answer::Broken(why) => {
                let request = shown(request);
                tracing::error!(request, "answered with 500: the site cannot be opened: {why}");
                error::respond(responder, StatusCode::INTERNAL_SERVER_ERROR, []).await
            }
        }
    }

    async fn refuse(&self, status: StatusCode, responder: &mut dyn Responder) -> Result<(), Cut> {
        let none = Effects::default();
        error::respond(&mut filtered(self, &none, responder), status, []).await
    }

    fn log(&self, line: &Line<'_>) {
        if let Some(log) = &self.access_log {
            let site = line.notes.site.and_then(|number| self.config.sites.get(number));
            log.write(line, site.map(|site| &*site.name), &self.clock.date());
        }
    }
}

/// The protocol's responder behind the filters. A worker that writes a response itself knows the common fields and no rules.
fn filtered<'r>(
    services: &'r Services,
    effects: &'r Effects,
    responder: &'r mut dyn Responder,
) -> Layer<'r, impl FnMut(&mut crate::response::ResponseHead)> {
    let lends = effects.response_headers.is_empty() && effects.cache.is_none();
    Layer::new(responder, lends, |head| filter::apply(head, effects, &services.clock))
}

fn shown(request: &Request) -> String {
    request.shown()
}

/// Answers with a handler's response, or with an error page if the handler refuses.
async fn answer_or_refuse(
    context: &Context<'_>,
    answer: &rules::Answer,
    responder: &mut dyn Responder,
) -> Result<(), Cut> {
    match handle(context, answer, responder).await? {
        Outcome::Sent => Ok(()),
        Outcome::Refused(refused) => refuse(context, refused, responder).await,
    }
}

async fn handle(
    context: &Context<'_>,
    answer: &rules::Answer,
    responder: &mut dyn Responder,
) -> Result<Outcome, Cut> {
    let request = context.request;
    match answer {
        rules::Answer::Route(Route::Script(script)) => {
            script::respond(context, script, responder).await
        }
        rules::Answer::Route(Route::File(entry)) => file::respond(context, entry, responder).await,
        rules::Answer::Route(Route::Folder) => {
            error::redirect_to_folder(request, responder).await?;
            Ok(Outcome::Sent)
        }
        rules::Answer::Route(Route::Refused { status, why }) => {
            if let Some(why) = why {
                let (request, code) = (shown(request), status.as_u16());
                tracing::warn!(request, "answered with {code}: {why}");
            }
            Ok(Outcome::refused(*status, []))
        }
        rules::Answer::Redirect { status, location } => {
            respond::redirect(*status, location, responder).await?;
            Ok(Outcome::Sent)
        }
        rules::Answer::Respond { status, content_type, body } => {
            respond::respond(*status, content_type, body, responder).await?;
            Ok(Outcome::Sent)
        }
    }
}

/// Answers with the site's page for a status, or with the server's own.
async fn refuse(
    context: &Context<'_>,
    refused: Refused,
    responder: &mut dyn Responder,
) -> Result<(), Cut> {
    let Refused { status, fields } = refused;
    let Some(page) = context.site.error_page(status) else {
        return error::respond(responder, status, fields).await;
    };
    let request = for_page(context.request, page);
    let route = context.site.router.route(&request.path);
    let context = Context { request: &request, ..*context };
    let mut with_status = Layer::new(responder, false, |head| {
        (head.status, head.reason) = (status, None);
        for (name, value) in &fields {
            head.field(name, value.clone());
        }
    });
    match handle(&context, &rules::Answer::Route(route), &mut with_status).await? {
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
    Request {
        method,
        target: request.target.clone(),
        uri: request.uri.clone(),
        path: path.as_bytes().to_vec(),
        query: None,
        host: request.host.clone(),
        headers,
        version: request.version,
        scheme: request.scheme,
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
fn before(answer: &rules::Answer, request: &Request) -> explain::Before {
    match answer {
        rules::Answer::Route(Route::Script(_)) => explain::Before::Script,
        rules::Answer::Route(Route::File(_)) => {
            explain::Before::File(String::from_utf8_lossy(&request.path).into_owned())
        }
        _ => explain::Before::Server,
    }
}
