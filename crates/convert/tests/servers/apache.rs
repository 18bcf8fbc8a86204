//! Single directives, without files.

use std::path::Path;

use sendoff_convert_apache::convert;
use sendoff_convert_document::{Conversion, OneFile};

use super::{cannot_be_read, contains, readable};

/// Converts a file. The result must be readable by Sendoff.
#[track_caller]
fn file(text: &str) -> Conversion {
    readable(convert, "a.conf", text)
}

/// Converts a host with these lines.
#[track_caller]
fn host(lines: &str) -> Conversion {
    file(&format!(
        "<VirtualHost *:80>\nServerName a.test\nDocumentRoot /srv/a\n{lines}\n</VirtualHost>\n"
    ))
}

#[track_caller]
fn has(lines: &str, expected: &str) {
    contains(&host(lines), expected);
}

#[test]
fn hosts_and_certificates() {
    let text = "<VirtualHost *:443>\nServerName a.test:443\nServerAlias *.a.test b.test\nDocumentRoot /srv/a\n\
        SSLEngine on\nSSLCertificateFile /c.pem\nSSLCertificateKeyFile /k.pem\nSSLProtocol -all +TLSv1.3\n</VirtualHost>\n";
    let made = file(text).text;
    let expected = "hosts = [\"a.test\", \"*.a.test\", \"b.test\"]\nlisten = \"443 tls\"\ntls = { certificate = \"/c.pem\", key = \"/k.pem\", oldest = \"1.3\" }\nhttps_redirect = false\nroot = \"/srv/a\"";
    assert!(made.contains(expected), "{made}");
}

#[test]
fn the_last_section_decides() {
    has(
        "<Directory /srv>\nRequire all denied\n</Directory>\n<Directory /srv/a/open>\nRequire all granted\n</Directory>",
        "match = '^(?!(?=/open(?:/|\\z)))'\ndeny = true",
    );
    has(
        "<Directory /srv/a/x>\nRequire ip 10.1 192.0.2.0/255.255.255.0\n</Directory>",
        "match = '^/x(?:/|\\z)'\nallow_from = [\"10.1.0.0/16\", \"192.0.2.0/24\"]",
    );
    has(
        "<Files a.txt>\nRequire all denied\n</Files>",
        "match = '^(?s:.*)/a\\.txt(?:/|\\z)'\ndeny = true",
    );
    has(
        "<Location /x>\nOrder deny,allow\nDeny from all\nAllow from 10.0.0.0/8\n</Location>",
        "match = '^/x(?:/|\\z)'\nallow_from = \"10.0.0.0/8\"",
    );
}

#[test]
fn sections_about_modules_and_versions() {
    has(
        "<IfModule mod_headers.c>\nHeader set X-A b\n</IfModule>",
        "response_headers = { X-A = \"b\" }",
    );
    has(
        "<IfVersion < 2.4>\nOrder deny,allow\nDeny from all\n</IfVersion>\n<IfVersion >= 2.4>\nRequire local\n</IfVersion>",
        "allow_from = [\"127.0.0.0/8\", \"::1\"]",
    );
    let text = "LoadModule alias_module x.so\nDocumentRoot /srv/a\n<IfModule headers_module>\nHeader set X-A b\n</IfModule>\n<IfModule !mod_headers.c>\nHeader set X-C d\n</IfModule>\n";
    let made = file(text).text;
    assert!(made.contains("X-C") && !made.contains("X-A"), "{made}");
}

#[test]
fn what_guards_and_has_no_equal_refuses() {
    for lines in [
        "<Location /x>\nRequire user bob\n</Location>",
        "<Location /x>\nRequire env a\n</Location>",
        "<Location /x>\nRequire expr \"true\"\n</Location>",
        "<Location /x>\nAuthType Digest\nRequire valid-user\n</Location>",
        "<Location /x>\nAuthType Basic\nAuthBasicProvider ldap\nRequire valid-user\n</Location>",
        "<Location /x>\n<RequireNone>\nRequire ip 10.0.0.0/8\n</RequireNone>\n</Location>",
        "<Location /x>\n<RequireAll>\nRequire ip 10.0.0.0/8\nRequire not ip 10.1.0.0/16\n</RequireAll>\n</Location>",
        "<Location /x>\nOrder allow,deny\nAllow from 10.0.0.1\nDeny from 10.0.0.0/8\n</Location>",
        "<Location /x>\nOrder allow,deny\nAllow from all\nDeny from bad.test\n</Location>",
        "<If \"true\">\nRequire all denied\n</If>",
        "<Location /x>\nSSLRequireSSL\n</Location>",
        "<Location /x>\nSSLVerifyClient require\n</Location>",
        "<Location /x>\n<LimitExcept GET>\nRequire all denied\n</LimitExcept>\n</Location>",
        "<LocationMatch \"(\">\nRequire all denied\n</LocationMatch>",
        "<DirectoryMatch \"^/srv/(a|b)/x\">\nRequire all denied\n</DirectoryMatch>",
        "SecRuleEngine On",
        "RewriteEngine on\nRewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule ^/x - [F]",
        "RewriteEngine on\nRewriteRule ^/x ${map:$1}",
        "RewriteEngine on\nRewriteRule ^/x /y [C]\nRewriteRule ^/y - [F]",
        "ScriptAlias /cgi-bin/ /usr/lib/cgi-bin/",
        "ProxyPass /x ftp://h/",
        "RequestHeader edit X-A a b",
        "<Location /status>\nSetHandler server-status\n</Location>",
        "Redirect 301 /x relative",
        "AliasMatch ^/x(.*)$ /y$1",
    ] {
        let converted = host(lines);
        assert!(converted.text.contains("deny = true"), "{lines}\n{}", converted.text);
    }
}

#[test]
fn applications() {
    has(
        "ProxyPass / http://h:1/\nProxyPreserveHost On",
        "proxy = { to = \"http://h:1\", upgrade = false, redirects = {  } }",
    );
    has(
        "ProxyPass /a http://h:1/b\nProxyPassReverse /a http://h:1/b",
        "match = '^/a((?s:/.*)?)\\z'\nrewrite = \"/b$1\"\nproxy = { to = \"http://h:1\", host = \"upstream\", upgrade = false, redirects = { \"http://h:1/b\" = \"/a\" } }",
    );
    has("ProxyPass /a/ http://h:1/ timeout=5\nProxyPass /a/x !", "rewrite = \"/$1\"");
    has("ProxyPass /a ajp://h:8009/a", "match = '^/a(?:/|\\z)'\nproxy = { to = \"ajp://h:8009\" }");
    has("ProxyPass /s unix:/run/a.sock|http://localhost/s", "to = \"http://unix:/run/a.sock\"");
    has(
        "<Proxy balancer://c>\nBalancerMember http://a:1 loadfactor=2\nBalancerMember http://b:2 status=+H\n</Proxy>\nProxyPass / balancer://c/",
        "name = \"c\"\nhosts = [\"a:1 weight=2\", \"b:2 spare\"]",
    );
    has(
        "<FilesMatch \\.php$>\nSetHandler \"proxy:unix:/run/php/php8.2-fpm.sock|fcgi://localhost\"\n</FilesMatch>",
        "name = \"php8.2-fpm\"",
    );
}

#[test]
fn sections_of_applications_hold() {
    let section = "<Proxy *>\nRequire ip 10.0.0.0/8\n</Proxy>\n";
    has(
        &format!("{section}ProxyPass /a http://h:1/"),
        "match = '^/a(?:/|\\z)'\nallow_from = \"10.0.0.0/8\"",
    );
    has(
        &format!("{section}ProxyPass /a/x !\nProxyPass /a http://h:1/"),
        "match = '^/a(?:/|\\z)'\nallow_from = \"10.0.0.0/8\"",
    );
    has(
        &format!("{section}ProxyPassMatch ^/a/(.*)$ http://h:1/$1"),
        "[[site.route]]\nallow_from = \"10.0.0.0/8\"",
    );
    has(
        "<Proxy balancer://c>\nBalancerMember http://a:1\nRequire local\n</Proxy>\nProxyPass /a balancer://c/",
        "match = '^/a(?:/|\\z)'\nallow_from = [\"127.0.0.0/8\", \"::1\"]",
    );
}

#[test]
fn a_rule_that_is_not_known_refuses_its_requests_only() {
    has(
        "RewriteEngine on\nRewriteCond %{HTTP_HOST} ^www\\.(.+)$\nRewriteRule ^(.*)$ https://%1$1 [R,L]",
        "header = { Host = '(?:^www\\.(.+)$)' }\ndeny = true",
    );
}

#[test]
fn mistakes_have_a_place() {
    let mistakes = [
        ("ServerAdmin a\n", None, "no <VirtualHost>"),
        ("<VirtualHost *:80>\n", Some(1), "has no end"),
        ("Listen 80\n</VirtualHost>\n", Some(2), "closes no section"),
        ("DocumentRoot ${X}\n", Some(1), "has no value"),
        ("Use Macro\n", Some(1), "macros"),
        ("Include a.conf\n", Some(1), "includes itself"),
        ("<IfVersion 1.3>\n</IfVersion>\n", Some(1), "IfVersion"),
    ];
    cannot_be_read(convert, "a.conf", &mistakes);
}

#[test]
fn no_directive_disappears_without_a_trace() {
    for line in [
        "Unknown x",
        "Header edit X-A a b",
        "ErrorDocument 404 text",
        "CustomLog \"|/bin/x\" combined",
        "Alias /robots.txt /srv/robots.txt",
        "DirectoryIndex a/b.html",
        "SetEnv a b c d",
        "AddOutputFilterByType INCLUDES text/html",
        "ExpiresDefault \"modification plus 1 day\"",
        "FallbackResource /index.html",
        "SetEnvIf X-Forwarded-Proto ^https$ APP_ENV=secure",
        "ForceType text/plain",
        "AddEncoding x-gzip .gz",
        "ProxyErrorOverride On",
        "IndexIgnore *.inc",
        "AddHandler cgi-script .cgi",
    ] {
        let converted = host(line);
        assert!(converted.left_out > 0, "{line}\n{}", converted.text);
    }
}

#[test]
fn scripts_that_no_handler_runs_are_refused() {
    const ROUTE: &str = "# No directive has these scripts run.";
    let handler = "SetHandler \"proxy:unix:/run/php/php8.2-fpm.sock|fcgi://localhost\"";
    for section in [
        "<FilesMatch \"\\.php$\">",
        "<FilesMatch \".+\\.ph(ar|p|tml)$\">",
        "<FilesMatch \"\\.(php|phtml)$\">",
        "<FilesMatch \"(?i)[.]php$\">",
        "<Files \"*.php\">",
        "<Location />",
    ] {
        let end = if section.starts_with("<L") { "</Location>" } else { "</FilesMatch>" };
        let end = if section.starts_with("<Files ") { "</Files>" } else { end };
        let made = host(&format!("{section}\n{handler}\n{end}")).text;
        assert!(!made.contains(ROUTE), "{section}\n{made}");
    }
    for (section, refused) in [
        ("<FilesMatch \"^index\\.php$\">", "/uploads/evil.php"),
        ("<FilesMatch \"^(a|b)\\.php$\">", "/c.php"),
        ("<FilesMatch \"^(?!evil).+\\.php$\">", "/x/evil.php"),
        ("<FilesMatch \"a\\.php$\">", "/b.php"),
    ] {
        let made = host(&format!("{section}\n{handler}\n</FilesMatch>")).text;
        let route = made.split_once(ROUTE).unwrap().1;
        let expression = route.split_once("match = '").unwrap().1.split_once('\'').unwrap().0;
        let holds = |path: &str| sendoff_convert_document::expression::matches(expression, path);
        assert!(holds(refused) && !holds("/a.txt"), "{section}\n{made}");
        let is_known = !section.contains("?!");
        let runs = if section.contains("index") { "/x/index.php/info" } else { "/a.php" };
        assert!(!holds(runs) || !is_known, "{section}\n{made}");
    }
}

#[test]
fn sections_that_perhaps_hold_keep_their_denials() {
    for lines in [
        "<IfModule !mod_security2.c>\n<Location /x>\nRequire all denied\n</Location>\n</IfModule>",
        "<IfDefine PROD>\n<Location /x>\nRequire all denied\n</Location>\n</IfDefine>",
        "<IfDirective Foo>\n<Location /x>\nRequire all denied\n</Location>\n</IfDirective>",
        "<Location /x>\n<IfModule mod_access_compat.c>\nOrder deny,allow\nDeny from all\n</IfModule>\n</Location>",
    ] {
        has(lines, "match = \"^/x(?:/|\\z)\"\ndeny = true");
    }
    let open = "<IfDefine PROD>\n<Location /x>\nHeader set X-A b\nRequire all granted\n</Location>\n</IfDefine>";
    assert!(!host(open).text.contains("deny = true"));
}

#[test]
fn hosts_listen_where_the_server_listens() {
    let sites = "<VirtualHost *:8080>\nServerName a.test\nDocumentRoot /srv/a\n</VirtualHost>\n";
    for (lines, expected) in [
        ("", "listen = \"8080\""),
        ("Listen 8080\n", "listen = \"8080\""),
        ("Listen 127.0.0.1:8080\nListen 80\n", "listen = \"127.0.0.1:8080\""),
        (
            "Listen 127.0.0.1:8080\nListen [::1]:8080\n",
            "listen = [\"127.0.0.1:8080\", \"[::1]:8080\"]",
        ),
    ] {
        let made = file(&format!("{lines}{sites}")).text;
        assert!(made.contains(expected), "{lines}\n{made}");
    }
    let own = format!(
        "Listen 127.0.0.1:8080\n{sites}<VirtualHost 127.0.0.1:8080>\nServerName b.test\nDocumentRoot /srv/b\n</VirtualHost>\n"
    );
    let made = file(&own);
    assert!(made.left_out == 1 && !made.text.contains("a.test\""), "{}", made.text);
    let both = format!(
        "{sites}<VirtualHost 127.0.0.1:8080>\nServerName b.test\nDocumentRoot /srv/b\n</VirtualHost>\n"
    );
    let made = file(&both);
    assert!(made.left_out == 1 && made.text.contains("hosts = \"b.test\"\nlisten = \"8080\""));
}

#[test]
fn folders_without_an_index_are_refused() {
    has("DirectoryIndex disabled", "match = '/\\z'\ndeny = true");
    let made = host("DirectoryIndex disabled\nDirectoryIndex a.html").text;
    assert!(!made.contains("deny"), "{made}");
    has(
        "<Directory /srv/a/x>\nRequire all denied\n</Directory>\n<Directory /srv/a/x/*>\nRequire all granted\n</Directory>",
        "(?!(?=/x/(?=[^/])[^/]*(?:/|\\z)))",
    );
}

#[test]
fn a_host_at_the_addresses_of_a_name_is_refused() {
    let made =
        file("<VirtualHost a.test:80>\nServerName a.test\nDocumentRoot /srv/a\n</VirtualHost>\n");
    assert!(made.left_out == 1 && made.text.contains("deny = true"), "{}", made.text);
}

#[test]
fn files_in_folders_hold_for_the_whole_site() {
    has("AllowOverrideList Require", "htaccess = true");
    has("AllowOverrideList None\nAllowOverride None", "htaccess = false");
    let made = host(
        "<Directory /srv/a>\nAllowOverride All\n</Directory>\n<Directory /srv/a/x>\nAllowOverride None\n</Directory>",
    );
    assert_eq!(made.left_out, 1, "{}", made.text);
    let above = "files above the site's folder are not read";
    has("<Directory /srv>\nAllowOverride All\n</Directory>", above);
    let own = host("<Directory /srv/a>\nAllowOverride All\n</Directory>");
    assert!(!own.text.contains(above), "{}", own.text);
}

#[test]
fn a_variable_that_doubles_itself_has_an_end() {
    let lines: String = "Define A ${A}${A}\n".repeat(40);
    let text = format!("Define A xxxx\n{lines}DocumentRoot /srv\n");
    let error = convert(Path::new("a.conf"), &OneFile(text)).unwrap_err();
    assert!(error.says.contains("bytes with its variables"), "{error}");
}

#[test]
fn many_aliases_make_a_result_that_grows_with_their_number() {
    let alias = |number| {
        format!(
            "Alias /a{number} /srv/f{number}\n<Directory /srv/f{number}>\nRequire ip 10.0.0.0/8\n</Directory>\n"
        )
    };
    let made = host(&(0..200).map(alias).collect::<String>()).text;
    assert!(made.len() < 100_000, "{}", made.len());
}
