//! A response body in frames, because the application may move it to a link (`docs/handover.md`
//! §8).

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_fastcgi::frames::{Frame, Frames, Surplus};
use sendoff_message::response::ResponseEnd;
use sendoff_upstream::error::UpstreamError;
use sendoff_upstream::inbox::{Event, Inbox};
use sendoff_upstream_worker::claims::Claim;
use tokio::time::timeout;

/// The longest time from the frame that moves a body to the claim on a link. The process should
/// claim the body before it sends the frame.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// ```text
///        the frame `Moved`             END_REQUEST on the link
///  Here ────────────────────────▶ Moved ─────────────────────▶ Complete ──▶ END_REQUEST here
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameStage {
    Here,
    Moved,
    /// The link's part has ended like this.
    Complete(ResponseEnd),
}

/// The source and the next part of a response body.
#[derive(Debug)]
pub(super) struct Framed {
    frames: Frames,
    stage: FrameStage,
    claim: Rc<Claim>,
}

impl Framed {
    /// A body that begins with `rest`.
    pub(super) fn new(claim: Rc<Claim>, rest: Bytes) -> Self {
        let mut frames = Frames::default();
        // The first bytes always fit.
        let _surplus = frames.push(rest);
        Self { frames, stage: FrameStage::Here, claim }
    }

    /// True if the body comes on a link, and the application is silent on its connection.
    pub(super) fn has_moved(&self) -> bool {
        self.stage == FrameStage::Moved
    }

    /// The source of the next event; `application` is the inbox of the application's own
    /// connection.
    pub(super) fn source(&self, application: &Rc<Inbox>) -> Rc<Inbox> {
        match self.stage {
            FrameStage::Moved => Rc::clone(self.claim.inbox()),
            FrameStage::Here | FrameStage::Complete(_) => Rc::clone(application),
        }
    }

    /// The longest silence of a link; `None` if the task of the source has its own timeout.
    pub(super) fn patience(&self, silence: Duration) -> Option<Duration> {
        let limit = if self.claim.is_claimed() { silence } else { CLAIM_TIMEOUT };
        (self.stage == FrameStage::Moved).then_some(limit)
    }

    /// The event for a source that was silent for `patience`. `None`: the body was claimed in the
    /// meantime.
    pub(super) fn too_long(&self, patience: Duration, silence: Duration) -> Option<Event> {
        if !self.claim.is_claimed() {
            return Some(broken("moved its body to a link and did not claim it"));
        }
        (patience == silence).then_some(Event::Failed(UpstreamError::silent()))
    }

    /// The next event from bytes that were already received.
    pub(super) fn waiting(&mut self) -> Option<Event> {
        match self.frames.take() {
            Ok(Some(Frame::Bytes(bytes))) => Some(Event::Segment(Segment::Bytes(bytes))),
            Ok(Some(Frame::Moved)) => {
                self.stage = FrameStage::Moved;
                // No byte may follow this frame.
                self.frames.take().is_err().then(|| surplus(Surplus))
            }
            Ok(None) => None,
            Err(wrong) => Some(surplus(wrong)),
        }
    }

    /// The event for the consumer that an event of the source causes; `None`: none by itself.
    pub(super) fn take(&mut self, event: Event) -> Option<Event> {
        match (self.stage, event) {
            (FrameStage::Here, Event::Segment(Segment::Bytes(bytes))) => {
                self.frames.push(bytes).err().map(surplus)
            }
            (FrameStage::Here, Event::End(_)) if !self.frames.is_whole() => {
                Some(broken("ended its response inside a frame"))
            }
            (FrameStage::Moved, Event::End(ending)) => {
                self.stage = FrameStage::Complete(ending);
                None
            }
            (FrameStage::Complete(of_link), Event::End(ending)) => {
                Some(Event::End(of_link.and(ending)))
            }
            (FrameStage::Complete(_), Event::Segment(_) | Event::Piece(_)) => {
                Some(surplus(Surplus))
            }
            (_, event) => Some(event),
        }
    }
}

fn surplus(Surplus: Surplus) -> Event {
    broken("went on with a body that it had moved")
}

fn broken(why: &'static str) -> Event {
    Event::Failed(UpstreamError::broken(format!("it {why}")))
}

/// The next event, if it is available.
pub(super) fn try_next(framed: &mut Framed, application: &Rc<Inbox>) -> Option<Event> {
    loop {
        if let Some(event) = framed.waiting() {
            return Some(event);
        }
        let event = framed.source(application).take()?;
        if let Some(event) = framed.take(event) {
            return Some(event);
        }
    }
}

/// Waits for the next event of the source; `None`: it was silent for `patience`.
pub(super) async fn next(source: &Inbox, patience: Option<Duration>) -> Option<Event> {
    match patience {
        None => Some(source.next().await),
        Some(limit) => timeout(limit, source.next()).await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_upstream::error::Retry;
    use sendoff_upstream_worker::claims::Claims;

    const SILENCE: Duration = Duration::from_secs(60);

    fn moved() -> (Rc<Claims>, Framed) {
        let claims = Rc::new(Claims::default());
        let claim = claims.add().unwrap();
        (claims, Framed::new(claim, Bytes::from_static(b"\0\0\0\x01x\xff\xff\xff\xff")))
    }

    #[test]
    fn a_body_that_is_nowhere_is_not_waited_for() {
        let (_claims, mut framed) = moved();
        let here = Rc::new(Inbox::default());
        assert!(matches!(try_next(&mut framed, &here), Some(Event::Segment(_))));
        assert_eq!(framed.patience(SILENCE), None);
        assert!(try_next(&mut framed, &here).is_none());
        assert!(framed.has_moved());
        assert_eq!(framed.patience(SILENCE), Some(CLAIM_TIMEOUT));
        let lost = framed.too_long(CLAIM_TIMEOUT, SILENCE);
        assert!(matches!(lost, Some(Event::Failed(error)) if error.retry() == Retry::Unsafe));
    }

    #[test]
    fn the_end_is_where_both_have_ended() {
        let (_claims, mut framed) = moved();
        let here = Rc::new(Inbox::default());
        let there = Rc::clone(framed.claim.inbox());
        assert!(try_next(&mut framed, &here).is_some());
        here.push(Event::End(ResponseEnd::Complete));
        assert!(try_next(&mut framed, &here).is_none(), "not before the link has ended");
        there.push(Event::Segment(Segment::Bytes(Bytes::from_static(b"y"))));
        there.push(Event::End(ResponseEnd::Failed));
        assert!(matches!(try_next(&mut framed, &here), Some(Event::Segment(_))));
        assert!(matches!(try_next(&mut framed, &here), Some(Event::End(ResponseEnd::Failed))));
    }

    #[test]
    fn an_application_that_dies_after_the_move_has_not_ended() {
        let (_claims, mut framed) = moved();
        let here = Rc::new(Inbox::default());
        assert!(try_next(&mut framed, &here).is_some());
        assert!(try_next(&mut framed, &here).is_none());
        framed.claim.inbox().push(Event::End(ResponseEnd::Complete));
        here.push(Event::Failed(UpstreamError::died(Retry::Safe)));
        assert!(matches!(try_next(&mut framed, &here), Some(Event::Failed(_))));
    }
}
