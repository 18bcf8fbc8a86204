//! The promise: a configuration of nginx, Apache, Caddy or NGINX Unit, of any bytes is converted, or refused
//! with a reason; the result is TOML, and each remark in it is one line.

use std::io;
use std::path::{Path, PathBuf};

use sendoff_convert::{Files, Origin, convert};

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
    let own = Origin::of(Path::new("sites.conf"), main);
    for from in [own, Origin::Nginx] {
        match convert(Path::new(MAIN), &Pair(main, included), Some(from)) {
            Ok(converted) => {
                let parsed = converted.text.parse::<toml::Table>();
                assert!(parsed.is_ok(), "{:?}\n{}", parsed, converted.text);
                let remarks = converted.text.lines().filter(|line| line.starts_with('#')).count();
                assert!(converted.left_out <= remarks, "{}", converted.text);
            }
            Err(refused) => assert!(!refused.says.is_empty()),
        }
    }
}

/// Files to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let files: [&[u8]; 12] = [
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
        b"{\n\temail a@b\n\torder x before header\n}\n(s) {\n\theader X-{args.0} b\n}\na.org, *.b.org:81 {\n\troot * /srv\n\timport s c\n\timport x*\n\tencode gzip\n\
          \t@m {\n\t\tpath /a/* *.b\n\t\tnot remote_ip 10.0.0.0/8\n\t}\n\trespond @m \"c\" 403\n\tbasicauth /p/* {\n\t\tu $2a$05$abc\n\t}\n\tphp_fastcgi unix//s.sock\n\tfile_server browse\n}\n\0respond /x y",
        b"http://a {\n\thandle_path /a/* {\n\t\troot * /b\n\t\ttry_files {path} {path}/ /i.html =404\n\t\tfile_server {\n\t\t\thide .git *.c\n\t\t}\n\t}\n\thandle {\n\t\trewrite /c?{query}\n\t\turi strip_prefix /d\n\
          \t\treverse_proxy b:1 https://c {\n\t\t\tlb_policy first\n\t\t\theader_up Host {host}\n\t\t}\n\t}\n\troute /e {\n\t\tredir https://{host}{uri} permanent\n\t}\n\t@r path_regexp n ^/(a|b)$\n\tredir @r /{re.n.1}\n}\n",
        b"Define R /srv\nListen 80\n<Directory />\n Require all denied\n</Directory>\n<VirtualHost *:80 [::1]:81>\nServerName a.org\nDocumentRoot ${R}/a\nAlias /d /usr/d\n<Directory ${R}/a/*/x>\nOptions +Indexes\nRequire ip 10.1\n</Directory>\n\
          <FilesMatch \"\\.(inc|b)$\">\nRequire all denied\n</FilesMatch>\n<LocationMatch ^/(c|d)>\n<RequireAll>\nRequire valid-user\nRequire not ip 1\n</RequireAll>\n</LocationMatch>\nInclude x\n</VirtualHost>\n\0Redirect 301 /a /b",
        b"<VirtualHost _default_:443>\nSSLEngine on\nSSLCertificateFile c\nRewriteEngine on\nRewriteCond %{HTTP_HOST} ^a [NC,OR]\nRewriteCond %{HTTP_HOST} ^b\nRewriteRule ^/(.*)$ https://c/$1 [R=301,L]\nRewriteCond %{DOCUMENT_ROOT}%{REQUEST_URI} !-f\n\
          RewriteRule . /i.php?p=$0 [QSA,L]\nProxyPass /p !\nProxyPass /p/ http://h:1/q/ timeout=5\nProxyPassReverse /p/ http://h:1/q/\nHeader always set A \"b %%c\"\nErrorDocument 404 /e\nCustomLog /l combined\n<If \"true\">\nRequire local\n</If>\n</VirtualHost>\n",
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
    b"\n<Location /a>\n",
    b"\n</Location>\n",
    b"\n<Directory /srv>\n",
    b"\n</Directory>\n",
    b"\nRequire all denied\n",
    b"<IfModule !a>",
    b"\nRewriteRule ^ - [F]\n",
    b"${R}",
    b"\nhandle {\n",
    b"\nroute @m {\n",
    b"\n}\n",
    b"\nimport s\n",
    b"\nrespond 403\n",
    b"\nroot * /x\n",
    b"{path}",
    b"{$A:b}",
    b"/@caddy/1",
    b"(?!)",
    b"~",
    b"\xc3\xa4",
    b"\x80",
];
