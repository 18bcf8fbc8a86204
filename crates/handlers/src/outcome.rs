//! The outcome of a request for which a handler was asked.

use bytes::Bytes;
use http::StatusCode;

use crate::application::proxy::Switched;

/// The outcome of a request.
pub(crate) enum Outcome {
    /// The response has been sent.
    Sent,
    /// The connection goes on in another protocol. Boxed, because it is moved through several
    /// futures.
    Switched(Box<Switched>),
    /// The client is to get an error page.
    Refused(Refused),
}

/// The status of an error page, and further fields of the response.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) fields: Vec<(&'static str, Bytes)>,
}

impl Outcome {
    pub(crate) fn refused(
        status: StatusCode,
        fields: impl IntoIterator<Item = (&'static str, Bytes)>,
    ) -> Self {
        Self::Refused(Refused { status, fields: fields.into_iter().collect() })
    }
}
