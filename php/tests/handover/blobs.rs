//! Constant strings on real PHP: they are stored as blobs when they are written again, and the
//! bytes are right.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::common::TempDir;
use crate::common::fpm::Fpm;
use crate::common::front::{Front, Piece};
use crate::common::link::Request;
use crate::common::master::Master;
use crate::common::site::{SETTINGS, THRESHOLD, bytes, content};

/// Settings that make opcache check files in every request, and accept new files.
const OPCACHE: [&str; 2] = ["opcache.revalidate_freq=0", "opcache.file_update_protection=0"];
const JIT: [&str; 3] =
    ["opcache.jit=tracing", "opcache.jit_buffer_size=32M", "opcache.jit_hot_loop=2"];

/// A folder, and a worker with opcache that runs its scripts.
struct Site {
    dir: TempDir,
    master: Master,
    front: Front,
    pid: Pid,
}

fn settings<'a>(more: &[&'a str]) -> Vec<&'a str> {
    OPCACHE.iter().chain(more).copied().collect()
}

impl Site {
    fn new(more: &[&str]) -> Self {
        Self::with_options(more, &[])
    }

    fn with_options(more: &[&str], options: &[&str]) -> Self {
        let settings = settings(more);
        let mut all: Vec<&str> = settings.iter().flat_map(|s| ["--php-ini", s]).collect();
        all.extend(options);
        let master = Master::start(&all);
        let worker = master.worker();
        let pid = worker.pid;
        Self { dir: TempDir::new(), master, front: Front::new(worker), pid }
    }

    fn file(&self, name: &str, content: &[u8]) {
        std::fs::write(self.dir.path().join(name), content).unwrap();
    }

    fn request(&self, name: &str) -> Request {
        Request::new(&self.dir.file(name))
    }

    fn ask(&mut self, name: &str) -> Vec<Piece> {
        let request = self.request(name);
        self.front.ask(&request)
    }

    /// The pieces of the response after the worker has stored the page's strings. The bytes are the
    /// same in any case.
    fn learned(&mut self, name: &str) -> Vec<Piece> {
        let first: Vec<u8> = joined(self.ask(name));
        for _ in 0..2 {
            assert_eq!(joined(self.ask(name)), first);
        }
        let pieces = self.ask(name);
        assert_eq!(joined(pieces.clone()), first);
        pieces
    }
}

fn joined(pieces: Vec<Piece>) -> Vec<u8> {
    pieces.into_iter().flat_map(Piece::into_bytes).collect()
}

fn page(before: &str, html: &[u8], after: &str) -> Vec<u8> {
    [before.as_bytes(), html, after.as_bytes()].concat()
}

#[test]
fn inline_html_leaves_as_a_segment_the_second_time() {
    for more in [&SETTINGS[..1], &SETTINGS[1..], &JIT] {
        let mut site = Site::new(more);
        let html = content("<p>", 60_000);
        let method = "<?php echo $_SERVER['REQUEST_METHOD'];";
        site.file("page.php", &page(&format!("{method} ?>"), &html, method));
        assert_eq!(site.ask("page.php"), [Piece::Bytes(page("GET", &html, "GET"))], "{more:?}");
        for _ in 0..3 {
            let expected = [bytes("GET"), Piece::File(html.clone()), bytes("GET")];
            assert_eq!(site.ask("page.php"), expected, "{more:?}");
        }
    }
}

#[test]
fn included_files_without_code_and_literals_are_blobs_too() {
    let (a, b, c) = (content("a", 60_000), content("b", THRESHOLD), content("c", 200_000));
    for more in [&SETTINGS[..1], &SETTINGS[1..], &JIT] {
        let mut site = Site::new(more);
        site.file("a.html", &a);
        site.file("b.inc", &b);
        let literal = String::from_utf8(c.clone()).unwrap();
        let code = format!(
            "<?php const C = <<<'END'\n{literal}\nEND;\nclass K {{ const C = \"{literal}\"; }}\n\
             function f($s) {{ return $s; }}\n\
             for ($i = 0; $i < 3; $i++) {{ require 'a.html'; echo '|'; include __DIR__ . '/b.inc'; }}\n\
             echo C, '-', f(K::C); print '{literal}'; exit(C);"
        );
        site.file("page.php", code.as_bytes());
        let file = |content: &[u8]| Piece::File(content.to_vec());
        let round = [file(&a), bytes("|"), file(&b)];
        let mut expected: Vec<Piece> = [&round[..], &round, &round].concat();
        expected.extend([file(&c), bytes("-"), file(&c), file(&c), file(&c)]);
        assert_eq!(site.learned("page.php"), expected, "{more:?}");
    }
}

#[test]
fn what_is_short_or_no_constant_leaves_as_bytes() {
    let mut site = Site::new(&[SETTINGS[1]]);
    let html = content("h", 60_000);
    for (name, code, expected) in [
        ("short.php", page("", &html[..THRESHOLD - 1], ""), html[..THRESHOLD - 1].to_vec()),
        ("joined.php", page("<?php $x = 'x'; echo $x . '", &html, "';"), page("x", &html, "")),
        ("made.php", b"<?php echo str_repeat('x', 60000);".to_vec(), vec![b'x'; 60_000]),
        ("part.php", page("<?php echo substr('", &html, "', 0, 50000);"), html[..50_000].to_vec()),
        ("later.php", page("<?php echo substr('", &html, "', 8);"), html[8..].to_vec()),
    ] {
        site.file(name, &code);
        // An expression that opcache evaluates at compile time is a constant, too.
        assert_eq!(joined(site.learned(name)), expected, "{name}");
    }
    assert_eq!(site.learned("short.php"), [Piece::Bytes(html[..THRESHOLD - 1].to_vec())]);
    let code = page("<?php $x = $_SERVER['REQUEST_METHOD']; echo $x . '", &html, "';");
    site.file("get.php", &code);
    assert_eq!(site.learned("get.php"), [Piece::Bytes(page("GET", &html, ""))]);
}

/// Callbacks and buffers get the same data as without blobs.
#[test]
fn buffers_are_fed_as_ever() {
    let html = content("h", 60_000);
    let upper = html.to_ascii_uppercase();
    for (setting, code, expected) in [
        ("output_buffering=On", "?>", &html),
        (SETTINGS[0], "ob_start(); ?>", &html),
        (SETTINGS[1], "ob_start(null, 4096); ?>", &html),
        (SETTINGS[1], "ob_start(fn($s) => strtoupper($s)); ?>", &upper),
        (SETTINGS[0], "ob_start(fn($s) => strtoupper($s), 1); ?>", &upper),
    ] {
        let mut site = Site::new(&[setting]);
        site.file("page.php", &page(&format!("<?php {code}"), &html, ""));
        let fpm = Fpm::start(&settings(&[setting]));
        for _ in 0..4 {
            let theirs = fpm.ask(&site.request("page.php")).stdout;
            assert!(theirs.ends_with(expected), "{setting} {code}");
            assert_eq!(joined(site.ask("page.php")), *expected, "{setting} {code}");
        }
    }
}

/// Without opcache no string is recognised.
#[test]
fn without_opcache_everything_is_bytes() {
    let html = content("h", 60_000);
    let list = TempDir::new();
    std::fs::write(list.path().join("list"), "/**/page.php\n").unwrap();
    let blacklist = format!("opcache.blacklist_filename={}", list.file("list"));
    for (more, stored) in [
        ("opcache.enable=1", true),
        ("opcache.enable=0", false),
        ("opcache.file_update_protection=3600", false),
        (&blacklist, false),
        ("sendoff.threshold=0", false),
    ] {
        let mut site = Site::new(&[more]);
        site.file("page.php", &html);
        let expected = if stored { Piece::File(html.clone()) } else { Piece::Bytes(html.clone()) };
        assert_eq!(site.learned("page.php"), [expected], "{more}");
    }
}

/// php.ini may set 0 for a folder, which turns blobs off there.
#[test]
fn a_folder_can_do_without_blobs() {
    let (ini, dir) = (TempDir::new(), TempDir::new());
    let section = format!("[PATH={}]\nsendoff.threshold=0\n", dir.path().display());
    std::fs::write(ini.path().join("php.ini"), section).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendoff-php"));
    let options: Vec<_> = OPCACHE.iter().flat_map(|setting| ["--php-ini", setting]).collect();
    let master = Master::spawn(command.env("PHPRC", ini.path()), &options);
    let mut front = Front::new(master.worker());
    let html = content("h", 60_000);
    for (folder, expected) in
        [(&dir, Piece::Bytes(html.clone())), (&TempDir::new(), Piece::File(html.clone()))]
    {
        std::fs::write(folder.path().join("page.php"), &html).unwrap();
        let request = Request::new(&folder.file("page.php"));
        assert_eq!(front.body(&request), html);
        assert_eq!(front.ask(&request), [expected]);
    }
}

/// A string beyond the file size limit is not stored: the kernel would end the worker (SIGXFSZ).
#[test]
fn a_worker_that_may_not_write_large_files_stores_none() {
    let mut site = Site::new(&["opcache.jit=off"]);
    let html = content("h", 60_000);
    site.file("page.php", &html);
    let limit = Rlimit { current: Some(50_000), maximum: Some(50_000) };
    prlimit(Some(site.pid), Resource::Fsize, limit).unwrap();
    assert_eq!(site.learned("page.php"), [Piece::Bytes(html)]);
}

/// A front that does not know files gets bytes.
#[test]
fn a_plain_fastcgi_front_gets_bytes() {
    let site = Site::new(&[]);
    let html = content("h", 60_000);
    site.file("page.php", &html);
    let Site { dir, master, front, .. } = site;
    drop(front);
    let mut worker = master.worker();
    for _ in 0..4 {
        let response = worker.link().ask(&Request::new(&dir.file("page.php")));
        assert!(response.stdout.ends_with(&html));
    }
}

#[test]
fn a_changed_file_is_new_bytes_at_once() {
    let mut site = Site::new(&[SETTINGS[1]]);
    site.file("page.php", b"<?php require 'part.html';");
    for (round, seed) in ["old", "new", "odd"].into_iter().enumerate() {
        let html = content(seed, 60_000);
        site.file("part.html", &html);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + round as u64);
        File::open(site.dir.path().join("part.html")).unwrap().set_modified(time).unwrap();
        assert_eq!(site.ask("page.php"), [Piece::Bytes(html.clone())], "{seed}");
        assert_eq!(site.learned("page.php"), [Piece::File(html)], "{seed}");
    }
}

/// After a restart opcache fills its memory from the beginning: a different text of the same length
/// may get the same address.
#[test]
fn a_restart_of_opcache_does_not_bring_back_old_bytes() {
    let mut site = Site::new(&[SETTINGS[1]]);
    site.file("where.php", b"<?php opcache_reset();");
    site.file("page.php", b"<?php require 'part.html';");
    for (round, seed) in ["one", "two", "six", "ten"].into_iter().enumerate() {
        let html = content(seed, 60_000);
        site.file("part.html", &html);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + round as u64);
        File::open(site.dir.path().join("part.html")).unwrap().set_modified(time).unwrap();
        site.ask("where.php");
        let pieces = site.learned("page.php");
        assert_eq!(pieces, [Piece::File(html)], "{seed}");
    }
}

#[test]
fn no_lease_is_needed() {
    let mut site = Site::with_options(&[SETTINGS[1]], &["--snapshot", "copy"]);
    let html = content("h", 60_000);
    site.file("page.php", &html);
    site.file("f.php", b"<?php readfile(__DIR__ . '/page.php');");
    assert_eq!(site.learned("page.php"), [Piece::File(html.clone())]);
    assert_eq!(site.learned("f.php"), [Piece::Bytes(html)]);
}

/// With more constants than blobs, the least used blobs are dropped, and the output stays right.
#[test]
fn the_least_recently_used_blob_makes_room() {
    const PAGES: usize = 70;
    let mut site = Site::new(&[SETTINGS[1]]);
    let html = |n: usize| content(&format!("page {n}"), THRESHOLD + n);
    for n in 0..PAGES {
        site.file(&format!("{n}.php"), &html(n));
        assert_eq!(joined(site.learned(&format!("{n}.php"))), html(n));
    }
    let is_stored = |site: &mut Site, n: usize| match &site.ask(&format!("{n}.php"))[..] {
        [Piece::File(all)] => *all == html(n),
        [Piece::Bytes(all)] => {
            assert_eq!(*all, html(n));
            false
        }
        other => panic!("{other:?}"),
    };
    let last = PAGES - 1;
    assert!(is_stored(&mut site, 0) && !is_stored(&mut site, last));
    // After many writes it replaces another one.
    let tries = (0..20).take_while(|_| !is_stored(&mut site, last)).count();
    assert!((5..20).contains(&tries), "{tries}");
    assert!(is_stored(&mut site, 0) && !is_stored(&mut site, 1) && is_stored(&mut site, 2));
}
