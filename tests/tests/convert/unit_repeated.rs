//! Repeated arguments, cookies and fields, and their other spellings: in Unit every value must
//! match. No step may be wider than that.

use sendoff_tests::Request;

use super::unit::Converted;

/// Steps that let requests through, each followed by a refusal of all others.
const GUARDED: &str = r#"{
    "listeners": {"*:80": {"pass": "routes"}},
    "routes": [
        {"match": {"uri": "/not/*", "arguments": {"action": "!delete"}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/nor/*", "arguments": {"action": ["!delete", "!drop*"]}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/mixed/*", "arguments": {"action": ["v*", "!vx"]}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/is/*", "arguments": {"action": ["view", "a+b"]}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/mark/*", "arguments": {"q": "*!a"}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/cookie/*", "cookies": {"role": ["user", "guest"]}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/other/*", "cookies": {"role": "!admin"}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/field/*", "headers": {"X_Token": "~^good$"}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/not-field/*", "headers": {"X-Role": "!admin"}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"match": {"uri": "/cookies/*", "headers": {"Cookie": "!*admin*"}}, "action": {"proxy": "http://127.0.0.1:APP"}},
        {"action": {"return": 403}}
    ]
}"#;

fn guarded() -> Converted {
    Converted::start(GUARDED, &[])
}

/// Expects that these targets reach the application, and that the others are refused.
#[track_caller]
fn reach(server: &Converted, passing: &[&str], refused: &[&str]) {
    for (targets, status) in [(passing, 200), (refused, 403)] {
        for target in targets {
            let response = server.ask(&Request::get(target).header("Host", "example.test"));
            assert_eq!(response.status(), status, "{target}\n{}", server.config());
        }
    }
}

/// The same for the values of a field.
#[track_caller]
fn reach_with(server: &Converted, path: &str, name: &str, values: &[&str], status: u16) {
    let request = Request::get(path).header("Host", "example.test");
    let request = values.iter().fold(request, |request, value| request.header(name, value));
    let response = server.ask(&request);
    assert_eq!(response.status(), status, "{path} {name} {values:?}\n{}", server.config());
}

#[test]
fn arguments_that_are_not() {
    let server = guarded();
    reach(
        &server,
        &["/not/?action=view", "/not/?action=", "/not/?action", "/not/?action=view&action=edit"],
        &[
            "/not/",
            "/not/?action=delete",
            "/not/?action=del%65te",
            "/not/?%61ction=delete",
            "/not/?action=view&action=delete",
            "/not/?action=delete&action=view",
            "/not/?action[]=view",
            "/not/?action[]=delete&action=view",
            "/not/?b=1;action=view",
        ],
    );
    reach(
        &server,
        &["/nor/?action=view", "/nor/?action=dele"],
        &[
            "/nor/?action=delete",
            "/nor/?action=%64elete",
            "/nor/?action=dropped",
            "/nor/?action=d%72op",
            "/nor/?action=a&action=drop",
        ],
    );
    reach(
        &server,
        &["/mixed/?action=view", "/mixed/?action=%76iew", "/mixed/?action=v&action=vv"],
        &[
            "/mixed/?action=vx",
            "/mixed/?action=v%78",
            "/mixed/?action=a",
            "/mixed/?action=v&action=a",
        ],
    );
}

#[test]
fn arguments_that_are() {
    let server = guarded();
    reach(
        &server,
        &[
            "/is/?action=view",
            "/is/?action=vie%77",
            "/is/?action=a+b",
            "/is/?action=a%20b",
            "/is/?action=view&action=view&b=c",
            "/mark/?q=x!a",
            "/mark/?q=!a",
        ],
        &[
            "/is/",
            "/is/?action=delete",
            "/is/?action=view&action=delete",
            "/is/?action=delete&action=view",
            "/is/?action=a%2Bb",
            "/is/?action[]=view",
            "/is/?b=1;action=view",
            "/mark/?q=a",
            "/mark/?q=x",
        ],
    );
}

#[test]
fn cookies() {
    let server = guarded();
    for (path, values, status) in [
        ("/cookie/", &["role=user"][..], 200),
        ("/cookie/", &["a=b; role=guest"], 200),
        ("/cookie/", &["role=user; role=guest"], 200),
        ("/cookie/", &["role=admin"], 403),
        ("/cookie/", &["role=user; role=admin"], 403),
        ("/cookie/", &["role=admin; role=user"], 403),
        ("/cookie/", &["role=user", "role=admin"], 403),
        ("/cookie/", &[], 403),
        ("/other/", &["role=user"], 200),
        ("/other/", &["role=administrator"], 200),
        ("/other/", &["role=admin"], 403),
        ("/other/", &["role=user; role=admin"], 403),
        ("/other/", &["role=user", "a=b; role=admin"], 403),
        ("/other/", &["a=b"], 403),
        ("/cookies/", &["a=b"], 200),
        ("/cookies/", &["a=b", "role=admin"], 403),
        ("/cookies/", &["role=admin"], 403),
    ] {
        reach_with(&server, path, "Cookie", values, status);
    }
}

#[test]
fn fields() {
    let server = guarded();
    for (path, name, values, status) in [
        ("/field/", "X-Token", &["good"][..], 200),
        // Unit would accept these; applications read `good, good`.
        ("/field/", "X-Token", &["good", "good"], 403),
        ("/field/", "X-Token", &["bad", "good"], 403),
        ("/field/", "X-Token", &["good", "bad"], 403),
        ("/field/", "X-Token", &["GOOD"], 403),
        ("/field/", "X-Token", &[], 403),
        ("/not-field/", "X-Role", &["user"], 200),
        ("/not-field/", "X-Role", &["user", "guest"], 200),
        ("/not-field/", "X-Role", &["Admin"], 403),
        ("/not-field/", "X-Role", &["user", "admin"], 403),
        ("/not-field/", "X-Role", &["admin", "user"], 403),
        ("/not-field/", "X-Role", &[], 403),
    ] {
        reach_with(&server, path, name, values, status);
    }
}

#[test]
fn refusals_hold_for_every_spelling() {
    let text = r#"{
        "listeners": {"*:80": {"pass": "routes"}},
        "routes": [
            {"match": {"arguments": {"role": "bad"}}, "action": {"return": 403}},
            {"match": {"arguments": {"state": "!good"}}, "action": {"return": 404}},
            {"match": {"headers": {"X_Evil": "yes"}}, "action": {"return": 403}},
            {"match": {"cookies": {"k": "bad*"}}, "action": {"pass": "routes/none"}},
            {"match": {"headers": [{"X-A": "a"}, {"X-B": "b"}]}, "action": {"pass": "routes/none"}},
            {"action": {"proxy": "http://127.0.0.1:APP"}}
        ]
    }"#;
    let text = text.replace("\"routes\": [", "\"routes\": {\"main\": [").replace(
        "        ]\n    }",
        r#"        ], "none": [{"match": {"arguments": {"x": "1"}}, "action": {"return": 401}}]}}"#,
    );
    let server =
        Converted::start(&text.replace("\"pass\": \"routes\"", "\"pass\": \"routes/main\""), &[]);
    let get = |target: &str| server.ask(&Request::get(target).header("Host", "a")).status();
    for (target, status) in [
        ("/?role=good", 200),
        ("/?role=b%61d", 403),
        ("/?role=bad&role=bad", 403),
        ("/?role=bad&role=good", 403),
        ("/?state=good", 200),
        ("/?state=g%6Fod", 200),
        ("/?state=other", 404),
        ("/?state=other&state=good", 403),
    ] {
        assert_eq!(get(target), status, "{target}\n{}", server.config());
    }
    for (name, values, status) in [
        ("X-Evil", &["yes"][..], 403),
        ("X-Evil", &["no"], 200),
        ("Cookie", &["k=bad1"], 404),
        ("Cookie", &["k=good"], 200),
        ("Cookie", &["a=%3Bk=good; k=bad"], 403),
        ("X-A", &["a"], 404),
        ("X-B", &["b"], 404),
        ("X-A", &["a", "b"], 403),
    ] {
        reach_with(&server, "/", name, values, status);
    }
    reach_with(&server, "/?x=1&x=2", "X-A", &["a"], 403);
    reach_with(&server, "/?x=1", "X-A", &["a"], 401);
}

#[test]
fn hosts_are_compared_without_port_and_dot() {
    let text = r#"{
        "listeners": {"*:80": {"pass": "routes"}},
        "routes": [
            {"match": {"host": "~^c\\.org$"}, "action": {"return": 403}},
            {"match": {"host": ["d.org", "~^e[^8]*$"]}, "action": {"return": 404}},
            {"match": {"host": ["!~^f\\.org$", "!g*8*"], "uri": "/x"}, "action": {"return": 401}},
            {"match": {"host": "*8*"}, "action": {"return": 402}},
            {"action": {"return": 200}}
        ]
    }"#;
    let server = Converted::start(text, &[]);
    for (host, target, status) in [
        ("c.org", "/", 403),
        ("xc.org", "/", 200),
        ("c.organic", "/", 200),
        ("d.org", "/", 404),
        ("e.org", "/", 404),
        ("e8.org", "/", 402),
        ("f.org", "/x", 200),
        ("g.org", "/x", 401),
        ("g8.org", "/x", 402),
        ("h.org", "/x", 401),
        ("h.org", "/", 200),
    ] {
        for behind in ["", ".", ":18312", ".:80", ":"] {
            let field = format!("{}{behind}", host.to_uppercase());
            let got = server.ask(&Request::get(target).header("Host", &field)).status();
            // An empty port may be refused as such.
            let may_refuse = behind == ":" && got == 400;
            assert!(got == status || may_refuse, "{got} {field}{target}\n{}", server.config());
        }
    }
    // For Unit a request without the field is for an empty name.
    let mut client = server.connect();
    client.send("GET /x HTTP/1.0\r\n\r\n");
    assert_eq!(client.response("GET").status(), 401, "{}", server.config());
}
