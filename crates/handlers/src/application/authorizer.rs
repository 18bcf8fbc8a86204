//! Authorizers: FastCGI applications that decide if a client may access a resource (FastCGI 1.0
//! §6.3).
//!
//! Only a complete response with status 200 that the application itself reports as a success grants
//! access. Everything else is an error or a refusal.

use bytes::Bytes;
use http::StatusCode;
use sendoff_application_request::parameters;
use sendoff_config::Authorizer;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::response::CgiHead;
use sendoff_message::response::ResponseEnd;
use sendoff_report::limits::Limit;
use sendoff_upstream::inbox::Event;
use tokio::time::timeout;

use crate::application::beginning::{ReceivedHead, ResponseStart};
use crate::application::exchange::UpstreamExchange;
use crate::application::failure::ApplicationFailure;
use crate::application::script::{Call, Role, Unanswered};
use crate::context::Context;
use crate::error::Outcome;
use crate::subrequest::ResponseBuffer;

/// Maximum size in bytes of the body behind a head that grants access. The body is ignored.
const MAX_BODY: usize = 64 * 1024;

/// Prefix of response fields that set a parameter of the request, in any case.
const VARIABLE: &[u8] = b"variable-";

/// Names that a variable cannot have, in capitals: parameters that the server sets itself,
/// parameters that stand for fields of the client, and parameters that programs take for settings.
const RESERVED: [&[u8]; 4] = [b"GATEWAY_INTERFACE", b"HTTPS", b"PATH", b"QUERY_STRING"];

/// Prefixes of such names. `REMOTE_USER` is not reserved: an authorizer is meant to set it.
const RESERVED_STARTS: [&[u8]; 15] = [
    b"CONTENT_",
    b"DOCUMENT_",
    b"FCGI_",
    b"HTTP_",
    b"LD_",
    b"PATH_",
    b"PHP_",
    b"REDIRECT_",
    b"REMOTE_ADDR",
    b"REMOTE_PORT",
    b"REQUEST_",
    b"SCRIPT_",
    b"SENDOFF_",
    b"SERVER_",
    b"SSL_",
];

/// An authorizer's decision on a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The client has access. The parameters are for the applications that get the request.
    Granted(Vec<(Bytes, Bytes)>),
    /// The client has no access, and gets the authorizer's response.
    Denied(Box<Denial>),
    /// The authorizer gave no valid answer. The client gets an error page with this status.
    Failed(StatusCode),
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

/// Asks an authorizer about a request. Returns the authorizer's address, for the log, and its
/// verdict.
pub(crate) async fn ask(context: &Context<'_>, authorizer: &Authorizer) -> (String, Verdict) {
    let Context { services, site, request, .. } = *context;
    let of_site = &services.config.sites[site.number];
    let who = of_site.fastcgi[authorizer.application].address.to_string();
    let limit = of_site.fastcgi_timeout;
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
    let Context { services, site, request, .. } = *context;
    let hosts = &services.attached[site.number][authorizer.application];
    let parameters = parameters::of_question(&context.for_application(), authorizer);
    let mut call = Call::new(*context);
    // The authorizer answers the server, not the client.
    let mut asker = ResponseBuffer::new(&request.method);
    let (answered, _) = call.send_to_host(Role::Authorizer, hosts, parameters, &mut asker).await;
    let (exchange, begun) = match answered {
        Ok((exchange, ResponseStart::Head(begun))) => (exchange, begun),
        Ok((exchange, _)) => {
            let why = "it answered in a way that it was not offered";
            return Err(ApplicationFailure::bad_gateway(why).of(&exchange.who()));
        }
        Err(Unanswered::Failed(failure)) => return Err(failure),
        Err(Unanswered::Cut(cut)) => return Err(ApplicationFailure::bad_gateway(cut.to_string())),
    };
    let head = &begun.head;
    if head.status != StatusCode::OK {
        return Ok(Verdict::Denied(Box::new(Denial { exchange, begun })));
    }
    if !head.has_status && head.fields.is_empty() {
        let why = "it sent an empty header block, which gives no access";
        return Err(ApplicationFailure::bad_gateway(why).of(&exchange.who()));
    }
    // The dropped line may have been the field that names the user.
    if let Some(line) = head.bad_lines.first() {
        let why = format!("it gave access in a head with a line that is no field: {line}");
        return Err(ApplicationFailure::bad_gateway(why).of(&exchange.who()));
    }
    end(&exchange, begun.rest.len()).await.map_err(|failure| failure.of(&exchange.who()))?;
    Ok(Verdict::Granted(variables(head, call.log_name())))
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

/// The request parameters that a response sets.
fn variables(head: &CgiHead, request: &str) -> Vec<(Bytes, Bytes)> {
    let mut all = Vec::new();
    for field in &head.fields {
        let (field, value) = field.clone().into_parts();
        let starts = field.get(..VARIABLE.len());
        if !starts.is_some_and(|start| start.eq_ignore_ascii_case(VARIABLE)) {
            continue;
        }
        let name = field.slice(VARIABLE.len()..);
        if may_be_set(&name) {
            all.push((name, value));
        } else {
            let field = field.escape_ascii();
            tracing::warn!(request, "{field} of an authorizer sets nothing: the name is reserved");
        }
    }
    all
}

/// True if a variable may have this name. Case and punctuation do not distinguish a name from a
/// reserved one: programs may find the parameter in their environment, where some of them ignore
/// case.
fn may_be_set(name: &[u8]) -> bool {
    let is_word = |&byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let known: Vec<u8> = name
        .iter()
        .map(|byte| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { b'_' })
        .collect();
    !name.is_empty()
        && name.iter().all(is_word)
        && !RESERVED.contains(&&known[..])
        && !RESERVED_STARTS.iter().any(|start| known.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_set_what_is_neither_the_servers_nor_the_clients() {
        let block = "Status: 200\r\nvariable-REMOTE_USER: ann\r\nVariable-Shib-Session-ID: _1 2\r\n\
            Variable-HTTP_PROXY: http://evil\r\nVariable-Http-Proxy: x\r\nVariable-http_x_user: x\r\n\
            Variable-SCRIPT_FILENAME: /etc/passwd\r\nVariable-PHP_VALUE: x\r\nVariable-path: x\r\n\
            Variable-LD_PRELOAD: x\r\nVariable-: x\r\nVariable-A+B: x\r\nVariable: x\r\n\
            Variable-REMOTE_ADDR: x\r\nVariable-https: x\r\nVariable-EMPTY:\r\nSet-Cookie: a=b\r\n\r\n";
        let head = CgiHead::parse(&Bytes::from(block)).unwrap();
        let set = variables(&head, "GET /");
        let expected = [("REMOTE_USER", "ann"), ("Shib-Session-ID", "_1 2"), ("EMPTY", "")];
        let expected = expected.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
        assert_eq!(set, expected);
    }

    #[test]
    fn a_value_ends_with_its_line() {
        for block in [
            "Status: 200\r\nVariable-A: x\r\n y\r\n\r\n",
            "Status: 200\r\nVariable-A: x\0y\r\n\r\n",
            "Status: 200\r\nVariable-A: x\ry\r\n\r\n",
        ] {
            let head = CgiHead::parse(&Bytes::from(block));
            assert!(!head.is_ok_and(|head| head.bad_lines.is_empty()), "{block:?}");
        }
        let lines = "Status: 200\nVariable-A: x\nB: y\n\n";
        let head = CgiHead::parse(&Bytes::from(lines)).unwrap();
        assert_eq!(variables(&head, "GET /"), [(Bytes::from("A"), Bytes::from("x"))]);
    }
}
