//! Debian's Roundcube at `/roundcube`, with a database in a file and an IMAP server.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use sendoff_tests::Site;

use crate::documents::{example, shipped};
use crate::farm::{DEBIAN, Farm, Rules};
use crate::mail::Mail;
use crate::walk::walk;

/// Texts before and after each part that differs, by design of Roundcube, between two answers to
/// the same request.
const VOLATILE: &[(&str, &str)] = &[
    ("_token=", "\""),
    ("oken\" value=\"", "\""),
    ("oken\":\"", "\""),
    ("compose_id\":\"", "\""),
    ("_id\" value=\"", "\""),
    ("_id=", "\""),
    ("keep_alive\":", ","),
];

/// The rules of the vendor's `.htaccess`, translated for nginx and for /roundcube: the vendor has
/// no page for nginx.
const NGINX: &str = r#"
index index.php index.html;
expires 30d;
add_header X-Robots-Tag "noindex, nofollow";
location = /roundcube/favicon.ico { rewrite ^ /roundcube/skins/elastic/images/favicon.ico; }
location ~ "^/roundcube/(?!installer|\.well-known/|[a-zA-Z0-9]{16})(\.?[^.]+)$" { deny all; }
location ~ ^/roundcube/(\.git|\.tx|SQL|bin|config|logs|temp|tests|vendor|program/(include|lib|localization|steps)) { deny all; }
location ~ /(README.*|CHANGELOG.*|SECURITY.*|meta\.json|composer\..*|jsdeps\.json)$ { deny all; }
location ~ /\.ht { deny all; }
location ~ ^/roundcube/.*\.php(/|$) {
    {php}
    expires off;
    fastcgi_param ROUNDCUBE_CONFIG_DIR CONFIG;
    fastcgi_param DOCUMENT_ROOT ROOT;
}
"#;

const MESSAGE: &str = "From: Ada <ada@example.test>\r
To: Bob <bob@example.test>\r
Subject: A report\r
Date: Sun, 01 Mar 2026 12:00:00 +0000\r
Message-ID: <1@example.test>\r
MIME-Version: 1.0\r
Content-Type: multipart/mixed; boundary=limit\r
\r
--limit\r
Content-Type: text/plain; charset=utf-8\r
\r
Dear Bob, the report is attached.\r
--limit\r
Content-Type: text/csv; name=report.csv\r
Content-Disposition: attachment; filename=report.csv\r
\r
year,sum\r
2026,1\r
--limit--\r
";

/// The layout of /var/lib/roundcube, with settings and a database of its own.
fn install(site: &Site, mail: &Mail) {
    let root = site.outside("lib/roundcube");
    fs::create_dir_all(root.parent().unwrap()).unwrap();
    let copied = Command::new("cp").args(["-a", "/var/lib/roundcube"]).arg(&root).status();
    assert!(copied.unwrap().success(), "run: apt-get install roundcube-sqlite3");
    fs::remove_file(root.join("logs")).unwrap();
    // A link to files in /etc that not every user may read.
    fs::remove_file(root.join("config")).unwrap();
    let config = site.outside("lib/roundcube/config");
    let database = site.outside("roundcube/data");
    let folder = site.outside("roundcube");
    site.write_at(folder.join("logs/none"), "");
    site.write_at(folder.join("temp/none"), "");
    site.write_at(
        config.join("config.inc.php"),
        format!(
            "<?php
$config = [];
$config['db_dsnw'] = 'sqlite:///{database}?mode=0640';
$config['imap_host'] = '{imap}';
$config['smtp_host'] = '';
$config['des_key'] = 'twenty-four characters..';
$config['log_dir'] = '{folder}/logs';
$config['temp_dir'] = '{folder}/temp';
$config['plugins'] = [];
$config['skin'] = 'elastic';
$config['language'] = 'en_US';
$config['enable_spellcheck'] = false;
$config['imap_cache'] = null;
$config['session_lifetime'] = 60;
",
            database = database.display(),
            folder = folder.display(),
            imap = mail.addr(),
        ),
    );
    for name in ["defaults.inc.php", "mimetypes.php"] {
        symlink(format!("/etc/roundcube/{name}"), config.join(name)).unwrap();
    }
    let made = Command::new("php")
        .arg("-r")
        .arg(
            "(new PDO('sqlite:' . $argv[1]))->exec(file_get_contents('/usr/share/roundcube/SQL/sqlite.initial.sql'));",
        )
        .arg(&database)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    site.adopt_all(&folder);
    let html = root.join("public_html");
    for (name, text) in [
        ("README.md", "read me\n"),
        ("INSTALL", "install\n"),
        ("composer.json", "{}\n"),
        ("jsdeps.json", "{}\n"),
        ("config/config.inc.php", "<?php echo 'ran';"),
        ("logs/errors.log", "an error\n"),
        ("temp/RCMTEMPattmnt1", "an attachment\n"),
        ("SQL/mysql.initial.sql", "CREATE TABLE\n"),
        ("SQL/notes.txt", "notes\n"),
        ("bin/update.sh", "#!/bin/sh\n"),
        ("vendor/autoload.php", "<?php echo 'ran';"),
        ("program/include/rcmail.php", "<?php echo 'ran';"),
        ("program/localization/index.inc", "<?php\n"),
    ] {
        site.write_at(html.join(name), text);
    }
}

#[test]
#[cfg_attr(
    not(all(root, bookworm)),
    ignore = "needs root, for scripts of www-data, and the versions of Debian 12"
)]
#[cfg_attr(all(root, bookworm), ignore = "heavy: half a minute, with a mail server")]
fn roundcube_as_root() {
    let site = Site::new();
    let mail = Mail::start(&site);
    install(&site, &mail);
    mail.deliver(&site, "bob", "1.report", MESSAGE);
    let mut long = MESSAGE.replace("A report", "A longer report");
    for line in 0..2000 {
        write!(long, "{line}\r\n").unwrap();
    }
    mail.deliver(&site, "bob", "2.longer", &long.replace("2026,1\r\n--limit--\r\n", "2026,1\r\n"));
    let lib = site.outside("lib/roundcube").display().to_string();
    let settings = format!("{lib}/config");
    let folders = [("/var/lib/roundcube", lib.clone())];
    let conf = "/etc/roundcube/apache.conf";
    let params = format!("[[site.route]]\nparams = {{ ROUNDCUBE_CONFIG_DIR = '{settings}' }}\n");
    // nginx is shown the folder under the name that its URL has.
    let shown = site.outside("shown");
    fs::create_dir_all(&shown).unwrap();
    symlink(format!("{lib}/public_html"), shown.join("roundcube")).unwrap();
    let farm = Farm::start(
        &site,
        &Rules {
            root: site.root().to_owned(),
            preset: format!(
                "app = 'roundcube'\nalias = {{ '/roundcube' = '{lib}/public_html' }}\nfollow_symlinks_into = ['{lib}', '/usr/share/roundcube']\n{params}"
            ),
            htaccess: example("from-apache.md", conf, &folders) + &params,
            nginx: NGINX
                .replace("CONFIG", &settings)
                .replace("ROOT", &site.root().display().to_string()),
            apache: format!(
                "{DEBIAN}<Location />\nOptions -Indexes\n</Location>\nSetEnv ROUNDCUBE_CONFIG_DIR {settings}\n{}",
                shipped(conf, &folders).replace("#    Alias", "Alias")
            ),
            nginx_root: Some(shown),
            ..Rules::default()
        },
    );
    walk(&farm, include_str!("walks/roundcube.txt"), VOLATILE);
}
