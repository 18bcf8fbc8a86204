//! Debian's MediaWiki at `/mediawiki`, with a database in a file, short links at `/wiki`.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use sendoff_tests::Site;

use crate::documents::{example, shipped};
use crate::farm::{Farm, HOST, Rules};
use crate::walk::walk;

/// Texts before and after each part that differs, by design of MediaWiki, between two answers to
/// the same request.
pub(crate) const VOLATILE: &[(&str, &str)] = &[
    ("\"wgRequestId\":\"", "\""),
    ("\"wgBackendResponseTime\":", ","),
    ("<!-- ", " -->"),
    ("time\":\"", "\""),
    ("\"timingprofile\":[", "]"),
    ("\"timestamp\":\"", "\""),
    // How PHP is attached to the web server.
    ("phpsapi\":\"", "\""),
    ("<td dir=\"ltr\">8.", "</td>"),
    ("\"requestId\":\"", "\""),
    ("oken\" type=\"hidden\" value=\"", "\""),
    ("oken\" value=\"", "\""),
    ("oken\":\"", "\""),
    ("\"pageid\":", ","),
    ("revid\":", ","),
    ("timestamp\":\"", "\""),
    // The time of the request.
    ("class=\"wlinfo\"", "</span>"),
    ("Server time:", "wpServerTime"),
    ("wpServerTime", ">"),
    ("wpLocalTime", "</span>"),
];

/// The folders that Debian's package links into the site.
const LINKED: [&str; 8] = [
    "extensions",
    "includes",
    "languages",
    "maintenance",
    "mw-config",
    "resources",
    "skins",
    "vendor",
];

/// The layout of /var/lib/mediawiki, with folders of its own for uploads and settings.
pub(crate) fn install(site: &Site) {
    let root = site.outside("lib/mediawiki");
    fs::create_dir_all(&root).unwrap();
    let installed = std::path::Path::new("/usr/share/mediawiki");
    assert!(installed.exists(), "run: apt-get install mediawiki");
    for name in LINKED {
        symlink(installed.join(name), root.join(name)).unwrap();
    }
    for entry in installed.read_dir().unwrap() {
        let name = entry.unwrap().file_name();
        let text = name.to_str().unwrap();
        if text != "LocalSettings.php" && (text.ends_with(".php") || text.ends_with(".json")) {
            symlink(installed.join(&name), root.join(&name)).unwrap();
        }
    }
    let settings = site.outside("settings");
    site.write_at(settings.join("none"), "");
    let made = Command::new("php")
        .arg("/usr/share/mediawiki/maintenance/install.php")
        .args(["--dbtype", "sqlite", "--dbname", "wiki", "--pass", "correct horse battery"])
        .arg(format!("--dbpath={}", settings.display()))
        .arg(format!("--confpath={}", settings.display()))
        .arg(format!("--server=http://{HOST}"))
        .args(["--scriptpath=/mediawiki", "A wiki", "Admin"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let file = settings.join("LocalSettings.php");
    let mut text = fs::read_to_string(&file).unwrap();
    text += &format!(
        "
$wgArticlePath = '/wiki/$1';
$wgJobRunRate = 0;
$wgMainCacheType = CACHE_NONE;
$wgEnableUploads = true;
$wgUploadDirectory = '{root}/images';
$wgHashedUploadDirectory = false;
$wgFileExtensions[] = 'txt';
$wgCacheDirectory = false;
wfLoadSkin('Vector');
",
        root = root.display()
    );
    fs::write(&file, text).unwrap();
    site.adopt_all(&settings);
    for (name, text) in [
        ("images/evil.php", "<?php echo 'ran';"),
        ("images/a/ab/evil.php", "<?php echo 'ran';"),
        ("images/a/ab/Notes.txt", "notes of a user\n"),
        ("images/deleted/x/secret.txt", "deleted\n"),
        ("cache/l10n_cache.txt", "cache\n"),
    ] {
        site.write_at(root.join(name), text);
    }
}

/// The vendor's rules, https://www.mediawiki.org/wiki/Manual:Short_URL/Nginx, at /mediawiki instead
/// of /w.
pub(crate) const NGINX: &str = r"
location ~ ^/mediawiki/(index|load|api|thumb|opensearch_desc|rest|img_auth)\.php$ {
    {php}
    fastcgi_param MW_CONFIG_FILE SETTINGS;
    fastcgi_param DOCUMENT_ROOT ROOT;
}
location /mediawiki/images { add_header X-Content-Type-Options nosniff; }
location /mediawiki/images/deleted { deny all; }
location ~ ^/mediawiki/resources/(assets|lib|src) {
    try_files $uri =404;
    add_header Cache-Control public;
    expires 7d;
}
location ~ ^/mediawiki/(skins|extensions)/.+\.(css|js|gif|jpg|jpeg|png|svg|wasm|ttf|woff|woff2)$ {
    try_files $uri =404;
    add_header Cache-Control public;
    expires 7d;
}
location ~ ^/mediawiki/(COPYING|CREDITS)$ { default_type text/plain; }
location /mediawiki/rest.php/ { try_files $uri $uri/ /mediawiki/rest.php?$query_string; }
location /wiki/ { rewrite ^/wiki/(?<pagename>.*)$ /mediawiki/index.php; }
location / { return 404; }
";

#[test]
#[cfg_attr(
    not(all(root, bookworm)),
    ignore = "needs root, for scripts of www-data, and the versions of Debian 12"
)]
#[cfg_attr(all(root, bookworm), ignore = "heavy: a minute")]
fn mediawiki_as_root() {
    let site = Site::new();
    install(&site);
    let settings = site.outside("settings/LocalSettings.php").display().to_string();
    let root = site.root().display().to_string();
    let folders = [("/var/lib/mediawiki", site.outside("lib/mediawiki").display().to_string())];
    let conf = "/etc/apache2/conf-available/mediawiki.conf";
    let params = format!("[[site.route]]\nparams = {{ MW_CONFIG_FILE = '{settings}' }}\n");
    let farm = Farm::start(
        &site,
        &Rules {
            root: site.root().to_owned(),
            preset: format!(
                "app = 'mediawiki'\nalias = {{ '/mediawiki' = '{}' }}\n{params}",
                folders[0].1
            ),
            htaccess: example("from-apache.md", conf, &folders) + &params,
            nginx: NGINX.replace("SETTINGS", &settings).replace("ROOT", &root),
            apache: format!(
                "<Directory /usr/share/mediawiki>\nAllowOverride All\nRequire all granted\n</Directory>\n\
                 <Location />\nOptions -Indexes\n</Location>\nSetEnv MW_CONFIG_FILE {settings}\n\
                 AliasMatch ^/wiki(/|$) {}/index.php\n{}",
                folders[0].1,
                shipped(conf, &folders)
            ),
            nginx_root: Some(site.outside("lib")),
            ..Rules::default()
        },
    );
    walk(&farm, include_str!("walks/mediawiki.txt"), VOLATILE);
}
