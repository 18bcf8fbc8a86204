//! Parts of PHP that its workers share: opcache with its compiler, preloading and files, and APCu;
//! and the line of `sendoff status` about them.

use sendoff_tests::{LIMIT, Server, Site, wait};

/// A script that uses the preloaded class, and shows which parts are active.
const PAGE: &str = "<?php Preloaded::page(); $status = opcache_get_status(false); apcu_inc('n'); \
    echo json_encode([$status['opcache_enabled'], $status['jit']['on'], array_values($status['preload_statistics']['classes']), apcu_fetch('n')]);";

fn start(site: &Site, settings: &[&str]) -> Server {
    let options: Vec<_> = settings.iter().flat_map(|setting| ["--php-ini", setting]).collect();
    Server::start(site.root(), &[&["--workers", "1"], &options[..]].concat())
}

/// The line of `sendoff status` about PHP with this in it. All of it is known with the worker's first
/// request.
fn status(server: &Server, part: &str) -> String {
    let mut line = None;
    wait::until(LIMIT, || {
        let status = server.command(&["status"]).expect("a status");
        line = status
            .lines()
            .find(|line| line.contains(" PHP ") && line.contains(part))
            .map(str::to_owned);
        line.is_some()
    });
    line.expect("a line about PHP")
}

#[test]
fn preloaded_code_runs_compiled_and_its_constants_are_handed_over() {
    let html: String = (0..9_000).map(|n| format!("line {n}\n")).collect();
    let site = Site::with("index.php", PAGE);
    let class = format!("<?php class Preloaded {{ static function page() {{ ?>{html}<?php }} }}");
    site.write("class.php", class);
    let preload = site.write("preload.php", "<?php require __DIR__ . '/class.php';");
    let preload = preload.display();
    let setting = format!("opcache.preload={preload}");
    let server = start(
        &site,
        &[&setting, "opcache.jit=tracing", "opcache.jit_buffer_size=16M", "apc.shm_size=8M"],
    );
    assert!(!server.command(&["status"]).expect("a status").contains("opcache "));
    for n in 1..=20 {
        let expected = format!("{html}[true,true,[\"Preloaded\"],{n}]");
        assert!(server.page("/") == expected, "request {n}: {}", server.page("/"));
    }
    let line = status(&server, "opcache ");
    for part in
        ["opcache 134.2 MB", ", JIT 16.8 MB", &format!(", preloaded by {preload}"), ", APCu 8.4 MB"]
    {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    let all = server.command(&["status"]).expect("a status");
    assert!(!all.contains(" 0.0 MB handed over"), "{all}");
    let json = server.command(&["status", "--json"]).expect("a status");
    for part in [format!("\"preload\": \"{preload}\""), "\"apcu\": 8388".to_owned()] {
        assert!(json.contains(&part), "{part:?} is not in {json}");
    }
}

#[test]
fn compiled_files_are_found_by_the_next_server() {
    let site = Site::with("index.php", "<?php echo 'page';");
    let folder = site.folder("compiled");
    let setting = format!("opcache.file_cache={}", folder.display());
    let settings = [&*setting, "opcache.file_update_protection=0", "opcache.jit_buffer_size=0"];
    let files = || walk(&folder);
    for _ in 0..2 {
        let server = start(&site, &settings);
        assert_eq!(server.page("/"), "page");
        let line = status(&server, "opcache ");
        assert!(
            line.contains(", no JIT") && line.contains(&format!(", files in {}", folder.display())),
            "{line}"
        );
        assert_eq!(files(), ["index.php.bin"]);
    }
    // Without shared memory every worker takes its code from there.
    let server = start(&site, &[&settings[..], &["opcache.file_cache_only=1"]].concat());
    assert_eq!(server.page("/"), "page");
    status(&server, ", opcache in files alone");
}

/// The names of the files in a folder and the folders below.
fn walk(folder: &std::path::Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => walk(&path),
            _ => vec![entry.file_name().to_string_lossy().into_owned()],
        })
        .collect()
}

#[test]
fn a_script_that_opcache_does_not_tell_is_not_disturbed() {
    let page = "<?php set_error_handler(fn ($n, $text) => print $text); echo 'page';";
    let site = Site::with("index.php", page);
    let server = start(&site, &["opcache.restrict_api=/elsewhere", "apc.enabled=0"]);
    assert_eq!(server.page("/"), "page");
    let line = status(&server, "");
    assert!(!line.contains("opcache") && !line.contains("APCu"), "{line}");
}
