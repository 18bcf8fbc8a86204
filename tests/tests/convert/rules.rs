//! The rules of nginx's configuration: what a block inherits, which comes first, who may ask.

use sendoff_tests::Request;

use crate::original::Original;

/// The number of random lists of access rules.
const LISTS: usize = 60;

#[test]
fn random_lists_of_access_rules() {
    const NETWORKS: [&str; 7] =
        ["all", "127.0.0.1", "127.0.0.0/8", "127.0.0.0/24", "127.1.0.0/16", "0.0.0.0/0", "::1"];
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let lists: String = (0..LISTS)
        .map(|number| {
            let rules: String = (0..1 + random(4))
                .map(|_| format!("{} {}; ", ["allow", "deny"][random(2)], NETWORKS[random(7)]))
                .collect();
            format!("location /{number}/ {{ {rules} }}\n")
        })
        .collect();
    let files: Vec<_> = (0..LISTS).map(|number| format!("{number}/a.txt")).collect();
    let pair = Original::start(&lists, &files.iter().map(String::as_str).collect::<Vec<_>>());
    for number in 0..LISTS {
        pair.same(&format!("/{number}/a.txt"));
    }
}

#[test]
fn rules_are_inherited_only_by_a_block_that_has_none() {
    let lines = "add_header X-Test server;
        deny 127.0.0.0/8;
        location /inherits/ { }
        location /replaces/ { add_header X-Test location; add_header X-Test twice; allow all; }
        location /outer/ { add_header X-Test outer; allow 127.0.0.1; deny all; location /outer/inner/ { expires 1h; } }";
    let files = ["inherits/a.txt", "replaces/a.txt", "outer/a.txt", "outer/inner/a.txt", "a.txt"];
    let pair = Original::start(lines, &files);
    pair.same("/a.txt /inherits/a.txt /replaces/a.txt /outer/a.txt /outer/inner/a.txt");
}

#[test]
fn passwords() {
    let lines = "auth_basic server; auth_basic_user_file USERS;
        location /open/ { auth_basic off; }
        location /closed/ { auth_basic closed; }
        location /any/ { satisfy any; deny all; }
        location /both/ { deny all; }
        location /either/ { satisfy any; allow all; }
        location /moved/ { return 301 /open/; }
        location /gone/ { rewrite ^/gone/(.*)$ /open/$1 last; }
        location = /check { if ($arg_a = b) { return 410; } return 404; }";
    let files = ["open/a.txt", "closed/a.txt", "any/a.txt", "both/a.txt", "either/a.txt", "a.txt"];
    let pair = Original::start(lines, &files);
    pair.same("/a.txt /open/a.txt /closed/a.txt /any/a.txt /both/a.txt /either/a.txt");
    // Rewriting comes before access.
    pair.same("/moved/a /gone/a.txt /check /check?a=b");
}

#[test]
fn a_return_of_the_server_precedes_access() {
    let lines = "deny all; if ($arg_move) { return 302 /elsewhere; } location / { }";
    let pair = Original::start(lines, &["a.txt"]);
    pair.same("/a.txt /a.txt?move=1");
}

#[test]
fn rewriting_in_locations() {
    let lines = "location /last/ { rewrite ^/last/(.*)$ /files/$1 last; return 403; }
        location /break/ { rewrite ^/break/(.*)$ /files/$1 break; return 403; }
        location /api/ { rewrite ^/api/(.*)$ /v2/$1 break; proxy_set_header Host $host; proxy_pass http://127.0.0.1:APP; }
        location /args/ { rewrite ^/args/(.*)$ /files/a.txt?x=$1 break; proxy_pass http://127.0.0.1:APP; }
        location /closed/ { deny all; rewrite ^/closed/(.*)$ /files/$1 break; }
        location /open/ { rewrite ^/open/a/(.*)$ /files/$1 break; rewrite ^/open/b/(.*)$ /files/$1 last; }
        location /files/ { add_header X-Test files; }
        location /moved/ { rewrite ^/moved/(.*)$ /files/$1 permanent; }";
    let pair = Original::start(lines, &["files/a.txt", "files/b.txt", "open/c.txt"]);
    pair.same("/last/a.txt /last/none /break/a.txt /break/none /api/ /api/x/y?a=b /args/z?q=r");
    pair.same("/closed/a.txt /open/a/a.txt /open/b/b.txt /open/c.txt /open/none /moved/a.txt?a=b");
}

#[test]
fn fields_of_requests() {
    let lines = "proxy_set_header X-Request-Start server;
        location /inherits/ { proxy_pass http://127.0.0.1:APP; }
        location /replaces/ { proxy_set_header Host $host; proxy_pass http://127.0.0.1:APP; }
        location /nested/ { proxy_set_header X-Request-Start outer; proxy_pass http://127.0.0.1:APP; location /nested/a/ { proxy_pass http://127.0.0.1:APP; } }";
    let pair = Original::start(lines, &[]);
    pair.same("/inherits/a /replaces/a /nested/x /nested/a/x");
}

#[test]
fn tables_of_values() {
    let http = r#"map $http_accept_language $language { default en; ~*^de de; ~^(f)(r) $2$1; "" none; Klingon tlh; }
        map $cookie_version $version { beta new; }
        map $host $shop { hostnames; default other; *.shop.test shop; .one.test one; exact.shop.test exact; ~^x\. expression; }
        map $uri $moved { default /; /moved/a /files/a; ~^/moved/(?:b|c)/(.*)$ /files/$1; }
        map $uri $renamed { /gone/a /files/a; ~^/gone/b/(.*)$ /files/$1; }
        map $request_method $method { default some; GET get; }
        geo $zone { default outside; 127.0.0.0/8 near; 127.0.0.1 here; 10.0.0.0/8 far; }"#;
    let lines = "add_header X-Test \"$version $shop $method $zone\";
        add_header X-Frame-Options $version;
        location = /language { return 302 /$language/; }
        location /moved/ { return 301 $moved; }
        location /app/ { proxy_set_header Host $host; proxy_set_header X-Request-Start $language; proxy_pass http://127.0.0.1:APP; }
        location /near/ { if ($zone = far) { return 403; } if ($zone = here) { return 302 /here/; } }
        location /far/ { if ($zone != far) { return 403; } }
        location /write/ { if ($method ~ ^so) { return 405; } }
        location /gone/ { if ($renamed) { return 302 $renamed; } if ($renamed = \"\") { return 302 /none/; } }
        location /text { return 200 \"$language$version\"; }";
    let pair =
        Original::start_with(http, lines, &["a.txt", "write/a.txt", "near/a.txt", "far/a.txt"]);
    let hosts = [
        "example.test",
        "a.shop.test",
        "shop.test",
        "exact.shop.test",
        "one.test",
        "a.b.one.test",
        "X.y",
        "exact.shop.test:80",
    ];
    for host in hosts {
        pair.same_answer(host, &Request::get("/a.txt").header("Host", host));
    }
    for language in ["de", "DE-at", "fr", "Fr", "klingon", "klingon ", "xde", "en"] {
        for target in ["/language", "/app/x", "/text"] {
            let request = Request::get(target).header("Accept-Language", language);
            pair.same_answer(language, &request.header("Host", "example.test"));
        }
    }
    for cookie in ["version=beta", "version=BETA", "a=b; version=beta", "version=other"] {
        let request = Request::get("/text").header("Cookie", cookie);
        pair.same_answer(cookie, &request.header("Host", "example.test"));
        let request = Request::get("/a.txt").header("Cookie", cookie);
        pair.same_answer(cookie, &request.header("Host", "example.test"));
    }
    pair.same("/language /text /moved/a /moved/A /moved/b/x/y /moved/c/ /moved/d /app/");
    pair.same("/near/a.txt /far/a.txt /gone/a /gone/b/c /gone/c /write/a.txt");
    let post = Request::post("/write/a.txt", "text/plain", "a").header("Host", "example.test");
    pair.same_answer("POST /write/a.txt", &post);
}

#[test]
fn parameters_of_scripts() {
    let own = "include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;";
    let lines = format!(
        "{own} fastcgi_param APP_ENV server;
        location ~ ^/a/.*\\.php$ {{ fastcgi_pass PHP; }}
        location ~ ^/b/.*\\.php$ {{ {own} fastcgi_param APP_ENV location; fastcgi_pass PHP; }}
        location ~ ^/c/.*\\.php$ {{ {own} fastcgi_pass PHP; }}"
    );
    let pair = Original::start(&lines, &["a/x.php", "b/x.php", "c/x.php"]);
    pair.same("/a/x.php /b/x.php?q=1 /c/x.php");
}

#[test]
fn roots_of_nested_locations() {
    let lines = "index index.html;
        location /data { root OUTSIDE; location ~ ^/data/(.+\\.txt)$ { root OUTSIDE; expires 1h; } location ~ \\.php$ { fastcgi_pass PHP; include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $request_filename; } }
        location /alias/ { alias OUTSIDE/data/; }
        location ~ ^/data/(.+\\.css)$ { root OUTSIDE; }";
    let pair = Original::start(lines, &["index.html", "../data/data/a.txt"]);
    pair.same("/ /data/a.txt /data/none.txt /alias/a.txt /data/ /data");
}

#[test]
fn post_requests_through_try_files() {
    let lines = "index index.php index.html;
        location / { try_files $uri $uri/ /index.php?$query_string; }
        location ~ \\.php$ { include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_pass PHP; }";
    let pair =
        Original::start(lines, &["index.php", "a.txt", "folder/index.php", "plain/index.html"]);
    for target in [
        "/",
        "/folder",
        "/folder/",
        "/page",
        "/page/more?a=b",
        "/folder/index.php",
        "/plain",
        "/index.php",
    ] {
        let request = Request::post(target, "text/plain", "a=b").header("Host", "example.test");
        pair.same_answer(&format!("POST {target}"), &request);
    }
}
