//! Scripts: sends a request to a worker or a FastCGI application, and the response to the client.

use std::rc::Rc;
use std::sync::Arc;

use http::{Method, StatusCode};
use sendoff_config::{Address, Attachment, ProxyProtocol};
use sendoff_fastcgi::channel::is_for_front;
use sendoff_fastcgi::handover::{ACCEPT_PARAM, Sockets};
use tokio::time::Instant;

use super::answer::{self, Answer, Begun, NoAnswer};
use super::context::Context;
use super::direct::{self, Offer};
use super::error::Outcome;
use super::parameters::parameters;
use super::relay::{self, Body};
use super::status::Failure;
use super::words::accepted;
use super::zero_copy::ZeroCopy;
use super::{named, pool_page, ranges};
use crate::cut::Cut;
use crate::observe::explain::Remark;
use crate::observe::mode::Mode;
use crate::request;
use crate::responder::{Responder, unless_gone};
use crate::response::ResponseHead;
use crate::site::router::{Script, Upstream};
use crate::site::sendable::{Denied, Sendable};
use crate::upstream::{
    Application, Exchange, LocalPool, RequestMessage, RequestMessageBuilder, Retry,
    UpstreamErrorKind,
};

/// Workers that may die one after the other before they have read a request; then the request is answered with 502.
const MAX_TRIES: usize = 8;

/// A request to an upstream.
pub(super) struct Call<'a> {
    pub(super) context: Context<'a>,
    pub(super) log_name: Rc<str>,
    /// When the answering worker got the request.
    since: Instant,
}

/// A response that has begun, or why there is none.
pub(super) type Answered = Result<(Exchange, Answer), Unanswered>;

/// Why there is no response.
pub(super) enum Unanswered {
    Failed(Failure),
    Cut(Cut),
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Cut> for Unanswered {
    fn from(cut: Cut) -> Self {
        Self::Cut(cut)
    }
}

/// Answers a request with a script's response.
///
/// # Errors
/// The client has gone, or its response was cut short after it had begun.
pub(super) async fn respond(
    context: &Context<'_>,
    script: &Script,
    responder: &mut dyn Responder,
) -> Result<Outcome, Cut> {
    let Context { services, site, request, .. } = *context;
    let mut call = Call::new(*context);
    let parameters = parameters(context, script);
    let (answered, offer) = match script.upstream {
        Upstream::Workers(number) => {
            responder.notes().pool = Some(number);
            let pool = &services.pools[number];
            call.send_to_worker(script, pool, parameters, responder).await
        }
        Upstream::Application(number) => {
            let hosts = &services.attached[site.number][number];
            responder.notes().pool = pool_of(context, number);
            Box::pin(call.send_to_host(script, hosts, parameters, responder)).await
        }
    };
    let (exchange, answer) = match answered {
        Ok(answered) => answered,
        Err(Unanswered::Cut(cut)) => return Err(cut),
        Err(Unanswered::Failed(failure)) => {
            return call.fail(failure, offer == Offer::Made, responder).await;
        }
    };
    let notes = responder.notes();
    match &exchange {
        Exchange::Worker(exchange) => notes.worker = u32::try_from(exchange.worker_pid()).ok(),
        Exchange::Application(_) | Exchange::Gateway(_) => notes.upstream = Some(exchange.who()),
    }
    // Over a new connection to an application the socket was not lent, so the time says nothing about offers.
    let counts = exchange.knows_direct();
    notes.mode = if matches!(answer, Answer::Sent(_)) { Mode::Direct } else { Mode::Relay };
    let outcome = match answer {
        Answer::Begun(begun) => call.pass_on(exchange, begun, responder).await,
        Answer::Sent(sent) => {
            direct::take_over(context, responder, exchange, sent).await.map(|()| Outcome::Sent)
        }
        // Scripts change no protocol.
        Answer::Switch(_) => Ok(Outcome::refused(StatusCode::BAD_GATEWAY, [])),
    }?;
    if request.method != Method::HEAD && responder.status() != Some(StatusCode::NOT_MODIFIED) {
        let generated = responder.generated();
        services.sizes.note(script, generated);
        if counts && offer != Offer::Impossible && responder.kept_up() {
            let choice = services.choices.of(request);
            choice.note(generated, offer == Offer::Made, call.since.elapsed());
        }
    }
    Ok(outcome)
}

impl<'a> Call<'a> {
    pub(super) fn new(context: Context<'a>) -> Self {
        Self { context, log_name: context.request.shown().into(), since: Instant::now() }
    }
}

impl Call<'_> {
    async fn send_to_worker(
        &mut self,
        script: &Script,
        pool: &LocalPool,
        mut parameters: RequestMessageBuilder,
        responder: &mut dyn Responder,
    ) -> (Answered, Offer) {
        let offer = direct::offer(&self.context, script, Sockets::All, responder, &mut parameters);
        let explained = responder.report().is_some();
        let accept = accepted(self.context.site.delivery, explained, offer == Offer::Made);
        parameters.param(ACCEPT_PARAM, &accept);
        let message = match &self.context.request.body {
            request::Body::Memory(bytes) => parameters.with_bytes(bytes),
            request::Body::File { descriptor, len } => {
                parameters.with_file(Rc::clone(descriptor), *len)
            }
            request::Body::Stream(_) => {
                let why = "a worker gets no request body that is still arriving";
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                let failure = Failure { status, why: why.to_owned() };
                return (Err(failure.into()), offer);
            }
        };
        let message = message.with_deadline(self.context.effects.request_timeout);
        (self.ask_worker(script, pool, &message, responder).await, offer)
    }

    async fn ask_worker(
        &mut self,
        script: &Script,
        pool: &LocalPool,
        message: &RequestMessage,
        responder: &mut dyn Responder,
    ) -> Answered {
        let number = self.context.services.number;
        let described = pool_page::described(&self.context, script);
        for _ in 0..MAX_TRIES {
            let ticket = unless_gone(responder, pool.shared.acquire(number)).await?;
            let ticket = ticket.map_err(Failure::from)?;
            let Some(link) = pool.link(ticket.worker()) else { continue };
            let waited = std::mem::replace(&mut self.since, Instant::now());
            let notes = responder.notes();
            (notes.queued, notes.given) = (Some(self.since - waited), Some(self.since));
            if let Some(request) = &described {
                ticket.describe(Arc::clone(request), self.since);
            }
            let socket = responder.lender().and_then(|lender| lender.socket());
            let log_name = Rc::clone(&self.log_name);
            let exchange = match link.begin(ticket, message, socket, log_name) {
                Ok(exchange) => Exchange::Worker(exchange),
                Err(error) if error.kind() == UpstreamErrorKind::Died => continue,
                Err(error) => return Err(Failure::from(error).into()),
            };
            match answer::read(&exchange, responder).await? {
                Ok(answer) => return Ok((exchange, answer)),
                Err(NoAnswer::Silent(why)) if why.retry() == Retry::Safe => {
                    if !is_untouched(responder) {
                        let why = format!("{} wrote to the client and died", exchange.who());
                        return Err(Failure::bad_gateway(why).into());
                    }
                }
                Err(NoAnswer::Silent(why)) => {
                    return Err(Failure::from(why).of(&exchange.who()).into());
                }
                Err(NoAnswer::Failed(failure)) => return Err(failure.of(&exchange.who()).into()),
            }
        }
        Err(Failure::bad_gateway(format!("{MAX_TRIES} workers died before they read it")).into())
    }

    /// Answers with an error page, unless another process has written to the client.
    pub(super) async fn fail(
        &self,
        failure: Failure,
        was_lent: bool,
        responder: &mut dyn Responder,
    ) -> Result<Outcome, Cut> {
        let Failure { status, why } = failure;
        if !is_untouched(responder) {
            return Err(Cut::application(why));
        }
        let (request, code) = (&*self.log_name, status.as_u16());
        tracing::error!(request, "answered with {code}: {why}");
        // A process that is late but alive still has the client's socket.
        if was_lent && status == StatusCode::GATEWAY_TIMEOUT {
            responder.close_after();
        }
        Ok(Outcome::refused(status, []))
    }

    /// Sends the response, or the file that it names instead.
    pub(super) async fn pass_on(
        &self,
        exchange: Exchange,
        mut begun: Begun,
        responder: &mut dyn Responder,
    ) -> Result<Outcome, Cut> {
        let sendable = &self.context.site.sendable;
        explain(responder, &exchange, &begun);
        let may_name = may_name_files(&exchange, sendable);
        let named = begun.named.take();
        match may_name.then(|| named::named_file(sendable, &begun.head, named)).flatten() {
            None => {}
            Some(Ok(entry)) => {
                exchange.drain();
                return named::respond(&self.context, begun.head, entry, responder).await;
            }
            Some(Err(denied)) => return Ok(self.refuse(exchange, denied)),
        }
        if let Some(value) = ranges::ranges(&begun.head).filter(|_| may_name) {
            return match ranges::open(sendable, value) {
                Ok(segments) => {
                    exchange.drain();
                    ranges::respond(begun.head, segments, responder).await?;
                    Ok(Outcome::Sent)
                }
                Err(denied) => Ok(self.refuse(exchange, denied)),
            };
        }
        let zero_copy = match exchange {
            // Our own workers hand files over; for them `X-ZeroCopy` is an ordinary field.
            Exchange::Worker(_) => None,
            Exchange::Application(_) | Exchange::Gateway(_) => {
                may_name.then(|| ZeroCopy::announced(&begun.head)).flatten()
            }
        };
        match zero_copy.transpose() {
            Ok(zero_copy) => {
                self.relay(exchange, begun, zero_copy, responder).await.map(|()| Outcome::Sent)
            }
            Err(bad) => {
                let request = &*self.log_name;
                tracing::error!(request, "{}: answered with 502: it sent {bad}", exchange.who());
                Ok(Outcome::refused(StatusCode::BAD_GATEWAY, []))
            }
        }
    }

    /// Answers with an error page because the named file may not be sent.
    fn refuse(&self, exchange: Exchange, denied: Denied) -> Outcome {
        let (who, request, Denied { status, why }) = (exchange.who(), &*self.log_name, denied);
        exchange.drain();
        tracing::error!(request, "{who} named a file, answered with {status}: {why}");
        Outcome::refused(status, [])
    }

    /// Passes the response on, piece by piece, while the client takes it.
    async fn relay(
        &self,
        exchange: Exchange,
        begun: Begun,
        zero_copy: Option<ZeroCopy>,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut> {
        let Begun { head, rest, length, .. } = begun;
        // The length that a worker announces is 0 for a response without a body (HEAD), not that of GET's body.
        let has_body =
            self.context.request.method != Method::HEAD && head.status != StatusCode::NOT_MODIFIED;
        let mut head = ResponseHead::of(head);
        // A body with file names in it has another length than the response.
        head.length = head.length.or(length.filter(|_| has_body)).filter(|_| zero_copy.is_none());
        head.accel_expires = head.take("X-Accel-Expires");
        head.fields.retain(|field| {
            let is_places = zero_copy.is_some() && field.is("x-zerocopy");
            !is_places && !is_for_front(field.name())
        });
        responder.begin(head)?;
        let body = Body { rest, surplus: false, zero_copy };
        relay::pass_body(&self.context, responder, exchange, body).await
    }
}

/// Whether the upstream may name files in its response. One that speaks HTTP, SCGI or AJP may be any server: it names files of this
/// machine only where the operator has listed folders for that.
fn may_name_files(exchange: &Exchange, sendable: &Sendable) -> bool {
    !matches!(exchange, Exchange::Gateway(_)) || sendable.is_set_up()
}

/// The number of the pool whose program a FastCGI application of the site is.
fn pool_of(context: &Context<'_>, application: usize) -> Option<usize> {
    let Context { services, site, .. } = context;
    let Attachment { address: Address::Pool(name), .. } =
        services.config.sites.get(site.number)?.fastcgi.get(application)?
    else {
        return None;
    };
    services.config.pools.iter().position(|pool| pool.name == *name)
}

/// Whether nothing has reached the client.
pub(super) fn is_untouched(responder: &mut dyn Responder) -> bool {
    responder.lender().is_none_or(|lender| lender.is_untouched())
}

/// Tells the report, if there is one, which upstream answers, and passes early remarks on.
fn explain(responder: &mut dyn Responder, exchange: &Exchange, begun: &Begun) {
    let Some(report) = responder.report() else { return };
    report.answered_by(exchange.who());
    begun.explanations.iter().for_each(|text| report.remark(Remark::decode(text)));
    let name =
        named::named(&begun.head).or_else(|| Some(("X-Sendfile2", ranges::ranges(&begun.head)?)));
    if let Some((field, value)) = name {
        let what = format!("{field}: {}", String::from_utf8_lossy(value));
        report.remark(Remark { how: "file".to_owned(), what, ..Remark::default() });
    } else if let Exchange::Application(exchange) = exchange {
        report.remark(Remark {
            how: "bytes".to_owned(),
            from: begun
                .explanations
                .last()
                .map(|text| Remark::decode(text).from)
                .unwrap_or_default(),
            what: "a FastCGI application".to_owned(),
            why: handover(exchange.application(), exchange.is_framed()).to_owned(),
        });
    } else if let Exchange::Gateway(exchange) = exchange {
        let protocol = match exchange.gateway().proxy().protocol {
            ProxyProtocol::Http { .. } => "HTTP",
            ProxyProtocol::Scgi => "SCGI",
            ProxyProtocol::Ajp { .. } => "AJP",
        };
        report.remark(Remark {
            how: "bytes".to_owned(),
            what: format!("an application that speaks {protocol}"),
            why: "the protocol knows no files".to_owned(),
            ..Remark::default()
        });
    }
}

/// Which ways of handing over a FastCGI application has shown to know, for `sendoff explain`.
fn handover(application: &Application, is_framed: bool) -> &'static str {
    if is_framed {
        "it hands over files, and copies the rest"
    } else if application.knows_channel() {
        "it can hand over files, but did not in this response: the first one after a start, or its user may take no lease \
         (docs/fastcgi.md)"
    } else if application.knows_region() || application.knows_direct() != Sockets::None {
        "it hands over memory, no files"
    } else {
        "it has not said that it knows handover: php-fpm does with the extension sendoff.so (docs/fastcgi.md)"
    }
}
