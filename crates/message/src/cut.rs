//! The reason why a response does not reach its client completely, and the party at fault.

use std::fmt;
use std::io;

/// The party at fault.
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
    /// The party at fault.
    pub fault: Fault,
    /// The reason, for the log.
    pub why: String,
}

impl Cut {
    /// The application caused the cut.
    pub fn application(why: impl Into<String>) -> Self {
        Self { fault: Fault::Application, why: why.into() }
    }

    /// No byte has passed between a client and an application for longer than `tunnel_timeout`.
    pub fn idle_tunnel() -> Self {
        let why = "nothing has passed in either direction for longer than tunnel_timeout";
        Self { fault: Fault::Client, why: why.to_owned() }
    }

    /// The client has closed its connection.
    pub fn client_gone() -> Self {
        Self { fault: Fault::Client, why: "the client has closed the connection".to_owned() }
    }

    /// Logs the reason, with the request's name in log lines.
    pub fn log(&self, request: &str) {
        match self.fault {
            Fault::Client => tracing::info!(request, "the response ends early: {self}"),
            Fault::Application | Fault::Server => {
                tracing::error!(request, "a response was cut short: {self}");
            }
        }
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
