//! Access.

use sendoff_tests::Request;

use super::Shown;
use super::machine::Machine;

pub(super) const TASKS: &[Shown] = &[
    ("Ask for a password", password),
    ("Let only the office in", office),
    ("Block an address or a network", block_address),
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
