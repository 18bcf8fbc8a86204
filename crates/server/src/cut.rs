//! Why a response does not reach its client whole, and whose fault that is.

use std::fmt;
use std::io;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client has gone, or takes nothing for too long.
    Client,
    /// The application died, lied, or broke its own announcements.
    Application,
    /// This server, or the machine under it.
    Server,
}

/// The end of a response before its time. Nothing may be sent on the connection any more.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) fault: Fault,
    /// What happened, for the log.
    pub(crate) why: String,
}

impl Cut {
    pub(crate) fn application(why: impl Into<String>) -> Self {
        Self { fault: Fault::Application, why: why.into() }
    }

    pub(crate) fn client_gone() -> Self {
        Self { fault: Fault::Client, why: "the client has closed the connection".to_owned() }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Cut {}

/// Of a send queue or a client's socket.
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
