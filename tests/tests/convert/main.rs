//! `sendoff convert`: another server with its configuration, and Sendoff with the converted one,
//! give the same answers.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod apache;
mod apache_closed;
mod apache_random;
mod applications;
mod caddy;
mod caddy_closed;
mod caddy_random;
mod closed;
mod folders;
mod gates;
mod nested;
mod original;
mod random;
mod rules;
mod scripts;
mod unit;
mod unit_repeated;

use original::Original;

/// The files of an application: scripts show how they were called, other files their names.
const LARAVEL: &[&str] = &[
    "index.php",
    "other.php",
    "robots.txt",
    "css/app.css",
    "docs/index.php",
    "empty/file.txt",
    ".well-known/acme",
    ".env",
];

#[test]
fn laravel() {
    let pair = Original::start(include_str!("servers/laravel.conf"), LARAVEL);
    pair.same("/ /index.php /index.php?a=1 /page /page?a=b&c=d /css/app.css /robots.txt");
    pair.same("/favicon.ico /css/none.css /docs /empty/ /empty/file.txt /.env /.well-known/acme");
    // nginx sends the source of a script that no location runs.
    pair.refuses("/other.php");
}

#[test]
fn wordpress() {
    let files = [
        "index.php",
        "wp-login.php",
        "xmlrpc.php",
        "wp-admin/index.php",
        "wp-content/uploads/a.php",
        "wp-content/uploads/a.jpg",
        "style.css",
        ".htpasswd",
    ];
    let pair = Original::start(include_str!("servers/wordpress.conf"), &files);
    pair.same(
        "/ /wp-login.php /wp-login.php?a=1 /wp-admin/ /wp-admin /2026/a-post/?p=1 /style.css",
    );
    pair.same(
        "/none.css /none.php /xmlrpc.php /wp-content/uploads/a.php /wp-content/uploads/a.jpg",
    );
    pair.same("/.htpasswd /favicon.ico /robots.txt /new/page /wp-login.php/more /wp-content/");
}

#[test]
fn drupal() {
    let files = [
        "index.php",
        "update.php",
        "core/misc/drupal.js",
        "README.txt",
        "sites/default/private/a.pdf",
        "sites/default/files/a.php",
        "sites/default/files/styles/a.png",
        "vendor/a.php",
        ".git/config",
    ];
    let pair = Original::start(include_str!("servers/drupal.conf"), &files);
    pair.same(
        "/ /node/1 /node/1?a=b /index.php /update.php /core/misc/drupal.js /core/misc/none.js",
    );
    pair.same("/README.txt /sites/default/private/a.pdf /sites/default/files/a.php /vendor/a.php");
    pair.same(
        "/sites/default/files/styles/a.png /sites/default/files/styles/b.png?itok=1 /.git/config",
    );
    pair.same("/none.php /a.b/c.php");
}

#[test]
fn symfony() {
    let files = ["index.php", "info.php", "bundles/a.css"];
    let pair = Original::start(include_str!("servers/symfony.conf"), &files);
    pair.same(
        "/ /blog/1 /blog/1?a=b /index.php /index.php/blog /info.php /none.php /bundles/a.css",
    );
}

#[test]
fn mediawiki() {
    let files = [
        "w/index.php",
        "w/api.php",
        "w/LocalSettings.php",
        "w/images/a.png",
        "w/images/deleted/a.png",
        "w/images/evil.php",
        "w/resources/lib/a.js",
        "w/skins/a/b.css",
        "w/skins/a/b.php",
    ];
    let pair = Original::start(include_str!("servers/mediawiki.conf"), &files);
    pair.same("/ /w/index.php?title=A /w/api.php /w/LocalSettings.php /w/images/a.png /wiki/Page");
    pair.same(
        "/w/images/deleted/a.png /w/resources/lib/a.js /w/resources/lib/none.js /w/skins/a/b.css",
    );
    pair.same("/w/skins/a/b.php /favicon.ico /other /w/ /wiki/Page?action=edit");
    pair.refuses("/w/images/evil.php");
}

#[test]
fn moodle() {
    let files = [
        "index.php",
        "pluginfile.php",
        "course/view.php",
        "vendor/a.php",
        "composer.json",
        "theme/a.css",
        "lib/readme.txt",
        "pix/index.html",
    ];
    let pair = Original::start(include_str!("servers/moodle.conf"), &files);
    pair.same("/ /course/view.php?id=2 /course/view.php /pluginfile.php/1/a/b.png /none /none.php");
    pair.same("/vendor/a.php /composer.json /theme/a.css /lib/readme.txt /pix/ /pix /course/");
    pair.same("/dataroot/a");
}

#[test]
fn nextcloud() {
    let files = [
        "index.php",
        "remote.php",
        "status.php",
        "core/a.js",
        "core/a.woff2",
        "config/config.php",
        "apps/a/b.php",
        "robots.txt",
        ".well-known/acme-challenge/x",
        "console.php",
    ];
    let pair = Original::start(include_str!("servers/nextcloud.conf"), &files);
    pair.same("/ /status.php /remote.php/dav/files /core/a.js /core/a.woff2 /config/config.php");
    pair.same("/.well-known/carddav /.well-known/acme-challenge/x /.well-known/webfinger?a=b");
    pair.same("/robots.txt /console.php /remote/x /index.php/apps/files /index.php");
    pair.same("/apps/a/b.php /core/none.js /apps/files/ /apps/files/?dir=a /core /data/ /.hidden");
}

#[test]
fn discourse() {
    let files = ["images/a.png"];
    let pair = Original::start(include_str!("servers/discourse.conf"), &files);
    pair.same("/ /t/topic/1?page=2 /images/a.png /uploads/a.png /api/x?y=z /api /private/ /a%20b");
    // The path of the named location is no way around the password.
    pair.refuses("/@discourse/private/");
}

#[test]
fn phpmyadmin() {
    let files = [
        "index.html",
        "info.php",
        "../data/phpmyadmin/index.php",
        "../data/phpmyadmin/js/a.js",
        "../data/phpmyadmin/libraries/a.txt",
        "../data/phpmyadmin/setup/index.php",
        "../data/phpmyadmin/doc/index.html",
    ];
    let pair = Original::start(include_str!("servers/phpmyadmin.conf"), &files);
    pair.same("/ /info.php /none /phpmyadmin/index.php?a=b /phpmyadmin/ /phpmyadmin");
    pair.same("/phpmyadmin/js/a.js /phpmyadmin/JS/a.js /phpmyadmin/libraries/a.txt");
    pair.same(
        "/phpmyadmin/setup/index.php /phpmyadmin/setup/ /phpmyadmin/doc/ /phpmyadmin/none.php",
    );
}

#[test]
fn a_named_location_of_a_folder_is_no_way_around_a_password() {
    let lines = "location /private/ { auth_basic a; auth_basic_user_file USERS; proxy_pass http://127.0.0.1:APP; }
        location /app/ { try_files $uri @app; }
        location @app { proxy_pass http://127.0.0.1:APP; proxy_set_header Host $host; }";
    let pair = Original::start(lines, &["app/a.txt"]);
    pair.same("/private/ /app/a.txt /app/b /app/ /other");
    pair.refuses("/@app/private/");
    pair.refuses("/@app/app/b");
}
