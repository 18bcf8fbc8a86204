//! Fragments of PHP scripts (docs/fragments.md): purges by requests, by fields of responses and by
//! the operator reach the workers of the site; pages are the same as without fragments.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use sendoff_tests::{Client, Request, Response, Server, Site, processes};

/// `n` counts the runs of fragment `k`, which has a tag. `p` purges by LSCache's field.
const PAGE: &str = "<?php
if (isset($_GET['p'])) header('X-LiteSpeed-Purge: ' . $_GET['p']);
else sendoff_fragment('k', 600, function () { $runs = dirname($_SERVER['DOCUMENT_ROOT']) . '/runs';
    file_put_contents($runs, '.', FILE_APPEND); echo 'run ', filesize($runs); }, ['post-1', 'all']);
";

/// Two sites with a pool each, both for `Host: a` and `Host: b`; `lines` are about both.
fn start(lines: &str) -> (Site, Server) {
    let site = Site::with("page.php", PAGE);
    fs::create_dir_all(site.outside("other/root")).unwrap();
    site.write_at(site.outside("other/root/page.php"), PAGE);
    fs::set_permissions(site.outside("other"), Permissions::from_mode(0o777)).unwrap();
    let text = format!(
        "listen = '127.0.0.1:0'\npage_cache_folder = 'pages'\n\
         [[pool]]\nname = 'a'\nworkers = 3\n[[pool]]\nname = 'b'\nworkers = 1\n\
         [[site]]\nhosts = 'a.test'\nroot = 'root'\npool = 'a'\n{lines}\n\
         [[site]]\nhosts = 'b.test'\nroot = 'other/root'\npool = 'b'\n{lines}\n"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 4);
    (site, server.unwrap_or_else(|failed| panic!("{}", failed.stderr)))
}

fn ask(server: &Server, host: &str, method: &str, target: &str, field: (&str, &str)) -> String {
    let request = Request::new(method, target).header("Host", host);
    server.ask(&request.header(field.0, field.1)).text()
}

fn get(server: &Server, host: &str, target: &str) -> String {
    ask(server, host, "GET", target, ("X-None", "1"))
}

#[test]
fn purges_reach_the_workers_of_the_site_and_no_others() {
    let (_site, server) = start("page_cache = 'lscache'\npurge_from = ['127.0.0.1']");
    let run = |host: &str| get(&server, host, "/page.php");
    assert_eq!([run("a.test"), run("a.test"), run("b.test")], ["run 1", "run 1", "run 1"]);
    let purges: [(&str, &dyn Fn()); 4] = [
        ("xkey", &|| drop(ask(&server, "a.test", "PURGE", "/", ("xkey-purge", "x post-1")))),
        ("field", &|| drop(get(&server, "a.test", "/page.php?p=tag=post-1"))),
        ("everything of the site", &|| drop(get(&server, "a.test", "/page.php?p=*"))),
        ("pattern", &|| {
            let field = ("Cache-Tags", "post-.");
            drop(ask(&server, "a.test", "BAN", "/", field));
        }),
    ];
    for (n, (name, purge)) in purges.iter().enumerate() {
        ask(&server, "a.test", "PURGE", "/", ("xkey-purge", "post-2"));
        assert_eq!(run("a.test"), format!("run {}", n + 1), "{name}: another tag");
        ask(&server, "a.test", "PURGE", "/page.php", ("X-None", "1"));
        assert_eq!(run("a.test"), format!("run {}", n + 1), "{name}: a page");
        purge();
        // The purge is answered once all workers obey it.
        let runs = [(); 6].map(|()| run("a.test"));
        assert_eq!(runs, [(); 6].map(|()| format!("run {}", n + 2)), "{name}");
        assert_eq!(run("b.test"), "run 1", "{name}: the other site");
    }
    server.command(&["purge", "--all"]).unwrap();
    assert_eq!([run("a.test"), run("b.test")], ["run 6", "run 2"]);
}

#[test]
fn a_new_master_begins_without_fragments_and_obeys_purges() {
    let (_site, server) = start("purge_from = ['127.0.0.1']");
    let run = || get(&server, "a.test", "/page.php");
    assert_eq!(run(), "run 1");
    server.command(&["reload"]).unwrap();
    assert_eq!(run(), "run 1", "a reload that changes nothing");
    ask(&server, "a.test", "PURGE", "/", ("xkey-purge", "post-1"));
    assert_eq!([run(), run()], ["run 2", "run 2"]);
}

#[test]
fn explain_counts_fragments() {
    let site = Site::with(
        "page.php",
        "<?php foreach ([1, 2, 3] as $n)
        sendoff_fragment(\"k$n\", 600, function () use ($n) { echo str_repeat($n, 20000); });",
    );
    site.write("plain.php", "<?php echo 'plain';");
    let server = Server::start(site.root(), &["--workers", "1"]);
    let note = |target: &str| {
        let page = server.explain(target, &[]).unwrap();
        page.lines().find(|line| line.starts_with("made of")).map(str::to_owned)
    };
    let made = note("/page.php").unwrap();
    assert!(made.starts_with("made of 3 fragments, 0 kept, 3 made in "), "{made}");
    assert_eq!(note("/page.php").unwrap(), "made of 3 fragments, 3 kept, 0 made in 0 ms");
    // A worker that has sent a fragment twice stores it.
    let table = server.explain("/page.php", &[]).unwrap();
    assert!(!table.contains("a fragment"), "{table}");
    let table = server.explain("/page.php", &[]).unwrap();
    assert!(table.contains("60000 in 3") && table.contains("a fragment"), "{table}");
    assert_eq!(note("/plain.php"), None);
}

/// Makes a page of fragments of many sizes, some of which fail, and purges some. `plain` makes the
/// same page without fragments.
const MIXED: &str = "<?php
mt_srand((int) $_GET['seed']);
$plain = isset($_GET['plain']);
if (mt_rand(0, 1)) ob_start();
for ($i = mt_rand(1, 8); $i--;) {
    $n = mt_rand(0, 30); $fails = mt_rand(0, 9) == 0; $ttl = mt_rand(0, 2); $out = mt_rand(0, 1);
    $purged = mt_rand(0, 20) ? null : ['tag' . mt_rand(0, 4)];
    $text = fn() => str_repeat(\"$n,\", [10, 3000, 20000, 100000][$n % 4]);
    $make = function () use ($text, $fails) { echo 'head', $text(); if ($fails) throw new Exception('x'); };
    try {
        if ($plain && $out) $make();
        elseif ($plain) echo $text();
        elseif ($out) sendoff_fragment(\"out$n\" . ($fails ? 'f' : ''), $ttl, $make, ['tag' . $n % 5]);
        else echo sendoff_fragment_string(\"text$n\", $ttl, $text, ['tag' . $n % 5]);
    } catch (Exception $e) { echo 'caught'; }
    if ($purged && !$plain) sendoff_fragment_purge($purged);
    echo $i;
}
";

#[test]
fn a_thousand_mixed_pages_are_the_pages_without_fragments() {
    let site = Site::with("page.php", MIXED);
    let server = Server::start(site.root(), &["--workers", "3"]);
    let page = |client: &mut Client, seed: u32, more: &str| {
        client.ask(&Request::get(&format!("/page.php?seed={seed}{more}"))).body
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (server, page) = (&server, &page);
            scope.spawn(move || {
                let mut client = server.connect();
                for n in 0..250 {
                    // The threads share fragments, and run different pages.
                    let seed = (n * 7 + thread * 3) % 100;
                    let with = page(&mut client, seed, "");
                    assert!(with == page(&mut client, seed, "&plain"), "seed {seed}");
                }
            });
        }
    });
}

/// Workers that are killed at any moment, also while they hold the lock of the shared memory or make
/// a fragment, neither hold up others nor leave wrong bytes.
#[test]
fn killed_workers_leave_no_wrong_fragments() {
    let site = Site::with("page.php", MIXED);
    let server = Server::start(site.root(), &["--workers", "3"]);
    let page = |seed: u32, more: &str| {
        let request = Request::get(&format!("/page.php?seed={seed}{more}"));
        server.connect().try_ask(&request).ok().filter(|page| page.status() == 200)
    };
    let expected: Vec<_> = (0..40).map(|seed| page(seed, "&plain").unwrap().body).collect();
    let (page, expected) = (&page, &expected);
    let complete = std::thread::scope(|scope| {
        let clients = [0, 1, 2].map(|first| {
            scope.spawn(move || {
                let seeds = (0..200).map(|n| (n * 3 + first) % 40);
                let pages = seeds.filter_map(|seed| Some((seed, page(seed, "")?)));
                let is_right = |(seed, page): (u32, Response)| {
                    assert!(page.body == expected[seed as usize], "seed {seed}");
                };
                pages.map(is_right).count()
            })
        });
        for pid in (0..60).filter_map(|n| server.workers().get(n % 3).copied()) {
            processes::signal(pid, Signal::KILL);
            page(0, "");
        }
        clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
    });
    assert!(complete > 100, "only {complete} complete pages");
}
