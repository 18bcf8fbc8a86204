//! Scripts: a request goes to a worker, its answer to the client.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, COOKIE};
use http::{HeaderMap, Method, StatusCode, Version};
use sendoff_fastcgi::handover::{ACCEPT_FILE, ACCEPT_PARAM};
use tokio::time::Instant;

use crate::connection::{Asked, Client, Outcome, Request};
use crate::delivery::Progress;
use crate::front::Loop;
use crate::handler::error;
use crate::request::Body;
use crate::response::{CgiHead, MAX_HEAD};
use crate::router::Script;
use crate::segment::Segment;
use crate::upstream::{Event, Exchange, RequestMessage, RequestMessageBuilder};

/// Workers that may die before they have read a request, one after the other, until we give up.
const MAX_TRIES: usize = 8;

/// How long a worker may be kept waiting, once per response, for a client that might just be about to take more. Writing
/// to the spool what a fast client takes anyway doubles the cost of a large generated body.
const PATIENCE: Duration = Duration::from_millis(50);

/// What the application has said up to the end of its header block.
struct Begun {
    head: CgiHead,
    /// Body bytes that came with the end of the header block.
    rest: Bytes,
    /// The length the worker announced.
    length: Option<u64>,
}

/// Why there is no response to pass on.
enum Failure {
    /// Nothing was done yet: another worker may try.
    Unread,
    /// The worker is gone or makes no sense.
    Bad(String),
}

/// Answers a request with what a script says.
///
/// # Errors
/// The client is gone, or its response was cut short after it had begun.
pub(crate) async fn respond(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    request: &Request,
    script: &Script,
) -> io::Result<Outcome> {
    let message = message(event_loop, client, request, script);
    let log_name: Rc<str> =
        format!("{} {}", asked.method, String::from_utf8_lossy(request.head.target.raw())).into();
    for _ in 0..MAX_TRIES {
        let ticket = match event_loop.pool.acquire(event_loop.number).await {
            Ok(ticket) => ticket,
            Err(why) => {
                tracing::warn!(request = &*log_name, "answered with 503: {why}");
                return error::respond(event_loop, client, asked, StatusCode::SERVICE_UNAVAILABLE)
                    .await;
            }
        };
        let Some(link) = event_loop.link(ticket.worker()) else { continue };
        let Ok(exchange) = link.begin(ticket, &message, Rc::clone(&log_name)).await else {
            continue;
        };
        match begin(&exchange).await {
            Ok(begun) => return relay(event_loop, client, asked, exchange, begun).await,
            Err(Failure::Unread) => {}
            Err(Failure::Bad(why)) => {
                let worker = exchange.worker_pid();
                tracing::error!(worker, request = &*log_name, "answered with 502: {why}");
                drop(exchange);
                return error::respond(event_loop, client, asked, StatusCode::BAD_GATEWAY).await;
            }
        }
    }
    tracing::error!(
        request = &*log_name,
        "answered with 502: {MAX_TRIES} workers died before they read it"
    );
    error::respond(event_loop, client, asked, StatusCode::BAD_GATEWAY).await
}

/// Waits for the whole header block.
async fn begin(exchange: &Exchange) -> Result<Begun, Failure> {
    let (mut received, mut length) = (BytesMut::new(), None);
    loop {
        let data = match exchange.next().await {
            Event::Segment(Segment::Bytes(data)) => data,
            Event::Length(announced) => {
                length = Some(announced);
                continue;
            }
            Event::Segment(Segment::File(_)) => {
                return Err(Failure::Bad(
                    "the worker handed a file over before its header block".to_owned(),
                ));
            }
            Event::End => return Err(Failure::Bad("the response has no header block".to_owned())),
            Event::Lost { unread: true } if received.is_empty() => return Err(Failure::Unread),
            Event::Lost { .. } => {
                return Err(Failure::Bad("the worker died at work on the request".to_owned()));
            }
        };
        // As a rule the first piece holds the whole block, and nothing is copied.
        let all = if received.is_empty() {
            data
        } else {
            received.extend_from_slice(&data);
            received.clone().freeze()
        };
        if let Some(end) = CgiHead::find_end(&all).filter(|&end| end <= MAX_HEAD) {
            let head = CgiHead::parse(&all.slice(..end));
            let head = head.map_err(|bad| Failure::Bad(format!("the worker sent {bad}")))?;
            return Ok(Begun { head, rest: all.slice(end..), length });
        }
        // However the pieces fall: a block that is too large is refused, one that fits is not.
        if all.len() > MAX_HEAD {
            return Err(Failure::Bad(format!("the header block is larger than {MAX_HEAD} bytes")));
        }
        if received.is_empty() {
            received.extend_from_slice(&all);
        }
    }
}

/// Passes the response on, piece by piece, while the client takes it.
async fn relay(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    exchange: Exchange,
    begun: Begun,
) -> io::Result<Outcome> {
    let Begun { head, rest, length } = begun;
    // Of a response without a body the worker knows only that there is none; what a GET would get it cannot say.
    let has_body = asked.method != Method::HEAD && head.status != StatusCode::NOT_MODIFIED;
    let length = head.content_length.or(length.filter(|_| has_body));
    let keep_alive = client.begin(asked, head.status, head.reason.as_deref(), length, |out| {
        event_loop.common_fields_unless(out, |name| head.has(name));
        for (name, value) in &head.fields {
            out.field(name, value);
        }
    })?;
    let mut response = Relay { client, surplus: false, patience_ends: None };
    response.push(Segment::Bytes(rest))?;
    response.run(&exchange).await?;
    let (surplus, worker) = (response.surplus, exchange.worker_pid());
    // A slow client must not keep the link of a worker that has gone.
    drop(exchange);
    let missing = client.end()?;
    client.flush().await?;
    if surplus {
        tracing::warn!(
            worker,
            "a response was longer than its Content-Length, the rest was dropped"
        );
    }
    if missing > 0 {
        return Err(cut(format!("{missing} bytes were missing of the announced Content-Length")));
    }
    Ok(Outcome { status: head.status, keep_alive })
}

fn cut(why: String) -> io::Error {
    tracing::error!("a response was cut short: {why}");
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

struct Relay<'a> {
    client: &'a mut Client,
    /// The application sent more than it had announced.
    surplus: bool,
    /// Set when the send queue was long for the first time.
    patience_ends: Option<Instant>,
}

impl Relay<'_> {
    fn push(&mut self, segment: Segment) -> io::Result<()> {
        self.surplus |= !self.client.push(segment)?;
        Ok(())
    }

    async fn run(&mut self, exchange: &Exchange) -> io::Result<()> {
        loop {
            // Everything that has arrived, before the first system call: a short response leaves in one piece.
            while self.may_take()
                && let Some(event) = exchange.try_next()
            {
                if self.take(event).await? {
                    return Ok(());
                }
            }
            let event = match self.client.send_now()? {
                Progress::Done => exchange.next().await,
                Progress::Yield => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Progress::Blocked => {
                    let may_take = self.may_take();
                    let patience_ends =
                        self.patience_ends.filter(|_| self.client.queue().has_room());
                    tokio::select! {
                        biased;
                        event = exchange.next(), if may_take => event,
                        ready = self.client.writable() => {
                            ready?;
                            continue;
                        }
                        () = sleep_until(patience_ends), if !may_take => continue,
                    }
                }
            };
            if self.take(event).await? {
                return Ok(());
            }
        }
    }

    /// Whether the worker may be relieved of more now.
    fn may_take(&mut self) -> bool {
        let queue = self.client.queue();
        if !queue.is_long() {
            return true;
        }
        let patience_ends = *self.patience_ends.get_or_insert_with(|| Instant::now() + PATIENCE);
        queue.has_room() && Instant::now() >= patience_ends
    }

    /// Queues what an event brings; true at the end.
    async fn take(&mut self, event: Event) -> io::Result<bool> {
        match event {
            Event::Segment(segment) => self.push(segment)?,
            // Too late: the head has left.
            Event::Length(_) => {}
            Event::End => return Ok(true),
            Event::Lost { .. } => {
                // What it had handed over belongs to the client, whatever became of the worker.
                self.client.flush().await?;
                return Err(cut("its worker died".to_owned()));
            }
        }
        Ok(false)
    }
}

/// Never, if there is no such time.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn message(
    event_loop: &Loop,
    client: &Client,
    request: &Request,
    script: &Script,
) -> RequestMessage {
    let mut builder = RequestMessageBuilder::new();
    let head = &request.head;
    let mut param = |name: &str, value: &[u8]| builder.param(name.as_bytes(), value);
    param("SCRIPT_FILENAME", &script.filename);
    param("QUERY_STRING", &head.target.query().unwrap_or_default());
    param("REQUEST_METHOD", head.method.as_str().as_bytes());
    param("CONTENT_TYPE", head.headers.get(CONTENT_TYPE).map_or(b"", |value| value.as_bytes()));
    let has_body = !request.body.is_empty() || head.framing != sendoff_http1::BodyFraming::None;
    let length = if has_body { request.body.len().to_string() } else { String::new() };
    param("CONTENT_LENGTH", length.as_bytes());
    param("SCRIPT_NAME", &script.name);
    param("PATH_INFO", &script.path_info);
    param("REQUEST_URI", head.target.uri());
    // Without the path info, as nginx has it after `try_files $fastcgi_script_name`.
    param("DOCUMENT_URI", &script.name);
    param("DOCUMENT_ROOT", event_loop.router.root_bytes());
    let version = if head.version == Version::HTTP_10 { "HTTP/1.0" } else { "HTTP/1.1" };
    param("SERVER_PROTOCOL", version.as_bytes());
    param("REQUEST_SCHEME", b"http");
    param("GATEWAY_INTERFACE", b"CGI/1.1");
    param("SERVER_SOFTWARE", concat!("sendoff/", env!("CARGO_PKG_VERSION")).as_bytes());
    address(&mut param, "REMOTE_ADDR", "REMOTE_PORT", client.ends.peer);
    address(&mut param, "SERVER_ADDR", "SERVER_PORT", client.ends.local);
    param("SERVER_NAME", &server_name(head.host.as_deref(), client.ends.local));
    // As in Debian's fastcgi.conf, which every site behind nginx has.
    param("REMOTE_USER", b"");
    param("REDIRECT_STATUS", b"200");
    fields(&mut param, &head.headers);
    if event_loop.settings.accept_files {
        builder.param(ACCEPT_PARAM, ACCEPT_FILE);
    }
    match &request.body {
        Body::Memory(bytes) => builder.with_bytes(bytes),
        Body::File { descriptor, len } => builder.with_file(Rc::clone(descriptor), *len),
    }
}

fn address(param: &mut impl FnMut(&str, &[u8]), ip: &str, port: &str, address: SocketAddr) {
    param(ip, address.ip().to_string().as_bytes());
    param(port, address.port().to_string().as_bytes());
}

/// The host the client asked for, without its port.
fn server_name(host: Option<&[u8]>, local: SocketAddr) -> Vec<u8> {
    let Some(host) = host else { return local.ip().to_string().into_bytes() };
    let after_brackets = host.iter().rposition(|&b| b == b']').unwrap_or(0);
    let colon = host[after_brackets..].iter().position(|&b| b == b':');
    colon.map_or(host, |colon| &host[..after_brackets + colon]).to_ascii_lowercase()
}

/// The request's fields as `HTTP_*` (RFC 3875 §4.1.18). Left out: `Proxy` (it would become `HTTP_PROXY`, which
/// programs take for a setting), and names with an underscore, which could pass for another field. Those with a parameter of
/// their own are repeated, as nginx does.
fn fields(param: &mut impl FnMut(&str, &[u8]), headers: &HeaderMap) {
    let mut name = String::new();
    for key in headers.keys() {
        if key.as_str() == "proxy" || key.as_str().contains('_') {
            continue;
        }
        name.clear();
        name.push_str("HTTP_");
        name.extend(
            key.as_str().chars().map(|c| if c == '-' { '_' } else { c.to_ascii_uppercase() }),
        );
        let mut values = headers.get_all(key).iter();
        let first = values.next().map_or(&b""[..], |value| value.as_bytes());
        if values.size_hint().1 == Some(0) {
            param(&name, first);
            continue;
        }
        let separator: &[u8] = if key == COOKIE { b"; " } else { b", " };
        let joined = values.fold(first.to_vec(), |mut all, value| {
            all.extend_from_slice(separator);
            all.extend_from_slice(value.as_bytes());
            all
        });
        param(&name, &joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_names_have_no_port() {
        let local = "127.0.0.1:80".parse().unwrap();
        for (host, name) in [
            (Some("Example.ORG:8080"), "example.org"),
            (Some("example.org"), "example.org"),
            (Some("[::1]:80"), "[::1]"),
            (Some("[::1]"), "[::1]"),
            (None, "127.0.0.1"),
        ] {
            assert_eq!(server_name(host.map(str::as_bytes), local), name.as_bytes(), "{host:?}");
        }
    }

    #[test]
    fn fields_are_joined_and_dangerous_ones_left_out() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("cookie", "a"),
            ("cookie", "b"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("proxy", "x"),
            ("x_a", "3"),
            ("content-type", "t"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let mut seen = Vec::new();
        fields(&mut |name, value| seen.push((name.to_owned(), value.to_vec())), &headers);
        seen.sort();
        assert_eq!(
            seen,
            [
                ("HTTP_CONTENT_TYPE".to_owned(), b"t".to_vec()),
                ("HTTP_COOKIE".to_owned(), b"a; b".to_vec()),
                ("HTTP_X_A".to_owned(), b"1, 2".to_vec()),
            ]
        );
    }
}
