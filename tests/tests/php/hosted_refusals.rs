//! Stock PHP programs, modules and extensions with which a hosted pool cannot start.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sendoff_config::{PHP_VERSION, PhpApi};
use sendoff_tests::{Client, Server, Site, compile_extension, dies_with_us, hosted_binary};

fn php_fpm() -> String {
    format!("/usr/sbin/php-fpm{PHP_VERSION}")
}

/// A configuration with one pool in a stock PHP program.
fn config(site: &Site, php: &str, more: &str) -> PathBuf {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n\
         [[pool]]\nname = 'www'\nworkers = 1\nphp = '{php}'\n{more}\n[[site]]\nroot = 'root'\n"
    );
    site.write_at(site.outside("sendoff.toml"), text)
}

/// The exit status and the messages of a command that refuses a configuration.
fn refusal(sendoff: &Path, command: &str, config: &Path) -> (Option<i32>, String) {
    let mut refuses = dies_with_us(sendoff, "KILL");
    let done = refuses.arg(command).arg("--config").arg(config).output().unwrap();
    assert!(!done.status.success());
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

/// A copy of a file in which a text is replaced by one of the same length.
fn altered(of: &Path, to: PathBuf, text: &str, by: &str) -> PathBuf {
    let mut bytes = fs::read(of).unwrap();
    let places: Vec<_> = (0..bytes.len() - text.len())
        .filter(|at| bytes[*at..].starts_with(text.as_bytes()))
        .collect();
    assert!(!places.is_empty(), "{} has no {text}", of.display());
    for at in places {
        bytes[at..at + by.len()].copy_from_slice(by.as_bytes());
    }
    fs::write(&to, bytes).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    to
}

/// The mark of the build in php-fpm, such as `API20220829,NTS`.
fn mark() -> String {
    let module = module();
    let name = module.file_stem().unwrap().to_str().unwrap();
    format!("API{},NTS\0", name.rsplit('-').next().unwrap())
}

/// The module beside the server.
fn module() -> PathBuf {
    let folder = hosted_binary();
    let mut files =
        fs::read_dir(folder.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    files.find(|file| file.extension().is_some_and(|end| end == "so")).unwrap()
}

/// A version of PHP that this machine has no programs of.
fn absent_version() -> &'static str {
    let is_absent = |version: &&str| {
        let names = [format!("/usr/sbin/php-fpm{version}"), format!("/usr/bin/php-cgi{version}")];
        !names.iter().any(|name| Path::new(name).exists())
    };
    PhpApi::versions().find(is_absent).expect("one machine has not all versions")
}

/// A server in a folder without the module.
fn without_module(site: &Site) -> PathBuf {
    let folder = site.outside("installed");
    fs::create_dir(&folder).unwrap();
    let server = folder.join("sendoff");
    fs::copy(hosted_binary(), &server).unwrap();
    server
}

#[test]
fn programs_that_host_no_workers_are_refused() {
    let site = Site::new();
    let mark = mark();
    let copy = |name: &str, by: &str| {
        let file = altered(Path::new(&php_fpm()), site.outside(name), &mark, by);
        file.to_str().unwrap().to_owned()
    };
    let zts = copy("zts", &mark.replace("NTS\0", "TS\0\0"));
    let unknown = copy("unknown", "API20991231,NTS\0");
    let no_php = copy("none", &mark.replace("NTS", "???"));
    let pipe = site.fifo("pipe");
    let pipe_path = site.path("pipe").to_str().unwrap().to_owned();
    fs::set_permissions(&pipe_path, fs::Permissions::from_mode(0o755)).unwrap();
    let absent = absent_version();
    for (php, says) in [
        (&*zts, "is thread-safe (ZTS), which hosts no workers"),
        (&*unknown, "has the API 20991231, of a PHP that is not known"),
        (&*no_php, "is no PHP program"),
        (&*pipe_path, "this is no file"),
        ("/bin/true", "is no PHP program"),
        (absent, &format!("there is no PHP {absent} that can host workers")),
    ] {
        for command in ["check", "run"] {
            let (code, said) = refusal(&hosted_binary(), command, &config(&site, php, ""));
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains(says), "{php}: {said}");
        }
    }
    drop(pipe);
}

#[test]
fn a_module_that_is_missing_or_does_not_fit_is_named() {
    let site = Site::new();
    let config = config(&site, &php_fpm(), "");
    let server = without_module(&site);
    let name = module().file_name().unwrap().to_str().unwrap().to_owned();
    for command in ["check", "run"] {
        let (_, said) = refusal(&server, command, &config);
        let says = format!("{name}, the module for PHP {PHP_VERSION}, is missing");
        assert!(said.replace("\n        ", " ").contains(&says), "{said}");
    }
    let installed = server.with_file_name(&name);
    fs::write(&installed, "no module").unwrap();
    let (code, said) = refusal(&server, "run", &config);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("did not load the module of Sendoff"), "{said}");
    assert!(!said.contains("phpinfo"), "{said}");

    // zend_extension has its own number in front of the build.
    let other = mark().replace("API", "API4").replace(",NTS\0", ",TS\0\0");
    altered(&module(), installed, &mark().replace("API", "API4"), &other);
    let (code, said) = refusal(&server, "run", &config);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the module is for API4"), "{said}");
}

/// The setting for an extension that does this when PHP has started.
fn taker(site: &Site, mode: &str) -> String {
    let module = compile_extension(site, "taker", &[&format!("-DMODE={mode}")]);
    format!("php_ini = {{ zend_extension = '{}' }}", module.display())
}

/// The exit status and the messages of PHP when a server has left these options to the module.
fn with_options(options: &str) -> (Option<i32>, String) {
    let mut php = dies_with_us(Path::new(&php_fpm()), "KILL");
    php.arg("-d").arg(format!("zend_extension={}", module().display())).arg("-i");
    let done = php.env("SENDOFF_HOST", options).stdin(Stdio::null()).output().unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

/// As when only one of two packages has been upgraded.
#[test]
fn a_module_of_another_version_says_so() {
    let ours = env!("CARGO_PKG_VERSION");
    for (options, says) in [
        (
            "0.0.1\n/lib/m.so\n--pool=0\n--from-the-future=9".to_owned(),
            format!("/lib/m.so is of Sendoff {ours}, and the server of another version (0.0.1): "),
        ),
        // Servers of older versions.
        (
            "--config-fd=3 --pool-fd=4".to_owned(),
            format!("the module that PHP has loaded is of Sendoff {ours}, and the server of "),
        ),
        (
            format!("{ours}\n/lib/m.so\n--pool=0\n--from-the-future=9"),
            "/lib/m.so is of another build of Sendoff than the server (unexpected argument \
             '--from-the-future' found): install both"
                .to_owned(),
        ),
    ] {
        let (code, said) = with_options(&options);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&says), "{said}");
        assert!(!said.contains("Usage"), "{said}");
    }
}

#[test]
fn an_extension_that_ends_php_is_suspected() {
    let site = Site::new();
    let config = config(&site, &php_fpm(), &taker(&site, "ENDS"));
    let (code, said) = refusal(&hosted_binary(), "run", &config);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("or an extension ended it"), "{said}");
}

#[test]
fn an_extension_that_keeps_php_from_starting_is_suspected() {
    let site = Site::new();
    let config = config(&site, &php_fpm(), &taker(&site, "STAYS"));
    let mut starts = dies_with_us(&hosted_binary(), "TERM");
    starts.arg("run").arg("--config").arg(config).env("XDG_RUNTIME_DIR", site.outside("run"));
    let mut child = starts.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).any(|line| line.contains("PHP still starts"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(told);
}

#[test]
fn php_that_does_not_start_in_time_ends_the_start_and_fails_a_reload() {
    let site = Site::with("index.php", "<?php echo 'it runs';");
    let slow = format!("start_timeout = '1s'\n{}", taker(&site, "STAYS"));
    let says = "PHP master has not started PHP within 1s: an extension";
    let (code, said) = refusal(&hosted_binary(), "run", &config(&site, &php_fpm(), &slow));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(says), "{said}");

    let server = Server::try_run_hosted(&config(&site, &php_fpm(), ""), site.root(), 1).unwrap();
    config(&site, &php_fpm(), &slow);
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains(says) && said.contains("nothing has changed"), "{said}");
    assert_eq!(server.page("/index.php"), "it runs");
}

/// php.ini is a pipe that has no writer: PHP waits before it loads the module.
#[test]
fn settings_that_cannot_be_read_to_their_end_hold_up_one_pool_only() {
    let site = Site::with("index.php", "<?php echo 'it runs';");
    site.write("static.txt", "static");
    let more = "workers = 'ondemand'\nstart_timeout = '1s'";
    let config = config(&site, &php_fpm(), "");
    let text = fs::read_to_string(&config).unwrap().replace("workers = 1", more);
    fs::write(&config, text).unwrap();
    let pipe = site.fifo("php.ini");
    let mut command = dies_with_us(&hosted_binary(), "KILL");
    command.env("PHPRC", site.path("php.ini"));
    let server = Server::try_run_of(command, &config, site.root(), 0).unwrap();
    let mut client = Client::connect(server.addr());
    client.send("GET /index.php HTTP/1.1\r\nHost: x\r\n\r\n");
    server.await_log("has not started PHP within 1s");
    assert_eq!(server.page("/static.txt"), "static");
    drop(pipe);
}

#[test]
fn an_extension_that_acts_after_the_start_changes_nothing() {
    let site = Site::with("index.php", "<?php echo ini_get('opcache.enable');");
    let config = config(&site, &php_fpm(), &taker(&site, "GOES_ON"));
    let server = Server::try_run_hosted(&config, site.root(), 1).unwrap();
    assert_eq!(server.page("/index.php"), "1");
}
