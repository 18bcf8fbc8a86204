//! PHP.

use std::fs;

use sendoff_tests::{Fpm, LIMIT, Request, Site, wait};

use super::Shown;
use super::machine::Machine;

pub(super) const TASKS: &[Shown] = &[
    ("Use different PHP settings for each site", settings_of_sites),
    ("Use different PHP settings for a folder", settings_of_a_folder),
    ("Find slow scripts", slow_scripts),
    ("Never run scripts among uploads", uploads),
    ("Set environment variables", environment),
    ("Use another version of PHP by its php-fpm", other_version),
];

#[test]
fn php() {
    super::run(TASKS);
}

const LIMITS: &str = "<?php echo ini_get('memory_limit'), ' ', (int) function_exists('exec');";

fn settings_of_sites(machine: Machine) {
    machine.write("/var/www/shop/a.php", LIMITS);
    machine.write("/var/www/blog/a.php", LIMITS);
    let run = machine.with_workers(6).start();
    assert_eq!(run.text("http://shop.example.org/a.php"), "512M 1");
    assert_eq!(run.text("http://blog.example.org/a.php"), "64M 0");
}

fn settings_of_a_folder(machine: Machine) {
    let machine = machine.with("reports/a.php", LIMITS).with("reports/a.txt", "text");
    let run = machine.with("a.php", LIMITS).with_workers(5).start();
    assert_eq!(run.text("http://example.org/reports/a.php"), "1G 1");
    assert_ne!(run.text("http://example.org/a.php"), "1G 1");
    assert_eq!(run.text("http://example.org/reports/a.txt"), "text");
}

fn slow_scripts(machine: Machine) {
    let scripts = Site::with("slow.php", "");
    let pipe = scripts.fifo("pipe");
    let script = format!(
        "<?php function waits() {{ return file_get_contents('{}'); }} echo waits();",
        scripts.path("pipe").display()
    );
    let run = machine.with("slow.php", script).with_workers(4).start();
    let mut client = run.server.connect();
    client.send(Request::get("/slow.php").bytes());
    let held = pipe.hold();
    let log = run.machine.path("/var/log/sendoff/slow.log");
    let logged =
        wait::until(LIMIT, || fs::read_to_string(&log).is_ok_and(|text| text.contains("waits()")));
    drop(held);
    assert_eq!(client.response("GET").status(), 200);
    assert!(logged, "{:?}", fs::read_to_string(&log));
}

fn uploads(machine: Machine) {
    let machine =
        machine.with("uploads/a.png", "picture").with("uploads/a.php", "<?php echo 'ran';");
    let run = machine.with("a.php", "<?php echo 'ran';").start();
    assert_eq!(run.text("http://example.org/uploads/a.png"), "picture");
    for path in ["a.php", "a.php/x", "a.png/x.php", "a%2ephp"] {
        let response = run.get(&format!("http://example.org/uploads/{path}"));
        assert!(response.status() >= 400 && !response.text().contains("ran"), "{path}");
    }
    assert_eq!(run.text("http://example.org/a.php"), "ran");
}

fn environment(machine: Machine) {
    let script = "<?php echo getenv('APP_ENV'), ' ', $_SERVER['FEATURES'] ?? 'none';";
    let machine = machine.with("beta/a.php", script).with("a.php", script);
    let run = machine.with_workers(4).start();
    assert_eq!(run.text("http://example.org/a.php"), "production none");
    assert_eq!(run.text("http://example.org/beta/a.php"), "production beta");
}

fn other_version(machine: Machine) {
    let site = Site::new();
    let fpm = Fpm::start(site.root(), "env[VERSION] = other");
    let script = "<?php echo getenv('VERSION');";
    machine.write("/var/www/old/a.php", script);
    let machine = machine.with_value("unix:/run/php/php7.4-fpm.sock", &fpm.address());
    let run = machine.with_workers(0).start();
    assert_eq!(run.text("http://old.example.org/a.php"), "other");
}
