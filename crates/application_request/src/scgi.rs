//! Requests for applications that speak SCGI.

use bytes::Bytes;
use sendoff_scgi::RequestHead;

use crate::{ApplicationRequest, parameters};

/// The head of a request: the CGI parameters, with the route's folder as the script and the rest of
/// the path as its path info.
pub(crate) fn head(asked: &ApplicationRequest<'_>, prefix: usize) -> Bytes {
    let mut head = RequestHead::new(asked.request.body.len());
    parameters::of_folder(asked, prefix, |name, value| {
        if head.param(name, value).is_err() {
            let request = asked.request.shown();
            let name = name.escape_ascii().to_string();
            tracing::warn!(request, name, "a parameter was left out, it has no name or a NUL");
        }
    });
    head.finish()
}
