//! Requests that are malformed, or mean something else in HTTP/1.1, on their way to an application
//! that speaks HTTP/2: it sees each request as Sendoff has seen it, or not at all.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::handshake;
use http::Response;
use sendoff_tests::frames::{self, DATA, END_HEADERS, END_STREAM, Frames, HEADERS};
use sendoff_tests::{Request, Server, Site};
use tokio::runtime;
use tokio::task::{LocalSet, spawn_local};

use crate::corpus::corpus;
use crate::exchange;

/// The time without bytes after which a client of HTTP/1.1 ends its direction.
const QUIET: Duration = Duration::from_millis(100);

/// A request as the application has read it: the id in its target, the id that Sendoff has read, and
/// its fields, trailers included.
type Seen = (String, String, Vec<String>);

/// An application that notes its requests.
struct Noting(std::net::SocketAddr, Arc<Mutex<Vec<Seen>>>);

impl Noting {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (addr, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Seen>>>::default());
        let noted = Arc::clone(&seen);
        std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((socket, _)) = listener.accept().await {
                    let noted = Arc::clone(&noted);
                    spawn_local(async move {
                        let Ok(mut connection) = handshake(socket).await else { return };
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            spawn_local(answer(request, respond, Arc::clone(&noted)));
                        }
                    });
                }
            });
        });
        Self(addr, seen)
    }

    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }

    fn serve(&self, site: &Site) -> Server {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = 'root'\n\
             [[site.route]]\nrequest_headers = {{ X-Sendoff = '$query' }}\nstream_body = true\nproxy = 'h2://{}'\n",
            self.0
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        Server::try_run(&config, site.root(), 0)
            .unwrap_or_else(|failed| panic!("{}", failed.stderr))
    }
}

async fn answer(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    noted: Arc<Mutex<Vec<Seen>>>,
) -> Option<()> {
    let (head, mut body) = request.into_parts();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        let _ended = body.flow_control().release_capacity(data.len());
    }
    let trailers = body.trailers().await.ok()?;
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let id = head.uri.query().unwrap_or_default().to_owned();
    let told = head.headers.get("x-sendoff").map(text).unwrap_or_default();
    let fields = head.headers.iter().chain(trailers.iter().flatten());
    let mut fields: Vec<_> =
        fields.map(|(name, value)| format!("{name}: {}", text(value))).collect();
    fields.push(format!(":authority: {}", head.uri.authority()?));
    noted.lock().unwrap().push((id.clone(), told, fields));
    let mut stream = respond.send_response(Response::new(()), false).ok()?;
    stream.send_data(format!("answered {id};").into(), true).ok()
}

/// Expects that nothing of a malformed request has reached the application as another request, and
/// no field that concerns a connection at all.
fn check(case: &str, seen: &[Seen]) {
    for (id, told, fields) in seen {
        assert_eq!(id, told, "{case}: {fields:?}");
        assert!(!id.contains("inner"), "{case}: {fields:?}");
        for field in fields {
            let (name, _) = field.split_once(": ").unwrap();
            let is_bad = ["connection", "transfer-encoding", "keep-alive", "upgrade", "host"]
                .contains(&name)
                || field.contains(['\r', '\n', '\0'])
                || name == "te" && field != "te: trailers";
            assert!(!is_bad, "{case}: {field:?}");
        }
        let count = |name: &str| fields.iter().filter(|field| field.starts_with(name)).count();
        assert!(count("content-length: ") <= 1 && count(":authority") == 1, "{case}: {fields:?}");
    }
}

#[test]
fn the_corpus_of_http1_reaches_no_application_over_http2() {
    let (site, app) = (Site::new(), Noting::start());
    let server = app.serve(&site);
    let mut answered = 0;
    for case in corpus() {
        let inner = "GET /?inner HTTP/1.1\r\nHost: a.test\r\n\r\n";
        let mut bytes = case.bytes("/?first", inner);
        bytes
            .extend_from_slice(b"GET /?next HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        exchange(server.addr(), &bytes, QUIET);
        let control = server.ask(&Request::get("/?control"));
        assert_eq!(control.text(), "answered control;", "{}", case.name);
        let seen = app.take();
        answered += usize::from(seen.iter().any(|(id, ..)| id == "first"));
        check(&case.name, &seen);
    }
    assert!(answered > 20, "{answered} requests of the corpus were answered");
}

/// Fields behind the pseudo-fields, and trailers.
const FIELDS: &[(&str, &str)] = &[
    ("x", "y\r\nx-sendoff: inner"),
    ("x", "y\nz"),
    ("x", "y\rz"),
    ("x", "y\0z"),
    ("x\r\ntransfer-encoding", "chunked"),
    ("x: y", "z"),
    ("x:", "z"),
    ("", "z"),
    ("X", "z"),
    ("transfer-encoding", "chunked"),
    ("connection", "x-sendoff"),
    ("upgrade", "h2c"),
    ("te", "chunked"),
    ("content-length", "5"),
    ("content-length", "0, 5"),
    ("host", "b.test"),
    ("host", "b.test\r\nx: y"),
    (":path", "/?inner"),
    (":authority", "b.test"),
    (":status", "200"),
];

#[test]
fn fields_of_http2_mean_the_same_to_an_application_over_http2() {
    let (site, app) = (Site::new(), Noting::start());
    let server = app.serve(&site);
    for (name, value) in FIELDS {
        let good = frames::request("POST", "/?first", &[]);
        let bad = frames::request("POST", "/?first", &[(*name, *value)]);
        let trailers = frames::fields(&[(*name, *value)]);
        let as_head = [
            frames::frame(HEADERS, END_HEADERS, 1, &bad),
            frames::frame(DATA, END_STREAM, 1, b"body"),
        ];
        let as_trailers = [
            frames::frame(HEADERS, END_HEADERS, 1, &good),
            frames::frame(DATA, 0, 1, b"body"),
            frames::frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers),
        ];
        for (place, frames) in [("head", as_head.concat()), ("trailers", as_trailers.concat())] {
            let mut client = Frames::connect(server.addr(), &[]);
            client.send(frames);
            client.find(|frame| frame.stream == 1 || frame.kind == frames::GOAWAY);
            let case = format!("{name:?}: {value:?} in the {place}");
            assert_eq!(
                server.ask(&Request::get("/?control")).text(),
                "answered control;",
                "{case}"
            );
            let seen = app.take();
            check(&case, &seen);
            let is_lost = |field: &String| field == ":authority: b.test";
            assert!(!seen.iter().any(|(_, _, fields)| fields.iter().any(is_lost)), "{case}");
        }
    }
}

/// A length that the body contradicts ends the stream, and the application does not take the part
/// that came for all of it.
#[test]
fn a_length_that_is_wrong_ends_the_request() {
    let (site, app) = (Site::new(), Noting::start());
    let server = app.serve(&site);
    // (A head that announces 0 bytes is a whole request, whatever follows.)
    for (length, body) in [("5", "body"), ("3", "body")] {
        let head = frames::request("POST", "/?first", &[("content-length", length)]);
        let mut client = Frames::connect(server.addr(), &[]);
        client.send(frames::frame(HEADERS, END_HEADERS, 1, &head));
        client.send(frames::frame(DATA, END_STREAM, 1, body.as_bytes()));
        client.find(|frame| frame.stream == 1 || frame.kind == frames::GOAWAY);
        assert_eq!(server.ask(&Request::get("/?control")).text(), "answered control;");
        let ids: Vec<_> = app.take().into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids, ["control"], "{length}");
    }
    // The same over HTTP/1.1: the client leaves before the end.
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.write_all(b"POST /?first HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nbody").unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!(server.ask(&Request::get("/?control")).text(), "answered control;");
    assert!(app.take().iter().all(|(id, ..)| id == "control"));
}
