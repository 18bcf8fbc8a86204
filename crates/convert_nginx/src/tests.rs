//! Single directives, without files.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use sendoff_convert_document::{Conversion, Files, OneFile};

use crate::convert;

/// Converts a server with these lines. The result must be readable by Sendoff.
#[track_caller]
fn server(lines: &str) -> Conversion {
    let text = format!("server {{\nroot /srv;\n{lines}\n}}\n");
    let converted = convert(Path::new("a.conf"), &OneFile(text)).unwrap();
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
        "if ($cookie_key != secret) { return 302 /login; }",
        "if ($remote_addr != 10.0.0.1) { rewrite ^ /login redirect; }",
        "return 302 $nowhere;",
        "limit_except GET { deny all; }",
        "location ~ ^/(a)/\\1 { deny all; }",
        "auth_ldap \"Staff\";",
        "auth_oidc idp;",
        "modsecurity on;",
        "SecRulesEnabled;",
        "shib_request /authorizer;",
        "app_protect_enable on;",
        "server_rewrite_by_lua_file a.lua;",
    ] {
        let converted = server(&format!("location /a/ {{ {rule} }}"));
        assert!(converted.text.contains("deny = true"), "{}", converted.text);
        assert!(converted.left_out > 0, "{}", converted.text);
    }
    let off = server("location /a/ { modsecurity off; proxy_ssl_verify on; }");
    assert!(!off.text.contains("deny"), "{}", off.text);
    // nginx refuses before its `return` answers.
    let revoked = server(
        "ssl_verify_client on; ssl_client_certificate /ca.pem; ssl_crl /crl.pem; location = /a { return 200 a; }",
    );
    let (deny, answer) = (revoked.text.find("deny = true"), revoked.text.find("respond"));
    assert!(
        deny.is_some() && answer.is_none_or(|answer| deny.unwrap() < answer),
        "{}",
        revoked.text
    );
    has("location /a/ { allow 10.0.0.0/8; deny all; }", "allow_from = \"10.0.0.0/8\"");
    has("location /a/ { deny 10.1.0.0/16; allow all; }", "deny_from = \"10.1.0.0/16\"");
}

#[test]
fn questions_that_a_service_would_not_get_refuse() {
    let asks = |fields: &str| {
        format!(
            "location = /v {{ {fields} proxy_pass http://127.0.0.1:1/x; }} location /a/ {{ auth_request /v; }}"
        )
    };
    has(&asks(""), "authorize = { url = \"http://127.0.0.1:1/x\", host = \"upstream\" }");
    has(&asks("proxy_set_header Host $host;"), "authorize = { url = \"http://127.0.0.1:1/x\" }");
    for fields in [
        "proxy_set_header X-Group admins;",
        "proxy_set_header X-Original-URI /fixed;",
        "proxy_set_header Cookie '';",
        "proxy_pass_request_headers off;",
        "rewrite ^ /y break;",
    ] {
        has(&asks(fields), "match = '^/a/'\ndeny = true");
    }
    // nginx chooses the expression.
    let lines = "location /v { proxy_pass http://127.0.0.1:1; } location ~ v { return 403; } location /a/ { auth_request /v; }";
    has(lines, "match = '^(?!.*?v)/a/'\ndeny = true");
}

#[test]
fn a_client_cannot_name_what_a_service_names() {
    let of = |lines: &str| {
        format!(
            "location = /v {{ proxy_pass http://127.0.0.1:1; }} location /a/ {{ auth_request /v; auth_request_set $u $upstream_http_x_user; {lines} }}"
        )
    };
    has(
        &of("proxy_pass http://127.0.0.1:2; proxy_set_header X-User $u;"),
        "copy_headers = [\"X-User\"]",
    );
    has(&of("fastcgi_pass 127.0.0.1:2; fastcgi_param REMOTE_USER $u;"), "user = \"x-user\"");
    has(
        &of("fastcgi_pass 127.0.0.1:2; fastcgi_param HTTP_X_USER $u;"),
        "copy_headers = [\"X-USER\"]",
    );
    let other = of("proxy_pass http://127.0.0.1:2; proxy_set_header X-Other $u;");
    has(&other, "request_headers = { X-Other = false }");
    let unknown =
        "location /a/ { proxy_pass http://127.0.0.1:2; proxy_set_header X-User $unknown; }";
    has(unknown, "request_headers = { X-User = false }");
}

/// A configuration with an upstream of these lines.
fn upstream(lines: &str) -> String {
    let text = format!(
        "upstream up {{ server a:1; server b:2; {lines} }} server {{ location / {{ proxy_pass http://up; }} }}"
    );
    let converted = convert(Path::new("a.conf"), &OneFile(text)).unwrap();
    assert!(sendoff_settings::read_text(&converted.text).is_some(), "{}", converted.text);
    converted.text
}

#[test]
fn the_choice_of_a_host() {
    for (lines, expected) in [
        ("ip_hash;", "balance = \"client\""),
        ("hash $uri consistent;", "balance = \"path\""),
        ("hash $cookie_id;", "balance = \"cookie:id\""),
        ("hash $http_x_a;", "balance = \"header:x-a\""),
        ("hash $geoip_city;", "# a.conf:1: hash $geoip_city has no equal"),
        ("sticky cookie srv path=/ httponly;", "sticky = \"srv\""),
        ("sticky cookie srv domain=.a.org;", "# a.conf:1: sticky ... domain=.a.org has no equal"),
        ("sticky route $a;", "# a.conf:1: sticky route $a has no equal"),
    ] {
        let text = upstream(lines);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_field_with_the_address_of_a_client() {
    let of = |lines: &str| {
        let text = format!("http {{ {lines} server {{ root /srv; allow 10.0.0.1; deny all; }} }}");
        let converted = convert(Path::new("a.conf"), &OneFile(text)).unwrap();
        assert!(sendoff_settings::read_text(&converted.text).is_some(), "{}", converted.text);
        converted.text
    };
    let trusted = "set_real_ip_from 10.9.0.0/16;";
    // nginx's default.
    assert!(of(trusted).contains("proxy_field = \"X-Real-IP\""));
    let cdn = of(&format!("{trusted} real_ip_header CF-Connecting-IP;"));
    assert!(cdn.contains("proxy_field = \"CF-Connecting-IP\""), "{cdn}");
    let forwarded = of(&format!("{trusted} real_ip_header X-Forwarded-For;"));
    assert!(forwarded.contains("proxy_field = \"X-Forwarded-For last\""), "{forwarded}");
    let recursive = of(&format!("{trusted} real_ip_header X-Forwarded-For; real_ip_recursive on;"));
    assert!(recursive.contains("proxy_field = \"X-Forwarded-For alone\""), "{recursive}");
    has(&format!("{trusted} allow 10.0.0.1; deny all;"), "deny = true");
}

#[test]
fn an_unknown_directive_is_named_with_its_line() {
    let converted = server("proxy_cache_lock on;\nlocation /a { proxy_pass http://127.0.0.1:1; }");
    assert!(converted.text.contains("# a.conf:3: proxy_cache_lock on has no equal here"));
    assert_eq!(converted.left_out, 1);
    assert_eq!(server("tcp_nopush on;").left_out, 0);
}

#[test]
fn expressions_of_any_letters() {
    has("location ~ \\.(jp\u{e9}?g|png)$ { expires max; }", "match = '\\.(jp\u{e9}?g|png)$'");
}

#[test]
fn addresses_and_hosts() {
    has("listen 80;", "listen = \"0.0.0.0:80\"");
    has("listen 80; listen [::]:80;", "listen = \"80\"");
    has("server_name .a.org;", "hosts = [\"a.org\", \"*.a.org\"]");
    // A site without hosts would answer for every host.
    has("server_name ~^a;", "hosts = \"no-host.invalid\"");
    // Two servers on one line, and none of them has a name.
    let text = "server { listen 80; root /a; } server { listen 80; root /b; } server { root /c; }";
    let made = convert(Path::new("a.conf"), &OneFile(text.to_owned())).unwrap().text;
    assert!(made.contains("hosts = \"1.no-host.invalid\"\nlisten = \"0.0.0.0:80\"\nroot = \"/b\""));
    assert!(made.contains("hosts = \"2.no-host.invalid\""), "{made}");
}

#[test]
fn a_dollar_ends_no_word_early_and_hides_no_directive() {
    has("server_name ~^x$; deny all;", "deny = true");
    has("location /a { set $x ${host}; rewrite ^ /${x}$; deny all; }", "deny = true");
    let script =
        "location /a { content_by_lua_block { say('{') -- }\n say([[}]]) --[[ { ]] } deny all; }";
    has(script, "deny = true");
}

#[test]
fn applications() {
    has(
        "location /a/ { proxy_pass http://127.0.0.1:81/b/; }",
        "match = '^/a/(.*)$'\nrewrite = \"/b/$1\"",
    );
    has("location / { proxy_pass http://127.0.0.1:81; }", "host = \"upstream\"");
    has("location / { grpc_pass grpc://127.0.0.1:81; }", "h2://127.0.0.1:81");
    has("location / { uwsgi_pass unix:/run/a.sock; }", "uwsgi://unix:/run/a.sock");
    has("location / { scgi_pass 127.0.0.1:81; }", "scgi://127.0.0.1:81");
    has("location / { uwsgi_pass suwsgi://127.0.0.1:81; }", "deny = true");
}

#[test]
fn php_fpm_is_known_by_the_scripts_that_it_gets() {
    let of = |location: &str| {
        format!("location {location} {{ include x.conf; fastcgi_pass unix:/run/www.sock; }}")
            .replace("include x.conf;", "fastcgi_param SCRIPT_FILENAME $request_filename;")
    };
    has(&of("~ \\.php$"), "pool = \"www\"");
    has(&format!("{} {}", of("~ \\.php$"), of("/admin/")), "(?!.*\\.php(?:/|$))(?!.*/$)'\ndeny");
    has("location /a/ { fastcgi_pass unix:/run/www.sock; fastcgi_index i.php; }", "pool = \"www\"");
    // Another application gets the name of the file at the path, too; check knows no internal
    // route for it.
    has(
        &of("/cgi/"),
        "params = { SCRIPT_FILENAME = \"/srv$path\" }\nfastcgi = \"unix:/run/www.sock\"",
    );
    let internal = server("location /cgi/ { internal; fastcgi_pass unix:/run/a.sock; }").text;
    assert!(internal.contains("try_files = \"=404\"") && !internal.contains("internal = true"));
}

#[test]
fn rules_of_a_named_location_precede_its_application() {
    let named = "location @a { proxy_pass http://127.0.0.1:1; if ($bad) { return 403; } }";
    let text = server(&format!("location / {{ try_files $uri @a; }} {named}")).text;
    assert!(text.find("deny = true") < text.find("proxy = "), "{text}");
}

#[test]
fn urls_in_responses_of_applications() {
    let of = |lines: &str| format!("location /a/ {{ proxy_pass http://127.0.0.1:81/b/; {lines} }}");
    has(&of(""), "redirects = { \"http://127.0.0.1:81/b/\" = \"/a/\" }");
    has("location /a/ { proxy_pass http://127.0.0.1:81; proxy_redirect off; }", "redirects = {  }");
    has(&of("proxy_redirect http://x.lan/ https://$host/c/;"), "\"http://x.lan/\" = \"/c/\"");
    has(&of("proxy_redirect default; proxy_redirect /x/ /y/;"), "\"/x/\" = \"/y/\"");
    has(&of("proxy_redirect ~^/x /y;"), "# a.conf:3: proxy_redirect ~^/x /y has no equal");
    has(&of("proxy_cookie_path /b/ /a/;"), "cookie_paths = { \"/b/\" = \"/a/\" }");
    has(&of("proxy_cookie_path / \"/; Secure\";"), "# a.conf:3: proxy_cookie_path / /; Secure has");
    has(&of("proxy_cookie_domain .x.lan a.org;"), "cookie_domains = { \"x.lan\" = \"a.org\" }");
    has(&of("proxy_cookie_domain x.lan $host;"), "# a.conf:3: proxy_cookie_domain x.lan $host has");
}

#[test]
fn mistakes_have_a_place() {
    for (text, says) in [
        ("server {\nlisten 80;", "a.conf:1: the block that begins here has no end"),
        ("server {\nlisten 80 }", "a.conf:2: a ; is missing behind listen"),
        ("server { listen \"80; }", "a.conf:1: a quotation mark is not closed"),
        ("server { include a.conf; listen 80; }", "a.conf:1: a.conf includes itself"),
        ("http { } http { }", "a.conf:1: a second http block"),
        ("events { }", "a.conf:1: no server block"),
    ] {
        let error = convert(Path::new("a.conf"), &OneFile(text.to_owned())).unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
    }
}

/// One file that includes others, which do not exist.
struct Alone(&'static str);

impl Files for Alone {
    fn read(&self, path: &Path) -> io::Result<String> {
        match path == Path::new("/etc/nginx/a.conf") {
            true => Ok(self.0.to_owned()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn matching(&self, _: &Path) -> Vec<PathBuf> {
        Vec::new()
    }
}

#[test]
fn a_missing_file_has_a_place_and_a_pattern_may_match_nothing() {
    let path = Path::new("/etc/nginx/a.conf");
    let missing = convert(path, &Alone("server {\n\ninclude b.conf; }")).unwrap_err();
    let expected = "/etc/nginx/a.conf:3: /etc/nginx/b.conf: ";
    assert!(missing.to_string().starts_with(expected), "{missing}");
    assert!(convert(path, &Alone("server { include conf.d/*.conf; }")).is_ok());
}

#[test]
fn too_much_is_an_error() {
    let directives = format!("server {{ {} }}", "allow all; ".repeat(20_001));
    let error = convert(Path::new("a.conf"), &OneFile(directives)).unwrap_err();
    assert!(error.to_string().contains("more than 20000 directives"), "{error}");
    let blocks = "a {".repeat(40);
    let error = convert(Path::new("a.conf"), &OneFile(blocks)).unwrap_err();
    assert!(error.to_string().contains("nested too deeply"), "{error}");
}

#[test]
fn a_comment_cannot_become_a_key() {
    let converted = server("unknown_one \"a\n[[site]]\nb\";");
    assert!(!converted.text.contains("\n[[site]]\nb"), "{}", converted.text);
}

/// The levels of a configuration at which a directive may stand.
const LEVELS: [&str; 5] = ["main", "http", "server", "location", "if"];

/// Sources with the names of directives.
const SOURCES: [&str; 20] = [
    include_str!("access.rs"),
    include_str!("addresses.rs"),
    include_str!("answer.rs"),
    include_str!("authorize.rs"),
    include_str!("effect.rs"),
    include_str!("folder.rs"),
    include_str!("http.rs"),
    include_str!("known.rs"),
    include_str!("listen.rs"),
    include_str!("location.rs"),
    include_str!("named.rs"),
    include_str!("proxy.rs"),
    include_str!("public.rs"),
    include_str!("rewrite.rs"),
    include_str!("rules.rs"),
    include_str!("site.rs"),
    include_str!("tls.rs"),
    include_str!("tree.rs"),
    include_str!("tries.rs"),
    include_str!("upstream.rs"),
];

/// All words in quotation marks that may be names of directives. Those that are none must leave a
/// trace, too.
fn names() -> BTreeSet<&'static str> {
    let words = SOURCES.iter().flat_map(|source| source.split('"'));
    let is_name = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    words.filter(is_name).collect()
}

/// A use of the directive that changes what nginx does, and lines of the server that it needs.
fn telling(name: &str) -> (String, &'static str) {
    let words = match name {
        "proxy_pass" | "scgi_pass" | "uwsgi_pass" | "grpc_pass" => "http://127.0.0.1:99",
        "return" => "410",
        "rewrite" => "^/telling$ /other last",
        "allow" | "deny" | "set_real_ip_from" => "10.9.8.7",
        "add_header" | "proxy_set_header" | "fastcgi_param" => "X-Telling telling",
        "satisfy" => "any",
        "if" => return ("if ($http_telling) { return 410; }".to_owned(), ""),
        "limit_except" => return ("limit_except GET { deny all; }".to_owned(), ""),
        "types" => return ("types { text/telling telling; }".to_owned(), ""),
        "events" | "http" | "upstream" => return (format!("{name} telling {{ telling on; }}"), ""),
        "location" => return ("location /telling/ { return 410; }".to_owned(), ""),
        "server" => return ("server { listen 81; return 410; }".to_owned(), ""),
        "disable_symlinks" | "gzip" | "proxy_ssl_verify" | "real_ip_recursive" => "on",
        "proxy_request_buffering" | "absolute_redirect" => "off",
        "error_page" => "404 /telling.html",
        "try_files" => "/telling =404",
        "proxy_redirect" | "proxy_cookie_path" | "proxy_cookie_domain" => "/telling/ /other/",
        "expires" | "keepalive_timeout" | "send_timeout" => "77s",
        "client_header_timeout" | "client_body_timeout" => "77s",
        "gzip_min_length" | "client_max_body_size" | "worker_processes" => "7",
        "ssl_protocols" => "TLSv1.3",
        "internal" | "break" => "",
        "set" => "$limit_rate 4k",
        "ssl_verify_client" => "optional_no_ca",
        "include" => "/telling/*.conf",
        _ => "telling",
    };
    let needs = match name {
        "auth_basic_user_file" => "auth_basic a;",
        "satisfy" => "auth_basic a; auth_basic_user_file b; allow 10.0.0.1; deny all;",
        "gzip_types" | "gzip_min_length" => "gzip on;",
        "real_ip_header" => "",
        "real_ip_recursive" => "set_real_ip_from 10.0.0.1; real_ip_header X-Forwarded-For;",
        "allow" => "deny all;",
        "break" => "rewrite ^/a /b last;",
        "ssl_client_certificate" => {
            "listen 443 ssl; ssl_certificate a; ssl_certificate_key b; ssl_verify_client on;"
        }
        "ssl_verify_client" => {
            "listen 443 ssl; ssl_certificate a; ssl_certificate_key b; ssl_client_certificate c;"
        }
        name if name.starts_with("ssl_") => {
            "listen 443 ssl; ssl_certificate a; ssl_certificate_key b; ssl_client_certificate c; ssl_verify_client on;"
        }
        _ => "",
    };
    (format!("{name} {words};"), needs)
}

/// A configuration with a directive at a level.
fn with(name: &str, level: &str, needs: &str, directive: &str) -> String {
    let at = |here: &str| if here == level { directive } else { "" };
    let pass = match name {
        "break" => needs,
        name if name.starts_with("proxy_") && name != "proxy_pass" => {
            "proxy_pass https://127.0.0.1:1;"
        }
        name if name.starts_with("fastcgi_") && name != "fastcgi_pass" => {
            "fastcgi_pass unix:/run/php.sock;"
        }
        "uwsgi_param" => "uwsgi_pass 127.0.0.1:1;",
        "scgi_param" => "scgi_pass 127.0.0.1:1;",
        "grpc_set_header" => "grpc_pass 127.0.0.1:1;",
        _ => "",
    };
    let root = if name == "root" { "" } else { "root /srv;" };
    // A block that has one of the needed lines would not inherit from `http`.
    let (of_http, of_server) = match level {
        "http" => (needs.replace("listen 443 ssl;", ""), "listen 443 ssl;"),
        _ => (String::new(), needs),
    };
    let [main, http, server, location, within] = LEVELS.map(at);
    format!(
        "{main}\nhttp {{\n{http}\n{of_http}\nserver {{\n{server}\n{of_server}\n{root}\nlisten 82;\n\
         location /x/ {{\n{location}\n{pass}\nif ($http_a) {{ {within} }}\n}} }} }}"
    )
}

#[test]
fn no_directive_disappears_without_a_trace() {
    let mut lost = Vec::new();
    let conversion = |text: String| convert(Path::new("a.conf"), &OneFile(text)).unwrap();
    for (name, level) in names().into_iter().flat_map(|name| LEVELS.map(|level| (name, level))) {
        let (directive, needs) = telling(name);
        // A break at the end of an if has no effect.
        let is_void = matches!((name, level), ("include", _) | ("http", "main") | ("break", "if"));
        if is_void || super::known::says_all(name) {
            continue;
        }
        let plain = conversion(with(name, level, needs, ""));
        let text = with(name, level, needs, &directive);
        let made = conversion(text.clone());
        if made.text == plain.text {
            lost.push(format!("{level}: {directive}"));
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

#[test]
fn capital_letters_of_one_location_do_not_matter_to_another() {
    let lines = "location /a/ { deny all; }\nlocation ~* ^/a/b$ { }\nlocation ~ ^/a/c$ { }";
    has(lines, "match = '^(?!(?:.*?(?i)^/a/b$)|/a/c$)/a/'\ndeny = true");
}

/// Converts a server with these lines in a file with these tables.
#[track_caller]
fn with_tables(tables: &str, lines: &str) -> Conversion {
    let text = format!("http {{ {tables} server {{ root /srv; {lines} }} }}");
    let converted = convert(Path::new("a.conf"), &OneFile(text)).unwrap();
    assert!(sendoff_settings::read_text(&converted.text).is_some(), "{}", converted.text);
    converted
}

#[test]
fn tables_become_maps_of_the_sites_that_use_them() {
    let tables = "map $cookie_v $version { default old; beta new; ~*^t(\\d)$ $1; }
        map $http_a_b $unused { a b; }
        geo $zone { 10.0.0.0/8 office; 192.0.2.1 home; }";
    let lines = "add_header X-A $version-$zone;";
    let made = with_tables(tables, lines).text.replace('\'', "\"");
    let expected = "[site.map.version]\nfrom = \"cookie:v\"\nvalues = { beta = \"new\", \"~(?i)^t(\\d)$\" = \"$1\" }\ndefault = \"old\"\n";
    assert!(made.contains(expected), "{made}");
    let expected = "[site.map.zone]\nfrom = \"client\"\nvalues = { \"10.0.0.0/8\" = \"office\", \"192.0.2.1\" = \"home\" }\n";
    assert!(made.contains(expected), "{made}");
    assert!(made.contains("\"+X-A\" = \"$map_version-$map_zone\""), "{made}");
    assert!(!made.contains("unused"), "{made}");
}

#[test]
fn conditions_about_tables() {
    let tables = "geo $zone { default x; 10.0.0.0/8 far; 10.1.0.0/16 near; }
        map $http_a $field { a 1; }
        map $uri $path { /a 1; }";
    let closes = "if ($zone != x) { return 403; }";
    let made = with_tables(tables, closes).text;
    assert!(made.contains("when = { zone = [\"far\", \"near\"] }\ndeny = true"), "{made}");
    // nginx compares one of several fields, and remembers the value of a path.
    for test in ["$field", "$path", "$zone = nowhere"] {
        let made = with_tables(tables, &format!("if ({test}) {{ return 403; }}"));
        let is_refused = !made.text.contains("when") && made.text.contains("deny = true");
        assert!(is_refused && made.left_out > 0, "{test}\n{}", made.text);
    }
    let made = with_tables(tables, "if ($path) { return 302 /b; }").text;
    assert!(made.contains("when = { path = \"1\" }\nredirect = \"/b\""), "{made}");
}

#[test]
fn tables_without_an_equal_are_named() {
    for table in [
        "map $http_a$http_b $x { a b; }",
        "map $arg_a $x { a b; }",
        "map $http_a $x { a $http_b; }",
        "map $http_a $x { a $1; }",
        "map $http_a $x { ~( b; }",
        "map $http_a $x { \\~a b; }",
        "map $host $x { hostnames; www.* b; }",
        "map $host $x { *.a.test b; }",
        "map $http_a $x { a b; } map $http_b $x { a b; }",
        "map $http_a $y { a b; } map $y $x { b c; }",
        "map $http_a $y { a b; } map $http_b $x { b $y; }",
        "geo $http_a $x { 10.0.0.0/8 a; }",
        "geo $x { ranges; 10.0.0.0-10.0.0.9 a; }",
        "geo $x { proxy 10.0.0.1; 10.0.0.0/8 a; }",
        "split_clients $remote_addr $x { 50% a; * b; }",
    ] {
        let made = with_tables(table, "add_header X-A $x;");
        assert!(!made.text.contains("site.map") && made.left_out > 0, "{table}\n{}", made.text);
    }
    let made =
        with_tables("geo $x { 10.0.0.0/8 a; }", "set_real_ip_from 10.0.0.1; add_header X-A $x;");
    assert!(!made.text.contains("site.map"), "{}", made.text);
}

#[test]
fn statuses() {
    has("location /a/ { return 404; }", "deny = true\nstatus = 404");
    has("location /a/ { return 401 text; }", "try_files = \"=401\"\ndeny = true");
    has("location /a/ { return 503; }", "respond = \"\"\nstatus = 503");
    has("location /a/ { internal; root $x; }", "deny = true");
}

/// A permanent redirect of some spellings of an address is no gate; others may be.
#[test]
fn redirects_by_the_address_as_sent() {
    let test = "if ($request_uri ~ /index.php$) ";
    let made = server(&format!("{test} {{ return 301 /; }}"));
    assert!(!made.text.contains("deny") && made.left_out > 0, "{}", made.text);
    for redirect in ["return 302 /login;", "rewrite ^ /login redirect;", "return 200 wait;"] {
        let made = server(&format!("{test} {{ {redirect} }}"));
        assert!(made.text.contains("deny = true"), "{redirect}\n{}", made.text);
    }
}

#[test]
fn redirects_to_https() {
    for test in ["$scheme = http", "$scheme != https", "$server_port = 80", "$https = ''"] {
        for target in ["https://$host$request_uri", "https://www.a.org$request_uri"] {
            let text = format!(
                "server {{ listen 443 ssl; ssl_certificate a; ssl_certificate_key b; if ({test}) {{ return 301 {target}; }} }}"
            );
            let made = convert(Path::new("a.conf"), &OneFile(text)).unwrap().text;
            let is_redirected = !made.contains("https_redirect = false");
            assert!(is_redirected && !made.contains("deny"), "{made}");
        }
    }
}
