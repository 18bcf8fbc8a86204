//! One client's HTTP/1.1 connection, from the first byte to the close.

mod client;
mod explained;
mod lent;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, Version, header};
use rustix::io::ioctl_fionread;
use sendoff_http1::{BodyDecoder, Decoded, HeadDecoder, Limits, RequestError};
use sendoff_sys::sock_diag;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, timeout, timeout_at};

pub(crate) use client::{Asked, Client};

use crate::access_log;
use crate::explain;
use crate::front::Loop;
use crate::handler;
use crate::request::{Body, BodyStore, decode_path};
use crate::router::Route;

/// What one read may bring, in bytes.
const READ: usize = 16 * 1024;

/// How long the bytes of a refused request are read and dropped, so that its client sees the answer instead of a reset.
const LINGER: Duration = Duration::from_secs(2);

/// A request, complete.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: sendoff_http1::Head,
    pub(crate) body: Body,
    /// Decoded and normalised; starts with a slash.
    pub(crate) path: Vec<u8>,
}

/// How a response ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) status: StatusCode,
    /// Whether the next request may follow.
    pub(crate) keep_alive: bool,
}

/// Why a connection ends before its time.
enum End {
    /// The client closed it between requests, or it was idle for too long, or the server is stopping.
    Quiet,
    /// The request is answered with this and no more.
    Refused(StatusCode, String),
    /// The connection is of no more use.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<RequestError> for End {
    fn from(error: RequestError) -> Self {
        Self::Refused(error.status(), error.to_string())
    }
}

/// Serves one client until the connection ends.
pub(crate) async fn serve(event_loop: Rc<Loop>, stream: TcpStream, peer: SocketAddr) {
    let Ok(local) = stream.local_addr() else { return };
    let ends = sock_diag::Connection { local, peer };
    let client = Client::new(stream, ends, event_loop.config.front.timeouts.send);
    let heads = HeadDecoder::new(Limits::default());
    let mut connection = Connection { event_loop, client, buffer: BytesMut::new(), heads };
    loop {
        match connection.serve_one().await {
            Ok(true) => {}
            Ok(false) => return connection.close().await,
            Err(End::Quiet) => return,
            Err(End::Refused(status, why)) => return connection.refuse(status, &why).await,
            Err(End::Io(error)) => {
                tracing::debug!(%peer, %error, "connection cut");
                if !connection.client.sees_a_cut() {
                    connection.client.reset();
                }
                return;
            }
        }
    }
}

struct Connection {
    event_loop: Rc<Loop>,
    client: Client,
    buffer: BytesMut,
    heads: HeadDecoder,
}

impl Connection {
    /// One request and its response. Returns whether another may follow.
    async fn serve_one(&mut self) -> Result<bool, End> {
        let mut head = self.read_head().await?;
        let secret = self.event_loop.explain.as_deref();
        let explained = explain::is_asked(secret, &mut head.headers);
        let bad_path =
            |why: crate::request::BadPath| End::Refused(StatusCode::BAD_REQUEST, why.0.to_owned());
        let path = match &head.target.path()[..] {
            b"*" => b"/".to_vec(),
            path => decode_path(path).map_err(bad_path)?,
        };
        let event_loop = Rc::clone(&self.event_loop);
        let route = event_loop.router.route(&path);
        let body = self.read_body(&head, matches!(route, Route::Script(_))).await?;
        let request = Request { head, body, path };
        let outcome = if explained {
            self.explain(&request, route).await?
        } else {
            self.answer(&request, route).await?
        };
        self.log(&request, outcome.status);
        Ok(outcome.keep_alive)
    }

    async fn answer(&mut self, request: &Request, route: Route) -> io::Result<Outcome> {
        let event_loop = Rc::clone(&self.event_loop);
        let asked = Asked {
            method: &request.head.method,
            version: request.head.version,
            keep_alive: request.head.keep_alive && !event_loop.is_stopping(),
        };
        let client = &mut self.client;
        match (&request.head.method, route) {
            // It would hand credentials to scripts in the page (RFC 9110 §9.3.8).
            (&Method::TRACE, _) => {
                let allow = [("Allow", Bytes::from_static(b"GET, HEAD, POST"))];
                let status = StatusCode::METHOD_NOT_ALLOWED;
                handler::error::respond_with(&event_loop, client, asked, status, &allow).await
            }
            (_, Route::Script(script)) => {
                handler::application::respond(&event_loop, client, asked, request, &script).await
            }
            (_, Route::File(entry)) => {
                handler::file::respond(&event_loop, client, asked, request, &entry).await
            }
            (_, Route::Folder) => {
                handler::error::redirect_to_folder(&event_loop, client, asked, request).await
            }
            (_, Route::Refused(status)) => {
                handler::error::respond(&event_loop, client, asked, status).await
            }
        }
    }

    async fn read_head(&mut self) -> Result<sendoff_http1::Head, End> {
        if self.buffer.is_empty() {
            self.wait_for_request().await?;
        }
        let deadline = Instant::now() + self.event_loop.config.front.timeouts.head;
        loop {
            if let Some(head) = self.heads.next(&mut self.buffer)? {
                return Ok(head);
            }
            self.buffer.reserve(READ / 4);
            match timeout_at(deadline, self.client.stream.read_buf(&mut self.buffer)).await {
                Ok(Ok(0)) if self.buffer.is_empty() => return Err(End::Quiet),
                Ok(Ok(0)) => {
                    let why = "the connection was closed inside the request head".to_owned();
                    return Err(End::Refused(StatusCode::BAD_REQUEST, why));
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error.into()),
                // The kernel had nothing after all: still idle.
                Err(_) if self.buffer.is_empty() => return Err(End::Quiet),
                Err(_) => {
                    let why = "the request head took too long".to_owned();
                    return Err(End::Refused(StatusCode::REQUEST_TIMEOUT, why));
                }
            }
        }
    }

    /// Waits for the first byte of a request. A waiting connection holds no buffer.
    async fn wait_for_request(&mut self) -> Result<(), End> {
        self.buffer = BytesMut::new();
        let stopping = self.event_loop.stopping();
        tokio::select! {
            biased;
            ready = timeout(self.event_loop.config.front.timeouts.idle, self.client.stream.readable()) => {
                ready.map_err(|_| End::Quiet)??;
            }
            () = stopping => {
                // What came before the stop is answered; tokio may not know of it yet.
                if ioctl_fionread(&self.client.stream).map_or(true, |unread| unread == 0) {
                    return Err(End::Quiet);
                }
            }
        }
        self.buffer = BytesMut::with_capacity(READ);
        Ok(())
    }

    async fn read_body(&mut self, head: &sendoff_http1::Head, keep: bool) -> Result<Body, End> {
        let mut decoder =
            BodyDecoder::new(head.framing, self.event_loop.config.front.limits.max_body)?;
        let mut store = if keep { BodyStore::keep() } else { BodyStore::discard() };
        let mut asked_for = !head.expect_continue;
        loop {
            match decoder.decode(&mut self.buffer)? {
                Decoded::Data(data) => store.push(&data).map_err(|error| not_stored(&error))?,
                Decoded::End => return Ok(store.finish()),
                Decoded::NeedMore => {
                    if !asked_for && self.buffer.is_empty() {
                        self.client.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                    }
                    asked_for = true;
                    self.read_more_body().await?;
                }
            }
        }
    }

    async fn read_more_body(&mut self) -> Result<(), End> {
        self.buffer.reserve(READ);
        let limit = self.event_loop.config.front.timeouts.body;
        match timeout(limit, self.client.stream.read_buf(&mut self.buffer)).await {
            Ok(Ok(0)) => {
                let why = "the connection was closed inside the request body".to_owned();
                Err(End::Refused(StatusCode::BAD_REQUEST, why))
            }
            Ok(read) => Ok(read.map(|_| ())?),
            Err(_) => {
                let why = "the request body took too long".to_owned();
                Err(End::Refused(StatusCode::REQUEST_TIMEOUT, why))
            }
        }
    }

    /// Answers a request that cannot be served and closes the connection.
    async fn refuse(mut self, status: StatusCode, why: &str) {
        tracing::info!(client = %self.client.ends.peer, %status, "request refused: {why}");
        let asked = Asked { method: &Method::GET, version: Version::HTTP_11, keep_alive: false };
        if handler::error::respond(&self.event_loop, &mut self.client, asked, status).await.is_ok()
        {
            self.linger().await;
        }
    }

    /// Closes after a complete response. Bytes the client has sent beyond its request would make the kernel reset the
    /// connection and throw away what the client has not read yet, so they are read first.
    async fn close(mut self) {
        let unread = !self.buffer.is_empty()
            || self.client.stream.try_read(&mut [0; 1]).is_ok_and(|n| n > 0);
        if unread {
            self.linger().await;
        }
    }

    async fn linger(&mut self) {
        use tokio::io::AsyncWriteExt;
        if self.client.stream.shutdown().await.is_err() {
            return;
        }
        let mut dropped = vec![0; READ];
        let drain =
            async { while matches!(self.client.stream.read(&mut dropped).await, Ok(1..)) {} };
        // The client is gone or has had its time: nothing is owed in either case.
        let _ = timeout(LINGER, drain).await;
    }

    fn log(&self, request: &Request, status: StatusCode) {
        let Some(log) = &self.event_loop.access_log else { return };
        let head = &request.head;
        let line = format!(
            "{} {} {:?}",
            head.method,
            String::from_utf8_lossy(head.target.raw()),
            head.version
        );
        log.write(&access_log::Entry {
            client: self.client.ends.peer.ip(),
            date: &self.event_loop.date(),
            request: &line,
            status: status.as_u16(),
            sent: self.client.body_sent(),
            referer: first(&head.headers, &header::REFERER),
            user_agent: first(&head.headers, &header::USER_AGENT),
        });
    }
}

/// A request body cannot be written to disk: the request is refused, which the client can be told.
fn not_stored(error: &io::Error) -> End {
    let status = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    tracing::error!(%error, "a request body cannot be stored");
    End::Refused(status, "its body cannot be stored".to_owned())
}

fn first<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> &'a [u8] {
    headers.get(name).map_or(b"", |value| value.as_bytes())
}
