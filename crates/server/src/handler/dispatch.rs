//! From a request to the handler that answers it.

use bytes::Bytes;
use http::{Method, StatusCode};
use sendoff_config::FrontConfig;

use super::services::Services;
use super::{error, explain, file, script};
use crate::cut::Cut;
use crate::observe::access_log::Line;
use crate::observe::explain::is_asked;
use crate::request::Request;
use crate::responder::Responder;
use crate::service::Service;
use crate::site::router::Route;

/// Which handler answers a request.
#[derive(Debug)]
pub(crate) struct Plan {
    answer: Answer,
    /// The client gets the table of `sendoff explain` instead of the response.
    explained: bool,
}

#[derive(Debug)]
enum Answer {
    Route(Route),
    /// The server itself answers a request that concerns no resource (`OPTIONS *`).
    Server,
    /// The server itself refuses TRACE, which would show credentials to scripts in a page (RFC 9110 §9.3.8).
    Trace,
}

impl Service for Services {
    type Plan = Plan;

    fn limits(&self) -> &FrontConfig {
        &self.config.front
    }

    fn plan(&self, request: &mut Request) -> Plan {
        let secret = self.explain.as_deref();
        let explained = is_asked(secret, &mut request.headers);
        let answer = if request.method == Method::TRACE {
            Answer::Trace
        } else if request.is_about_server() {
            Answer::Server
        } else {
            Answer::Route(self.site.router.route(&request.path))
        };
        Plan { answer, explained }
    }

    fn wants_body(plan: &Plan) -> bool {
        matches!(plan.answer, Answer::Route(Route::Script(_)))
    }

    async fn answer(
        &self,
        plan: Plan,
        request: &Request,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut> {
        if !plan.explained {
            return answer(self, &plan.answer, request, responder).await;
        }
        let mut table = explain::Table::new(responder, before(&plan.answer, request));
        let answered = answer(self, &plan.answer, request, &mut table).await;
        let report = table.into_report();
        explain::send(self, request, responder, &report, answered.err()).await
    }

    async fn refuse(&self, status: StatusCode, responder: &mut dyn Responder) -> Result<(), Cut> {
        error::respond(self, responder, status).await
    }

    fn log(&self, line: &Line<'_>) {
        if let Some(log) = &self.access_log {
            log.write(line, &self.clock.date());
        }
    }
}

async fn answer(
    services: &Services,
    answer: &Answer,
    request: &Request,
    responder: &mut dyn Responder,
) -> Result<(), Cut> {
    let allow = ("Allow", Bytes::from_static(b"GET, HEAD, POST, OPTIONS"));
    match answer {
        Answer::Route(Route::Script(script)) => {
            script::respond(services, request, script, responder).await
        }
        Answer::Route(Route::File(entry)) => {
            file::respond(services, request, entry, responder).await
        }
        Answer::Route(Route::Folder) => {
            error::redirect_to_folder(services, request, responder).await
        }
        Answer::Route(Route::Refused { status, why }) => {
            if let Some(why) = why {
                let target = String::from_utf8_lossy(&request.target);
                let (request, code) = (format!("{} {target}", request.method), status.as_u16());
                tracing::warn!(request, "answered with {code}: {why}");
            }
            error::respond(services, responder, *status).await
        }
        Answer::Server => {
            error::respond_empty(services, responder, StatusCode::NO_CONTENT, allow).await
        }
        Answer::Trace => {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            error::respond_with(services, responder, status, [allow]).await
        }
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
