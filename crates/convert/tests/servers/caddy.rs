//! Single directives, without files.

use std::path::Path;

use sendoff_convert_caddy::convert;
use sendoff_convert_document::{Conversion, OneFile};

use super::{cannot_be_read, contains, readable};

/// Converts a file. The result must be readable by Sendoff.
#[track_caller]
fn file(text: &str) -> Conversion {
    readable(convert, "Caddyfile", text)
}

/// Converts a site with these lines.
#[track_caller]
fn has(lines: &str, expected: &str) {
    contains(&file(&format!("http://a.test {{\nroot * /srv/a\n{lines}\n}}\n")), expected);
}

#[test]
fn addresses() {
    let text = "a.test, www.a.test {\nrespond a\n}\nhttp://b.test:8080 {\nrespond b\n}\nlocalhost {\nrespond c\n}\n*.d.test {\nrespond d\n}\n";
    let made = file(text).text;
    for expected in [
        "hosts = [\"a.test\", \"www.a.test\"]\nlisten = [\"443 tls\", \"80\"]\ntls = { certificate = \"auto\" }",
        "hosts = \"b.test\"\nlisten = \"8080\"\n",
        "hosts = \"localhost\"\nlisten = [\"443 tls\", \"80\"]\ntls = { certificate = \"self-signed\" }",
        "header = { Host = '(?i)^[^.:]+\\.[^:]*\\.d\\.test\\.?(?::\\d*)?\\z' }",
        "tls = \"self-signed\"\nhttps_redirect = false\nlisten = [\"443 tls\", \"80\", \"8080\"]\nroot = \"/srv\"",
    ] {
        assert!(made.contains(expected), "{expected}\n{made}");
    }
}

#[test]
fn addresses_of_sites_without_bind() {
    let text = "{\ndefault_bind 127.0.0.1 ::1\n}\nhttp://a.test:8080 {\nrespond a\n}\nhttp://b.test:8080 {\nbind 127.0.0.2\nrespond b\n}\n";
    let made = file(text).text;
    for expected in [
        "hosts = \"a.test\"\nlisten = [\"127.0.0.1:8080\", \"[::1]:8080\"]",
        "hosts = \"b.test\"\nlisten = \"127.0.0.2:8080\"",
    ] {
        assert!(made.contains(expected), "{expected}\n{made}");
    }
}

#[test]
fn a_site_without_braces() {
    let made = file("localhost:8080\nroot * /srv/a\nfile_server\n").text;
    assert!(made.contains("root = \"/srv/a\""), "{made}");
}

#[test]
fn snippets_and_their_arguments() {
    let text = "(fields) {\nheader X-{args.0} {args[1]}\n}\n{\nemail me@a.test\n}\n";
    // Global options stand first.
    let wrong = convert(Path::new("Caddyfile"), &OneFile(format!("{text}:80 {{\n}}\n")));
    assert!(wrong.is_ok());
    let made = file("{\nemail me@a.test\n}\n(fields) {\nheader X-{args.0} {args[1]}\n}\n:80 {\nimport fields Test b\nrespond x\n}\n").text;
    assert!(made.contains("acme_email = \"me@a.test\""), "{made}");
    assert!(made.contains("response_headers = { X-Test = \"b\" }"), "{made}");
}

#[test]
fn the_order_is_that_of_caddy() {
    let made = file(
        "{\norder reverse_proxy first\n}\nhttp://a.test {\nheader A b\nreverse_proxy /x* h:1\n}\n",
    )
    .text;
    let (proxy, header) = (made.find("proxy =").unwrap(), made.find("response_headers").unwrap());
    assert!(proxy < header, "{made}");
    has(
        "respond /a b\nrespond /a/b c",
        "match = '(?i)^/a/b\\z'\nrespond = \"c\"\n\n[[site.route]]\nmatch = '(?i)^/a\\z'",
    );
}

#[test]
fn what_has_no_equal_refuses() {
    for lines in [
        "some_plugin",
        "respond @a 404\n@a expression true",
        "handle @a {\nfile_server\n}\n@a vars x y",
        "reverse_proxy @a h:1\n@a not method GET",
        "rewrite {labels.1}",
        "uri replace a b",
        "forward_auth h:1 {\nuri /x\ncopy_headers A>B\n}",
        "basicauth {\nuser not-a-hash\n}",
        "request_header X-A {unknown}",
        "file_server {\nunknown\n}",
        "reverse_proxy {upstream}",
        "reverse_proxy h:1 {\nhandle_response {\n}\n}",
        "method POST",
        "invoke x",
    ] {
        let converted =
            file(&format!("http://a.test {{\nroot * /srv/a\n{lines}\nfile_server\n}}\n"));
        let text = converted.text;
        assert!(text.contains("deny = true") && converted.left_out > 0, "{lines}\n{text}");
    }
}

#[test]
fn proxies_are_believed_as_by_caddy_or_rules_about_addresses_refuse() {
    let of = |servers: &str| {
        file(&format!(
            "{{\n{servers}\n}}\n:80 {{\n@office client_ip 192.0.2.0/24\nrespond @office inside\n}}\n"
        ))
    };
    let known = "trusted_proxies static 10.9.0.0/16";
    let plain = of(&format!("servers {{\n{known}\n}}"));
    contains(&plain, "proxy_field = \"X-Forwarded-For alone\"");
    contains(&plain, "allow_from = \"192.0.2.0/24\"");
    let cdn = of(&format!("servers {{\n{known}\nclient_ip_headers CF-Connecting-IP\n}}"));
    contains(&cdn, "proxy_field = \"CF-Connecting-IP\"");
    for unknown in [
        format!("servers :8080 {{\n{known}\n}}"),
        format!("servers {{\n{known}\nclient_ip_headers A B\n}}"),
        "servers {\ntrusted_proxies cloudflare\n}".to_owned(),
    ] {
        let converted = of(&unknown);
        assert!(!converted.text.contains("trusted_proxies ="), "{}", converted.text);
        contains(&converted, "deny = true");
    }
}

#[test]
fn applications() {
    has("reverse_proxy h:1", "proxy = { to = \"http://h:1\", redirects = {  } }");
    has(
        "reverse_proxy a:1 b:2 {\nlb_policy first\nhealth_uri /up\nhealth_interval 10s\n}",
        "hosts = [\"a:1\", \"b:2 spare\"]\nprobe = { path = \"/up\", every = \"10s\" }",
    );
    has(
        "reverse_proxy https://h {\nheader_up Host {upstream_hostport}\n}",
        "proxy = { host = \"upstream\", to = \"https://h:443\", redirects = {  } }",
    );
    has("reverse_proxy unix//run/a.sock", "to = \"http://unix:/run/a.sock\"");
    has("reverse_proxy h:1 {\nlb_policy ip_hash\nhealth_uri /x\n}", "balance = \"client\"");
    has(
        "forward_auth h:9091 {\nuri /api/verify\ncopy_headers Remote-User\n}\nfile_server",
        "authorize = { url = \"http://h:9091/api/verify\", copy_headers = [\"Remote-User\"] }",
    );
}

#[test]
fn mistakes_have_a_place() {
    let mistakes = [
        ("", None, "no site"),
        ("a.test {\nrespond x\n", Some(1), "has no end"),
        ("a.test {\n}\n}\n", Some(3), "closes no block"),
        ("a.test {\nrespond \"x\n}\n", Some(2), "not closed"),
        ("{$HOST} {\n}\n", Some(1), "environment variable"),
        ("a.test/x {\n}\n", Some(1), "path"),
        ("a.test {\nimport Caddyfile\n}\n", Some(2), "nested too deeply"),
    ];
    cannot_be_read(convert, "Caddyfile", &mistakes);
}

#[test]
fn no_directive_disappears_without_a_trace() {
    for line in [
        "templates",
        "map {path} {x} {\n}",
        "vars a b",
        "push",
        "handle_errors {\n}",
        "encode {\nmatch status 2xx\n}",
        "tls {\ndns x\n}",
        "log {\nformat filter\n}",
        "file_server {\nprecompressed\n}",
        "header X-A a b",
    ] {
        let converted =
            file(&format!("https://a.test {{\nroot * /srv/a\n{line}\nfile_server\n}}\n"));
        assert!(converted.left_out > 0, "{line}\n{}", converted.text);
    }
}
