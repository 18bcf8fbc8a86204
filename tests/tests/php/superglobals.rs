//! A script sees the same request variables as under php-fpm behind nginx.

use sendoff_tests::{Pair, Request, Site};

const ENV: &str = include_str!("../../scripts/env.php");

fn site() -> Site {
    let site = Site::new();
    for name in
        ["index.php", "env.php", "sub/index.php", "sub/env.php", "a b.php", "é.php", "x.php.php"]
    {
        site.write(name, ENV);
    }
    site.folder("empty");
    site
}

#[test]
fn urls() {
    let site = site();
    let pair = Pair::start(&site, &[]);
    for target in [
        "/",
        "/env.php",
        "/env.php?",
        "/env.php?a=1&b[]=2&b[]=3&c=%20x+y&d.e=f&g",
        "/env.php?q=%00%ff%zz&&=&%",
        "/env.php?x=1?y=2",
        "/env.php?/sub/env.php/path",
        "/env.php/",
        "/env.php/path/info?x",
        "/env.php/path%20info/%C3%A9",
        "/env.php/a//b",
        "/env.php/env.php/x",
        "/sub/env.php/more",
        "/sub/",
        "/sub/?x=1",
        "/a%20b.php",
        "/%C3%A9.php?%C3%A9=%C3%A9",
        "/x.php.php",
        "/no/such/path?q=1",
        "/no/such/path",
        "/no/such/file.txt",
        "/e%6ev.php",
        "/env%2ephp",
        "//env.php",
        "/sub//env.php",
        "/./env.php",
        "/sub/../env.php",
        "/sub/./env.php",
        "/env.php;param",
        "/index.php/articles/1",
        "/?p=1",
    ] {
        pair.same_page(target);
    }
}

#[test]
fn methods_and_headers() {
    let site = site();
    let pair = Pair::start(&site, &[]);
    for method in ["GET", "DELETE", "OPTIONS", "PATCH", "PROPFIND"] {
        pair.same(&Request::new(method, "/env.php"));
    }
    let headers = [
        ("Cookie", "a=1; b=two%20words; c[]=1; c[]=2; odd"),
        ("Authorization", "Basic dXNlcjpwYXNzOndvcmQ="),
        ("Authorization", "Digest username=\"Mufasa\", realm=\"r\""),
        ("Authorization", "Bearer token"),
        ("User-Agent", "tests"),
        ("Accept-Language", "de, en;q=0.5"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Empty", ""),
        ("X-Spaces", "   around   "),
        ("X-Latin1", "caf\u{e9}"),
        ("X-Under_score", "nginx drops it: it could pass for X-Under-Score"),
        ("Referer", "http://example.test/?a=\"b\""),
        ("Host", "other.test:8080"),
    ];
    for (name, value) in headers {
        let request = Request::get("/env.php").header(name, value);
        if name == "Host" {
            // SERVER_NAME is nginx's server_name there and the requested name here.
            let page = pair.ours.ask(&request).text();
            assert!(page.contains("\"HTTP_HOST\": \"other.test:8080\""), "{page}");
        } else {
            pair.same(&request);
        }
    }
    pair.same(&Request::get("/env.php").http10());
}

/// CGI turns all these names into `HTTP_X_FORWARDED_FOR`: a client could overwrite a proxy's value.
#[test]
fn fields_that_could_pass_for_another_are_dropped() {
    let site = site();
    let pair = Pair::start(&site, &[]);
    for name in ["X.Forwarded.For", "X_Forwarded_For", "X.Forwarded-For", "X~Forwarded~For"] {
        let request = Request::get("/env.php").header("X-Forwarded-For", "10.0.0.1");
        let page = pair.same(&request.header(name, "6.6.6.6")).text();
        assert!(page.contains("10.0.0.1") && !page.contains("6.6.6.6"), "{name}: {page}");
    }
    for name in ["X.Sendfile.Type", "X.Accel.Mapping", "X!Odd", "Content.Length", "Pro.xy"] {
        pair.same(&Request::get("/env.php").header(name, "6"));
    }
}

#[test]
fn repeated_headers_become_one_list() {
    let site =
        Site::with("h.php", "<?php echo $_SERVER['HTTP_X_TWICE'], '|', $_SERVER['HTTP_COOKIE'];");
    let server = sendoff_tests::Server::start(site.root(), &[]);
    let request = Request::get("/h.php")
        .header("X-Twice", "one")
        .header("Cookie", "a=1")
        .header("X-Twice", "two")
        .header("Cookie", "b=2");
    // RFC 9110 section 5.3, and RFC 9113 section 8.2.3 for cookies. (nginx 1.22 passes on only the
    // last one.)
    assert_eq!(server.ask(&request).text(), "one, two|a=1; b=2");
}

#[test]
fn bodies() {
    let site = site();
    let pair = Pair::start(&site, &[]);
    let form = "application/x-www-form-urlencoded";
    for (content_type, body) in [
        (form, "a=1&b[x]=2&c=%20+y&d"),
        (form, ""),
        ("application/json", "{\"a\": 1}"),
        ("text/plain; charset=utf-8", "plain"),
        ("multipart/form-data; boundary=none", "no such boundary"),
    ] {
        pair.same(&Request::post("/env.php?get=1", content_type, body));
        pair.same(&Request::post("/front/controller", content_type, body));
    }
    let long: String = (0..900).map(|i| format!("f{i}=value{i}&")).collect();
    pair.same(&Request::post("/env.php", form, long));
    pair.same(&Request::new("PUT", "/env.php").header("Content-Length", "0"));
    let mut put = Request::post("/env.php", "application/octet-stream", vec![b'x'; 300_000]);
    put.method = "PUT".into();
    pair.same(&put);
}

#[test]
fn a_chunked_body_is_a_body() {
    let site = site();
    let pair = Pair::start(&site, &[]);
    let request = "POST /env.php HTTP/1.1\r\nHost: example.test\r\nTransfer-Encoding: chunked\r\n\
                   Content-Type: application/x-www-form-urlencoded\r\n\r\n\
                   4\r\na=1&\r\n5;ext=\"x\"\r\nbb=22\r\n0\r\nTrailer: dropped\r\n\r\n";
    let ask = |addr| {
        let mut client = sendoff_tests::Client::connect(addr);
        client.send(request);
        client.response("POST").text()
    };
    let page = ask(pair.ours.addr());
    for expected in ["\"bb\": \"22\"", "\"CONTENT_LENGTH\": \"9\""] {
        assert!(page.contains(expected), "{page}");
    }
    assert!(!page.contains("TRAILER"), "{page}");
    assert!(ask(pair.stock.addr()).contains("\"CONTENT_LENGTH\": \"9\""));
}
