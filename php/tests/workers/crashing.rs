//! Extensions that crash.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::TempDir;
use crate::common::link::Request;
use crate::common::master::{Master, pool};
use sendoff_config::{PHP_VERSION, PoolConfig};

/// Builds an extension that crashes in this function of its module (`MINIT`, `RINIT`), or in
/// `get_module`.
fn extension(dir: &TempDir, name: &str, place: &str) -> String {
    let code = format!(
        "#include \"php.h\"\n#include <signal.h>\n
        static int crash(int type, int number) {{ (void)type; (void)number; *(volatile int *)16 = 1; return SUCCESS; }}
        #define NONE NULL\n#define AT_{place} crash
        #ifndef AT_MINIT\n#define AT_MINIT NULL\n#endif\n#ifndef AT_RINIT\n#define AT_RINIT NULL\n#endif
        zend_module_entry module = {{ STANDARD_MODULE_HEADER, \"{name}\", NULL, AT_MINIT, NULL, AT_RINIT, NULL, NULL, \"1\",
            STANDARD_MODULE_PROPERTIES }};
        __attribute__((visibility(\"default\"))) zend_module_entry *get_module(void) {{
        #ifdef AT_LOAD\n crash(0, 0);\n#endif\n return &module; }}\n"
    );
    let (source, library) = (dir.file(&format!("{name}.c")), dir.file(&format!("{name}.so")));
    fs::write(&source, code).unwrap();
    let includes =
        Command::new(format!("php-config{PHP_VERSION}")).arg("--includes").output().unwrap().stdout;
    let includes = String::from_utf8(includes).unwrap();
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-o", &library, &source]).args(includes.split_whitespace());
    assert!(build.status().unwrap().success());
    library
}

fn with(library: &str) -> PoolConfig {
    PoolConfig { php_ini: vec![format!("extension={library}")], ..pool() }
}

#[test]
fn the_library_of_another_php_is_refused() {
    let dir = TempDir::new();
    let (source, library) = (dir.file("other.c"), dir.file("other.so"));
    let code = "unsigned int php_version_id(void) { return 80117; }";
    fs::write(&source, code).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).status();
    assert!(built.unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendoff-php"));
    command.env("LD_PRELOAD", library).stderr(Stdio::piped());
    let (status, said) = Master::spawn(&mut command, &[]).said();
    let expected = format!(
        "sendoff-php: it was built for PHP {PHP_VERSION}, but libphp.so is PHP 8.1: install libphp{PHP_VERSION}-embed, \
         or build Sendoff again\n"
    );
    assert!(!status.success() && said.starts_with(&expected), "{said}");
}

#[test]
fn an_extension_that_crashes_while_it_is_loaded_is_named() {
    let dir = TempDir::new();
    for (place, expected) in [
        ("MINIT", "PHP crashes while it starts (signal 11): the extension breaks_minit in "),
        ("LOAD", "PHP crashes while it starts (signal 11) in "),
    ] {
        let name = format!("breaks_{}", place.to_lowercase());
        let library = extension(&dir, &name, place);
        let mut master = Master::start_pool(with(&library), Stdio::piped());
        let (status, said) = master.said();
        assert!(said.contains(&format!("sendoff-php: {expected}{library}\n")), "{said}");
        assert_eq!(status.code(), None, "it dies of the signal");
    }
}

#[test]
fn an_extension_that_crashes_in_every_request_is_named_and_backed_off() {
    let dir = TempDir::new();
    let library = extension(&dir, "breaks_requests", "RINIT");
    fs::write(dir.path().join("a.php"), "<?php echo 1;").unwrap();
    let mut master = Master::start_pool(with(&library), Stdio::piped());
    let mut log = BufReader::new(master.stderr()).lines().map(Result::unwrap);
    let began = Instant::now();
    for delay in ["100ms", "200ms", "400ms"] {
        let mut worker = master.worker();
        worker.link().send(&Request::new(&dir.file("a.php")));
        assert!(worker.link().response().is_none());
        let pid = worker.pid.as_raw_nonzero();
        let expected = format!(
            "sendoff-php: worker {pid} of pool default: it crashes (signal 11) in {library} in GET /a.php"
        );
        assert_eq!(log.next().unwrap(), expected);
        assert_eq!(
            log.next().unwrap(),
            format!("sendoff-php: worker {pid} was killed by signal 11")
        );
        let expected =
            format!("sendoff-php: it crashed in its first request: the next one starts in {delay}");
        assert_eq!(log.next().unwrap(), expected);
    }
    master.worker();
    assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
}

/// A page that crashes must not slow down other pages.
#[test]
fn a_worker_that_crashes_after_a_good_request_is_replaced_at_once() {
    let dir = TempDir::new();
    fs::write(dir.path().join("good.php"), "<?php echo 'good';").unwrap();
    fs::write(dir.path().join("bad.php"), "<?php posix_kill(getmypid(), 11);").unwrap();
    let master = Master::start_pool(pool(), Stdio::piped());
    for _ in 0..8 {
        let mut worker = master.worker();
        assert_eq!(worker.link().ask(&Request::new(&dir.file("good.php"))).body(), "good");
        worker.link().send(&Request::new(&dir.file("bad.php")));
        assert!(worker.link().response().is_none());
    }
    master.worker();
    let said = master.end();
    assert!(said.contains("posix.so in GET /bad.php\n"), "{said}");
    assert!(said.contains(" of pool default:   #0 posix_kill()"), "{said}");
    assert!(!said.contains("first request"), "{said}");
}

/// A page that crashes and is requested again and again meets new workers only.
#[test]
fn workers_that_crash_in_their_first_request_are_replaced_at_once_if_one_was_good() {
    let dir = TempDir::new();
    fs::write(dir.path().join("good.php"), "<?php echo 'good';").unwrap();
    fs::write(dir.path().join("bad.php"), "<?php posix_kill(getmypid(), 11);").unwrap();
    let master = Master::start_pool(pool(), Stdio::piped());
    let mut worker = master.worker();
    assert_eq!(worker.link().ask(&Request::new(&dir.file("good.php"))).body(), "good");
    for _ in 0..8 {
        worker.link().send(&Request::new(&dir.file("bad.php")));
        assert!(worker.link().response().is_none());
        worker = master.worker();
    }
    drop(worker);
    let said = master.end();
    assert!(!said.contains("the next one starts in"), "{said}");
}
