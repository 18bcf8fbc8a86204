//! Static files.

use http::StatusCode;
use sendoff_compress as compress;
use sendoff_config::Coding;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::response::{ResponseHead, append_fields};
use sendoff_static_files as static_files;
use sendoff_static_files::Entry;

use crate::context::Context;
use crate::error::Outcome;

/// Answers with a file, ranges of it, or 304 if the client's copy is current.
pub(crate) async fn respond(
    context: &Context<'_>,
    entry: &Entry,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let request = context.request;
    let ready = ready_made(context, entry);
    let (entry, coding) = match &ready {
        Some((ready, coding)) => (ready, Some(*coding)),
        None => (entry, None),
    };
    let response = static_files::respond_with(entry, &request.method, &request.headers);
    if response.status.is_client_error() {
        return Ok(Outcome::refused(response.status, response.headers));
    }
    let mut head = ResponseHead::new(response.status, response.content_length);
    append_fields(&mut head, response.headers);
    if let Some(coding) = coding {
        compress::vary(&mut head);
        if head.status != StatusCode::NOT_MODIFIED {
            head.field("Content-Encoding", coding.name());
        }
    }
    sink::respond(sink, head, response.body).await?;
    Ok(Outcome::Sent)
}

/// The compressed form of a file that lies beside it, in a coding that the client accepts and with
/// the media type of the file itself.
fn ready_made(context: &Context<'_>, entry: &Entry) -> Option<(Entry, Coding)> {
    let policy = context.compression?;
    if !policy.is_compressible(&entry.content_type) {
        return None;
    }
    policy.choices().into_iter().find_map(|coding| {
        let ready = context.site.router.ready_made(entry, coding.ending())?;
        Some((ready.with_type(&entry.content_type), coding))
    })
}
