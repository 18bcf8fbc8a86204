//! One client's connection: one request after the other, each passed to its handler, which answers
//! on an [`Exchange`].

use std::io;
use std::rc::Rc;

use bytes::BytesMut;
use http::StatusCode;
use sendoff_config::Party;
use sendoff_exchange::lifecycle::{Lifecycle, StartingGuard};
use sendoff_exchange::service::{Answered, Current, Service};
use sendoff_http1::{HeadDecoder, Limits, RequestError};
use sendoff_message::request::{Origin, Request, received};
use sendoff_transport::Transport;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::exchange::{Exchange, Parts, RequestFacts, RequestLine};
use super::incoming::Unread;
use super::reading::{IncomingHead, Received};
use super::tunnel::ConnectionTunnel;

/// Pipelined requests that are answered in one go; then other connections have their turn.
const MOST_AT_ONCE: u32 = 16;

/// A connection whose client speaks HTTP/2. The buffer begins with the preface.
pub struct Http2<T> {
    /// The connection.
    pub transport: T,
    /// The addresses of the connection.
    pub origin: Origin,
    /// Bytes that were read from the connection.
    pub buffer: BytesMut,
}

/// The end of the service of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// The connection has ended.
    Ended,
    /// The client speaks HTTP/2.
    Http2,
}

/// The state of the connection after a request.
pub(super) enum AfterRequest<S: Service> {
    /// Another request may follow.
    Request,
    /// The connection goes on in another protocol.
    Tunnel(Box<ConnectionTunnel<S>>),
    /// The connection is closed.
    Close,
    /// The bytes were the preface of HTTP/2 instead of a request.
    Http2,
}

/// The reason why no handler answers a request and the connection ends.
pub(super) enum ConnectionEnd {
    /// The client speaks HTTP/2.
    Http2,
    /// The client closed the connection between requests, or was idle for too long.
    Quiet,
    /// The request is answered with an error page of this status.
    Refused { status: StatusCode, why: String },
    /// The connection is broken.
    Io(io::Error),
}

impl From<io::Error> for ConnectionEnd {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<RequestError> for ConnectionEnd {
    fn from(error: RequestError) -> Self {
        Self::Refused { status: error.status(), why: error.to_string() }
    }
}

pub(super) fn refused(status: StatusCode, why: &str) -> ConnectionEnd {
    ConnectionEnd::Refused { status, why: why.to_owned() }
}

/// A client's connection.
pub struct Connection<T> {
    pub(super) transport: T,
    pub(super) origin: Origin,
    pub(super) lifecycle: Rc<Lifecycle>,
    /// Bytes of the client that are not parsed yet.
    pub(super) buffer: BytesMut,
    /// No request has been read.
    pub(super) is_new: bool,
    /// No response has begun.
    starting: Option<StartingGuard>,
    /// The client took the last response as fast as it was made.
    kept_up: bool,
    /// The party that it has been lent to, which may still have the socket and see all requests
    /// that come.
    pub(super) lent_to: Option<Rc<Party>>,
}

impl<T: Transport> Connection<T> {
    /// `buffer` has the bytes that were already read from the client.
    pub fn new(
        transport: T,
        origin: Origin,
        buffer: BytesMut,
        lifecycle: Rc<Lifecycle>,
        starting: Option<StartingGuard>,
    ) -> Self {
        Self {
            transport,
            origin,
            lifecycle,
            buffer,
            is_new: true,
            starting,
            kept_up: true,
            lent_to: None,
        }
    }

    /// Serves the client until the connection ends, or the client turns out to speak HTTP/2.
    /// Borrows the connection: a future that owned it would reserve room for it twice, which is 400
    /// bytes of each idle connection.
    pub async fn serve<S: Service>(&mut self, services: &Current<S>) -> Served {
        let mut at_once = 0;
        loop {
            if self.buffer.is_empty() {
                at_once = 0;
                if !self.may_stay_open(&*services.get()) || !self.wait_for_request().await {
                    return Served::Ended;
                }
            }
            at_once += 1;
            if at_once == MOST_AT_ONCE {
                at_once = 0;
                yield_now().await;
            }
            // Not earlier, so that an idle connection holds no old configuration.
            let service = services.get();
            if !self.may_stay_open(&*service) {
                return Served::Ended;
            }
            // On the heap, because the state of an exchange takes kilobytes, which an idle
            // connection should not hold. Constructed there, too: `Box::pin` would construct it on
            // the stack and copy it, which took 7 % of the user time of a small file.
            let exchange = Box::write(Box::new_uninit(), self.serve_one(&service));
            let after = Box::into_pin(exchange).await;
            match after {
                AfterRequest::Tunnel(tunnel) => {
                    // A tunnel may stay open for hours: its own line has the service that it needs.
                    drop(service);
                    tunnel.run(&mut self.transport).await;
                    return Served::Ended;
                }
                AfterRequest::Request => self.is_new = false,
                AfterRequest::Close => return Served::Ended,
                AfterRequest::Http2 => return Served::Http2,
            }
        }
    }

    /// The connection for a client that speaks HTTP/2.
    pub fn into_http2(self) -> Http2<T> {
        let Self { transport, origin, buffer, .. } = self;
        Http2 { transport, origin, buffer }
    }

    /// False if a process that has the socket may not see the next request: a reload has brought
    /// another party to the listener.
    fn may_stay_open<S: Service>(&self, service: &S) -> bool {
        self.lent_to.is_none() || self.lent_to.as_ref() == service.party(self.origin.listener)
    }

    /// Serves one request.
    async fn serve_one<S: Service>(&mut self, service: &Rc<S>) -> AfterRequest<S> {
        let shared = service;
        let service = &**shared;
        let decoder = HeadDecoder::new(Limits::default());
        let mut incoming = IncomingHead { decoder, began: Instant::now() };
        let head = match self.read_head(service, &mut incoming).await {
            Ok(head) => head,
            Err(end) => {
                let asked = self.asked_by_bad_head(&incoming);
                return self.end_early(service, end, asked, None).await;
            }
        };
        let asked = RequestFacts {
            method: head.method.clone(),
            version: head.version,
            line: RequestLine::Parsed {
                method: head.method.clone(),
                target: head.target.raw().clone(),
                version: head.version,
            },
            keep_alive: head.keep_alive,
            began: incoming.began,
        };
        let (framing, waits) = (head.framing, head.expect_continue);
        let proxies = Some(service.trusted_proxies()).filter(|all| self.origin.vouches(all));
        let ids = service.config().request_ids;
        let mut request = match received::request(head, &self.origin, proxies, ids) {
            Ok(request) => request,
            Err(bad) => {
                let end = refused(StatusCode::BAD_REQUEST, bad.0);
                return self.end_early(service, end, asked, None).await;
            }
        };
        match self.read_request(service, &mut request, framing, waits).await {
            Ok(Received { plan, keep_alive, rest }) => {
                let asked = RequestFacts { keep_alive: asked.keep_alive && keep_alive, ..asked };
                self.answer(shared, plan, &request, rest, asked).await
            }
            Err(end) => self.end_early(service, end, asked, Some(&request)).await,
        }
    }

    async fn answer<S: Service>(
        &mut self,
        service: &Rc<S>,
        plan: S::Plan,
        request: &Request,
        rest: Unread,
        asked: RequestFacts,
    ) -> AfterRequest<S> {
        let mut exchange = self.exchange(&**service, asked, Some(request));
        exchange.receive(rest);
        match service.answer(plan, request, &mut exchange).await {
            Ok(Answered::Sent) => {}
            Ok(Answered::Switched(switch)) => {
                let line = exchange.line();
                let switched = exchange.switch(switch, service, request);
                return match switched.inspect_err(|cut| cut.log(&line)) {
                    Ok(tunnel) => AfterRequest::Tunnel(tunnel),
                    Err(_) => AfterRequest::Close,
                };
            }
            Err(cut) => {
                cut.log(&exchange.line());
                exchange.note_fault(cut.fault);
                return AfterRequest::Close;
            }
        }
        let completed = exchange.completed();
        let rest = exchange.take_rest();
        drop(exchange);
        match (completed, rest) {
            (None, _) => {}
            (Some(true), Unread::Nothing) => return AfterRequest::Request,
            (Some(false), Unread::Nothing) => self.close().await,
            (Some(true), Unread::Dropped(rest)) => {
                if self.drop_rest(rest).await {
                    return AfterRequest::Request;
                }
                self.linger().await;
            }
            (Some(_), _) => self.linger().await,
        }
        AfterRequest::Close
    }

    pub(super) fn exchange<'c, S: Service>(
        &'c mut self,
        service: &'c S,
        asked: RequestFacts,
        request: Option<&'c Request>,
    ) -> Exchange<'c, T, S> {
        let Self { transport, origin, lifecycle, buffer, starting, kept_up, lent_to, .. } = self;
        let parts = Parts {
            transport,
            client: &origin.peer,
            service,
            lifecycle,
            starting,
            read_ahead: buffer,
            kept_up_before: kept_up,
            lent_to,
        };
        Exchange::new(parts, asked, request)
    }
}
