//! The handler that answers as a site has decided, and an error page where it refuses.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::StatusCode;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::request::RouteId;
use sendoff_report::limits::Limit;
use sendoff_site::effects::Answer;
use sendoff_site_files::router::PathTarget;

use super::error_page;
use super::plan::SitePlan;
use crate::application::proxy::{self, Switched};
use crate::cached;
use crate::context::Context;
use crate::esi;
use crate::file;
use crate::lua;
use crate::outcome::Outcome;
use crate::pages::{listing, metrics, pool, status};
use crate::server_pages;

/// Answers with a handler's response, or with an error page if the handler refuses. Returns the
/// change of protocol, if the application has agreed to one.
pub(super) async fn answer_or_refuse(
    context: &Context<'_>,
    planned: &SitePlan,
    sink: &mut dyn Sink,
) -> Result<Option<Box<Switched>>, Cut> {
    let denial = planned.denial.take();
    let outcome = match denial {
        Some(denial) => Box::pin(denial.pass_on(context, sink)).await?,
        None => handle(context, &planned.answer, sink).await?,
    };
    match outcome {
        Outcome::Sent => Ok(None),
        Outcome::Switched(switched) => Ok(Some(switched)),
        // On the heap, because few requests come here, and this future would be the largest part of
        // every task.
        Outcome::Refused(refused) => {
            Box::pin(error_page::refuse(context, refused, sink)).await?;
            Ok(None)
        }
    }
}

/// Calls the handler for an answer of the site.
pub(super) async fn handle(
    context: &Context<'_>,
    answer: &Answer,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let request = context.request;
    match answer {
        _ if cached::asks_to_purge(context, answer.turns_away()) => {
            Box::pin(cached::purge(context, sink)).await
        }
        Answer::Path(PathTarget::Script(script)) => {
            respond_with(context, cached::OriginApplication::Script(script), sink).await
        }
        Answer::Proxy { application, prefix } => {
            let proxied = proxy::ProxyTarget { application: *application, prefix: *prefix };
            respond_with(context, cached::OriginApplication::Proxy(proxied), sink).await
        }
        Answer::Path(PathTarget::File(entry)) => file::respond(context, entry, sink).await,
        Answer::Path(PathTarget::Listing) => Box::pin(listing::respond(context, sink)).await,
        Answer::Path(PathTarget::Folder) => {
            server_pages::redirect_to_folder(request, sink).await?;
            Ok(Outcome::Sent)
        }
        Answer::Path(PathTarget::Refused { status, why }) => {
            if let Some(why) = why {
                let (request, code, why) = (request.shown(), status.as_u16(), one_line(why));
                tracing::warn!(request, "answered with {code}: {why}");
            }
            Ok(Outcome::refused(*status, []))
        }
        Answer::Redirect { status, location } => {
            server_pages::redirect(*status, location, sink).await?;
            Ok(Outcome::Sent)
        }
        Answer::Respond { status, content_type, body } => {
            server_pages::send_text(*status, content_type, body, sink).await?;
            Ok(Outcome::Sent)
        }
        Answer::Lua(answer) => Box::pin(lua::respond(context, answer, sink)).await,
        Answer::PoolPage(page) => {
            pool::respond(context, *page, sink).await?;
            Ok(Outcome::Sent)
        }
        Answer::Metrics => Box::pin(metrics::respond(context, sink)).await,
        Answer::Ready if context.services.is_leaving.load(Ordering::Relaxed) => {
            Ok(Outcome::refused(StatusCode::SERVICE_UNAVAILABLE, []))
        }
        Answer::Ready => {
            let (kind, text) = (Bytes::from_static(b"text/plain"), Bytes::from_static(b"ready\n"));
            server_pages::send_text(StatusCode::OK, &kind, &text, sink).await?;
            Ok(Outcome::Sent)
        }
        Answer::StatusPage => Box::pin(status::respond(context, sink)).await,
        Answer::TooOften { limit, route, retry_after } => {
            limit.refuses(&request.peer, || too_often(context, *limit, *route));
            let after = [("Retry-After", Bytes::from(retry_after.to_string()))];
            Ok(Outcome::refused(StatusCode::TOO_MANY_REQUESTS, after))
        }
        Answer::Unauthorized { challenge } => {
            let challenge = [("WWW-Authenticate", challenge.clone())];
            Ok(Outcome::refused(StatusCode::UNAUTHORIZED, challenge))
        }
        // `SitePlan::authenticate` has replaced this answer before.
        Answer::Authenticate { .. } => Ok(Outcome::refused(StatusCode::UNAUTHORIZED, [])),
    }
}

/// Answers with a page of an application or of the page cache, assembled where routes say so.
async fn respond_with(
    context: &Context<'_>,
    origin: cached::OriginApplication<'_>,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    if context.site.assembles(context.effects) {
        return Box::pin(esi::respond(context, origin, sink)).await;
    }
    cached::respond(context, origin, sink).await
}

/// The log text for a request that met a limit of a route. It stands for further requests that are
/// only counted.
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

/// A reason as one line for the log. It may contain file names that clients chose at uploads, which
/// must not begin a line of their own.
pub(super) fn one_line(why: &str) -> String {
    why.replace(char::is_control, "\u{fffd}")
}
