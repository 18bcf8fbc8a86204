//! The promise: a configuration of nginx, Apache, Caddy or NGINX Unit, of any bytes is converted, or refused
//! with a reason; the result is TOML, and each remark in it is one line.

use std::io;
use std::path::{Path, PathBuf};

use sendoff_convert::{Files, convert};

/// The file that is converted; what it includes.
struct Pair<'t>(&'t str, &'t str);

const MAIN: &str = "/etc/nginx/nginx.conf";

impl Files for Pair<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = if path == Path::new(MAIN) { self.0 } else { self.1 };
        Ok(text.to_owned())
    }

    fn matching(&self, pattern: &Path) -> Vec<PathBuf> {
        vec![pattern.with_file_name("a.conf"), pattern.with_file_name("b.conf")]
    }
}

/// Checks the promise for a file. A zero ends it; what follows is in each file that it includes.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (main, included) = text.split_once('\0').unwrap_or((&text, "listen 81;"));
    match convert(Path::new(MAIN), &Pair(main, included), None) {
        Ok(converted) => {
            let parsed = converted.text.parse::<toml::Table>();
            assert!(parsed.is_ok(), "{:?}\n{}", parsed, converted.text);
            let remarks = converted.text.lines().filter(|line| line.starts_with('#')).count();
            assert!(converted.left_out <= remarks, "{}", converted.text);
        }
        Err(refused) => assert!(!refused.says.is_empty()),
    }
}

/// Files to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let files: [&[u8]; 8] = [
        b"user www-data;\nhttp { upstream a { server b:1 weight=2; } server { listen 80 default_server; server_name .a.org ~^b;\n\
          root /srv; location / { try_files $uri $uri/ /index.php?$args; } location ~ \\.php$ { fastcgi_pass unix:/php.sock; } } }",
        b"server { listen 443 ssl http2; ssl_certificate a; ssl_certificate_key b; if ($scheme != https) { return 301 https://$host$request_uri; }\n\
          location ^~ /a/ { alias /b/; location ~* \\.(jpe?g|png)$ { expires max; add_header A \"b c\" always; } } }",
        b"server { allow 10.0.0.0/8; deny all; satisfy any; auth_basic 'x'; auth_basic_user_file y;\n\
          rewrite ^/(a|b)/(.*)$ /c/$2?d=$1 last; location @n { proxy_pass http://a:1/b; } location = /e { try_files /f @n; } }",
        b"server { include x/*.conf; types { text/a b c; } error_page 404 =200 /d; set $v $uri; return 302 /${v}x; }\0\
          location /z/ { internal; limit_except GET { deny all; } }",
        b"server { location /p/ { rewrite ^/p/(.*)$ /$1 break; proxy_pass https://h; proxy_set_header Host $host; }\n\
          if (!-e $request_filename) { rewrite ^ /index.php last; } content_by_lua_block { x = { 1 } } }",
        br#"{"listeners": {"*:80": {"pass": "routes", "forwarded": {"client_ip": "X-Forwarded-For", "source": ["10.0.0.0/8"]}}},
          "routes": [{"match": {"host": ["a.org", "!*.b.org"], "uri": ["/a*", "!~^/b", "*.php/*"], "arguments": [{"a": "b*"}, {"c": ["!d", "e"]}]},
          "action": {"rewrite": "/x$uri", "share": ["/srv$uri", "/srv/f.txt"], "index": "i", "fallback": {"pass": "applications/p/t"}}}],
          "applications": {"p": {"type": "php 8.2", "processes": {"max": 3}, "targets": {"t": {"root": "/srv", "script": "i.php"}}}}}"#,
        br#"{"config": {"listeners": {"[::1]:81": {"pass": "routes/a", "tls": {"certificate": ["c", "d"]}}, "unix:/s": {"pass": "upstreams/u"}},
          "routes": {"a": [{"match": {"cookies": {"a": "b*c"}, "source": "!10.0.0.1", "method": "GET"}, "action": {"pass": "routes/b"}}],
          "b": [{"action": {"return": 301, "location": "https://$host$request_uri"}}]}, "upstreams": {"u": {"servers": {"a:1": {"weight": 0.5}}}}}}"#,
        br#"{"listeners": {"*:80": {"pass": "applications/p"}}, /* a */ "settings": {"http": {"max_body_size": 1, "static": {"mime_types": {"a/b": [".c"]}}}},
          "applications": {"p": {"type": "python", "module": "m", "home": "/v", "path": ["/a"], "threads": 2, "environment": {"A": "b"}}}} // z"#,
    ];
    files.map(<[u8]>::to_vec).to_vec()
}

/// Strings that files are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"server { ",
    b"location ~ ",
    b"location /a/ { ",
    b"if ($http_a ~* \"b\") { ",
    b" }\n",
    b"; ",
    b"\"",
    b"'",
    b"\\",
    b"${",
    b"$1",
    b"include a.conf;",
    b"deny all;",
    b"return 403;",
    b"rewrite ^ /b break;",
    b"try_files $uri =404;",
    b"proxy_pass http://a/;",
    b"(?<a>b)",
    b"[^]",
    b"\n[[site]]\n",
    b"\0",
    b"{\"listeners\": {\"*:80\": {\"pass\": \"routes\"}}, \"routes\": [",
    b"\"match\": {\"uri\": \"",
    b"\"action\": {",
    b"\"share\": \"/srv$uri\", ",
    b"\"pass\": \"routes/a\"",
    b"/@unit/1",
    b"!~",
    b"%2f",
    b"/*",
    b"\xc3\xa4",
    b"\x80",
];
