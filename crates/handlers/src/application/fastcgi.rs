//! Requests to FastCGI applications: one host after the other, and each host again where
//! [the rule of repeating a request](super::retry) permits it.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sendoff_application_response::beginning::{NoAnswer, ReceivedHead, ResponseStart};
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_application_response::failure::ApplicationFailure;
use sendoff_exchange::sink::{Sink, unless_gone};
use sendoff_report::at_work::Phase;
use sendoff_transport::lent::LentSocket;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::fastcgi_request::{RequestMessageBuilder, StreamedRequest};
use sendoff_upstream::hosts::Tried;
use sendoff_upstream_fastcgi::application::{Application, SentAlong};
use sendoff_upstream_fastcgi::attached::Attached;
use sendoff_upstream_fastcgi::shared::Reuse;
use sendoff_upstream_worker::claims::Claim;

use crate::application::announce::{self, Offered};
use crate::application::direct::{self, LendOutcome};
use crate::application::read_start;
use crate::application::retry::{is_repeatable, log_retry};
use crate::application::script::{Answered, Call, Role, Unanswered, is_untouched};
use crate::application::tunnel::TunnelOffer;

/// A response that has begun.
type Response = (UpstreamExchange, ResponseStart);

/// The reason why an attempt has brought no response.
enum FailedAttempt {
    /// No byte of an answer has come.
    Silent(UpstreamError),
    Other(Unanswered),
}

impl<T: Into<Unanswered>> From<T> for FailedAttempt {
    fn from(why: T) -> Self {
        Self::Other(why.into())
    }
}

impl Call<'_> {
    /// Sends the request to one host after the other, until one of them answers.
    pub(crate) async fn send_to_host(
        &mut self,
        role: Role<'_>,
        hosts: &Attached,
        mut parameters: RequestMessageBuilder,
        sink: &mut dyn Sink,
    ) -> (Answered, LendOutcome) {
        let is_repeatable = is_repeatable(self.context.request);
        let mut tried = Tried::none(self.context.request, hosts);
        loop {
            sink.client().notes().note_phase(Phase::Waiting);
            let attempt = match unless_gone(sink, hosts.choose(&mut tried)).await {
                Ok(Ok(attempt)) => attempt,
                Ok(Err(why)) => {
                    let failure = ApplicationFailure::from(why).of(&hosts.name());
                    return (Err(failure.into()), LendOutcome::Impossible);
                }
                Err(cut) => return (Err(cut.into()), LendOutcome::Impossible),
            };
            if attempt.binds() {
                // A borrower would write the head without the cookie.
                sink.client().withhold_socket();
            }
            // Another host may know other ways of handing over.
            let own = match hosts.count() {
                1 => std::mem::take(&mut parameters),
                _ => parameters.clone(),
            };
            let (answered, offer) = self.send_to_application(role, attempt.host(), own, sink).await;
            let why = match answered {
                Ok((mut exchange, answer)) => {
                    attempt.answered();
                    if let UpstreamExchange::Application(exchange) = &mut exchange {
                        exchange.hold(attempt);
                    }
                    return (Ok((exchange, answer)), offer);
                }
                Err(FailedAttempt::Other(why)) => {
                    if let Unanswered::Failed(ApplicationFailure { why, .. }) = &why {
                        let kind = UpstreamErrorKind::Broken;
                        attempt.failed(&UpstreamError::new(kind, Retry::Unsafe, why.clone()));
                    }
                    return (Err(why), offer);
                }
                Err(FailedAttempt::Silent(why)) => why,
            };
            attempt.failed(&why);
            let may_try_another = tried.may_try_another(&why, is_repeatable, hosts);
            let is_spent = self.context.request.body.is_spent();
            if !may_try_another || is_spent || !is_untouched(sink) {
                let failure = ApplicationFailure::from(why).of(attempt.host().address());
                return (Err(failure.into()), offer);
            }
            log_retry(attempt.host().address(), self.log_name(), &why);
        }
    }

    async fn send_to_application(
        &mut self,
        role: Role<'_>,
        application: &Arc<Application>,
        mut parameters: RequestMessageBuilder,
        sink: &mut dyn Sink,
    ) -> (Result<Response, FailedAttempt>, LendOutcome) {
        let (message, claim, offer, tunnel) = match role {
            Role::Responder(script) => {
                let tunnel = TunnelOffer::make(&self.context, application, sink, &mut parameters);
                let offer = match tunnel {
                    Some(_) => LendOutcome::Impossible,
                    None => {
                        let takes = application.knows_direct();
                        direct::offer(&self.context, script, takes, sink, &mut parameters)
                    }
                };
                let offered = Offered {
                    direct: offer == LendOutcome::Lent,
                    tunnel: tunnel.is_some(),
                    explained: sink.client().report().is_some(),
                };
                let claim =
                    announce::announce(&self.context, application, offered, &mut parameters);
                let body = &self.context.request.body;
                let message = match &self.context.effects.filtered {
                    Some(file) => parameters.filtered(body, file.as_file(), file.modified),
                    None => parameters.streamed(body),
                };
                (message, claim, offer, tunnel)
            }
            // An authorizer's answer is short, so no way of handing over is offered.
            Role::Authorizer => (parameters.question(), None, LendOutcome::Impossible, None),
        };
        let message = Rc::new(message);
        let theirs = tunnel.as_ref().map(TunnelOffer::for_application);
        let answered = self.ask_application(application, message, claim, theirs, sink).await;
        let answered = match (answered, tunnel) {
            (Ok((exchange, ResponseStart::Tunnel)), Some(tunnel)) => {
                self.answered_on(tunnel, exchange, application.timeout(), sink).await
            }
            (answered, _) => answered,
        };
        (answered, offer)
    }

    /// Waits for the answer on the connection that was sent along with the request.
    async fn answered_on(
        &self,
        tunnel: TunnelOffer,
        exchange: UpstreamExchange,
        silence: Duration,
        sink: &mut dyn Sink,
    ) -> Result<Response, FailedAttempt> {
        let who = exchange.who();
        let failure = match tunnel.answer(&self.context, exchange, silence, sink).await? {
            Ok(response) => return Ok(response),
            Err(NoAnswer::Failed(failure)) => failure,
            // No other host may be asked: the application has had the request.
            Err(NoAnswer::Silent(why)) => ApplicationFailure::from(why),
        };
        Err(failure.of(&who).into())
    }

    /// Asks one application. Asks again, once, if it may have left the request unread because it
    /// closed a kept connection at that moment, or if other requests shared the connection.
    async fn ask_application(
        &mut self,
        application: &Arc<Application>,
        message: Rc<StreamedRequest>,
        claim: Option<Rc<Claim>>,
        tunnel: Option<BorrowedFd<'_>>,
        sink: &mut dyn Sink,
    ) -> Result<Response, FailedAttempt> {
        let is_repeatable = is_repeatable(self.context.request);
        let mut reuse = if is_repeatable { Reuse::Any } else { Reuse::Busy };
        loop {
            let (message, log_name) = (Rc::clone(&message), Rc::clone(self.log_name()));
            // A copy of the descriptor, because `unless_gone` borrows the sink while the connection
            // is made.
            let borrower = application.address();
            let socket = sink.client().lender().and_then(|lender| lender.socket(&borrower));
            let socket = socket.and_then(|socket| LentSocket::of(socket).ok());
            let along = match (tunnel, &socket) {
                (Some(tunnel), _) => SentAlong::Tunnel(tunnel),
                (None, Some(socket)) => SentAlong::Client(socket.as_fd()),
                (None, None) => SentAlong::Nothing,
            };
            let begun = application.begin(message, reuse, along, log_name);
            let exchange = unless_gone(sink, begun).await?.map_err(FailedAttempt::Silent)?;
            sink.client().notes().note_phase(Phase::Running);
            let mut exchange = UpstreamExchange::Application(Box::new(exchange));
            let why = match read_start(&exchange, &self.context, sink).await? {
                Ok(mut answer) => {
                    if let ResponseStart::Head(begun) = &mut answer {
                        let ReceivedHead { head, rest, .. } = &mut **begun;
                        announce::look_for_frames(application, &mut exchange, claim, head, rest);
                    }
                    return Ok((exchange, answer));
                }
                Err(NoAnswer::Failed(failure)) => return Err(failure.of(&exchange.who()).into()),
                Err(NoAnswer::Silent(why)) => why,
            };
            let is_shared = matches!(&exchange, UpstreamExchange::Application(exchange) if exchange.is_shared());
            // The request was refused or not sent, because other requests share the connection.
            let needs_own =
                is_shared && why.retry() == Retry::Safe && !self.context.request.body.is_spent();
            if why.kind() != UpstreamErrorKind::Died && !needs_own {
                return Err(FailedAttempt::Silent(why));
            }
            let is_unread = reuse == Reuse::Any && why.retry() == Retry::Safe;
            // On a shared connection another request may have been the cause.
            let may_repeat = needs_own || (is_repeatable && (is_unread || is_shared));
            reuse = Reuse::Own;
            if !may_repeat || !is_untouched(sink) {
                return Err(FailedAttempt::Silent(why));
            }
        }
    }
}
