//! Debian's phpMyAdmin at `/phpmyadmin`, and `/javascript`, to which its pages link.

use sendoff_tests::Site;

use crate::database::Database;
use crate::documents::example;
use crate::farm::{DEBIAN, Farm, Rules};
use crate::walk::walk;

/// Texts before and after each part that differs, by design of phpMyAdmin, between two answers to
/// the same request.
const VOLATILE: &[(&str, &str)] = &[
    ("token\" value=\"", "\""),
    ("token:\"", "\""),
    // The name of the web server.
    ("<li class=\"list-group-item\">\n                  ", "\n"),
    ("set_session\" value=\"", "\""),
    ("token\\\" value=\\\"", "\\"),
    ("token\":\"", "\""),
    // How long MariaDB took, and numbers of elements.
    ("Query took ", ")"),
    ("display_binary_", "\""),
    ("display_blob_", "\""),
    ("geoOptionRadioGeom", "\""),
    ("geoOptionRadioWkb", "\""),
    ("geoOptionRadioWkt", "\""),
    ("hide_transformation_", "\""),
    ("partialFulltextRadioF", "\""),
    ("partialFulltextRadioP", "\""),
    ("relationalDisplayRadioD", "\""),
    ("relationalDisplayRadioK", "\""),
    ("resultsForm_", "\""),
    ("showAll_", "\""),
    ("table_create_time\" type=\"hidden\" value=\"", "\""),
    ("sql_signature=", "&"),
    ("sql_signature\" value=\"", "\""),
    ("data-for=\"", "\""),
    ("data-uniqueId=\"", "\""),
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

/// Apache's configuration from Debian's packages.
const APACHE: &str = "Include /etc/apache2/conf-available/javascript-common.conf
Include /etc/phpmyadmin/apache.conf
";

#[test]
#[cfg_attr(
    not(all(root, bookworm)),
    ignore = "needs root, for scripts of www-data, and the versions of Debian 12"
)]
#[cfg_attr(all(root, bookworm), ignore = "heavy: half a minute")]
fn phpmyadmin_as_root() {
    let site = Site::with("index.html", "home");
    let database = Database::start(&site);
    let farm = Farm::start(
        &site,
        &Rules {
            root: site.root().to_owned(),
            preset: SITE.to_owned(),
            htaccess: example("from-apache.md", "/etc/phpmyadmin/apache.conf", &[]),
            nginx: NGINX.to_owned(),
            apache: format!("{DEBIAN}{APACHE}"),
            ini: vec![("mysqli.default_socket", database.socket().display().to_string())],
            ..Rules::default()
        },
    );
    walk(&farm, include_str!("walks/phpmyadmin.txt"), VOLATILE);
}
