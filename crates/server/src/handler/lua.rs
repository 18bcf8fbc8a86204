//! Answers of Lua scripts.

use super::context::Context;
use super::error::Outcome;
use super::file;
use crate::cut::Cut;
use crate::lua::ScriptAnswer;
use crate::responder::{self, Responder};
use crate::response::ResponseHead;
use crate::segment::Segment;

/// Answers with what a script has made. `None`: the script has not run to its end.
pub(super) async fn respond(
    context: &Context<'_>,
    answer: &ScriptAnswer,
    responder: &mut dyn Responder,
) -> Result<Outcome, Cut> {
    match answer {
        ScriptAnswer::Body { status, segments } => {
            let length = segments.iter().map(Segment::len).sum();
            let head = ResponseHead::new(*status, Some(length));
            responder::respond(responder, head, segments.iter().cloned()).await?;
            Ok(Outcome::Sent)
        }
        ScriptAnswer::File(entry) => file::respond(context, entry, responder).await,
        // The script has run twice, and asks for the body again.
        ScriptAnswer::AfterBody => {
            Ok(Outcome::refused(http::StatusCode::INTERNAL_SERVER_ERROR, []))
        }
    }
}
