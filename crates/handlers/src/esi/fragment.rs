//! One fragment: its request, and its response.

use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use http::{HeaderName, Method, StatusCode, Version, header};
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_esi::body::Body;
use sendoff_esi::surrogate;
use sendoff_exchange::client::{Client, NoClient};
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_message::Cut;
use sendoff_message::request::{CONDITIONS, Request};
use sendoff_message::response::{Framing, ResponseEnd, ResponseHead, Trailers};

use super::assembly::Budget;
use crate::response::internal_redirect::{OF_THE_BODY, encoded};

/// A fragment, as its application or the page cache sent it.
#[derive(Debug)]
pub(super) struct Fragment {
    pub(super) head: ResponseHead,
    pub(super) body: Body,
}

/// The fields of the page's request that requests for its fragments do not have: they are about the
/// body, state conditions, or ask for a part or a coding.
pub(super) static LEFT_OUT: [HeaderName; 12] = {
    let [length, kind, coding, expect, upgrade] = OF_THE_BODY;
    let [range, if_range, matches, none_match, modified, unmodified] = CONDITIONS;
    [
        length,
        kind,
        coding,
        expect,
        upgrade,
        range,
        if_range,
        matches,
        none_match,
        modified,
        unmodified,
        header::ACCEPT_ENCODING,
    ]
};

/// The request for a fragment: the client's, with another address and without a body.
///
/// # Errors
/// The address is no path.
pub(super) fn request_for(page: &Request, uri: &str) -> Result<Request, String> {
    let mut request = Request { method: Method::GET, trace: None, ..page.without_body() };
    LEFT_OUT.iter().for_each(|name| drop(request.headers.remove(name)));
    // The fragment's own route offers assembly, or does not.
    request.headers.remove(surrogate::CAPABILITY);
    request.uri = encoded(uri.as_bytes()).map_err(|bad| bad.0.to_owned())?;
    request.target = request.uri.clone();
    request.restart().map_err(|bad| bad.0.to_owned())?;
    Ok(request)
}

/// Takes in the response with a fragment. Its client is never gone.
pub(super) struct FragmentSink<'b> {
    budget: &'b Budget,
    head: Option<ResponseHead>,
    body: Body,
    framing: Framing,
    ending: Option<ResponseEnd>,
    client: NoClient,
}

impl<'b> FragmentSink<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        let (body, client) = (Body::default(), NoClient::default());
        Self { budget, head: None, body, framing: Framing::Chunked, ending: None, client }
    }

    /// The fragment, after the handler has ended without an error.
    ///
    /// # Errors
    /// The reason why the response is none.
    pub(super) fn into_fragment(self) -> Result<Fragment, String> {
        let head = self.head.ok_or("no response came")?;
        if let Some(why) = Fragment::unfit(&head) {
            return Err(why);
        }
        match self.ending {
            Some(ResponseEnd::Complete | ResponseEnd::Closed) => {}
            Some(ResponseEnd::Failed) | None => {
                return Err("its application failed after it had begun".to_owned());
            }
        }
        Ok(Fragment { head, body: self.body })
    }
}

impl Fragment {
    /// The reason why a response with this head is no fragment.
    pub(super) fn unfit(head: &ResponseHead) -> Option<String> {
        let is_whole = head.status.is_success() && head.status != StatusCode::PARTIAL_CONTENT;
        if !is_whole {
            return Some(format!("it was answered with {}", head.status.as_u16()));
        }
        let is_compressed = head.has("Content-Encoding");
        is_compressed
            .then(|| "it is compressed although it was asked for without compression".to_owned())
    }

    /// True if the page cache had it.
    pub(super) fn is_kept(&self) -> bool {
        self.head.value("Cache-Status").is_some_and(|told| told.starts_with(b"sendoff; hit"))
    }
}

impl Sink for FragmentSink<'_> {
    fn interim(&mut self, _head: ResponseHead) -> Result<(), Cut> {
        Ok(())
    }

    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut> {
        self.framing = Framing::choose(&Method::GET, Version::HTTP_11, head.status, head.length);
        self.head = Some(head);
        Ok(())
    }

    fn push(&mut self, mut segment: Segment) -> Result<Fit, Cut> {
        let fit = Fit::of(&mut segment, &mut self.framing);
        self.body.push(self.budget.take(segment).map_err(Cut::application)?);
        Ok(fit)
    }

    fn trailers(&mut self, _trailers: Trailers) -> Result<(), Cut> {
        Ok(())
    }

    fn end(&mut self, ending: ResponseEnd) -> Result<u64, Cut> {
        self.ending = Some(ending);
        Ok(self.framing.missing())
    }

    fn room(&self) -> Room {
        Room::Memory
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        Ok(Progress::Done)
    }

    fn poll_writable(&mut self, _cx: &mut TaskContext<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn client(&mut self) -> &mut dyn Client {
        &mut self.client
    }
}

/// A variable's value as a piece of a page.
pub(super) fn piece(value: Vec<u8>) -> Segment {
    Segment::Bytes(Bytes::from(value))
}
