//! Applications behind the server: the field that they get, and the spans of calls.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use sendoff_tests::{Answers, Collector, Request, Site};

use super::{TRACE, names, serve, traceparent};

/// An application that answers each request with `answer`, given the request's head, and closes the
/// connection. Its thread ends with the process.
fn application(answer: fn(&str, &mut TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).is_err() {
                    break;
                }
                head.push(byte[0]);
            }
            answer(&String::from_utf8_lossy(&head), &mut stream);
        }
    });
    addr
}

fn echo(head: &str, stream: &mut TcpStream) {
    let field = head.split("traceparent: ").nth(1).and_then(|rest| rest.lines().next());
    let field = field.unwrap_or_default();
    let length = field.len();
    let wire = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all((wire + field).as_bytes()).unwrap();
}

fn switch(_: &str, stream: &mut TcpStream) {
    let wire = "HTTP/1.1 101 x\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";
    stream.write_all(wire.as_bytes()).unwrap();
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
}

fn asked() -> Request {
    Request::get("/app").header("traceparent", &traceparent())
}

#[test]
fn a_host_gets_the_span_of_the_call_as_its_parent() {
    let collector = Collector::start(Answers::Ok);
    let addr = application(echo);
    let site = Site::new();
    let route = format!("[[site.route]]\npath = '/app'\nproxy = 'http://{addr}'\n");
    let server = serve(&site, collector.url(), "", &route);
    let shown = server.ask(&asked()).text();
    let spans = collector.await_trace(TRACE, 4);
    assert_eq!(names(&spans), ["GET /app", "queue", "upstream", "delivery"], "{spans:#?}");
    let call = &spans[2];
    assert_eq!(shown, format!("00-{TRACE}-{}-01", call.id));
    assert_eq!((call.kind, &*call.parent), (3, &*spans[0].id));
    assert_eq!(call.get("server.address"), "127.0.0.1");
    assert_eq!(call.get("server.port"), addr.port().to_string());
    assert_eq!(call.get("sendoff.upstream"), format!("http://{addr}"));
}

#[test]
fn a_host_that_does_not_answer_is_an_error_of_the_call() {
    let collector = Collector::start(Answers::Ok);
    let addr = application(|_, _| {});
    let site = Site::new();
    let route = format!("[[site.route]]\npath = '/app'\nproxy = 'http://{addr}'\n");
    let server = serve(&site, collector.url(), "", &route);
    server.ask(&asked()).expect(502);
    let spans = collector.await_trace(TRACE, 3);
    assert_eq!(names(&spans), ["GET /app", "queue", "upstream"], "{spans:#?}");
    for span in [&spans[0], &spans[2]] {
        assert!(span.is_error && span.get("error.type") == "502", "{span:#?}");
    }
}

#[test]
fn an_authorizer_has_the_span_of_the_request_as_its_parent() {
    let collector = Collector::start(Answers::Ok);
    let addr = application(|head, stream| {
        let field = head.split("traceparent: ").nth(1).unwrap().lines().next().unwrap();
        let head = format!("HTTP/1.1 204 x\r\nRemote-User: {field}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
    });
    let site = Site::with("app.php", "<?php echo $_SERVER['HTTP_REMOTE_USER'];");
    let route = format!(
        "[[site.route]]\nauthorize = {{ url = 'http://{addr}/', copy_headers = 'Remote-User' }}\n"
    );
    let server = serve(&site, collector.url(), "", &route);
    let asked = Request::get("/app.php").header("traceparent", &traceparent());
    let shown = server.ask(&asked).text();
    let spans = collector.await_trace(TRACE, 4);
    assert_eq!(shown, format!("00-{TRACE}-{}-01", spans[0].id));
}

#[test]
fn a_tunnel_is_delivered_until_it_ends() {
    let collector = Collector::start(Answers::Ok);
    let addr = application(switch);
    let site = Site::new();
    let route = format!("[[site.route]]\npath = '/app'\nproxy = 'http://{addr}'\n");
    let server = serve(&site, collector.url(), "", &route);
    let mut client = server.connect();
    client.send(asked().header("Connection", "Upgrade").header("Upgrade", "echo").bytes());
    assert_eq!(client.head().unwrap().status, 101);
    client.send("hello");
    assert_eq!(client.read(5), b"hello");
    assert!(collector.spans().is_empty(), "the tunnel has not ended");
    drop(client);
    let spans = collector.await_trace(TRACE, 4);
    assert_eq!(names(&spans), ["GET /app", "queue", "upstream", "delivery"], "{spans:#?}");
    assert_eq!(spans[0].get("http.response.status_code"), "101");
}
