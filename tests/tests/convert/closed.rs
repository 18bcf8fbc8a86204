//! A refusal of nginx stays one, no matter which directives stand in front of the rule.

use sendoff_tests::Request;

use crate::original::Original;

/// The parameters of scripts.
const FASTCGI: &str = "include /etc/nginx/fastcgi.conf; fastcgi_pass PHP;";

fn get(target: &str) -> Request {
    Request::get(target).header("Host", "example.test")
}

#[test]
fn a_dollar_before_a_semicolon_hides_no_directive() {
    let lines = format!(
        "location ~ \\.php(/|$) {{ fastcgi_split_path_info ^(.+\\.php)(/.+)$; deny all; {FASTCGI} }}
        location /a/ {{ if ($http_user_agent !~ ^x$) {{ return 403; }} }}
        location /b/ {{ valid_referers ~x$; deny all; }}"
    );
    let pair = Original::start(&lines, &["x.php", "a/a.txt", "b/a.txt"]);
    pair.same("/x.php /x.php/more /b/a.txt");
    pair.closed("/x.php /x.php/more /b/a.txt /a/a.txt");
}

#[test]
fn internal_locations_refuse_clients_before_they_rewrite() {
    let lines = format!(
        "location /break/ {{ internal; rewrite ^/break/(.*)$ /files/$1 break; }}
        location /last/ {{ internal; rewrite ^/last/(.*)$ /files/$1 last; }}
        location /none/ {{ internal; rewrite ^/none/(.*)$ /files/$1; }}
        location /script/ {{ internal; rewrite ^ /x.php last; }}
        location /says/ {{ internal; return 200 hidden; }}
        location /moves/ {{ internal; return 302 /files/a.txt; }}
        location /if/ {{ internal; if ($arg_x) {{ return 200 hidden; }} rewrite ^/if/(.*)$ /files/$1; }}
        location /tries/ {{ internal; try_files /files$uri /files/a.txt =404; }}
        location /proxy/ {{ internal; rewrite ^/proxy/(.*)$ /$1 break; proxy_pass http://127.0.0.1:APP; }}
        location /other/ {{ internal; alias OUTSIDE/; }}
        location ~ ^/third/(.*)$ {{ internal; alias OUTSIDE/$1; }}
        location /outer/ {{ internal; location /outer/inner/ {{ }} location ~ \\.css$ {{ }} }}
        location ~ \\.php$ {{ {FASTCGI} }}
        location ^~ /scripts/ {{ internal; {FASTCGI} }}"
    );
    let files = [
        "files/a.txt",
        "x.php",
        "other/a.txt",
        "outer/a.txt",
        "outer/a.css",
        "outer/inner/a.txt",
        "scripts/x.php",
        "../data/a.txt",
    ];
    let pair = Original::start(&lines, &files);
    for folder in ["break", "last", "none", "script", "says", "moves", "if", "tries", "proxy"] {
        pair.same(&format!("/{folder}/a.txt /{folder}/a.txt?x=1 /{folder}/"));
    }
    pair.same("/other/a.txt /third/a.txt /outer/a.txt /outer/a.css /outer/inner/a.txt");
    pair.same("/scripts/x.php /scripts/ /files/a.txt /x.php");
}

#[test]
fn internal_locations_answer_for_requests_that_are_led_to_them() {
    let lines = format!(
        "error_page 404 /missing.html;
        location = /missing.html {{ internal; }}
        location /public/ {{ rewrite ^/public/(.*)$ /store/$1 last; }}
        location /store/ {{ internal; }}
        location / {{ try_files $uri /index.php$is_args$args; }}
        location ~ ^/index\\.php(/|$) {{ internal; {FASTCGI} }}
        location ~ \\.php$ {{ return 404; }}"
    );
    let pair = Original::start(&lines, &["missing.html", "store/a.txt", "index.php", "a.txt"]);
    pair.same("/a.txt /page?a=b /index.php /index.php/x /store/a.txt /missing.html");
    pair.same("/public/a.txt /public/none");
}

#[test]
fn a_location_for_files_runs_no_script() {
    let lines = "location ~* \\.(css|js)$ { expires 30d; }
        location ~ ^/uploads/ { }
        location = /index.php { include /etc/nginx/fastcgi.conf; fastcgi_pass PHP; }
        location / { try_files $uri $uri/ =404; }";
    let pair = Original::start(lines, &["uploads/evil.php", "evil.php", "a.css", "index.php"]);
    pair.same("/evil.php/x.css /uploads/evil.php/x.css /evil.php/x.js /a.css /index.php");
    pair.refuses("/uploads/evil.php/x");
    pair.refuses("/uploads/evil.php");
    pair.refuses("/evil.php");
}

#[test]
fn conditions_hold_for_what_is_absent() {
    let lines = "location /key/ { if ($http_x_key = \"\") { return 403; } }
        location /auth/ { if ($http_authorization = '') { return 403; } }
        location /cookie/ { if ($http_cookie = \"\") { return 403; } }
        location /cookies/ { if ($http_cookie ~ \"^$|bad\") { return 403; } }
        location /referer/ { if ($http_referer = \"\") { return 403; } }
        location /agent/ { if ($http_user_agent ~* \"^$|badbot\") { return 403; } }
        location /some/ { if ($http_x_key != \"\") { return 403; } }
        location /other/ { if ($http_x_key !~ \"^$|^good$\") { return 403; } }
        location /true/ { if ($http_x_key) { return 403; } }
        location /not/ { if ($http_x_key != good) { return 403; } }";
    let folders =
        ["key", "auth", "cookie", "cookies", "referer", "agent", "some", "other", "true", "not"];
    let files: Vec<_> = folders.iter().map(|folder| format!("{folder}/a.txt")).collect();
    let pair = Original::start(lines, &files.iter().map(String::as_str).collect::<Vec<_>>());
    let fields = [
        None,
        Some(("X-Key", "")),
        Some(("X-Key", "0")),
        Some(("X-Key", "good")),
        Some(("X-Key", "bad")),
        Some(("Authorization", "Basic x")),
        Some(("Cookie", "")),
        Some(("Cookie", "a=1")),
        Some(("Cookie", "bad=1")),
        Some(("Referer", "http://a.org/")),
        Some(("User-Agent", "")),
        Some(("User-Agent", "BadBot/1")),
        Some(("User-Agent", "good")),
    ];
    for folder in folders {
        for field in fields {
            let mut request = get(&format!("/{folder}/a.txt"));
            if let Some((name, value)) = field {
                request = request.header(name, value);
            }
            match folder {
                "cookies" => pair.closed_answer(&format!("{folder} {field:?}"), &request),
                _ => pair.same_answer(&format!("{folder} {field:?}"), &request),
            }
        }
    }
}

#[test]
fn conditions_about_arguments_refuse_what_nginx_refuses() {
    let lines = "location /token/ { if ($arg_token = \"\") { return 403; } }
        location /value/ { if ($arg_k != \"x\") { return 403; } }
        location /is/ { if ($arg_k = x) { return 403; } }
        location /true/ { if ($arg_k) { return 403; } }
        location /moves/ { if ($arg_k) { return 302 /true/; } }";
    let pair = Original::start(
        lines,
        &["token/a.txt", "value/a.txt", "is/a.txt", "true/a.txt", "moves/a.txt"],
    );
    for query in
        ["", "?k", "?k=", "?k=0", "?k=x", "?K=x", "?k=%78", "?k=y&k=x", "?token=", "?a&K=x"]
    {
        for folder in ["token", "value", "is", "true"] {
            pair.closed(&format!("/{folder}/a.txt{query}"));
        }
    }
    pair.same("/moves/a.txt /moves/a.txt?k /moves/a.txt?k= /moves/a.txt?k=0 /moves/a.txt?k=1");
}

#[test]
fn a_host_is_compared_without_its_port_and_in_small_letters() {
    let lines = "if ($host = internal.test) { return 403; }
        if ($host ~ ^old) { return 403; }
        if ($host ~ \\.lan$) { return 403; }
        location /one/ { if ($host != example.test) { return 403; } }
        location /raw/ { if ($http_host != example.test) { return 403; } }";
    let pair = Original::start(lines, &["a.txt", "one/a.txt", "raw/a.txt"]);
    for host in [
        "internal.test",
        "INTERNAL.test",
        "internal.test.",
        "internal.test:80",
        "old.test",
        "OLD.test:1",
        "a.lan",
        "a.LAN:80",
        "a.lan.",
        "example.test",
        "EXAMPLE.test:80",
    ] {
        for path in ["/a.txt", "/one/a.txt", "/raw/a.txt"] {
            let request = Request::get(path).header("Host", host);
            pair.closed_answer(&format!("{host} {path}"), &request);
        }
    }
    pair.same("/a.txt /one/a.txt /raw/a.txt");
}

#[test]
fn limits_of_methods_precede_rewriting() {
    let lines = format!(
        "location /a/ {{ limit_except GET {{ deny all; }} rewrite ^ /x.php last; }}
        location /b/ {{ limit_except GET {{ deny all; }} return 200 b; }}
        location /c/ {{ limit_except GET {{ deny all; }} if ($arg_x) {{ return 200 c; }} }}
        location ~ \\.php$ {{ {FASTCGI} }}"
    );
    let pair = Original::start(&lines, &["x.php", "c/a.txt"]);
    for target in ["/a/x", "/b/x", "/c/a.txt?x=1"] {
        let request = Request::post(target, "text/plain", "a=b").header("Host", "example.test");
        pair.closed_answer(&format!("POST {target}"), &request);
    }
}

#[test]
fn only_scripts_of_a_location_for_scripts_are_reached() {
    let lines = format!(
        "location ^~ /admin/ {{ {FASTCGI} }}
        location ^~ /rewritten/ {{ rewrite ^/rewritten/(.*)$ /admin/$1 break; {FASTCGI} }}
        location = /exact {{ {FASTCGI} }}
        location ~ ^/some/ {{ {FASTCGI} }}
        location ^~ /folder/ {{ index index.html; {FASTCGI} }}"
    );
    let files = [
        "admin/a.txt",
        "admin/x.php",
        "admin/index.html",
        "exact",
        "some/a.txt",
        "some/x.php",
        "folder/index.html",
    ];
    let pair = Original::start(&lines, &files);
    pair.same("/admin/a.txt /admin/x.php /admin/x.php?a=b /exact /some/a.txt /some/x.php");
    pair.closed("/rewritten/a.txt /rewritten/x.php /admin/ /folder/ /some/ /admin/a.txt/x.php");
    pair.closed("/admin/none /admin/none.php /admin/x.php/a.txt");
}

#[test]
fn paths_without_a_file_are_refused_even_if_a_folder_is_there() {
    let lines = "location /a/ { if (!-f $request_filename) { return 403; } }
        location /b/ { if (!-e $request_filename) { return 403; } }
        location = /c/ { if (!-f $request_filename) { return 404; } }";
    let files = ["a/index.html", "a/a.txt", "a/sub/index.html", "b/index.html", "c/index.html"];
    let pair = Original::start(lines, &files);
    pair.same("/a/ /a/a.txt /a/sub /a/sub/ /a/none /b/ /b/none /c/");
}

#[test]
fn a_rewrite_in_front_of_a_refusal_opens_nothing() {
    let lines = "location /a/ { rewrite ^/a/(.*)$ /files/$1; return 403; }
        location /b/ { rewrite ^/b/(.*)$ /files/$1; if ($http_x_key = \"\") { return 403; } }
        location /c/ { if ($http_x_key = \"\") { rewrite ^/c/(.*)$ /files/$1; return 403; } }";
    let pair = Original::start(lines, &["files/a.txt"]);
    pair.same("/a/a.txt /b/a.txt /c/a.txt");
    for path in ["/b/a.txt", "/c/a.txt"] {
        pair.same_answer(path, &get(path).header("X-Key", "x"));
    }
}

#[test]
fn an_expression_for_a_host_ends_where_the_name_ends() {
    let lines = "location /any/ { if ($host ~ ^a.+$) { return 204; } return 403; }
        location /set/ { if ($host ~ ^[^b]+8) { return 204; } return 403; }
        location /group/ { if ($host ~* ^(?:a|b)\\.test$) { return 204; } return 403; }
        location /not/ { if ($host !~ ^(a|b)\\.test$) { return 403; } return 204; }
        location /isnt/ { if ($host != a.test) { return 403; } return 204; }
        location /port/ { if ($host ~ 80) { return 204; } return 403; }";
    let pair = Original::start(lines, &[]);
    for host in ["a", "a.test", "b.test", "c.test", "a8", "a80.test"] {
        for behind in ["", ".", ":80", ".:8080"] {
            for path in ["/any/", "/set/", "/group/", "/not/", "/isnt/", "/port/"] {
                let field = format!("{host}{behind}");
                let request = Request::get(path).header("Host", &field);
                pair.same_answer(&format!("{field} {path}"), &request);
            }
        }
    }
}

#[test]
fn fields_that_disagree_open_nothing() {
    // Two equal fields are refused where only the value opens: applications, and nginx from 1.23 on,
    // read `good, good`.
    let lines = "location /is/ { if ($http_x_token = good) { return 204; } return 403; }
        location /isnt/ { if ($http_x_token !~ bad) { return 204; } return 403; }
        location /other/ { if ($http_x_token != good) { return 403; } return 204; }";
    let pair = Original::start(lines, &[]);
    for path in ["/is/", "/isnt/", "/other/"] {
        for values in [&[][..], &["good"], &["bad"], &["other"]] {
            let request =
                values.iter().fold(get(path), |request, value| request.header("X-Token", value));
            pair.same_answer(&format!("{path} {values:?}"), &request);
        }
        for values in [["bad", "good"], ["good", "bad"], ["other", "bad"], ["bad", "other"]] {
            let request =
                values.iter().fold(get(path), |request, value| request.header("X-Token", value));
            pair.closed_answer(&format!("{path} {values:?}"), &request);
        }
    }
}

#[test]
fn rules_about_a_folder_come_before_its_index_script() {
    let lines = "index index.php;
        location / { try_files $uri $uri/ =404; }
        location = / { auth_basic x; auth_basic_user_file USERS; }
        location /admin/ { auth_basic x; auth_basic_user_file USERS; }
        location /lan/ { allow 10.0.0.0/8; deny all; }
        location = /exact/ { deny all; }
        location ~ \\.php$ { include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_pass PHP; }";
    let files = ["index.php", "admin/index.php", "admin/a.txt", "lan/index.php", "exact/index.php"];
    let pair = Original::start(lines, &files);
    for target in ["/", "/admin/", "/admin/a.txt", "/lan/", "/exact/"] {
        pair.same_answer(target, &get(target));
        pair.closed(target);
    }
}
