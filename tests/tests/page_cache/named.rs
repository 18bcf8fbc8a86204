//! Pages whose bodies applications name: rules for the names are applied behind the cache, so a page
//! is kept only if they treat all clients alike.

use sendoff_tests::{Request, Response, Server, Site};

use crate::{CachingServer, is_hit, status};

/// Names what the query says, and has a body of its own.
const NAMING: &str = "<?php header($_GET['name']); echo $_GET['body'] ?? 'own';";

/// Maps for the conditions of `RULES`.
const MAPS: &str = "esi = true
[site.map.net]
from = 'client'
values = { '10.9.8.7' = 'bad' }
[site.map.key]
from = 'header:X-Key'
values = { good = 'ok' }
[site.map.cookie]
from = 'cookie:key'
values = { good = 'ok' }
[site.map.shown]
from = 'path'
values = { '~.*' = '$remote_addr' }
[site.map.host]
from = 'host'
values = { 'other.test' = 'bad' }
";

type Field = (&'static str, &'static str);

/// A route that denies to some, a field of a client that is denied, and of another that is not.
const RULES: [(&str, Field, Field); 6] = [
    ("when = { net = 'bad' }\ndeny = true", ("X-Forwarded-For", "10.9.8.7"), ("X-A", "1")),
    ("header = { X-Key = '!^good$' }\ndeny = true", ("X-A", "1"), ("X-Key", "good")),
    ("when = { key = '!ok' }\ndeny = true", ("X-A", "1"), ("X-Key", "good")),
    ("when = { cookie = '!ok' }\ndeny = true", ("Cookie", "key=bad"), ("Cookie", "key=good")),
    ("when = { shown = '10.9.8.7' }\ndeny = true", ("X-Forwarded-For", "10.9.8.7"), ("X-A", "1")),
    // The route that answers precedes the route that denies.
    (
        "header = { X-Key = '^good$' }\nstatic = true\n[[site.route]]\nprefix = '/some'\ndeny = true",
        ("X-A", "1"),
        ("X-Key", "good"),
    ),
];

fn start(route: &str) -> CachingServer {
    let site = Site::with("page.php", NAMING);
    site.write("some/a.txt", "for some");
    site.write("all/a.txt", "for all");
    let including = "<?php header('Surrogate-Control: content=\"ESI/1.0\"');
        echo '<esi:include src=\"/page.php?', htmlspecialchars($_SERVER['QUERY_STRING']), '\"/>';";
    site.write("including.php", including);
    let rule = format!("10m, cookies'\n{route}\n#");
    CachingServer::with_lines(site, MAPS, &rule)
}

fn ask(kept: &CachingServer, target: &str, (name, value): Field) -> Response {
    kept.server.ask(&Request::get(target).header(name, value))
}

/// Addresses of pages that name this file of the site.
fn targets(kept: &CachingServer, file: &str) -> Vec<String> {
    let path = kept.site.path(file).display().to_string();
    let (len, zero) = (path.len(), "X-ZeroCopy:0/");
    vec![
        format!("/page.php?name=X-Accel-Redirect:/{file}"),
        format!("/page.php?name=X-LiteSpeed-Location:/{file}"),
        format!("/page.php?name=X-Sendfile:{path}"),
        format!("/page.php?name=X-Sendfile2:{path}+0-"),
        format!("/page.php?name={zero}{len}&body={path}"),
    ]
}

#[test]
fn what_is_named_behind_a_rule_for_some_clients_is_not_kept() {
    for (rule, denied, permitted) in RULES {
        let kept = start(&format!("name_files = true\n[[site.route]]\nprefix = '/some'\n{rule}"));
        for target in targets(&kept, "some/a.txt") {
            for _ in 0..2 {
                let page = ask(&kept, &target, permitted);
                assert_eq!((page.status(), &*page.text()), (200, "for some"), "{rule} {target}");
                assert_eq!(status(&page), "sendoff; fwd=uri-miss", "{rule} {target}");
                if !target.contains("ZeroCopy") {
                    assert_eq!(ask(&kept, &target, denied).status(), 403, "{rule} {target}");
                }
            }
        }
        let target = targets(&kept, "some/a.txt")[0].replace("/page.php", "/including.php");
        for _ in 0..2 {
            assert_eq!(ask(&kept, &target, permitted).text(), "for some", "{rule}");
            assert_eq!(ask(&kept, &target, denied).status(), 502, "{rule}");
        }
    }
}

/// Rules for other paths, and conditions on the address, leave a page for all clients.
#[test]
fn what_is_named_for_all_clients_is_kept() {
    for route in [
        "prefix = '/some'\nwhen = { net = 'bad' }\ndeny = true",
        "prefix = '/some'\nallow_from = '10.9.8.7'",
        "prefix = '/all'\nwhen = { host = 'bad' }\ndeny = true",
        "prefix = '/all'\nquery = { a = true }\ndeny = true",
        "prefix = '/all'\ndeny = true\nmethod = 'POST'",
        // It decides about requests of clients only.
        "header = { X-Key = 'good' }\nresponse_headers = { X-A = '1' }",
        "prefix = '/all'\ninternal = true\n[[site.route]]\nheader = { X-Key = 'good' }\ndeny = true",
    ] {
        let kept = start(&format!("[[site.route]]\n{route}"));
        for target in &targets(&kept, "all/a.txt")[..4] {
            assert_eq!(kept.get(target).text(), "for all", "{route} {target}");
            assert_eq!(kept.get_kept(target).text(), "for all", "{route} {target}");
        }
    }
}

/// The application that leads a client to another application's body says whether other clients may
/// get it, too.
#[test]
fn what_an_application_leads_one_client_to_is_not_kept() {
    let script = "<?php $user = $_COOKIE['user'] ?? 'none';
        if ($user === 'ann') http_response_code(404);
        foreach ($_GET['head'] ?? ['Cache-Control: public, max-age=600'] as $field) header($field);
        echo \"photo of $user\";";
    let store_site = Site::with("index.php", script);
    let store = Server::start(store_site.root(), &["--workers", "1"]);
    let leading = "<?php foreach ($_GET['head'] ?? [] as $field) header($field);
        header('X-Accel-Redirect: /store?' . ($_GET['store'] ?? ''));";
    let site = Site::with("page.php", leading);
    let route = format!(
        "[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = 'http://{}'",
        store.clear_addr()
    );
    let kept = CachingServer::with_lines(site, "", &format!("http'\n{route}\n#"));
    let ask = |user: &str, query: &str| {
        let target = format!("/page.php?{query}");
        kept.server.ask(&Request::get(&target).header("Cookie", &format!("user={user}")))
    };
    for query in [
        "",
        "head[]=Vary:+Cookie",
        "head[]=Vary:+Cookie&head[]=Cache-Control:+max-age=600",
        "head[]=Vary:+*&head[]=Cache-Control:+max-age=600",
        "head[]=Cache-Control:+private",
        "head[]=Expires:+Thu,+01+Jan+1970+00:00:00+GMT",
        "head[]=Pragma:+no-cache",
        "head[]=CDN-Cache-Control:+no-store&head[]=Cache-Control:+max-age=600",
        "head[]=Surrogate-Control:+no-store&head[]=Cache-Control:+max-age=600",
        "head[]=Cache-Control:+private&store=head[]=CDN-Cache-Control:+max-age=600",
        "head[]=Cache-Control:+private&store=head[]=Surrogate-Control:+max-age=600",
    ] {
        for user in ["ann", "bob", "eve", "bob"] {
            let page = ask(user, query);
            assert_eq!(page.text(), format!("photo of {user}"), "{query}: {}", status(&page));
        }
    }
    // It says that all clients may get it.
    let all = "head[]=Cache-Control:+public,+max-age=600&for=all";
    assert_eq!(ask("bob", all).text(), "photo of bob");
    assert_eq!(kept.get_kept(&format!("/page.php?{all}")).text(), "photo of bob");
}

/// The client's fields choose the internal route, or change what it asks for.
#[test]
fn where_the_client_is_led_to_is_not_kept() {
    let script = "<?php header('Cache-Control: max-age=600');
        echo $_SERVER['REQUEST_URI'], ' ', $_SERVER['HTTP_X_CLIENT'] ?? '';";
    let store_site = Site::with("index.php", script);
    let store = Server::start(store_site.root(), &["--workers", "1"]);
    let internal = format!("internal = true\nproxy = 'http://{}'", store.clear_addr());
    let at_store = format!("prefix = '/store'\n{internal}");
    let clients = [("X-Key", "good"), ("X-Forwarded-For", "10.9.8.7")];
    let led = |route: String, names: &[&str], expected: [&str; 2]| {
        let kept = start(&format!("[[site.route]]\n{route}"));
        for name in names {
            let target = format!("/page.php?name={name}");
            for _ in 0..2 {
                let pages = clients.map(|client| ask(&kept, &target, client));
                assert_eq!(pages.each_ref().map(Response::text), expected, "{route} {name}");
                assert!(!pages.iter().any(is_hit), "{route} {name}");
            }
        }
    };
    let redirect = "X-Accel-Redirect:/store/a";
    let reproxy = &*format!("X-Reproxy-URL:http://{0}/none+http://{0}/store/a", store.clear_addr());
    let both = [redirect, reproxy];
    for (more, expected) in [
        ("request_headers = { X-Client = '$map_net' }", ["/store/a ", "/store/a bad"]),
        ("response_headers = { X-Client = '$remote_addr' }", ["/store/a ", "/store/a "]),
    ] {
        led(format!("{at_store}\n{more}"), &both, expected);
    }
    led(
        format!("{at_store}\nrewrite = '/$remote_addr'"),
        &[redirect],
        ["/127.0.0.1 ", "/10.9.8.7 "],
    );
    let first = format!(
        "{at_store}\nwhen = {{ key = 'ok' }}\nrequest_headers = {{ X-Client = 'ok' }}\n[[site.route]]\n{at_store}"
    );
    led(first, &[redirect], ["/store/a ok", "/store/a "]);
}
