//! A request in the form for an application: the parameters of CGI, or the head of a request in
//! HTTP/1.1, HTTP/2, SCGI, uwsgi or AJP. Without I/O.
//!
//! - [`parameters`]: the meta-variables of CGI/1.1, for workers and FastCGI applications
//! - `http1`, `http2`, `scgi`, `uwsgi`, `ajp`: heads for applications behind a `proxy`
//! - `target`: the path that a proxied application is asked for
//! - `forwarded`: the fields that tell a proxied application about the client
//! - [`public_urls`]: its URLs and cookies as its clients must see them
#![forbid(unsafe_code)]

mod ajp;
mod forwarded;
mod http1;
mod http2;
pub mod parameters;
pub mod public_urls;
mod scgi;
mod target;
mod uwsgi;

use std::rc::Rc;

use http::{HeaderName, Method, StatusCode};
use sendoff_config::{Config, GatewayProtocol, Proxy};
use sendoff_http1::client::HopByHop;
use sendoff_message::request::Request;
use sendoff_site::Site;
use sendoff_site::effects::Effects;
use sendoff_upstream_gateway::{GatewayMessage, GatewayRequest, RequestProtocol};
use sendoff_upstream_http2::Http2Request;

use forwarded::AboutClient;
use parameters::NOT_FROM_CLIENTS;
use target::StrippedPrefix;

/// A client's request, and everything that the server tells an application about it.
#[derive(Clone, Copy)]
pub struct ApplicationRequest<'a> {
    /// The request.
    pub request: &'a Request,
    /// Its site.
    pub site: &'a Site,
    /// The effects of the site's routes on parameters and fields.
    pub effects: &'a Effects,
    /// The user whose password the client has shown; empty: no password was required.
    pub user: &'a [u8],
    /// The configuration, for the root folders of pools.
    pub config: &'a Config,
}

/// Why a request cannot be sent to the application.
#[derive(Debug)]
pub struct Unsendable {
    /// The status for the client.
    pub status: StatusCode,
    /// For the log.
    pub why: String,
}

impl Unsendable {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

/// True if a field of the client is for the application behind a proxy: neither for the connection
/// nor for a setting of the application.
fn is_passed_on(name: &HeaderName, hops: &HopByHop<'_>) -> bool {
    !hops.is(name) && !NOT_FROM_CLIENTS.contains(&name.as_str())
}

/// The message for an application behind a `proxy`. `prefix`: bytes of the path that the route has
/// matched. `may_switch`: the client's connection could carry another protocol.
///
/// # Errors
/// The application's protocol has no way to say this request.
pub fn message(
    asked: &ApplicationRequest<'_>,
    proxy: &Proxy,
    prefix: usize,
    may_switch: bool,
) -> Result<GatewayMessage, Unsendable> {
    let request = asked.request;
    let about = AboutClient {
        request,
        fields: proxy.forwarded,
        believed: &asked.config.trusted_proxies.fields,
        stripped: StrippedPrefix::of(proxy, prefix),
    };
    let (head, protocol) = match &proxy.protocol {
        GatewayProtocol::Http { host, upgrade, .. } => {
            http1::head(about, proxy, host, *upgrade && may_switch)?
        }
        GatewayProtocol::Http2 { host, tls, upgrade, .. } => {
            let head = http2::head(about, proxy, host, tls.is_some())?;
            let may_switch = *upgrade && may_switch;
            let websocket = may_switch.then(|| http2::websocket(request, &head)).flatten();
            let message = Http2Request::new(head, request.body.clone(), http2::trailers(request));
            return Ok(GatewayMessage::Http2(Rc::new(message.offering(websocket))));
        }
        GatewayProtocol::Scgi => (scgi::head(asked, prefix), RequestProtocol::Scgi),
        GatewayProtocol::Uwsgi => (uwsgi::head(asked, prefix)?, RequestProtocol::Uwsgi),
        GatewayProtocol::Ajp { secret, packet_size } => {
            let head = ajp::head(asked, secret.as_deref(), *packet_size)?;
            (head, RequestProtocol::Ajp { packet_size: *packet_size })
        }
    };
    let is_head = request.method == Method::HEAD;
    let message = GatewayRequest { head, body: request.body.clone(), is_head, protocol };
    Ok(GatewayMessage::Bytes(Rc::new(message)))
}
