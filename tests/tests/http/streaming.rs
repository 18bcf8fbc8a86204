//! Times at which output arrives: flushed output, scripts that continue after their response,
//! clients that leave. Scripts wait at named pipes for the scenario, so the order of events is
//! certain.

use sendoff_tests::{Broken, LIMIT, Request, Server, Site, wait};

#[test]
fn flushed_output_arrives_before_the_script_goes_on() {
    let script = "<?php
        echo 'one'; if (ob_get_level()) ob_flush(); flush();
        file_get_contents('pipe');
        echo 'two'; if (ob_get_level()) ob_flush(); flush();
        file_get_contents('pipe');
        echo 'three';";
    for buffering in ["0", "4096"] {
        let site = Site::with("stream.php", script);
        let pipe = site.fifo("pipe");
        let setting = format!("output_buffering={buffering}");
        let server = Server::start(site.root(), &["--php-ini", &setting]);
        let mut client = server.connect();
        client.send(Request::get("/stream.php").bytes());
        let head = client.head().unwrap();
        assert_eq!(head.header("transfer-encoding"), Some("chunked"), "{head:?}");
        assert_eq!(client.chunk(), b"one");
        assert!(client.is_silent());
        pipe.release();
        assert_eq!(client.chunk(), b"two");
        pipe.release();
        assert_eq!(client.chunk(), b"three");
        assert_eq!(client.read(5), b"0\r\n\r\n");
        assert!(
            client.ask(&Request::new("OPTIONS", "/nothing")).status() >= 200,
            "the connection is kept"
        );
    }
}

#[test]
fn http_1_0_clients_get_streams_that_end_with_the_connection() {
    let site = Site::with(
        "s.php",
        "<?php echo 'one'; ob_flush(); flush(); file_get_contents('pipe'); echo 'two';",
    );
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/s.php").http10().bytes());
    let head = client.head().unwrap();
    assert_eq!(head.header("transfer-encoding"), None);
    assert_eq!(client.read(3), b"one");
    pipe.release();
    assert_eq!(client.read(3), b"two");
    assert!(client.is_closed());
}

#[test]
fn a_flushed_file_arrives_before_the_script_goes_on() {
    let site = Site::with(
        "s.php",
        "<?php echo file_get_contents('big'); flush(); file_get_contents('pipe'); echo 'end';",
    );
    let contents = sendoff_tests::pattern(20, 200_000);
    site.write("big", &contents);
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/s.php").http10().bytes());
    client.head().unwrap();
    assert!(client.read(contents.len()) == contents);
    pipe.release();
    assert_eq!(client.read(3), b"end");
    assert!(client.is_closed());
}

#[test]
fn a_response_can_end_before_its_script() {
    let script = "<?php
        header('X-Early: 1');
        echo 'response';
        var_export(fastcgi_finish_request());
        echo 'nobody sees this';
        file_get_contents('pipe');
        file_put_contents('after', 'written after the response');";
    let site = Site::with("finish.php", script);
    site.write("look.php", "<?php echo @file_get_contents('after');");
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "1"]);
    let mut client = server.connect();
    let response = client.ask(&Request::get("/finish.php"));
    assert_eq!(response.text(), "response");
    assert_eq!(response.header("x-early"), Some("1"));
    // The only worker is busy still: the next request waits until the script has ended.
    client.send(Request::get("/look.php").bytes());
    pipe.release();
    assert_eq!(client.response("GET").text(), "written after the response");
}

#[test]
fn a_script_learns_that_its_client_has_gone() {
    let script = "<?php
        ignore_user_abort(true);
        echo 'start'; ob_flush(); flush();
        file_get_contents('pipe');
        for ($i = 0; $i < 10000 && !connection_aborted(); $i++) {
            echo str_repeat('x', 1000); ob_flush(); flush();
            usleep(1000);
        }
        file_put_contents('result', connection_aborted() . ' ' . connection_status());";
    let site = Site::with("abort.php", script);
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/abort.php").bytes());
    client.head().unwrap();
    assert_eq!(client.chunk(), b"start");
    drop(client);
    pipe.release();
    let result = wait::for_some("the script's result", || {
        std::fs::read_to_string(site.path("result")).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(result, "1 1");
}

#[test]
fn a_script_whose_client_has_gone_is_stopped() {
    let script = "<?php
        register_shutdown_function(function () { file_put_contents(__DIR__ . '/result', connection_status()); });
        echo 'start'; ob_flush(); flush();
        file_get_contents('pipe');
        while (true) { echo str_repeat('x', 1000); ob_flush(); flush(); usleep(1000); }";
    let site = Site::with("abort.php", script);
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "1"]);
    let mut client = server.connect();
    client.send(Request::get("/abort.php").bytes());
    client.head().unwrap();
    drop(client);
    pipe.release();
    assert!(wait::until(LIMIT, || site.path("result").exists()));
    site.write("next.php", "<?php echo 'next';");
    assert_eq!(server.page("/next.php"), "next");
}

#[test]
fn clients_that_leave_early_cost_no_worker() {
    let site = Site::with("slow.php", "<?php file_get_contents($_GET['pipe']); echo 'done';");
    site.write("quick.php", "<?php echo 'quick';");
    let server = Server::start(site.root(), &["--workers", "2"]);
    for round in 0..3 {
        let [stays, leaves] = [format!("stays{round}"), format!("leaves{round}")];
        let request = |pipe| Request::get(&format!("/slow.php?pipe={pipe}")).bytes();
        let (pipe, other_pipe) = (site.fifo(&stays), site.fifo(&leaves));
        let mut client = server.connect();
        client.send(request(&stays));
        let mut other = server.connect();
        other.send(request(&leaves));
        // Both workers are taken once both scripts have come to their pipes.
        other_pipe.release();
        drop(other);
        pipe.release();
        assert_eq!(client.response("GET").text(), "done");
        assert_eq!(server.page("/quick.php"), "quick");
    }
}

#[test]
fn a_response_cut_by_its_script_is_cut_for_the_client() {
    let script = "<?php header('Content-Length: 100'); echo 'short'; ob_flush(); flush();";
    let site = Site::with("short.php", script);
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/short.php").bytes());
    match client.try_response("GET") {
        // Fewer bytes than promised: only a closed connection tells the client so.
        Err(Broken::Cut(part)) => assert_eq!(part.body, b"short"),
        other => panic!("{other:?}"),
    }
}
