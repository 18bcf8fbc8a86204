//! The kind of peer, and the rules that differ between kinds.

use sendoff_fastcgi::record::{AUTHORIZER, FILTER, RESPONDER};

/// What an application is asked to be (FastCGI §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Answers a request.
    #[default]
    Responder,
    /// Says whether a request may be answered. It gets no body.
    Authorizer,
    /// Answers a request with a changed file, which is a second body.
    Filter,
}

/// The roles that an application takes; any other is refused with `FCGI_UNKNOWN_ROLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// See [`Role::Responder`].
    pub responder: bool,
    /// See [`Role::Authorizer`].
    pub authorizer: bool,
    /// See [`Role::Filter`].
    pub filter: bool,
}

/// The other end.
#[derive(Debug, Clone, Copy)]
pub enum Peer {
    /// Our front, on links that it made for this worker.
    Front,
    /// Any web server, on a connection that it opened.
    Server(Roles),
}

impl Peer {
    /// The role with this number, if it is taken.
    pub fn role(self, number: u16) -> Option<Role> {
        let roles = match self {
            Self::Front => Roles { responder: true, authorizer: false, filter: false },
            Self::Server(roles) => roles,
        };
        match number {
            RESPONDER if roles.responder => Some(Role::Responder),
            AUTHORIZER if roles.authorizer => Some(Role::Authorizer),
            FILTER if roles.filter => Some(Role::Filter),
            _ => None,
        }
    }

    /// Whether this end closes the connection after a request without `FCGI_KEEP_CONN` (FastCGI §3.5).
    #[must_use]
    pub fn closes_connections(self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Whether the peer may close its half after the request and still wants the answer.
    #[must_use]
    pub fn may_half_close(self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Whether `STDOUT` must be ended even if it is empty (FastCGI §6.2). Our front does not need that.
    pub fn wants_every_stdout_ended(self) -> bool {
        matches!(self, Self::Server(_))
    }
}
