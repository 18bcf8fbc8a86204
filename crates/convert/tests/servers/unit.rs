//! Single options, without files.

use std::path::Path;

use sendoff_convert_document::{Conversion, OneFile};
use sendoff_convert_unit::convert;

use super::{contains, readable};

/// Converts a document. The result must be readable by Sendoff.
#[track_caller]
fn document(text: &str) -> Conversion {
    readable(convert, "u.json", text)
}

/// Converts a listener with these steps.
#[track_caller]
fn steps(steps: &str) -> Conversion {
    let applications = r#"{"a": {"type": "python", "module": "m"}, "p": {"type": "php", "root": "/srv/p"}, "q": {"type": "php", "root": "/srv/q"}, "x": {"type": "external", "executable": "/x"}}"#;
    document(&format!(
        r#"{{"listeners": {{"*:80": {{"pass": "routes"}}}}, "routes": [{steps}], "applications": {applications}}}"#
    ))
}

/// The answer of a route that refuses.
const REFUSED: &str = "respond = \"<!DOCTYPE html><title>Error 403</title><p>Error 403.\"\ncontent_type = \"text/html\"\nstatus = 403\n";

#[track_caller]
fn has(text: &str, expected: &str) {
    contains(&steps(text), expected);
}

#[test]
fn conditions_without_an_equal_refuse() {
    for condition in [
        r#""query": "a*""#,
        r#""method": "!GET""#,
        r#""source": "10.0.0.1-10.0.0.9""#,
        r#""source": ["10.0.0.0/8", "!10.1.0.0/16"]"#,
        r#""source": "unix""#,
        r#""destination": "10.0.0.1:80""#,
        r#""cookies": {"a": "~b"}"#,
        r#""if": "$arg_a""#,
    ] {
        let text =
            format!(r#"{{"match": {{{condition}, "uri": "/x"}}, "action": {{"return": 200}}}}"#);
        let converted = steps(&text);
        assert!(converted.text.contains("status = 403\n"), "{}", converted.text);
        assert!(!converted.text.contains("respond = \"\""), "{}", converted.text);
        assert!(converted.text.contains("u.json: routes/0/match/"), "{}", converted.text);
        assert!(converted.left_out > 0, "{}", converted.text);
    }
}

#[test]
fn unknown_keys_of_steps_and_actions_refuse() {
    for step in [
        r#"{"if": "$arg_a", "match": {"uri": "/x"}, "action": {"return": 200}}"#,
        r#"{"match": {"uri": "/x"}, "action": {"auth_request": "/login", "share": "/srv/x"}}"#,
    ] {
        let converted = steps(step);
        assert!(converted.text.contains("path = \"/x\"\n"), "{}", converted.text);
        assert!(converted.text.contains("status = 403\n"), "{}", converted.text);
        assert!(!converted.text.contains("/srv/x"), "{}", converted.text);
        assert_eq!(converted.left_out, 1, "{}", converted.text);
    }
}

#[test]
fn a_listener_that_checks_client_certificates_refuses_every_request() {
    let listener = |command: &str| {
        let tls = format!(r#"{{"certificate": "c", "conf_commands": {{"{command}": "Require"}}}}"#);
        document(&format!(
            r#"{{"listeners": {{"*:443": {{"pass": "routes", "tls": {tls}}}}}, "routes": [{{"action": {{"share": "/srv$uri"}}}}]}}"#
        ))
    };
    let converted = listener("VerifyMode");
    assert!(!converted.text.contains("/srv"), "{}", converted.text);
    assert!(converted.text.contains("status = 404\n"), "{}", converted.text);
    assert!(listener("MinProtocol").text.contains("root = \"/srv\"\n"));
}

#[test]
fn a_wrong_expression_refuses_every_request() {
    for test in [
        r#""uri": "~(""#,
        r#""uri": "~\\Qa""#,
        r#""host": "~(*UTF)a""#,
        r#""host": ["~(?x)a#", "a.org"]"#,
    ] {
        let text = format!(r#"{{"match": {{{test}}}, "action": {{"return": 200}}}}"#);
        let converted = steps(&text);
        let refused = format!("[[site.route]]\n{REFUSED}");
        assert!(converted.text.contains(&refused), "{}", converted.text);
        assert!(!converted.text.contains("respond = \"\""), "{}", converted.text);
    }
}

#[test]
fn actions_without_an_equal_refuse() {
    for action in [
        r#""pass": "applications/x""#,
        r#""pass": "applications/none""#,
        r#""pass": "applications/$host""#,
        r#""pass": "upstreams/none""#,
        r#""share": "/srv/$host$uri""#,
        r#""share": "/srv$uri", "types": ["image/*"]"#,
        r#""share": "/srv$uri", "traverse_mounts": false"#,
        r#""rewrite": "/a?b=c", "pass": "applications/a""#,
        r#""proxy": "http://$host:80""#,
        r#""return": 302, "location": "/$args""#,
        r#""return": 999"#,
    ] {
        let text = format!(r#"{{"match": {{"uri": "/x"}}, "action": {{{action}}}}}"#);
        let converted = steps(&text);
        let expected = format!("path = \"/x\"\n{REFUSED}");
        assert!(converted.text.contains(&expected), "{}", converted.text);
        assert!(converted.left_out > 0, "{}", converted.text);
    }
    // A site has one folder of scripts.
    let two = r#"{"match": {"uri": "/p"}, "action": {"pass": "applications/p"}}, {"action": {"pass": "applications/q"}}"#;
    assert!(steps(two).left_out > 0);
}

#[test]
fn clients_of_other_addresses_are_refused() {
    let of = |source: &str, action: &str| {
        format!(r#"{{"match": {{"uri": "/x", "source": {source}}}, "action": {{{action}}}}}"#)
    };
    has(&of(r#""10.0.0.0/8""#, r#""return": 403"#), "path = \"/x\"\ndeny_from = \"10.0.0.0/8\"");
    has(
        &of(r#"["!10.0.0.0/8", "!::1"]"#, r#""return": 403"#),
        "allow_from = [\"10.0.0.0/8\", \"::1\"]",
    );
    has(&of(r#""10.0.0.0/8""#, r#""return": 200"#), "path = \"/x\"\nallow_from = \"10.0.0.0/8\"");
    has(&of(r#""!10.0.0.0/8""#, r#""return": 200"#), "deny_from = \"10.0.0.0/8\"");
}

/// The older form of `forwarded`.
#[test]
fn proxies_of_the_older_form_are_believed() {
    let text = r#"{"listeners": {"*:80": {"pass": "routes", "client_ip": {"header": "X-Forwarded-For", "source": "10.9.0.0/16"}}},
        "routes": [{"match": {"source": "10.0.0.0/8"}, "action": {"return": 200}}]}"#;
    let converted = document(text);
    contains(&converted, "proxy_field = \"X-Forwarded-For last\"");
    contains(&converted, "trusted_proxies = \"10.9.0.0/16\"");
    let unknown = document(&text.replace("\"10.9.0.0/16\"", "\"nowhere\""));
    assert!(unknown.text.contains(REFUSED), "{}", unknown.text);
}

#[test]
fn addresses_behind_unknown_proxies_refuse() {
    let text = r#"{"listeners": {"*:80": {"pass": "routes", "forwarded": FORWARDED}, "*:81": {"pass": "routes"}},
        "routes": [{"match": {"source": "10.0.0.0/8"}, "action": {"return": 200}}]}"#;
    let one =
        text.replace("FORWARDED", r#"{"client_ip": "X-Forwarded-For", "source": "10.9.0.0/16"}"#);
    let converted = document(&one);
    // Only one of the listeners believes proxies.
    assert!(!converted.text.contains("trusted_proxies"), "{}", converted.text);
    assert!(converted.text.contains(REFUSED), "{}", converted.text);
    let both = one.replace(
        r#""*:81": {"pass": "routes"}"#,
        r#""*:81": {"pass": "routes", "forwarded": {"client_ip": "X-Forwarded-For", "source": "10.9.0.0/16"}}"#,
    );
    let converted = document(&both);
    assert!(converted.text.contains("trusted_proxies = \"10.9.0.0/16\""), "{}", converted.text);
    assert!(converted.text.contains("listen = [\"0.0.0.0:80\", \"0.0.0.0:81\"]"));
}

#[test]
fn hosts_become_sites() {
    let text = r#"{"match": {"host": ["a.org", "www.a.org"]}, "action": {"pass": "applications/p"}},
        {"match": {"host": "b.org"}, "action": {"pass": "applications/q"}}"#;
    let converted = steps(text);
    assert!(
        converted.text.contains(
            "hosts = [\"a.org\", \"www.a.org\"]\nlisten = \"0.0.0.0:80\"\nroot = \"/srv/p\""
        ),
        "{}",
        converted.text
    );
    assert!(
        converted.text.contains("hosts = \"b.org\"\nlisten = \"0.0.0.0:80\"\nroot = \"/srv/q\""),
        "{}",
        converted.text
    );
    assert_eq!(converted.left_out, 0);
}

#[test]
fn every_option_leaves_a_trace() {
    let text = r#"{
        "listeners": {"*:80": {"pass": "applications/p", "lost1": 1, "tls": {"certificate": ["c", "d"], "conf_commands": {"lost2": "x"}}}, "unix:@abstract": {"pass": "applications/p"}},
        "routes": [], "lost3": {},
        "settings": {"lost4": 1, "http": {"lost5": true, "static": {"lost6": 1, "mime_types": {"a/b": ["lost7"]}}}},
        "access_log": {"path": "/log", "format": "lost8"},
        "applications": {"p": {"type": "php 8.2", "root": "/srv", "lost9": 1, "isolation": {"lost10": 1}, "stdout": "lost11",
            "options": {"file": "lost12", "admin": {"memory_limit": "1M"}}, "limits": {"shm": "lost13", "timeout": 3},
            "processes": {"max": 3, "spare": 1, "lost14": 1}, "environment": {"A": "b"}}}}"#;
    let converted = document(text);
    for number in 1..=14 {
        let name = format!("lost{number}");
        assert!(converted.text.contains(&name), "{name}\n{}", converted.text);
    }
    assert!(converted.text.contains("unix:@abstract"), "{}", converted.text);
    for key in [
        "php = \"8.2\"",
        "workers = \"auto\"",
        "min_workers = 1",
        "max_workers = 3",
        "request_timeout = \"3s\"",
        "php_admin_value = { memory_limit = \"1M\" }",
        "env = { A = \"b\" }",
        "certificate = \"/var/lib/unit/certs/c\"",
        "listen = \"0.0.0.0:80 tls\"",
    ] {
        assert!(converted.text.contains(key), "{key}\n{}", converted.text);
    }
}

#[test]
fn programs_become_pools() {
    let text = r#"{"listeners": {"*:80": {"pass": "applications/py/t"}, "*:81": {"pass": "applications/rb"}, "*:82": {"pass": "upstreams/u"}},
        "applications": {
            "py": {"type": "python 3.11", "home": "/venv", "path": ["/a", "/b"], "threads": 4, "processes": 2, "user": "web",
                "working_directory": "/a", "limits": {"requests": 10}, "targets": {"t": {"module": "m.w", "callable": "make", "factory": true}}},
            "rb": {"type": "ruby", "script": "/srv/config.ru", "processes": {"max": 3}}},
        "upstreams": {"u": {"servers": {"10.0.0.1:80": {"weight": 0.5}, "10.0.0.2:80": {}}}}}"#;
    let converted = document(text);
    for line in [
        r#"command = ["/venv/bin/sendoff-python", "m.w:make()", "--threads", "4", "--max-requests", "10", "--workers", "2"]"#,
        r#"env = { PYTHONPATH = "/a:/b" }"#,
        "user = \"web\"\nchdir = \"/a\"",
        r#"command = ["rackup", "-s", "sendoff", "-E", "production", "-O", "workers=3", "-O", "threads=1", "/srv/config.ru"]"#,
        r#"hosts = ["10.0.0.1:80 weight=50", "10.0.0.2:80 weight=100"]"#,
        "fastcgi = \"pool:py-t\"",
        r#"proxy = { to = "http://upstream:u", forwarded = "off", upgrade = false }"#,
    ] {
        assert!(converted.text.contains(line), "{line}\n{}", converted.text);
    }
    assert_eq!(converted.left_out, 0, "{}", converted.text);
}

#[test]
fn documents_of_the_control_socket_and_comments() {
    let text = "/* a */ {\"config\": { // b\n\"listeners\": {\"*:80\": {\"pass\": \"routes\"}}, \"routes\": [{\"action\": {\"return\": 200, \"location\": \"/* c */ // d\"}}]}}";
    assert!(document(text).text.contains("respond"));
    for (text, says) in [
        ("{\n\"a\": }", "u.json:2: this is not JSON"),
        ("{}", "u.json: no listeners"),
        ("[]", "u.json: the document is not an object"),
    ] {
        let error = convert(Path::new("u.json"), &OneFile(text.to_owned())).unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
    }
}

#[test]
fn routes_that_lead_to_each_other_end() {
    let text = r#"{"listeners": {"*:80": {"pass": "routes/a"}}, "routes": {
        "a": [{"match": {"uri": "/a*"}, "action": {"pass": "routes/a"}}, {"match": {"uri": "/b*"}, "action": {"pass": "routes/a"}}]}}"#;
    let converted = document(text);
    assert!(converted.left_out > 0);
    let twice = |next: usize| {
        format!(r#"{{"action": {{"pass": "routes/{next}"}}, "match": {{"uri": "/{next}*"}}}}"#)
    };
    let lists: String = (0..14)
        .map(|n| format!(r#""{n}": [{}, {}, {}],"#, twice(n + 1), twice(n + 2), twice(n + 1)))
        .collect();
    let text = format!(
        r#"{{"listeners": {{"*:80": {{"pass": "routes/0"}}}}, "routes": {{{lists} "14": [], "15": []}}}}"#
    );
    let error = convert(Path::new("u.json"), &OneFile(text)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "u.json: listeners/*:80: its routes lead to each other on too many ways"
    );
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(convert(Path::new("u.json"), &OneFile(format!("{{\"listeners\": {deep}}}"))).is_err());
}
