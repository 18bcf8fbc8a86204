//! Debian's MediaWiki at `/mediawiki`, with a database in a file, short links at `/wiki`.

use std::os::unix::fs::symlink;
use std::process::Command;

use sendoff_tests::Site;

use crate::farm::{Farm, HOST, Rules};
use crate::walk::walk;

/// What differs between two answers to the same request, by design of MediaWiki.
const VOLATILE: &[(&str, &str)] = &[
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
fn install(site: &Site) {
    let root = site.folder("mediawiki");
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
    let mut text = std::fs::read_to_string(&file).unwrap();
    text += &format!(
        "
$wgArticlePath = '/wiki/$1';
$wgJobRunRate = 0;
$wgMainCacheType = CACHE_NONE;
$wgEnableUploads = true;
$wgUploadDirectory = '{root}/images';
$wgCacheDirectory = false;
wfLoadSkin('Vector');
",
        root = root.display()
    );
    std::fs::write(&file, text).unwrap();
    site.adopt_all(&settings);
    for (name, text) in [
        ("mediawiki/images/.htaccess", "php_flag engine off\n"),
        ("mediawiki/images/evil.php", "<?php echo 'ran';"),
        ("mediawiki/images/a/ab/evil.php", "<?php echo 'ran';"),
        ("mediawiki/images/a/ab/Notes.txt", "notes of a user\n"),
        ("mediawiki/images/deleted/x/secret.txt", "deleted\n"),
        ("mediawiki/cache/l10n_cache.txt", "cache\n"),
    ] {
        site.write(name, text);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: servers that run scripts as www-data")]
fn mediawiki_as_root() {
    let site = Site::new();
    install(&site);
    let settings = site.outside("settings/LocalSettings.php").display().to_string();
    // The vendor's rules, at /mediawiki instead of /w.
    let nginx = r"index index.php;
location ~ ^/mediawiki/(index|load|api|thumb|opensearch_desc|rest|img_auth)\.php(/|$) {
    {php}
    fastcgi_param MW_CONFIG_FILE SETTINGS;
}
location ^~ /wiki {
    rewrite ^ /mediawiki/index.php last;
}
location ~ ^/mediawiki/images/deleted { deny all; }
location ~ ^/mediawiki/(cache|includes|maintenance|languages|serialized|tests|vendor|docs|mw-config)(/|$) { deny all; }
location ~ ^/mediawiki/.*\.php(/|$) { deny all; }
location /mediawiki/images/ { add_header X-Content-Type-Options nosniff always; }
";
    let share = "<Directory /usr/share/mediawiki>\nOptions FollowSymLinks\nAllowOverride All\nRequire all granted\n</Directory>\n";
    let ours = format!("[[site.route]]\nparams = {{ MW_CONFIG_FILE = '{settings}' }}\n");
    let farm = Farm::start(
        &site,
        &Rules {
            root: site.root().to_owned(),
            preset: format!("app = 'mediawiki'\n{ours}"),
            htaccess: format!("app = 'mediawiki'\nhtaccess = true\n{ours}"),
            nginx: nginx.replace("SETTINGS", &settings),
            apache: format!(
                "{share}<Location />\nOptions -Indexes\n</Location>\nSetEnv MW_CONFIG_FILE {settings}\nAliasMatch ^/wiki(/|$) {}/mediawiki/index.php\n",
                site.root().display()
            ),
            ini: Vec::new(),
        },
    );
    let requests = walk(&farm, include_str!("walks/mediawiki.txt"), VOLATILE);
    assert!(requests >= 30, "{requests}");
}
