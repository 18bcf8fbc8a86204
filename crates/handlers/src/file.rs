//! Static files.

use http::StatusCode;
use sendoff_compress as compress;
use sendoff_config::Coding;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;
use sendoff_static_files as static_files;
use sendoff_static_files::{Entry, StaticResponse};

use crate::context::Context;
use crate::outcome::Outcome;

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
    let response = match static_files::respond_with(entry, &request.method, &request.headers) {
        Ok(response) => response,
        Err(error) => return Ok(Outcome::refused(error.status, error.field)),
    };
    let StaticResponse { status, fields, body, content_length } = response;
    let mut head = ResponseHead::with_fields(status, content_length, fields);
    if let Some(coding) = coding {
        compress::vary(&mut head);
        if head.status != StatusCode::NOT_MODIFIED {
            head.field("Content-Encoding", coding.name());
        }
    }
    sink::respond(sink, head, body).await?;
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
        Some((Entry::clone(&ready).with_type(entry.content_type.clone()), coding))
    })
}
