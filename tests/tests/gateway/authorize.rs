//! Web services that decide whether a request may pass (`docs/authorize.md`).

use sendoff_tests::{Request, Site};

use crate::responder::{Peer, Responder};
use crate::serve;

/// An authority that knows one session, and is told by `/api/verify?...` how to misbehave.
fn authority() -> Responder {
    Responder::start(|peer| {
        loop {
            let question = peer.request()?;
            answer(peer, &question)?;
        }
    })
}

fn answer(peer: &mut Peer, question: &str) -> Option<()> {
    let asks = |field: &str| question.contains(&format!("\r\n{field}\r\n"));
    let ok = "HTTP/1.1 200 OK\r\nRemote-User: ann\r\nRemote-Groups: a, b\r\nRemote-Groups: c\r\n";
    if asks("x-forwarded-uri: /dies") {
        return None;
    }
    if asks("x-forwarded-uri: /half") {
        peer.say(ok)?;
        return None;
    }
    if asks("x-forwarded-uri: /short") {
        peer.say(format!("{ok}Content-Length: 10\r\n\r\nshort"))?;
        return None;
    }
    if asks("x-forwarded-uri: /folded") {
        return peer.say(format!("{ok} x\r\nContent-Length: 0\r\n\r\n"));
    }
    if asks("x-forwarded-uri: /busy") {
        return peer.say("HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy");
    }
    if asks("x-forwarded-uri: /silent") {
        peer.rest();
        return None;
    }
    if asks("x-forwarded-uri: /nobody") {
        return peer.say("HTTP/1.1 204 No Content\r\n\r\n");
    }
    if asks("cookie: session=ann") {
        return peer.say(format!("{ok}Set-Cookie: a=b\r\nContent-Length: 3\r\n\r\nyes"));
    }
    peer.say(
        "HTTP/1.1 302 Found\r\nLocation: https://login.test/?rd=x\r\nSet-Cookie: state=1\r\n\
         X-Accel-Redirect: /secret.txt\r\nContent-Length: 6\r\n\r\nlogin\n",
    )
}

/// An application that answers with the head that it got.
fn echo() -> Responder {
    Responder::start(|peer| {
        loop {
            let request = peer.request()?;
            let head = request.to_lowercase();
            peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()))?;
        }
    })
}

fn routes(authority: &Responder, app: &Responder) -> String {
    format!(
        "[[site.route]]\nauthorize = {{ url = '{}/api/verify?x=1', timeout = '1s', user = 'Remote-User', \
         copy_headers = ['Remote-User', 'Remote-Groups'] }}\n\
         [[site.route]]\nextension = 'txt'\nstatic = true\n[[site.route]]\nproxy = '{}'\n",
        authority.url(),
        app.url()
    )
}

#[test]
fn a_service_is_asked_and_its_fields_reach_the_application() {
    let (site, authority, app) = (Site::with("secret.txt", "secret"), authority(), echo());
    let server = serve(&site, &routes(&authority, &app));
    let request = Request::post("/x/..//%61dmin?q=%20", "text/plain", "body")
        .header("Cookie", "session=ann")
        .header("Remote-User", "root")
        .header("Remote-Groups", "wheel")
        .header("Connection", "remote-user, x-forwarded-uri")
        .header("X-Forwarded-Uri", "/open")
        .header("X-Forwarded-Method", "HEAD")
        .header("X-Original-URL", "http://open.test/")
        .header("X-Real-IP", "192.0.2.1")
        .header("Range", "bytes=0-1")
        .header("If-None-Match", "\"a\"");
    let response = server.ask(&request);
    let got = String::from_utf8_lossy(response.expect(200)).into_owned();
    assert!(got.contains("\r\nremote-user: ann\r\n"), "{got}");
    assert!(got.contains("\r\nremote-groups: a, b\r\n"), "{got}");
    assert!(got.contains("\r\nremote-groups: c\r\n") && !got.contains("wheel"), "{got}");
    assert!(got.ends_with("\r\n\r\nbody"), "{got}");
    assert_eq!(response.header("Set-Cookie"), None);

    let asked = authority.seen().pop().unwrap();
    assert!(asked.starts_with("GET /api/verify?x=1 HTTP/1.1\r\n"), "{asked}");
    for field in [
        "x-forwarded-method: POST",
        "x-forwarded-uri: /admin?q=%20",
        "x-original-uri: /admin?q=%20",
        "x-forwarded-proto: http",
        "x-forwarded-for: 127.0.0.1",
        "x-real-ip: 127.0.0.1",
        "cookie: session=ann",
    ] {
        assert!(asked.contains(&format!("\r\n{field}\r\n")), "{field}: {asked}");
    }
    let host = asked.lines().find_map(|line| line.strip_prefix("x-forwarded-host: ")).unwrap();
    assert!(
        asked.contains(&format!("\r\nx-original-url: http://{host}/admin?q=%20\r\n")),
        "{asked}"
    );
    for gone in
        ["content-length", "content-type", "range:", "if-none-match", "open", "root", "192.0.2.1"]
    {
        assert!(!asked.to_lowercase().contains(gone), "{gone}: {asked}");
    }
    assert!(asked.ends_with("\r\n\r\n"), "{asked}");
}

#[test]
fn a_refusal_reaches_the_client_and_nothing_else_does() {
    let (site, authority, app) = (Site::with("secret.txt", "secret"), authority(), echo());
    let server = serve(&site, &routes(&authority, &app));
    for target in ["/secret.txt", "/app"] {
        let response = server.get(target);
        assert_eq!(response.text(), "login\n");
        assert_eq!(response.status(), 302);
        assert_eq!(response.header("Location"), Some("https://login.test/?rd=x"));
        assert_eq!(response.header("Set-Cookie"), Some("state=1"));
    }
    let head = server.ask(&Request::new("HEAD", "/app"));
    assert_eq!((head.status(), head.header("Content-Length")), (302, Some("6")));
    let busy = server.get("/busy");
    assert_eq!(
        (busy.status(), busy.header("Retry-After"), &*busy.text()),
        (503, Some("7"), "busy")
    );
    assert!(app.seen().is_empty());
}

#[test]
fn a_service_that_fails_opens_nothing() {
    let (site, authority, app) = (Site::with("secret.txt", "secret"), authority(), echo());
    let server = serve(&site, &routes(&authority, &app));
    for (target, status) in
        [("/dies", 502), ("/half", 502), ("/short", 502), ("/folded", 502), ("/silent", 504)]
    {
        let response = server.get(target);
        assert_eq!(response.status(), status, "{target}: {}", response.text());
    }
    // A granted request without the fields has no fields of the client's either.
    let request = Request::get("/nobody").header("Remote-User", "root");
    let got = String::from_utf8_lossy(server.ask(&request).expect(200)).into_owned();
    assert!(!got.contains("remote-user"), "{got}");

    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let routes = format!("[[site.route]]\nauthorize = {{ url = 'http://{nobody}' }}\n");
    let server = serve(&site, &routes);
    assert_eq!(server.get("/secret.txt").status(), 502);
}

#[test]
fn fields_of_an_authority_are_never_those_of_a_client() {
    let (site, authority, app) = (Site::new(), authority(), echo());
    let protected = routes(&authority, &app);
    let open = format!("[[site.route]]\nprefix = '/open'\nproxy = '{}'\n", app.url());
    let server = serve(&site, &format!("{open}{protected}"));
    let request = Request::get("/open").header("Remote-User", "root");
    let got = String::from_utf8_lossy(server.ask(&request).expect(200)).into_owned();
    assert!(!got.contains("remote-user"), "{got}");
    assert!(authority.seen().is_empty());
}

/// A servlet container reads a path without its parameters, and a program on Node may take a backslash
/// for a slash, so the service is asked about these paths, too.
#[test]
fn parameters_and_backslashes_in_a_path_get_past_no_service() {
    let (site, app) = (Site::new(), echo());
    let authority = Responder::start(|peer| {
        loop {
            let question = peer.request()?.to_lowercase();
            let field = question.lines().find_map(|line| line.strip_prefix("x-original-uri: "))?;
            let status = if field.starts_with("/manager") { "403 No" } else { "200 Yes" };
            peer.say(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))?;
        }
    });
    let question = format!("authorize = {{ url = '{}/verify' }}", authority.url());
    for route in ["[[site.route]]\n", "[[site.route]]\nprefix = '/manager'\n"] {
        let passed_on = format!("[[site.route]]\nproxy = '{}'\n", app.url());
        let server = serve(&site, &format!("{route}{question}\n{passed_on}"));
        for (target, status) in [
            ("/manager/s.txt", 403),
            ("/;/manager/s.txt", 403),
            ("/manager;a=b/s.txt?x=y", 403),
            ("/%3b/manager", 403),
            ("/x/..;/manager", 403),
            ("/..;/manager", 400),
            ("/manager\\s.txt", 403),
            ("/public\\s.txt", 200),
            ("/public;a=b/s.txt", 200),
            ("/public/manager;/s", 200),
        ] {
            assert_eq!(server.get(target).status(), status, "{route}{target}");
        }
    }
}
