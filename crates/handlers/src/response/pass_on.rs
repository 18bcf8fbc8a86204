//! A response that has begun: the source of its body, which its head may name, and its way to the
//! client.
//!
//! ```text
//!  head ── names a file ─────────────────────▶ named, ranges ──────────────▶ client
//!   │   ── leads to another application ─────▶ internal_redirect, reproxy ─▶ client    (the first
//!   │                                                                    application is free)
//!   │   ── names files inside its body ──────▶ relay, zero_copy ───────────▶ client
//!   └── is an ordinary one ──────────────────▶ relay ──────────────────────▶ client
//! ```

use http::{Method, StatusCode};
use sendoff_application_response::beginning::ReceivedHead;
use sendoff_application_response::companions::Companions;
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_application_response::host_cookie;
use sendoff_application_response::rate_limit::Paced;
use sendoff_application_response::relay::{self, BodyLength, RelayedBody};
use sendoff_application_response::sendfile2;
use sendoff_config::GatewayProtocol;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::Sink;
use sendoff_fastcgi::channel::is_for_front;
use sendoff_fastcgi::handover::Sockets;
use sendoff_message::Cut;
use sendoff_message::response::{CgiHead, ResponseHead};
use sendoff_report::explain::Remark;
use sendoff_site::decided_for::DecidedFor;
use sendoff_site::naming::Naming;
use sendoff_site_files::sendable::{Denied, Sendable};
use sendoff_static_files::Entry;
use sendoff_upstream_fastcgi::application::Application;
use sendoff_zero_copy::{self as zero_copy, ZeroCopy};

use crate::application::script::Call;
use crate::context::Context;
use crate::lscache;
use crate::outcome::Outcome;
use crate::response::internal_redirect;
use crate::response::named;
use crate::response::reproxy;
use crate::response::requirements::{NotMet, check};

/// The source of a response's body.
enum BodySource {
    /// The application's own body, with files where `X-ZeroCopy` announces them.
    Own(Option<ZeroCopy>),
    /// A body that the head names. Boxed, because few heads name one.
    Named(Box<Named>),
}

/// A body that a head names.
#[expect(clippy::large_enum_variant, reason = "it is always in a box")]
enum Named {
    File(Entry),
    /// The response of another application to which a URI leads.
    Redirect(internal_redirect::InternalRedirect),
    /// The response of another application at one of several URLs.
    Urls,
    Ranges(Vec<Segment>),
}

/// The reason why a response is not sent.
enum Unsendable {
    Named(Denied),
    /// The value of `X-ZeroCopy` is invalid.
    Announced(&'static str),
}

impl From<Denied> for Unsendable {
    fn from(denied: Denied) -> Self {
        Self::Named(denied)
    }
}

impl From<Named> for BodySource {
    fn from(named: Named) -> Self {
        Self::Named(Box::new(named))
    }
}

impl Call<'_> {
    /// Sends the response, or the body that it names, with the charset and at the rate that it asks
    /// for.
    pub(crate) async fn pass_on(
        &self,
        exchange: UpstreamExchange,
        mut begun: Box<ReceivedHead>,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Cut> {
        explain(sink, &exchange, &begun);
        exchange.tag_cookie(&mut begun.head.fields);
        lscache::obey_purges(&self.context, &begun.head.fields, sink);
        let Some(cookie) = exchange.new_cookie() else {
            return self.pass_on_unbound(exchange, begun, sink).await;
        };
        let cookie = host_cookie::set_cookie(&cookie, self.context.request);
        let bind = |head: &mut ResponseHead| head.client_cookies.push(cookie.clone());
        let mut bound = HeadFilter::new(sink, false, bind);
        // Boxed, because few clients need the cookie.
        Box::pin(self.pass_on_unbound(exchange, begun, &mut bound)).await
    }

    /// As [`Self::pass_on`], without the cookie that binds the client to the host.
    async fn pass_on_unbound(
        &self,
        exchange: UpstreamExchange,
        begun: Box<ReceivedHead>,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Cut> {
        // The companions of the response that named this URL were applied already. Companions in
        // the response of an object store may come from its users.
        let is_internal_redirect = self.context.request.is_internal_redirect;
        let companions =
            if is_internal_redirect { Companions::default() } else { Companions::of(&begun.head) };
        if let Some(report) = sink.client().report() {
            companions.notes().for_each(|note| report.note(note));
        }
        if companions.change_response() {
            // Boxed, because few responses need it.
            return Box::pin(self.pass_on_changed(exchange, begun, companions, sink)).await;
        }
        self.pass_on_as_it_is(exchange, begun, companions.is_unbuffered, sink).await
    }

    /// Sends the response with a changed head, or at a limited rate.
    async fn pass_on_changed(
        &self,
        exchange: UpstreamExchange,
        begun: Box<ReceivedHead>,
        companions: Companions,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Cut> {
        // The table of `sendoff explain` is not paced.
        let rate = companions.rate.filter(|_| sink.client().report().is_none());
        let mut with_charset = HeadFilter::new(sink, false, |head| companions.change(head));
        let mut paced;
        let sink: &mut dyn Sink = match rate {
            Some(rate) => {
                self.is_paced.set(true);
                paced = Paced::new(&mut with_charset, &self.context.request.method, rate);
                &mut paced
            }
            None => &mut with_charset,
        };
        self.pass_on_as_it_is(exchange, begun, companions.is_unbuffered, sink).await
    }

    async fn pass_on_as_it_is(
        &self,
        exchange: UpstreamExchange,
        mut begun: Box<ReceivedHead>,
        is_unbuffered: bool,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Cut> {
        let naming = Naming::new(self.context.site, self.context.request);
        let mut source = self.source(&exchange, &mut begun, &naming);
        let decided_for = naming.decided_for();
        let requirements = naming.into_requirements();
        if source.is_ok() && !requirements.is_empty() {
            // On the heap, because few names are asked for a password.
            if let Err(refused) = Box::pin(check(&self.context, &requirements)).await {
                match refused {
                    NotMet::Password(refused) => {
                        exchange.drain();
                        return Ok(refused);
                    }
                    NotMet::Access(denied) => source = Err(denied.into()),
                }
            }
        }
        match source {
            Ok(BodySource::Own(zero_copy)) => {
                if !self.has_ordinary_zero_copy(&exchange) {
                    begun.head.fields.retain(|field| !field.is(zero_copy::FIELD));
                }
                let may_end_late = exchange.may_end_late();
                let body = self.begin_body(
                    *begun,
                    zero_copy,
                    decided_for,
                    is_unbuffered,
                    may_end_late,
                    sink,
                )?;
                let (site, request) = (self.context.site, self.context.request);
                relay::pass_body(site, request, sink, exchange, body).await?;
                Ok(Outcome::Sent)
            }
            Ok(BodySource::Named(named)) => {
                exchange.drain();
                let sink = &mut HeadFilter::new(sink, false, |head| decided_for.limit(head));
                Box::pin(self.send_named(begun.head, *named, sink)).await
            }
            Err(Unsendable::Named(Denied { status, why })) => {
                let (who, request) = (exchange.who(), &**self.log_name());
                exchange.drain();
                tracing::error!(request, "{who} named a file, answered with {status}: {why}");
                Ok(Outcome::refused(status, []))
            }
            Err(Unsendable::Announced(bad)) => {
                let (who, request) = (exchange.who(), &**self.log_name());
                tracing::error!(request, "{who}: answered with 502: it sent {bad}");
                Ok(Outcome::refused(StatusCode::BAD_GATEWAY, []))
            }
        }
    }

    /// Chooses the source of the body.
    ///
    /// # Errors
    /// The head names a resource that may not be sent, or the value of the field is invalid.
    fn source(
        &self,
        exchange: &UpstreamExchange,
        begun: &mut ReceivedHead,
        naming: &Naming<'_>,
    ) -> Result<BodySource, Unsendable> {
        let site = self.context.site;
        let sendable = &site.sendable;
        let said = self.context.effects.settings.name_files;
        if self.context.request.is_internal_redirect || said == Some(false) {
            return Ok(BodySource::Own(None));
        }
        let may_name = said.unwrap_or_else(|| may_name_files(exchange, sendable));
        let head = &begun.head;
        let name = named::named(head);
        if let Some(named::Name::Uri(_, uri)) = &name
            && let Some(redirect) =
                internal_redirect::by_uri(&self.context, naming, may_name, head, uri)?
        {
            return Ok(Named::Redirect(redirect).into());
        }
        let opened = begun.named.take();
        if let Some(name) = name.filter(|_| may_name) {
            return Ok(Named::File(named::file(naming, &name, opened)?).into());
        }
        if reproxy::urls(head).is_some() && (may_name || site.has_internal_routes()) {
            return Ok(Named::Urls.into());
        }
        if let Some(value) = sendfile2::value(head).filter(|_| may_name) {
            return Ok(Named::Ranges(sendfile2::open(naming, value)?).into());
        }
        let may_mix = may_name && !self.has_ordinary_zero_copy(exchange);
        let zero_copy = may_mix.then(|| ZeroCopy::announced(head)).flatten().transpose();
        zero_copy.map(BodySource::Own).map_err(Unsendable::Announced)
    }

    /// True if `X-ZeroCopy` is an ordinary field: our own workers hand files over by messages, so
    /// for them the operator must enable it.
    fn has_ordinary_zero_copy(&self, exchange: &UpstreamExchange) -> bool {
        let Context { site, request, effects, .. } = self.context;
        matches!(exchange, UpstreamExchange::Worker(_))
            && !request.is_internal_redirect
            && effects.settings.name_files.is_none()
            && !site.sendable.is_set_up()
    }

    /// Answers with the body that a head names. The application is free already.
    async fn send_named(
        &self,
        head: CgiHead,
        named: Named,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Cut> {
        match named {
            Named::File(entry) => named::respond(&self.context, head, entry, sink).await,
            Named::Redirect(redirect) => {
                internal_redirect::follow(&self.context, head, &redirect, sink).await
            }
            Named::Urls => reproxy::respond(self, head, sink).await,
            Named::Ranges(segments) => {
                sendfile2::respond(head, segments, sink).await?;
                Ok(Outcome::Sent)
            }
        }
    }

    /// Queues the head of the application's own response, and returns the state in which its body
    /// begins. `decided_for`: the clients for whom it is decided that the head leads nowhere else.
    /// `may_end_late`: the application may go on working behind the body.
    fn begin_body(
        &self,
        begun: ReceivedHead,
        zero_copy: Option<ZeroCopy>,
        decided_for: DecidedFor,
        is_unbuffered: bool,
        may_end_late: bool,
        sink: &mut dyn Sink,
    ) -> Result<RelayedBody<'_>, Cut> {
        let ReceivedHead { head, rest, length, .. } = begun;
        // A worker announces the length 0 for a response without a body (HEAD); GET's response may
        // have another length.
        let has_body =
            self.context.request.method != Method::HEAD && head.status != StatusCode::NOT_MODIFIED;
        let mut head = ResponseHead::of(head);
        let has_names = zero_copy.is_some();
        // The length of a body with file names in it is not the length of the response.
        head.length = head.length.or(length.filter(|_| has_body)).filter(|_| !has_names);
        head.accel_expires = head.take("X-Accel-Expires");
        if is_unbuffered {
            // nginx does not keep such a response either.
            head.accel_expires = Some("0".into());
        }
        let of_names = match has_names {
            true => self.context.site.names_decided_for(),
            false => DecidedFor::AllClients,
        };
        decided_for.and(of_names).limit(&mut head);
        head.fields.retain(|field| !is_for_front(field.name()));
        let length = match head.length {
            _ if !may_end_late => BodyLength::Open,
            _ if !has_body || head.status == StatusCode::NO_CONTENT => BodyLength::NoBody,
            Some(length) if head.value("Trailer").is_none() => BodyLength::Announced(length),
            _ => BodyLength::Open,
        };
        sink.begin(head)?;
        let zero_copy = zero_copy.filter(|_| has_body);
        let patience = &self.context.services.patience;
        Ok(RelayedBody { rest, length, surplus: false, zero_copy, is_unbuffered, patience })
    }
}

/// True if the upstream may name files in its response. An upstream over HTTP, SCGI, uwsgi or AJP
/// can be a foreign server, which must not get at files of this machine: it may name files only if
/// the operator has listed folders that files may be sent from.
fn may_name_files(exchange: &UpstreamExchange, sendable: &Sendable) -> bool {
    !matches!(exchange, UpstreamExchange::Gateway(_)) || sendable.is_set_up()
}

/// Tells the report, if there is one, the name of the upstream, and passes early remarks on.
fn explain(sink: &mut dyn Sink, exchange: &UpstreamExchange, begun: &ReceivedHead) {
    let Some(report) = sink.client().report() else { return };
    report.answered_by(exchange.who());
    if let Some(why) = exchange.chosen_by() {
        report.note(format!("the host was chosen by {why}"));
    }
    let mut told = Remark::default();
    for remark in begun.explanations.iter().map(|text| Remark::decode(text)) {
        told.clone_from(&remark);
        report.remark(remark);
    }
    let named = named::named(&begun.head).map(|name| name.text());
    let ranges = || {
        sendfile2::value(&begun.head).map(|value| format!("X-Sendfile2: {}", value.escape_ascii()))
    };
    if let Some(what) = named.or_else(ranges) {
        report.remark(Remark { how: "file".to_owned(), what, ..Remark::default() });
    } else if let UpstreamExchange::Application(exchange) = exchange {
        let or = |told: String, known: &str| if told.is_empty() { known.to_owned() } else { told };
        report.remark(Remark {
            how: "bytes".to_owned(),
            from: told.from,
            what: or(told.what, "a FastCGI application"),
            why: or(told.why, handover(exchange.application(), exchange.is_framed())),
        });
    } else if let UpstreamExchange::Gateway(exchange) = exchange {
        let protocol = match exchange.gateway().map(|gateway| &gateway.proxy().protocol) {
            Some(GatewayProtocol::Http { .. }) | None => "HTTP",
            Some(GatewayProtocol::Http2 { .. }) => "HTTP/2",
            Some(GatewayProtocol::Scgi) => "SCGI",
            Some(GatewayProtocol::Uwsgi) => "uwsgi",
            Some(GatewayProtocol::Ajp { .. }) => "AJP",
        };
        report.remark(Remark {
            how: "bytes".to_owned(),
            what: format!("an application that speaks {protocol}"),
            why: "the protocol knows no files".to_owned(),
            ..Remark::default()
        });
    }
}

/// The ways of handing over that a FastCGI application has shown to know, for `sendoff explain`.
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
