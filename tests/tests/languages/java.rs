//! Tomcat 10 behind our front through our connector (`languages/java`), beside Tomcat's own HTTP
//! connector: the same responses, and files handed over. Wants `tools/install java`.

mod fragments;
mod tomcat;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use sendoff_tests::{
    Broken, Client, LIMIT, Request, Response, Server, Site, pattern, processes, wait,
};
use tomcat::{Tomcat, copy_tree};

use crate::delivery;

/// Fields of one connection or server.
const OWN: [&str; 5] = ["connection", "date", "keep-alive", "server", "transfer-encoding"];

/// Tomcat and a front, which is looked at when Tomcat has ended.
struct Pair {
    tomcat: Tomcat,
    server: Server,
    _site: Site,
}

fn fill(root: &std::path::Path) {
    for (name, size) in [("1k", 1000), ("60k", 61_440), ("5m", 5 << 20)] {
        std::fs::write(root.join(name), pattern(0, size)).unwrap();
    }
    std::fs::write(root.join("page.jsp"), include_str!("java/page.jsp")).unwrap();
}

impl Pair {
    fn start(attributes: &str, options: &[&str]) -> Self {
        Self::start_with(attributes, &[], options)
    }

    fn start_with(attributes: &str, jvm: &[&str], options: &[&str]) -> Self {
        Self::attach(Tomcat::start(attributes, jvm, fill), options)
    }

    fn attach(tomcat: Tomcat, options: &[&str]) -> Self {
        let site = Site::new();
        let attached = tomcat.attached();
        let server = Server::start(site.root(), &[&["--fastcgi", &attached], options].concat());
        Self { server, tomcat, _site: site }
    }

    /// Expects the same of both connectors; returns ours.
    #[track_caller]
    fn same(&self, request: &Request) -> Response {
        let (stock, ours) = (self.tomcat.ask(request), self.server.ask(request));
        let line = String::from_utf8_lossy(&request.bytes()).lines().next().unwrap().to_owned();
        assert_eq!(ours.status(), stock.status(), "{line}");
        assert_eq!(fields(&ours), fields(&stock), "{line}");
        assert_eq!(ours.text(), stock.text(), "{line}");
        assert!(ours.body == stock.body, "{line}: bytes that are no text");
        ours
    }

    /// True if the front has the file open. Only the connector can have handed it over.
    fn front_has(&self, name: &str) -> bool {
        let path = self.tomcat.path(name).display().to_string();
        let front =
            std::iter::once(self.server.pid()).chain(processes::descendants(self.server.pid()));
        front.flat_map(processes::descriptors).any(|open| open == path)
    }
}

fn fields(response: &Response) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = response
        .head
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        // A front that has the whole body says how long it is.
        .filter(|(name, _)| !OWN.contains(&name.as_str()) && name != "content-length")
        .collect();
    fields.sort();
    fields
}

fn get(path: &str) -> Request {
    Request::get(path)
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn responses_are_those_of_the_http_connector() {
    for delivery in ["auto", "region", "relay"] {
        let pair = Pair::start("threads=\"10\"", &["--delivery", delivery]);
        for request in [
            get("/servlet/size?n=0"),
            get("/servlet/size?n=1"),
            get("/servlet/size?n=8192"),
            get("/servlet/size?n=100000"),
            get("/servlet/size?n=131072"),
            get("/servlet/size?n=5000000"),
            get("/servlet/size?n=100000").http10(),
            get("/servlet/pieces?n=5000000&piece=4096&flushes=0"),
            get("/servlet/pieces?n=300000&piece=1000&flushes=20"),
            get("/servlet/pieces?n=10&piece=1&flushes=10"),
            Request::new("HEAD", "/servlet/size?n=100000"),
            Request::new("HEAD", "/servlet/pieces?n=100000&piece=1000&flushes=3"),
            get("/servlet/reset"),
            get("/servlet/committed"),
            get("/servlet/status?n=204"),
            get("/servlet/status?n=304"),
            get("/servlet/status?n=599"),
            get("/servlet/error?n=404"),
            get("/servlet/error?n=503"),
            get("/servlet/throw"),
            get("/servlet/empty"),
            get("/servlet/buffer"),
            get("/servlet/async"),
            get("/servlet/async-timeout"),
            get("/servlet/nothing"),
            get("/no/such/file"),
            get("/1k"),
            get("/60k"),
            get("/60k"),
            get("/5m"),
            get("/5m").header("Range", "bytes=1000000-2999999"),
            get("/5m").header("Range", "bytes=0-9,100-109"),
            get("/5m").header("Range", "bytes=9000000-"),
            Request::new("HEAD", "/5m"),
            Request::new("DELETE", "/1k"),
            get("/page.jsp?name=%C3%BC&empty="),
            Request::post("/servlet/echo", "text/plain", pattern(1, 1_000_000)),
            Request::post("/servlet/echo", "text/plain", ""),
            get("/servlet/finished"),
            Request::post("/servlet/finished", "text/plain", ""),
            Request::post("/servlet/finished", "text/plain", "0123456789"),
            Request::post("/servlet/finished", "text/plain", pattern(2, 100_000)),
            Request::post(
                "/servlet/characters",
                "application/json",
                "{\"a\":\"\u{e4}\"}".repeat(5_000),
            ),
            Request::post("/servlet/characters", "text/plain;charset=utf-8", ""),
            Request::post("/servlet/half", "text/plain", pattern(2, 500_000)),
            Request::post("/servlet/listeners", "text/plain", pattern(3, 300_000)),
            Request::post("/servlet/listeners", "text/plain", ""),
            Request::post(
                "/servlet/parameters?q=1",
                "application/x-www-form-urlencoded",
                "a=1&b=2",
            ),
        ] {
            pair.same(&request);
        }
        let fields = pair.same(&get("/servlet/fields"));
        assert_eq!(fields.head.all("Set-Cookie").count(), 2);
        assert_eq!(fields.header("X-Injected"), None);
    }
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn servlets_see_the_request_as_through_the_http_connector() {
    let pair = Pair::start("", &[]);
    let same = |request: Request| pair.same(&request).text();
    let seen = same(
        get("/servlet/request?a=%20b&c")
            .header("X-One", "1")
            .header("Accept-Language", "de")
            .header("Cookie", "k=v"),
    );
    assert!(seen.contains("x-one: 1") && seen.contains(" a=%20b&c "), "{seen}");
    for request in [
        get("/servlet/request;jsessionid=1"),
        get("/servlet/../servlet/request"),
        get("/servlet/req%75est"),
        get("/servlet//request?x=%GG"),
        get("/servlet/request").header("Host", "other.example:8081"),
        get("/servlet/async-dispatch"),
        Request::post("/servlet/request", "text/plain;charset=utf-16", "body"),
        Request::new("OPTIONS", "/servlet/request"),
        Request::new("FOO", "/servlet/request"),
    ] {
        same(request);
    }
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn files_are_handed_over() {
    let pair = Pair::start("threads=\"10\"", &[]);
    assert!(!pair.front_has("5m"));
    // The first response tells the front that files may be handed over.
    assert_eq!(pair.server.get("/1k").expect(200), pattern(0, 1000));
    assert_eq!(pair.server.get("/5m").expect(200), pattern(0, 5 << 20));
    assert!(pair.front_has("5m"), "through DefaultServlet");
    let path = pair.tomcat.path("60k");
    let range = format!("/servlet/file?path={}&start=100&end=50100", path.display());
    assert_eq!(pair.server.get(&range).expect(200), &pattern(0, 61_440)[100..50_100]);
    assert!(pair.front_has("60k"), "through the attributes");
    pair.same(&get(&range));
    // DefaultServlet cuts ranges out.
    std::fs::write(pair.tomcat.path("ranges"), pattern(8, 5 << 20)).unwrap();
    pair.same(&get("/ranges").header("Range", "bytes=1000000-2999999"));
    assert!(pair.front_has("ranges"), "a range");
    // A new version is sent as it is.
    std::fs::write(&path, pattern(9, 70_000)).unwrap();
    let range = range.replace("50100", "70000");
    assert_eq!(pair.server.get(&range).expect(200), &pattern(9, 70_000)[100..]);
    // With `useSendfile="false"` files are not handed over.
    let relay = Pair::start("useSendfile=\"false\"", &[]);
    for _ in 0..2 {
        assert_eq!(relay.server.get("/5m").expect(200), pattern(0, 5 << 20));
    }
    assert!(!relay.front_has("5m"));
}

/// The class, method, file and line of the statement in the conformance servlet that contains this
/// text.
fn place(method: &str, statement: &str) -> String {
    let source =
        include_str!("../../../languages/java/src/test/java/sendoff/tomcat/Conformance.java");
    let lines = source.lines().enumerate();
    let (line, _) = lines
        .skip_while(|(_, line)| !line.contains(&format!("void {method}(")))
        .find(|(_, line)| line.contains(statement))
        .unwrap();
    format!("sendoff.tomcat.Conformance.{method}(Conformance.java:{})", line + 1)
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn explain_names_the_statements_that_made_the_response() {
    let pair = Pair::start("threads=\"10\"", &[]);
    pair.server.get("/1k");
    let file =
        format!("/servlet/file?path={}&start=0&end=61440", pair.tomcat.path("60k").display());
    let named = place("file", "\"org.apache.tomcat.sendfile.filename\"");
    let jsp = "org.apache.jsp.page_jsp._jspService(page_jsp.java:";
    for (target, expected) in [
        ("/servlet/size?n=1000", [place("size", "write(bytes)"), "1 write".into()]),
        ("/servlet/size?n=100000", [place("size", "write(bytes)"), "1 write".into()]),
        (
            "/servlet/pieces?n=50000&piece=1000&flushes=0",
            [place("pieces", "out.write("), "50 writes".into()],
        ),
        ("/servlet/fields", [place("fields", "getWriter().print("), "1 write".into()]),
        (
            "/servlet/committed",
            [place("committed", "out.print("), format!(" to {}", place("committed", "too late"))],
        ),
        (&file, [named, pair.tomcat.path("60k").display().to_string()]),
        ("/page.jsp", [jsp.into(), "writes".into()]),
        (
            "/1k",
            ["org.apache.catalina.servlets.DefaultServlet.".into(), "below sendfileSize".into()],
        ),
        ("/5m", ["org.apache.catalina.servlets.DefaultServlet.".into(), "file, sendfile".into()]),
        (
            "/no/such/file",
            ["org.apache.catalina.valves.ErrorReportValve.report(".into(), "write".into()],
        ),
    ] {
        let table = pair.server.explain(target, &[]).unwrap();
        for text in expected {
            assert!(table.contains(&text), "{target}: {text}\n{table}");
        }
        // The next request on the connection is not explained, and is the same.
        if !target.contains("fields") {
            pair.same(&get(target));
        }
    }
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn what_fails_after_the_head_is_no_complete_response() {
    let pair = Pair::start("threads=\"4\"", &[]);
    let missing = "/servlet/file?path=/no/such/file&start=0&end=100000";
    let long =
        format!("/servlet/file?path={}&start=0&end=100000", pair.tomcat.path("60k").display());
    let late = ["/servlet/throw-late", "/servlet/async-late"];
    for request in late.into_iter().chain([missing, &long]).map(get) {
        assert!(pair.tomcat.try_ask(&request).is_err(), "the HTTP connector cuts it, too");
        let broken = Client::connect(pair.server.addr()).try_ask(&request);
        assert!(broken.as_ref().is_err() || broken.unwrap().status() == 502);
    }
    // Only the end of the response could tell the client that bytes are missing.
    let unannounced = pair.server.connect().try_ask(&get(&format!("{long}&unannounced=1")));
    assert!(matches!(unannounced, Err(Broken::Cut(_))), "{unannounced:?}");
    pair.server.await_log("it has become shorter");
    let (path, contents) = (pair.tomcat.path("8m"), pattern(4, 8 << 20));
    std::fs::write(&path, &contents).unwrap();
    let page = format!("/servlet/file?path={}&start=0&end=8388608&unannounced=1", path.display());
    delivery::a_file_that_becomes_shorter(&pair.tomcat.socket(), &page, &path, &contents);
    assert_eq!(pair.server.get("/servlet/size?n=3").expect(200).len(), 3, "it goes on");
    let refused = pair.server.ask(&get("/servlet/upgrade").header("Upgrade", "x"));
    assert_eq!(refused.status(), 500);
    assert!(pair.tomcat.log().contains("The Sendoff connector carries no WebSocket"));
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn clients_that_leave_free_their_threads_and_an_operator_can_end_it() {
    let pair = Pair::start("threads=\"2\"", &[]);
    for _ in 0..20 {
        let mut client = Client::connect(pair.server.addr());
        client.send(get("/servlet/pieces?n=50000000&piece=4096&flushes=0").bytes());
        client.read(100_000);
    }
    assert_eq!(pair.server.get("/servlet/size?n=7").expect(200).len(), 7);
    let Pair { server, tomcat, _site } = pair;
    assert!(tomcat.stop(), "Tomcat ends by itself");
    assert_eq!(server.get("/servlet/size?n=7").status(), 502);
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn tasks_of_asynchronous_requests_have_threads_of_their_own() {
    let pair = Pair::start("threads=\"2\"", &[]);
    assert_eq!(pair.server.get("/servlet/async").expect(200).len(), 100_000);
    // Each has begun a record. One has the last thread for connections, the other waits for one.
    let begun = [(); 2].map(|()| {
        let mut connection = UnixStream::connect(pair.tomcat.socket()).unwrap();
        connection.write_all(&[1]).unwrap();
        connection
    });
    assert_eq!(pair.server.get("/servlet/async").expect(200).len(), 100_000);
    drop(begun);
    assert_eq!(pair.server.get("/servlet/size?n=3").expect(200).len(), 3);
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn the_virtual_machine_finds_no_fault_with_the_native_code() {
    let pair = Pair::start_with("threads=\"4\"", &["-Xcheck:jni"], &[]);
    for path in ["/60k", "/60k", "/servlet/fields", "/servlet/size?n=300000", "/servlet/async"] {
        pair.same(&get(path));
    }
    pair.same(&Request::post("/servlet/echo", "text/plain", pattern(1, 200_000)));
    pair.server.get("/servlet/file?path=/no/such/file&start=0&end=1");
    for page in ["/servlet/throw-late", "/servlet/async-late"] {
        assert!(pair.server.connect().try_ask(&get(page)).is_err(), "{page}");
    }
    let long = (
        "/servlet/size?n=3000000".to_owned(),
        pair.tomcat.ask(&get("/servlet/size?n=3000000")).body,
    );
    delivery::clients_that_leave_in_the_middle(&pair.server, &long);
    let log = pair.tomcat.log();
    for complaint in ["FATAL ERROR in native", "WARNING in native", "WARNING: JNI"] {
        assert!(!log.contains(complaint), "{log}");
    }
}

/// Targets of the servlet and of DefaultServlet, with the bodies that the HTTP connector sends.
fn pages(pair: &Pair) -> Vec<delivery::Page> {
    ["/servlet/size?n=3000000", "/servlet/size?n=70000", "/servlet/size?n=0", "/5m", "/60k", "/1k"]
        .into_iter()
        .chain(["/servlet/pieces?n=2000000&piece=9000&flushes=20"])
        .map(|page| (page.to_owned(), pair.tomcat.ask(&get(page)).expect(200).to_vec()))
        .collect()
}

#[test]
#[ignore = "heavy: starts Tomcat four times"]
fn delivery_is_the_same_in_every_mode() {
    for mode in delivery::MODES {
        let pair = Pair::start("threads=\"8\"", &["--delivery", mode]);
        let pages = pages(&pair);
        delivery::kept_and_pipelined_connections(&pair.server, &pages);
        delivery::the_same_over_http2(&pair.server, &pages);
        for page in pages.iter().filter(|(_, body)| body.len() > 1 << 20) {
            delivery::clients_that_leave_in_the_middle(&pair.server, page);
        }
    }
}

#[test]
#[ignore = "heavy: 1,000 slow clients in every mode"]
fn a_thousand_slow_clients_hold_no_threads() {
    for mode in delivery::MODES {
        let options = ["--delivery", mode, "--send-timeout", "600"];
        let pair = Pair::start("threads=\"4\"", &options);
        let pages = pages(&pair);
        delivery::a_thousand_slow_clients(&pair.server, &pages, "/servlet/size?n=7");
    }
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn a_socket_that_it_was_started_with_is_used() {
    let pair = Pair::attach(Tomcat::start_on("threads=\"4\"", fill), &[]);
    for _ in 0..2 {
        assert_eq!(pair.server.get("/5m").expect(200), pattern(0, 5 << 20));
    }
    assert!(pair.front_has("5m"));
}

/// Pages of Tomcat's examples that say the same each time.
const EXAMPLES: [&str; 18] = [
    "",
    "jsp/",
    "servlets/",
    "jsp/jsp2/el/basic-arithmetic.jsp",
    "jsp/jsp2/el/basic-comparisons.jsp",
    "jsp/jsp2/el/composite.jsp",
    "jsp/jsp2/el/functions.jsp?foo=JSP+2.0",
    "jsp/jsp2/simpletag/hello.jsp",
    "jsp/jsp2/simpletag/book.jsp",
    "jsp/jsp2/tagfiles/hello.jsp",
    "jsp/jsp2/jspattribute/shuffle.jsp",
    "jsp/include/include.jsp?none",
    "jsp/simpletag/foo.jsp",
    "jsp/xml/xml.jsp?none",
    "jsp/colors/colrs.jsp?action=submit&color1=red",
    "jsp/error/err.jsp?name=integra&submit=Submit",
    "servlets/servlet/HelloWorldExample",
    "servlets/servlet/RequestParamExample?firstname=a&lastname=%3Cb%3E",
];

#[test]
#[ignore = "heavy: Tomcat's examples"]
fn tomcats_examples_and_their_shop_answer_as_through_the_http_connector() {
    let with_examples = |root: &std::path::Path| {
        let examples = root.parent().unwrap().join("examples");
        copy_tree(std::path::Path::new("/usr/share/tomcat10-examples/examples"), &examples);
    };
    let pair = Pair::attach(Tomcat::start("", &[], with_examples), &[]);
    for page in EXAMPLES {
        let request = get(&format!("/examples/{page}"));
        let (stock, ours) = (pair.tomcat.ask(&request), pair.server.ask(&request));
        assert_eq!(ours.status(), stock.status(), "{page}");
        // Pages that show the time of the day differ in it.
        let times = page.contains("?none") || page.contains("shuffle");
        assert!(times || ours.body == stock.body, "{page}\n{}\n{}", ours.text(), stock.text());
    }
    // A shopping cart: a session over several requests.
    let shop = |ask: &dyn Fn(&Request) -> Response| {
        let carts = "/examples/jsp/sessions/carts.jsp";
        let form = "application/x-www-form-urlencoded";
        let add = "itemId=1&submit=add";
        let first = ask(&Request::post(carts, form, add));
        let cookie = first.header("Set-Cookie").unwrap().split(';').next().unwrap().to_owned();
        let add = "itemId=3&submit=add";
        let second = ask(&Request::post(carts, form, add).header("Cookie", &cookie));
        let remove = "itemId=1&submit=remove";
        let third = ask(&Request::post(carts, form, remove).header("Cookie", &cookie));
        [first, second, third].map(|page| page.text())
    };
    let ours = shop(&|request| pair.server.ask(request));
    assert_eq!(ours, shop(&|request| pair.tomcat.ask(request)));
    // Once in the cart, once on offer.
    assert_eq!(ours.map(|page| page.matches("X-files movie").count()), [2, 2, 1]);
}

#[test]
#[ignore = "heavy: starts Tomcat five times"]
fn killed_at_any_time_it_leaves_no_response_that_looks_whole() {
    let paths = [
        "/5m",
        "/60k",
        "/servlet/size?n=3000000",
        "/servlet/pieces?n=3000000&piece=5000&flushes=1000",
    ];
    for round in 0..5 {
        let pair = Pair::start("threads=\"8\"", &[]);
        let expected = paths.map(|path| pair.tomcat.ask(&get(path)).expect(200).to_vec());
        let answered = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for at in 0..8 {
                let (pair, expected, answered) = (&pair, &expected, &answered);
                scope.spawn(move || {
                    for turn in at.. {
                        let path = paths[turn % paths.len()];
                        match Client::connect(pair.server.addr()).try_ask(&get(path)) {
                            Ok(response) if response.status() == 200 => {
                                assert!(response.body == expected[turn % paths.len()], "{path}");
                            }
                            Ok(response) => {
                                assert_eq!(response.status(), 502);
                                return;
                            }
                            Err(_cut) => {}
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            assert!(wait::until(LIMIT, || answered.load(Ordering::Relaxed) > 40 + 31 * round));
            pair.tomcat.kill();
        });
    }
}
