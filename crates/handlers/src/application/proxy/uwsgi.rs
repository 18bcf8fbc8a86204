//! Requests for applications that speak the uwsgi protocol.

use bytes::Bytes;
use http::StatusCode;
use sendoff_uwsgi::{RequestHead, TooLarge};

use crate::application::failure::ApplicationFailure;
use crate::application::parameters;
use crate::context::Context;

/// The head of a request: the CGI parameters, as for SCGI.
pub(crate) fn head(context: &Context<'_>, prefix: usize) -> Result<Bytes, ApplicationFailure> {
    let mut head = RequestHead::new(context.request.body.len());
    parameters::of_folder(context, prefix, |name, value| {
        if head.param(name, value).is_err() {
            let request = context.request.shown();
            let name = name.escape_ascii().to_string();
            tracing::warn!(request, name, "a parameter was left out, it is 64 KiB or longer");
        }
    });
    head.finish().map_err(|TooLarge| {
        let why = "the head does not fit into a packet of the uwsgi protocol, 64 KiB";
        ApplicationFailure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why)
    })
}
