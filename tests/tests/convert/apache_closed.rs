//! Files of Apache in which a directive closes something in an unusual way: nothing of it is open
//! in Sendoff.

use sendoff_tests::Request;

use crate::original::Original;

const USER: &str = "Basic dXNlcjpzZWNyZXQ=";
const BOSS: &str = "Basic Ym9zczpzZWNyZXQ=";

fn get(target: &str) -> Request {
    Request::get(target).header("Host", "example.test")
}

#[test]
fn an_expression_for_folders_may_begin_in_the_root() {
    let lines = "<DirectoryMatch \"ROOT/(vendor|api)\">
            Require all denied
        </DirectoryMatch>
        <Directory ~ \"[a-z0-9]/private/?\">
            Require all denied
        </Directory>
        <DirectoryMatch \"^ROOT/.+/hidden\">
            Require all denied
        </DirectoryMatch>
        Alias /docs OUTSIDE/docs
        <Directory OUTSIDE/docs>
            Require all granted
        </Directory>
        <DirectoryMatch \"^OUTSIDE/docs/secret\">
            Require all denied
        </DirectoryMatch>";
    let files = [
        "a.txt",
        "vendor/a.txt",
        "vendor/b/a.txt",
        "api/a.txt",
        "private/a.txt",
        "x/hidden/a.txt",
        "../data/docs/a.txt",
        "../data/docs/secret/a.txt",
    ];
    let pair = Original::apache(lines, &files);
    pair.same("/a.txt /vendor/a.txt /vendor/b/a.txt /api/a.txt /private/a.txt /x/hidden/a.txt");
    pair.same("/docs/a.txt /docs/secret/a.txt");
}

#[test]
fn scripts_that_are_switched_off_do_not_run() {
    let lines = "<Directory ROOT/value>
            php_admin_value engine Off
        </Directory>
        <Directory ROOT/number>
            php_value engine 0
        </Directory>
        <Location /flag>
            php_admin_flag engine Off
        </Location>
        <Directory ROOT/cgi>
            Options +ExecCGI
            AddHandler cgi-script .cgi
        </Directory>";
    let files = ["a.php", "value/a.php", "number/a.php", "flag/a.php", "cgi/a.cgi", "cgi/a.txt"];
    let pair = Original::apache(lines, &files);
    pair.same("/a.php /cgi/a.txt");
    for folder in ["value", "number", "flag"] {
        pair.refuses(&format!("/{folder}/a.php"));
    }
    pair.refuses("/cgi/a.cgi");
}

#[test]
fn the_users_of_a_path_are_those_of_its_last_section() {
    let lines = "<Directory ROOT/a>
            AuthType Basic
            AuthName x
            AuthUserFile USERS
            Require valid-user
        </Directory>
        <Directory ROOT/a/b>
            AuthUserFile OTHERS
        </Directory>
        <Location /a/c.txt>
            AuthUserFile OTHERS
        </Location>
        <Directory ROOT/d>
            AuthType Basic
            AuthName x
            AuthUserFile USERS
            Require valid-user
        </Directory>
        <Location /d>
            AuthUserFile OTHERS
        </Location>";
    let files = ["a/x.txt", "a/b/x.txt", "a/b/c/x.txt", "a/c.txt", "d/x.txt"];
    let pair = Original::apache(lines, &files);
    for file in files {
        for credentials in ["", USER, BOSS] {
            let request = get(&format!("/{file}")).header("Authorization", credentials);
            pair.same_answer(&format!("{file} {credentials}"), &request);
        }
    }
}

#[test]
fn addresses_behind_a_proxy_of_one_host() {
    let lines = "LoadModule remoteip_module /usr/lib/apache2/modules/mod_remoteip.so
        ---
        RemoteIPHeader X-Forwarded-For
        RemoteIPInternalProxy 127.0.0.1
        <Location /private>
            Require ip 127.0.0.1 10.0.0.0/8
        </Location>";
    let pair = Original::apache(lines, &["private/a.txt", "a.txt"]);
    for client in ["8.8.8.8", "10.9.9.9"] {
        let request = |target| get(target).header("X-Forwarded-For", client);
        pair.same_answer(client, &request("/a.txt"));
        pair.closed_answer(client, &request("/private/a.txt"));
    }
}

#[test]
fn addresses_that_only_some_proxies_may_name() {
    let lines = "LoadModule remoteip_module /usr/lib/apache2/modules/mod_remoteip.so
        RemoteIPHeader X-Forwarded-For
        RemoteIPTrustedProxy 127.0.0.1
        ---
        <Location /private>
            Require ip 10.0.0.0/8
        </Location>
        <Location /public>
            Require ip 8.8.8.0/24
        </Location>";
    let pair = Original::apache(lines, &["private/a.txt", "public/a.txt"]);
    for client in ["8.8.8.8", "9.9.9.9", "10.9.9.9"] {
        let request = |target| get(target).header("X-Forwarded-For", client);
        pair.closed_answer(client, &request("/private/a.txt"));
        pair.same_answer(client, &request("/public/a.txt"));
    }
}

#[test]
fn the_aliases_of_a_host_come_first() {
    let lines = "Alias /pub OUTSIDE/pub
        <Directory OUTSIDE/pub>
            Require all granted
        </Directory>
        ---
        Alias /pub/secret OUTSIDE/secret
        Alias /x OUTSIDE/pub
        Alias /x/secret OUTSIDE/secret
        <Directory OUTSIDE/secret>
            Require all denied
        </Directory>";
    let files = ["../data/pub/a.txt", "../data/secret/a.txt", "../data/pub/secret/a.txt"];
    let pair = Original::apache(lines, &files);
    pair.same("/pub/a.txt /pub/secret/a.txt /x/a.txt /x/secret/a.txt");
}

#[test]
fn the_first_host_with_a_fitting_name() {
    let lines = "<VirtualHost *:PORT>
            ServerName a.test
            ServerAlias *.example.test
            DocumentRoot ROOT
            <Location />
                Require all denied
            </Location>
        </VirtualHost>
        ---
        ServerAlias www.example.test other.test";
    let pair = Original::apache(lines, &["a.txt"]);
    for host in ["example.test", "www.example.test", "x.example.test", "other.test", "a.test"] {
        pair.closed_answer(host, &Request::get("/a.txt").header("Host", host));
    }
    pair.same("/a.txt");
}

#[test]
fn a_later_host_without_a_name_answers_for_no_other() {
    let lines = "---
        </VirtualHost>
        <VirtualHost *:PORT>
            DocumentRoot ROOT";
    let pair = Original::apache(lines, &["a.txt"]);
    for host in ["example.test", "unknown.test"] {
        pair.closed_answer(host, &Request::get("/a.txt").header("Host", host));
    }
}

#[test]
fn rules_that_a_host_inherits() {
    let lines = "RewriteEngine On
        RewriteRule ^/private - [F]
        ---
        RewriteOptions Inherit
        RewriteRule ^/b\\.txt$ /a.txt [L]";
    let pair = Original::apache(lines, &["a.txt", "private/a.txt"]);
    pair.same("/a.txt /b.txt /private/a.txt");
}

#[test]
fn files_in_folders_with_another_name() {
    let lines = "AccessFileName .acl
        <Directory ROOT>
            AllowOverride All
        </Directory>";
    let pair = Original::apache(lines, &["a/.acl", "a/a.txt"]);
    pair.refuses("/a/a.txt");
}

#[test]
fn redirects_concern_index_files() {
    for rules in [
        "RedirectMatch 302 index\\.html$ /login?x",
        "<FilesMatch \"\\.html$\">\nRedirect 302 /login?x\n</FilesMatch>",
        "<LocationMatch \"^/a/index\">\nRedirect 302 /login?x\n</LocationMatch>",
        "<Files index.html>\nRedirect 302 /login?x\n</Files>",
        "Redirect /a/index.html /login?x",
        "RewriteEngine On\nRewriteRule ^/a/index\\.html$ /login? [R]",
        "<Directory ROOT/a>\nRewriteEngine On\nRewriteRule ^index\\.html$ /login? [R]\n</Directory>",
        "Options +Indexes\nRedirectMatch 302 ^/a/index /login?x",
        "Redirect /old /a/\nRedirectMatch ^/moved/(.*) /a/$1",
    ] {
        let files = ["index.html", "a/index.html", "a/b/index.html", "a/a.txt", "c/a.txt"];
        let pair = Original::apache(rules, &files);
        for target in ["/", "/a/", "/a", "/a/index.html", "/a/b/", "/a/a.txt", "/old/x", "/moved/x"]
        {
            let [theirs, ours] = pair.ask(&get(target)).map(|answer| answer.status());
            assert_eq!(ours, theirs, "{target} {rules}");
        }
    }
}
