//! Why the PHP master ends, and with which exit status.

use std::fmt::{self, Display};
use std::io;

/// Why the PHP master cannot start or go on: one sentence for the operator.
#[derive(Debug)]
pub(crate) enum Failure {
    /// PHP refuses its settings. It has written why to standard error.
    Php,
    /// The system refused something.
    System(String),
    /// What the supervisor left is not usable.
    Internal(String),
}

impl Failure {
    /// For an error of the system: "what: error".
    pub(crate) fn system(what: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System(format!("{what}: {error}"))
    }

    /// The exit status; the same as those of `sendoff`, which passes them on.
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
