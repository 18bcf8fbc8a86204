//! Applications that are at another address, and below another path, than their clients see.

use sendoff_tests::{Request, Site};

use crate::responder::{Peer, Responder};
use crate::serve;

/// Answers with the request, and with a redirect and cookies for URLs on the host that it was asked
/// for.
fn echo(peer: &mut Peer) -> Option<()> {
    loop {
        let request = peer.request()?;
        let host = request.lines().find_map(|line| line.strip_prefix("host: "))?;
        peer.say(format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{host}/login?from=%2F\r\nContent-Location: /a\r\nRefresh: 1; url=/b\r\nSet-Cookie: a=b; Path=/; Domain=in.test\r\nSet-Cookie: c=d; Path=/shop/x\r\nContent-Length: {}\r\n\r\n{request}",
            request.len()
        ))?;
    }
}

/// The fields of the answer to `/shop/a%20b/c%2Fd?e`, and the request that the application got.
fn asked(keys: &str) -> (Vec<String>, String) {
    let (site, app) = (Site::new(), Responder::start(echo));
    let url = app.url();
    let keys = keys.replace("URL", &url);
    let route = format!("[[site.route]]\nprefix = '/shop'\nproxy = {{ to = '{url}', {keys} }}\n");
    let request = Request::new("GET", "/shop/a%20b/c%2Fd?e").header("X-Forwarded-Prefix", "/evil");
    let response = serve(&site, &route).connect().ask(&request);
    assert_eq!(response.status(), 302);
    let names = ["Location", "Content-Location", "Refresh", "Set-Cookie"];
    let fields = names.into_iter().flat_map(|name| response.head.all(name));
    (fields.map(|value| value.replace(&url, "URL")).collect(), response.text())
}

#[test]
fn the_application_knows_nothing_of_a_stripped_prefix() {
    let (fields, request) = asked("strip_prefix = true, host = 'upstream'");
    assert!(request.starts_with("GET /a%20b/c%2Fd?e HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nx-forwarded-prefix: /shop\r\n"), "{request}");
    assert_eq!(
        fields,
        [
            "/shop/login?from=%2F",
            "/shop/a",
            "1; url=/shop/b",
            "a=b; Path=/shop; Domain=in.test",
            "c=d; Path=/shop/x",
        ]
    );
}

#[test]
fn urls_and_cookies_are_replaced_as_the_route_says() {
    let (fields, request) = asked(
        "host = 'upstream', redirects = { 'URL/' = '/shop/', '/' = '/root/' }, cookie_paths = { '/' = '/root/', '/shop/' = '/' }, cookie_domains = { 'in.test' = '' }",
    );
    assert!(request.starts_with("GET /shop/a%20b/c%2Fd?e HTTP/1.1\r\n"), "{request}");
    assert!(!request.contains("x-forwarded-prefix"), "{request}");
    assert_eq!(
        fields,
        ["/shop/login?from=%2F", "/root/a", "1; url=/root/b", "a=b; Path=/root/", "c=d; Path=/x"]
    );
}

/// As nginx' `proxy_redirect default`.
#[test]
fn the_address_of_the_application_is_not_shown() {
    let (fields, request) = asked("host = 'upstream'");
    assert!(request.starts_with("GET /shop/a%20b/c%2Fd?e HTTP/1.1\r\n"), "{request}");
    assert_eq!(fields[..2], ["/login?from=%2F", "/a"]);
    let (fields, _) = asked("host = 'upstream', redirects = {}");
    assert_eq!(fields[..2], ["URL/login?from=%2F", "/a"]);
}
