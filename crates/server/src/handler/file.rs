//! Static files.

use super::error;
use super::services::Services;
use crate::cut::Cut;
use crate::request::Request;
use crate::responder::{self, Responder};
use crate::response::{ResponseHead, append_fields};
use crate::static_files::{self, Entry};

/// Answers with a file, ranges of it, or 304 if the client's copy is current.
pub(super) async fn respond(
    services: &Services,
    request: &Request,
    entry: &Entry,
    responder: &mut dyn Responder,
) -> Result<(), Cut> {
    let response = static_files::respond_with(entry, &request.method, &request.headers);
    if response.status.is_client_error() {
        return error::respond_with(services, responder, response.status, response.headers).await;
    }
    let mut head = ResponseHead::new(response.status, response.content_length);
    append_fields(&mut head, response.headers);
    responder::respond(responder, services.filtered(head), response.body).await
}
