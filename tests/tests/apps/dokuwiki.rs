//! Debian's DokuWiki, in one folder as the vendor ships it.

use std::path::Path;
use std::process::Command;

use sendoff_tests::Site;

use crate::farm::{Farm, Rules};
use crate::walk::walk;

/// What differs between two answers to the same request, by design of DokuWiki.
const VOLATILE: &[(&str, &str)] = &[
    ("name=\"sectok\" value=\"", "\""),
    ("\"sectok\":\"", "\""),
    ("taskrunner.php?id=", "\""),
    ("tseed=", "\""),
];

/// Rules of https://www.dokuwiki.org/install:nginx, without pretty links.
const NGINX: &str = r"index doku.php;
location ~ ^/lib.*\.(js|css|gif|png|ico|jpg|jpeg)$ { }
location ~ ^/(conf|bin|inc|vendor|data)/ { deny all; }
location ~ /\.ht { deny all; }
location / { try_files $uri $uri/ =404; }
location ~ \.php$ { {php} }
";

#[test]
#[cfg_attr(not(root), ignore = "needs root: servers that run scripts as www-data")]
fn dokuwiki_as_root() {
    let site = Site::new();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dokuwiki-walk");
    let made =
        Command::new("sh").arg(tests.join("dokuwiki.sh")).arg(&cache).arg(site.root()).status();
    assert!(made.unwrap().success());
    // The files that the vendor ships; Debian has some of them elsewhere.
    for folder in ["bin", "conf", "data", "inc", "vendor"] {
        site.write(&format!("{folder}/.htaccess"), "Require all denied\n");
    }
    site.write("conf/local.php.bak", "<?php $conf['secret'] = 1;");
    site.adopt_all(site.root());
    let farm = Farm::start(
        &site,
        &Rules {
            root: site.root().to_owned(),
            preset: "app = 'dokuwiki'".to_owned(),
            htaccess: "htaccess = true\nindex = 'doku.php'\nfront_controller = 'off'".to_owned(),
            nginx: NGINX.to_owned(),
            apache: "<Location />\nOptions -Indexes\nDirectoryIndex doku.php\n</Location>\n"
                .to_owned(),
            ini: Vec::new(),
        },
    );
    let requests = walk(&farm, include_str!("walks/dokuwiki.txt"), VOLATILE);
    assert!(requests >= 30, "{requests}");
}
