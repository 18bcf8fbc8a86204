//! Pages that are missing or too old: the application makes them, or confirms the old one.

use std::sync::Arc;
use std::time::SystemTime;

use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::request::CONDITIONS;
use sendoff_page_cache::{
    ApplicationOutcome, MakePermit, OriginFailure, Page, PurgeCount, Recorder, RecordingContext,
};

use super::{CacheLookup, answer};
use crate::context::Context;
use crate::outcome::Outcome;
use crate::services::Services;

/// A page that is missing or too old.
pub(super) struct Miss<'p> {
    pub(super) old: Option<&'p Arc<Page>>,
    /// Noted before the page was looked up, to notice purges since then.
    pub(super) begun: PurgeCount,
    pub(super) permit: Option<MakePermit>,
}

impl CacheLookup<'_> {
    /// Lets the application answer, and keeps the page if that is allowed.
    pub(super) async fn make(&self, miss: Miss<'_>, sink: &mut dyn Sink) -> Result<Outcome, Cut> {
        let Miss { old, begun, .. } = miss;
        let told = if old.is_some() { "fwd=stale" } else { "fwd=uri-miss" };
        let (ended, outcome) = self.ask(miss, told, sink).await?;
        let failure = match &outcome {
            Outcome::Refused(refused) if refused.status.is_server_error() => {
                Some(OriginFailure::Silent)
            }
            Outcome::Sent if matches!(ended, ApplicationOutcome::Failed) => {
                Some(OriginFailure::Reported)
            }
            Outcome::Refused(_) | Outcome::Sent | Outcome::Switched(_) => None,
        };
        if let (Some(page), Some(failure)) = (old, failure)
            && page.may_stand_in(failure, SystemTime::now())
            && self.send(page, "hit; detail=stale-if-error", sink).await?
        {
            return Ok(Outcome::Sent);
        }
        match (ended, old) {
            (ApplicationOutcome::StillValid(said, permit), Some(old)) => {
                let (page, is_kept) = self.renewed(old, begun, &said, permit);
                let answer = answer(&self.context, &page, "hit; fwd=stale; fwd-status=304");
                if !is_kept {
                    // The answer already has the body, or its file open.
                    self.context.services.page_cache.drop_page(old);
                }
                if let Some(answer) = answer {
                    self.deliver(answer, sink).await?;
                    return Ok(Outcome::Sent);
                }
            }
            (ApplicationOutcome::OtherPage(permit), old) => {
                old.inspect(|old| self.context.services.page_cache.drop_page(old));
                let whole = Miss { old: None, begun, permit };
                return Box::pin(self.make(whole, sink)).await;
            }
            (ApplicationOutcome::StillValid(..) | ApplicationOutcome::Failed, _) => {}
            (ApplicationOutcome::Passed, _) => return Ok(outcome),
        }
        // The client has nothing yet, and the old page is gone.
        self.origin.respond(&self.context, sink).await
    }

    /// Asks the application for the whole page, or to confirm that the old page is still valid.
    pub(super) async fn ask(
        &self,
        Miss { old, begun, permit }: Miss<'_>,
        told: &'static str,
        sink: &mut dyn Sink,
    ) -> Result<(ApplicationOutcome, Outcome), Cut> {
        let mut request = self.context.request.clone();
        // The kept page is a whole one, whatever copy or range this client asks about.
        for name in CONDITIONS {
            request.headers.remove(name);
        }
        let asks = old.is_some_and(|old| old.ask_in(&mut request.headers));
        let context = Context { request: &request, ..self.context };
        let (Self { key, keeping, .. }, lscache) = (self, self.lscache.as_ref());
        let Services { page_cache: cache, config, .. } = context.services;
        let (limit, request) = (config.front.page_cache.size, self.context.request);
        let order = RecordingContext {
            cache,
            limit,
            key,
            begun,
            keeping,
            lscache,
            request,
            old,
            asks,
            told,
        };
        let mut recorder = Recorder::new(sink, order, permit);
        // After a cut, other requests may still make a page that can be kept.
        let outcome = self.origin.respond(&context, &mut recorder).await?;
        Ok((recorder.into_ended(), outcome))
    }
}
