//! One request and its response: the same interface for handlers, whichever upstream answers.

use sendoff_config::GatewayProtocol;
use sendoff_http1::Field;
use sendoff_upstream::hosts::HostCookie;
use sendoff_upstream::inbox::Event;
use sendoff_upstream_fastcgi::application::FastcgiExchange;
use sendoff_upstream_gateway::GatewayExchange;
use sendoff_upstream_worker::link::WorkerExchange;

/// One request and its response. Dropping it before the last event aborts the request: a worker is
/// sent `ABORT_REQUEST`, an application's connection is closed unless it is shared. Dropping the
/// future of [`Self::next`] loses no event.
#[derive(Debug)]
pub enum UpstreamExchange {
    /// With a worker of the pool.
    Worker(WorkerExchange),
    /// With a FastCGI application that was started elsewhere.
    Application(Box<FastcgiExchange>),
    /// With an application that speaks HTTP, SCGI, uwsgi or AJP.
    Gateway(Box<GatewayExchange>),
}

impl UpstreamExchange {
    /// The next event, if it is there already.
    #[must_use]
    pub fn try_next(&self) -> Option<Event> {
        match self {
            Self::Worker(exchange) => exchange.inbox().take(),
            Self::Application(exchange) => exchange.try_next(),
            Self::Gateway(exchange) => exchange.try_next(),
        }
    }

    /// The next event.
    pub async fn next(&self) -> Event {
        match self {
            Self::Worker(exchange) => exchange.inbox().next().await,
            Self::Application(exchange) => exchange.next().await,
            Self::Gateway(exchange) => exchange.next().await,
        }
    }

    /// The worker or application, for the log.
    #[must_use]
    pub fn who(&self) -> String {
        match self {
            Self::Worker(exchange) => match exchange.worker_pid() {
                Some(pid) => format!("worker {pid}"),
                None => "a worker".to_owned(),
            },
            Self::Application(exchange) => exchange.who(),
            Self::Gateway(exchange) => exchange.who(),
        }
    }

    /// The cookie that binds the client to the host; `None`: the client is not bound, or has the
    /// cookie already.
    #[must_use]
    pub fn new_cookie(&self) -> Option<HostCookie<'_>> {
        match self {
            Self::Worker(_) => None,
            Self::Application(exchange) => exchange.attempt()?.new_cookie(),
            Self::Gateway(exchange) => exchange.attempt()?.new_cookie(),
        }
    }

    /// Names the host in the application's cookie that binds clients, if the response sets it.
    pub fn tag_cookie(&self, fields: &mut [Field]) {
        match self {
            Self::Worker(_) => {}
            Self::Application(exchange) => {
                exchange.attempt().into_iter().for_each(|attempt| attempt.tag_cookie(fields));
            }
            Self::Gateway(exchange) => {
                exchange.attempt().into_iter().for_each(|attempt| attempt.tag_cookie(fields));
            }
        }
    }

    /// The reason for the choice of the host; `None`: its load, or it is the only one.
    #[must_use]
    pub fn chosen_by(&self) -> Option<String> {
        match self {
            Self::Worker(_) => None,
            Self::Application(exchange) => exchange.attempt()?.chosen_by(),
            Self::Gateway(exchange) => exchange.attempt()?.chosen_by(),
        }
    }

    /// True if the upstream could have been lent the client's socket.
    #[must_use]
    pub fn knows_direct(&self) -> bool {
        match self {
            Self::Worker(_) => true,
            Self::Application(exchange) => exchange.knows_direct(),
            Self::Gateway(_) => false,
        }
    }

    /// True if the end of the response may come long after a body of the announced length. Over other
    /// protocols the length ends the response, or the end is a part of the last message.
    #[must_use]
    pub fn may_end_late(&self) -> bool {
        match self {
            Self::Worker(_) | Self::Application(_) => true,
            Self::Gateway(exchange) => exchange
                .gateway()
                .is_some_and(|gateway| matches!(gateway.proxy().protocol, GatewayProtocol::Scgi)),
        }
    }

    /// Takes the request back if the upstream has not got it. Returns false if it may have begun to
    /// answer.
    #[must_use]
    pub(crate) fn withdraw(&self) -> bool {
        match self {
            Self::Worker(exchange) => exchange.withdraw(),
            Self::Application(_) | Self::Gateway(_) => false,
        }
    }

    /// Gives up a worker whose report cannot be true: the worker gets no more requests. Has no
    /// effect on other upstreams.
    pub fn give_up(&self, why: &str) {
        if let Self::Worker(exchange) = self {
            exchange.give_up(why);
        }
    }

    /// Lets the script finish, and drops the rest of its response.
    pub fn drain(self) {
        tokio::task::spawn_local(async move { while !self.next().await.is_last() {} });
    }
}
