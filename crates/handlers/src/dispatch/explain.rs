//! `sendoff explain`: the response goes into a table, and the client gets the table.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::client::Client;
use sendoff_exchange::sink::{self, Fit, Room, Sink};
use sendoff_message::Cut;
use sendoff_message::response::{Framing, ResponseEnd, ResponseHead};
use sendoff_report::explain::{FIELD, FileWay, Remark, Report};
use sendoff_report::log_line::Notes;

use crate::context::Context as Known;

/// What the table shows before the handler begins.
#[derive(Debug)]
pub(crate) enum Before {
    Script,
    /// A static file with this path.
    File(String),
    /// The server itself answers.
    Server,
}

/// Collects the segments of a response and sends nothing to the client. It is a client itself, to which nothing can be lent.
pub(crate) struct Table<'c> {
    client: &'c mut dyn Client,
    report: Report,
    /// As the handler made it.
    head: Option<ResponseHead>,
    /// How the client would find the end of the body.
    framing: Framing,
}

impl<'c> Table<'c> {
    pub(crate) fn new(client: &'c mut dyn Client, before: Before, way: FileWay) -> Self {
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
    pub(crate) fn into_report(self) -> (Report, Option<ResponseHead>) {
        (self.report, self.head)
    }
}

impl Sink for Table<'_> {
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

    fn end(&mut self, _ending: ResponseEnd) -> Result<u64, Cut> {
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

    fn client(&mut self) -> &mut dyn Client {
        self
    }
}

impl Client for Table<'_> {
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_gone(cx)
    }

    fn notes(&mut self) -> &mut Notes {
        self.client.notes()
    }

    fn report(&mut self) -> Option<&mut Report> {
        Some(&mut self.report)
    }
}

/// Sends the table to the client. `cut` tells why the response is not complete, if it is not.
pub(crate) async fn send(
    context: &Known<'_>,
    sink: &mut dyn Sink,
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
    sink.client().close_after();
    let mut head = ResponseHead::new(StatusCode::OK, Some(page.len() as u64));
    head.field("Content-Type", "text/plain; charset=utf-8");
    head.field("Cache-Control", "no-store");
    head.field(FIELD, "yes");
    let body = Segment::Bytes(Bytes::from(page));
    sink::respond(sink, head, [body]).await
}
