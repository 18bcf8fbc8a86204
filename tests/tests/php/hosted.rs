//! Pools whose workers run in stock PHP programs.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use sendoff_config::PHP_VERSION;
use sendoff_tests::{LIMIT, Server, Site, built, dies_with_us, hosted_binary, processes, wait};

/// Says which program runs it.
const PROGRAM: &str = "<?php echo basename(readlink('/proc/self/exe')), '|', getmypid();";

/// Two pools in two programs, with a line more for the second.
fn config(site: &Site, more: &str) -> PathBuf {
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

/// As when a package is upgraded: the file is another one, and the process that runs keeps its own.
#[test]
fn a_program_that_was_replaced_gets_new_workers_by_a_reload_and_the_other_pool_goes_on() {
    let site = Site::with("index.php", PROGRAM);
    site.write("cgi.php", PROGRAM);
    let installed = site.outside("php-fpm");
    let stock = format!("/usr/sbin/php-fpm{PHP_VERSION}");
    let replace = || {
        let new = site.outside("php-fpm.new");
        fs::copy(&stock, &new).unwrap();
        fs::rename(new, &installed).unwrap();
    };
    replace();
    let file = config(&site, "");
    let text = fs::read_to_string(&file).unwrap().replace(&stock, installed.to_str().unwrap());
    fs::write(&file, text).unwrap();
    let server = Server::try_run_hosted(&file, site.root(), 2).unwrap();
    let (fpm, cgi) = (said(&server, "/index.php"), said(&server, "/cgi.php"));

    replace();
    assert_eq!(said(&server, "/index.php").1, fpm.1);
    assert!(said(&server, "/index.php").0.contains("(deleted)"));
    server.command(&["reload"]).unwrap();
    let is_new = || said(&server, "/index.php").0 == "php-fpm";
    assert!(wait::until(LIMIT, is_new), "{}", server.log());
    assert_eq!(said(&server, "/cgi.php"), cgi);

    // A master that dies starts from the file that is there.
    replace();
    let before = said(&server, "/index.php").1;
    processes::signal(master(before), Signal::KILL);
    let is_new = || said(&server, "/index.php").0 == "php-fpm";
    assert!(wait::until(LIMIT, is_new), "{}", server.log());
    assert_eq!(said(&server, "/cgi.php"), cgi);
}

/// A folder with a server, the module, and `sendoff-php`, as after the installation of all packages.
fn everything_installed(site: &Site) -> PathBuf {
    let folder = site.outside("installed");
    fs::create_dir(&folder).unwrap();
    let module = fs::read_dir(hosted_binary().parent().unwrap()).unwrap();
    let module = module.map(|file| file.unwrap().path());
    let module = module.filter(|file| file.extension().is_some_and(|end| end == "so"));
    for file in module.chain([built(), built().with_file_name("sendoff-php")]) {
        fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    folder.join("sendoff")
}

#[test]
fn without_a_choice_workers_run_in_the_php_that_is_there() {
    let site = Site::with("index.php", PROGRAM);
    let sendoff = everything_installed(&site);
    for (php, runs) in
        [("", format!("php-fpm{PHP_VERSION}")), ("php = 'libphp'", "sendoff-php".to_owned())]
    {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n{php}\n\
             [[site]]\nroot = 'root'\n"
        );
        let file = site.write_at(site.outside("sendoff.toml"), text);
        let command = dies_with_us(&sendoff, "KILL");
        let server = Server::try_run_of(command, &file, site.root(), 1).unwrap();
        assert_eq!(said(&server, "/index.php").0, runs, "{php}");
    }
    let module = fs::read_dir(sendoff.parent().unwrap()).unwrap();
    let module = module.map(|file| file.unwrap().path());
    let mut module = module.filter(|file| file.extension().is_some_and(|end| end == "so"));
    fs::remove_file(module.next().unwrap()).unwrap();
    let text =
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n";
    let file = site.write_at(site.outside("sendoff.toml"), text);
    let command = dies_with_us(&sendoff, "KILL");
    let server = Server::try_run_of(command, &file, site.root(), 1).unwrap();
    assert_eq!(said(&server, "/index.php").0, "sendoff-php");
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
