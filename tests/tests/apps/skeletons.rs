//! Applications without a Debian package, as skeletons: their folders and entry points, with
//! scripts that show their names and their requests. The vendors' rules are real, the applications
//! are not.

use sendoff_tests::Site;

use crate::farm::{Farm, Rules, write_old};
use crate::walk::walk;

/// A script that shows its name and the variables of the server.
const SCRIPT: &str = "<?php
header('X-Script: ' . basename(__FILE__));
echo json_encode([
    __FILE__, $_SERVER['SCRIPT_NAME'], $_SERVER['PATH_INFO'] ?? '', $_SERVER['REQUEST_URI'], $_SERVER['QUERY_STRING'],
    $_SERVER['REQUEST_METHOD'], $_GET, $_POST, array_map(fn ($file) => [$file['name'], $file['size']], $_FILES),
]);
";

/// A site with these files.
fn layout(files: &[&str]) -> Site {
    let site = Site::new();
    for file in files {
        let text = if file.ends_with(".php") { SCRIPT.to_owned() } else { format!("{file}\n") };
        write_old(&site, file, text);
    }
    site
}

/// The vendor's rules: lines of a `server` block for nginx, and `.htaccess` files with their
/// folders for Apache.
struct Vendor<'a> {
    nginx: &'a str,
    htaccess: &'a [(&'a str, &'a str)],
}

fn visit(site: &Site, app: &str, vendor: &Vendor<'_>, requests: &str) {
    for (folder, text) in vendor.htaccess {
        site.write(&format!("{folder}.htaccess"), text);
    }
    let farm = Farm::start(
        site,
        &Rules {
            root: site.root().to_owned(),
            preset: format!("app = '{app}'"),
            htaccess: "htaccess = true\nfront_controller = 'off'".to_owned(),
            nginx_http: ASSETS_OF_NEXTCLOUD.to_owned(),
            nginx: vendor.nginx.to_owned(),
            apache: "<Location />\nOptions -Indexes\n</Location>\n".to_owned(),
            ..Rules::default()
        },
    );
    walk(&farm, requests, &[]);
}

/// Drupal's own `.htaccess`, shortened.
const DRUPAL: &str = r#"<FilesMatch "\.(engine|inc|install|make|module|profile|po|sh|.*sql|theme|twig|tpl(\.php)?|xtmpl|yml)(~|\.sw[op]|\.bak|\.orig|\.save)?$|^(\.(?!well-known).*|Entries.*|Repository|Root|Tag|Template|composer\.(json|lock)|web\.config|yarn\.lock|package\.json)$|^#.*#$|\.php(~|\.sw[op]|\.bak|\.orig|\.save)$">
Require all denied
</FilesMatch>
Options -Indexes
DirectoryIndex index.php index.html index.htm
<IfModule mod_rewrite.c>
RewriteEngine on
RewriteRule ^ - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteRule "/\.|^\.(?!well-known/)" - [F]
RewriteCond %{REQUEST_URI} ^(.*)?/(install\.php) [OR]
RewriteCond %{REQUEST_URI} ^(.*)?/(rebuild\.php)
RewriteCond %{REQUEST_URI} !core
RewriteRule ^ %1/core/%2 [L,QSA,R=301]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteCond %{REQUEST_URI} !=/favicon.ico
RewriteRule ^ index.php [L]
RewriteCond %{REQUEST_URI} !/core/[^/]*\.php$
RewriteRule "^(.+/.*|autoload)\.php($|/)" - [F]
</IfModule>
<IfModule mod_headers.c>
Header onsuccess unset X-Content-Type-Options
Header always set X-Content-Type-Options nosniff
RequestHeader unset Proxy
</IfModule>
"#;

/// The rules of Drupal's `.htaccess`, translated for nginx: the vendor has no page for nginx.
const DRUPAL_NGINX: &str = r#"
index index.php index.html;
add_header X-Content-Type-Options nosniff always;
location ~ /\.(?!well-known/) { return 403; }
location ~ \.(engine|inc|install|make|module|profile|po|sh|[^/.]*sql|theme|twig|tpl(\.php)?|xtmpl|yml)(~|\.sw[op]|\.bak|\.orig|\.save)?$|\.php(~|\.sw[op]|\.bak|\.orig|\.save)$ { return 403; }
location ~ /(Entries[^/]*|Repository|Root|Tag|Template|composer\.(json|lock)|web\.config|yarn\.lock|package\.json|#[^/]*#)$ { return 403; }
location ~ ^/sites/[^/]+/private(/|$) { return 403; }
location ~ ^/(install|rebuild)\.php$ { return 301 /core$uri$is_args$args; }
location ~ ^/core/[^/]*\.php$ { {php} }
location ~ ^/(.+/.*|autoload)\.php(/|$) { return 403; }
location ~ \.php(/|$) { {php} }
location ~* \.(css|js|svg|png|jpg|jpeg|gif|webp|avif|ico|woff|woff2|ttf)$ {
    try_files $uri /index.php?$query_string;
    expires 365d;
}
location / { try_files $uri $uri/ /index.php?$query_string; }
"#;

#[test]
#[cfg_attr(not(root), ignore = "needs root: servers that run scripts as www-data")]
fn drupal_as_root() {
    let site = layout(&[
        "index.php",
        "autoload.php",
        "update.php",
        "robots.txt",
        "favicon.ico",
        "web.config",
        "composer.json",
        "composer.lock",
        "yarn.lock",
        "package.json",
        "core/install.php",
        "core/rebuild.php",
        "core/authorize.php",
        "core/lib/Drupal.php",
        "core/misc/drupal.js",
        "core/misc/druplicon.png",
        "core/misc/icons/menu.svg",
        "core/modules/node/node.module",
        "core/modules/node/node.install",
        "core/modules/node/node.info.yml",
        "core/modules/node/node.js",
        "core/modules/node/src/Node.php",
        "core/profiles/standard/standard.profile",
        "core/scripts/drupal.sh",
        "core/themes/olivero/templates/page.html.twig",
        "core/themes/olivero/olivero.theme",
        "core/themes/olivero/css/base.css",
        "core/CHANGELOG.txt",
        "modules/contrib/x/x.php",
        "modules/contrib/x/x.inc",
        "modules/contrib/x/README.md",
        "modules/contrib/x/css/x.css",
        "profiles/x/x.make",
        "sites/default/settings.php",
        "sites/default/default.services.yml",
        "sites/default/files/a.txt",
        "sites/default/files/evil.php",
        "sites/default/files/evil.PHP",
        "sites/default/files/css/css_1.css",
        "sites/default/private/a.txt",
        "vendor/autoload.php",
        "translations/de.po",
        "backup.sql",
        "index.php.bak",
        "index.php~",
        "index.php.swp",
        "Root",
        "Entries.log",
        ".well-known/security.txt",
        ".git/config",
        ".env",
    ]);
    let vendor = Vendor { nginx: DRUPAL_NGINX, htaccess: &[("", DRUPAL)] };
    visit(&site, "drupal", &vendor, include_str!("walks/drupal.txt"));
}

/// Rules of https://github.com/matomo-org/matomo-nginx.
const MATOMO: &str = r"
index index.php;
add_header Referrer-Policy origin always;
add_header X-Content-Type-Options nosniff always;
add_header X-Frame-Options SAMEORIGIN always;
location ~ ^/(index|matomo|piwik|js/index|plugins/HeatmapSessionRecording/configs)\.php$ {
    {php}
    fastcgi_param HTTP_PROXY '';
}
location ~* ^.+\.php$ { deny all; }
location / { try_files $uri $uri/ =404; }
location ~ ^/(config|tmp|core|lang) { deny all; }
location ~ /\.ht { deny all; }
location ~ js/container_.*_preview\.js$ {
    expires off;
    add_header Cache-Control 'private, no-cache, no-store';
}
location ~ \.(gif|ico|jpg|png|svg|js|css|htm|html|mp3|mp4|wav|ogg|avi|ttf|eot|woff|woff2)$ {
    allow all;
    expires 1h;
    add_header Cache-Control public;
}
location ~ ^/(libs|vendor|plugins|misc|node_modules) { deny all; }
";

/// The `.htaccess` that Matomo writes into folders without files for browsers.
const MATOMO_NOTHING: &str = "<Files \"*\">\nRequire all denied\n</Files>\n";

/// The `.htaccess` that Matomo writes into folders with assets.
const MATOMO_ASSETS: &str = r#"<Files ~ "\.(php|php4|php5|inc|tpl|in|twig|md|json|html)$">
Require all denied
</Files>
<Files ~ "\.(gif|ico|jpg|png|svg|js|css|htm|html|mp3|mp4|wav|ogg|avi|ttf|eot|woff|woff2)$">
Require all granted
</Files>
"#;

#[test]
#[cfg_attr(
    not(all(root, debian)),
    ignore = "needs root: servers that run scripts as www-data, and media types as in Debian's Apache"
)]
fn matomo_as_root() {
    let site = layout(&[
        "index.php",
        "matomo.php",
        "piwik.php",
        "matomo.js",
        "piwik.js",
        "robots.txt",
        "favicon.ico",
        "console",
        "LEGALNOTICE",
        "README.md",
        "config/config.ini.php",
        "config/global.ini.php",
        "config/manifest.txt",
        "core/Version.php",
        "core/a.txt",
        "js/index.php",
        "js/piwik.min.js",
        "js/container_1_preview.js",
        "js/container_1.js",
        "lang/en.json",
        "lang/README.txt",
        "libs/x.php",
        "libs/jquery.js",
        "libs/notes.txt",
        "misc/user/logo.png",
        "misc/user/a.txt",
        "misc/cron/archive.sh",
        "misc/log-analytics/import.py",
        "node_modules/jquery/dist/jquery.min.js",
        "node_modules/jquery/package.txt",
        "plugins/CoreHome/CoreHome.php",
        "plugins/CoreHome/templates/a.twig",
        "plugins/CoreHome/plugin.txt",
        "plugins/CoreHome/javascripts/a.js",
        "plugins/CoreHome/stylesheets/a.css",
        "plugins/CoreHome/images/a.png",
        "plugins/Morpheus/fonts/matomo.woff2",
        "plugins/HeatmapSessionRecording/configs.php",
        "tmp/logs/matomo.log",
        "tmp/cache/a.php",
        "tmp/assets/a.css",
        "vendor/autoload.php",
        "vendor/x/a.js",
        "vendor/x/a.txt",
        "other.php",
        "dump.sql",
        "index.php.bak",
    ]);
    let mut htaccess = vec![
        ("config/", MATOMO_NOTHING),
        ("core/", MATOMO_NOTHING),
        ("lang/", MATOMO_NOTHING),
        ("tmp/", MATOMO_NOTHING),
    ];
    for folder in ["js/", "libs/", "vendor/", "plugins/", "misc/user/", "node_modules/"] {
        htaccess.push((folder, MATOMO_ASSETS));
    }
    // The two scripts that other folders have for browsers.
    let allowed = format!("{MATOMO_ASSETS}<Files \"index.php\">\nRequire all granted\n</Files>\n");
    let configs = "<Files \"configs.php\">\nRequire all granted\n</Files>\n";
    htaccess.push(("js/", &allowed));
    htaccess.push(("plugins/HeatmapSessionRecording/", configs));
    let vendor = Vendor { nginx: MATOMO, htaccess: &htaccess };
    visit(&site, "matomo", &vendor, include_str!("walks/matomo.txt"));
}

/// Rules of https://docs.moodle.org/en/Nginx and https://docs.moodle.org/en/Configuring_the_Router.
const MOODLE: &str = r"
index index.php index.html;
location / { try_files $uri $uri/ /r.php; }
location ~ [^/]\.php(/|$) { {php} }
location ~ (/vendor/|/node_modules/|composer\.json|/readme|/README|readme\.txt|/upgrade\.txt|/UPGRADING\.md|db/install\.xml|/fixtures/|/behat/|phpunit\.xml|\.lock|environment\.xml) {
    deny all;
    return 404;
}
";

#[test]
#[cfg_attr(not(root), ignore = "needs root: servers that run scripts as www-data")]
fn moodle_as_root() {
    let site = layout(&[
        "index.php",
        "r.php",
        "help.php",
        "pluginfile.php",
        "draftfile.php",
        "tokenpluginfile.php",
        "robots.txt",
        "favicon.ico",
        "login/index.php",
        "course/view.php",
        "course/index.php",
        "mod/quiz/view.php",
        "mod/quiz/styles.css",
        "mod/quiz/README.md",
        "mod/quiz/readme_moodle.txt",
        "mod/quiz/xreadme.txt",
        "mod/quiz/pix/icon.svg",
        "mod/quiz/db/install.xml",
        "mod/quiz/db/access.php",
        "mod/quiz/tests/behat/quiz.feature",
        "mod/quiz/tests/fixtures/a.txt",
        "mod/quiz/upgrade.txt",
        "theme/styles.php",
        "theme/image.php",
        "theme/font.php",
        "theme/boost/pix/logo.png",
        "theme/boost/style/moodle.css",
        "lib/ajax/service.php",
        "lib/javascript.php",
        "lib/requirejs.php",
        "lib/upgrade.txt",
        "lib/UPGRADING.md",
        "lib/editor/tiny/loader.php",
        "lib/jquery/jquery-3.7.1.min.js",
        "admin/index.php",
        "admin/cron.php",
        "admin/environment.xml",
        "webservice/rest/server.php",
        "webservice/upload.php",
        "user/profile.php",
        "node_modules/x/x.js",
        "vendor/autoload.php",
        "vendor/x/a.js",
        "composer.json",
        "composer.lock",
        "npm.lock",
        "yarn.lock.txt",
        "phpunit.xml.dist",
        "README.txt",
        "config.php.bak",
        "dump.sql",
        ".git/config",
        "docs/index.html",
        "docs/a b.txt",
    ]);
    // The vendor's page gives this line, and leaves the rest to the server.
    let vendor = Vendor {
        nginx: MOODLE,
        htaccess: &[("", "DirectoryIndex index.php index.html\nFallbackResource /r.php\n")],
    };
    visit(&site, "moodle", &vendor, include_str!("walks/moodle.txt"));
}

/// Rules of https://docs.nextcloud.com/server/latest/admin_manual/installation/nginx.html.
const NEXTCLOUD: &str = r#"
add_header Referrer-Policy no-referrer always;
add_header X-Content-Type-Options nosniff always;
add_header X-Frame-Options SAMEORIGIN always;
add_header X-Permitted-Cross-Domain-Policies none always;
add_header X-Robots-Tag "noindex, nofollow" always;
include /etc/nginx/mime.types;
types {
    text/javascript mjs;
    application/wasm wasm;
}
index index.php index.html /index.php$request_uri;
location = / {
    if ( $http_user_agent ~ ^DavClnt ) { return 302 /remote.php/webdav/$is_args$args; }
}
location = /robots.txt { allow all; }
location ^~ /.well-known {
    location = /.well-known/carddav { return 301 /remote.php/dav/; }
    location = /.well-known/caldav { return 301 /remote.php/dav/; }
    location /.well-known/acme-challenge { try_files $uri $uri/ =404; }
    location /.well-known/pki-validation { try_files $uri $uri/ =404; }
    return 301 /index.php$request_uri;
}
location ~ ^/(?:build|tests|config|lib|3rdparty|templates|data)(?:$|/) { return 404; }
location ~ ^/(?:\.|autotest|occ|issue|indie|db_|console) { return 404; }
location ~ \.php(?:$|/) {
    rewrite ^/(?!index|remote|public|cron|core\/ajax\/update|status|ocs\/v[12]|updater\/.+|ocs-provider\/.+|.+\/richdocumentscode(_arm64)?\/proxy) /index.php$request_uri;
    {php}
    fastcgi_param modHeadersAvailable true;
    fastcgi_param front_controller_active true;
    fastcgi_intercept_errors on;
}
location ~ \.(?:css|js|mjs|svg|gif|ico|jpg|png|webp|wasm|tflite|map|ogg|flac)$ {
    try_files $uri /index.php$request_uri;
    add_header Cache-Control "public, max-age=15778463$asset_immutable";
    add_header Referrer-Policy no-referrer always;
    add_header X-Content-Type-Options nosniff always;
    add_header X-Frame-Options SAMEORIGIN always;
    add_header X-Permitted-Cross-Domain-Policies none always;
    add_header X-Robots-Tag "noindex, nofollow" always;
}
location ~ \.(otf|woff2?)$ {
    try_files $uri /index.php$request_uri;
    expires 7d;
}
location /remote { return 301 /remote.php$request_uri; }
location / { try_files $uri $uri/ /index.php$request_uri; }
"#;

/// A variable of these rules.
const ASSETS_OF_NEXTCLOUD: &str =
    "map $arg_v $asset_immutable { \"\" \"\"; default \", immutable\"; }";

/// Nextcloud's own `.htaccess`, shortened, with the lines that its installation adds for pretty
/// links.
const NEXTCLOUD_HTACCESS: &str = r#"<IfModule mod_headers.c>
Header always set Referrer-Policy "no-referrer"
Header always set X-Content-Type-Options "nosniff"
Header always set X-Frame-Options "SAMEORIGIN"
Header always set X-Permitted-Cross-Domain-Policies "none"
Header always set X-Robots-Tag "noindex, nofollow"
SetEnv modHeadersAvailable true
<FilesMatch "\.(css|js|mjs|svg|gif|png|jpg|webp|ico|wasm|tflite)$">
Header set Cache-Control "max-age=15778463"
</FilesMatch>
<FilesMatch "\.(otf|woff2?)$">
Header set Cache-Control "max-age=604800"
</FilesMatch>
</IfModule>
<IfModule mod_rewrite.c>
RewriteEngine on
RewriteCond %{HTTP_USER_AGENT} DavClnt
RewriteRule ^$ /remote.php/webdav/ [L,R=302]
RewriteRule .* - [env=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteRule ^\.well-known/carddav /remote.php/dav/ [R=301,L]
RewriteRule ^\.well-known/caldav /remote.php/dav/ [R=301,L]
RewriteRule ^remote/(.*) remote.php [QSA,L]
RewriteRule ^(?:build|tests|config|lib|3rdparty|templates)/.* - [R=404,L]
RewriteRule ^\.well-known/(?!acme-challenge|pki-validation) /index.php [QSA,L]
RewriteRule ^(?:\.(?!well-known)|autotest|occ|issue|indie|db_|console).* - [R=404,L]
RewriteCond %{REQUEST_FILENAME} !\.(css|js|mjs|svg|gif|ico|jpg|jpeg|png|webp|html|otf|ttf|woff2?|map|webm|mp4|mp3|ogg|wav|flac|wasm|tflite)$
RewriteCond %{REQUEST_FILENAME} !/core/ajax/update\.php
RewriteCond %{REQUEST_FILENAME} !/(cron|public|remote|status)\.php
RewriteCond %{REQUEST_FILENAME} !/ocs/v(1|2)\.php
RewriteCond %{REQUEST_FILENAME} !/robots\.txt
RewriteCond %{REQUEST_FILENAME} !/(ocs-provider|updater)/
RewriteCond %{REQUEST_URI} !^/\.well-known/(acme-challenge|pki-validation)/.*
RewriteRule . index.php [PT,E=PATH_INFO:$1]
</IfModule>
DirectoryIndex index.php index.html
Options -Indexes
"#;

#[test]
#[cfg_attr(not(root), ignore = "needs root: servers that run scripts as www-data")]
fn nextcloud_as_root() {
    let site = layout(&[
        "index.php",
        "index.html",
        "remote.php",
        "public.php",
        "status.php",
        "cron.php",
        "console.php",
        "occ",
        "robots.txt",
        "ocs/v1.php",
        "ocs/v2.php",
        "ocs/routes.php",
        "ocs-provider/index.php",
        "updater/index.php",
        "core/ajax/update.php",
        "core/js/main.mjs",
        "core/js/main.js",
        "core/js/main.js.map",
        "core/css/a.css",
        "core/fonts/a.woff2",
        "core/img/logo.svg",
        "core/img/favicon.ico",
        "core/img/a.png",
        "core/templates/404.php",
        "core/doc/a.html",
        "apps/files/appinfo/info.xml",
        "apps/files/appinfo/routes.php",
        "apps/files/a.svg",
        "apps/files/js/files.wasm",
        "apps/files/lib/a.php",
        "apps/viewer/sounds/a.ogg",
        "dist/core-main.js",
        "config/config.php",
        "config/.htaccess",
        "data/admin/files/a.txt",
        "data/nextcloud.log",
        "lib/base.php",
        "3rdparty/autoload.php",
        "templates/a.txt",
        "build/a.txt",
        "tests/a.txt",
        "db_structure.xml",
        "issue_template.md",
        "indie.json",
        "autotest.sh",
        "COPYING",
        ".user.ini",
        ".git/config",
        ".well-known/acme-challenge/token",
        ".well-known/pki-validation/token",
    ]);
    let vendor = Vendor {
        nginx: NEXTCLOUD,
        htaccess: &[
            ("", NEXTCLOUD_HTACCESS),
            ("config/", "Require all denied\n"),
            ("data/", "Require all denied\n"),
        ],
    };
    visit(&site, "nextcloud", &vendor, include_str!("walks/nextcloud.txt"));
}
