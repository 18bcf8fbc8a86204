//! Scripts: has a worker or a FastCGI application answer, and sends the response to the client.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use http::{Method, StatusCode};
use sendoff_application_request::parameters::parameters;
use sendoff_application_response::beginning::ResponseStart;
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_application_response::failure::ApplicationFailure;
use sendoff_config::TUNNEL_TIMEOUT;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_report::at_work::Phase;
use sendoff_report::mode::Mode;
use sendoff_site_files::router::{Script, Upstream};
use tokio::time::Instant;

use crate::application::direct::{self, LendOutcome};
use crate::application::proxy::{self, SwitchedHead};
use crate::context::Context;
use crate::outcome::Outcome;

/// A request to an upstream.
pub(crate) struct Call<'a> {
    pub(crate) context: Context<'a>,
    log_name: OnceCell<Rc<str>>,
    /// When the answering worker got the request; before that, when the wait for it began.
    pub(super) since: Instant,
    /// The response is rate-limited: its time says nothing about the ways to send it.
    pub(crate) is_paced: Cell<bool>,
}

/// The role in which an application gets a request (FastCGI 1.0 §6).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role<'a> {
    /// The application answers for this script, or filters the file that the request's effects
    /// name.
    Responder(&'a Script),
    /// The application decides if the client may access the resource.
    Authorizer,
}

/// A response that has begun, or why there is none.
pub(crate) type Answered = Result<(UpstreamExchange, ResponseStart), Unanswered>;

/// The reason why there is no response.
pub(crate) enum Unanswered {
    Failed(ApplicationFailure),
    Cut(Cut),
}

impl From<ApplicationFailure> for Unanswered {
    fn from(failure: ApplicationFailure) -> Self {
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
pub(crate) async fn respond(
    context: &Context<'_>,
    script: &Script,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let Context { services, site, request, .. } = *context;
    let mut call = Call::new(*context);
    let (answered, offer) = match script.upstream {
        Upstream::Workers(number) => {
            sink.client().notes().pool = Some(number);
            let pool = &services.pools[number];
            let parameters = context.for_worker(|asked| parameters(asked, script));
            call.send_to_worker(script, pool, parameters, sink).await
        }
        Upstream::Application(number) => {
            let hosts = &services.attached[site.number][number];
            sink.client().notes().pool = pool_of(context, number);
            let role = Role::Responder(script);
            let parameters = context.for_hosts(hosts, |asked| parameters(asked, script));
            Box::pin(call.send_to_host(role, hosts, parameters, sink)).await
        }
    };
    let (exchange, answer) = match answered {
        Ok(answered) => answered,
        Err(Unanswered::Cut(cut)) => return Err(cut),
        Err(Unanswered::Failed(failure)) => {
            return call.fail(failure, offer == LendOutcome::Lent, sink).await;
        }
    };
    let notes = sink.client().notes();
    notes.note_phase(Phase::Sending);
    match &exchange {
        UpstreamExchange::Worker(exchange) => {
            notes.worker = exchange.worker_pid().and_then(|pid| u32::try_from(pid).ok());
        }
        UpstreamExchange::Application(_) | UpstreamExchange::Gateway(_) => {
            notes.upstream = Some(exchange.who());
        }
    }
    // The socket is not lent on a new connection to an application, so the response's time says
    // nothing about offers.
    let could_lend = exchange.knows_direct();
    notes.mode = if matches!(answer, ResponseStart::Sent(_)) { Mode::Direct } else { Mode::Relay };
    let status = match &answer {
        ResponseStart::Head(begun) => begun.head.status.as_u16(),
        ResponseStart::Sent(sent) => sent.status,
        ResponseStart::Tunnel | ResponseStart::Switch(_) => {
            StatusCode::SWITCHING_PROTOCOLS.as_u16()
        }
    };
    let outcome = match answer {
        ResponseStart::Head(begun) => call.pass_on(exchange, begun, sink).await,
        ResponseStart::Sent(sent) => {
            direct::take_over(context, sink, exchange, sent).await.map(|()| Outcome::Sent)
        }
        ResponseStart::Switch(head) => {
            let UpstreamExchange::Gateway(exchange) = exchange else {
                return Ok(Outcome::refused(StatusCode::BAD_GATEWAY, []));
            };
            let limit = context.effects.settings.tunnel_timeout.unwrap_or(TUNNEL_TIMEOUT);
            let head = SwitchedHead { head, cookie: None };
            return proxy::switch(*exchange, head, limit);
        }
        // Only a request that offers a connection gets this answer, and follows it.
        ResponseStart::Tunnel => return Ok(Outcome::refused(StatusCode::BAD_GATEWAY, [])),
    }?;
    if request.method != Method::HEAD && status != StatusCode::NOT_MODIFIED.as_u16() {
        let client = sink.client();
        let generated = client.notes().generated;
        services.sizes.note(script, generated);
        let is_timed = client.kept_up() && !call.is_paced.get();
        if could_lend && offer != LendOutcome::Impossible && is_timed {
            let choice = services.lending.of(request);
            choice.note(generated, offer == LendOutcome::Lent, call.since.elapsed());
        }
    }
    Ok(outcome)
}

impl<'a> Call<'a> {
    pub(crate) fn new(context: Context<'a>) -> Self {
        Self {
            context,
            log_name: OnceCell::new(),
            since: Instant::now(),
            is_paced: Cell::new(false),
        }
    }

    /// The request's name in the log.
    pub(crate) fn log_name(&self) -> &Rc<str> {
        self.log_name.get_or_init(|| self.context.request.shown().into())
    }
}

impl Call<'_> {
    /// Answers with an error page, unless another process has written to the client.
    pub(crate) async fn fail(
        &self,
        failure: ApplicationFailure,
        was_lent: bool,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Cut> {
        if !is_untouched(sink) {
            return Err(Cut::application(failure.why));
        }
        failure.log(self.log_name(), "");
        let status = failure.status;
        sink.client().notes().note_failure(status.as_u16());
        // A process that is late but alive still has the client's socket.
        if was_lent && status == StatusCode::GATEWAY_TIMEOUT {
            sink.client().close_after();
        }
        Ok(Outcome::refused(status, []))
    }
}

/// The number of the pool that runs a FastCGI application of the site, if it is a pool.
fn pool_of(context: &Context<'_>, application: usize) -> Option<usize> {
    let Context { services, site, .. } = context;
    let attachment = services.config.sites.get(site.number)?.fastcgi.get(application)?;
    services.config.pool_at(&attachment.address)
}

/// True if no other process has written to the client.
pub(crate) fn is_untouched(sink: &mut dyn Sink) -> bool {
    sink.client().lender().is_none_or(|lender| lender.is_untouched())
}
