//! Redirects, texts and rewriting of nginx also hold for paths that it is led to: index files,
//! targets of `try_files`, of named locations and of other rewriting.

use sendoff_tests::Request;

use crate::original::Original;

const PHP: &str = "include /etc/nginx/fastcgi.conf; fastcgi_pass PHP;";

fn get(target: &str) -> Request {
    Request::get(target).header("Host", "example.test")
}

/// Expects the same answers with and without a cookie of a session.
fn same(pair: &Original, targets: &str) {
    for target in targets.split_whitespace() {
        pair.same_answer(target, &get(target));
        pair.same_answer(
            &format!("{target} with a session"),
            &get(target).header("Cookie", "session=1"),
        );
    }
}

#[test]
fn a_redirect_of_scripts_without_a_session() {
    for answer in [
        "return 302 /login",
        "return 200 no",
        "rewrite ^ /login.html last",
        "rewrite ^ /login? redirect",
    ] {
        let lines = format!(
            "index index.php;
            location / {{ try_files $uri $uri/ /index.php; }}
            location /named/ {{ try_files $uri @app; }}
            location @app {{ rewrite ^ /index.php last; }}
            location /moved/ {{ rewrite ^/moved/(.*)$ /$1.php last; }}
            location ~ \\.php$ {{ if ($http_cookie !~ \"session=\") {{ {answer}; }} {PHP} }}
            location ~ ^/later/(.*) {{ rewrite ^/later/(.*)$ /admin/$1 last; }}
            location = /single {{ rewrite ^ /index.php last; }}"
        );
        let files = ["index.php", "x.php", "admin/index.php", "a.txt", "login.html", "empty/a.txt"];
        let pair = Original::start(&lines, &files);
        same(&pair, "/ /admin/ /admin /admin/index.php /foo /x.php /a.txt /named/x /login.html");
        same(&pair, "/moved/x /moved/admin/index /later/index.php /later/ /single /empty/");
    }
}

#[test]
fn what_concerns_an_index_file() {
    let gates = [
        "rewrite ^(.*)\\.html$ $1.txt? redirect;",
        "rewrite (.*)\\.html$ $1.txt last;",
        "location ~ \\.html$ { return 302 /login; }",
        "location ~ \\.html$ { return 204; }",
        "location ~ \\.html$ { if ($http_cookie !~ session) { return 302 /login?from=$uri; } }",
        "location = /pub/index.html { try_files /nope =403; }",
        "location = /pub/index.html { rewrite ^ /a.txt last; }",
        "location = /pub/index.html { try_files /none @closed; } location @closed { return 302 /login; }",
        "location /pub/index { return 302 /login; }",
        "location ^~ /pub/ { } location = /pub/ { } location /pub/index.html { return 302 /login; }",
        "location = / { } location / { if ($http_cookie !~ session) { return 302 /login; } }",
        "if ($uri ~ \\.html$) { return 302 /login; }",
        "location / { if ($uri ~* INDEX) { return 204; } }",
        "location /pub/ { auth_basic x; auth_basic_user_file USERS; } location ~ \\.html$ { if ($http_cookie !~ session) { return 302 /login; } }",
    ];
    for gate in gates {
        let files = ["index.html", "pub/index.html", "pub/sub/index.html", "pub/a.txt", "a.txt"];
        let pair = Original::start(gate, &files);
        same(&pair, "/ /index.html /pub/ /pub /pub/index.html /pub/sub/ /pub/a.txt /a.txt");
        pair.same("/ /pub/ /pub/sub/ /pub/index.html");
    }
}

#[test]
fn what_concerns_a_target_of_try_files() {
    let lines = "location / { try_files $uri /pub/index.html; }
        location = /exact/ { try_files $uri /pub/index.html; }
        location /html/ { try_files $uri $uri.html /closed/a.txt; }
        location ~ ^/closed/ { return 302 /login; }
        location = /pub/index.html { if ($http_cookie !~ session) { return 302 /login; } }
        location ~ \\.html$ { if ($http_cookie !~ session) { return 204; } }";
    let pair = Original::start(
        lines,
        &["pub/index.html", "html/a.html", "closed/a.txt", "a.txt", "exact/index.html"],
    );
    same(&pair, "/exact/ / /a.txt /none /html/none /pub/index.html /closed/a.txt /html/b");
}

#[test]
fn conditions_about_the_path() {
    let lines = "if ($uri ~ ^/a/(.*)\\.txt$) { return 302 /$1; }
        location /b/ { if ($uri !~ \\.txt$) { return 204; } }
        location /c/ { if ($uri = /c/a.txt) { return 302 /login; } }
        location /d/ { if ($document_uri != /d/a.txt) { return 403; } }
        location ~ ^/e/ { if ($uri ~* (A)\\.TXT) { rewrite ^ /login? permanent; } }";
    let folders = ["a", "b", "c", "d", "e"];
    let files: Vec<_> =
        folders.iter().flat_map(|f| ["a.txt", "b.css"].map(|file| format!("{f}/{file}"))).collect();
    let pair = Original::start(lines, &files.iter().map(String::as_str).collect::<Vec<_>>());
    for file in &files {
        pair.same(&format!("/{file}"));
    }
    let lines = "location /a/ { if (-f $request_filename) { return 302 /login; } }
        location /b/ { if (-d $request_filename) { return 302 /login; } }
        location /c/ { if (-f $document_root/none) { return 503; } }";
    let pair = Original::start(lines, &["a/a.txt", "b/index.html", "c/a.txt"]);
    pair.same("/c/a.txt");
    pair.refuses("/a/a.txt");
    pair.refuses("/b/");
    // nginx compares these as they were sent.
    for test in ["$request_uri ~ a", "$query_string ~ x", "$args = \"\"", "$is_args"] {
        for answer in ["return 302 /login", "return 200 no", "rewrite ^ /login redirect"] {
            let lines = format!("location /a/ {{ if ({test}) {{ {answer}; }} }}");
            let pair = Original::start(&lines, &["a/a.txt", "b.txt"]);
            pair.refuses("/a/a.txt");
            pair.refuses("/a/a.txt?x=1");
            pair.same("/b.txt");
        }
    }
}

#[test]
fn groups_that_no_expression_has() {
    let lines = "location = /x { return 302 /y$1; }
        location /z/ { rewrite ^/z/ /w/$1 last; }
        location /q/ { if ($http_x_a ~ (.*)) { return 302 /$1; } }
        location ~ ^/r/(a) { try_files $uri /$2; }";
    let pair = Original::start(lines, &["z/a.txt", "q/a.txt", "r/a.txt", "a.txt"]);
    pair.same("/a.txt");
    for target in ["/x", "/z/a.txt", "/q/a.txt"] {
        pair.refuses(target);
    }
}
