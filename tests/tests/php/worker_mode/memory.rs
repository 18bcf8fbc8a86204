//! Memory of a long-running worker: an application with Symfony's micro kernel, from Debian's
//! packages.

use sendoff_tests::{Progress, Request, Server, Site, processes};

/// The program of the applications' tests, which answers one request.
const PROGRAM: &str = include_str!("../../apps/programs/symfony.php");

/// The loop that replaces the program's last lines.
const LOOP: &str = "$kernel = new Kernel('prod', false);
$kernel->boot();
$last = [];
$handle = static function () use ($kernel, &$last): void {
    $request = Request::createFromGlobals();
    $last = [$request, $kernel->handle($request)];
    $last[1]->send();
};
while (sendoff_handle_request($handle)) {
    $kernel->terminate(...$last);
    $last = [];
    gc_collect_cycles();
}
";

fn site() -> Site {
    let (program, _) = PROGRAM.split_once("$kernel = new Kernel").expect("its last lines");
    let site = Site::new();
    site.write("public/index.php", format!("{program}{LOOP}"));
    site.write("report.txt", "the report");
    site.folder("var");
    site.folder("sessions");
    site
}

/// Requests, each with a text of its answer.
const PAGES: [(&str, &str); 5] = [
    ("/", "<title>home</title>"),
    ("/blog/7", "<title>post 7</title>"),
    ("/any/a/b?c=d", "\"c\":\"d\""),
    ("/visits", "visit "),
    ("/stream", "line 99\n"),
];

fn ask(server: &Server, requests: u64, progress: &Progress) {
    let mut client = server.connect();
    for (page, expected) in PAGES.iter().cycle().take(usize::try_from(requests).expect("few")) {
        let request = Request::get(page).header("Cookie", "PHPSESSID=visitor");
        let response = client.ask(&request);
        assert!(response.text().contains(expected), "{page}: {}", response.text());
        if response.head.closes() {
            client = server.connect();
        }
        progress.advance();
    }
}

/// Memory after the first requests, and after all.
fn after(first: u64, all: u64) -> (u64, u64) {
    let site = site();
    let script = site.path("public/index.php").display().to_string();
    let sessions = format!("session.save_path={}", site.path("sessions").display());
    let options = ["--workers", "1", "--php-worker", &script, "--php-ini", &sessions];
    let server = Server::start(&site.path("public"), &options);
    let progress = Progress::new(all, "requests of a Symfony application");
    let worker = server.workers();
    ask(&server, first, &progress);
    let before = processes::private_memory(worker[0]);
    ask(&server, all - first, &progress);
    let after = processes::private_memory(worker[0]);
    assert_eq!(server.workers(), worker, "the same process has answered all");
    println!("{before} bytes after {first} requests, {after} after {all}");
    (before, after)
}

#[test]
#[cfg_attr(not(bookworm), ignore = "Debian 13's Symfony refuses its own autoloader")]
fn a_worker_does_not_grow_from_request_to_request() {
    let (before, after) = after(500, 1_500);
    assert!(after <= before + before / 20, "{before} bytes became {after}");
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn a_worker_does_not_grow_in_a_hundred_thousand_requests() {
    let (before, after) = after(1_000, 100_000);
    assert!(after <= before + before / 20, "{before} bytes became {after}");
}
