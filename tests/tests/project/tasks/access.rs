//! Access.

use sendoff_tests::{Request, Server, Site};

use super::Shown;
use super::machine::Machine;

pub(super) const TASKS: &[Shown] = &[
    ("Ask for a password", password),
    ("Log in by Authelia", authelia),
    ("Log in by oauth2-proxy", oauth2_proxy),
    ("Let only the office in", office),
    ("Block an address or a network", block_address),
    ("Block or allow by country", country),
    ("Block bots by their User-Agent", block_bots),
    ("Limit requests per client", limit_requests),
    ("Limit the size of uploads", limit_uploads),
    ("Send security headers", security_headers),
];

#[test]
fn access() {
    super::run(TASKS);
}

fn password(machine: Machine) {
    let run = machine.with("admin/index.html", "admins").with("a.txt", "all").start();
    let said = run.command();
    assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("\n\nadmins"), "{said}");
    let response = run.get("http://example.org/admin/");
    let question = response.header("WWW-Authenticate").unwrap_or_default();
    assert!(response.status() == 401 && question.contains("\"Administration\""), "{question}");
    let wrong = run.curl("curl -si -u ada:wrong http://example.org/admin/");
    assert!(wrong.starts_with("HTTP/1.1 401 "), "{wrong}");
    assert_eq!(run.text("http://example.org/a.txt"), "all");
}

/// A portal that knows the session `ada` and answers it with these fields and this status. Others
/// are sent to the login.
fn portal(fields: &str, status: u16) -> (Server, Site) {
    let script = format!(
        "<?php if (($_COOKIE['session'] ?? '') === 'ada') {{ http_response_code({status}); {fields} }} \
         elseif (str_starts_with($_SERVER['REQUEST_URI'], '/oauth2/')) {{ echo 'login page'; }} else {{ \
         header('Location: https://login.example.org/?rd=' . urlencode($_SERVER['HTTP_X_ORIGINAL_URL'])); \
         http_response_code(302); }}"
    );
    let site = Site::with("index.php", &script);
    (Server::start(site.root(), &["--workers", "1"]), site)
}

/// Checks the page for the session of `ada` with a false user name in `field`, and the redirect of
/// clients without a session.
fn logged_in(
    machine: Machine,
    address: &str,
    portal: &Server,
    field: &str,
) -> super::machine::Running {
    let page = format!("<?php echo $_SERVER['REMOTE_USER'], ' ', $_SERVER['HTTP_{field}'];");
    let machine = machine.with_value(address, &portal.clear_addr().to_string());
    let run = machine.with("index.php", page).with("a.txt", "text").start();
    let session = |request: Request| {
        request.header("Cookie", "session=ada").header(&field.replace('_', "-"), "root")
    };
    assert_eq!(run.ask("http://example.org/", session).text(), "ada ada");
    assert_eq!(run.ask("http://example.org/a.txt", session).text(), "text");
    let (status, to) = run.redirect("http://example.org/a.txt?b");
    assert_eq!(status, 302);
    assert_eq!(to, "https://login.example.org/?rd=http%3A%2F%2Fexample.org%2Fa.txt%3Fb");
    run
}

fn authelia(machine: Machine) {
    let (portal, _site) = portal("header('Remote-User: ada');", 200);
    logged_in(machine, "127.0.0.1:9091", &portal, "REMOTE_USER");
}

fn oauth2_proxy(machine: Machine) {
    let (portal, _site) = portal("header('X-Auth-Request-User: ada');", 202);
    let run = logged_in(machine, "127.0.0.1:4180", &portal, "X_AUTH_REQUEST_USER");
    assert_eq!(run.text("http://example.org/oauth2/sign_in"), "login page");
}

fn office(machine: Machine) {
    let run = machine.with("admin/a.php", "<?php echo 'admins';").with("a.txt", "all").start();
    assert_eq!(run.get_from_the_office("/admin/a.php").text(), "admins");
    assert_eq!(run.status("http://example.org/admin/a.php"), 403);
    assert_eq!(run.text("http://example.org/a.txt"), "all");
}

fn block_address(machine: Machine) {
    let run = machine.with("a.txt", "all").start();
    assert_eq!(run.get_from_the_office("/a.txt").status(), 403);
    assert_eq!(run.text("http://example.org/a.txt"), "all");
}

fn country(machine: Machine) {
    let run = machine.with("shop/a.txt", "goods").with("a.txt", "all").start();
    assert_eq!(run.get_from_the_office("/shop/a.txt").text(), "goods");
    assert_eq!(run.status("http://example.org/shop/a.txt"), 403);
    assert_eq!(run.text("http://example.org/a.txt"), "all");
}

fn block_bots(machine: Machine) {
    let run = machine.with("index.html", "all").start();
    let said = run.command();
    assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
    let agent = |request: Request| request.header("User-Agent", "Mozilla/5.0 (X11)");
    assert_eq!(run.ask("http://example.org/", agent).text(), "all");
}

fn limit_requests(machine: Machine) {
    let run = machine.with("login", "form").with("a.txt", "text").start();
    let mut client = run.server.connect();
    let all: Vec<_> = (0..30).map(|_| client.ask(&Request::get("/login"))).collect();
    assert_eq!(all[0].status(), 200);
    let refused = all.iter().find(|response| response.status() == 429).expect("a limit");
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(client.ask(&Request::get("/a.txt")).text(), "text");
}

fn limit_uploads(machine: Machine) {
    let script =
        "<?php echo ini_get('post_max_size'), ' ', strlen(file_get_contents('php://input'));";
    let machine = machine.with("upload.php", script).with("other.php", script);
    let run = machine.with_value("[[pool]]", "[[pool]]\nworkers = 1").start();
    let mut client = run.server.connect();
    let body = vec![b'x'; 2 << 20];
    let post = |path| Request::post(path, "application/octet-stream", body.clone());
    assert_eq!(client.ask(&post("/upload.php")).text(), "64M 2097152");
    let declared = Request::new("POST", "/other.php").header("Content-Length", "2097152");
    assert_eq!(client.ask(&declared).status(), 413);
}

fn security_headers(machine: Machine) {
    let own = "<?php header(\"Content-Security-Policy: default-src 'none'\");";
    let run = machine.with("index.html", "page").with("own.php", own).start();
    let said = run.command().to_lowercase();
    for field in [
        "x-content-type-options: nosniff",
        "x-frame-options: sameorigin",
        "referrer-policy: strict-origin-when-cross-origin",
        "content-security-policy: default-src 'self'",
    ] {
        assert!(said.contains(&format!("\n{field}\n")), "{field}\n{said}");
    }
    assert!(!said.contains("\nserver:"), "{said}");
    let response = run.get("http://example.org/own.php");
    let policies: Vec<_> = response.head.all("Content-Security-Policy").collect();
    assert_eq!(policies, ["default-src 'none'"]);
}
