//! Pages that include fragments (`docs/esi.md`): a page that asks for it is taken in, its fragments
//! are requested like any page of the site, and the client gets all pieces as segments.
//!
//! ```text
//!                     ┌─ passes: no such page
//!  application, or ─▶ Capture
//!  the page cache     └─ TakenPage ─▶ template ─▶ fragments ─▶ Assembler ─▶ head, segments ─▶ client
//!                                                     └── requests to the site, with the client's cookies
//! ```
//!
//! Bytes of pages and fragments are not copied: text is a range of the page's own segments, and a
//! kept fragment is the segment that the page cache names.

mod assembly;
mod capture;
mod fragment;
mod kept;
mod plan;

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Instant;

use http::header::{ACCEPT_ENCODING, HeaderName};
use http::{HeaderValue, StatusCode};
use sendoff_esi::body::Body;
use sendoff_esi::head::PageHead;
use sendoff_esi::template::Mistake;
use sendoff_esi::{Template, surrogate};
use sendoff_exchange::sink::{Sink, flush, unless_gone};
use sendoff_message::request::{CONDITIONS, Request};
use sendoff_message::response::ResponseEnd;
use sendoff_message::{Cut, Fault};

pub(crate) use self::assembly::Budget;
use self::assembly::{Assembled, Assembler};
use self::capture::{Capture, Captured, TakenPage};
pub(crate) use self::kept::KeptMarkup;
use self::kept::Markup;
use self::plan::KeptFragment;
use crate::cached::{self, OriginApplication, Templates};
use crate::context::Context;
use crate::outcome::Outcome;

/// Tells applications that pages are assembled here. A client cannot say so.
pub(crate) fn offer(request: &mut Request) {
    let name = HeaderName::from_static(surrogate::CAPABILITY);
    request.rule(&name);
    request.headers.insert(name, HeaderValue::from_static(surrogate::OFFER));
}

/// Answers with the application's page, assembled if the page asks for it.
///
/// # Errors
/// The client has gone, or its response was cut short after it had begun.
pub(crate) async fn respond(
    context: &Context<'_>,
    origin: OriginApplication<'_>,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let mut request = Cow::Borrowed(context.request);
    if request.headers.contains_key(ACCEPT_ENCODING) {
        // The markup must be legible.
        request.to_mut().headers.remove(ACCEPT_ENCODING);
    }
    let asked = Context { request: &request, ..*context };
    let budget = Budget::of(context);
    if let Some(kept) = kept::find(&asked, origin, &budget, sink) {
        return answer(&asked, &budget, kept, sink).await;
    }
    if let Some(outcome) = ask(&asked, origin, sink).await? {
        return Ok(outcome);
    }
    // Conditions and ranges are about the page without its fragments.
    CONDITIONS.iter().for_each(|name| drop(request.to_mut().headers.remove(name)));
    let outcome = ask(&Context { request: &request, ..*context }, origin, sink).await?;
    Ok(outcome.unwrap_or_else(|| refuse(context, "it is a part although no part was asked for")))
}

/// Requests the page, and sends it. `None`: the client has got nothing, because the response depends
/// on a condition or a range.
async fn ask(
    context: &Context<'_>,
    origin: OriginApplication<'_>,
    sink: &mut dyn Sink,
) -> Result<Option<Outcome>, Cut> {
    let budget = Budget::of(context);
    let mut capture = Capture::new(sink, context, &budget);
    let answered =
        cached::respond_before_renewal(context, origin, Templates::Pages, &mut capture).await;
    let captured = capture.into_captured();
    let (outcome, renewal) = match answered {
        Ok((outcome, renewal)) => (Ok(outcome), renewal),
        Err(cut) => (Err(cut), None),
    };
    // A request that is repeated has the page made anew.
    let renewal = renewal.filter(|_| !matches!(captured, Captured::Part));
    let answer = async {
        match (captured, outcome) {
            (Captured::Nothing, outcome) => outcome.map(Some),
            (Captured::Part, outcome) => outcome.map(|_| None),
            (_, Err(cut)) if cut.fault == Fault::Client => Err(cut),
            (Captured::Unfit(why), _) => Ok(Some(refuse(context, &why))),
            (Captured::Page(_), Err(cut)) => Ok(Some(refuse(context, &cut.why))),
            (Captured::Page(page), Ok(_)) => match PageToAssemble::read(page)? {
                Ok(page) => answer(context, &budget, page, sink).await.map(Some),
                Err(mistake) => Ok(Some(refuse(context, &format!("its ESI markup: {mistake}")))),
            },
        }
    };
    let renew = async {
        if let Some(renewal) = renewal {
            renewal.run().await;
        }
    };
    // The client gets the old page with its fragments while the page is made anew.
    tokio::join!(answer, renew).0
}

/// A page whose markup has been read.
struct PageToAssemble {
    head: PageHead,
    body: Body,
    ending: ResponseEnd,
    markup: Rc<Markup>,
    /// The fragments that are kept, by the numbers of their includes.
    fragments: Vec<Option<KeptFragment>>,
}

impl PageToAssemble {
    /// Reads the markup of a page for one client.
    fn read(TakenPage { head, body, ending }: TakenPage) -> Result<Result<Self, Mistake>, Cut> {
        let template = Template::parse(&body.text()?);
        Ok(template.map(|template| {
            let (head, markup) = (PageHead::of(head), Rc::new(Markup::for_one(template)));
            Self { head, body, ending, markup, fragments: Vec::new() }
        }))
    }
}

/// Assembles a page and sends it.
async fn answer(
    context: &Context<'_>,
    budget: &Budget,
    page: PageToAssemble,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let PageToAssemble { head, body, ending, markup, fragments } = page;
    // Bytes that a worker wrote to it would come in front of the page.
    sink.client().withhold_socket();
    let begun = Instant::now();
    let assembler = Assembler::new(context, budget, &markup, fragments);
    let made = assembler.assemble();
    let made = match context.site.speaks_lscache() {
        // A fragment may order purges, which a client that leaves must not suppress.
        true => made.await,
        false => unless_gone(sink, made).await?,
    };
    let parts = match made {
        Ok(parts) => parts,
        Err(missing) => return Ok(refuse(context, &missing.to_string())),
    };
    if let Some(report) = sink.client().report() {
        report.note(assembler.explanation(begun.elapsed()));
    }
    let Assembled { head, segments } = parts.into_response(head, body);
    sink.begin(head)?;
    for segment in segments {
        sink.push(segment)?;
    }
    sink.end(ending)?;
    flush(sink).await?;
    Ok(Outcome::Sent)
}

/// Refuses a page that cannot be assembled.
fn refuse(context: &Context<'_>, why: &str) -> Outcome {
    let request = context.request.shown();
    tracing::error!(request, "answered with 502: the page cannot be assembled: {why}");
    Outcome::refused(StatusCode::BAD_GATEWAY, [])
}
