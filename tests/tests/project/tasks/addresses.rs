//! Addresses and redirects; TLS.

use sendoff_tests::{Client, Http3, Request};

use super::Shown;
use super::machine::Machine;

pub(super) const TASKS: &[Shown] = &[
    ("Redirect www to the bare domain", www_to_bare),
    ("Redirect the bare domain to www", bare_to_www),
    ("Redirect http to https", https),
    ("Redirect http to https behind a load balancer that speaks TLS", https_behind_a_balancer),
    ("Redirect moved pages", moved),
    ("Redirect many moved pages by a table", moved_by_table),
    ("Redirect to the page in the visitor's language", language),
    ("Serve a second site on another port", second_port),
    ("Listen on a UNIX socket", unix_socket),
    ("Use your own certificate", certificate),
    ("Send HSTS", hsts),
    ("Ask for client certificates", client_certificates),
    ("Switch HTTP/3 on", http3),
];

#[test]
fn addresses_and_redirects() {
    super::run(TASKS);
}

fn is(status: u16, location: &str) -> (u16, String) {
    (status, location.to_owned())
}

fn www_to_bare(machine: Machine) {
    let run = machine.with("index.html", "bare").start();
    let said = run.command();
    assert!(said.starts_with("HTTP/1.1 301 "), "{said}");
    assert!(said.to_lowercase().contains("\nlocation: https://example.org/a?b=1\n"), "{said}");
    assert_eq!(run.redirect("http://WWW.example.org:8080/"), is(301, "https://example.org/"));
    assert_eq!(run.text("http://example.org/"), "bare");
}

fn bare_to_www(machine: Machine) {
    let run = machine.with("index.html", "www").start();
    let said = run.command();
    assert!(said.to_lowercase().contains("\nlocation: https://www.example.org/a?b=1\n"), "{said}");
    assert_eq!(run.text("http://www.example.org/"), "www");
}

fn https(machine: Machine) {
    let run = machine.with("a", "secure").start();
    let said = run.command();
    assert!(said.starts_with("HTTP/1.1 308 "), "{said}");
    // Behind the host stands the free port.
    assert!(said.to_lowercase().contains("\nlocation: https://example.org"), "{said}");
    assert_eq!(run.text("https://example.org/a"), "secure");
}

fn https_behind_a_balancer(machine: Machine) {
    let run = machine.with("a.txt", "secure").start();
    let ask = |scheme| {
        run.ask("http://example.org/a.txt", |request| request.header("X-Forwarded-Proto", scheme))
    };
    let response = ask("http");
    assert_eq!(response.header("Location"), Some("https://example.org/a.txt"));
    assert_eq!(response.status(), 308);
    assert_eq!(ask("https").text(), "secure");
}

fn moved_by_table(machine: Machine) {
    let run = machine.with("a.txt", "text").start();
    let said = run.command().to_lowercase();
    assert!(
        said.starts_with("http/1.1 301 ") && said.contains("\nlocation: /archive/2026\n"),
        "{said}"
    );
    assert_eq!(run.redirect("http://example.org/about.html"), is(301, "/company/about"));
    assert_eq!(run.redirect("http://example.org/jobs.html"), is(301, "https://jobs.example.net/"));
    assert_eq!(run.text("http://example.org/a.txt"), "text");
}

fn language(machine: Machine) {
    let run = machine.with("de/index.html", "Seite").start();
    let said = run.command().to_lowercase();
    assert!(
        said.contains("\nlocation: /de/\n") && said.contains("\nvary: accept-language\n"),
        "{said}"
    );
    for (accepts, to) in
        [("fr", "/fr/"), ("FR-ca, de", "/fr/"), ("den", "/en/"), ("en, de", "/en/")]
    {
        let accept = |request: Request| request.header("Accept-Language", accepts);
        let response = run.ask("http://example.org/", accept);
        assert_eq!(response.header("Location"), Some(to), "{accepts}");
    }
    assert_eq!(run.redirect("http://example.org/"), is(302, "/en/"));
    assert_eq!(run.text("http://example.org/de/"), "Seite");
}

fn moved(machine: Machine) {
    let run = machine.start();
    let said = run.command();
    assert!(said.starts_with("HTTP/1.1 301 "), "{said}");
    assert!(said.to_lowercase().contains("\nlocation: /archive/2026-spring\n"), "{said}");
    assert_eq!(run.redirect("http://a.test/about.html"), is(301, "/company/about"));
    assert_eq!(run.redirect("http://a.test/blog/new/x").0, 404);
}

fn second_port(machine: Machine) {
    let machine = machine.with("index.html", "first");
    machine.write("/var/www/second/index.html", "second");
    let run = machine.start();
    assert_eq!(run.text("http://example.org/"), "first");
    let line = run.server.ready_line();
    let (_, port) = line.split_once("http://127.0.0.2:").expect(line);
    let port: u16 = port.split('/').next().unwrap().parse().unwrap();
    let second = Client::connect(([127, 0, 0, 2], port).into()).ask(&Request::get("/"));
    assert_eq!(second.text(), "second");
}

fn unix_socket(machine: Machine) {
    let run = machine.with("index.html", "by the socket").start();
    assert_eq!(run.command(), "by the socket");
    assert_eq!(run.text("http://example.org/"), "by the socket");
}

fn certificate(machine: Machine) {
    let run = machine.with("index.html", "secure").start();
    // curl checks the name and the issuer.
    let authority = run.machine.write("/etc/authority.pem", run.machine.authority().pem());
    let command = format!("curl -s --cacert {} https://example.org/", authority.display());
    assert_eq!(run.curl(&command), "secure");
}

fn hsts(machine: Machine) {
    let run = machine.with("index.html", "secure").start();
    let said = run.command().to_lowercase();
    let field = "\nstrict-transport-security: max-age=31536000; includesubdomains\n";
    assert!(said.contains(field), "{said}");
    assert_eq!(run.get("http://example.org/").header("Strict-Transport-Security"), None);
}

fn client_certificates(machine: Machine) {
    let run = machine.with("index.html", "staff").start();
    let ada = run.machine.authority().issue(&["ada"], &run.machine.path("/etc"), "ada");
    let (chain, key) = (ada.chain.display(), ada.key.display());
    let said = run.curl(&format!("curl -sk --cert {chain} --key {key} https://example.org/"));
    assert_eq!(said, "staff");
    let refused = run.curl("curl -sk https://example.org/ || echo refused");
    assert_eq!(refused, "refused\n");
}

fn http3(machine: Machine) {
    let run = machine.with("index.html", "quick").start();
    let offered = run.get("https://example.org/");
    assert!(offered.header("Alt-Svc").is_some_and(|field| field.starts_with("h3=")));
    let mut client = Http3::connect(run.server.tls_addr().unwrap(), "example.org");
    let request = Request::get("/").header("Host", "example.org");
    assert_eq!(client.ask(&request).text(), "quick");
}
