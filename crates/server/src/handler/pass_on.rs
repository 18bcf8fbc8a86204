//! A response that has begun: what it names instead of a body, and how it reaches the client.
//!
//! ```text
//!  head ── names a file ─────────────────────▶ named, ranges ──▶ client
//!   │   ── leads to another application ─────▶ led, reproxy ───▶ client      (the first application is free)
//!   │   ── names files inside its body ──────▶ relay, zero_copy ▶ client
//!   └── is an ordinary one ──────────────────▶ relay ───────────▶ client
//! ```

use http::{Method, StatusCode};
use sendoff_config::ProxyProtocol;
use sendoff_fastcgi::channel::is_for_front;
use sendoff_fastcgi::handover::Sockets;

use super::answer::Begun;
use super::companions::Companions;
use super::error::Outcome;
use super::paced::Paced;
use super::relay::{self, Body};
use super::script::Call;
use super::zero_copy::{self, ZeroCopy};
use super::{led, named, ranges, reproxy};
use crate::cut::Cut;
use crate::layer::Layer;
use crate::observe::explain::Remark;
use crate::responder::Responder;
use crate::response::ResponseHead;
use crate::site::sendable::{Denied, Sendable};
use crate::upstream::{Application, Exchange};

impl Call<'_> {
    /// Sends the response, or what it names instead, in the way that it asks for.
    pub(super) async fn pass_on(
        &self,
        exchange: Exchange,
        begun: Begun,
        responder: &mut dyn Responder,
    ) -> Result<Outcome, Cut> {
        explain(responder, &exchange, &begun);
        let request = self.context.request;
        if request.is_led {
            // What led the request here has been obeyed. The fields of a store may be those of its users.
            return self.relay(exchange, begun, None, false, responder).await;
        }
        let companions = Companions::of(&begun.head);
        if let Some(report) = responder.report() {
            companions.notes().for_each(|note| report.note(note));
        }
        let is_unbuffered = companions.is_unbuffered;
        if !companions.change_response() {
            return self.pass_on_as_it_is(exchange, begun, is_unbuffered, responder).await;
        }
        // The table of `sendoff explain` is not paced.
        let rate = companions.rate.filter(|_| responder.report().is_none());
        let mut with_charset = Layer::new(responder, false, |head| companions.change(head));
        let mut paced;
        let responder: &mut dyn Responder = match rate {
            Some(rate) => {
                paced = Paced::new(&mut with_charset, &request.method, rate);
                &mut paced
            }
            None => &mut with_charset,
        };
        // On the heap, because few responses come here.
        Box::pin(self.pass_on_as_it_is(exchange, begun, is_unbuffered, responder)).await
    }

    async fn pass_on_as_it_is(
        &self,
        exchange: Exchange,
        mut begun: Begun,
        is_unbuffered: bool,
        responder: &mut dyn Responder,
    ) -> Result<Outcome, Cut> {
        let sendable = &self.context.site.sendable;
        let said = self.context.effects.name_files;
        if said == Some(false) {
            return self.relay(exchange, begun, None, is_unbuffered, responder).await;
        }
        let may_name = said.unwrap_or_else(|| may_name_files(&exchange, sendable));
        let name = named::named(&begun.head);
        if let Some(named::Name::Uri(_, uri)) = &name {
            match led::by_uri(&self.context, &begun.head, uri) {
                Ok(None) => {}
                Ok(Some(way)) => {
                    exchange.drain();
                    return Box::pin(led::follow(&self.context, begun.head, &way, responder)).await;
                }
                Err(denied) => return Ok(self.refuse(exchange, denied)),
            }
        }
        let opened = begun.named.take();
        match name.filter(|_| may_name).map(|name| named::file(sendable, &name, opened)) {
            None => {}
            Some(Ok(entry)) => {
                exchange.drain();
                return named::respond(&self.context, begun.head, entry, responder).await;
            }
            Some(Err(denied)) => return Ok(self.refuse(exchange, denied)),
        }
        if reproxy::urls(&begun.head).is_some() && (may_name || self.context.site.may_lead()) {
            exchange.drain();
            return Box::pin(reproxy::respond(self, begun.head, responder)).await;
        }
        if let Some(value) = ranges::ranges(&begun.head).filter(|_| may_name) {
            return match ranges::open(sendable, value) {
                Ok(segments) => {
                    exchange.drain();
                    ranges::respond(begun.head, segments, responder).await?;
                    Ok(Outcome::Sent)
                }
                Err(denied) => Ok(self.refuse(exchange, denied)),
            };
        }
        let may_mix = match exchange {
            // Our own workers hand files over; for them `X-ZeroCopy` is an ordinary field, unless the operator wants it.
            Exchange::Worker(_) => said.unwrap_or_else(|| sendable.is_set_up()),
            Exchange::Application(_) | Exchange::Gateway(_) => may_name,
        };
        match may_mix.then(|| ZeroCopy::announced(&begun.head)).flatten().transpose() {
            Ok(zero_copy) => self.relay(exchange, begun, zero_copy, is_unbuffered, responder).await,
            Err(bad) => {
                let request = &*self.log_name;
                tracing::error!(request, "{}: answered with 502: it sent {bad}", exchange.who());
                Ok(Outcome::refused(StatusCode::BAD_GATEWAY, []))
            }
        }
    }

    /// Answers with an error page because what was named may not be sent.
    fn refuse(&self, exchange: Exchange, denied: Denied) -> Outcome {
        let (who, request, Denied { status, why }) = (exchange.who(), &*self.log_name, denied);
        exchange.drain();
        tracing::error!(request, "{who} named a file, answered with {status}: {why}");
        Outcome::refused(status, [])
    }

    /// Passes the response on, piece by piece, while the client takes it.
    async fn relay(
        &self,
        exchange: Exchange,
        begun: Begun,
        zero_copy: Option<ZeroCopy>,
        is_unbuffered: bool,
        responder: &mut dyn Responder,
    ) -> Result<Outcome, Cut> {
        let Begun { head, rest, length, .. } = begun;
        // The length that a worker announces is 0 for a response without a body (HEAD), not that of GET's body.
        let has_body =
            self.context.request.method != Method::HEAD && head.status != StatusCode::NOT_MODIFIED;
        let mut head = ResponseHead::of(head);
        let has_names = zero_copy.is_some();
        // A body with file names in it has another length than the response.
        head.length = head.length.or(length.filter(|_| has_body)).filter(|_| !has_names);
        head.accel_expires = head.take("X-Accel-Expires");
        if is_unbuffered {
            // nginx does not keep such a response either.
            head.accel_expires = Some("0".into());
        }
        head.fields.retain(|field| {
            let is_places = has_names && field.is(zero_copy::FIELD);
            !is_places && !is_for_front(field.name())
        });
        responder.begin(head)?;
        let zero_copy = zero_copy.filter(|_| has_body);
        let body = Body { rest, surplus: false, zero_copy, is_unbuffered };
        relay::pass_body(&self.context, responder, exchange, body).await?;
        Ok(Outcome::Sent)
    }
}

/// Whether the upstream may name files in its response. An upstream over HTTP, SCGI or AJP can be a foreign server, which must not get
/// at files of this machine: it may only where the operator has listed folders that files may be sent from.
fn may_name_files(exchange: &Exchange, sendable: &Sendable) -> bool {
    !matches!(exchange, Exchange::Gateway(_)) || sendable.is_set_up()
}

/// Tells the report, if there is one, which upstream answers, and passes early remarks on.
fn explain(responder: &mut dyn Responder, exchange: &Exchange, begun: &Begun) {
    let Some(report) = responder.report() else { return };
    report.answered_by(exchange.who());
    let mut told = Remark::default();
    for remark in begun.explanations.iter().map(|text| Remark::decode(text)) {
        told.clone_from(&remark);
        report.remark(remark);
    }
    let named = named::named(&begun.head).map(|name| name.text());
    let ranges = || {
        ranges::ranges(&begun.head).map(|value| format!("X-Sendfile2: {}", value.escape_ascii()))
    };
    if let Some(what) = named.or_else(ranges) {
        report.remark(Remark { how: "file".to_owned(), what, ..Remark::default() });
    } else if let Exchange::Application(exchange) = exchange {
        let or = |told: String, known: &str| if told.is_empty() { known.to_owned() } else { told };
        report.remark(Remark {
            how: "bytes".to_owned(),
            from: told.from,
            what: or(told.what, "a FastCGI application"),
            why: or(told.why, handover(exchange.application(), exchange.is_framed())),
        });
    } else if let Exchange::Gateway(exchange) = exchange {
        let protocol = match exchange.gateway().proxy().protocol {
            ProxyProtocol::Http { .. } => "HTTP",
            ProxyProtocol::Scgi => "SCGI",
            ProxyProtocol::Ajp { .. } => "AJP",
        };
        report.remark(Remark {
            how: "bytes".to_owned(),
            what: format!("an application that speaks {protocol}"),
            why: "the protocol knows no files".to_owned(),
            ..Remark::default()
        });
    }
}

/// Which ways of handing over a FastCGI application has shown to know, for `sendoff explain`.
fn handover(application: &Application, is_framed: bool) -> &'static str {
    if is_framed {
        "it hands over files, and copies the rest"
    } else if application.knows_channel() {
        "it can hand over files, but did not in this response: the first one after a start, or its user may take no lease \
         (docs/fastcgi.md)"
    } else if application.knows_region() || application.knows_direct() != Sockets::None {
        "it hands over memory, no files"
    } else {
        "it has not said that it knows handover: php-fpm does with the extension sendoff.so (docs/fastcgi.md)"
    }
}
