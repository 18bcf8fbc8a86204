//! Applications that speak HTTP/2.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use sendoff_tests::{Client, LIMIT, Request, Server, Site, processes, wait};
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

use crate::http2_app::{Http2App, body, echo, head, map, message, send};
use crate::responder::{Peer, Responder};
use crate::{pass_on, serve};

/// A connection of a client that holds single streams in its hands.
struct Streams {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
}

impl Streams {
    fn connect(server: &Server) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let addr = server.clear_addr();
        let requests = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
            let (requests, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            requests
        });
        Self { runtime, requests }
    }

    fn run<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(LIMIT, what).await.expect("it hangs") })
    }

    /// Begins a call of gRPC.
    fn call(&self) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        let head = http::Request::post("http://a.test/service/method")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "10S")
            .body(())
            .unwrap();
        self.requests.clone().send_request(head, false).unwrap()
    }
}

/// The media type of gRPC, for requests by other clients.
const GRPC: &str = "application/grpc+proto";

#[test]
fn an_application_gets_requests_over_http2() {
    let (site, app) = (Site::new(), Http2App::start(echo));
    let server = pass_on(&site, &app.url(), ", forwarded = 'off'");
    let request = Request::post("/a%20b/%2F?c=%20", "text/plain", "body")
        .header("Host", "a.test:81")
        .header("Connection", "keep-alive, X-Own")
        .header("X-Own", "secret")
        .header("TE", "trailers")
        .header("Cookie", "a=b");
    let mut client = Client::connect(server.clear_addr());
    for _ in 0..2 {
        let response = client.ask(&request);
        assert_eq!((response.status(), response.header("x-a")), (200, Some("b")));
        assert_eq!(
            response.text(),
            "POST http://a.test:81/a%20b/%2F?c=%20\ncontent-type: text/plain\ncookie: a=b\nte: trailers\ncontent-length: 4\n\nbody"
        );
        assert_eq!(response.trailer_lines(), ["x-sum: 1a2b"]);
    }
    let large = "x".repeat(3_000_000);
    let back = server.http2().ask(&Request::post("/up", "text/plain", &*large));
    assert!(back.text().ends_with(&large) && back.trailer_lines() == ["x-sum: 1a2b"]);
    assert!(client.ask(&Request::new("HEAD", "/x")).body.is_empty());
    assert_eq!(app.connections(), 1);
}

static TOGETHER: AtomicUsize = AtomicUsize::new(0);

/// Answers when 30 requests are here.
async fn together(
    _: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    TOGETHER.fetch_add(1, Ordering::SeqCst);
    while TOGETHER.load(Ordering::SeqCst) < 30 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    respond.send_response(head(&[]), true).ok().map(drop)
}

#[test]
fn requests_share_connections_as_far_as_the_application_allows() {
    let (site, app) = (Site::new(), Http2App::start_with(10, together));
    let server = pass_on(&site, &app.url(), "");
    // The application's limit becomes known with its SETTINGS; requests beyond it were refused, and
    // are repeated.
    let requests = vec![Request::get("/"); 30];
    for response in server.http2().ask_all(&requests) {
        assert_eq!(response.status(), 200);
    }
    assert!((3..=6).contains(&app.connections()), "{}", app.connections());
}

/// Echoes each message when it comes.
async fn converse(
    mut request: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let fields = request.headers();
    let asked = ["te", "grpc-timeout"].map(|name| fields.get(name).cloned());
    let head = head(&[("content-type", "application/grpc")]);
    let mut stream = respond.send_response(head, false).ok()?;
    while let Some(data) = message(request.body_mut()).await? {
        send(&mut stream, data).await?;
    }
    assert_eq!(asked.map(Option::unwrap), ["trailers", "10S"]);
    stream.send_trailers(map(&[("grpc-status", "0")])).ok()
}

#[test]
fn both_directions_of_a_call_stream_at_once() {
    let (site, app) = (Site::new(), Http2App::start(converse));
    let server = pass_on(&site, &app.url(), "");
    let client = Streams::connect(&server);
    client.run(async {
        let (response, mut sender) = client.call();
        // The head comes before the first message is sent.
        let (head, mut answers) = response.await.unwrap().into_parts();
        assert_eq!(
            (head.status.as_u16(), &head.headers["content-type"]),
            (200, &"application/grpc".parse().unwrap())
        );
        for text in ["one", "two", "three"] {
            send(&mut sender, text.into()).await.unwrap();
            assert_eq!(message(&mut answers).await.flatten().as_deref(), Some(text.as_bytes()));
        }
        sender.send_data(Bytes::new(), true).unwrap();
        let (rest, trailers) = body(&mut answers).await.unwrap();
        assert_eq!((rest.len(), &trailers.unwrap()["grpc-status"]), (0, &"0".parse().unwrap()));
    });
}

/// Calls that ended early at the application.
static CANCELLED: AtomicUsize = AtomicUsize::new(0);

async fn note_cancel(
    mut request: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let mut stream = respond.send_response(head(&[]), false).ok()?;
    send(&mut stream, Bytes::from_static(b"begun")).await?;
    if body(request.body_mut()).await.is_none() {
        CANCELLED.fetch_add(1, Ordering::SeqCst);
    }
    None
}

#[test]
fn a_call_that_the_client_cancels_ends_at_the_application() {
    let (site, app) = (Site::new(), Http2App::start(note_cancel));
    let server = pass_on(&site, &app.url(), "");
    let client = Streams::connect(&server);
    client.run(async {
        let (response, mut sender) = client.call();
        let mut answer = response.await.unwrap().into_body();
        assert_eq!(message(&mut answer).await.flatten().as_deref(), Some(&b"begun"[..]));
        sender.send_reset(Reason::CANCEL);
        // The connection's task sends it.
        while CANCELLED.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(app.connections(), 1);
}

async fn reset_in_the_middle(
    _: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let mut stream = respond.send_response(head(&[]), false).ok()?;
    send(&mut stream, Bytes::from_static(b"begun")).await?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    stream.send_reset(Reason::CANCEL);
    None
}

#[test]
fn a_response_that_the_application_resets_is_cut() {
    let (site, app) = (Site::new(), Http2App::start(reset_in_the_middle));
    let server = pass_on(&site, &app.url(), "");
    let client = Streams::connect(&server);
    client.run(async {
        let (response, _sender) = client.call();
        let mut answer = response.await.unwrap().into_body();
        assert_eq!(message(&mut answer).await.flatten().as_deref(), Some(&b"begun"[..]));
        assert_eq!(message(&mut answer).await, None);
    });
    let cut = Client::connect(server.clear_addr()).try_ask(&Request::get("/"));
    assert!(matches!(cut, Err(sendoff_tests::Broken::Cut(_))), "{cut:?}");
}

async fn trailers_only(
    _: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let fields =
        [("content-type", "application/grpc"), ("grpc-status", "5"), ("grpc-message", "no%20such")];
    respond.send_response(head(&fields), true).ok().map(drop)
}

#[test]
fn a_head_that_ends_its_stream_does_so_at_the_client() {
    let (site, app) = (Site::new(), Http2App::start(trailers_only));
    let server = pass_on(&site, &app.url(), "");
    let client = Streams::connect(&server);
    client.run(async {
        let (response, mut sender) = client.call();
        sender.send_data(Bytes::from_static(b"x"), true).unwrap();
        let (head, answer) = response.await.unwrap().into_parts();
        assert_eq!(head.headers["grpc-status"], "5");
        assert_eq!(head.headers["grpc-message"], "no%20such");
        assert!(answer.is_end_stream());
    });
}

/// Reads frames up to the end of a request's stream, as the application. Returns its stream.
pub(crate) fn stream_of_request(peer: &mut Peer) -> Option<u32> {
    loop {
        let head = peer.bytes(9)?;
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        drop(peer.bytes(len)?);
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        let (kind, flags) = (head[3], head[4]);
        if stream > 0 && kind <= 1 && flags & 1 == 1 {
            return Some(stream);
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    sendoff_tests::frames::frame(kind, flags, stream, payload)
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const PREFACE: usize = 24;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

/// Takes the client's preface, and answers with its own.
pub(crate) fn begin_frames(peer: &mut Peer) -> Option<()> {
    drop(peer.bytes(PREFACE)?);
    peer.say(frame(SETTINGS, 0, 0, &[]))
}

/// Answers with the status 200 (the static table's eighth entry) and a body.
pub(crate) fn say_done(peer: &mut Peer, stream: u32) -> Option<()> {
    peer.say(frame(HEADERS, 4, stream, &[0x88]))?;
    peer.say(frame(DATA, 1, stream, b"done"))
}

/// Ends the connection with this reason: streams up to `last_stream` may have been processed.
pub(crate) fn go_away(peer: &mut Peer, last_stream: u32, reason: u32) -> Option<()> {
    let payload = [last_stream.to_be_bytes(), reason.to_be_bytes()].concat();
    peer.say(frame(GOAWAY, 0, 0, &payload))
}

/// Streams that the application promises not to have processed are repeated, whatever the method,
/// and with a body that came while it was passed on.
#[test]
fn requests_that_were_not_processed_are_repeated() {
    let leave = |peer: &mut Peer, _: u32| go_away(peer, 0, 0);
    let refuse = |peer: &mut Peer, stream| peer.say(frame(RST_STREAM, 0, stream, &REFUSED_STREAM));
    let ways: [fn(&mut Peer, u32) -> Option<()>; 2] = [leave, refuse];
    for way in ways {
        let answered = std::sync::Arc::new(AtomicUsize::new(0));
        let (counted, refused) = (std::sync::Arc::clone(&answered), AtomicUsize::new(0));
        let app = Responder::start(move |peer| {
            begin_frames(peer)?;
            loop {
                let stream = stream_of_request(peer)?;
                if refused.fetch_add(1, Ordering::SeqCst) % 2 == 0 {
                    way(peer, stream)?;
                    continue;
                }
                counted.fetch_add(1, Ordering::SeqCst);
                say_done(peer, stream)?;
            }
        });
        let site = Site::new();
        let server = pass_on(&site, &app.url().replace("http", "h2"), "");
        for kind in ["text/plain", GRPC] {
            let response = server.http2().ask(&Request::post("/", kind, "a message"));
            assert_eq!((response.status(), &*response.text()), (200, "done"));
        }
        assert_eq!(answered.load(Ordering::SeqCst), 2);
    }
}

/// A connection that ends without a word may have ended amid the work.
#[test]
fn requests_that_may_have_been_processed_are_not_repeated() {
    let app = Responder::start(move |peer| {
        begin_frames(peer)?;
        let stream = stream_of_request(peer)?;
        if peer.number > 0 {
            say_done(peer, stream)?;
            stream_of_request(peer)?;
        }
        None
    });
    let site = Site::new();
    let server = pass_on(&site, &app.url().replace("http", "h2"), "");
    let post = Request::post("/", "text/plain", "once");
    assert_eq!(server.http2().ask(&post).status(), 502);
    assert_eq!(app.connections(), 1);
    let get = server.http2().ask(&Request::get("/"));
    assert_eq!((get.status(), &*get.text()), (200, "done"));
}

/// Answers a call of gRPC with two messages that say what has come.
async fn two_messages(
    mut request: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let fields = request.headers();
    let field = |name: &str| fields.get(name).map_or("-", |value| value.to_str().unwrap());
    let head_of_call = format!("{} {};", field("content-type"), field("te"));
    let (call, _) = body(request.body_mut()).await?;
    let mut stream = respond.send_response(head(&[("content-type", GRPC)]), false).ok()?;
    for message in [head_of_call.as_bytes(), &call] {
        send(&mut stream, Bytes::copy_from_slice(message)).await?;
    }
    stream.send_trailers(map(&[("grpc-status", "5"), ("grpc-message", "no%20such")])).ok()
}

#[test]
fn calls_of_grpc_web_become_calls_of_grpc() {
    let (site, app) = (Site::new(), Http2App::start(two_messages));
    let server = pass_on(&site, &app.url(), ", grpc_web = true");
    let trailers = b"\x80\0\0\0\x29grpc-status: 5\r\ngrpc-message: no%20such\r\n";
    let expected = [b"application/grpc+proto trailers;\0call", &trailers[..]].concat();
    for form in ["application/grpc-web+proto", "application/grpc-web-text+proto"] {
        let is_text = form.contains("text");
        let sent = if is_text { "AGNhbGw=" } else { "\0call" };
        let request = Request::post("/service/method", form, sent);
        for response in [server.ask(&request), server.http2().ask(&request)] {
            assert_eq!((response.status(), response.header("content-type")), (200, Some(form)));
            assert_eq!((response.header("grpc-status"), response.trailers.len()), (None, 0));
            let got = match is_text {
                true => from_base64(&response.body),
                false => response.body.clone(),
            };
            assert_eq!(got.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }
    // Messages that fill a temporary file.
    let large = vec![b'A'; 1 << 20];
    let text = Request::post("/a", "application/grpc-web-text", large);
    assert!(server.ask(&text).body.len() > 1 << 20);
    let broken = Request::post("/a", "application/grpc-web-text", "no base64!");
    assert_eq!(server.ask(&broken).status(), 400);
    // Another request, and applications that speak it themselves.
    let plain = server.ask(&Request::post("/a", "text/plain", "x"));
    assert_eq!((plain.text(), plain.header("content-type")), ("text/plain -;x".into(), Some(GRPC)));
    let untouched = pass_on(&site, &app.url(), "");
    let response = untouched.ask(&Request::post("/a", "application/grpc-web", "x"));
    assert_eq!(response.text(), "application/grpc-web -;x");
}

/// The bytes of texts in base64, each with its padding.
fn from_base64(text: &[u8]) -> Vec<u8> {
    let groups = text.chunks(4);
    groups
        .flat_map(|group| base64::Engine::decode(&base64::prelude::BASE64_STANDARD, group).unwrap())
        .collect()
}

/// A client of gRPC gets a status of gRPC when the server itself answers.
#[test]
fn calls_that_fail_in_the_server_end_with_a_status_of_grpc() {
    let site = Site::new();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let routes = format!(
        "[[site.route]]\nprefix = '/denied'\ndeny = true\n[[site.route]]\nproxy = 'h2://{gone}'\n"
    );
    let server = serve(&site, &routes);
    for (path, status) in [("/service/method", "14"), ("/denied/method", "7")] {
        let response = server.http2().ask(&Request::post(path, GRPC, "x"));
        assert_eq!(response.status(), 200);
        assert_eq!(response.header("content-type"), Some("application/grpc"));
        assert_eq!((response.header("grpc-status"), response.body.len()), (Some(status), 0));
    }
    assert_eq!(server.http2().ask(&Request::post("/a", "text/plain", "x")).status(), 502);
    assert_eq!(server.http2().ask(&Request::post("/a", "application/grpc-web", "x")).status(), 502);
}

/// Bytes that the application has sent to a client that reads nothing.
static SENT: AtomicUsize = AtomicUsize::new(0);

async fn send_much(
    request: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let mut stream = respond.send_response(head(&[("x-accel-buffering", "no")]), false).ok()?;
    if request.uri().path() == "/small" {
        return send(&mut stream, Bytes::from_static(b"small"))
            .await
            .and_then(|()| stream.send_trailers(map(&[("x-a", "b")])).ok());
    }
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    for _ in 0..1600 {
        send(&mut stream, piece.clone()).await?;
        SENT.fetch_add(piece.len(), Ordering::SeqCst);
    }
    stream.send_data(Bytes::new(), true).ok()
}

/// The windows of HTTP/2 hold the application back, and other requests on the connection go on.
#[test]
fn a_client_that_reads_nothing_holds_only_its_own_stream_back() {
    let (site, app) = (Site::new(), Http2App::start(send_much));
    let server =
        serve(&site, &format!("[[site.route]]\nname_files = true\nproxy = '{}'\n", app.url()));
    let before = processes::private_memory(server.front());
    let slow = Streams::connect(&server);
    slow.run(async {
        let (response, _sender) = slow.call();
        let mut answer = response.await.unwrap().into_body();
        let small = || assert_eq!(server.get("/small").text(), "small");
        (0..20).for_each(|_| small());
        // A window that had been given back would have reached the application before one of these
        // requests, which travel on the same connection.
        let stopped = wait::until(LIMIT, || {
            let sent = SENT.load(Ordering::SeqCst);
            (0..10).for_each(|_| small());
            sent > 0 && sent == SENT.load(Ordering::SeqCst)
        });
        assert!(stopped && SENT.load(Ordering::SeqCst) < 16 << 20);
        let grown = processes::private_memory(server.front()).saturating_sub(before);
        assert!(grown < 8 << 20, "{grown} bytes");
        let (all, _) = body(&mut answer).await.unwrap();
        assert_eq!(all.len(), 1600 * 64 * 1024);
    });
    assert_eq!(app.connections(), 1);
}
