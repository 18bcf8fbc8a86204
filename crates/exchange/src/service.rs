//! What a protocol asks of the server: to choose a handler for a request, to answer it, to log it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use rustls::ServerConfig;
use sendoff_config::{FrontConfig, Party, TrustedProxies};
use sendoff_http1::BodyFraming;
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_report::log_line::Line;

use crate::responder::Responder;

/// The service that answers the next request. A reload replaces it; requests that have begun go on with the service they began with.
#[derive(Debug)]
pub struct Current<S>(RefCell<Rc<S>>);

impl<S> Current<S> {
    /// Begins with this service.
    pub fn new(service: S) -> Rc<Self> {
        Rc::new(Self(RefCell::new(Rc::new(service))))
    }

    /// The service for a request that begins now.
    pub fn get(&self) -> Rc<S> {
        Rc::clone(&self.0.borrow())
    }

    /// Requests that begin from now on get this service.
    pub fn replace(&self, service: S) {
        let before = self.0.replace(Rc::new(service));
        // Its drop may run code of its own, so not under the borrow.
        drop(before);
    }
}

/// Answers requests. One value per event loop and configuration.
#[expect(async_fn_in_trait, reason = "an event loop is one thread: its futures need not be Send")]
pub trait Service {
    /// Which handler will answer a request, and how.
    type Plan;

    /// Time and size limits for clients.
    fn limits(&self) -> &FrontConfig;

    /// Proxies whose word about clients is taken.
    fn trusted_proxies(&self) -> &TrustedProxies;

    /// The party whose processes answer all requests that come to a listener; `None`: there are several.
    fn party(&self, _listener: usize) -> Option<&Rc<Party>> {
        None
    }

    /// How a client of a TLS listener is met that names this host (SNI).
    ///
    /// # Errors
    /// No site on the listener speaks TLS.
    fn tls(&self, listener: usize, server_name: Option<&str>) -> io::Result<Arc<ServerConfig>>;

    /// How an authority is met that checks whether this host leads here (ACME); `None`: it is met as any client.
    fn challenge(&self, _server_name: &str) -> Option<Arc<ServerConfig>> {
        None
    }

    /// Chooses the handler, before the body has been read. Changes the request as the site's rules say, and removes fields that are
    /// meant for the server itself.
    async fn plan(&self, request: &mut Request) -> Self::Plan;

    /// The largest request body that the handler takes, in bytes.
    fn max_body(&self, plan: &Self::Plan) -> u64;

    /// Whether the handler uses the request's body. If not, the protocol reads and drops the body, and sends no `100 Continue`.
    fn wants_body(plan: &Self::Plan) -> bool;

    /// Whether the handler takes the body of the request, whose framing is this, while it arrives. Only asked if it wants the body.
    fn streams_body(&self, _plan: &Self::Plan, _request: &Request, _framing: BodyFraming) -> bool {
        false
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The client has gone, or its response was cut short after it had begun.
    async fn answer(
        &self,
        plan: Self::Plan,
        request: &Request,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut>;

    /// Answers a request that the protocol refuses.
    ///
    /// # Errors
    /// The client has gone.
    async fn refuse(&self, status: StatusCode, responder: &mut dyn Responder) -> Result<(), Cut>;

    /// Writes the request's line to the access log, however the request ended.
    fn log(&self, line: &Line<'_>);
}
