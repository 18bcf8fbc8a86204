//! Requests for applications that speak the uwsgi protocol.

use bytes::Bytes;
use http::StatusCode;
use sendoff_uwsgi::{RequestHead, TooLarge};

use crate::{ApplicationRequest, Unsendable, parameters};

/// The head of a request: the CGI parameters, as for SCGI.
pub(crate) fn head(asked: &ApplicationRequest<'_>, prefix: usize) -> Result<Bytes, Unsendable> {
    let mut head = RequestHead::new(asked.request.body.len());
    parameters::of_folder(asked, prefix, |name, value| {
        if head.param(name, value).is_err() {
            let request = asked.request.shown();
            let name = name.escape_ascii().to_string();
            tracing::warn!(request, name, "a parameter was left out, it is 64 KiB or longer");
        }
    });
    head.finish().map_err(|TooLarge| {
        let why = "the head does not fit into a packet of the uwsgi protocol, 64 KiB";
        Unsendable::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why)
    })
}
