//! Debian's phpMyAdmin at `/phpmyadmin`, where its package is: beside it `/javascript`, to which its links lead.

use sendoff_tests::Site;

use crate::database::Database;
use crate::farm::{Farm, Rules};
use crate::walk::walk;

/// What differs between two answers to the same request, by design of phpMyAdmin.
const VOLATILE: &[(&str, &str)] = &[
    ("token\" value=\"", "\""),
    ("token:\"", "\""),
    // The name of the web server.
    ("<li class=\"list-group-item\">\n                  ", "\n"),
    ("set_session\" value=\"", "\""),
];

const SITE: &str = "app = 'phpmyadmin'
alias = { '/phpmyadmin' = '/usr/share/phpmyadmin', '/javascript' = '/usr/share/javascript' }
";

/// The folders that the vendor's page on security names.
const NGINX: &str = r"location /phpmyadmin {
    root /usr/share;
    index index.php;
    location ~ ^/phpmyadmin/(libraries|templates|setup/lib|sql)(/|$) { deny all; }
    location ~ \.php(/|$) { {php} }
}
location /javascript { root /usr/share; }
";

/// What Debian's packages bring, and the part of apache2.conf that they count on.
const APACHE: &str = "<Directory />
Options FollowSymLinks
AllowOverride None
Require all denied
</Directory>
<Directory /usr/share>
AllowOverride None
Require all granted
</Directory>
Include /etc/apache2/conf-available/javascript-common.conf
Include /etc/phpmyadmin/apache.conf
";

#[test]
#[cfg_attr(not(root), ignore = "needs root: servers that run scripts as www-data")]
fn phpmyadmin_as_root() {
    let site = Site::with("index.html", "home");
    let database = Database::start(&site);
    let farm = Farm::start(
        &site,
        &Rules {
            root: site.root().to_owned(),
            preset: SITE.to_owned(),
            htaccess: format!("{SITE}htaccess = true\n"),
            nginx: NGINX.to_owned(),
            apache: APACHE.to_owned(),
            ini: vec![("mysqli.default_socket", database.socket().display().to_string())],
        },
    );
    let requests = walk(&farm, include_str!("walks/phpmyadmin.txt"), VOLATILE);
    assert!(requests >= 30, "{requests}");
}
