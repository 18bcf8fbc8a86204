//! Debian's DokuWiki at `/dokuwiki`, in one folder as the vendor ships it.

use std::path::Path;
use std::process::Command;

use sendoff_tests::Site;

use crate::documents::{example, shipped};
use crate::farm::{Farm, Rules};
use crate::walk::walk;

/// Texts before and after each part that differs, by design of DokuWiki, between two answers to the
/// same request.
const VOLATILE: &[(&str, &str)] = &[
    ("name=\"sectok\" value=\"", "\""),
    ("sectok=", "\""),
    ("\"sectok\":\"", "\""),
    ("taskrunner.php?id=", "\""),
    ("tseed=", "\""),
    ("<meta name=\"date\" content=\"", "\""),
    // A feed is kept for some time, from its first request on.
    ("<dc:date>", "<"),
    ("JSINFO =", ";"),
];

/// Rules of https://www.dokuwiki.org/install:nginx, in `/dokuwiki`.
const NGINX: &str = r"index doku.php;
location ~ ^/dokuwiki/(.*/)?(conf/|bin/|inc/|vendor/|install.php) { deny all; }
location ~ ^/dokuwiki/data/ { internal; }
location ~ ^/dokuwiki/lib.*\.(js|css|gif|png|ico|jpg|jpeg)$ { expires 365d; }
location /dokuwiki/ { try_files $uri $uri/ @dokuwiki; }
location @dokuwiki {
    rewrite ^/dokuwiki/_media/(.*) /dokuwiki/lib/exe/fetch.php?media=$1 last;
    rewrite ^/dokuwiki/_detail/(.*) /dokuwiki/lib/exe/detail.php?media=$1 last;
    rewrite ^/dokuwiki/_export/([^/]+)/(.*) /dokuwiki/doku.php?do=export_$1&id=$2 last;
    rewrite ^/dokuwiki/(.*) /dokuwiki/doku.php?id=$1&$args last;
}
location ~ \.php$ {
    {php}
}
";

/// The folder of Debian's package.
const SHARE: &str = "/usr/share/dokuwiki";

#[test]
#[cfg_attr(
    not(all(root, bookworm)),
    ignore = "needs root, for scripts of www-data, and the versions of Debian 12"
)]
fn dokuwiki_as_root() {
    let site = Site::new();
    let folder = site.outside("share/dokuwiki");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dokuwiki-walk");
    let made = Command::new("sh").arg(tests.join("dokuwiki.sh")).arg(&cache).arg(&folder).status();
    assert!(made.unwrap().success());
    // The files that the vendor ships; Debian has some of them elsewhere.
    for name in ["bin", "conf", "data", "inc", "vendor"] {
        site.write_at(folder.join(name).join(".htaccess"), "Require all denied\n");
    }
    std::fs::copy(cache.join("usr/share/dokuwiki/.htaccess.dist"), folder.join(".htaccess"))
        .unwrap();
    site.write_at(folder.join("conf/local.php.bak"), "<?php $conf['secret'] = 1;");
    site.write_at(folder.join("README"), "read me\n");
    site.adopt_all(&site.outside("share"));
    let folders = [
        (SHARE, folder.display().to_string()),
        ("/var/lib/dokuwiki", folder.display().to_string()),
    ];
    let conf = "/etc/dokuwiki/apache.conf";
    let farm = Farm::start(
        &site,
        &Rules {
            root: site.root().to_owned(),
            preset: format!("app = 'dokuwiki'\nalias = {{ '/dokuwiki' = '{}' }}", folder.display()),
            htaccess: example("from-apache.md", conf, &folders),
            nginx: NGINX
                .replace("{php}", "{php}\nfastcgi_param DOCUMENT_ROOT ROOT;")
                .replace("ROOT", &site.root().display().to_string()),
            apache: format!(
                "<Location />\nOptions -Indexes\n</Location>\n{}",
                shipped(conf, &folders)
            ),
            nginx_root: Some(site.outside("share")),
            ..Rules::default()
        },
    );
    walk(&farm, include_str!("walks/dokuwiki.txt"), VOLATILE);
}
