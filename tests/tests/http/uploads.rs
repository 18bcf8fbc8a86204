//! Uploads: small ones, large ones, several, too large ones, and `php://input`.

use sendoff_tests::{Pair, Request, Server, Site, pattern};

const ENV: &str = include_str!("../../scripts/env.php");
const LIMITS: [&str; 2] = ["post_max_size=64M", "upload_max_filesize=64M"];

#[test]
fn small_and_20_mb_arrive_whole() {
    let site = Site::with("env.php", ENV);
    let pair = Pair::start(&site, &LIMITS);
    for size in [0, 1, 10_000, 300_000, 20 << 20] {
        let upload = Request::upload("/env.php", "file", "päper \"1\".bin", &pattern(7, size));
        let page = pair.same(&upload).text();
        assert!(page.contains(&format!("\"size\": {size}")), "{page}");
    }
}

#[test]
fn limits_of_php_hold() {
    let site = Site::with("env.php", ENV);
    let pair = Pair::start(&site, &["post_max_size=1M", "upload_max_filesize=100K"]);
    for size in [90_000, 200_000, 2_000_000] {
        pair.same(&Request::upload("/env.php", "file", "a.bin", &pattern(8, size)));
    }
}

#[test]
fn input_can_be_read_in_pieces_and_again() {
    let script = "<?php
        $in = fopen('php://input', 'rb');
        $first = fread($in, 100);
        fseek($in, -50, SEEK_END);
        echo sha1($first), ' ', sha1(stream_get_contents($in)), ' ';
        rewind($in);
        echo sha1(stream_get_contents($in)), ' ', sha1_file('php://input'), ' ', filesize(__FILE__);";
    let site = Site::with("in.php", script);
    let pair = Pair::start(&site, &LIMITS);
    for size in [150, 70_000, 5_000_000] {
        pair.same(&Request::post("/in.php", "application/octet-stream", pattern(9, size)));
    }
}

#[test]
fn a_script_that_never_reads_its_body_leaves_the_connection_in_order() {
    let site = Site::with("deaf.php", "<?php echo 'deaf';");
    site.write("a.txt", "static");
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    for size in [100, 200_000, 6_000_000] {
        let body = pattern(10, size);
        assert_eq!(
            client.ask(&Request::post("/deaf.php", "application/octet-stream", body)).text(),
            "deaf"
        );
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
    }
}

#[test]
fn uploads_can_be_moved() {
    let script = "<?php
        move_uploaded_file($_FILES['file']['tmp_name'], __DIR__ . '/moved.bin') or exit('no');
        echo sha1_file(__DIR__ . '/moved.bin');";
    let site = Site::with("move.php", script);
    let pair = Pair::start(&site, &LIMITS);
    let contents = pattern(11, 3_000_000);
    pair.same(&Request::upload("/move.php", "file", "a", &contents)).expect(200);
    assert_eq!(pair.ours.get("/moved.bin").expect(200), contents);
}
