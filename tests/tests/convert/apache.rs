//! `sendoff convert` with Apache's sites: Apache and Sendoff give the same answers.

use sendoff_tests::Request;

use crate::original::{Original, spellings};

fn get(target: &str) -> Request {
    Request::get(target).header("Host", "example.test")
}

#[test]
fn laravel() {
    let lines = "<Directory ROOT>
            Options -Indexes +FollowSymLinks
            AllowOverride None
            Require all granted
            FallbackResource /index.php
        </Directory>
        DirectoryIndex index.php index.html
        <FilesMatch \"^\\.\">
            Require all denied
        </FilesMatch>
        Header always set X-Frame-Options SAMEORIGIN
        ErrorLog /dev/null";
    let files = ["index.php", "other.php", "robots.txt", "css/app.css", "docs/index.html", ".env"];
    let pair = Original::apache(lines, &files);
    pair.same(
        "/ /index.php /index.php?a=1 /page /page?a=b&c=d /css/app.css /robots.txt /docs/ /docs",
    );
    pair.same("/css/none.css /other.php /other.php?x=y /.env /index.php/page?a=b");
}

#[test]
fn sections_are_merged_in_apaches_order() {
    let lines = "<Location /a/open>
            Require all granted
        </Location>
        <Directory ROOT/a>
            Require all denied
        </Directory>
        <Directory ROOT/a/b>
            Require all granted
        </Directory>
        <Files secret.txt>
            Require all denied
        </Files>
        <FilesMatch \"\\.(inc|bak2)$\">
            Require all denied
        </FilesMatch>
        <DirectoryMatch \"/hidden\">
            Require all denied
        </DirectoryMatch>
        <LocationMatch \"^/[a-z]+/closed\">
            Require all denied
        </LocationMatch>
        <Directory ROOT/lan>
            Require ip 10.0.0.0/8
        </Directory>
        <Directory ROOT/local>
            <RequireAll>
                Require all granted
                Require not ip 10.1
            </RequireAll>
        </Directory>
        <Directory ROOT/old>
            Order deny,allow
            Deny from all
        </Directory>
        <Directory ROOT/users>
            AuthType Basic
            AuthName \"Users\"
            AuthUserFile USERS
            Require valid-user
        </Directory>
        <Directory ROOT/bob>
            AuthType Basic
            AuthName \"Users\"
            AuthUserFile USERS
            Require user bob
        </Directory>";
    let files = [
        "a/x.txt",
        "a/b/x.txt",
        "a/b/secret.txt",
        "a/open/x.txt",
        "a/open/secret.txt",
        "secret.txt",
        "x.inc",
        "d/y.bak2",
        "hidden/x.txt",
        "d/hidden/x.txt",
        "a/b/closed/x.txt",
        "d/closed/x.txt",
        "lan/x.txt",
        "local/x.txt",
        "old/x.txt",
        "users/x.txt",
        "bob/x.txt",
        "d/x.txt",
        "d/index.html",
        "a/index.html",
    ];
    let pair = Original::apache(lines, &files);
    for file in files {
        if file != "bob/x.txt" {
            pair.same(&format!("/{file}"));
        }
        for authorization in ["", "Basic dXNlcjpzZWNyZXQ="] {
            let to = |target: &str| get(target).header("Authorization", authorization);
            let [theirs, _] = pair.ask(&to(&format!("/{file}")));
            // Apache refuses an encoded slash, whatever is behind the path.
            let all = spellings(&format!("/{file}"));
            for spelling in all.into_iter().filter(|_| theirs.status() != 200) {
                pair.closed_answer(&spelling, &to(&spelling));
            }
        }
    }
    pair.same("/a/ /a/b/ /d/ /secret.txt/x /a/open /a/opened");
}

#[test]
fn aliases_and_applications() {
    let lines = "Alias /docs OUTSIDE/docs
        <Directory OUTSIDE/docs>
            Require all granted
        </Directory>
        <Directory OUTSIDE/docs/private>
            Require all denied
        </Directory>
        Alias /closed OUTSIDE/closed
        ProxyPreserveHost On
        ProxyPass /app/static !
        ProxyPass /app http://127.0.0.1:APP/base
        ProxyPassReverse /app http://127.0.0.1:APP/base
        ProxyPass /same/ http://127.0.0.1:APP/same/
        <Location /app/admin>
            AuthType Basic
            AuthName \"Users\"
            AuthUserFile USERS
            Require valid-user
        </Location>
        Redirect permanent /old /new
        Redirect 302 /gone/away https://elsewhere.test/x
        RedirectMatch 404 /\\.git
        RedirectMatch 301 ^/blog/([0-9]+)$ /posts/$1
        Redirect gone /never
        RequestHeader unset Proxy
        Header set X-Test all
        <Location /same>
            Header set X-Test same
        </Location>";
    let files = [
        "index.html",
        "../data/docs/a.txt",
        "../data/docs/private/a.txt",
        "../data/closed/a.txt",
        "app/static/a.txt",
        "new/a.txt",
        ".git/config",
    ];
    let pair = Original::apache(lines, &files);
    pair.same("/ /docs/a.txt /docs/private/a.txt /closed/a.txt /app/static/a.txt /app/x?y=z /app /same/a?b=c /same /apple");
    pair.same(
        "/old/x /old/x?a=b /gone/away/z?a /.git/config /blog/12 /never /never/x /app/admin/x",
    );
    for path in ["/docs/private/a.txt", "/closed/a.txt", "/app/admin/x", "/.git/config"] {
        for spelling in spellings(path) {
            pair.closed(&spelling);
        }
    }
}

#[test]
fn rules_of_a_server() {
    let lines = "RewriteEngine On
        RewriteCond %{HTTPS} on
        RewriteRule ^ /never.txt [L]
        RewriteRule ^/moved/(.*)$ /files/$1 [L]
        RewriteRule ^/files/secret - [F]
        RewriteRule ^/twice/(.*)$ /once/$1
        RewriteRule ^/once/(.*)$ /files/$1 [L]
        RewriteCond %{HTTP_USER_AGENT} BadBot [NC]
        RewriteRule . - [F,L]
        RewriteRule ^/gone - [G]
        RewriteRule ^/out/(.*)$ https://elsewhere.test/$1 [R=301,L]
        RewriteCond %{DOCUMENT_ROOT}%{REQUEST_URI} !-f
        RewriteCond %{DOCUMENT_ROOT}%{REQUEST_URI} !-d
        RewriteRule ^/app/ /files/front.txt [L]
        RewriteCond %{HTTP_HOST} ^www\\. [NC]
        RewriteRule ^(.*)$ http://example.test$1 [R=301,L]
        RewriteCond %{REQUEST_METHOD} ^(TRACE|DELETE)$
        RewriteRule .* - [F]
        <Directory ROOT/blog>
            RewriteEngine On
            RewriteBase /blog/
            RewriteRule ^index\\.php$ - [L]
            RewriteCond %{REQUEST_FILENAME} !-f
            RewriteCond %{REQUEST_FILENAME} !-d
            RewriteRule . /blog/index.php [L]
        </Directory>";
    let files = [
        "files/a.txt",
        "files/secret.txt",
        "files/front.txt",
        "once/a.txt",
        "app/there.txt",
        "a.txt",
        "blog/index.php",
        "blog/style.css",
        "gone.txt",
    ];
    let pair = Original::apache(lines, &files);
    pair.same("/moved/a.txt /files/a.txt /files/secret.txt /twice/a.txt /once/a.txt /gone /out/x /app/there.txt /app/none /a.txt");
    pair.same("/blog/style.css /blog/a/post?x=y /blog/index.php");
    // A refusal also holds for paths that rules lead to, where Apache has ended the rules.
    pair.refuses("/moved/secret.txt");
    for agent in ["BadBot/1", "badbot", "good"] {
        pair.same_answer(agent, &get("/a.txt").header("User-Agent", agent));
    }
    pair.same_answer("www", &Request::get("/a.txt?x=y").header("Host", "www.example.test"));
    for path in ["/files/secret.txt", "/gone"] {
        for spelling in spellings(path) {
            pair.closed(&spelling);
        }
    }
}

#[test]
fn listings_and_index_files() {
    let lines = "DirectoryIndex index.html index.php
        <Directory ROOT/listed>
            Options +Indexes
        </Directory>
        <Directory ROOT/listed/not>
            Options None
            Require all granted
        </Directory>
        <Directory ROOT/uploads>
            SetHandler none
        </Directory>
        ErrorDocument 404 /missing.html";
    let files = [
        "listed/a.txt",
        "listed/not/a.txt",
        "listed/php/index.php",
        "plain/a.txt",
        "uploads/a.txt",
        "uploads/evil.php",
        "missing.html",
    ];
    let pair = Original::apache(lines, &files);
    pair.same("/listed/a.txt /listed/php/ /listed/not/ /plain/ /uploads/a.txt /none");
    let [theirs, ours] = pair.ask(&get("/listed/"));
    assert!(theirs.text().contains("a.txt") && ours.text().contains("a.txt"));
    pair.refuses("/uploads/evil.php");
}

#[test]
fn what_cannot_be_expressed_refuses() {
    let lines = "<Directory ROOT/expr>
            Require expr \"%{HTTP_USER_AGENT} == 'good'\"
        </Directory>
        <Directory ROOT/env>
            Require env allowed
        </Directory>
        <Directory ROOT/group>
            AuthType Basic
            AuthName x
            AuthUserFile USERS
            Require group admins
        </Directory>
        <If \"%{REQUEST_URI} =~ m#^/if/#\">
            Require all denied
        </If>
        <Directory ROOT/limit>
            <LimitExcept GET>
                Require all denied
            </LimitExcept>
        </Directory>";
    let files = ["expr/a.txt", "env/a.txt", "group/a.txt", "if/a.txt", "limit/a.txt"];
    let pair = Original::apache(lines, &files);
    pair.closed("/expr/a.txt /env/a.txt /group/a.txt /if/a.txt");
    let post = Request::post("/limit/a.txt", "text/plain", "a=b").header("Host", "example.test");
    pair.closed_answer("POST", &post);
}

#[test]
fn wordpress_and_nextcloud() {
    let lines = "DirectoryIndex index.php index.html
        <Directory ROOT>
            Options FollowSymLinks
            AllowOverride None
            Require all granted
            RewriteEngine On
            RewriteBase /
            RewriteRule ^index\\.php$ - [L]
            RewriteCond %{REQUEST_FILENAME} !-f
            RewriteCond %{REQUEST_FILENAME} !-d
            RewriteRule . /index.php [L]
        </Directory>
        <Files xmlrpc.php>
            Require all denied
        </Files>
        <Directory ROOT/wp-content/uploads>
            <FilesMatch \"\\.(?i:php)$\">
                Require all denied
            </FilesMatch>
        </Directory>
        <LocationMatch \"^/(data|config|\\.ht)\">
            Require all denied
        </LocationMatch>
        <Location /wp-admin>
            Require local
        </Location>
        Redirect 301 /.well-known/carddav /remote.php/dav
        SetEnv APP_ENV production";
    let files = [
        "index.php",
        "wp-login.php",
        "xmlrpc.php",
        "wp-admin/index.php",
        "wp-content/uploads/a.php",
        "wp-content/uploads/a.jpg",
        "data/a.txt",
        "config/config.php",
        "style.css",
        "remote.php",
    ];
    let pair = Original::apache(lines, &files);
    pair.same("/ /wp-login.php /2026/a-post/?p=1 /style.css /xmlrpc.php /wp-admin/ /wp-admin/index.php?a=b /remote.php/dav");
    pair.same("/data/a.txt /config/config.php /wp-content/uploads/a.php /wp-content/uploads/a.jpg /.well-known/carddav");
    for path in ["/xmlrpc.php", "/data/a.txt", "/config/config.php", "/wp-content/uploads/a.php"] {
        for spelling in spellings(path) {
            pair.closed(&spelling);
        }
    }
}

#[test]
fn groups_that_no_expression_has_are_empty() {
    let lines = "RewriteEngine On
        RewriteRule ^/a$ /pub/$1a.txt
        RewriteRule !^/(pub|d|e) /pub/b$1.txt
        RewriteRule ^/d(.)$ /pub/$1$2.txt
        RedirectMatch ^/e/a$ /pub/$1a.txt?x";
    let pair = Original::apache(lines, &["pub/a.txt", "pub/b.txt", "d/a.txt", "e/a.txt"]);
    pair.same("/a /other /da /db /pub/b.txt");
}

#[test]
fn listed_folders_keep_their_own_path() {
    let lines = "DirectoryIndex index.html
        <Directory ROOT>
            Options Indexes FollowSymLinks
            AllowOverride All
        </Directory>
        <Location /closed/>
            Require all denied
        </Location>";
    let pair = Original::apache(lines, &["a/index.html", "b/a.txt", "closed/index.html"]);
    pair.same("/a/ /a /a/index.html /b/a.txt /closed/");
    assert!(!pair.config().contains("try_files"), "{}", pair.config());
}
