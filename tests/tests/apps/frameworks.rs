//! Applications of Symfony and of Laravel, with the frameworks from Debian's packages.

use sendoff_tests::Site;

use crate::farm::{Farm, Rules, write_old};
use crate::walk::walk;

/// Texts before and after each token.
const VOLATILE: &[(&str, &str)] = &[("_token\" value=\"", "\"")];

/// The vendor's rules, https://symfony.com/doc/current/setup/web_server_configuration.html.
const SYMFONY: &str = r"
location / { try_files $uri /index.php$is_args$args; }
location ~ ^/index\.php(/|$) {
    {php}
    internal;
}
location ~ \.php$ { return 404; }
";

/// The same page, for Apache.
const SYMFONY_HTACCESS: &str = "DirectoryIndex index.php\nFallbackResource /index.php\n";

/// The vendor's rules, https://laravel.com/docs/deployment#nginx.
const LARAVEL: &str = r#"
add_header X-Frame-Options "SAMEORIGIN";
add_header X-Content-Type-Options "nosniff";
index index.php;
charset utf-8;
location / { try_files $uri $uri/ /index.php?$query_string; }
error_page 404 /index.php;
location ~ ^/index\.php(/|$) { {php} }
location ~ /\.(?!well-known).* { deny all; }
"#;

/// The rules in `public/.htaccess` of a Laravel project, shortened.
const LARAVEL_HTACCESS: &str = "Options -Indexes
RewriteEngine On
RewriteCond %{HTTP:Authorization} .
RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteCond %{REQUEST_FILENAME} !-d
RewriteCond %{REQUEST_URI} (.+)/$
RewriteRule ^ %1 [L,R=301]
RewriteCond %{REQUEST_FILENAME} !-d
RewriteCond %{REQUEST_FILENAME} !-f
RewriteRule ^ index.php [L]
";

/// A project with a front controller, assets, and files that do not belong in `public/`.
fn project(front_controller: &str, htaccess: &str, folders: &[&str]) -> Site {
    let site = Site::new();
    for (name, text) in [
        ("public/index.php", front_controller),
        ("public/.htaccess", htaccess),
        ("public/app.css", "body { color: black }\n"),
        ("public/build/app.3f2a.js", "console.log('app');\n"),
        ("public/build/manifest.json", "{}\n"),
        ("public/images/logo.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n"),
        ("public/images/a b.txt", "a name with a blank\n"),
        ("public/docs/index.html", "<html>docs</html>\n"),
        ("public/favicon.ico", "icon"),
        ("public/robots.txt", "User-agent: *\n"),
        ("public/.well-known/security.txt", "Contact: none\n"),
        ("public/.env", "SECRET=1\n"),
        ("public/.git/config", "[core]\n"),
        ("public/other.php", "<?php echo 'other ran';"),
        ("public/uploads/evil.php", "<?php echo 'evil ran';"),
        ("public/uploads/notes.txt", "notes of a user\n"),
        ("public/dump.sql", "INSERT INTO users\n"),
        ("public/app.css.bak", "body {}\n"),
        ("report.txt", "the report, in a line or two\n"),
        (".env", "SECRET=1\n"),
    ] {
        write_old(&site, name, text);
    }
    for folder in folders {
        site.folder(folder);
    }
    site
}

fn visit(site: &Site, app: &str, nginx: &str, requests: &str) {
    let farm = Farm::start(
        site,
        &Rules {
            root: site.path("public"),
            preset: format!("app = '{app}'"),
            htaccess: "htaccess = true\nfront_controller = 'off'".to_owned(),
            nginx: nginx.to_owned(),
            apache: "<Location />\nOptions -Indexes\n</Location>\n".to_owned(),
            ..Rules::default()
        },
    );
    walk(&farm, requests, VOLATILE);
}

#[test]
#[cfg_attr(
    not(all(root, bookworm)),
    ignore = "needs root, for scripts of www-data, and the versions of Debian 12"
)]
fn symfony_as_root() {
    let site = project(include_str!("programs/symfony.php"), SYMFONY_HTACCESS, &["var"]);
    visit(&site, "symfony", SYMFONY, include_str!("walks/symfony.txt"));
}

#[test]
#[cfg_attr(
    not(all(root, debian)),
    ignore = "needs root: servers that run scripts as www-data, and Debian's package of Laravel"
)]
fn laravel_as_root() {
    let folders = [
        "bootstrap/cache",
        "storage/framework/sessions",
        "storage/framework/views",
        "storage/logs",
    ];
    let site = project(include_str!("programs/laravel.php"), LARAVEL_HTACCESS, &folders);
    visit(&site, "laravel", LARAVEL, include_str!("walks/laravel.txt"));
}
