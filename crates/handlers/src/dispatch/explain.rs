//! `sendoff explain`: the response goes into a table, and the client gets the table.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode, Version, header};
use sendoff_compress::Policy;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::client::Client;
use sendoff_exchange::sink::{self, Collector, Fit, Sink};
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::{Framing, ResponseHead};
use sendoff_report::explain::{FIELD, FileWay, Remark, Report};
use sendoff_report::log_line::Notes;
use sendoff_report::traces;
use sendoff_site::effects::Answer;
use sendoff_site_files::router::PathTarget;

use super::plan::SitePlan;
use super::{answer_or_refuse, filters};
use crate::context::Context as Known;

/// The handler as far as it is known before it begins.
#[derive(Debug)]
enum Before {
    Script,
    /// A static file with this path.
    File(String),
    /// The server itself answers.
    Server,
}

/// Collects the segments of a response and sends none to the client. It is also the client that the
/// handler sees, and lends no socket.
struct Table<'c> {
    client: &'c mut dyn Client,
    report: Report,
    /// The head as the handler made it.
    head: Option<ResponseHead>,
    /// The framing in which the client would get the body.
    framing: Framing,
}

impl<'c> Table<'c> {
    fn new(client: &'c mut dyn Client, before: Before, way: FileWay) -> Self {
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
    fn into_report(self) -> (Report, Option<ResponseHead>) {
        (self.report, self.head)
    }
}

impl Collector for Table<'_> {
    fn begin(&mut self, head: ResponseHead) {
        // The table describes the response to GET: an explained request is one for the whole page.
        self.framing = Framing::choose(&Method::GET, Version::HTTP_11, head.status, head.length);
        self.report.begin(head.status, head.length);
        self.head = Some(head);
    }

    fn push(&mut self, mut segment: Segment) -> Result<Fit, Cut> {
        let fit = Fit::of(&mut segment, &mut self.framing);
        if !segment.is_empty() {
            self.report.piece(segment.medium(), segment.len());
        }
        Ok(fit)
    }

    fn end(&mut self) -> u64 {
        self.framing.missing()
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

/// Answers with a table that describes the response. `policy`: the compression of the response.
pub(super) async fn answer(
    context: &Known<'_>,
    planned: &SitePlan,
    policy: Option<Policy<'_>>,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let (request, answer) = (context.request, &planned.answer);
    let encrypts = request.tls.as_ref().is_some_and(|tls| !tls.by_kernel);
    let way = if encrypts { FileWay::Encrypted } else { FileWay::Sendfile };
    let mut table = Table::new(sink.client(), before(answer, request), way);
    let answered = answer_or_refuse(context, planned, &mut table).await;
    let (mut report, head) = table.into_report();
    context.effects.map_notes.iter().for_each(|note| report.note(note.clone()));
    context.effects.authorized.notes.iter().for_each(|note| report.note(note.clone()));
    if let Some(trace) = &request.trace {
        report.note(traces::explanation(trace));
    }
    if context.effects.filtered.is_some() {
        report.note("the file passes through a filter".to_owned());
    }
    if let Some((policy, mut head)) = policy.zip(head) {
        filters::change(context, &mut head);
        let accepts = request.headers.contains_key(header::ACCEPT_ENCODING);
        let policy = if accepts { policy } else { policy.for_everything() };
        report.compression(policy.explanation(&head));
    }
    send(context, sink, &report, answered.err()).await
}

/// The handler, as `sendoff explain` shows it before it begins.
fn before(answer: &Answer, request: &Request) -> Before {
    match answer {
        Answer::Path(PathTarget::Script(_)) | Answer::Proxy { .. } => Before::Script,
        Answer::Path(PathTarget::File(_)) => {
            Before::File(String::from_utf8_lossy(&request.path).into_owned())
        }
        _ => Before::Server,
    }
}

/// Sends the table to the client. `cut`: the reason why the response is incomplete.
async fn send(
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
    // The connection ends here, because the table is not the response that the client's request
    // asked for.
    sink.client().close_after();
    let mut head = ResponseHead::new(StatusCode::OK, Some(page.len() as u64));
    head.field("Content-Type", "text/plain; charset=utf-8");
    head.field("Cache-Control", "no-store");
    head.field(FIELD, "yes");
    let body = Segment::Bytes(Bytes::from(page));
    sink::respond(sink, head, [body]).await
}
