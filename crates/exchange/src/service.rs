//! The server as protocols see it: it chooses a handler for a request, answers the request and logs
//! it.

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
use sendoff_report::log_line::{LogLine, Notes};
use sendoff_tls::SiteTls;

use crate::sink::Sink;
use crate::tunnel::Switch;

/// The service that answers the next request. A reload replaces it; a request that has begun keeps
/// its service.
#[derive(Debug)]
pub struct Current<S>(RefCell<Rc<S>>);

impl<S> Current<S> {
    /// Starts with this service.
    pub fn new(service: S) -> Rc<Self> {
        Rc::new(Self(RefCell::new(Rc::new(service))))
    }

    /// The service for a request that begins now.
    pub fn get(&self) -> Rc<S> {
        Rc::clone(&self.0.borrow())
    }

    /// Sets the service for requests that begin from now on.
    pub fn replace(&self, service: S) {
        let before = self.0.replace(Rc::new(service));
        // Its drop may run code of its own, so not under the borrow.
        drop(before);
    }
}

/// A decision about a request, made before its body is read.
pub trait Plan {
    /// The terms for the request's body.
    fn body(&self) -> BodyTerms;
}

/// The terms for a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyTerms {
    /// The largest body that is accepted, in bytes.
    pub max: u64,
    /// The way to the handler.
    pub intake: Intake,
}

/// The way of a request's body to the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake {
    /// No handler uses it: the handler begins at once, and the protocol reads and drops the body
    /// meanwhile and afterwards. It sends no `100 Continue`.
    Unused,
    /// The handler begins when the body is complete.
    Whole,
    /// The handler takes the body while it arrives if its length was announced; otherwise like
    /// [`Whole`](Self::Whole).
    StreamOfKnownLength,
    /// The handler takes the body while it arrives.
    Stream,
    /// The same, and the handler answers meanwhile: the client may be silent for long.
    Duplex,
}

impl BodyTerms {
    /// True if a handler uses the body.
    pub fn is_wanted(self) -> bool {
        self.intake != Intake::Unused
    }

    /// True if the handler takes a body with this framing while it arrives.
    pub fn streams(self, framing: BodyFraming) -> bool {
        match self.intake {
            Intake::Unused | Intake::Whole => false,
            Intake::StreamOfKnownLength => matches!(framing, BodyFraming::Length(1..)),
            Intake::Stream | Intake::Duplex => true,
        }
    }
}

/// The answer to a request.
pub enum Answered {
    /// The response has been sent.
    Sent,
    /// The connection goes on in another protocol. The plan and the request may be dropped before
    /// the tunnel begins.
    Switched(Switch),
}

/// Answers requests. One value per event loop and configuration.
#[expect(async_fn_in_trait, reason = "an event loop is one thread: its futures need not be Send")]
pub trait Service {
    /// Which handler will answer a request, and how.
    type Plan: Plan;

    /// The configuration of the front: limits, timeouts, request ids.
    fn config(&self) -> &FrontConfig;

    /// Proxies whose statements about clients are trusted.
    fn trusted_proxies(&self) -> &TrustedProxies;

    /// The party whose processes answer all requests of a listener; `None`: there are several.
    fn party(&self, _listener: usize) -> Option<&Rc<Party>> {
        None
    }

    /// The TLS settings for a client that names this host (SNI) on a TLS listener.
    ///
    /// # Errors
    /// No site on the listener speaks TLS.
    fn tls(&self, listener: usize, server_name: Option<&str>) -> io::Result<SiteTls>;

    /// The TLS settings for a certificate authority that validates this host (ACME, RFC 8737);
    /// `None`: no validation is expected, and the client gets the usual settings.
    fn challenge(&self, _server_name: &str) -> Option<Arc<ServerConfig>> {
        None
    }

    /// The TLS settings for clients of HTTP/3 on a QUIC listener. The certificate depends on the
    /// host that the client names.
    ///
    /// # Errors
    /// No site on the listener speaks TLS.
    fn quic(&self, _listener: usize) -> io::Result<Arc<ServerConfig>> {
        Err(io::Error::other("no site speaks HTTP/3 here"))
    }

    /// Chooses the handler, before the body has been read. Changes the request as the site's rules
    /// say, and removes fields that are meant for the server itself.
    async fn plan(&self, request: &mut Request) -> Self::Plan;

    /// Answers a request.
    ///
    /// # Errors
    /// The client has gone, or its response was cut short after it had begun.
    async fn answer(
        &self,
        plan: Self::Plan,
        request: &Request,
        sink: &mut dyn Sink,
    ) -> Result<Answered, Cut>;

    /// Answers a request that the protocol refuses.
    ///
    /// # Errors
    /// The client has gone.
    async fn refuse(&self, status: StatusCode, sink: &mut dyn Sink) -> Result<(), Cut>;

    /// The parts of a request that its line in the access log shows, in memory of their own.
    fn for_log(&self, request: &Request, notes: &Notes) -> Request;

    /// Writes the request's line to the access log, regardless of the end of the request.
    fn log(&self, line: &LogLine<'_>);
}
