//! The two kinds of peer, and the rules that differ between them.

use sendoff_fastcgi::record::{AUTHORIZER, FILTER, RESPONDER};

/// The role that a request gives the application (FastCGI §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Answers a request.
    #[default]
    Responder,
    /// Decides whether a request is allowed. It gets no body.
    Authorizer,
    /// Answers a request with the changed contents of a file, which it gets as a second body.
    Filter,
}

/// The roles that an application accepts; others are refused with `FCGI_UNKNOWN_ROLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// See [`Role::Responder`].
    pub responder: bool,
    /// See [`Role::Authorizer`].
    pub authorizer: bool,
    /// See [`Role::Filter`].
    pub filter: bool,
}

/// The process at the other end of the link.
#[derive(Debug, Clone, Copy)]
pub enum Peer {
    /// A Sendoff front, on links that were created for this worker.
    Front,
    /// Any web server, on a connection that it opened.
    Server(Roles),
}

impl Peer {
    /// The role with this number, if the application accepts it.
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

    /// True if this end closes the connection after a request without `FCGI_KEEP_CONN` (FastCGI
    /// §3.5).
    #[must_use]
    pub fn closes_connections(self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// True if the peer may close its sending half after the request and still expect the response.
    #[must_use]
    pub fn may_half_close(self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// True if a connection on which the application answers may come along with a request.
    #[must_use]
    pub fn brings_tunnels(self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// True if `STDOUT` must be ended even if it is empty (FastCGI §6.2). A Sendoff front does not
    /// require it.
    pub fn wants_every_stdout_ended(self) -> bool {
        matches!(self, Self::Server(_))
    }
}
