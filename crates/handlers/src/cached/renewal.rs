//! An old page that is sent while it is made anew.

use std::sync::Arc;

use http::Method;
use sendoff_exchange::sink::{Discard, Sink};
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::ResponseHead;
use sendoff_page_cache::{ApplicationOutcome, Flight, MakePermit, Page, PurgeCount};

use super::{CacheLookup, Miss, Reply, Templates};
use crate::context::Context;
use crate::outcome::Outcome;

/// An old page that is to be made anew.
pub(super) struct Due {
    old: Arc<Page>,
    begun: PurgeCount,
    permit: MakePermit,
}

/// An old page that the client has got, and that is still to be made anew.
pub(crate) struct Renewal<'a> {
    pub(super) lookup: Box<CacheLookup<'a>>,
    pub(super) due: Due,
}

impl Renewal<'_> {
    /// Makes the page anew.
    pub(crate) async fn run(self) {
        let Self { lookup, due: Due { old, begun, permit } } = self;
        Box::pin(lookup.renew(&old, begun, permit)).await;
    }
}

impl CacheLookup<'_> {
    /// Sends an old page, and has it made anew meanwhile if no other request does that: a slow
    /// client does not delay the new page. `None`: the body is gone.
    pub(super) async fn send_stale(
        &self,
        page: &Arc<Page>,
        begun: PurgeCount,
        templates: Templates,
        sink: &mut dyn Sink,
    ) -> Result<Option<Reply>, Cut> {
        let cache = &self.context.services.page_cache;
        let flight = cache.fly(self.key_of(page), &self.context.request.headers);
        let send = self.send(page, "hit; detail=stale", sink);
        let is_sent = match flight {
            Flight::Make(permit) if templates == Templates::Pages && page.asks_for_assembly() => {
                let due = Due { old: Arc::clone(page), begun, permit };
                return send.await.map(|is_sent| is_sent.then_some(Reply::Stale(due)));
            }
            Flight::Make(permit) => tokio::join!(send, self.renew(page, begun, permit)).0,
            Flight::Wait(_) | Flight::MakeUnshared => send.await,
        };
        is_sent.map(|is_sent| is_sent.then_some(Reply::Now(Outcome::Sent)))
    }

    /// Renews a page after the client has got the stale one.
    async fn renew(&self, old: &Arc<Page>, begun: PurgeCount, permit: MakePermit) {
        let request = self.context.request;
        if request.method == Method::HEAD || request.trace.is_some() {
            // A response to HEAD has no body that could be kept, and the client does not wait.
            let request = Request { method: Method::GET, trace: None, ..request.clone() };
            let context = Context { request: &request, ..self.context };
            let (key, lscache) = (self.key.clone(), self.lscache.clone());
            let get = CacheLookup { key, lscache, context, ..*self };
            return Box::pin(get.renew(old, begun, permit)).await;
        }
        let miss = Miss { old: Some(old), begun, permit: Some(permit) };
        match self.ask(miss, "fwd=stale", &mut Discard::default()).await {
            Ok((ApplicationOutcome::StillValid(said, permit), _)) => {
                if let (_, false) = self.renewed(old, begun, &said, permit) {
                    self.context.services.page_cache.drop_page(old);
                }
            }
            Ok((ApplicationOutcome::OtherPage(permit), _)) => {
                self.context.services.page_cache.drop_page(old);
                let whole = Miss { old: None, begun, permit };
                let _only_kept = self.ask(whole, "fwd=stale", &mut Discard::default()).await;
            }
            Ok((ApplicationOutcome::Passed | ApplicationOutcome::Failed, _)) | Err(_) => {}
        }
    }

    /// The old page with a new validity, because the application says that it is still valid; true:
    /// the page is kept.
    pub(super) fn renewed(
        &self,
        old: &Page,
        begun: PurgeCount,
        said: &ResponseHead,
        permit: Option<MakePermit>,
    ) -> (Arc<Page>, bool) {
        let cache = &self.context.services.page_cache;
        let (renewed, is_kept) =
            cache.renew(old, begun, &self.keeping, self.lscache.as_ref(), said);
        if let Some(mut permit) = permit {
            permit.ends(is_kept);
        }
        (renewed, is_kept)
    }
}
