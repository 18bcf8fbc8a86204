//! Static files.

use super::context::Context;
use super::error::Outcome;
use crate::cut::Cut;
use crate::responder::{self, Responder};
use crate::response::{ResponseHead, append_fields};
use crate::static_files::{self, Entry};

/// Answers with a file, ranges of it, or 304 if the client's copy is current.
pub(super) async fn respond(
    context: &Context<'_>,
    entry: &Entry,
    responder: &mut dyn Responder,
) -> Result<Outcome, Cut> {
    let request = context.request;
    let response = static_files::respond_with(entry, &request.method, &request.headers);
    if response.status.is_client_error() {
        return Ok(Outcome::refused(response.status, response.headers));
    }
    let mut head = ResponseHead::new(response.status, response.content_length);
    append_fields(&mut head, response.headers);
    responder::respond(responder, head, response.body).await?;
    Ok(Outcome::Sent)
}
