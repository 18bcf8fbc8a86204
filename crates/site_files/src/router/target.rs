//! The target of a path.

use std::borrow::Cow;
use std::rc::Rc;

use http::StatusCode;
use sendoff_static_files::Entry;

/// A script and the parameters of its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// `SCRIPT_FILENAME`.
    pub filename: Vec<u8>,
    /// `SCRIPT_NAME`.
    pub name: Vec<u8>,
    /// `PATH_INFO`: the part of the path after the script.
    pub path_info: Vec<u8>,
    /// The upstream that runs it.
    pub upstream: Upstream,
}

/// The upstream of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// A worker of the pool with this number.
    Workers(usize),
    /// The FastCGI application with this number.
    Application(usize),
}

/// The target of a path.
#[derive(Debug, Clone)]
pub enum PathTarget {
    /// A script, which a worker or a FastCGI application runs.
    Script(Script),
    /// A static file in its current state.
    File(Rc<Entry>),
    /// A folder whose entries are listed.
    Listing,
    /// A folder whose path lacks the trailing slash.
    Folder,
    /// An error page of this status. `why` is for the log: it tells the operator the reason and the
    /// option that would help.
    Refused {
        /// The status.
        status: StatusCode,
        /// The reason, for the log.
        why: Option<Cow<'static, str>>,
    },
}

impl PathTarget {
    /// Refused, for this reason.
    pub fn forbidden(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused { status: StatusCode::FORBIDDEN, why: Some(why.into()) }
    }

    /// There is no such file.
    pub const NOT_FOUND: Self = Self::Refused { status: StatusCode::NOT_FOUND, why: None };
}
