//! `sendoff run` and `sendoff check`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sendoff_tests::{Server, Site};

/// The first lines of every configuration here.
const TOP: &str = "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 2\n";

fn sendoff(arguments: &[&str]) -> Output {
    Command::new(sendoff_tests::binary()).args(arguments).output().unwrap()
}

fn write(site: &Site, text: &str) -> PathBuf {
    site.write_at(site.outside("sendoff.toml"), text)
}

fn check(config: &Path) -> (Option<i32>, String, String) {
    let output = sendoff(&["check", "--config", config.to_str().unwrap()]);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_file_is_served() {
    let site = Site::with("in.php", "<?php echo ini_get('memory_limit');");
    site.write("a.txt", "static");
    let config =
        write(&site, &format!("{TOP}php_ini.memory_limit = '77M'\n[[site]]\nroot = 'root'\n"));
    let (code, said, _) = check(&config);
    assert_eq!(code, Some(0));
    assert!(said.ends_with("1 site, 0 routes, 1 pool: fine\n"), "{said}");
    let server = Server::try_run(&config, site.root(), 2).unwrap();
    assert_eq!(server.page("/a.txt"), "static");
    assert_eq!(server.page("/in.php"), "77M");
}

#[test]
fn sites_are_included_from_a_folder() {
    let site = Site::with("a.txt", "static");
    site.write_at(site.outside("sites/a.toml"), "[[site]]\nroot = '../root'\nhosts = 'a.test'\n");
    site.write_at(site.outside("sites/b.toml"), "[[site]]\nroot = '../root'\nhosts = 'b.test'\n");
    let config = write(&site, &format!("include = 'sites/*.toml'\n{TOP}"));
    let (code, said, _) = check(&config);
    assert!(said.ends_with("2 sites, 0 routes, 1 pool: fine\n"), "{code:?} {said}");
}

#[test]
fn a_broken_file_is_refused_with_the_line() {
    let site = Site::new();
    let config = write(&site, &format!("lisen = 80\n{TOP}[[site]]\nroot = 'wrong'\n"));
    let (code, said, why) = check(&config);
    assert_eq!((code, &*said), (Some(2), ""));
    for part in ["2 errors", "sendoff.toml:1:1]", "did you mean \"listen\"?", "wrong: No such file"]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
    let failed = Server::try_run(&config, site.root(), 2).err().unwrap();
    assert_eq!((failed.code, &*failed.stdout, &*failed.stderr), (Some(2), "", &*why));
}

#[test]
fn check_takes_the_file_without_an_option() {
    let site = Site::new();
    let config = write(&site, &format!("{TOP}[[site]]\nroot = 'root'\n"));
    let config = config.to_str().unwrap();
    let said = String::from_utf8(sendoff(&["check", config]).stdout).unwrap();
    assert_eq!(said, format!("{config}: 1 site, 0 routes, 1 pool: fine\n"));
    assert_eq!(sendoff(&["check", config, "--config", config]).status.code(), Some(2));
}

#[test]
fn check_names_a_fleet_whose_nodes_obtain_certificates_by_themselves() {
    let site = Site::new();
    let listen = "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']";
    let fleet = "[fleet]\nengine = 'redis://127.0.0.1:1'\nname = 'shop'";
    let auto = "[[site]]\nroot = 'root'\nhosts = ['a.test']\ntls = 'auto'\nphp = false";
    let config = write(&site, &format!("{listen}\n{fleet}\n{auto}\n"));
    let said = sendoff(&["check", config.to_str().unwrap()]);
    let said = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
    assert!(said.contains("with secret_file they share them") && said.contains("fine"), "{said}");
}

/// `Date` stays: a server that has a clock sends it.
#[test]
fn the_field_that_names_the_server_can_be_removed() {
    let site = Site::with("index.php", "<?php echo 'here';");
    site.write("a.txt", "static");
    let text = format!(
        "{TOP}[[site]]\nroot = 'root'\n[[site.route]]\nprefix = '/'\nresponse_headers = {{ Server = false }}\n"
    );
    let server = Server::try_run(&write(&site, &text), site.root(), 2).unwrap();
    for target in ["/", "/a.txt", "/missing.txt"] {
        let response = server.get(target);
        assert_eq!(response.header("server"), None, "{target}");
        assert!(response.header("date").is_some(), "{target}");
    }
}

/// A message names the key if a file was read, and the option if there was none.
#[test]
fn an_access_log_that_cannot_be_written_is_named_where_it_was_set() {
    let site = Site::new();
    let text = format!("access_log = '/nowhere/a.log'\n{TOP}[[site]]\nroot = 'root'\n");
    let (code, _, why) = check(&write(&site, &text));
    assert_eq!(code, Some(2));
    assert!(why.contains("sendoff.toml:1:14]") && why.contains("access_log = "), "{why}");
    assert!(!why.contains("--access-log"), "{why}");
    let root = site.root().to_str().unwrap();
    let refused = sendoff(&["serve", root, "--access-log", "/nowhere/a.log"]);
    let why = String::from_utf8(refused.stderr).unwrap();
    let expected = "sendoff: --access-log: /nowhere/a.log: the folder of the file does not exist\n";
    assert_eq!((refused.status.code(), &*why), (Some(2), expected));
}

#[test]
fn a_file_that_is_missing_is_named() {
    let (code, _, why) = check(Path::new("/nowhere/sendoff.toml"));
    assert_eq!(code, Some(2));
    assert!(why.contains("/nowhere/sendoff.toml: No such file"), "{why}");
}

/// Paths that the vendor's rules deny are denied, and neighbouring paths are served.
#[test]
fn rules_of_applications_deny_what_their_vendors_deny() {
    let site = Site::with("index.php", "<?php echo 'front ', $_SERVER['REQUEST_URI'];");
    for script in ["wp-content/uploads/evil.php", "files/2/evil.php", "other.php"] {
        site.write(script, "<?php echo 'ran';");
    }
    for file in ["wp-content/uploads/a.txt", "data/pages/a.txt", "conf/users.auth", "lib/a.txt"] {
        site.write(file, "file");
    }
    let denied = |app: &str, targets: &[&'static str]| {
        let text = format!("{TOP}[[site]]\nroot = 'root'\napp = '{app}'\n");
        let server = Server::try_run(&write(&site, &text), site.root(), 2).unwrap();
        let status = |target: &&&str| server.get(target).status();
        targets.iter().filter(|target| status(target) >= 400).copied().collect::<Vec<_>>()
    };
    let asked = [
        "/pretty/permalink",
        "/wp-content/uploads/evil.php",
        "/wp-content/uploads/evil.php/x",
        "/files/2/evil.php",
        "/wp-content/uploads/a.txt",
        "/data/pages/a.txt",
        "/conf/users.auth",
        "/lib/a.txt",
        "/other.php",
    ];
    assert_eq!(denied("wordpress", &asked), asked[1..4]);
    let denied_by_dokuwiki = ["/pretty/permalink", "/data/pages/a.txt", "/conf/users.auth"];
    assert_eq!(denied("dokuwiki", &asked), denied_by_dokuwiki);
    assert!(denied("symfony", &asked).contains(&"/other.php"));
    assert!(denied("laravel", &asked).contains(&"/other.php"));
}

#[test]
fn check_prints_the_rules_of_applications_in_their_places() {
    let site = Site::new();
    let config = write(&site, &format!("{TOP}[[site]]\nroot = 'root'\napp = 'dokuwiki'\n"));
    let printed = sendoff(&["check", "--print", "--config", config.to_str().unwrap()]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(
        printed.contains("/(?:conf|bin|inc|vendor)") && !printed.contains("app ="),
        "{printed}"
    );
    let again = write(&site, &printed);
    assert_eq!(check(&again).0, Some(0), "{printed}");
}

/// A configuration that says nothing about them obeys them.
#[test]
fn check_names_what_a_site_does_not_obey() {
    let site = Site::with(".htaccess", "Require all denied\n");
    let text = |more: &str| format!("{TOP}[[site]]\nroot = 'root'\n{more}");
    for (keys, is_named) in
        [("", false), ("htaccess = true\n", false), ("htaccess = false\n", true)]
    {
        let (code, said, why) = check(&write(&site, &text(keys)));
        assert_eq!(code, Some(0));
        let names = format!("{said}{why}").contains("ignored because of htaccess = false");
        assert_eq!(names, is_named, "{said}{why}");
    }
    let (code, _, why) = check(&write(&site, &format!("log = 'notice'\n{}", text(""))));
    assert_eq!(code, Some(2));
    assert!(why.contains("no level of events") && why.contains("info"), "{why}");
}
