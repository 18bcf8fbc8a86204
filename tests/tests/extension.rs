//! Stock php-fpm with `sendoff.so` behind our front, and behind nginx.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use sendoff_tests::{
    Client, Fpm, Request, Response, Server, Site, Stock, assert_same, extension, pattern,
};
use std::fs;

const ENV: &str = include_str!("../scripts/env.php");

/// A site, php-fpm with the extension, and a front that knows that it has it.
struct Setup {
    // In this order: the front's end is checked while php-fpm is there.
    server: Server,
    fpm: Fpm,
    site: Site,
}

impl Setup {
    fn start(pool: &str, options: &[&str]) -> Self {
        let site = site();
        let fpm = Fpm::start_with(site.root(), pool, &[&extension()]);
        let fastcgi = fpm.php();
        let mut server =
            Server::start(site.root(), &[&["--fastcgi", &fastcgi], options].concat());
        server.expect_linked_processes(fpm.processes().len());
        assert_eq!(server.page("/quick.php"), "quick");
        Self { server, fpm, site }
    }

    /// How the last response of `counted.php` left: bytes handed over, bytes copied.
    fn counts(&self) -> (u64, u64) {
        let counts = fs::read_to_string(self.site.path("counts")).unwrap();
        let mut counts = counts.split(' ').map(|count| count.parse().unwrap());
        (counts.next().unwrap(), counts.next().unwrap())
    }

    /// The body of a script, and how it left.
    fn counted(&self, code: &str) -> (Response, (u64, u64)) {
        self.site.write("counted.php", counted(code));
        let response = self.server.get("/counted.php");
        let counts = self.counts();
        (response, counts)
    }
}

/// A script that notes how its output left, when the last of it has been written.
fn counted(code: &str) -> String {
    format!(
        "<?php opcache_invalidate(__FILE__, true); chdir(__DIR__);
        class Count {{ function __destruct() {{
            while (ob_get_level()) ob_end_flush();
            $s = sendoff_stats();
            file_put_contents(__DIR__ . '/counts', $s['handed_over_bytes'] . ' ' . $s['copied_bytes']);
        }} }}
        $count = new Count; {code}"
    )
}

fn site() -> Site {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    site.write("a", pattern(1, 100_000));
    site.write("b", pattern(2, 30_000));
    site.write("big", pattern(3, 3_000_000));
    site.write("counts", "");
    site
}

#[test]
fn files_are_handed_over() {
    let setup = Setup::start("php_admin_value[output_buffering] = 4096", &[]);
    let (a, b) = (pattern(1, 100_000), pattern(2, 30_000));
    for (code, handed_over, body) in [
        ("readfile('a');", 100_000, a.clone()),
        ("echo file_get_contents('a'), file_get_contents('b');", 130_000, [&a[..], &b].concat()),
        ("echo 'x'; echo file_get_contents('b'); echo 'y';", 30_000, [b"x", &b[..], b"y"].concat()),
        ("$f = fopen('a', 'r'); while (!feof($f)) echo fread($f, 8192);", 0, a.clone()),
    ] {
        let (response, (given, copied)) = setup.counted(code);
        assert_eq!(response.expect(200), body, "{code}");
        assert_eq!(response.header("X-Sendoff"), None);
        assert!(given >= handed_over && given > 0, "{code}: {given} bytes handed over");
        assert!(copied < 8192 + 500, "{code}: {copied} bytes copied");
    }
}
