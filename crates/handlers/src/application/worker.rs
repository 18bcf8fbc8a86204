//! Requests to workers of a pool: from the offer of the client's socket to the beginning of the
//! response.
//!
//! The request is sent to another worker only if the first has died before it read the request
//! ([`Retry::Safe`]), and nothing has reached the client.

use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use sendoff_application_response::beginning::NoAnswer;
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_application_response::failure::ApplicationFailure;
use sendoff_exchange::sink::{Sink, unless_gone};
use sendoff_fastcgi::handover::{ACCEPT_PARAM, Sockets};
use sendoff_message::request;
use sendoff_report::at_work::Phase;
use sendoff_site_files::router::Script;
use sendoff_upstream::error::{Retry, UpstreamErrorKind};
use sendoff_upstream::fastcgi_request::{RequestMessage, RequestMessageBuilder};
use sendoff_upstream_worker::link::LocalPool;
use sendoff_upstream_worker::posted::{Acquired, RequestNotes};
use tokio::time::Instant;

use crate::application::accept::accepted;
use crate::application::direct::{self, LendOutcome};
use crate::application::read_start;
use crate::application::script::{Answered, Call, is_untouched};
use crate::pages::pool;

/// Number of workers that may die before they have read a request; after that the request is
/// answered with 502.
const MAX_TRIES: usize = 8;

impl Call<'_> {
    /// Sends the request to a worker of the pool, and to the next one if a worker dies before it
    /// has read the request.
    pub(crate) async fn send_to_worker(
        &mut self,
        script: &Script,
        pool: &LocalPool,
        mut parameters: RequestMessageBuilder,
        sink: &mut dyn Sink,
    ) -> (Answered, LendOutcome) {
        let offer = direct::offer(&self.context, script, Sockets::All, sink, &mut parameters);
        let explained = sink.client().report().is_some();
        let accept = accepted(self.context.site.delivery, explained, offer == LendOutcome::Lent);
        parameters.param(ACCEPT_PARAM, &accept);
        let message = match &self.context.request.body {
            request::Body::Memory(bytes) => parameters.with_bytes(bytes),
            request::Body::File { descriptor, len } => {
                parameters.with_file(Rc::clone(descriptor), *len)
            }
            request::Body::Stream(_) => {
                let why = "a worker gets no request body that is still arriving";
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                let failure = ApplicationFailure::new(status, why);
                return (Err(failure.into()), offer);
            }
        };
        let message = message.with_deadline(self.context.effects.settings.request_timeout);
        (self.ask_worker(script, pool, &message, sink).await, offer)
    }

    async fn ask_worker(
        &mut self,
        script: &Script,
        pool: &LocalPool,
        message: &RequestMessage,
        sink: &mut dyn Sink,
    ) -> Answered {
        let number = self.context.services.number;
        let described = pool::described(&self.context, script);
        let name = sink.client().notes().pool;
        let name = name.and_then(|number| self.context.services.config.pools.get(number));
        let name = name.map_or("", |pool| &*pool.name);
        for _ in 0..MAX_TRIES {
            sink.client().notes().note_phase(Phase::Waiting);
            let waiting = RequestNotes {
                label: Rc::clone(self.log_name()),
                task: sink.client().notes().task.clone(),
                described: described.clone(),
            };
            let acquired = unless_gone(sink, pool.acquire(number, message, &waiting)).await?;
            let exchange = match acquired.map_err(ApplicationFailure::from)? {
                Acquired::Posted(exchange) => exchange,
                Acquired::Permit(permit) => {
                    self.note_given(Instant::now(), sink);
                    if let Some(request) = &described {
                        permit.describe(Arc::clone(request), self.since);
                    }
                    let link = Rc::clone(permit.link());
                    let borrower = format_args!("worker {} of pool {name}", link.pid());
                    let socket = sink.client().lender().and_then(|lender| lender.socket(&borrower));
                    match permit.begin(message, socket, Rc::clone(self.log_name())) {
                        Ok(exchange) => {
                            if let Some(task) = &sink.client().notes().task {
                                link.note_task(task);
                            }
                            exchange
                        }
                        Err(error) if error.kind() == UpstreamErrorKind::Died => continue,
                        Err(error) => return Err(ApplicationFailure::from(error).into()),
                    }
                }
            };
            let exchange = UpstreamExchange::Worker(exchange);
            let begun = read_start(&exchange, &self.context, sink).await;
            if let UpstreamExchange::Worker(exchange) = &exchange
                && let Some(at) = exchange.taken_at()
            {
                self.note_given(at, sink);
            }
            match begun? {
                Ok(answer) => return Ok((exchange, answer)),
                Err(NoAnswer::Silent(why)) if why.is_outage() => {
                    return Err(ApplicationFailure::from(why).into());
                }
                Err(NoAnswer::Silent(why)) if why.retry() == Retry::Safe => {
                    if !is_untouched(sink) {
                        let why = format!("{} wrote to the client and died", exchange.who());
                        return Err(ApplicationFailure::bad_gateway(why).into());
                    }
                }
                Err(NoAnswer::Silent(why)) => {
                    return Err(ApplicationFailure::from(why).of(&exchange.who()).into());
                }
                Err(NoAnswer::Failed(failure)) => return Err(failure.of(&exchange.who()).into()),
            }
        }
        Err(ApplicationFailure::bad_gateway(format!(
            "{MAX_TRIES} workers died before they read it"
        ))
        .into())
    }

    /// Notes when a worker got the request.
    fn note_given(&mut self, at: Instant, sink: &mut dyn Sink) {
        let waited = at.saturating_duration_since(std::mem::replace(&mut self.since, at));
        let notes = sink.client().notes();
        (notes.queued, notes.given) = (Some(waited), Some(at));
    }
}
