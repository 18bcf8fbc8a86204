//! From a request to the handler that answers it.
//!
//! [`plan`] decides who answers before the body is read; [`access`] checks passwords and asks
//! authorizers; [`filters`] is the order of the filters around the response; [`handle`] calls the
//! handler, and [`error_page`] answers if it refuses; [`explain`] answers `sendoff explain`.

mod access;
mod error_page;
mod explain;
mod filters;
mod fragment;
mod handle;
mod plan;
mod warm;

use std::io;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use rustls::ServerConfig;
use sendoff_application_response::rate_limit::Paced;
use sendoff_compress::{Compressed, Policy, Producer};
use sendoff_config::{FrontConfig, Party, TrustedProxies};
use sendoff_exchange::service::{Answered, Service};
use sendoff_exchange::sink::Sink;
use sendoff_exchange::tunnel::Switch;
use sendoff_lua_host::ScriptAnswer;
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_report::at_work::Phase;
use sendoff_report::log_line::{LogLine, Notes};
use sendoff_report::traces;
use sendoff_site::Site;
use sendoff_site::effects::Answer;
use sendoff_site_files::router::PathTarget;
use sendoff_tls::{SiteTls, quic_config};

pub(crate) use self::fragment::{PlannedFragment, change_fragment};
use self::handle::answer_or_refuse;
use self::plan::{Answerer, LimitEffect, Plan, ServerAnswer, SitePlan};
pub use self::warm::{Fetched, OwnConnection, Warmed};
use crate::application::proxy::Switched;
use crate::context::{Context, Nesting};
use crate::lscache;
use crate::server_pages;
use crate::services::Services;

/// The protocols that clients of QUIC may choose (ALPN).
const QUIC_PROTOCOLS: &[&[u8]] = &[b"h3"];

/// The methods in `Allow` when the server itself answers, to `OPTIONS *` or TRACE.
const ALLOW: (&str, Bytes) = ("Allow", Bytes::from_static(b"GET, HEAD, POST, OPTIONS"));

impl Service for Services {
    type Plan = Plan;

    fn config(&self) -> &FrontConfig {
        &self.config.front
    }

    fn trusted_proxies(&self) -> &TrustedProxies {
        &self.config.trusted_proxies
    }

    fn party(&self, listener: usize) -> Option<&Rc<Party>> {
        self.sites.party(listener)
    }

    fn tls(&self, listener: usize, server_name: Option<&str>) -> io::Result<SiteTls> {
        let tls = self.tls_of(self.sites.number_of(listener, server_name)).cloned();
        tls.ok_or_else(|| io::Error::other("no site with a certificate listens here"))
    }

    fn quic(&self, listener: usize) -> io::Result<Arc<ServerConfig>> {
        if let Some(known) = self.quic.borrow().get(&listener) {
            return Ok(Arc::clone(known));
        }
        let none = || io::Error::other("no site listens here");
        let names = Arc::clone(self.sites.names(listener).ok_or_else(none)?);
        let tls = Arc::clone(&self.tls);
        let of_site = move |host: Option<&str>| {
            Some(Arc::clone(&tls.get(names.number_of(host)?)?.as_ref()?.config))
        };
        // Without a certificate, no client is served.
        self.tls(listener, None)?;
        let config = quic_config(&self.config.tls, &self.tickets, QUIC_PROTOCOLS, of_site);
        let config = config.map_err(io::Error::other)?;
        self.quic.borrow_mut().insert(listener, Arc::clone(&config));
        Ok(config)
    }

    fn challenge(&self, server_name: &str) -> Option<Arc<ServerConfig>> {
        self.challenges.config(server_name)
    }

    async fn plan(&self, request: &mut Request) -> Plan {
        if let Some(rules) = &self.config.traces {
            traces::begin(rules, &self.gatherer.spans.sampler, request);
        }
        self.plan_request(request).await
    }

    async fn answer(
        &self,
        plan: Plan,
        request: &Request,
        sink: &mut dyn Sink,
    ) -> Result<Answered, Cut> {
        let Plan { who, explained, listed, .. } = plan;
        if request.trace.as_ref().is_some_and(|trace| trace.is_sampled) {
            sink.client().notes().call = Some(Box::default());
        }
        if let Some(listed) = &listed {
            listed.task().note_phase(Phase::Waiting);
            sink.client().notes().task = Some(Rc::clone(listed.task()));
        }
        let planned = match who {
            Answerer::Site(planned) => planned,
            Answerer::Server(answer) => {
                Box::pin(self.answer_itself(answer, request, sink)).await?;
                return Ok(Answered::Sent);
            }
        };
        let switched = match planned.answer {
            Answer::Lua(ScriptAnswer::AfterBody) => {
                Box::pin(self.answer_after_body(&planned, explained, request, sink)).await?
            }
            _ => self.answer_for(&planned, explained, 0, request, sink).await?,
        };
        let Some(mut switched) = switched else { return Ok(Answered::Sent) };
        switched.tunnel.hold(planned.uses.under_way);
        if let Some(mut listed) = listed {
            listed.detach();
            switched.tunnel.keep_listed(listed);
            sink.client().notes().task = None;
        }
        let Switched { head, tunnel } = *switched;
        Ok(Answered::Switched(Switch { head, tunnel: Box::new(tunnel) }))
    }

    async fn refuse(&self, status: StatusCode, sink: &mut dyn Sink) -> Result<(), Cut> {
        server_pages::send_error_page(&mut filters::common(self, sink), status, []).await
    }

    fn for_log(&self, request: &Request, notes: &Notes) -> Request {
        let format = self.logs.of(&self.config, notes.site).map(|(_, format)| format);
        request.for_log(|name| format.is_some_and(|format| format.shows_field(name.as_str())))
    }

    fn log(&self, line: &LogLine<'_>) {
        let number = line.notes.site;
        self.meters.note(line);
        if let Some(spans) = traces::spans(&self.config, line) {
            self.gatherer.spans.push(spans);
        }
        if !line.notes.is_unlogged
            && let Some((log, format)) = self.logs.of(&self.config, number)
        {
            let site = number.and_then(|number| self.config.sites.get(number));
            let time = self.clock.shown();
            log.write(line, format, site.map(|site| &*site.name), &time);
        }
    }
}

impl Services {
    /// Answers a request that no site answers.
    async fn answer_itself(
        &self,
        answer: ServerAnswer,
        request: &Request,
        sink: &mut dyn Sink,
    ) -> Result<(), Cut> {
        let sink = &mut filters::common(self, sink);
        match answer {
            ServerAnswer::Options => {
                server_pages::send_empty(sink, StatusCode::NO_CONTENT, ALLOW).await
            }
            ServerAnswer::Trace => {
                server_pages::send_error_page(sink, StatusCode::METHOD_NOT_ALLOWED, [ALLOW]).await
            }
            ServerAnswer::Challenge(answer) => {
                let kind = Bytes::from_static(b"application/octet-stream");
                server_pages::send_text(StatusCode::OK, &kind, &answer, sink).await
            }
            ServerAnswer::Broken(why) => {
                let request = request.shown();
                tracing::error!(request, "answered with 500: the site cannot be opened: {why}");
                server_pages::send_error_page(sink, StatusCode::INTERNAL_SERVER_ERROR, []).await
            }
        }
    }

    /// Plans again, now that a script can see the body that it has asked for, and answers.
    /// `first` is the plan without the body.
    async fn answer_after_body(
        &self,
        first: &SitePlan,
        explained: bool,
        request: &Request,
        sink: &mut dyn Sink,
    ) -> Result<Option<Box<Switched>>, Cut> {
        let mut request = request.clone();
        request.has_body = !request.body.is_empty();
        // Starts from the path as sent, because scripts and routes would change a changed path once
        // more.
        let planned = match request.restart() {
            Ok(()) => {
                let site = Rc::clone(&first.site);
                let count = LimitEffect::Counts { counted: &first.uses.counted };
                self.plan_for(site, &mut request, 0, explained, count).await
            }
            Err(bad) => {
                let answer = Answer::refused(StatusCode::BAD_REQUEST, bad.0.to_owned());
                let (effects, user) = (Box::default(), Vec::new());
                SitePlan::new(Rc::clone(&first.site), answer, effects, user)
            }
        };
        let mut switched = self.answer_for(&planned, explained, 0, &request, sink).await?;
        if let Some(switched) = &mut switched {
            switched.tunnel.hold(planned.uses.under_way);
        }
        Ok(switched)
    }

    /// Answers a subrequest of a script; `depth` is the number of subrequests around the request.
    pub(crate) async fn answer_script(
        &self,
        site: &Rc<Site>,
        request: &mut Request,
        depth: u8,
        sink: &mut dyn Sink,
    ) -> Result<(), Cut> {
        let planned =
            self.plan_for(Rc::clone(site), request, depth, false, LimitEffect::Ignored).await;
        self.answer_for(&planned, false, depth, request, sink).await.map(drop)
    }

    /// Answers a request as planned. Returns the change of protocol, if the application has agreed
    /// to one.
    async fn answer_for(
        &self,
        planned: &SitePlan,
        explained: bool,
        depth: u8,
        request: &Request,
        sink: &mut dyn Sink,
    ) -> Result<Option<Box<Switched>>, Cut> {
        let SitePlan { site, answer, effects, if_none_match, user, .. } = planned;
        let of = effects.settings.compress.unwrap_or(site.compression.of);
        let producer = match answer {
            _ if planned.denial.borrow().is_some() => Producer::Application,
            Answer::Path(PathTarget::Script(_))
            | Answer::Proxy { .. }
            | Answer::Lua(ScriptAnswer::Body { .. }) => Producer::Application,
            _ => Producer::Server,
        };
        let asked = if_none_match.as_ref();
        let policy = || Policy::new(&site.compression, of, producer, request, asked);
        // The table itself is not compressed.
        let compression = if explained { None } else { policy() };
        let compression = compression.as_ref();
        let nesting = Nesting::at(depth);
        let context =
            Context { services: self, site, request, effects, compression, user, nesting };
        let notes = sink.client().notes();
        notes.site = Some(site.number);
        notes.route = effects.route;
        notes.maps = site.logged_maps(request);
        notes.is_unlogged = effects.settings.access_log == Some(false);
        let named = if user.is_empty() { &effects.authorized.user } else { user };
        if !named.is_empty() {
            notes.user = Some(String::from_utf8_lossy(named).into_owned());
        }
        let mut compressed;
        let sink = match compression {
            Some(policy) => {
                compressed = Box::new(Compressed::new(sink, policy, &self.compressor));
                &mut *compressed as &mut dyn Sink
            }
            None => sink,
        };
        let sink = &mut filters::site_rules(&context, sink);
        if explained {
            Box::pin(explain::answer(&context, planned, policy(), sink)).await?;
            return Ok(None);
        }
        let rate = effects.settings.limit_rate.and_then(NonZeroU64::new);
        let mut paced;
        let sink = match rate {
            Some(rate) => {
                paced = Box::new(Paced::new(sink, &request.method, rate));
                &mut *paced as &mut dyn Sink
            }
            None => sink,
        };
        let mut stripped;
        let sink = match site.speaks_lscache() {
            true => {
                stripped = lscache::strip(sink);
                &mut stripped as &mut dyn Sink
            }
            false => sink,
        };
        answer_or_refuse(&context, planned, sink).await
    }
}
