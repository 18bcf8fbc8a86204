//! Error pages: the site's own page, which may come from a file, a script or a text, or the
//! server's page.

use std::rc::Rc;

use http::Method;
use http::StatusCode;
use http::header::{self, HeaderName};
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::Sink;
use sendoff_grpc as grpc;
use sendoff_htaccess::ErrorDocument;
use sendoff_message::Cut;
use sendoff_message::request::{CONDITIONS, Request};
use sendoff_site::DecisionContext;
use sendoff_site::effects::{Answer, FailedRequest};
use sendoff_site_files::router::PathTarget;

use super::handle::{handle, one_line};
use super::plan::SitePlan;
use crate::context::Context;
use crate::outcome::{Outcome, Refused};
use crate::server_pages;

/// Fields that describe a request's body. The request for an error page has no body.
const OF_THE_BODY: [HeaderName; 2] = [header::CONTENT_LENGTH, header::CONTENT_TYPE];

/// Answers with the site's page for a status, or with the server's own.
pub(super) async fn refuse(
    context: &Context<'_>,
    refused: Refused,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let Refused { status, fields } = refused;
    if grpc::is_call(context.request) {
        return grpc::respond_error(sink, status, fields).await;
    }
    let rules = context.effects.htaccess.as_deref();
    let page = match rules.and_then(|rules| rules.error_document(status)) {
        Some(ErrorDocument::Path(path)) => Some(String::from_utf8_lossy(path).into_owned()),
        Some(ErrorDocument::Text(text)) => {
            let text = text.clone().into();
            return server_pages::send_error_text(sink, status, fields, text).await;
        }
        Some(ErrorDocument::Redirect(location)) => {
            let location = location.clone().into();
            return server_pages::redirect(StatusCode::FOUND, &location, sink).await;
        }
        None => context.site.error_page(status).map(str::to_owned),
    };
    let Some(page) = page else { return server_pages::send_error_page(sink, status, fields).await };
    let failure = FailedRequest { status, request: context.request, decision: rules };
    let mut request = for_page(context.request, &page);
    let planned = plan_page(context, &mut request, failure).await;
    if !planned.answer.has_contents() {
        let why = match &planned.answer {
            Answer::Path(PathTarget::Refused { why: Some(why), .. }) => why,
            _ => "it is no file and no script that the client may ask for",
        };
        let (request, page, why) = (request.shown(), one_line(&page), one_line(why));
        tracing::warn!(
            request,
            "the page {page} for status {} is not shown: {why}",
            status.as_u16()
        );
        return server_pages::send_error_page(sink, status, fields).await;
    }
    let SitePlan { effects, user, answer, .. } = &planned;
    let context = Context { request: &request, effects, user, ..*context };
    let mut with_status = HeadFilter::new(sink, false, |head| {
        (head.status, head.reason) = (status, None);
        for (name, value) in &fields {
            head.field(name, value.clone());
        }
    });
    match handle(&context, answer, &mut with_status).await? {
        Outcome::Sent => Ok(()),
        // The page itself fails.
        Outcome::Switched(_) | Outcome::Refused(_) => {
            server_pages::send_error_page(sink, status, fields).await
        }
    }
}

/// Plans the request for an error page as if the client had asked for the page (as in nginx and
/// Apache).
async fn plan_page(
    context: &Context<'_>,
    request: &mut Request,
    failure: FailedRequest<'_>,
) -> SitePlan {
    let services = context.services;
    let decision_context =
        DecisionContext { pools: &services.config.pools, asks: None, is_explained: false };
    let (answer, effects) = context.site.decide_page(decision_context, request, failure).await;
    let user = context.user.to_vec();
    let site = Rc::clone(context.site);
    let mut planned = SitePlan::new(site, answer, effects, user);
    if context.effects.authorized.has_failed && !planned.effects.authorizers.is_empty() {
        // The authorizer has just failed to answer.
        planned.answer = Answer::Path(PathTarget::Refused { status: failure.status, why: None });
    } else if planned.asks_for_password() {
        if failure.status == StatusCode::UNAUTHORIZED {
            // The client has just failed to show a password.
            planned.answer =
                Answer::Path(PathTarget::Refused { status: failure.status, why: None });
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
    let mut request = failed.without_body();
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
