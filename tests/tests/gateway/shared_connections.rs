//! Connections of HTTP/2 to an application end for the requests that the application dislikes, and
//! for no others.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use h2::RecvStream;
use sendoff_tests::{Client, LIMIT, Request, Server, Site, Stock, wait};

use crate::http2::{begin_frames, go_away, say_done, stream_of_request};
use crate::http2_app::Http2App;
use crate::responder::Responder;
use crate::serve;

/// Requests whose responses wait at the application until [`Held::release`] is called.
struct Held {
    app: Responder,
    begun: Arc<AtomicUsize>,
    is_free: Arc<AtomicBool>,
}

impl Held {
    fn start() -> Self {
        let (begun, is_free) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, free) = (Arc::clone(&begun), Arc::clone(&is_free));
        let app = Responder::start(move |peer| {
            peer.request()?;
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun")?;
            counted.fetch_add(1, Ordering::SeqCst);
            assert!(wait::until(LIMIT, || free.load(Ordering::SeqCst)));
            peer.say("ended")
        });
        Self { app, begun, is_free }
    }

    /// Sends this number of requests, and returns when all responses have begun.
    fn requests(&self, server: &Server, count: usize) -> Vec<Client> {
        let clients: Vec<_> = (0..count)
            .map(|_| {
                let mut client = Client::connect(server.clear_addr());
                client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        assert!(wait::until(LIMIT, || self.begun.load(Ordering::SeqCst) == count));
        clients
    }

    fn release(&self) {
        self.is_free.store(true, Ordering::SeqCst);
    }
}

/// Real nginx, by HTTP/2 on a UNIX socket; `/held` leads to requests that wait.
fn nginx(site: &Site, held: &Held) -> (Stock, String) {
    let socket = site.outside("h2.sock");
    let server = format!(
        "listen unix:{} http2;
        location /held {{ proxy_pass {}; proxy_buffering off; }}
        location / {{ return 200 'fine'; }}",
        socket.display(),
        held.app.url()
    );
    let nginx = Stock::nginx(site.root(), "", &server);
    (nginx, format!("h2://unix:{}", socket.display()))
}

/// nginx ends a connection for each of these requests.
#[test]
fn a_request_that_ends_its_connection_ends_no_other_response() {
    let long = |value: &str, times| format!("X-Long: {}\r\n", value.repeat(times));
    let get = |fields: &str| format!("GET /small HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let post = |path: &str, fields: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
        )
    };
    let end = "0\r\nX-Sum: 1\r\n\r\n";
    for parts in [
        vec![get(&long("a", 24_000))],
        // Such characters are longer in the code of HPACK.
        vec![get(&long("\\", 3_900))],
        vec![get(&long("ÿ", 1_900))],
        vec![get("").replace("small", &"a".repeat(24_000))],
        vec![post("/small", "") + end],
        vec![post("/streamed", ""), end.to_owned()],
        vec![post("/streamed", "Trailer: X-Sum\r\n"), end.to_owned()],
    ] {
        let shown = parts[0][..60].to_owned();
        let (site, held) = (Site::new(), Held::start());
        let (_nginx, url) = nginx(&site, &held);
        let routes = format!(
            "[[site.route]]\nprefix = '/streamed'\nstream_body = true\n[[site.route]]\nproxy = '{url}'\n"
        );
        let server = serve(&site, &routes);
        let others = held.requests(&server, 8);
        let mut client = Client::connect(server.clear_addr());
        for part in parts {
            client.send(part);
        }
        // The method of the request does not change how the response ends.
        let _answered_or_not = client.try_response("GET");
        // The connection takes further requests.
        assert_eq!(server.get("/small").text(), "fine", "{shown}");
        held.release();
        for mut other in others {
            let response = other.try_response("GET").map(|response| response.text());
            assert_eq!(response.ok().as_deref(), Some("begunended"), "{shown}");
        }
    }
}

/// Streams that were reset at the application.
static RESETS: AtomicUsize = AtomicUsize::new(0);

/// Answers nothing, and counts the reset.
async fn never(
    request: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    poll_fn(|cx| respond.poll_reset(cx)).await.ok()?;
    drop(request);
    RESETS.fetch_add(1, Ordering::SeqCst);
    None
}

/// Hosts end connections on which many streams are reset.
#[test]
fn a_client_that_cancels_many_requests_wears_connections_out() {
    let (site, app) = (Site::new(), Http2App::start(never));
    let server = serve(&site, &format!("[[site.route]]\nproxy = '{}'\n", app.url()));
    for number in 1..=80 {
        let mut client = Client::connect(server.clear_addr());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(wait::until(LIMIT, || app.requests() == number));
        drop(client);
        assert!(wait::until(LIMIT, || RESETS.load(Ordering::SeqCst) == number), "{number}");
    }
    assert_eq!(app.connections(), 3);
}

/// The host ends a connection with an error. One of the requests on it may be the cause, so each is
/// repeated on a connection of its own. A request that ends this connection, too, is not repeated
/// again.
#[test]
fn a_request_whose_connection_ended_is_repeated_alone() {
    const PROTOCOL_ERROR: u32 = 1;
    for last_stream in [0, u32::MAX >> 1] {
        let app = Responder::start(move |peer| {
            begin_frames(peer)?;
            let first = stream_of_request(peer)?;
            if peer.number == 0 {
                stream_of_request(peer)?;
                return go_away(peer, last_stream, PROTOCOL_ERROR);
            }
            if peer.number == 2 {
                return go_away(peer, first, PROTOCOL_ERROR);
            }
            say_done(peer, first)?;
            // A second request on the connection is not answered.
            stream_of_request(peer).map(drop)
        });
        let site = Site::new();
        let url = app.url().replace("http", "h2");
        let server = serve(&site, &format!("[[site.route]]\nproxy = '{url}'\n"));
        let responses = server.http2().ask_all(&vec![Request::get("/"); 2]);
        let mut statuses: Vec<_> = responses.iter().map(|response| response.status()).collect();
        statuses.sort_unstable();
        assert_eq!((statuses, app.connections()), (vec![200, 502], 3), "{last_stream}");
    }
}
