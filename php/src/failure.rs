//! Errors that end the PHP master, and their exit statuses.

use std::fmt::{self, Display};
use std::io;

/// The reason why the PHP master cannot start or continue: one sentence for the operator.
#[derive(Debug)]
pub(crate) enum Failure {
    /// PHP refuses its settings. It has written the reason to standard error.
    Php,
    /// The system refused something.
    System(String),
    /// The descriptors or the configuration left by the supervisor are unusable.
    Internal(String),
}

impl Failure {
    /// Wraps an error of the system: "what: error".
    pub(crate) fn system(what: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System(format!("{what}: {error}"))
    }

    /// The exit status. `sendoff` uses the same values, and passes this one on.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::System(_) => 1,
            Self::Php => 2,
            Self::Internal(_) => 70,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Php => f.write_str("PHP does not start"),
            Self::System(why) | Self::Internal(why) => f.write_str(why),
        }
    }
}
