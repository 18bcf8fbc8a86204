//! Requests to FastCGI applications: to which host of an upstream, and how often.
//!
//! A request is sent again only if no byte of an answer has come, nothing has reached the client, and either nothing of the request
//! was read or it may be repeated: it is idempotent (RFC 9110 §9.2.2), and its application was started elsewhere, where an administrator
//! ends processes at work, as by a reload of php-fpm. First over a new connection, because a process may have closed the
//! kept one at that moment; then to other hosts; and where there is no other, a few times to the same application.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sendoff_exchange::responder::{Responder, unless_gone};
use sendoff_report::at_work::Phase;
use sendoff_report::repeated::{self, Weight};
use sendoff_transport::lent::LentSocket;
use sendoff_upstream::cgi::{RequestMessageBuilder, StreamedRequest};
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::hosts::Tried;
use sendoff_upstream_fastcgi::application::Application;
use sendoff_upstream_fastcgi::attached::Attached;
use sendoff_upstream_fastcgi::shared::Over;
use sendoff_upstream_worker::claims::Claim;
use tokio::time::Instant;

use super::announce;
use super::answer::{self, Answer, Begun, NoAnswer};
use super::direct::{self, Offer};
use super::script::{Answered, Call, Role, Unanswered, is_untouched};
use super::status::Failure;
use crate::exchange::Exchange;

/// Processes of one host that may die one after the other at work on a request that may be repeated, and alone: a script that kills its
/// process does not end all of them.
const MAX_DEATHS: u32 = 4;

/// For how long a request is repeated while processes die together: something ends them that is not the script. A reload of php-fpm ends
/// all of them, and a script of 50 ms met four reloads in a row when they came every 60 ms.
const STORM: Duration = Duration::from_secs(10);

/// The pause before the request is repeated; it doubles with each death. In the pause it shows which other processes have died, and the
/// next one may be about to be killed as well.
const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(160);

/// A response that has begun.
type Response = (Exchange, Answer);

/// Why an attempt has brought no response.
enum Failed {
    /// No byte of an answer has come.
    Silent(UpstreamError),
    Other(Unanswered),
}

impl<T: Into<Unanswered>> From<T> for Failed {
    fn from(why: T) -> Self {
        Self::Other(why.into())
    }
}

impl Call<'_> {
    /// Whether the request may be sent again after an application has read it.
    fn is_repeatable(&self) -> bool {
        let request = self.context.request;
        request.method.is_idempotent() && request.body.is_repeatable()
    }

    /// Sends the request to one host after the other, until one answers.
    pub(super) async fn send_to_host(
        &mut self,
        role: Role<'_>,
        hosts: &Attached,
        mut parameters: RequestMessageBuilder,
        responder: &mut dyn Responder,
    ) -> (Answered, Offer) {
        let is_repeatable = self.is_repeatable();
        let mut tried = Tried::default();
        loop {
            responder.notes().is_at(Phase::Waiting);
            let turn = match unless_gone(responder, hosts.choose(&mut tried)).await {
                Ok(Ok(turn)) => turn,
                Ok(Err(why)) => {
                    let failure = Failure::from(why).of(&hosts.name());
                    return (Err(failure.into()), Offer::Impossible);
                }
                Err(cut) => return (Err(cut.into()), Offer::Impossible),
            };
            let is_only_host = hosts.count() == 1;
            // Another host may know other ways of handing over.
            let own = match is_only_host {
                true => std::mem::take(&mut parameters),
                false => parameters.clone(),
            };
            let (answered, offer) =
                self.send_to_application(role, turn.host(), own, is_only_host, responder).await;
            let why = match answered {
                Ok((Exchange::Application(mut exchange), answer)) => {
                    turn.answered();
                    exchange.hold(turn);
                    return (Ok((Exchange::Application(exchange), answer)), offer);
                }
                Ok(other) => return (Ok(other), offer),
                Err(Failed::Other(why)) => {
                    if let Unanswered::Failed(Failure { why, .. }) = &why {
                        let kind = UpstreamErrorKind::Broken;
                        turn.failed(&UpstreamError::new(kind, Retry::Unsafe, why.clone()));
                    }
                    return (Err(why), offer);
                }
                Err(Failed::Silent(why)) => why,
            };
            turn.failed(&why);
            let may_go_on = tried.may_go_on(&why, is_repeatable, hosts);
            let is_spent = self.context.request.body.is_spent();
            if !may_go_on || is_spent || !is_untouched(responder) {
                let failure = Failure::from(why).of(turn.host().address());
                return (Err(failure.into()), offer);
            }
            let (host, request) = (turn.host().address(), &**self.log_name());
            if !why.is_outage()
                || repeated::is_first(
                    Weight::Info,
                    &format!("sent to another host than {host}: {why}"),
                )
            {
                tracing::info!(%host, request, "sent to another host: {why}");
            }
        }
    }

    async fn send_to_application(
        &mut self,
        role: Role<'_>,
        application: &Arc<Application>,
        mut parameters: RequestMessageBuilder,
        is_only_host: bool,
        responder: &mut dyn Responder,
    ) -> (Result<Response, Failed>, Offer) {
        let (message, claim, offer) = match role {
            Role::Responder(script) => {
                let takes = application.knows_direct();
                let offer = direct::offer(&self.context, script, takes, responder, &mut parameters);
                let (is_offered, explained) = (offer == Offer::Made, responder.report().is_some());
                let claim = announce::announce(
                    &self.context,
                    application,
                    is_offered,
                    explained,
                    &mut parameters,
                );
                let body = &self.context.request.body;
                let message = match &self.context.effects.filtered {
                    Some(file) => parameters.filtered(body, file.as_file(), file.modified),
                    None => parameters.streamed(body),
                };
                (message, claim, offer)
            }
            // Its answer is short: nothing is handed over.
            Role::Authorizer => (parameters.question(), None, Offer::Impossible),
        };
        let message = Rc::new(message);
        let answered =
            self.ask_application(application, message, claim, is_only_host, responder).await;
        (answered, offer)
    }

    /// Asks one application, again if its process is gone and the request may be repeated.
    async fn ask_application(
        &mut self,
        application: &Arc<Application>,
        message: Rc<StreamedRequest>,
        claim: Option<Rc<Claim>>,
        is_only_host: bool,
        responder: &mut dyn Responder,
    ) -> Result<Response, Failed> {
        let is_repeatable = self.is_repeatable();
        let mut over = if is_repeatable { Over::Any } else { Over::Busy };
        let (mut deaths, mut pause) = (0_u32, PAUSE);
        let storm_ends = Instant::now() + STORM;
        loop {
            let gone_before = application.connections_lost();
            let (message, log_name) = (Rc::clone(&message), Rc::clone(self.log_name()));
            // A copy of the descriptor, because `unless_gone` borrows the responder while the connection is made.
            let socket = responder.lender().and_then(|lender| lender.socket());
            let socket = socket.and_then(|socket| LentSocket::of(socket).ok());
            let client = socket.as_ref().map(AsFd::as_fd);
            let begun = application.begin(message, over, client, log_name);
            let exchange = unless_gone(responder, begun).await?.map_err(Failed::Silent)?;
            responder.notes().is_at(Phase::Running);
            let mut exchange = Exchange::Application(Box::new(exchange));
            let why = match answer::read(&exchange, self.context.request, responder).await? {
                Ok(mut answer) => {
                    if let Answer::Begun(begun) = &mut answer {
                        let Begun { head, rest, .. } = &mut **begun;
                        announce::look_for_frames(application, &mut exchange, claim, head, rest);
                    }
                    return Ok((exchange, answer));
                }
                Err(NoAnswer::Failed(failure)) => return Err(failure.of(&exchange.who()).into()),
                Err(NoAnswer::Silent(why)) => why,
            };
            let is_shared =
                matches!(&exchange, Exchange::Application(exchange) if exchange.is_shared());
            // It was refused, or not sent, because others share the connection.
            let needs_own =
                is_shared && why.retry() == Retry::Safe && !self.context.request.body.is_spent();
            if why.kind() != UpstreamErrorKind::Died && !needs_own {
                return Err(Failed::Silent(why));
            }
            let is_unread = needs_own || (over == Over::Any && why.retry() == Retry::Safe);
            over = Over::Own;
            let may_repeat = is_repeatable || needs_own;
            if !may_repeat || !is_untouched(responder) || (!is_unread && !is_only_host) {
                return Err(Failed::Silent(why));
            }
            // What has ended one process of a pool would end the next.
            if application.is_program() && why.retry() == Retry::Unsafe {
                return Err(Failed::Silent(why));
            }
            if is_unread {
                continue;
            }
            unless_gone(responder, tokio::time::sleep(pause)).await?;
            pause = (pause * 2).min(MAX_PAUSE);
            let is_alone = application.connections_lost() <= gone_before + 1;
            deaths += u32::from(is_alone);
            if deaths == MAX_DEATHS || Instant::now() > storm_ends {
                return Err(Failed::Silent(why));
            }
        }
    }
}
