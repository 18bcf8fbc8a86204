//! Maps in routes: conditions, texts, the page cache, databases of countries.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use sendoff_tests::{Http2, Request, Response, Server, Site, mmdb, sendoff, wait};

const POOL: &str = "[[pool]]\nworkers = 2\n";

/// A configuration file with these lines for the whole server and these sites.
fn write(site: &Site, top: &str, sites: &str) -> PathBuf {
    let text = format!("listen = '127.0.0.1:0'\nthreads = 1\n{top}{POOL}{sites}");
    site.write_at(site.outside("sendoff.toml"), text)
}

fn run_with(site: &Site, top: &str, sites: &str) -> Server {
    let config = write(site, top, sites);
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

fn run(site: &Site, sites: &str) -> Server {
    run_with(site, "", sites)
}

/// Asks with fields.
fn ask(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    let request =
        fields.iter().fold(Request::get(target), |r, (name, value)| r.header(name, value));
    server.ask(&request)
}

#[test]
fn routes_compare_values_and_texts_contain_them() {
    let site = Site::with(
        "index.php",
        "<?php echo $_SERVER['LANGUAGE'], ' ', $_SERVER['HTTP_X_LANGUAGE'], ' ', $_SERVER['QUERY_STRING'], ' ', $_SERVER['SCRIPT_NAME'];",
    );
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
[site.map.language]
from = 'header:Accept-Language'
values = { '~^de\b' = 'de', '~^fr\b' = 'fr' }
default = 'en'
[site.map.version]
from = 'cookie:version'
values = { beta = 'new', '~^test-(\d+)$' = 'test$1' }
[[site.route]]
response_headers = { Content-Language = '$map_language', X-Version = '$map_version' }
[[site.route]]
path = '/front'
redirect = 'https://$host/$map_language/?from=$path'
[[site.route]]
path = '/which'
when = { version = ['new', 'test7'], language = '!fr' }
respond = 'special'
[[site.route]]
path = '/which'
when = { version = false }
respond = 'none'
[[site.route]]
path = '/which'
respond = 'other: $map_version'
[[site.route]]
match = '^/app/(.*)$'
params = { LANGUAGE = '$map_language' }
request_headers = { X-Language = '$map_language' }
rewrite = '/index.php?l=$map_language&p=$1'
"#,
    );
    let german = ("Accept-Language", "DE-at;q=0.9, en");
    let case = ("Accept-Language", "de-AT;q=0.9, en");
    assert_eq!(
        ask(&server, "/front", &[case]).header("Location"),
        Some("https://example.test/de/?from=/front")
    );
    assert_eq!(
        ask(&server, "/front", &[german]).header("Location"),
        Some("https://example.test/en/?from=/front"),
        "expressions tell small and capital letters apart"
    );
    let which = |fields: &[_]| ask(&server, "/which", fields).text();
    assert_eq!(which(&[("Cookie", "a=b; version=BETA")]), "special");
    assert_eq!(which(&[("Cookie", "version=test-7")]), "special");
    assert_eq!(which(&[("Cookie", "version=test-7"), ("Accept-Language", "fr")]), "other: test7");
    assert_eq!(which(&[("Cookie", "version=test-8")]), "other: test8");
    assert_eq!(which(&[]), "none");
    let response = ask(&server, "/app/x%20y", &[case, ("Cookie", "version=beta")]);
    assert_eq!(response.text(), "de de l=de&p=x%20y /index.php");
    assert_eq!(response.header("Content-Language"), Some("de"));
    assert_eq!(response.header("X-Version"), Some("new"));
    // The same over HTTP/2, which may send each cookie in a field of its own.
    let request = Request::get("/which").header("Cookie", "a=b").header("Cookie", "version=beta");
    assert_eq!(Http2::connect(server.clear_addr()).ask(&request).text(), "special");
}

#[test]
fn a_field_of_which_a_map_makes_nothing_is_not_set() {
    let script = "<?php header('X-Own: application'); echo $_SERVER['HTTP_X_KIND'] ?? '-', ' ', $_SERVER['HTTP_X_OTHER'] ?? '-';";
    let site = Site::with("index.php", script);
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
[site.map.kind]
from = 'query:kind'
values = { '~^[a-z]+$' = '$0' }
[[site.route]]
request_headers = { X-Kind = '$map_kind', '?X-Other' = '$map_kind' }
response_headers = { X-Own = '$map_kind', '+X-More' = '$map_kind' }
"#,
    );
    let get = |target| {
        let response = ask(&server, target, &[("X-Kind", "evil"), ("X-Other", "own")]);
        let field = |name| response.header(name).map(str::to_owned);
        (response.text(), field("X-Own"), field("X-More"))
    };
    let good = || Some("good".to_owned());
    assert_eq!(get("/?kind=good"), ("good own".to_owned(), good(), good()));
    assert_eq!(get("/?kind=0"), ("- own".to_owned(), None, None));
}

/// A client's bytes neither end a field nor begin another one, whatever part of the request they
/// come from.
#[test]
fn values_inject_nothing() {
    let site = Site::with(
        "index.php",
        "<?php echo bin2hex($_SERVER['GIVEN']), ' ', bin2hex($_SERVER['HTTP_X_GIVEN']);",
    );
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
[site.map.given]
from = 'query:v'
values = { '~(?s)^.+$' = '$0' }
[site.map.agent]
from = 'header:User-Agent'
values = { '~(?s)^.*$' = '$0' }
[[site.route]]
response_headers = { X-Given = '$map_given', X-Agent = '$map_agent' }
[[site.route]]
path = '/to'
redirect = '/$map_given'
[[site.route]]
path = '/text'
content_type = 'text/html'
respond = '<b>$map_given</b>'
[[site.route]]
params = { GIVEN = '$map_given' }
request_headers = { X-Given = '$map_given' }
"#,
    );
    let hostile = "v=a%0d%0aSet-Cookie:%20x=1%00%3Cscript%3E%e4";
    let to = ask(&server, &format!("/to?{hostile}"), &[]);
    assert_eq!(to.header("Location"), Some("/a%0D%0ASet-Cookie:%20x=1%00%3Cscript%3E%E4"));
    assert_eq!(to.header("Set-Cookie"), None);
    let text = ask(&server, &format!("/text?{hostile}"), &[]).text();
    assert_eq!(text, "<b>a%0D%0ASet-Cookie:%20x=1%00%3Cscript%3E%E4</b>");
    // A target that begins with slashes stays on the site.
    for evil in ["/evil.test", "//evil.test", "%5Cevil.test", "%2F%5c/evil.test"] {
        let to = ask(&server, &format!("/to?v={evil}"), &[]);
        let location = to.header("Location").unwrap();
        assert!(!location[1..].starts_with(['/', '\\']), "{evil}: {location}");
    }
    let told = ask(&server, &format!("/?{hostile}"), &[]);
    let clean = "a%0D%0ASet-Cookie: x=1%00<script>".bytes().chain([0xe4]);
    let hex: String = clean.map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(told.text(), format!("{hex} {hex}"));
    assert_eq!(told.header("Set-Cookie"), None);
    // Bytes that are not UTF-8 stay as they are.
    let mut client = TcpStream::connect(server.clear_addr()).unwrap();
    let request =
        b"GET /to HTTP/1.1\r\nHost: a\r\nUser-Agent: \xff\xfe\tx\r\nConnection: close\r\n\r\n";
    client.write_all(request).unwrap();
    let mut response = Vec::new();
    client.read_to_end(&mut response).unwrap();
    let field = b"\r\nX-Agent: \xff\xfe\tx\r\n";
    assert!(response.windows(field.len()).any(|bytes| bytes == field), "{response:?}");
}

/// Shows the fields that rules set. The time tells pages apart.
const FIELDS: &str = "<?php header('Cache-Control: max-age=600'); echo $_SERVER['HTTP_X_VERSION'] ?? '-', ' ', $_SERVER['HTTP_X_GROUP'] ?? '-', ' ', hrtime(true);";

#[test]
fn pages_differ_by_the_values_that_the_application_sees() {
    let site = Site::with("index.php", FIELDS);
    let server = run_with(
        &site,
        "page_cache_folder = 'pages'\n",
        r#"
[[site]]
root = 'root'
page_cache = 'http'
[site.map.version]
from = 'header:X-Key'
values = { one = 'new', two = 'new', three = 'newest' }
default = 'old'
[[site.route]]
response_headers = { X-Seen = '$map_version' }
[[site.route]]
path = '/by-text'
request_headers = { X-Version = '$map_version' }
[[site.route]]
path = '/by-condition'
when = { version = 'newest' }
request_headers = { X-Group = 'newest' }
[[site.route]]
path = '/by-field'
header = { X-Key = '^admin$' }
request_headers = { X-Group = 'admin' }
"#,
    );
    let get = |path: &str, key: &str| ask(&server, path, &[("X-Key", key)]);
    let is_hit = |response: &Response| {
        response.header("Cache-Status").is_some_and(|status| status.starts_with("sendoff; hit"))
    };
    // Makes a page, which must begin like this, and waits until it is kept.
    let make = |path: &str, key: &str, begins: &str| {
        let first = get(path, key);
        assert!(first.text().starts_with(begins) && !is_hit(&first), "{path} {key}: {first:?}");
        wait::for_some("a kept page", || Some(get(path, key)).filter(is_hit)).text()
    };
    let one = make("/by-text", "one", "new ");
    let two = get("/by-text", "two");
    assert_eq!((two.text(), is_hit(&two)), (one, true), "keys with one value have one page");
    make("/by-text", "zero", "old ");
    make("/by-condition", "three", "- newest ");
    make("/by-condition", "one", "- - ");
    make("/by-field", "admin", "- admin ");
    make("/by-field", "one", "- - ");
    // A value in response fields alone makes no page of its own.
    let plain = make("/plain", "one", "- - ");
    let other = get("/plain", "three");
    assert_eq!((other.text(), is_hit(&other)), (plain, true));
    assert_eq!(other.header("X-Seen"), Some("newest"));
}

/// PHP reads `shop.session` as `shop_session`, of two parameters the last, and `%61` as `a`. Other
/// applications read otherwise, so a condition holds if it holds in one reading.
#[test]
fn conditions_hold_for_whatever_an_application_may_read() {
    let site = Site::with(
        "index.php",
        "<?php header('Cache-Control: max-age=600'); echo $_COOKIE['shop_session'] ?? 'nobody';",
    );
    let server = run_with(
        &site,
        "page_cache_folder = 'pages'\n",
        r#"
[[site]]
root = 'root'
page_cache = '10m, cookies'
[site.map.session]
from = 'cookie:shop_session'
values = { '~.' = 'yes' }
[site.map.role]
from = 'cookie:wp_role'
values = { admin = 'bad' }
[site.map.sent]
from = 'header:Cookie'
values = { '~(^|; )is_root=' = 'bad' }
[site.map.action]
from = 'query:action'
values = { delete = 'bad' }
[[site.route]]
when = { session = true }
page_cache = 'off'
[[site.route]]
when = { role = 'bad' }
deny = true
[[site.route]]
when = { sent = 'bad' }
deny = true
[[site.route]]
when = { action = 'bad' }
deny = true
"#,
    );
    let with = |cookie: &str, target: &str| ask(&server, target, &[("Cookie", cookie)]);
    let names = ["shop_session", "shop.session", "shop session", "shop[session"];
    for (number, name) in names.into_iter().enumerate() {
        let target = format!("/{number}");
        for _ in 0..2 {
            assert_eq!(with(&format!("{name}=evil"), &target).text(), "evil", "{name}");
        }
        assert_eq!(ask(&server, &target, &[]).text(), "nobody", "{name}");
    }
    for cookie in [
        "wp_role=admin",
        "wp.role=admin",
        "wp_role=adm%69n",
        "wp_role=guest; wp_role=admin",
        "wp_role=\"adm\\151n\"",
        "a=b;\twp_role= admin ",
        "is.root=1",
    ] {
        assert_eq!(with(cookie, "/").status(), 403, "{cookie}");
    }
    for query in [
        "action=delete",
        "action=x&action=delete",
        "action=delete&action=x",
        "action[]=delete",
        "+action=delet%65",
        "a=1;action=delete",
    ] {
        assert_eq!(ask(&server, &format!("/?{query}"), &[]).status(), 403, "{query}");
    }
    let many: String = (0..20).map(|number| format!("action={number}&")).collect();
    assert_eq!(ask(&server, &format!("/?{many}"), &[]).status(), 500);
    server.await_log("map action: the request has query:action too often");
    let told = server.explain("/?action=x&action=delete", &[]).unwrap();
    let line = "map action is \"\": query:action is \"x\", no row, so the default; in other readings \"bad\"";
    assert!(told.contains(line), "{told}");
}

/// The page of a request of which only some readings meet a condition is not kept: the application
/// may have read it otherwise.
#[test]
fn pages_of_ambiguous_requests_are_not_kept() {
    let site = Site::with(
        "index.php",
        "<?php header('Cache-Control: max-age=600'); echo $_COOKIE['who'] ?? 'nobody';",
    );
    let server = run_with(
        &site,
        "page_cache_folder = 'pages'\n",
        r#"
[[site]]
root = 'root'
[site.map.who]
from = 'cookie:who'
values = { '~.' = 'yes' }
[[site.route]]
when = { who = false }
page_cache = '10m, cookies'
"#,
    );
    for (number, cookie) in ["who=evil; who=", "who=evil; who[]="].into_iter().enumerate() {
        let target = format!("/{number}");
        for _ in 0..2 {
            let made = ask(&server, &target, &[("Cookie", cookie)]);
            assert_ne!(made.text(), "nobody", "{cookie}");
        }
        assert_eq!(ask(&server, &target, &[]).text(), "nobody", "{cookie}");
    }
}

/// Two routes lead to one application with different `Host` fields.
#[test]
fn pages_differ_by_the_host_that_a_proxy_names() {
    let script = "<?php header('Cache-Control: max-age=600'); echo $_SERVER['HTTP_HOST'];";
    let (application, site) = (Site::with("index.php", script), Site::new());
    let behind = run(&application, "[[site]]\nroot = 'root'\n");
    let sites = r#"
[[site]]
root = 'root'
page_cache = 'http'
[site.map.version]
from = 'header:X-Version'
values = { new = 'new' }
[[site.route]]
when = { version = 'new' }
proxy = { to = 'http://ADDRESS', host = 'new.test' }
[[site.route]]
proxy = { to = 'http://ADDRESS', host = 'old.test' }
"#;
    let sites = sites.replace("ADDRESS", &behind.clear_addr().to_string());
    let server = run_with(&site, "page_cache_folder = 'pages'\n", &sites);
    let get = |version: &str| ask(&server, "/", &[("X-Version", version)]);
    let is_hit = |response: &Response| {
        response.header("Cache-Status").is_some_and(|status| status.starts_with("sendoff; hit"))
    };
    for version in ["new", "old"] {
        let kept = wait::for_some("a kept page", || Some(get(version)).filter(is_hit));
        assert_eq!(kept.text(), format!("{version}.test"));
    }
    assert_eq!(get("new").text(), "new.test");
}

#[test]
fn limits_count_by_the_value_of_a_map() {
    let site = Site::with("api/a.txt", "a");
    let server = run_with(
        &site,
        "trusted_proxies = '127.0.0.0/8'\n",
        r#"
[[site]]
root = 'root'
[site.map.key]
from = 'header:X-Api-Key'
values = { '~^[a-z]+$' = '$0' }
[[site.route]]
prefix = '/api'
rate = '1/h burst=2'
limit_by = 'key'
"#,
    );
    let status = |key: &str, address: &str| {
        ask(&server, "/api/a.txt", &[("X-Api-Key", key), ("X-Forwarded-For", address)]).status()
    };
    // One key from any address has one limit.
    let of_one = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|address| status("one", address));
    assert_eq!(of_one, [200, 200, 429]);
    assert_eq!(status("two", "192.0.2.1"), 200, "another key has a limit of its own");
    let without = [(); 4].map(|()| status("-", "192.0.2.1"));
    assert_eq!(without, [200; 4], "the empty value has no limit");
}

#[test]
fn the_access_log_has_values() {
    let site = Site::with("a.txt", "a");
    let log = site.outside("access.log");
    let top = format!(
        "access_log = '{}'\naccess_log_format = '$map_kind $map_other $status'\n",
        log.display()
    );
    let server = run_with(
        &site,
        &top,
        r#"
[[site]]
root = 'root'
[site.map.kind]
from = 'header:X-Kind'
values = { '~^.+$' = '<$0>' }
"#,
    );
    let values = ["a b", "x\ty\"", ""];
    for value in values {
        assert_eq!(ask(&server, "/a.txt", &[("X-Kind", value)]).text(), "a");
    }
    let lines = wait::for_some("three lines", || {
        std::fs::read_to_string(&log).ok().filter(|text| text.lines().count() == values.len())
    });
    assert_eq!(lines, "<a b> - 200\n<x\\x09y\\x22> - 200\n- - 200\n");
}

/// A path that rules lead to is protected by the value of its own path.
#[test]
fn a_map_of_the_path_protects_where_rewriting_leads() {
    let site = Site::with("admin/secret.txt", "secret");
    site.write("a.txt", "open");
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
front_controller = 'off'
[site.map.area]
from = 'path'
values = { '~^/admin(/|$)' = 'closed' }
[[site.route]]
when = { area = 'closed' }
deny = true
[[site.route]]
path = '/way'
rewrite = '/admin/secret.txt'
"#,
    );
    let status = |target: &str| ask(&server, target, &[]).status();
    let targets = ["/a.txt", "/admin/secret.txt", "/x/../admin/secret.txt", "/%61dmin/", "/way"];
    assert_eq!(targets.map(status), [200, 403, 403, 403, 403]);
}

#[test]
fn an_expression_that_explodes_refuses_the_request() {
    let site = Site::with("a.txt", "open");
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
[site.map.kind]
from = 'header:X-Kind'
values = { '~^(a+)+$' = 'a' }
[[site.route]]
when = { kind = '!a' }
deny = true
"#,
    );
    let kind = |text: String| ask(&server, "/a.txt", &[("X-Kind", &text)]).status();
    assert_eq!([kind("a".repeat(5000)), kind("b".to_owned())], [200, 403]);
    assert_eq!(kind("a".repeat(5000) + "!"), 500);
    server.await_log("map kind: the expression");
}

const BY_COUNTRY: &str = r#"
[[site]]
root = 'root'
[site.map.country]
from = 'country'
database = 'countries.mmdb'
values = { DE = 'open', at = 'open', "" = 'unknown' }
default = 'other'
[[site.route]]
when = { country = 'open' }
respond = 'open'
[[site.route]]
respond = '$map_country'
"#;

/// A configuration with a database of countries that has these networks.
fn by_country(site: &Site, networks: &[(&str, &str)]) -> PathBuf {
    let database = mmdb::countries("Test-Country", networks);
    site.write_at(site.outside("countries.mmdb"), database);
    write(site, "trusted_proxies = '127.0.0.0/8'\n", BY_COUNTRY)
}

#[test]
fn a_database_knows_the_country_of_a_client_and_a_reload_takes_a_new_one() {
    let site = Site::new();
    let first = [("192.0.2.0/24", "DE"), ("198.51.100.0/24", "AT"), ("2001:db8::/32", "FR")];
    let config = by_country(&site, &first);
    let server =
        Server::try_run(&config, site.root(), 2).unwrap_or_else(|f| panic!("{}", f.stderr));
    let from = |address: &str| ask(&server, "/", &[("X-Forwarded-For", address)]).text();
    let all = |addresses: [&str; 5]| addresses.map(from);
    let addresses =
        ["192.0.2.1", "::ffff:198.51.100.9", "2001:db8::1", "203.0.113.1", "2001:db9::1"];
    assert_eq!(all(addresses), ["open", "open", "other", "unknown", "unknown"]);
    let told = server.explain("/", &["-H", "X-Forwarded-For: 192.0.2.1"]).unwrap();
    assert!(told.contains("map country is \"open\": country is \"DE\", row \"DE\""), "{told}");
    // The file is replaced by rename, as geoipupdate does it, and is read at the reload.
    by_country(&site, &[("192.0.2.0/24", "US"), ("203.0.113.0/24", "DE")]);
    server.command(&["reload"]).unwrap();
    assert_eq!(all(addresses), ["other", "unknown", "unknown", "open", "unknown"]);
    // A reload with a damaged file is refused, and the old one stays in use.
    site.write_at(site.outside("countries.mmdb"), "nonsense");
    let refused = server.command(&["reload"]).unwrap_err();
    assert!(refused.contains("countries.mmdb is no database in MaxMind's format"), "{refused}");
    assert_eq!(all(addresses), ["other", "unknown", "unknown", "open", "unknown"]);
}

#[test]
fn check_refuses_a_database_that_cannot_be_used() {
    let site = Site::new();
    let config = by_country(&site, &[("192.0.2.0/24", "DE")]);
    let check = || sendoff(site.root(), &["check", config.to_str().unwrap()]);
    check().unwrap();
    let database = site.outside("countries.mmdb");
    let whole = std::fs::read(&database).unwrap();
    for (bytes, says) in [
        (&whole[..whole.len() / 2], "is no database in MaxMind's format, or is damaged"),
        (&whole[20..], "is no database in MaxMind's format, or is damaged"),
        (
            &mmdb::countries("Test-ASN", &[("192.0.2.0/24", "DE")])[..],
            "whose records have no countries",
        ),
    ] {
        site.write_at(database.clone(), bytes);
        let said = check().unwrap_err();
        assert!(said.contains(says), "{said}");
    }
    std::fs::remove_file(&database).unwrap();
    assert!(check().unwrap_err().contains("No such file"));
}

/// An application's redirect passes an internal route behind the page cache, which depends on a
/// map: no client gets the page of another value.
#[test]
fn internal_routes_depend_on_maps_and_their_pages_are_not_kept() {
    let script =
        "<?php header('Cache-Control: max-age=600'); echo $_SERVER['HTTP_X_VERSION'] ?? 'none';";
    let app_site = Site::with("index.php", script);
    let app = Server::start(app_site.root(), &["--workers", "1"]);
    let led =
        "<?php header('Cache-Control: max-age=600'); header('X-Accel-Redirect: /store/index.php');";
    let site = Site::with("led.php", led);
    let sites = r#"
[[site]]
root = 'root'
page_cache = 'http'
[site.map.version]
from = 'header:X-Key'
values = { one = 'new' }
default = 'old'
[[site.route]]
prefix = '/store'
internal = true
proxy = 'http://APP'
request_headers = { X-Version = '$map_version' }
"#;
    let sites = sites.replace("APP", &app.clear_addr().to_string());
    let server = run_with(&site, "page_cache_folder = 'pages'\n", &sites);
    let get = |key: &str| ask(&server, "/led.php", &[("X-Key", key)]).text();
    for _ in 0..3 {
        assert_eq!([get("one"), get("two"), get("one")], ["new", "old", "new"]);
    }
    assert_eq!(ask(&server, "/store/index.php", &[]).status(), 404);
}

/// `.htaccess` files refuse what they refuse, whatever a route with a map says.
#[test]
fn htaccess_files_stand_beside_maps() {
    let site = Site::with("closed/a.txt", "closed");
    site.write("closed/.htaccess", "Require all denied\n");
    site.write("open/a.txt", "open");
    site.write("open/.htaccess", "Header set X-From-File yes\n");
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
[site.map.to]
from = 'query:to'
values = { '~^(open|closed)$' = '/$1/a.txt' }
default = '/none'
[[site.route]]
path = '/way'
response_headers = { X-To = '$map_to' }
rewrite = '$map_to'
[[site.route]]
when = { to = '/closed/a.txt' }
static = true
"#,
    );
    let open = ask(&server, "/way?to=open", &[]);
    assert_eq!((open.text(), open.header("X-To")), ("open".to_owned(), Some("/open/a.txt")));
    assert_eq!(open.header("X-From-File"), Some("yes"));
    let status = |target: &str| ask(&server, target, &[]).status();
    let targets = ["/way?to=closed", "/closed/a.txt?to=open", "/way?to=../x", "/way"];
    assert_eq!(targets.map(status), [403, 403, 404, 404]);
}
