//! `make demo`: both servers run, readers come and go as the page says, and nothing is left behind.

use rustix::process::Signal;
use sendoff_tests::{Client, Request, Site, binary, built, dies_with_us, processes, wait};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

fn counters(addr: SocketAddr) -> Option<Value> {
    let answer = Client::connect(addr).try_ask(&Request::get("/live.json")).ok()?;
    // The first counters have yet to be written.
    (answer.status() == 200).then(|| serde_json::from_slice(&answer.body).unwrap())
}

#[test]
fn the_demonstration_counts_both_servers_and_ends_without_a_trace() {
    let site = Site::new();
    let temporary = site.outside("temporary");
    fs::create_dir_all(&temporary).unwrap();
    let mut demo = dies_with_us(&built().with_file_name("sendoff-bench"), "TERM");
    demo.args(["demo", "--listen", "127.0.0.1:0", "--sendoff"]).arg(binary());
    demo.env("TMPDIR", &temporary).stdout(Stdio::piped());
    let mut demo = demo.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let addr = line.trim_end().trim_end_matches('/').rsplit_once("http://").unwrap().1;
    let addr: SocketAddr = addr.parse().unwrap();

    let page = Client::connect(addr).ask(&Request::get("/"));
    assert!(page.text().contains("<h1>Slow readers</h1>"), "{}", page.text());
    let form = |count: &str| {
        let body = format!("count={count}");
        let post = Request::post("/readers.php", "application/x-www-form-urlencoded", body);
        Client::connect(addr).ask(&post).status()
    };
    assert_eq!((form("401"), form("many"), form("3")), (400, 400, 303));
    let live = wait::for_some("three readers", || {
        counters(addr).filter(|live| {
            // nginx writes the download of each reader to disk.
            live["readers"] == 3 && live["servers"][0]["disk_mb"].as_f64() > Some(3.0)
        })
    });
    for (at, name) in ["nginx+fpm-debian", "sendoff"].iter().enumerate() {
        let server = &live["servers"][at];
        assert_eq!(server["name"], *name);
        assert!(server["memory_mb"].as_f64() > Some(1.0), "{live}");
        assert!(server["page_ms"].as_f64() > Some(0.0), "{live}");
        assert!(server["failure"].is_null(), "{live}");
    }
    assert_eq!(live["servers"][1]["disk_mb"], 0.0, "{live}");

    processes::signal(demo.id(), Signal::INT);
    assert!(demo.wait().unwrap().success());
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
