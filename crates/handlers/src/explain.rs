//! `sendoff explain`: the response goes into a table, and the client gets the table.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::responder;
use sendoff_exchange::responder::{Fit, Lender, Responder, Room, Tunnel};
use sendoff_message::Cut;
use sendoff_message::response::ResponseEnd;
use sendoff_message::response::{Framing, ResponseHead};
use sendoff_report::explain::{FIELD, FileWay, Remark, Report};
use sendoff_report::log_line::Notes;

use super::context::Context as Known;

/// What the table shows before the handler begins.
#[derive(Debug)]
pub(super) enum Before {
    Script,
    /// A static file with this path.
    File(String),
    /// The server itself answers.
    Server,
}

/// A responder that collects the segments of a response and sends nothing to the client.
pub(super) struct Table<'c> {
    client: &'c mut dyn Responder,
    report: Report,
    /// As the handler made it.
    head: Option<ResponseHead>,
    /// How the client would find the end of the body.
    framing: Framing,
}

impl<'c> Table<'c> {
    pub(super) fn new(client: &'c mut dyn Responder, before: Before, way: FileWay) -> Self {
        let mut report = Report::new(way);
        match before {
            Before::Script => {}
            Before::File(what) => report.remark(Remark {
                how: "file".to_owned(),
                from: "open-file cache".to_owned(),
                what,
                ..Remark::default()
            }),
            Before::Server => report.answered_by("the server itself".to_owned()),
        }
        Self { client, report, head: None, framing: Framing::Chunked }
    }

    /// The report, and the head of the response.
    pub(super) fn into_report(self) -> (Report, Option<ResponseHead>) {
        (self.report, self.head)
    }
}

impl Responder for Table<'_> {
    /// The table is about the final response.
    fn interim(&mut self, _head: ResponseHead) -> Result<(), Cut> {
        Ok(())
    }

    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut> {
        // A request that is explained is one for the whole page.
        self.framing = Framing::choose(&Method::GET, Version::HTTP_11, head.status, head.length);
        self.report.begin(head.status, head.length);
        self.head = Some(head);
        Ok(())
    }

    fn push(&mut self, mut segment: Segment) -> Result<Fit, Cut> {
        let fit = Fit::of(&mut segment, &mut self.framing);
        if !segment.is_empty() {
            self.report.piece(segment.medium(), segment.len());
        }
        Ok(fit)
    }

    fn ends_so(&mut self, _ending: ResponseEnd) {}

    fn end(&mut self) -> Result<u64, Cut> {
        Ok(self.framing.missing())
    }

    fn room(&self) -> Room {
        Room::Memory
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        Ok(Progress::Done)
    }

    fn poll_writable(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_gone(cx)
    }

    fn status(&self) -> Option<StatusCode> {
        self.head.as_ref().map(|head| head.status)
    }

    fn generated(&self) -> u64 {
        0
    }

    fn note_slow(&mut self) {}

    fn kept_up(&self) -> bool {
        false
    }

    fn close_after(&mut self) {}

    fn lender(&mut self) -> Option<&mut dyn Lender> {
        None
    }

    fn tunnel(&mut self) -> Option<&mut dyn Tunnel> {
        None
    }

    fn notes(&mut self) -> &mut Notes {
        self.client.notes()
    }

    fn report(&mut self) -> Option<&mut Report> {
        Some(&mut self.report)
    }
}

/// Sends the table to the client. `cut` tells why the response is not complete, if it is not.
pub(super) async fn send(
    context: &Known<'_>,
    responder: &mut dyn Responder,
    report: &Report,
    cut: Option<Cut>,
) -> Result<(), Cut> {
    let request = context.request;
    let target = String::from_utf8_lossy(&request.target);
    let root = String::from_utf8_lossy(context.site.router.root_bytes());
    let request_line = format!("{} {target}", request.method);
    let cut = cut.map(|cut| cut.to_string());
    let client = request.peer.address();
    let client = String::from_utf8_lossy(&client);
    let page = report.page(&request_line, &client, &root, cut.as_deref());
    // The connection ends here, because the table is not the response that the client's request asked for.
    responder.close_after();
    let mut head = ResponseHead::new(StatusCode::OK, Some(page.len() as u64));
    head.field("Content-Type", "text/plain; charset=utf-8");
    head.field("Cache-Control", "no-store");
    head.field(FIELD, "yes");
    let body = Segment::Bytes(Bytes::from(page));
    responder::respond(responder, head, [body]).await
}
