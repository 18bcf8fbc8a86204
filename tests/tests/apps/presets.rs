//! The presets on skeletons of their applications: paths that the vendor's rules deny are denied,
//! front controllers and assets answer.

use sendoff_tests::{Fpm, Request, Response, Server, Site, Stock};

/// A script that shows its name and its request.
const SCRIPT: &str =
    "<?php header('X-File: ' . substr(__FILE__, strlen($_SERVER['DOCUMENT_ROOT'])));
    echo basename(__FILE__), ' ', $_SERVER['PATH_INFO'] ?? '';";

/// Starts a server with the preset on a site with these files, and sends requests. Each answer is a
/// target, its status, and the beginning of the body, or of `Location` for a redirect.
fn expect(app: &str, files: &[&str], answers: &[(&str, u16, &str)]) {
    let site = Site::new();
    for file in files {
        let text = format!("file /{file}");
        site.write(file, if file.ends_with(".php") { SCRIPT } else { &text });
    }
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\napp = '{app}'\n"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server =
        Server::try_run(&config, site.root(), 1).unwrap_or_else(|e| panic!("{}", e.stderr));
    let mut wrong = Vec::new();
    for &(target, status, begins) in answers {
        let response = server.get(target);
        let text = match response.header("location") {
            Some(location) => location.to_owned(),
            None => response.text(),
        };
        if response.status() != status || !text.starts_with(begins) {
            wrong.push(format!(
                "{target}: {} {text}, expected {status} {begins}",
                response.status()
            ));
        }
    }
    let denied = answers.iter().filter(|(_, status, _)| *status >= 400).map(|(target, ..)| *target);
    for target in denied.clone() {
        for way in ways(target) {
            let response = server.get(&way);
            let text = response.text();
            let shown = response.header("X-File").or(text.strip_prefix("file "));
            if let Some(shown) = shown.filter(|shown| denied.clone().any(|denied| denied == *shown))
            {
                wrong.push(format!("{way} leads to {shown}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{app}:\n{}", wrong.join("\n"));
}

/// Other ways to write a path, and paths that some servers or PHP take for the same file.
fn ways(path: &str) -> Vec<String> {
    let name = &path[1..];
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let behind = [
        "/",
        "//",
        "/.",
        "/x",
        "/x.php",
        "/x.css",
        ";x",
        ";.css",
        "%00",
        "%00.css",
        ".",
        "%20",
        "%09",
        "%0a",
        "%0d%0a",
        "::$DATA",
        "%23",
        "%3f",
        "%3fx.css",
        "?x.css",
        "~",
        "/%2e%2e/x",
        "/x/..",
    ];
    let before = [
        "/",
        "/.",
        "/x/..",
        "/x/%2e%2e",
        "/x/..%2f.",
        "/index.php/..",
        "/index.php/%2e%2e",
        "/a.css/..",
        "/.well-known/..",
        "/.well-known/acme-challenge/..%2f..",
        "/wiki/..",
        "/wiki",
        "/core/..",
        "/..",
        "/%2e%2e",
        "/..;",
        "/index.php",
        "/%5c..",
    ];
    let replaced = [
        ("/", "//"),
        ("/", "/./"),
        ("/", "%2f"),
        ("/", "%5c"),
        ("/", "\\"),
        ("/", "%252f"),
        ("/", "/%c0%af"),
        (".", "%2e"),
        (".", "%c0%ae"),
        (".", "%e0%80%ae"),
        (".php", ".PHP"),
        (".php", ".pHp"),
        ("/", "%20/"),
        ("/", "./"),
        ("/", ";/"),
    ];
    let mut ways = vec![
        format!("/{encoded}"),
        format!("/{}", encoded.replace('%', "%25")),
        path.to_uppercase(),
    ];
    ways.extend(behind.iter().map(|end| format!("{path}{end}")));
    ways.extend(before.iter().map(|start| format!("{start}{path}")));
    ways.extend(replaced.iter().map(|(from, to)| format!("/{}", name.replace(from, to))));
    // The index file of a folder.
    ways.extend(path.rfind('/').map(|slash| path[..=slash].to_owned()));
    ways
}

/// The vendor's rules for a network with sites in folders.
const NETWORK: &str = r"index index.php;
location ~* /(?:uploads|files)/.*\.php$ { deny all; }
if (!-e $request_filename) {
	rewrite /wp-admin$ $scheme://$host$request_uri/ permanent;
	rewrite ^(/[^/]+)?(/wp-.*) $2 last;
	rewrite ^(/[^/]+)?(/.*\.php) $2 last;
}
location / { try_files $uri $uri/ /index.php?$args; }
location ~ \.php$ { include /etc/nginx/snippets/fastcgi-php.conf; fastcgi_pass {php}; }
";

/// A network of sites in folders, which is one installation, and a second installation in a
/// separate folder.
#[test]
fn wordpress_with_sites_in_folders_as_behind_nginx() {
    let site = Site::new();
    let seen = "<?php echo json_encode([substr(__FILE__, strlen($_SERVER['DOCUMENT_ROOT'])), $_SERVER['SCRIPT_NAME'], $_SERVER['REQUEST_URI'], $_GET]);";
    for file in [
        "index.php",
        "wp-login.php",
        "wp-admin/index.php",
        "wp-admin/network/index.php",
        "wp-content/uploads/sites/2/evil.php",
        "own/index.php",
        "own/wp-login.php",
        "own/wp-admin/index.php",
    ] {
        site.write(file, seen);
    }
    for file in [
        "wp-admin/a.css",
        "wp-includes/js/a.js",
        "wp-content/uploads/sites/2/a.png",
        "own/wp-includes/b.js",
    ] {
        site.write(file, format!("file /{file}"));
    }
    let fpm = Fpm::start_with(site.root(), "", &[]);
    let nginx = Stock::nginx(site.root(), "", &NETWORK.replace("{php}", &fpm.address()));
    let route =
        "[[site.route]]\npath = '/wp-login.php'\nquery = { action = 'register' }\ndeny = true\n";
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\napp = 'wordpress'\n{route}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let ours = Server::try_run(&config, site.root(), 1).unwrap_or_else(|e| panic!("{}", e.stderr));
    let path = |response: &Response| {
        let location = response.header("location").unwrap_or_default();
        let absolute = location.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        absolute.map_or(location.to_owned(), |(_, path)| format!("/{path}"))
    };
    for target in [
        "/",
        "/site1/",
        "/site1/2026/hello-world/",
        "/site1/wp-admin",
        "/site1/wp-admin/",
        "/site1/wp-admin/?page=x",
        "/site1/wp-admin/network/",
        "/site1/wp-admin/a.css",
        "/site1/wp-admin/none.css",
        "/site1/wp-login.php",
        "/site1/wp-login.php?action=lostpassword",
        "/site1/wp-includes/js/a.js",
        "/site1/wp-json/wp/v2/posts",
        "/site1/wp-content/uploads/sites/2/a.png",
        "/site1/wp-content/uploads/sites/2/evil.php",
        "/wp-admin",
        "/wp-admin/",
        "/own/",
        "/own/wp-admin",
        "/own/wp-admin/",
        "/own/wp-login.php",
        "/own/wp-includes/b.js",
    ] {
        let request = Request::get(target);
        let (our, their) = (ours.ask(&request), nginx.ask(&request));
        assert_eq!((our.status(), path(&our)), (their.status(), path(&their)), "{target}");
        if our.status() == 200 {
            assert_eq!(our.text(), their.text(), "{target}");
        }
    }
    // Rules of the site hold for each of its sites.
    for target in ["/wp-login.php?action=register", "/site1/wp-login.php?action=register"] {
        assert_eq!(ours.get(target).status(), 403, "{target}");
    }
}

#[test]
fn drupal() {
    expect(
        "drupal",
        &[
            "index.php",
            "autoload.php",
            "update.php",
            "core/install.php",
            "core/lib/Drupal.php",
            "core/misc/drupal.js",
            "core/modules/node/node.module",
            "core/modules/node/node.info.yml",
            "core/themes/olivero/templates/page.html.twig",
            "core/themes/olivero/css/base.css",
            "modules/contrib/x/x.php",
            "sites/default/settings.php",
            "sites/default/files/evil.php",
            "sites/default/files/a.txt",
            "sites/default/private/a.txt",
            "vendor/autoload.php",
            "web.config",
            "composer.json",
            "yarn.lock",
        ],
        &[
            ("/", 200, "index.php"),
            ("/node/1", 200, "index.php"),
            ("/sites/default/files/styles/x/new.png", 200, "index.php"),
            ("/core/install.php", 200, "install.php"),
            ("/update.php/selection", 200, "update.php /selection"),
            ("/core/misc/drupal.js", 200, "file"),
            ("/core/themes/olivero/css/base.css", 200, "file"),
            ("/sites/default/files/a.txt", 200, "file"),
            ("/autoload.php", 403, ""),
            ("/core/lib/Drupal.php", 403, ""),
            ("/core/modules/node/node.module", 403, ""),
            ("/core/modules/node/node.info.yml", 403, ""),
            ("/core/themes/olivero/templates/page.html.twig", 403, ""),
            ("/modules/contrib/x/x.php", 403, ""),
            ("/sites/default/settings.php", 403, ""),
            ("/sites/default/files/evil.php", 403, ""),
            ("/sites/default/files/evil.php/x", 403, ""),
            ("/sites/default/private/a.txt", 403, ""),
            ("/vendor/autoload.php", 403, ""),
            ("/web.config", 403, ""),
            ("/composer.json", 403, ""),
            ("/yarn.lock", 403, ""),
        ],
    );
}

#[test]
fn matomo() {
    expect(
        "matomo",
        &[
            "index.php",
            "matomo.php",
            "matomo.js",
            "console",
            "config/config.ini.php",
            "config/global.ini.php",
            "core/Version.php",
            "js/index.php",
            "lang/en.json",
            "libs/x.php",
            "libs/jquery.js",
            "misc/user/a.txt",
            "plugins/CoreHome/CoreHome.php",
            "plugins/CoreHome/plugin.json",
            "plugins/CoreHome/javascripts/a.js",
            "plugins/HeatmapSessionRecording/configs.php",
            "tmp/logs/matomo.log",
            "vendor/autoload.php",
            "other.php",
        ],
        &[
            ("/", 200, "index.php"),
            ("/matomo.php?idsite=1", 200, "matomo.php"),
            ("/matomo.js", 200, "file"),
            ("/js/", 200, "index.php"),
            ("/libs/jquery.js", 200, "file"),
            ("/plugins/CoreHome/javascripts/a.js", 200, "file"),
            ("/plugins/HeatmapSessionRecording/configs.php", 200, "configs.php"),
            ("/config/config.ini.php", 403, ""),
            ("/config/global.ini.php", 403, ""),
            ("/core/Version.php", 403, ""),
            ("/lang/en.json", 403, ""),
            ("/libs/x.php", 403, ""),
            ("/misc/user/a.txt", 403, ""),
            ("/plugins/CoreHome/CoreHome.php", 403, ""),
            ("/plugins/CoreHome/plugin.json", 403, ""),
            ("/tmp/logs/matomo.log", 403, ""),
            ("/vendor/autoload.php", 403, ""),
            ("/other.php", 403, ""),
        ],
    );
}

#[test]
fn moodle() {
    expect(
        "moodle",
        &[
            "index.php",
            "r.php",
            "pluginfile.php",
            "theme/styles.css",
            "composer.json",
            "lib/upgrade.txt",
            "lib/UPGRADING.md",
            "lib/db/install.xml",
            "lib/tests/behat/a.feature",
            "lib/tests/fixtures/a.txt",
            "mod/quiz/README.md",
            "mod/quiz/readme_moodle.txt",
            "node_modules/x/x.js",
            "admin/environment.xml",
            "phpunit.xml.dist",
            "vendor/autoload.php",
            "npm.lock",
        ],
        &[
            ("/", 200, "index.php"),
            ("/course/42/manage", 200, "r.php"),
            ("/pluginfile.php/1/course/a.png", 200, "pluginfile.php /1/course/a.png"),
            ("/theme/styles.css", 200, "file"),
            ("/composer.json", 404, ""),
            ("/lib/upgrade.txt", 404, ""),
            ("/lib/UPGRADING.md", 404, ""),
            ("/lib/db/install.xml", 404, ""),
            ("/lib/tests/behat/a.feature", 404, ""),
            ("/lib/tests/fixtures/a.txt", 404, ""),
            ("/mod/quiz/README.md", 404, ""),
            ("/mod/quiz/readme_moodle.txt", 404, ""),
            ("/node_modules/x/x.js", 404, ""),
            ("/admin/environment.xml", 404, ""),
            ("/phpunit.xml.dist", 404, ""),
            ("/vendor/autoload.php", 404, ""),
            ("/npm.lock", 404, ""),
        ],
    );
}

#[test]
fn nextcloud() {
    expect(
        "nextcloud",
        &[
            "index.php",
            "remote.php",
            "status.php",
            "ocs/v2.php",
            "occ",
            "console.php",
            "core/js/main.mjs",
            "core/css/a.css",
            "core/fonts/a.woff2",
            "core/templates/404.php",
            "apps/files/appinfo/routes.php",
            "apps/files/a.svg",
            "config/config.php",
            "data/admin/files/a.txt",
            "lib/base.php",
            "3rdparty/autoload.php",
            "templates/a.txt",
            "build/a.txt",
            "tests/a.txt",
            "db_structure.xml",
            ".well-known/acme-challenge/token",
        ],
        &[
            ("/", 200, "index.php"),
            ("/index.php/apps/files/", 200, "index.php /apps/files/"),
            ("/apps/dashboard/", 200, "index.php /apps/dashboard/"),
            ("/apps/files", 200, "index.php"),
            ("/remote.php/dav/files/a.txt", 200, "remote.php /dav/files/a.txt"),
            ("/status.php", 200, "status.php"),
            ("/ocs/v2.php/cloud", 200, "v2.php /cloud"),
            ("/core/js/main.mjs", 200, "file"),
            ("/core/css/a.css?v=1", 200, "file"),
            ("/core/fonts/a.woff2", 200, "file"),
            ("/apps/files/a.svg", 200, "file"),
            ("/apps/files/none.svg", 200, "index.php /apps/files/none.svg"),
            ("/core/templates/404.php", 200, "index.php /core/templates/404.php"),
            ("/apps/files/appinfo/routes.php", 200, "index.php /apps/files/appinfo/routes.php"),
            ("/.well-known/acme-challenge/token", 200, "file"),
            ("/.well-known/caldav", 301, "/remote.php/dav/"),
            ("/.well-known/webfinger?a=b", 301, "/index.php/.well-known/webfinger?a=b"),
            ("/remote/dav", 301, "/remote.php/remote/dav"),
            ("/config/config.php", 404, ""),
            ("/data/admin/files/a.txt", 404, ""),
            ("/data", 404, ""),
            ("/lib/base.php", 404, ""),
            ("/3rdparty/autoload.php", 404, ""),
            ("/templates/a.txt", 404, ""),
            ("/build/a.txt", 404, ""),
            ("/tests/a.txt", 404, ""),
            ("/occ", 404, ""),
            ("/console.php", 404, ""),
            ("/db_structure.xml", 404, ""),
        ],
    );
}

#[test]
fn phpmyadmin() {
    expect(
        "phpmyadmin",
        &[
            "index.php",
            "libraries/common.inc.php",
            "libraries/classes/a.txt",
            "templates/a.twig",
            "setup/lib/a.php",
            "vendor/autoload.php",
            "js/vendor/jquery/jquery.min.js",
            "sql/create_tables.sql",
            "themes/pmahomme/css/theme.css",
        ],
        &[
            ("/", 200, "index.php"),
            ("/index.php?route=/", 200, "index.php"),
            ("/js/vendor/jquery/jquery.min.js", 200, "file"),
            ("/themes/pmahomme/css/theme.css", 200, "file"),
            ("/libraries/common.inc.php", 403, ""),
            ("/libraries/classes/a.txt", 403, ""),
            ("/templates/a.twig", 403, ""),
            ("/setup/lib/a.php", 403, ""),
            ("/vendor/autoload.php", 403, ""),
            ("/sql/create_tables.sql", 403, ""),
        ],
    );
}

#[test]
fn roundcube() {
    expect(
        "roundcube",
        &[
            "index.php",
            "README.md",
            "INSTALL",
            "composer.json",
            "jsdeps.json",
            "SQL/mysql.initial.sql",
            "SQL/a.txt",
            "bin/update.sh",
            "config/config.inc.php",
            "logs/errors.log",
            "temp/a.txt",
            "vendor/autoload.php",
            "program/include/rcmail.php",
            "program/lib/Roundcube/a.php",
            "program/js/app.min.js",
            "skins/elastic/images/favicon.ico",
            "skins/elastic/styles/styles.css",
            "plugins/archive/archive.js",
        ],
        &[
            ("/", 200, "index.php"),
            ("/?_task=login", 200, "index.php"),
            ("/favicon.ico", 200, "file"),
            ("/program/js/app.min.js", 200, "file"),
            ("/skins/elastic/styles/styles.css", 200, "file"),
            ("/plugins/archive/archive.js", 200, "file"),
            ("/README.md", 403, ""),
            ("/INSTALL", 403, ""),
            ("/composer.json", 403, ""),
            ("/jsdeps.json", 403, ""),
            ("/SQL/mysql.initial.sql", 403, ""),
            ("/SQL/a.txt", 403, ""),
            ("/bin/update.sh", 403, ""),
            ("/config/config.inc.php", 403, ""),
            ("/logs/errors.log", 403, ""),
            ("/temp/a.txt", 403, ""),
            ("/vendor/autoload.php", 403, ""),
            ("/program/include/rcmail.php", 403, ""),
            ("/program/lib/Roundcube/a.php", 403, ""),
        ],
    );
}

#[test]
fn mediawiki() {
    let below = |folder: &str| {
        [
            "index.php",
            "load.php",
            "rest.php",
            "images/a.txt",
            "images/evil.php",
            "images/evil.PHP",
            "images/deleted/a.txt",
            "includes/WebStart.php",
            "includes/a.txt",
            "maintenance/update.php",
            "vendor/autoload.php",
            "cache/a.txt",
            "mw-config/index.php",
            "languages/a.txt",
            "extensions/X/X.php",
            "extensions/X/x.js",
            "skins/Vector/Vector.php",
            "resources/assets/a.png",
            "LocalSettings.php",
        ]
        .map(|name| format!("{folder}{name}"))
    };
    for folder in ["", "w/", "mediawiki/"] {
        let files = below(folder);
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        let at = |name: &str| format!("/{folder}{name}");
        let answers = [
            (at(""), 200, "index.php"),
            (at("index.php/Main_Page"), 200, "index.php /Main_Page"),
            (at("load.php?modules=x"), 200, "load.php"),
            (at("rest.php/v1/page/x"), 200, "rest.php /v1/page/x"),
            ("/wiki/Main_Page".to_owned(), 200, "index.php"),
            ("/wiki/index.php_files".to_owned(), 200, "index.php"),
            (at("images/a.txt"), 200, "file"),
            (at("extensions/X/x.js"), 200, "file"),
            (at("resources/assets/a.png"), 200, "file"),
            (at("images/evil.php"), 403, ""),
            (at("images/evil.php/x"), 403, ""),
            (at("images/evil.PHP"), 403, ""),
            (at("images/deleted/a.txt"), 403, ""),
            (at("includes/WebStart.php"), 403, ""),
            (at("includes/a.txt"), 403, ""),
            (at("maintenance/update.php"), 403, ""),
            (at("vendor/autoload.php"), 403, ""),
            (at("cache/a.txt"), 403, ""),
            (at("mw-config/index.php"), 403, ""),
            (at("languages/a.txt"), 403, ""),
            (at("extensions/X/X.php"), 403, ""),
            (at("skins/Vector/Vector.php"), 403, ""),
            (at("LocalSettings.php"), 403, ""),
        ];
        let answers: Vec<_> =
            answers.iter().map(|(target, status, begins)| (&**target, *status, *begins)).collect();
        expect("mediawiki", &files, &answers);
    }
}
