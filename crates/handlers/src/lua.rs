//! Answers of Lua scripts.

use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_lua_host::ScriptAnswer;
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;
use sendoff_report::explain::Remark;

use crate::context::Context;
use crate::file;
use crate::outcome::Outcome;

/// Answers with the response that a script has made.
pub(crate) async fn respond(
    context: &Context<'_>,
    answer: &ScriptAnswer,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    match answer {
        ScriptAnswer::Body { status, segments, place } => {
            explain(context, sink, place.as_deref());
            let length = segments.iter().map(Segment::len).sum();
            let head = ResponseHead::new(*status, Some(length));
            sink::respond(sink, head, segments.iter().cloned()).await?;
            Ok(Outcome::Sent)
        }
        ScriptAnswer::File { entry, place } => {
            explain(context, sink, place.as_deref());
            file::respond(context, entry, sink).await
        }
        // The script has run twice, and asks for the body again.
        ScriptAnswer::AfterBody => {
            Ok(Outcome::refused(http::StatusCode::INTERNAL_SERVER_ERROR, []))
        }
    }
}

/// Names the place in the script that made the answer, in the table of `sendoff explain`, and the
/// number of its fragments.
fn explain(context: &Context<'_>, sink: &mut dyn Sink, place: Option<&str>) {
    if let Some((report, place)) = sink.client().report().zip(place) {
        report.answered_by("a Lua script".to_owned());
        report.remark(Remark { from: place.to_owned(), ..Remark::default() });
        context.effects.lua.fragments.note().into_iter().for_each(|note| report.note(note));
    }
}
