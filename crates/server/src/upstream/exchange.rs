//! One request and its answer, whoever answers.

use super::fastcgi::application::FastcgiExchange;
use super::inbox::Event;
use super::worker::link::WorkerExchange;

/// One request and its answer. Dropped before the last event, it abandons the rest.
#[derive(Debug)]
pub enum Exchange {
    /// With one of our workers.
    Worker(WorkerExchange),
    /// With a FastCGI application that somebody else has started.
    Application(FastcgiExchange),
}

impl Exchange {
    /// The next event, if it is there already.
    #[must_use]
    pub fn try_next(&self) -> Option<Event> {
        match self {
            Self::Worker(exchange) => exchange.inbox().take(),
            Self::Application(exchange) => exchange.try_next(),
        }
    }

    /// The next event.
    pub async fn next(&self) -> Event {
        match self {
            Self::Worker(exchange) => exchange.inbox().next().await,
            Self::Application(exchange) => exchange.next().await,
        }
    }

    /// Who answers, for the log.
    #[must_use]
    pub fn who(&self) -> String {
        match self {
            Self::Worker(exchange) => format!("worker {}", exchange.worker_pid()),
            Self::Application(exchange) => exchange.application().address().to_string(),
        }
    }

    /// Whether whoever answers could have been lent the client's socket.
    #[must_use]
    pub fn knows_direct(&self) -> bool {
        match self {
            Self::Worker(_) => true,
            Self::Application(exchange) => exchange.knows_direct(),
        }
    }

    /// Whoever answers has said what cannot be true.
    pub(crate) fn give_up(&self, why: &str) {
        if let Self::Worker(exchange) = self {
            exchange.give_up(why);
        }
    }

    /// Lets the application finish, and drops what it still says.
    pub fn drain(self) {
        tokio::task::spawn_local(async move { while !self.next().await.is_last() {} });
    }
}
