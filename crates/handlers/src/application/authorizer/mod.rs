//! Authorizers: applications that decide if a client may access a resource. [`fastcgi`] asks FastCGI
//! applications, [`http`] asks web services.
//!
//! Only a complete response that grants access does: status 200 of a FastCGI application that
//! reports a success, or a status 2xx of a web service. Everything else is an error or a refusal.

mod fastcgi;
mod http;

use ::http::{HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;
use percent_encoding::percent_encode;
use sendoff_application_response::beginning::{ReceivedHead, ResponseStart};
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_application_response::failure::ApplicationFailure;
use sendoff_config::Authorizer;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::request::{BadPath, NOT_IN_PATH, Request};
use sendoff_message::response::{CgiHead, ResponseEnd};
use sendoff_report::limits::Limit;
use sendoff_upstream::inbox::Event;
use tokio::time::timeout;

use crate::application::script::Call;
use crate::context::Context;
use crate::outcome::Outcome;

/// Maximum size in bytes of the body behind a head that grants access. The body is ignored.
const MAX_BODY: usize = 64 * 1024;

/// An authorizer's decision on a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The client has access.
    Granted(Grant),
    /// The client has no access, and gets the authorizer's response.
    Denied(Box<Denial>),
    /// The authorizer gave no valid answer. The client gets an error page with this status.
    Failed(StatusCode),
}

/// The additions of an authorizer to a request that it allows.
#[derive(Debug, Default)]
pub(crate) struct Grant {
    /// Parameters for the applications that get the request.
    pub(crate) variables: Vec<(Bytes, Bytes)>,
    /// Request fields. They replace all fields of their names.
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
}

/// The response of an authorizer that gives no access.
#[derive(Debug)]
pub(crate) struct Denial {
    exchange: UpstreamExchange,
    begun: Box<ReceivedHead>,
}

impl Denial {
    pub(crate) fn status(&self) -> StatusCode {
        self.begun.head.status
    }

    /// Sends the response to the client.
    ///
    /// # Errors
    /// The client has gone, or its response was cut short after it had begun.
    pub(crate) async fn pass_on(
        self,
        context: &Context<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Cut> {
        let Self { exchange, begun } = self;
        sink.client().notes().upstream = Some(exchange.who());
        Call::new(*context).pass_on(exchange, begun, sink).await
    }
}

/// An answer whose head has arrived.
struct Begun {
    exchange: UpstreamExchange,
    begun: Box<ReceivedHead>,
}

impl Begun {
    fn of(exchange: UpstreamExchange, start: ResponseStart) -> Result<Self, ApplicationFailure> {
        match start {
            ResponseStart::Head(begun) => Ok(Self { exchange, begun }),
            _ => {
                let why = "it answered in a way that it was not offered";
                Err(ApplicationFailure::bad_gateway(why).of(&exchange.who()))
            }
        }
    }
}

/// Asks an authorizer about a request, also as a servlet container could read it. Returns the
/// authorizer's address, for the log, and its verdict: access, or the first refusal.
pub(crate) async fn ask(context: &Context<'_>, authorizer: &Authorizer) -> (String, Verdict) {
    let question = context.request.as_part();
    let context = &Context { request: &question, ..*context };
    let (who, verdict) = ask_about(context, authorizer).await;
    if !matches!(verdict, Verdict::Granted(_)) {
        return (who, verdict);
    }
    let Ok(read) = readings(context.request) else {
        return (who, Verdict::Failed(StatusCode::BAD_REQUEST));
    };
    for request in &read {
        let context = Context { request, ..*context };
        let (who, verdict) = ask_about(&context, authorizer).await;
        if !matches!(verdict, Verdict::Granted(_)) {
            return (who, verdict);
        }
    }
    (who, verdict)
}

/// The client's request with the other paths that applications may read in it.
fn readings(request: &Request) -> Result<Vec<Request>, BadPath> {
    // Most paths have none, and need no copy of the request.
    let is_escape =
        |signs: &[u8]| [&b"%3b"[..], b"%5c"].iter().any(|it| signs.eq_ignore_ascii_case(it));
    let is_special = |byte: &u8| matches!(byte, b';' | b'\\');
    if !request.uri.iter().any(is_special) && !request.uri.windows(3).any(is_escape) {
        return Ok(Vec::new());
    }
    let mut sent = request.without_body();
    sent.restart()?;
    let read = sent.other_readings(false)?.into_iter();
    Ok(read.map(|path| Request { uri: uri(&path, &sent), path, ..sent.clone() }).collect())
}

/// A decoded path, encoded again, with the query of the request.
fn uri(path: &[u8], request: &Request) -> Bytes {
    let path = percent_encode(path, NOT_IN_PATH).to_string();
    match &request.query {
        Some(query) => [path.as_bytes(), b"?", query].concat().into(),
        None => path.into(),
    }
}

async fn ask_about(context: &Context<'_>, authorizer: &Authorizer) -> (String, Verdict) {
    let Context { services, site, request, .. } = *context;
    let of_site = &services.config.sites[site.number];
    let (who, limit) = match authorizer {
        Authorizer::FastCgi(authorizer) => {
            (of_site.fastcgi[authorizer.application].address.to_string(), of_site.fastcgi_timeout)
        }
        Authorizer::Http(authorizer) => {
            (of_site.proxies[authorizer.proxy].to_string(), authorizer.timeout)
        }
    };
    let failure = match timeout(limit, ask_in_time(context, authorizer)).await {
        Ok(Ok(verdict)) => return (who, verdict),
        Ok(Err(failure)) => failure,
        Err(_) => {
            Limit::RequestTimeout.reached();
            let why = format!("{who}: it has not answered for {} s", limit.as_secs_f32());
            ApplicationFailure::new(StatusCode::GATEWAY_TIMEOUT, why)
        }
    };
    failure.log(&request.shown(), "no access without an authorizer: ");
    (who, Verdict::Failed(failure.status))
}

async fn ask_in_time(
    context: &Context<'_>,
    authorizer: &Authorizer,
) -> Result<Verdict, ApplicationFailure> {
    let Begun { exchange, begun } = match authorizer {
        Authorizer::FastCgi(authorizer) => fastcgi::ask(context, authorizer).await?,
        Authorizer::Http(authorizer) => http::ask(context, authorizer).await?,
    };
    let head = &begun.head;
    let grants = match authorizer {
        Authorizer::FastCgi(_) => head.status == StatusCode::OK,
        Authorizer::Http(_) => head.status.is_success(),
    };
    if !grants {
        return Ok(Verdict::Denied(Box::new(Denial { exchange, begun })));
    }
    let granted =
        grant(context, authorizer, head).map_err(|failure| failure.of(&exchange.who()))?;
    end(&exchange, begun.rest.len()).await.map_err(|failure| failure.of(&exchange.who()))?;
    Ok(Verdict::Granted(granted))
}

/// The additions that a head which grants access makes to the request.
fn grant(
    context: &Context<'_>,
    authorizer: &Authorizer,
    head: &CgiHead,
) -> Result<Grant, ApplicationFailure> {
    // The dropped line may have been the field that names the user.
    if let Some(line) = head.bad_lines.first() {
        let why = format!("it gave access in a head with a line that is no field: {line}");
        return Err(ApplicationFailure::bad_gateway(why));
    }
    match authorizer {
        Authorizer::FastCgi(_) if !head.has_status && head.fields.is_empty() => {
            let why = "it sent an empty header block, which gives no access";
            Err(ApplicationFailure::bad_gateway(why))
        }
        Authorizer::FastCgi(_) => {
            let variables = fastcgi::variables(head, &context.request.shown());
            Ok(Grant { variables, ..Grant::default() })
        }
        Authorizer::Http(authorizer) => http::grant(authorizer, head),
    }
}

/// Waits for the end of a response whose head gives access.
async fn end(exchange: &UpstreamExchange, mut received: usize) -> Result<(), ApplicationFailure> {
    while received <= MAX_BODY {
        match exchange.next().await {
            Event::Segment(Segment::Bytes(bytes)) => received += bytes.len(),
            Event::Explanation(_) => {}
            Event::End(ResponseEnd::Complete) => return Ok(()),
            Event::End(_) => {
                let why =
                    "it gave access and then failed: by its exit status, or a fatal error of PHP";
                return Err(ApplicationFailure::bad_gateway(why));
            }
            Event::Failed(why) => return Err(why.into()),
            _ => {
                let why = "it answered in a way that it was not offered";
                return Err(ApplicationFailure::bad_gateway(why));
            }
        }
    }
    Err(ApplicationFailure::bad_gateway(format!(
        "more than {MAX_BODY} bytes follow a head that gives access"
    )))
}
