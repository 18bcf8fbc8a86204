//! Errors that end a process of the server, and their exit statuses.

use std::fmt::{self, Display};
use std::io;
use std::process::ExitCode;

use sendoff_control::CommandError;

/// The reason why a process of the server cannot start or continue: one sentence for the operator.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the configuration asks for something impossible: the operator must
    /// change it.
    Input(String),
    /// The system refused something: the operator must change the machine, or try again.
    System(String),
    /// The parts of the server do not fit together: a defect, or files of different versions.
    Internal(String),
    /// The work is done, with a remainder that the operator must look at.
    Incomplete(String),
    /// A child process has reported the error itself, and ended with this status.
    Said(u8),
}

/// The exit statuses of every command and of the server; docs/operate.md has the same table.
pub(crate) const EXIT_STATUSES: [(u8, &str); 5] = [
    (0, "it is done; the server has ended as it was told to"),
    (
        1,
        "the system or the server refuses: no server runs, a port is taken, a reload or an upgrade failed and changed nothing",
    ),
    (2, "the command line or the configuration is wrong"),
    (
        3,
        "`convert` has written a configuration in which it left out directives; comments name them",
    ),
    (70, "parts of the server do not fit together: files of different versions, or a defect"),
];

impl Failure {
    /// Wraps an error of the system: "what: error".
    pub(crate) fn system(what: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System(format!("{what}: {error}"))
    }

    /// Wraps an error about something that the command line names: "what: error".
    pub(crate) fn input(what: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Input(format!("{what}: {error}"))
    }

    /// The exit status. The value for internal errors is from sysexits(3), the others are common to
    /// all programs.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::System(_) => ExitCode::from(1),
            Self::Input(_) => ExitCode::from(2),
            Self::Incomplete(_) => ExitCode::from(3),
            Self::Internal(_) => ExitCode::from(70),
            Self::Said(status) => ExitCode::from(*status),
        }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Ambiguous(why) => Self::Input(why),
            CommandError::Failed(why) => Self::System(why),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(why) | Self::System(why) | Self::Incomplete(why) | Self::Internal(why) => {
                f.write_str(why)
            }
            Self::Said(status) => write!(f, "a process ended with status {status}"),
        }
    }
}
