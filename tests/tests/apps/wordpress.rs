//! Debian's WordPress with MariaDB and pretty permalinks.

use std::os::unix::fs::symlink;
use std::process::Command;

use sendoff_tests::Site;

use crate::database::Database;
use crate::documents::{example, shipped};
use crate::farm::{Farm, HOST, Rules};
use crate::walk::walk;

/// Texts before and after each part that differs, by design of WordPress, between two answers to
/// the same request.
pub(crate) const VOLATILE: &[(&str, &str)] = &[
    // Tokens of the editor and of forms, which belong to one session.
    ("_wpnonce=", "&"),
    ("once\" value=\"", "\""),
    ("once\":\"", "\""),
    ("nonce\":{", "}"),
    ("once = \"", "\""),
    ("-comment\" value=\"", "\""),
    ("_comment\" value=\"", "\""),
    ("_edit\" value=\"", "\""),
    // The time.
    ("\"time\":\"", "\""),
    ("<code>20", "</code>"),
    // A password that WordPress suggests.
    ("data-pw=\"", "\""),
    ("NonceMiddleware( \"", "\""),
    ("nonces\":{", "}"),
    // Numbers of uploads.
    ("\"data\":{\"id\":", ","),
    ("post=", "&"),
    ("\"date\":", ","),
    ("\"modified\":", ","),
    // Addresses that are hidden from harvesters, in a random way.
    ("mailto:", "</a>"),
];

/// The rules that WordPress writes for its permalinks.
const HTACCESS: &str = "RewriteEngine On
RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteBase /
RewriteRule ^index\\.php$ - [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /index.php [L]
";

/// Rules of https://developer.wordpress.org/advanced-administration/server/web-server/nginx/ for
/// one site.
pub(crate) const NGINX: &str = r"index index.php;
location = /favicon.ico { log_not_found off; }
location = /robots.txt { allow all; log_not_found off; }
location ~ /\. { deny all; }
location ~* /(?:uploads|files)/.*\.php$ { deny all; }
location / { try_files $uri $uri/ /index.php?$args; }
location ~ \.php$ { {php} }
";

/// A copy of Debian's files with their links, the targets of these links beside it, and a database
/// with a site in it.
pub(crate) fn install(site: &Site, database: &Database) {
    let share = site.outside("share");
    std::fs::create_dir_all(&share).unwrap();
    for name in ["php", "javascript", "fonts"] {
        symlink(format!("/usr/share/{name}"), share.join(name)).unwrap();
    }
    let root = share.join("wordpress");
    let copied = Command::new("cp").args(["-a", "/usr/share/wordpress"]).arg(&root).status();
    assert!(copied.unwrap().success(), "run: apt-get install wordpress");
    std::fs::remove_file(root.join(".htaccess")).unwrap();
    std::fs::write(root.join(".htaccess"), HTACCESS).unwrap();
    let config = format!(
        "<?php
define('DB_NAME', 'app'); define('DB_USER', 'app'); define('DB_PASSWORD', 'secret');
define('DB_HOST', 'localhost:{}'); define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $n) {{ define($n . '_KEY', $n); define($n . '_SALT', $n); }}
define('DISABLE_WP_CRON', true); define('WP_HTTP_BLOCK_EXTERNAL', true); define('AUTOMATIC_UPDATER_DISABLED', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
",
        database.socket().display()
    );
    std::fs::write(root.join("wp-config.php"), &config).unwrap();
    std::fs::write(root.join("wp-config.php.bak"), &config).unwrap();
    for (name, text) in [
        ("wp-content/uploads/evil.php", "<?php echo 'ran';"),
        ("wp-content/uploads/2026/evil.php", "<?php echo 'ran';"),
        ("wp-content/uploads/evil.PHP", "<?php echo 'ran';"),
        ("wp-content/uploads/evil.phtml", "<?php echo 'ran';"),
        ("wp-content/uploads/notes.txt", "notes of a user\n"),
        ("dump.sql", "INSERT INTO users"),
        (".git/config", "[core]"),
    ] {
        site.write_at(root.join(name), text);
    }
    let made = Command::new("php")
        .current_dir(&root)
        .arg("-r")
        .arg(format!(
            "$_SERVER['HTTP_HOST'] = '{HOST}'; $_SERVER['REQUEST_URI'] = '/'; define('WP_INSTALLING', true);
             function wp_mail() {{ return true; }}
             require 'wp-load.php'; require 'wp-admin/includes/upgrade.php';
             wp_install('A site', 'admin', 'admin@example.test', true, '', 'correct horse');
             update_option('permalink_structure', '/%year%/%postname%/'); update_option('siteurl', 'http://{HOST}');
             update_option('uploads_use_yearmonth_folders', 0); update_option('home', 'http://{HOST}'); switch_theme('twentytwentythree');
             wp_update_post(['ID' => 1, 'post_date' => '2026-03-01 12:00:00', 'post_date_gmt' => '2026-03-01 12:00:00', 'post_name' => 'hello-world']);
             $GLOBALS['wp_rewrite']->init(); flush_rewrite_rules(false);"
        ))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// The lines of the virtual host in Debian's example that are about the application.
fn virtual_host(example: &str) -> String {
    let (_, host) = example.split_once("ServerName blog.example.com").unwrap();
    let (lines, _) = host.split_once("</VirtualHost>").unwrap();
    let others = ["DocumentRoot", "ErrorLog", "TransferLog"];
    let kept = lines.lines().filter(|line| !others.iter().any(|other| line.contains(other)));
    kept.flat_map(|line| [line, "\n"]).collect()
}

#[test]
#[cfg_attr(
    not(all(root, bookworm)),
    ignore = "needs root, for scripts of www-data, and the versions of Debian 12"
)]
fn wordpress_as_root() {
    let site = Site::new();
    let database = Database::start(&site);
    install(&site, &database);
    let root = site.outside("share/wordpress").display().to_string();
    let folders = [
        ("/var/lib/wordpress/wp-content", format!("{root}/wp-content")),
        ("/usr/share/wordpress", root.clone()),
    ];
    let conf = "/usr/share/doc/wordpress/examples/apache.conf";
    let farm = Farm::start(
        &site,
        &Rules {
            root: site.outside("share/wordpress"),
            preset: "app = 'wordpress'".to_owned(),
            htaccess: example("from-apache.md", conf, &folders),
            nginx: NGINX.to_owned(),
            apache: format!(
                "<Location />\nOptions -Indexes\n</Location>\n{}",
                virtual_host(&shipped(conf, &folders))
            ),
            ini: Vec::new(),
            ..Rules::default()
        },
    );
    walk(&farm, include_str!("walks/wordpress.txt"), VOLATILE);
}
