//! Trailer fields of applications (RFC 9110 §6.5) on their way to clients of each version.

use sendoff_tests::{Client, Http3, LIMIT, Request, Response, Server, Site, wait};

use crate::http2_app::{self, Http2App};
use crate::responder::Responder;

const FIELDS: &str = "X-Sum: 1a2b\r\ngrpc-status:  0 \r\nX-Sum: 3c\r\n";

/// The fields of [`FIELDS`] as clients get them.
const EXPECTED: [&str; 3] = ["x-sum: 1a2b", "x-sum: 3c", "grpc-status: 0"];

/// A response in chunks with this trailer section.
fn chunked(head: &str, fields: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{fields}\r\n"
    )
}

fn serve(site: &Site, url: &str, more: &str) -> Server {
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n\
         [[site]]\nroot = 'root'\nhttps_redirect = false\ntls = 'self-signed'\n{more}[[site.route]]\nproxy = '{url}'\n"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

fn ask_by_each_version(server: &Server, request: &Request) -> [Response; 3] {
    let tls = server.tls_addr().unwrap();
    [
        Client::connect(server.clear_addr()).ask(request),
        server.http2().ask(request),
        Http3::connect(tls, "localhost").ask(request),
    ]
}

#[test]
fn trailers_of_an_application_reach_clients_that_read_them() {
    let (site, app) = (Site::new(), Responder::saying(chunked("", FIELDS)));
    let server = serve(&site, &app.url(), "");
    let request = Request::get("/").header("TE", "trailers");
    for response in ask_by_each_version(&server, &request) {
        assert_eq!(response.text(), "hello");
        assert_eq!(response.trailer_lines(), EXPECTED, "{}", response.head.version);
    }
    // Clients of HTTP/2 and HTTP/3 read trailers always, clients of HTTP/1.1 if they say so.
    let [first, second, third] = ask_by_each_version(&server, &Request::get("/"));
    assert_eq!((first.text(), first.trailer_lines()), ("hello".to_owned(), Vec::<String>::new()));
    assert_eq!((second.trailer_lines().len(), third.trailer_lines().len()), (3, 3));
    // An HTTP/1.0 body ends with the connection, and a response to HEAD has no end.
    let old = Client::connect(server.clear_addr())
        .ask(&Request::get("/").header("TE", "trailers").http10());
    assert_eq!((old.text(), old.trailers.len()), ("hello".to_owned(), 0));
}

/// A recipient that takes such a field for one of the head would read another message.
#[test]
fn fields_of_heads_do_not_come_as_trailers() {
    let fields = "Content-Length: 7\r\nTransfer-Encoding: chunked\r\nHost: b\r\nSet-Cookie: a=b\r\n\
                  X-Accel-Redirect: /etc\r\nX-Good: 1\r\nConnection: x-good\r\n";
    let (site, app) = (Site::new(), Responder::saying(chunked("", fields)));
    let server = serve(&site, &app.url(), "");
    let request = Request::get("/").header("TE", "trailers");
    for response in ask_by_each_version(&server, &request) {
        assert_eq!(response.text(), "hello");
        assert_eq!(response.trailer_lines(), ["x-good: 1"], "{}", response.head.version);
        assert_eq!(response.header("set-cookie"), None);
    }
}

/// A field that a rule sets or removes in the head of a response does not come behind its body.
#[test]
fn trailers_of_an_application_get_past_no_rule() {
    let names = ["X-Set", "X-Gone", "X-Script", "X-Script-Gone", "X-Early"];
    let fields: String = names.iter().map(|name| format!("{name}: app\r\n")).collect();
    let answer = chunked("X-Set: app\r\n", &format!("{fields}X-Sum: 1\r\n"));
    let (site, app) = (Site::new(), Responder::saying(answer));
    let script =
        "lighty.r.resp_header['X-Script'] = 'rule'\nlighty.r.resp_header['X-Script-Gone'] = ''\n";
    let script = site.write_at(site.outside("head.lua"), script);
    let early =
        site.write_at(site.outside("early.lua"), "lighty.r.resp_header['X-Early'] = 'rule'\n");
    let more = format!(
        "[[site.route]]\nresponse_headers = {{ X-Set = 'rule', X-Gone = false }}\nlua = '{}'\nlua_response = '{}'\n",
        early.display(),
        script.display()
    );
    let server = serve(&site, &app.url(), &more);
    let request = Request::get("/").header("TE", "trailers");
    for response in ask_by_each_version(&server, &request) {
        let version = &response.head.version;
        for name in ["X-Set", "X-Script", "X-Early"] {
            assert_eq!(response.header(name), Some("rule"), "{version} {name}");
        }
        assert_eq!(response.trailer_lines(), ["x-sum: 1"], "{version}");
    }
}

/// Compression and the rate limit pass trailers on, and a page with trailers is not kept.
#[test]
fn trailers_pass_the_filters() {
    let body =
        "Content-Type: text/plain\r\nCache-Control: max-age=60\r\nX-Accel-Limit-Rate: 1000000\r\n";
    let (site, app) = (Site::new(), Responder::saying(chunked(body, FIELDS)));
    let more = "compress = true\ncompress_min_length = 1\n[[site.route]]\npage_cache = 'http'\nresponse_headers = { X-Rule = '1' }\n";
    let server = serve(&site, &app.url(), more);
    let request = Request::get("/").header("TE", "trailers").header("Accept-Encoding", "gzip");
    for _ in 0..2 {
        for response in ask_by_each_version(&server, &request) {
            assert_eq!(response.header("x-rule"), Some("1"));
            assert_eq!(response.trailer_lines(), EXPECTED, "{}", response.head.version);
        }
    }
    assert_eq!(app.seen().len(), 6);
}

/// Trailers of requests reach applications over HTTP/2. If the body is passed on while it arrives,
/// the client must have announced them. HTTP/1.1 applications do not get them: some take them for
/// fields of the head.
#[test]
fn trailers_of_requests_reach_applications_over_http2() {
    let (site, app) = (Site::new(), Http2App::start(http2_app::echo));
    let old = Responder::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let more = format!(
        "[[site.route]]\nprefix = '/streamed'\nstream_body = true\n\
         [[site.route]]\nmatch = '/old$'\nproxy = '{}'\n",
        old.url()
    );
    let server = serve(&site, &app.url(), &more);
    let fields = [
        ("x-sum", "1a2b"),
        ("host", "b"),
        ("content-length", "7"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-real-ip", "6.6.6.6"),
        ("remote-user", "root"),
        ("x_user", "root"),
        ("cookie", "a=b"),
    ];
    let mut http3 = Http3::connect(server.tls_addr().unwrap(), "localhost");
    for (path, announced) in
        [("/stored", ""), ("/streamed", ""), ("/streamed", "Trailer: X-Sum\r\n")]
    {
        let mut client = Client::connect(server.clear_addr());
        let before = app.requests();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\n{announced}Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"
        ));
        // The rest of a streamed body comes when the application has the request.
        assert!(path == "/stored" || wait::until(LIMIT, || app.requests() > before));
        client.send(
            "0\r\nX-Sum: 1a2b\r\nHost: b\r\nContent-Length: 7\r\nCookie: a=b\r\nX_User: root\r\n\r\n",
        );
        let text = client.response("POST").text();
        let is_passed = path == "/stored" || !announced.is_empty();
        let expected = if is_passed { "\n\nbody\nx-sum: \"1a2b\"" } else { "\n\nbody" };
        assert!(text.ends_with(expected), "{path} {announced}: {text}");
        for response in [
            server.http2().try_ask_with_trailers(path, b"body", &fields).unwrap(),
            http3.try_ask_with_trailers(path, b"body", &fields).unwrap(),
        ] {
            let text = response.text();
            // A body may arrive with its head, although it could be streamed.
            let is_whole = text.ends_with("\n\nbody\nx-sum: \"1a2b\"");
            assert!(
                is_whole || path == "/streamed" && text.ends_with("\n\nbody"),
                "{path}: {text}"
            );
        }
        let path = format!("{path}/old");
        assert_eq!(
            server.http2().try_ask_with_trailers(&path, b"body", &fields).unwrap().text(),
            "ok"
        );
    }
    for request in old.seen() {
        assert!(!request.contains("x-sum"), "{request}");
    }
}

/// A field that a route or a script has set or removed does not come behind the body, even if the
/// client's head had the same value, or none.
#[test]
fn trailers_of_requests_get_past_no_rule() {
    let (site, app) = (Site::new(), Http2App::start(http2_app::echo));
    let script =
        "lighty.r.req_header['X-Script'] = 'nobody'\nlighty.r.req_header['X-Script-Gone'] = ''\n";
    let script = site.write_at(site.outside("rules.lua"), script);
    let more = format!(
        "[[site.route]]\nprefix = '/streamed'\nstream_body = true\n\
         [[site.route]]\nrequest_headers = {{ X-User = 'nobody', '?X-Default' = 'nobody', '+X-More' = 'nobody', X-Gone = false }}\nlua = '{}'\n",
        script.display()
    );
    let server = serve(&site, &app.url(), &more);
    let ruled = ["X-User", "X-Default", "X-More", "X-Gone", "X-Script", "X-Script-Gone"];
    let trailers: String = ruled.iter().map(|name| format!("{name}: admin\r\n")).collect();
    for path in ["/stored", "/streamed"] {
        let mut client = Client::connect(server.clear_addr());
        let before = app.requests();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nX-User: nobody\r\nX-Script: nobody\r\n\
             Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"
        ));
        assert!(path == "/stored" || wait::until(LIMIT, || app.requests() > before));
        client.send(format!("0\r\n{trailers}X-Sum: 1a2b\r\n\r\n"));
        let text = client.response("POST").text();
        assert!(text.ends_with("\n\nbody\nx-sum: \"1a2b\""), "{path}: {text}");
        for name in ["x-user", "x-default", "x-more", "x-script"] {
            assert!(text.contains(&format!("\n{name}: nobody\n")), "{path}, {name}: {text}");
        }
    }
}

/// A field that an authorizer gives to applications does not come behind the body either, on no
/// route of the site.
#[test]
fn trailers_of_requests_are_no_fields_of_an_authorizer() {
    let (site, app) = (Site::new(), Http2App::start(http2_app::echo));
    let authority =
        Responder::saying("HTTP/1.1 200 OK\r\nRemote-Groups: staff\r\nContent-Length: 0\r\n\r\n");
    let more = format!(
        "[[site.route]]\nmatch = 'streamed$'\nstream_body = true\n\
         [[site.route]]\nprefix = '/inner'\n\
         authorize = {{ url = '{}/', copy_headers = ['Remote-Groups', 'X-Absent'] }}\n",
        authority.url()
    );
    let server = serve(&site, &app.url(), &more);
    let fields = [("remote-groups", "admin"), ("x-absent", "admin"), ("x-sum", "1a2b")];
    let mut http3 = Http3::connect(server.tls_addr().unwrap(), "localhost");
    for path in ["/stored", "/inner/stored", "/streamed", "/inner/streamed"] {
        let mut client = Client::connect(server.clear_addr());
        let before = app.requests();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\n\
             Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"
        ));
        assert!(path.ends_with("stored") || wait::until(LIMIT, || app.requests() > before));
        client.send("0\r\nRemote-Groups: admin\r\nX-Absent: admin\r\nX-Sum: 1a2b\r\n\r\n");
        let mut texts = vec![client.response("POST").text()];
        assert!(texts[0].ends_with("\n\nbody\nx-sum: \"1a2b\""), "{path}: {}", texts[0]);
        texts.push(server.http2().try_ask_with_trailers(path, b"body", &fields).unwrap().text());
        texts.push(http3.try_ask_with_trailers(path, b"body", &fields).unwrap().text());
        for text in texts {
            assert!(!text.contains("admin"), "{path}: {text}");
            assert_eq!(text.contains("\nremote-groups: staff\n"), path.starts_with("/inner"));
        }
    }
}
