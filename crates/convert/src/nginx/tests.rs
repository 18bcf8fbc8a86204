//! Single directives, without files.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Conversion, Files, convert};

/// One file.
struct One(String);

impl Files for One {
    fn read(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.clone())
    }

    fn matching(&self, _: &Path) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// Converts a server with these lines. The result must be readable by Sendoff.
#[track_caller]
fn server(lines: &str) -> Conversion {
    let text = format!("server {{\nroot /srv;\n{lines}\n}}\n");
    let converted = convert(Path::new("a.conf"), &One(text)).unwrap();
    assert!(sendoff_settings::read_text(&converted.text).is_some(), "{}", converted.text);
    converted
}

#[track_caller]
fn has(lines: &str, expected: &str) {
    let converted = server(lines);
    // A text without a backslash has other quotation marks.
    let plain = |text: &str| text.replace('\'', "\"");
    assert!(plain(&converted.text).contains(&plain(expected)), "{}", converted.text);
}

#[test]
fn expressions_precede_prefixes_but_not_those_with_a_caret() {
    let lines =
        "location ^~ /a/ { deny all; }\nlocation /a/b/ { }\nlocation ~ \\.x$ { return 410; }";
    has(lines, "match = '^(?!/a/b/)/a/'\ndeny = true");
    has(lines, "match = '^(?!/a/(?!b/)).*?\\.x$'\ndeny = true\nstatus = 410");
}

#[test]
fn an_exact_path_precedes_all() {
    let lines = "location = /a.x { return 204; }\nlocation ~ \\.x$ { deny all; }";
    has(lines, "path = \"/a.x\"\nrespond = \"\"\nstatus = 204");
    has(lines, "match = '^(?!/a\\.x$).*?\\.x$'\ndeny = true");
}

#[test]
fn access_rules_without_an_equal_refuse() {
    for rule in [
        "auth_request /check;",
        "auth_basic \"a\"; auth_basic_user_file /etc/$host;",
        "if ($bad) { return 403; }",
        "return 302 $nowhere;",
        "limit_except GET { deny all; }",
        "location ~ ^/(a)/\\1 { deny all; }",
    ] {
        let converted = server(&format!("location /a/ {{ {rule} }}"));
        assert!(converted.text.contains("deny = true"), "{}", converted.text);
        assert!(converted.left_out > 0, "{}", converted.text);
    }
    has("location /a/ { allow 10.0.0.0/8; deny all; }", "allow_from = \"10.0.0.0/8\"");
    has("location /a/ { deny 10.1.0.0/16; allow all; }", "deny_from = \"10.1.0.0/16\"");
}

#[test]
fn an_unknown_directive_is_named_with_its_line() {
    let converted = server("proxy_cache_lock on;");
    assert!(converted.text.contains("# a.conf:3: proxy_cache_lock on has no equal"));
    assert_eq!(converted.left_out, 1);
    assert_eq!(server("tcp_nopush on;").left_out, 0);
}

#[test]
fn addresses_and_hosts() {
    has("listen 80;", "listen = \"0.0.0.0:80\"");
    has("listen 80; listen [::]:80;", "listen = \"80\"");
    has("server_name .a.org;", "hosts = [\"a.org\", \"*.a.org\"]");
    // A site without hosts would answer for every host.
    has("server_name ~^a;", "hosts = \"no-host.invalid\"");
}

#[test]
fn applications() {
    has(
        "location /a/ { proxy_pass http://127.0.0.1:81/b/; }",
        "match = '^/a/(.*)$'\nrewrite = \"/b/$1\"",
    );
    has("location / { proxy_pass http://127.0.0.1:81; }", "host = \"upstream\"");
    has("location / { grpc_pass grpc://127.0.0.1:81; }", "deny = true\nstatus = 501");
}

#[test]
fn mistakes_have_a_place() {
    for (text, says) in [
        ("server {\nlisten 80;", "a.conf:1: the block that begins here has no end"),
        ("server {\nlisten 80 }", "a.conf:2: a ; is missing behind listen"),
        ("server { listen \"80; }", "a.conf:1: a quotation mark is not closed"),
        ("server { include a.conf; listen 80; }", "a.conf:1: blocks are nested too deeply"),
        ("events { }", "a.conf:1: no server block"),
    ] {
        let error = convert(Path::new("a.conf"), &One(text.to_owned())).unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
    }
}

#[test]
fn a_comment_cannot_become_a_key() {
    let converted = server("unknown_one \"a\n[[site]]\nb\";");
    assert!(!converted.text.contains("\n[[site]]\nb"), "{}", converted.text);
}
