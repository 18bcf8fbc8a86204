//! Requests of the server itself, which make pages before clients ask for them: planned and answered
//! like the request of a client without cookies, and not counted by limits of routes.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use http::header::{HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use sendoff_exchange::head_filter::HeadFilter;
use sendoff_exchange::sink::Discard;
use sendoff_message::request::{Body, Endpoint, Request, Scheme, TLS_13, TlsFacts, host_name};
use sendoff_message::response::ResponseHead;
use sendoff_site_files::router::{Script, Upstream};
use sendoff_upstream::hosts::Hosts;

use super::fragment::answer_plainly;
use super::plan::{LimitEffect, SitePlan};
use crate::application::proxy::ProxyTarget;
use crate::cached::{CacheLookup, OriginApplication};
use crate::context::Nesting;
use crate::services::Services;
use crate::subrequest::ResponseBuffer;

/// The client's address. It is for documentation (RFC 5737): applications and rules that trust the
/// addresses of operators do not trust this one.
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The value of `User-Agent`.
const AGENT: HeaderValue =
    HeaderValue::from_static("Mozilla/5.0 (compatible; Sendoff; page cache)");

/// The cipher suite in the parameters of scripts.
const CIPHER: &str = "TLS_AES_256_GCM_SHA384";

/// Requests in flight to an application whose number of processes is not known, above which no page
/// is made before clients ask for it.
const FEW: usize = 1;

/// The connection on which a client would send a request.
#[derive(Debug, Clone)]
pub struct OwnConnection {
    /// The place of the listener.
    pub listener: usize,
    /// Its scheme.
    pub scheme: Scheme,
    /// Its address.
    pub local: Endpoint,
}

/// The outcome of a request for a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warmed {
    /// A fresh page is kept already.
    Fresh,
    /// The application has made the page, and it is kept.
    Made,
    /// The application is not asked, or its page may not be kept.
    NotKept {
        /// The application was asked.
        is_asked: bool,
    },
    /// Clients need the workers at present; nothing was requested.
    Busy,
    /// There is no page; the reason, as a sentence about "it".
    Failed(String),
}

/// A response to a request for a sitemap.
#[derive(Debug)]
pub enum Fetched {
    /// The body of a successful response.
    Body(Bytes),
    /// The value of `Location` in a redirect.
    Redirect(String),
    /// Clients need the workers at present; nothing was requested.
    Busy,
}

impl Services {
    /// The request for `uri` of `authority`, as a client on this connection sends it.
    ///
    /// # Errors
    /// The address cannot be requested; the reason, as a sentence about "it".
    pub fn own_request(
        &self,
        connection: &OwnConnection,
        authority: &str,
        uri: &str,
    ) -> Result<Request, String> {
        let host = HeaderValue::from_str(authority).map_err(|_| "its host is not valid")?;
        let headers = HeaderMap::from_iter([(HOST, host), (USER_AGENT, AGENT)]);
        let (uri, host) = (Bytes::from(uri.to_owned()), Bytes::from(authority.to_owned()));
        let OwnConnection { listener, scheme, ref local } = *connection;
        let mut request = Request {
            method: Method::GET,
            target: uri.clone(),
            uri,
            path: Vec::new(),
            query: None,
            host: Some(host),
            headers,
            version: Version::HTTP_11,
            scheme,
            tls: None,
            port: local.port(),
            body: Body::default(),
            has_body: false,
            trailers: None,
            ruled: Vec::new(),
            is_internal_redirect: false,
            id: None,
            trace: None,
            listener,
            peer: Endpoint::Ip(SocketAddr::new(CLIENT.into(), 0)),
            via: None,
            local: local.clone(),
        };
        request.restart().map_err(|bad| bad.0.to_owned())?;
        if scheme == Scheme::Https {
            request.tls = Some(self.own_handshake(&request));
        }
        Ok(request)
    }

    /// The handshake of a client without a certificate.
    fn own_handshake(&self, request: &Request) -> Rc<TlsFacts> {
        let name = request.host_name();
        let site = self.sites.number_of(request.listener, Some(&name));
        Rc::new(TlsFacts {
            by_kernel: false,
            version: TLS_13,
            cipher: CIPHER,
            server_name: Some(name.into()),
            demand: self.tls_of(site).and_then(|tls| tls.clients.clone()),
            client_certificate: None,
        })
    }

    /// True if the site with this name answers for the host of `authority`. A site that answers for
    /// all hosts does so only for the host `named`.
    pub fn is_own(
        &self,
        site: &str,
        named: &str,
        connection: &OwnConnection,
        authority: &str,
    ) -> bool {
        let host = host_name(authority.as_bytes());
        let number = self.sites.number_of(connection.listener, Some(&host));
        let config = number.and_then(|number| self.config.sites.get(number));
        // The default site also gets requests for hosts that no site names.
        config.is_some_and(|config| {
            config.name == site && (host == named || config.answers_for(&host))
        })
    }

    /// Requests a sitemap, of at most `most` bytes.
    ///
    /// # Errors
    /// There is none; the reason, as a sentence about "it".
    pub async fn fetch(&self, request: &mut Request, most: usize) -> Result<Fetched, String> {
        let Some(planned) = self.plan_own(request).await? else {
            return Err("it is only answered over https".to_owned());
        };
        if planned.origin().is_some_and(|origin| !self.has_spare(planned.site.number, origin)) {
            return Ok(Fetched::Busy);
        }
        let context = planned.context(self, request, Nesting::default());
        let mut answer = ResponseBuffer::with_limit(&request.method, most);
        let answered = answer_plainly(&context, &planned, &mut answer).await;
        let reply = answered.map_err(|cut| cut.to_string()).and_then(|()| answer.into_reply());
        let reply = reply.map_err(|why| format!("it did not come: {why}"))?;
        let location =
            reply.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(LOCATION.as_ref()));
        match (reply.status, location) {
            (200, _) => Ok(Fetched::Body(reply.body)),
            (301 | 302 | 303 | 307 | 308, Some((_, to))) => {
                Ok(Fetched::Redirect(String::from_utf8_lossy(to).into_owned()))
            }
            (status, _) => Err(format!("it was answered with {status}")),
        }
    }

    /// Has a page made, unless a fresh one is kept already.
    pub async fn warm(&self, request: &mut Request) -> Warmed {
        let planned = match self.plan_own(request).await {
            Ok(Some(planned)) => planned,
            Ok(None) => return Warmed::NotKept { is_asked: false },
            Err(why) => return Warmed::Failed(why),
        };
        let context = planned.context(self, request, Nesting::default());
        let Some(origin) = planned.origin() else { return Warmed::NotKept { is_asked: false } };
        let Some(lookup) = CacheLookup::of(&context, origin) else {
            return Warmed::NotKept { is_asked: false };
        };
        if lookup.is_fresh() {
            return Warmed::Fresh;
        }
        if !self.has_spare(planned.site.number, origin) {
            return Warmed::Busy;
        }
        let (mut status, mut discard) = (None, Discard::default());
        let note = |head: &mut ResponseHead| status = Some(head.status);
        let mut sink = HeadFilter::new(&mut discard, false, note);
        let answered = answer_plainly(&context, &planned, &mut sink).await;
        lookup.is_settled().await;
        match (answered, status) {
            (Ok(()), _) if lookup.is_fresh() => Warmed::Made,
            (Err(cut), _) => Warmed::Failed(format!("its answer broke off: {cut}")),
            (Ok(()), Some(status)) if is_error(status) => {
                Warmed::Failed(format!("it was answered with {}", status.as_u16()))
            }
            (Ok(()), _) => Warmed::NotKept { is_asked: true },
        }
    }

    /// Plans a request of the server; `None`: clients have to come over another connection.
    async fn plan_own(&self, request: &mut Request) -> Result<Option<SitePlan>, String> {
        let site = self.sites.of(request).map_err(|why| format!("its site is unusable: {why}"))?;
        if self.before_rules(&site, request).is_some() {
            return Ok(None);
        }
        Ok(Some(self.plan_for(site, request, 0, false, LimitEffect::Ignored).await))
    }

    /// True if a request to this application delays no client.
    fn has_spare(&self, site: usize, origin: OriginApplication<'_>) -> bool {
        let number = match origin {
            OriginApplication::Script(Script { upstream: Upstream::Workers(pool), .. }) => {
                return self.pools[*pool].shared.has_spare();
            }
            OriginApplication::Script(Script {
                upstream: Upstream::Application(number), ..
            }) => *number,
            OriginApplication::Proxy(ProxyTarget { application, .. }) => {
                return in_flight(self.gateways[site][application].hosts()) <= FEW;
            }
        };
        let hosts = &self.attached[site][number];
        let pool = self.config.pool_at(&self.config.sites[site].fastcgi[number].address);
        // One process stays idle, unless there is only one.
        let most = pool.map_or(FEW, |pool| self.config.pools[pool].processes().saturating_sub(2));
        in_flight(hosts) <= most && hosts.all().iter().all(|host| host.load().waiting == 0)
    }
}

fn in_flight<T>(hosts: &Hosts<T>) -> usize {
    hosts.states().iter().map(|(state, _)| state.in_flight).sum()
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}
