//! The entries of a folder (`listing = true` in a route).

use bytes::Bytes;
use http::{Method, StatusCode};
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_listing::{Listing, POLICY};
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;

use crate::context::Context;
use crate::outcome::Outcome;

/// Entries after which other requests of the event loop have their turn.
const BATCH: usize = 64;

/// Answers with the entries of the folder at the request's path.
pub(crate) async fn respond(context: &Context<'_>, sink: &mut dyn Sink) -> Result<Outcome, Cut> {
    let Context { site, request, .. } = *context;
    if request.method != Method::GET && request.method != Method::HEAD {
        let allow = ("Allow", Bytes::from_static(b"GET, HEAD"));
        return Ok(Outcome::refused(StatusCode::METHOD_NOT_ALLOWED, [allow]));
    }
    let names = match site.names(request) {
        Ok(names) => names,
        Err(refusal) => {
            let request = request.shown();
            tracing::warn!(request, "answered with 403: the folder cannot be listed: {refusal}");
            return Ok(Outcome::refused(StatusCode::FORBIDDEN, []));
        }
    };
    let mut lister = site.lister(request).await;
    let mut entries = Vec::new();
    for (number, name) in names.names.into_iter().enumerate() {
        if number % BATCH == BATCH - 1 {
            tokio::task::yield_now().await;
        }
        entries.extend(lister.entry(name).await);
    }
    let Listing { media_type, body } = Listing::of(request, entries, names.is_cut);
    let mut head = ResponseHead::new(StatusCode::OK, Some(body.len() as u64));
    head.field("Content-Type", media_type);
    head.field("Content-Security-Policy", Bytes::from_static(POLICY.as_bytes()));
    head.field("X-Content-Type-Options", Bytes::from_static(b"nosniff"));
    head.field("Cache-Control", Bytes::from_static(b"no-cache"));
    head.field("Vary", Bytes::from_static(b"Accept"));
    sink::respond(sink, head, [Segment::Bytes(body.into())]).await?;
    Ok(Outcome::Sent)
}
