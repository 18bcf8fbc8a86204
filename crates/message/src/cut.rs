//! Why a response does not reach its client completely, and whose fault that is.

use std::fmt;
use std::io;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The client has gone, or has taken nothing for the send timeout.
    Client,
    /// The application died, broke the protocol, or did not keep an announcement.
    Application,
    /// This server, or the machine under it.
    Server,
}

/// A response ends before it is complete. Nothing more may be sent on the connection.
#[derive(Debug)]
pub struct Cut {
    /// Who caused it.
    pub fault: Fault,
    /// What happened, for the log.
    pub why: String,
}

impl Cut {
    /// The application has caused it.
    pub fn application(why: impl Into<String>) -> Self {
        Self { fault: Fault::Application, why: why.into() }
    }

    /// Nothing has passed between a client and an application for longer than is allowed.
    pub fn idle_tunnel() -> Self {
        let why = "nothing has passed in either direction for longer than tunnel_timeout";
        Self { fault: Fault::Client, why: why.to_owned() }
    }

    /// The client has closed its connection.
    pub fn client_gone() -> Self {
        Self { fault: Fault::Client, why: "the client has closed the connection".to_owned() }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Cut {}

/// For errors of a send queue or a client's socket.
impl From<io::Error> for Cut {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut,
        };
        let fault = match error.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | TimedOut => {
                Fault::Client
            }
            _ => Fault::Server,
        };
        Self { fault, why: error.to_string() }
    }
}
