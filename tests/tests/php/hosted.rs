//! Pools whose workers run in stock PHP programs.

use std::fs;

use sendoff_config::PHP_VERSION;
use sendoff_tests::{LIMIT, Server, Site, wait};

/// Says which program runs it.
const PROGRAM: &str = "<?php echo basename(readlink('/proc/self/exe')), '|', getmypid();";

/// Two pools in two programs, with a line more for the second.
fn config(site: &Site, more: &str) -> std::path::PathBuf {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n\
         [[pool]]\nname = 'fpm'\nworkers = 1\nphp = '/usr/sbin/php-fpm{PHP_VERSION}'\n\
         [[pool]]\nname = 'cgi'\nworkers = 1\nphp = '/usr/bin/php-cgi{PHP_VERSION}'\n{more}\n\
         [[site]]\nroot = 'root'\npool = 'fpm'\n\
         [[site.route]]\npath = '/cgi.php'\nphp = true\npool = 'cgi'\n"
    );
    site.write_at(site.outside("sendoff.toml"), text)
}

/// The program and the process that answer.
fn said(server: &Server, target: &str) -> (String, u32) {
    let page = server.page(target);
    let (program, pid) = page.split_once('|').unwrap();
    (program.to_owned(), pid.parse().unwrap())
}

/// The master of a worker.
fn master(worker: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    parent.trim().parse().unwrap()
}

#[test]
fn two_programs_side_by_side_are_reloaded_one_without_the_other() {
    let site = Site::with("index.php", PROGRAM);
    site.write("cgi.php", PROGRAM);
    let file = config(&site, "");
    let server = Server::try_run_hosted(&file, site.root(), 2).unwrap();
    let (fpm, cgi) = (said(&server, "/index.php"), said(&server, "/cgi.php"));
    assert_eq!(fpm.0, format!("php-fpm{PHP_VERSION}"));
    assert_eq!(cgi.0, format!("php-cgi{PHP_VERSION}"));
    let masters = (master(fpm.1), master(cgi.1));

    config(&site, "php_ini = { memory_limit = '99M' }");
    server.command(&["reload"]).unwrap();
    let other = wait::until(LIMIT, || said(&server, "/cgi.php").1 != cgi.1);
    assert!(other, "{}", server.log());
    let cgi = said(&server, "/cgi.php");
    assert_eq!(cgi.0, format!("php-cgi{PHP_VERSION}"));
    assert_ne!(master(cgi.1), masters.1);
    assert_eq!((said(&server, "/index.php"), master(fpm.1)), (fpm, masters.0));
}

#[test]
fn status_names_programs_and_versions() {
    let site = Site::with("index.php", PROGRAM);
    site.write("cgi.php", PROGRAM);
    let file = config(&site, "");
    let server = Server::try_run_hosted(&file, site.root(), 2).unwrap();
    let programs =
        [format!("in /usr/sbin/php-fpm{PHP_VERSION}"), format!("in /usr/bin/php-cgi{PHP_VERSION}")];
    for program in &programs {
        let status = server.command(&["status"]).unwrap();
        // No worker has reported yet.
        assert!(status.contains(&format!("PHP {PHP_VERSION} {program}\n")), "{status}");
    }
    said(&server, "/index.php");
    said(&server, "/cgi.php");
    let reported = wait::until(LIMIT, || {
        let status = server.command(&["status"]).unwrap();
        programs.iter().all(|program| status.contains(&format!("{program}, opcache")))
    });
    assert!(reported, "{}", server.command(&["status"]).unwrap());
    let json = server.command(&["status", "--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let cgi = &json["pools"][1];
    assert_eq!(cgi["host"]["file"], format!("/usr/bin/php-cgi{PHP_VERSION}"));
    assert_eq!(cgi["host"]["version"], PHP_VERSION);
    let extensions = cgi["php"]["extensions"].as_array().unwrap();
    assert!(extensions.iter().any(|name| name == "standard"), "{cgi}");
}
