//! The resolved configuration of files.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::machine::{CONFIG, Fake};
use rustix::time::{ClockId, clock_gettime};
use sendoff_config::{
    Bounds, Conditions, Config, FieldCondition, FrontController, Handler, HeaderRule, Host,
    ListenAddress, MapSource, MapTest, Matching, RequestMap, Route, Symlinks,
};
use sendoff_settings::{expand, load, print, read_text, resolve};

fn config(text: &str) -> Config {
    let machine = Fake { config: text.to_owned() };
    let mut loaded = load(Path::new(CONFIG), &machine);
    let config = resolve(&loaded.top, &loaded.sources, &machine, &mut loaded.problems);
    config.unwrap_or_else(|| panic!("{}", loaded.problems.report(&loaded.sources, false)))
}

#[test]
fn a_site_has_what_its_file_says() {
    let config = config(
        r#"
        listen = ["8080", "localhost:81", "unix:/run/a.sock proxy_protocol"]
        [[pool]]
        name = "unused"
        [[pool]]
        name = "web"
        php_ini = { date.timezone = "UTC", memory_limit = "1G", extension = ["a", "b"] }
        [[site]]
        hosts = ["Example.org", "*.example.org"]
        root = "/srv/www"
        pool = "web"
        front_controller = { "/" = "/index.php", "/wiki/" = "/wiki/w.php" }
        symlinks = "any"
        fastcgi = { ".pl" = "unix:/run/pl", "/app/" = "127.0.0.1:9000" }
        [[site]]
        root = "/srv/blog"
        listen = "[::1]:9000"
        pool = "web"
        "#,
    );
    let listen: Vec<_> = config.listen.iter().map(|at| at.address.to_string()).collect();
    let expected =
        ["0.0.0.0:8080", "[::]:8080", "127.0.0.1:81", "[::1]:81", "unix:/run/a.sock", "[::1]:9000"];
    assert_eq!(listen, expected);
    assert!(config.listen[4].proxy_protocol && !config.listen[0].proxy_protocol);
    assert!(matches!(config.listen[4].address, ListenAddress::Unix(_)));
    let [site, blog] = &*config.sites else { panic!("{:?}", config.sites) };
    assert_eq!((&*site.listeners, &*blog.listeners), (&[0, 1, 2, 3, 4][..], &[5][..]));
    let beneath = Host::Beneath(".example.org".to_owned());
    assert_eq!(site.hosts, [Host::Exact("example.org".to_owned()), beneath]);
    assert_eq!((&*site.name, &*blog.name), ("example.org", "default"));
    let FrontController::Listed(controllers) = &site.front_controller else { panic!() };
    assert_eq!((&*controllers[0].folder, &*controllers[0].script), ("/wiki", "/wiki/w.php"));
    assert_eq!((&*controllers[1].folder, site.symlinks), ("", Symlinks::Any));
    assert_eq!(site.fastcgi[1].matching, Matching::Prefix("/app".to_owned()));
    assert_eq!((site.pool, blog.pool, config.pools.len()), (Some(0), Some(0), 1));
    let settings = ["date.timezone=UTC", "memory_limit=1G", "extension=a", "extension=b"];
    assert_eq!(config.pools[0].php_ini, settings);
}

#[test]
fn sites_without_names_are_told_apart_by_their_addresses() {
    let config = config(
        r#"
        listen = "127.0.0.1:81"
        [[site]]
        root = "/srv/www"
        [[site]]
        hosts = "example.org"
        root = "/srv/www"
        [[site]]
        listen = "127.0.0.1:82"
        root = "/srv/blog"
        [[site]]
        listen = ["127.0.0.1:83", "127.0.0.1:82"]
        hosts = ["example.org", "other.org"]
        root = "/srv/blog"
        [[site]]
        name = "default"
        listen = "127.0.0.1:84"
        root = "/srv/blog"
        "#,
    );
    let names: Vec<_> = config.sites.iter().map(|site| &*site.name).collect();
    let expected = [
        "default",
        "example.org",
        "default at 127.0.0.1:82",
        "example.org at 127.0.0.1:83",
        "default",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_site_without_php_needs_no_pool_unless_a_route_does() {
    let without = "[[site]]\nroot = \"/srv/www\"\nphp = false\n";
    let static_only = config(without);
    assert_eq!((static_only.sites[0].pool, static_only.pools.len()), (None, 0));
    let route = "[[site.route]]\npath = \"/status\"\nphp = \"/status.php\"\n";
    let with_route = config(&format!("{without}{route}"));
    assert_eq!((with_route.sites[0].pool, with_route.pools.len()), (None, 1));
}

#[test]
fn programs_are_found_and_stand_beside_the_pools_of_php() {
    let text = r#"
        [[pool]]
        name = "ruby"
        command = "rackup -s  sendoff"
        workers = 3
        [[pool]]
        name = "own"
        command = ["/srv/blog/bin/app", "a b", ""]
        env = { PATH = "/srv/blog/bin" }
        [[pool]]
        name = "named"
        command = ["app"]
        env = { PATH = "relative:/srv/blog/bin" }
        [[site]]
        root = "/srv/www"
        fastcgi = { "/ruby" = "pool:ruby", "/own" = "pool:own" }
        [[site.route]]
        prefix = "/named"
        fastcgi = "pool:named"
        [[site]]
        root = "/srv/blog"
        hosts = "ruby.test"
        fastcgi = { "/" = "pool:ruby" }
        "#;
    let config = config(text);
    let named = |name: &str| config.pools.iter().find(|pool| pool.name == name).unwrap();
    let program = |name: &str| named(name).program.as_ref().unwrap();
    assert_eq!(program("ruby").file, Path::new("/usr/bin/rackup"));
    assert_eq!(program("ruby").command, ["rackup", "-s", "sendoff"]);
    assert_eq!((named("ruby").processes(), named("ruby").first_workers()), (3, 0));
    assert_eq!(program("own").file, Path::new("/srv/blog/bin/app"));
    assert_eq!(program("own").command, ["/srv/blog/bin/app", "a b", ""]);
    assert_eq!(
        (program("named").file.as_path(), named("named").processes()),
        (program("own").file.as_path(), 1)
    );
    // The scripts of the first site have the usual pool; the second site has no scripts.
    let php = config.pools.iter().position(|pool| pool.program.is_none()).unwrap();
    assert_eq!(
        (config.pools.len(), config.sites[0].pool, config.sites[1].pool),
        (4, Some(php), None)
    );
}

#[test]
fn routes_are_resolved_in_order() {
    let config = config(
        r#"
        [[site]]
        root = "/srv/www"
        [[site.route]]
        prefix = ["/", "/admin/"]
        extension = ["PNG", ".webp"]
        method = "GET"
        header = { Cookie = "!session=", X-A = [true, "!^a$"], X-B = false }
        response_headers = { X-A = "a", "+Link" = ["b", "c"], "?X-C" = "$host", Server = false }
        cache = "365d, public, immutable"
        [[site.route]]
        match = '^/old/(.+)$'
        redirect = "/new/$1"
        status = 301
        [[site.route]]
        prefix = "/app"
        fastcgi = "unix:/run/app.sock"
        [[site.route]]
        allow_from = ["10.0.0.0/8", "::1"]
        auth = { users = "admins" }
        "#,
    );
    let site = &config.sites[0];
    let [first, old, app, last] = &*site.routes else { panic!("{:?}", site.routes) };
    assert_eq!(first.origin, "sendoff.toml:4");
    let Conditions { prefixes, extensions, headers, .. } = &first.conditions;
    assert_eq!((&prefixes[0], &*prefixes[1]), (&String::new(), "/admin"));
    assert_eq!(*extensions, [".png", ".webp"]);
    let condition = |name: &str, value: Option<&str>, negated| FieldCondition {
        name: name.to_owned(),
        value: value.map(str::to_owned),
        negated,
    };
    let expected = [
        condition("Cookie", Some("session="), true),
        condition("X-A", None, false),
        condition("X-A", Some("^a$"), true),
        condition("X-B", None, true),
    ];
    assert_eq!(*headers, expected);
    let text = str::to_owned;
    let expected = [
        HeaderRule::Set(text("X-A"), text("a")),
        HeaderRule::Add(text("Link"), text("b")),
        HeaderRule::Add(text("Link"), text("c")),
        HeaderRule::Default(text("X-C"), text("$host")),
        HeaderRule::Remove(text("Server")),
    ];
    assert_eq!(first.rules.response_headers, expected);
    let cache = first.rules.cache.as_ref().unwrap();
    assert_eq!(cache.max_age, Some(Duration::from_secs(365 * 86_400)));
    assert_eq!(cache.directives, ["public", "immutable"]);
    assert_eq!(old.handler, Some(Handler::Redirect { status: 301, to: text("/new/$1") }));
    let handler = Handler::FastCgi { application: 0, only_files: false };
    assert_eq!((&app.handler, &site.fastcgi[0].matching), (&Some(handler), &Matching::Routes));
    let clients = last.rules.clients.as_ref().unwrap();
    assert!(clients.allow.len() == 2 && !clients.otherwise);
    assert_eq!(last.rules.auth.as_ref().unwrap().users, Path::new("/etc/sendoff/admins"));
}

#[test]
fn rules_of_an_application_come_after_those_of_the_site() {
    for (app, routes) in [("dokuwiki", 9), ("laravel", 2), ("symfony", 4), ("wordpress", 6)] {
        let text = format!(
            "[[site]]\nroot = '/srv/www'\nindex = 'mine.html'\napp = '{app}'\n[[site.route]]\npath = '/mine'\nstatic = true\n"
        );
        let machine = Fake { config: text };
        let mut loaded = load(Path::new(CONFIG), &machine);
        expand(&mut loaded.top, &mut loaded.sources, &mut loaded.problems);
        let config = resolve(&loaded.top, &loaded.sources, &machine, &mut loaded.problems);
        assert!(loaded.problems.0.is_empty(), "{}", loaded.problems.report(&loaded.sources, false));
        let site = &config.unwrap().sites[0];
        assert_eq!(site.index, ["mine.html"], "{app}");
        assert_eq!(
            (site.routes.len(), &*site.routes[0].origin),
            (routes, "sendoff.toml:5"),
            "{app}"
        );
        assert!(site.routes[1..].iter().all(|route| route.origin.starts_with("preset ")), "{app}");
        assert_eq!(site.php_only.is_empty(), !["laravel", "symfony"].contains(&app));
        assert_eq!(site.front_controller == FrontController::Off, app == "dokuwiki");
        assert_eq!(read_text(&print(&loaded.top)), Some(loaded.top), "{app}");
    }
}

/// Each key's default is the value of a file without the key, and each example can be read.
#[test]
fn examples_can_be_read() {
    let page = sendoff_settings::docs();
    let (mut section, mut count) = ("", 0);
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title;
        }
        if section.is_empty() {
            continue;
        }
        let Some(example) = line.rsplit("| `").next().and_then(|cell| cell.strip_suffix("` |"))
        else {
            continue;
        };
        let text = match section {
            "Before the first section" => example.to_owned(),
            "`auth` of a route" => {
                format!("[[site]]\n[[site.route]]\nauth = {{ {example} }}")
            }
            "`proxy` of a route" => {
                let to =
                    if example.starts_with("to =") { "" } else { "to = \"http://127.0.0.1:1\", " };
                format!("[[site]]\n[[site.route]]\nproxy = {{ {to}{example} }}")
            }
            "`authorize` of a route" => {
                let of =
                    if example.starts_with("fastcgi =") { "" } else { "fastcgi = \"unix:/a\", " };
                format!("[[site]]\n[[site.route]]\nauthorize = {{ {of}{example} }}")
            }
            "`tls` of a site" => format!("[[site]]\ntls = {{ {example} }}"),
            "`[site.map.NAME]`" => format!("[[site]]\n[site.map.name]\n{example}"),
            "`[[site.route]]`" => format!("[[site]]\n{section}\n{example}").replace('`', ""),
            _ => format!("{section}\n{example}").replace('`', ""),
        };
        let text = text.replace("\\|", "|");
        let read = read_text(&text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(read_text(&print(&read)), Some(read), "{text}");
        count += 1;
    }
    assert!(count > 50, "{count} examples");
}

#[test]
fn maps_are_printed_and_resolved() {
    let text = r#"
        [[site]]
        root = "/srv/www"
        [site.map.kind]
        from = "header:User-Agent"
        [site.map.kind.values]
        "a b" = "1"
        '~(?i)"bot\b' = "$0"
        "" = "none"
        [site.map.zone]
        from = "client"
        values = { "10.0.0.0/8" = "office" }
        default = "$host"
        [[site.route]]
        when = { kind = ["1", "!x", false], zone = true }
        respond = "$map_kind"
    "#;
    let config = config(text);
    let RequestMap { name, source, rows, default } = &config.sites[0].maps[0];
    assert_eq!((&**name, &**default), ("kind", ""));
    assert_eq!(*source, MapSource::Header("User-Agent".to_owned()));
    assert_eq!(rows.iter().map(|row| &*row.value).collect::<Vec<_>>(), ["1", "$0", "none"]);
    let when = &config.sites[0].routes[0].conditions.when;
    let tests = [MapTest::Is("1".to_owned()), MapTest::IsNot("x".to_owned()), MapTest::Empty];
    assert_eq!((&*when[0].map, &when[0].tests[..], &*when[1].map), ("kind", &tests[..], "zone"));
    let top = read_text(text).unwrap();
    assert_eq!(read_text(&print(&top)), Some(top));
}

/// 1,000 sites with 10 routes each are resolved within a second of processor time.
#[test]
fn a_thousand_sites_are_resolved_in_time() {
    let mut text = String::new();
    for site in 0..1000 {
        write!(text, "[[site]]\nroot = '/srv/www'\nhosts = ['{site}.test', 'www.{site}.test']\n")
            .unwrap();
        for route in 0..5 {
            write!(text, "[[site.route]]\nmatch = '^/r{route}/(.+)$'\nredirect = '/x{site}/$1'\n")
                .unwrap();
            write!(text, "[[site.route]]\nprefix = '/p{route}'\nextension = ['css', 'js']\ncache = '30d, public'\nresponse_headers = {{ X-Site = '{site}' }}\n").unwrap();
        }
    }
    let processor_time = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
    };
    let before = processor_time();
    let config = config(&text);
    let taken = processor_time() - before;
    println!("{} bytes: {taken:?}", text.len());
    assert_eq!((config.sites.len(), config.sites[999].routes.len()), (1000, 10));
    assert!(taken < Duration::from_secs(1), "{taken:?}");
}

/// The worker script has the requests that lead to no file; other scripts run in a pool beside its
/// own.
#[test]
fn a_pool_with_a_worker_script_has_another_beside_it() {
    let text = r#"
        [[pool]]
        name = "app"
        php = "8.2"
        workers = 3
        php_worker = "/srv/www/index.php"
        watch = "/srv/www"
        max_memory = "100M"
        max_age = "1h"
        worker_idle_timeout = "7s"
        php_ini = { memory_limit = "1G" }
        [[site]]
        root = "/srv/www"
        [[site.route]]
        prefix = "/usual"
        php = true
        [[site.route]]
        prefix = "/booted"
        php = true
        pool = "app"
        [[site]]
        root = "/srv/blog"
        hosts = "blog.test"
        front_controller = "/w.php"
        "#;
    let config = config(text);
    let names: Vec<_> = config.pools.iter().map(|pool| &*pool.name).collect();
    assert_eq!(names, ["app", "app-scripts"]);
    let (app, beside) = (&config.pools[0], &config.pools[1]);
    let host = app.host.as_ref().map(|host| &*host.file);
    assert_eq!((host, &beside.host), (Some(Path::new("/usr/sbin/php-fpm8.2")), &app.host));
    let worker = app.worker.as_ref().unwrap();
    assert_eq!(worker.file, Path::new("/srv/www/index.php"));
    assert_eq!(
        (worker.max_memory, worker.max_age),
        (Some(100 << 20), Some(Duration::from_secs(3600)))
    );
    assert_eq!(worker.watch, [Path::new("/srv/www")]);
    let bounds = Bounds { min: 0, max: 3, idle: Duration::from_secs(7) };
    assert_eq!((beside.bounds(), &beside.worker), (Some(bounds), &None));
    assert_eq!((&beside.php_ini, app.first_workers()), (&app.php_ini, 3));
    let [first, blog] = &config.sites[..] else { panic!("{:?}", config.sites) };
    let pool_of = |route: &Route| match route.handler {
        Some(Handler::Php { pool, .. }) => pool,
        _ => panic!("{route:?}"),
    };
    assert_eq!(first.routes.iter().map(pool_of).collect::<Vec<_>>(), [1, 0]);
    for (site, is_controller) in [(first, true), (blog, false)] {
        let worker = site.worker.as_ref().unwrap();
        assert_eq!((site.pool, worker.pool, worker.is_controller), (Some(1), 0, is_controller));
        assert_eq!(worker.file, Path::new("/srv/www/index.php"));
    }
}
