//! `sendoff convert` with Caddyfiles: Caddy and Sendoff give the same answers.

use sendoff_tests::Request;

use crate::original::{Original, spellings};

fn get(target: &str) -> Request {
    Request::get(target).header("Host", "example.test")
}

#[test]
fn laravel() {
    let lines = "root * ROOT
        encode gzip
        php_fastcgi PHP
        file_server";
    let files = [
        "index.php",
        "other.php",
        "robots.txt",
        "css/app.css",
        "docs/index.php",
        "plain/index.html",
    ];
    let pair = Original::caddy(lines, &files);
    pair.same(
        "/ /index.php /index.php?a=1 /page /page?a=b&c=d /css/app.css /robots.txt /docs/ /docs",
    );
    pair.same(
        "/docs/page /css/none.css /none.php /other.php /other.php?x=y /index.php/page?a=b /plain/",
    );
}

#[test]
fn a_single_page_application() {
    let lines = "root * ROOT
        handle /api/* {
            reverse_proxy 127.0.0.1:APP
        }
        handle {
            try_files {path} {path}.html /index.html
            file_server
        }
        header X-Test a
        @assets path *.css *.js
        header @assets Cache-Control \"public, max-age=3600\"";
    let files = ["index.html", "app.css", "about.html", "sub/page.html", "sub/index.html"];
    let pair = Original::caddy(lines, &files);
    pair.same("/ /app.css /about /about.html /none /none/deep /api/x?y=z /api/ /API/x /sub/page /index.html");
    pair.same("/sub /none.css");
}

#[test]
fn wordpress() {
    let lines = "root * ROOT
        @forbidden {
            path /xmlrpc.php *.sql /wp-content/uploads/*.php /wp-config.php
            not path /allowed.sql
        }
        respond @forbidden 403
        basicauth /wp-admin/* {
            user HASH
        }
        php_fastcgi PHP
        file_server
        redir /old /new permanent
        redir /old/* /new{uri}";
    let files = [
        "index.php",
        "wp-admin/index.php",
        "wp-login.php",
        "xmlrpc.php",
        "wp-config.php",
        "style.css",
        "wp-content/uploads/a.php",
        "wp-content/uploads/a.jpg",
    ];
    let pair = Original::caddy(lines, &files);
    pair.same("/ /wp-login.php /2026/a-post/?p=1 /style.css /xmlrpc.php /wp-content/uploads/a.php /wp-content/uploads/a.jpg /dump.sql");
    pair.same("/wp-admin/ /wp-admin /old /old/x /wp-config.php");
    for path in ["/xmlrpc.php", "/wp-config.php", "/wp-admin/index.php"] {
        for spelling in spellings(path) {
            pair.closed(&spelling);
        }
    }
}

#[test]
fn handles_exclude_each_other() {
    let lines = "root * ROOT
        handle /a/* {
            @x query x=1
            respond @x \"a with x\"
            rewrite /a/moved /a/file.txt
        }
        handle_path /b/* {
            respond /inner \"inner {path}\"
            file_server
        }
        handle_path /c/* {
            root * ROOT/d
            file_server
        }
        handle /d/e/* {
            respond \"e\" 404
        }
        handle {
            @post method POST
            respond @post \"posted\"
            header X-Test rest
        }
        file_server";
    let files = [
        "a/file.txt",
        "file.txt",
        "b/file.txt",
        "d/file.txt",
        "d/e/file.txt",
        "d/e/index.html",
        "inner.txt",
        "e/index.html",
    ];
    let pair = Original::caddy(lines, &files);
    pair.same("/a/file.txt /a/file.txt?x=1 /a/moved /a/none /b/file.txt /b/inner /b/none /c/file.txt /C/file.txt");
    pair.same("/c/e/file.txt /d/file.txt /d/e/file.txt /file.txt /inner.txt /b/d/e/file.txt /b/e /b/e/ /c/e /e");
    let post = Request::post("/d/file.txt", "text/plain", "a=b").header("Host", "example.test");
    pair.same_answer("POST", &post);
    for path in ["/@caddy/1/file.txt", "/@caddy/2/d/file.txt", "/%40caddy/1/a/file.txt"] {
        pair.closed(path);
    }
}

#[test]
fn guards() {
    let lines = "root * ROOT
        handle /private/* {
            basicauth {
                user HASH
            }
            file_server
        }
        handle /lan/* {
            @others not remote_ip 192.168.0.0/16
            respond @others 403
            file_server
        }
        handle /local/* {
            @others not remote_ip 127.0.0.0/8 ::1
            respond @others 403
            file_server
        }
        handle /closed/* {
            error 403
        }
        @key {
            path /key/*
            header X-Key good
        }
        handle @key {
            file_server
        }
        handle /key/* {
            respond 403
        }
        @regexp path_regexp ^/re(gex)?/[^/]+$
        respond @regexp 404
        handle {
            file_server
        }";
    let folders = ["private", "lan", "local", "closed", "key", "re", "open"];
    let files: Vec<_> = folders.iter().map(|folder| format!("{folder}/a.txt")).collect();
    let pair = Original::caddy(lines, &files.iter().map(String::as_str).collect::<Vec<_>>());
    for folder in folders {
        pair.same(&format!("/{folder}/a.txt"));
        for spelling in spellings(&format!("/{folder}/a.txt")) {
            pair.closed(&spelling);
            for key in ["good", "bad", ""] {
                pair.closed_answer(&spelling, &get(&spelling).header("X-Key", key));
            }
        }
    }
    pair.same_answer("key", &get("/key/a.txt").header("X-Key", "good"));
}

#[test]
fn what_cannot_be_expressed_refuses() {
    let lines = "root * ROOT
        @token expression {http.request.uri.query.token} == 'x'
        handle @token {
            file_server
        }
        handle {
            respond 403
        }";
    let pair = Original::caddy(lines, &["a.txt"]);
    pair.closed("/a.txt /a.txt?token=y /a.txt?token=x");
}

#[test]
fn rewriting_fields_and_applications() {
    let lines = "root * ROOT
        redir /moved /new?a=b 301
        redir /host https://{host}{uri} 308
        rewrite /short /files/a.txt
        rewrite /shorter/* /files{path}
        uri strip_prefix /v1
        @mobile header User-Agent *Mobile*
        header @mobile X-Test mobile
        header /files/* {
            X-Frame-Options DENY
            ?Cache-Control no-store
            -Server
        }
        route /routed/* {
            uri strip_prefix /routed
            respond /first \"first\"
            respond \"rest {path}\"
        }
        handle_path /app/* {
            reverse_proxy 127.0.0.1:APP
        }
        @posts method POST PUT
        respond @posts \"no\" 405
        @numbers path_regexp n ^/posts/([0-9]+)$
        redir @numbers /p/{re.n.1}
        file_server {
            hide secret *.key
        }";
    let files = [
        "files/a.txt",
        "files/shorter/x.txt",
        "secret/a.txt",
        "d/secret",
        "d/x.key",
        "v.txt",
        "d/y.txt",
    ];
    let lines = lines.replace("{re.n.1}", "{http.regexp.n.1}");
    let pair = Original::caddy(&lines, &files);
    pair.same("/moved /host?x=y /short /shorter/x.txt /v1/v.txt /files/a.txt /routed/first /routed/other /app/x?y=z /app/ /posts/12 /posts/x");
    pair.same_answer("mobile", &get("/v.txt").header("User-Agent", "A Mobile B"));
    let post = Request::post("/v.txt", "text/plain", "a=b").header("Host", "example.test");
    pair.same_answer("POST", &post);
    pair.same("/d/y.txt");
    for path in ["/secret/a.txt", "/d/secret", "/d/x.key"] {
        for spelling in spellings(path) {
            pair.closed(&spelling);
        }
    }
}

#[test]
fn other_hosts_get_nothing() {
    let pair = Original::caddy("root * ROOT\nfile_server", &["a.txt"]);
    for host in ["other.test", "example.test.evil.test", "127.0.0.1"] {
        let request = Request::get("/a.txt").header("Host", host);
        let [theirs, ours] = pair.ask(&request);
        assert_eq!(ours.text(), theirs.text(), "{host}");
    }
}
