//! Exchanges over a real TCP connection. The tests play the handler, the worker and the client.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Version};
use sendoff_config::{FrontConfig, Limits, PageStore, Party, Timeouts, TrustedProxies};
use sendoff_delivery::segment::{FileSegment, OpenFile, Segment};
use sendoff_exchange::client::{Client, Lender};
use sendoff_exchange::clients::Connections;
use sendoff_exchange::lifecycle::{Lifecycle, Stage, StartingGuard};
use sendoff_exchange::service::{Answered, BodyTerms, Current, Intake, Plan, Service};
use sendoff_exchange::sink::{Sink, flush, respond, unless_gone};
use sendoff_fastcgi::direct::{Rest, Sent};
use sendoff_http1::{BodyDecoder, BodyFraming};
use sendoff_message::Cut;
use sendoff_message::request::{Endpoint, Origin, Request, Scheme};
use sendoff_message::response::ResponseEnd;
use sendoff_message::response::ResponseHead;
use sendoff_report::log_line::{LogLine, Notes};
use sendoff_sys::tcp;
use sendoff_tls::SiteTls;
use sendoff_transport::Tcp;
use sendoff_transport::pace::SlowestPace;
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::Connection;
use super::exchange::{Exchange, Parts, RequestFacts, RequestLine};
use super::incoming::Unread;

/// A service that answers without bodies and records the lines of the access log.
struct Noting {
    limits: FrontConfig,
    intake: Intake,
    proxies: TrustedProxies,
    lines: RefCell<Vec<(u16, u64)>>,
}

/// A plan that knows the treatment of the body alone.
struct BodyPlan(BodyTerms);

impl Plan for BodyPlan {
    fn body(&self) -> BodyTerms {
        self.0
    }
}

impl Service for Noting {
    type Plan = BodyPlan;

    fn config(&self) -> &FrontConfig {
        &self.limits
    }

    fn trusted_proxies(&self) -> &TrustedProxies {
        &self.proxies
    }

    fn tls(&self, _: usize, _: Option<&str>) -> io::Result<SiteTls> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn plan(&self, _request: &mut Request) -> BodyPlan {
        BodyPlan(BodyTerms { max: self.limits.limits.max_body, intake: self.intake })
    }

    async fn answer(&self, _: BodyPlan, _: &Request, sink: &mut dyn Sink) -> Result<Answered, Cut> {
        respond(sink, head(0), []).await?;
        Ok(Answered::Sent)
    }

    async fn refuse(&self, _: StatusCode, _: &mut dyn Sink) -> Result<(), Cut> {
        Ok(())
    }

    fn for_log(&self, request: &Request, _: &Notes) -> Request {
        request.for_log(|_| false)
    }

    fn log(&self, line: &LogLine<'_>) {
        self.lines.borrow_mut().push((line.status, line.sent));
    }
}

/// The party of the worker.
fn own() -> Rc<Party> {
    Rc::new(Party::User(None))
}

fn limits() -> FrontConfig {
    let time = Duration::from_secs(20);
    FrontConfig {
        threads: 1,
        access_log: None,
        request_ids: false,
        timeouts: Timeouts { head: time, body: time, idle: time, send: time },
        page_cache: PageStore { folder: "/".into(), size: 0 },
        limits: Limits::new(0),
    }
}

/// A connection with both ends.
struct Pair {
    transport: Tcp,
    peer: Endpoint,
    service: Noting,
    lifecycle: Lifecycle,
    stop: watch::Sender<Stage>,
    buffer: BytesMut,
    starting: Option<StartingGuard>,
    kept_up: bool,
    lent_to: Option<Rc<Party>>,
    /// The worker's copy of the socket.
    worker: TcpStream,
    client: TcpStream,
}

fn pair() -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (ours, peer) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    let worker = ours.try_clone().unwrap();
    let ours = tokio::net::TcpStream::from_std(ours).unwrap();
    let (stop, stopping) = watch::channel(Stage::Serving);
    Pair {
        transport: Tcp::new(ours),
        peer: peer.into(),
        service: Noting {
            limits: limits(),
            intake: Intake::Whole,
            proxies: TrustedProxies::default(),
            lines: RefCell::default(),
        },
        lifecycle: Lifecycle::new(stopping, Arc::new(Connections::new(1))),
        stop,
        buffer: BytesMut::new(),
        starting: None,
        kept_up: true,
        lent_to: None,
        worker,
        client,
    }
}

impl Pair {
    fn exchange(&mut self) -> Exchange<'_, Tcp, Noting> {
        self.exchange_for(Method::GET, Version::HTTP_11)
    }

    fn exchange_for(&mut self, method: Method, version: Version) -> Exchange<'_, Tcp, Noting> {
        self.exchange_asked(method, version, true)
    }

    fn exchange_asked(
        &mut self,
        method: Method,
        version: Version,
        keep_alive: bool,
    ) -> Exchange<'_, Tcp, Noting> {
        let Self { transport, peer, service, lifecycle, starting, buffer, .. } = self;
        let Self { kept_up, lent_to, .. } = self;
        let parts = Parts {
            transport,
            client: peer,
            service,
            lifecycle,
            starting,
            read_ahead: buffer,
            kept_up_before: kept_up,
            lent_to,
        };
        let line = RequestLine::Raw("GET /".to_owned());
        Exchange::new(
            parts,
            RequestFacts { method, version, line, keep_alive, began: Instant::now() },
            None,
        )
    }

    /// An exchange that continues after the worker has written `headbody!` and reported `sent`.
    fn resumed(&mut self, sent: &Sent) -> Exchange<'_, Tcp, Noting> {
        let mut worker = self.worker.try_clone().unwrap();
        let mut exchange = self.exchange();
        exchange.lend(Some(&own())).unwrap();
        worker.write_all(b"headbody!").unwrap();
        exchange.resume(StatusCode::OK, sent).unwrap();
        exchange
    }

    /// Closes the server's end. Returns everything that the client has received.
    fn rest(self) -> String {
        let Self { transport, worker, mut client, .. } = self;
        drop((transport, worker));
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }
}

const SENT: Sent = Sent {
    wire: 9,
    head: 4,
    framed: 0,
    rest: Rest::Length(0),
    status: 200,
    gone: false,
    surplus: false,
};

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

fn bytes(text: &'static str) -> Segment {
    Segment::Bytes(Bytes::from_static(text.as_bytes()))
}

/// A head without fields for a body of this length.
fn head(length: impl Into<Option<u64>>) -> ResponseHead {
    ResponseHead::new(StatusCode::OK, length.into())
}

#[test]
fn what_a_worker_says_it_has_written_must_be_true() {
    for lie in [
        Sent { wire: 8, ..SENT },
        Sent { wire: 10, ..SENT },
        Sent { wire: 0, ..SENT },
        Sent { wire: u64::MAX, ..SENT },
        Sent { head: 10, ..SENT },
        Sent { head: u32::MAX, framed: 5, ..SENT },
    ] {
        run(async {
            let mut pair = pair();
            let mut worker = pair.worker.try_clone().unwrap();
            let mut exchange = pair.exchange();
            assert!(exchange.lend(Some(&own())).is_some() && exchange.is_untouched());
            worker.write_all(b"headbody!").unwrap();
            assert!(!exchange.is_untouched());
            assert!(exchange.resume(StatusCode::OK, &lie).is_err(), "{lie:?}");
        });
    }
}

#[test]
fn the_front_goes_on_where_the_worker_has_stopped() {
    let chunked = Rest::Chunked { open: false };
    let open = Rest::Chunked { open: true };
    for (rest, framed, pieces, missing, expected) in [
        (Rest::Length(0), 0, &[][..], 0, ""),
        (Rest::Length(0), 0, &["surplus"], 0, ""),
        (Rest::Length(3), 0, &["abcd"], 0, "abc"),
        (Rest::Length(3), 0, &["a", "b"], 1, "ab"),
        (Rest::Length(3), 2, &["ab", "cde", "f"], 0, "abcde"),
        (Rest::Length(0), 2, &["a"], 1, "a"),
        (chunked, 0, &[], 0, "0\r\n\r\n"),
        (chunked, 2, &["\r\n", "new"], 0, "\r\n3\r\nnew\r\n0\r\n\r\n"),
        (open, 4, &["ol", "dynew", "er"], 0, "oldy\r\n3\r\nnew\r\n2\r\ner\r\n0\r\n\r\n"),
        (open, 4, &["ol"], 2, "ol"),
        (Rest::Close, 1, &["ab"], 0, "ab"),
    ] {
        run(async {
            let mut pair = pair();
            let mut exchange = pair.resumed(&Sent { rest, framed, ..SENT });
            for piece in pieces {
                exchange.push(bytes(piece)).unwrap();
            }
            assert_eq!(exchange.end(ResponseEnd::Complete).unwrap(), missing, "{rest:?}");
            flush(&mut exchange).await.unwrap();
            assert!(exchange.is_untouched(), "everything is accounted for");
            let keep_alive = rest != Rest::Close;
            assert_eq!(exchange.completed(), (missing == 0).then_some(keep_alive), "{rest:?}");
            drop(exchange);
            assert_eq!(pair.service.lines.take(), [(200, 5 + expected.len() as u64)]);
            // The worker's copy of the socket is still open; the connection must end nevertheless.
            assert_eq!(pair.rest(), format!("headbody!{expected}"));
        });
    }
}

#[test]
fn a_file_cannot_stand_inside_of_what_is_framed() {
    run(async {
        let mut pair = pair();
        let mut exchange = pair.resumed(&Sent { framed: 5, ..SENT });
        let file = OpenFile::new(std::fs::File::open("/dev/null").unwrap().into());
        assert!(exchange.push(Segment::File(FileSegment { file, offset: 0, len: 5 })).is_err());
    });
}

#[test]
fn nothing_is_lent_while_something_is_owed_or_the_client_is_slow() {
    run(async {
        let mut pair = pair();
        let mut worker = pair.worker.try_clone().unwrap();
        let mut exchange = pair.exchange();
        exchange.begin(head(1)).unwrap();
        assert!(exchange.lend(Some(&own())).is_none(), "its head is owed");
        exchange.push(bytes("x")).unwrap();
        exchange.end(ResponseEnd::Complete).unwrap();
        flush(&mut exchange).await.unwrap();
        exchange.note_slow();
        drop(exchange);
        let mut exchange = pair.exchange();
        assert!(exchange.lend(Some(&own())).is_none(), "the client was slow");
        respond(&mut exchange, head(0), []).await.unwrap();
        drop(exchange);
        let mut exchange = pair.exchange();
        assert!(exchange.lend(Some(&own())).is_some(), "it has caught up");
        worker.write_all(b"headbody!").unwrap();
        exchange.resume(StatusCode::OK, &Sent { framed: 1, ..SENT }).unwrap();
        exchange.push(bytes("!")).unwrap();
        exchange.end(ResponseEnd::Complete).unwrap();
        flush(&mut exchange).await.unwrap();
        drop(exchange);
        assert!(pair.exchange().lend(Some(&own())).is_none(), "it did not take what was written");
        assert!(pair.exchange_for(Method::HEAD, Version::HTTP_11).lend(Some(&own())).is_none());
    });
}

/// The worker keeps the socket: its bytes would be attributed to the next borrower.
#[test]
fn a_socket_that_a_borrower_has_written_to_behind_its_response_is_not_lent_again() {
    run(async {
        let mut pair = pair();
        let mut worker = pair.worker.try_clone().unwrap();
        let mut exchange = pair.resumed(&SENT);
        exchange.end(ResponseEnd::Complete).unwrap();
        flush(&mut exchange).await.unwrap();
        drop(exchange);
        assert!(pair.exchange().lend(Some(&own())).is_some());
        worker.write_all(b"more").unwrap();
        assert!(pair.exchange().lend(Some(&own())).is_none());
    });
}

/// Requests of others may follow on a connection that is kept.
#[test]
fn a_connection_that_may_be_kept_is_lent_to_the_only_party_alone() {
    run(async {
        let mut pair = pair();
        assert!(pair.exchange().lend(None).is_none());
        let mut last = pair.exchange_asked(Method::GET, Version::HTTP_11, false);
        assert!(last.lend(None).is_some());
    });
}

/// The worker is alive and keeps the socket. An HTTP/1.0 client, for which the end of the
/// connection is the end of the body, must see an error.
#[test]
fn a_response_that_is_dropped_amid_its_body_does_not_look_complete() {
    run(async {
        let mut pair = pair();
        let mut worker = pair.worker.try_clone().unwrap();
        let mut exchange = pair.exchange_for(Method::GET, Version::HTTP_10);
        exchange.lend(Some(&own())).unwrap();
        worker.write_all(b"headbody!").unwrap();
        drop(exchange);
        assert_eq!(pair.service.lines.take(), [(499, 0)]);
        let mut all = Vec::new();
        let error = pair.client.read_to_end(&mut all).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn the_length_is_kept_and_head_has_no_body() {
    run(async {
        let mut pair = pair();
        let mut exchange = pair.exchange();
        respond(&mut exchange, head(2), [bytes("abc")]).await.unwrap();
        assert_eq!(exchange.completed(), Some(true));
        drop(exchange);
        let mut exchange = pair.exchange_for(Method::HEAD, Version::HTTP_11);
        respond(&mut exchange, head(7), [bytes("nothing")]).await.unwrap();
        drop(exchange);
        let mut exchange = pair.exchange_for(Method::GET, Version::HTTP_10);
        respond(&mut exchange, head(None), [bytes("to the end")]).await.unwrap();
        assert_eq!(exchange.completed(), Some(false));
        drop(exchange);
        assert_eq!(pair.service.lines.take(), [(200, 2), (200, 0), (200, 10)]);
        let expected = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab\
                        HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n\
                        HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end";
        assert_eq!(pair.rest(), expected);
    });
}

#[test]
fn the_last_response_before_the_stop_says_so() {
    run(async {
        let mut pair = pair();
        pair.stop.send_replace(Stage::Draining);
        let mut exchange = pair.exchange();
        respond(&mut exchange, head(0), []).await.unwrap();
        assert_eq!(exchange.completed(), Some(false));
        drop(exchange);
        let expected = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert_eq!(pair.rest(), expected);
    });
}

#[test]
fn the_rest_of_a_body_belongs_to_no_other_protocol() {
    run(async {
        let mut pair = pair();
        let mut exchange = pair.exchange();
        assert!(exchange.may_switch());
        let decoder = BodyDecoder::new(BodyFraming::Length(5), 5).unwrap();
        let limits = SlowestPace { pause: Duration::from_secs(20), rate: 0 };
        exchange.receive(Unread::dropped(decoder, limits));
        assert!(!exchange.may_switch() && !exchange.may_lend(Some(&own())));
    });
}

/// The exchange reads further requests ahead, so that they do not hide the departure of the client.
#[test]
fn a_client_that_leaves_is_noticed_behind_its_next_request() {
    run(async {
        let mut pair = pair();
        let mut client = pair.client.try_clone().unwrap();
        client.write_all(b"GET /next HTTP/1.1\r\n").unwrap();
        let mut exchange = pair.exchange();
        let waited = tokio::time::timeout(
            Duration::from_millis(50),
            unless_gone(&mut exchange, std::future::pending::<()>()),
        );
        assert!(waited.await.is_err(), "it is still there");
        client.shutdown(std::net::Shutdown::Both).unwrap();
        let gone = unless_gone(&mut exchange, std::future::pending::<()>()).await;
        assert!(gone.is_err());
        drop(exchange);
        assert_eq!(pair.buffer, "GET /next HTTP/1.1\r\n");
        assert_eq!(pair.service.lines.take(), [(499, 0)]);
    });
}

/// The limit holds for small and fast chunks, too, and behind a response.
#[test]
fn a_large_body_leaves_turns_to_others() {
    for intake in [Intake::Whole, Intake::Unused] {
        run(leaves_turns_to_others(intake));
    }
}

async fn leaves_turns_to_others(intake: Intake) {
    const CHUNK: &[u8] = b"1\r\na\r\n";
    /// The most bytes of one turn, and of one further read.
    const MOST: u64 = 256 * 1024 + 64 * 1024;
    let Pair { transport, peer, mut service, lifecycle, stop: _stop, worker, mut client, .. } =
        pair();
    service.limits.limits.max_body = u64::MAX;
    service.intake = intake;
    client.set_nonblocking(true).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let chunks = CHUNK.repeat(10_000);
    let mut at = 0;
    while let Ok(n) = client.write(&chunks[at..]) {
        at = (at + n) % chunks.len();
    }
    let sent = tcp::written(client.as_fd()).unwrap();
    assert!(sent > 2 * MOST, "the sockets hold {sent} bytes");
    let read = || {
        let unread = rustix::io::ioctl_fionread(&worker).unwrap();
        tcp::acknowledged(client.as_fd()).unwrap() - unread
    };
    let local = peer.clone();
    let origin =
        Origin { listener: 0, scheme: Scheme::Http, tls: None, peer, local, is_anonymous: false };
    let services = Current::new(service);
    let mut connection =
        Connection::new(transport, origin, BytesMut::new(), Rc::new(lifecycle), None);
    let look = async {
        let mut before = read();
        while before < sent {
            tokio::task::yield_now().await;
            let now = read();
            assert!(now - before <= MOST, "{} bytes in one go", now - before);
            before = now;
        }
    };
    tokio::select! {
        biased;
        () = look => {}
        _ = connection.serve(&*services) => panic!("the body has not ended"),
    }
}
