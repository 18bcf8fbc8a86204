//! Conditions on parameters, cookies and fields that programs read differently: a condition holds
//! if it holds in the reading of one of them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sendoff_tests::{Http2, Request, Response, Server, Site, wait};

/// A site with these maps and routes.
fn run(site: &Site, top: &str, routes: &str) -> Server {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n{top}[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n{routes}"
    );
    let config: PathBuf = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

fn ask(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    let request =
        fields.iter().fold(Request::get(target), |r, (name, value)| r.header(name, value));
    server.ask(&request)
}

/// Routes whose fields say which conditions hold.
const CONDITIONS: &str = r#"
[site.map.act]
from = 'query:act'
values = { del = 'bad', view = 'good' }
[site.map.role]
from = 'cookie:role'
values = { evil = 'bad' }
[[site.route]]
query = { act = '^del$' }
response_headers = { X-Query = 'yes' }
[[site.route]]
query = { act = '!^view$' }
response_headers = { X-Query-Not = 'yes' }
[[site.route]]
when = { act = 'bad' }
response_headers = { X-Map = 'yes' }
[[site.route]]
when = { act = '!good' }
response_headers = { X-Map-Not = 'yes' }
[[site.route]]
when = { role = 'bad' }
response_headers = { X-Role = 'yes' }
[[site.route]]
header = { Cookie = '(?:^|; )role=evil(?:;|$)' }
response_headers = { X-Cookie = 'yes' }
"#;

/// Each reads a text per line, and says what it makes of it: `d` for the parameter `act` with `del`
/// in it, `o` if `act` is another value than `view`, `e` for the cookie `role` with `evil`.
const RACK: &str = r##"
require 'rack'
def del?(value) = value.is_a?(String) ? value == 'del' : (value.is_a?(Hash) ? value.values : Array(value)).any? { |one| del?(one) }
STDIN.each_line(chomp: true) do |line|
  act = Rack::Utils.parse_nested_query(line)['act'] rescue (puts '-'; next)
  puts "#{'d' if del?(act)}#{'o' if act != 'view'}#{'e' if Rack::Utils.parse_cookies_header(line)['role'] == 'evil'}-"
end
"##;
const PYTHON: &str = r#"
import sys
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs
for line in open(0, newline='\n', encoding='latin-1'):
    line, told = line.rstrip('\n'), set()
    # Python before 3.10 separates by semicolons, too.
    for query in [line, line.replace(';', '&')]:
        values = parse_qs(query, keep_blank_values=True).get('act', [''])
        told |= {'d'} if 'del' in values else set()
        told |= {'o'} if {values[0], values[-1]} != {'view'} else set()
    try:
        cookies = SimpleCookie(line)
        told |= {'e'} if 'role' in cookies and cookies['role'].value == 'evil' else set()
    except CookieError:
        pass
    print(''.join(told) + '-')
"#;
const PERL: &str = r#"
use CGI;
use CGI::Cookie;
while (my $line = <STDIN>) {
    chomp $line;
    my $act = CGI->new($line)->param('act') // '';
    my $role = {CGI::Cookie->parse($line)}->{role};
    my $value = $role ? $role->value // '' : '';
    print $act eq 'del' ? 'd' : '', $act ne 'view' ? 'o' : '', $value eq 'evil' ? 'e' : '', "-\n";
}
"#;

/// The letters that a program prints for each text.
fn told(program: &str, arguments: &[&str], script: &str, texts: &[String]) -> Vec<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .arg(script)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = texts.iter().map(|text| format!("{text}\n")).collect();
    let mut stdin = child.stdin.take().unwrap();
    // The program answers while it reads.
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let told: Vec<_> =
        String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect();
    assert_eq!(told.len(), texts.len(), "{program}");
    told
}

/// Random queries and cookies: the rules find every parameter that Rack, Python or Perl's CGI finds.
#[test]
fn rules_find_what_other_programs_read() {
    let site = Site::with("a.txt", "a");
    let server = run(&site, "", CONDITIONS);
    let queries = [
        "act", "act=del", "act=view", "=del", "=view", "&", "&", ";", "[", "]", "[act]", "]=", "=",
        "x", "+", "%5B", "%5d", "%61ct", "d%65l", "%u0064el", "[]", "[x]", "del", "%00",
    ];
    let cookies = [
        "role",
        "role=evil",
        "role=good",
        "=evil",
        "=",
        "; ",
        ";",
        ",",
        " ",
        "\t",
        "x=1",
        "\"",
        "\\",
        "\"evil\"",
        "ro%6ce",
        "%65vil",
        "&",
        "+",
        "evil",
        "x",
    ];
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text = |pieces: &[&str]| -> String {
        let count = random.usize(1..8);
        (0..count).map(|_| pieces[random.usize(..pieces.len())]).collect()
    };
    let queries: Vec<_> = (0..4000).map(|_| text(&queries)).collect();
    let cookies: Vec<_> = (0..4000).map(|_| text(&cookies).trim().to_owned()).collect();
    let asks = [("ruby", &["-e"][..], RACK), ("python3", &["-c"], PYTHON), ("perl", &["-e"], PERL)];
    let told = |texts: &[String]| {
        asks.map(|(program, arguments, script)| told(program, arguments, script, texts))
    };
    let (of_queries, of_cookies) = (told(&queries), told(&cookies));
    let mut found = [0; 3];
    let mut client = server.connect();
    for (number, (query, cookie)) in queries.iter().zip(&cookies).enumerate() {
        let request = Request::get(&format!("/a.txt?{query}")).header("Cookie", cookie);
        let answer = client.ask(&request);
        // Requests with too many readings are refused.
        if answer.status() == 500 {
            continue;
        }
        let is_told = |told: &[Vec<String>; 3], letter| {
            told.iter().any(|lines| lines[number].contains(letter))
        };
        let checks = [
            (is_told(&of_queries, 'd'), ["X-Query", "X-Map"]),
            (is_told(&of_queries, 'o'), ["X-Query-Not", "X-Map-Not"]),
            (is_told(&of_cookies, 'e'), ["X-Role", "X-Cookie"]),
        ];
        for ((is_found, fields), count) in checks.into_iter().zip(&mut found) {
            *count += u32::from(is_found);
            for field in fields.into_iter().filter(|_| is_found) {
                let case = format!("seed {seed}: {field} ?{query} Cookie: {cookie:?}");
                assert_eq!(answer.header(field), Some("yes"), "{case}");
            }
        }
    }
    assert!(found.iter().all(|&count| count > 50), "{found:?}");
}

/// A condition holds for requests as browsers send them in all readings or in none.
#[test]
fn usual_requests_are_read_alike() {
    let site = Site::with("a.txt", "a");
    let server = run(&site, "", CONDITIONS);
    let held = |target: &str, cookie: &str| {
        let answer = ask(&server, target, &[("Cookie", cookie)]);
        assert_eq!(answer.status(), 200, "{target} {cookie}");
        let all = ["X-Query", "X-Query-Not", "X-Map", "X-Map-Not", "X-Role", "X-Cookie"];
        all.into_iter().filter(|name| answer.header(name).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(held("/a.txt?act=view&x=a+b%20c&y[]=1", "a=b"), [""; 0]);
    assert_eq!(held("/a.txt?x=1&%61ct=view", "role=good; x={\"a\": 1, \"b\": 2}"), [""; 0]);
    assert_eq!(
        held("/a.txt?act=del", "role=evil; a=b"),
        ["X-Query", "X-Query-Not", "X-Map", "X-Map-Not", "X-Role", "X-Cookie"]
    );
    assert_eq!(held("/a.txt?act=[]&act=&", "x=evil"), ["X-Query-Not", "X-Map-Not"]);
}

#[test]
fn one_of_several_fields_is_enough() {
    let site = Site::with("a.txt", "a");
    let server = run(
        &site,
        "",
        r#"
[site.map.debug]
from = 'header:X-Debug'
values = { '1' = 'on', '1, 2' = 'both' }
[[site.route]]
when = { debug = 'on' }
deny = true
[[site.route]]
header = { X-Kind = '^a, b$' }
deny = true
[[site.route]]
when = { debug = 'both' }
respond = 'both'
"#,
    );
    for (fields, status) in [
        (&[("X-Debug", "1")][..], 403),
        (&[("X-Debug", "1"), ("X-Debug", "2")], 403),
        (&[("X-Debug", "2"), ("X-Debug", "1")], 403),
        (&[("X-Debug", "1"), ("X-Debug", "")], 403),
        (&[("X-Debug", "1"), ("X-Debug", "1")], 403),
        (&[("X-Debug", "2"), ("X-Debug", "3")], 200),
        (&[("X-Debug", "1, 2")], 200),
        (&[("X-Kind", "a"), ("X-Kind", "b")], 403),
        (&[("X-Kind", "a")], 200),
        (&[], 200),
    ] {
        assert_eq!(ask(&server, "/a.txt", fields).status(), status, "{fields:?}");
        let request =
            fields.iter().fold(Request::get("/a.txt"), |r, (name, value)| r.header(name, value));
        let over_http2 = Http2::connect(server.clear_addr()).ask(&request).status();
        assert_eq!(over_http2, status, "HTTP/2: {fields:?}");
    }
    let both = ask(&server, "/a.txt", &[("X-Debug", "1, 2")]);
    assert_eq!(both.text(), "both");
}

/// A second field or parameter leads to no other limit, whichever of them the application reads.
#[test]
fn each_value_of_a_request_counts() {
    let site = Site::with("a.txt", "a");
    let routes = r#"
[site.map.key]
from = 'query:key'
values = { '~^[0-9a-f]{4}$' = '$0' }
[site.map.token]
from = 'header:X-Token'
values = { '~^[0-9a-f]{4}$' = '$0' }
[[site.route]]
rate = '1/h burst=2'
limit_by = 'key'
[[site.route]]
concurrency = 10
limit_by = 'token'
rate = '1/h burst=2'
"#;
    for other in ["key=x&key=abcd", "key=abcd&key=x", "[key]=abcd", "x;key=abcd", "key[]=abcd"] {
        let server = run(&site, "", routes);
        let status = |query: &str| ask(&server, &format!("/a.txt?{query}"), &[]).status();
        assert_eq!([other; 3].map(status), [200, 200, 429], "{other}");
        assert_eq!(["key=abcd", "key=beef", "key=x"].map(status), [429, 200, 200], "{other}");
        assert_eq!(["key=beef&key=dead", "key=dead"].map(status), [200, 200], "both count");
        assert_eq!(["key=beef", "key=dead"].map(status), [429, 429], "both count");
    }
    let server = run(&site, "", routes);
    let status = |tokens: &[&str]| {
        let fields: Vec<_> = tokens.iter().map(|token| ("X-Token", *token)).collect();
        ask(&server, "/a.txt", &fields).status()
    };
    let asked = [&["abcd", "x"][..], &["x", "abcd"], &["abcd", "x"], &["abcd"], &["x"]];
    assert_eq!(asked.map(status), [200, 200, 429, 429, 200]);
}

/// Python reads `?+act=edit` otherwise than PHP, so the condition holds, but the page is not kept.
#[test]
fn pages_of_requests_that_are_read_in_two_ways_are_not_kept() {
    let script = "<?php header('Cache-Control: max-age=600'); echo $_GET['act'] ?? 'none', ' ', $_SERVER['HTTP_X_KIND'] ?? '', ' ', hrtime(true);";
    let site = Site::with("index.php", script);
    let server = run(
        &site,
        "page_cache_folder = 'pages'\n",
        r#"
[[site.route]]
query = { act = false }
header = { X-Kind = '!edit' }
page_cache = '10m'
"#,
    );
    let get = |target: &str, kinds: &[&str]| {
        let fields: Vec<_> = kinds.iter().map(|kind| ("X-Kind", *kind)).collect();
        ask(&server, target, &fields)
    };
    let is_hit = |response: &Response| {
        response.header("Cache-Status").is_some_and(|status| status.starts_with("sendoff; hit"))
    };
    for (target, kinds) in [
        ("/?+act=edit", &[][..]),
        ("/?[act]=edit", &[]),
        ("/?x;act=edit", &[]),
        ("/?act%00=edit", &[]),
        ("/?x", &["view", "edit"]),
    ] {
        let pages = [(); 3].map(|()| get(target, kinds));
        assert!(!pages.iter().any(is_hit), "{target} {kinds:?}");
    }
    for (target, kinds) in [("/?x", &[][..]), ("/?y", &["view"])] {
        wait::for_some("a kept page", || Some(get(target, kinds)).filter(is_hit));
    }
}
