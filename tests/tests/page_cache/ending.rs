//! Responses that end before they are complete, as a client may not notice: they are not kept.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use sendoff_tests::{Fpm, LIMIT, Request, Site, wait};

use crate::{CachingServer, is_hit, status};

/// A script that sends the head and a part of the page, and then ends as `end` says. The part is
/// longer than PHP's output buffer.
const ENDS: &str = "<?php
if (isset($_GET['charset'])) header('X-Accel-Charset: utf-8');
echo str_repeat('x', 70000);
flush();
switch ($_GET['end'] ?? '') {
    case 'fatal': does_not_exist();
    case 'exception': throw new Exception('late');
    case 'memory': ini_set('memory_limit', '8M'); str_repeat('y', 1 << 24);
    case 'exit': exit(3);
    case 'killed': posix_kill(getmypid(), 9);
    case 'finished': echo 'end'; function_exists('fastcgi_finish_request') && fastcgi_finish_request(); does_not_exist();
    default: echo 'end';
}";

/// Asks twice. Neither answer is kept.
fn is_not_kept(kept: &CachingServer, target: &str) {
    for _ in 0..2 {
        let mut client = kept.server.connect();
        // Whether the client notices depends on the protocol of the application.
        let answer = client.try_ask(&Request::get(target));
        if let Ok(answer) = answer {
            assert!(!is_hit(&answer), "{target}: {}", status(&answer));
        }
    }
    assert_eq!(kept.bodies().len(), 0, "{target}");
}

#[test]
fn a_script_that_fails_after_its_first_bytes_is_not_kept() {
    let kept = CachingServer::with(Site::with("ends.php", ENDS), "10m");
    for end in ["fatal", "exception", "memory", "exit", "killed"] {
        is_not_kept(&kept, &format!("/ends.php?end={end}"));
        is_not_kept(&kept, &format!("/ends.php?end={end}&charset"));
    }
    for target in ["/ends.php", "/ends.php?end=finished"] {
        kept.get(target);
        let page = kept.get_kept(target);
        assert!(page.text().ends_with("xend"), "{target}");
    }
}

/// php-fpm ends all responses with status 0, but it logs why a script has ended.
#[test]
fn a_script_of_php_fpm_that_fails_is_not_kept() {
    let site = Site::with("ends.php", ENDS);
    let fpm = Fpm::start_with(site.root(), "", &["log_errors=1", "error_log="]);
    let lines = format!("fastcgi = {{ '.php' = '{}' }}", fpm.address());
    let kept = CachingServer::with_lines(site, &lines, "10m");
    for end in ["fatal", "exception", "memory", "killed"] {
        is_not_kept(&kept, &format!("/ends.php?end={end}"));
    }
    kept.get("/ends.php");
    assert!(kept.get_kept("/ends.php").text().ends_with("xend"));
}

/// An application that answers each connection with these bytes and closes it. Counts its
/// connections.
fn application(answer: Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            counted.fetch_add(1, Ordering::SeqCst);
            // A request without a body is in the first packet.
            let _ = stream.read(&mut [0; 65536]);
            let _ = stream.write_all(&answer);
        }
    });
    (addr, count)
}

/// True if the second of two requests is answered from the cached response to the first.
fn keeps(scheme: &str, answer: &str) -> bool {
    let (addr, count) = application(answer.into());
    let lines = format!("[[site.route]]\nproxy = '{scheme}://{addr}'\n");
    let kept = CachingServer::with_route(Site::new(), "10m", &lines);
    let first = kept.get("/page");
    assert!(first.text().starts_with("whole"), "{scheme} {answer}");
    let second = wait::for_some("the second answer", || {
        Some(kept.get("/page")).filter(|page| is_hit(page) || count.load(Ordering::SeqCst) > 8)
    });
    is_hit(&second)
}

/// If a response ends with its connection, a dead application looks the same as a complete
/// response.
#[test]
fn a_response_without_an_end_of_its_own_is_not_kept() {
    for (scheme, answer, is_kept) in [
        ("http", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole", true),
        (
            "http",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n",
            true,
        ),
        ("http", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwhole", false),
        ("http", "HTTP/1.0 200 OK\r\n\r\nwhole", false),
        ("scgi", "Status: 200 OK\r\nContent-Length: 5\r\n\r\nwhole", true),
        ("scgi", "Status: 200 OK\r\n\r\nwhole", false),
    ] {
        assert_eq!(keeps(scheme, answer), is_kept, "{scheme} {answer:?}");
    }
}

/// Sends 7 MiB to each client, and the rest when the value is dropped.
fn slow_application() -> (SocketAddr, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (release, held) = mpsc::channel();
    let held = Arc::new(Mutex::new(held));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let held = Arc::clone(&held);
            thread::spawn(move || {
                let mut request = [0; 65536];
                let len = stream.read(&mut request).unwrap_or_default();
                let is_large = request[..len].starts_with(b"GET /large");
                let framing = if is_large {
                    format!("Content-Length: {}\r\n\r\n", BEGINNING + 2 * MIB)
                } else {
                    format!("Transfer-Encoding: chunked\r\n\r\n{BEGINNING:x}\r\n")
                };
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n{framing}");
                let _ = stream.write_all(&vec![b'x'; BEGINNING]);
                // It is an error as soon as the other end is gone.
                let _ = held.lock().unwrap().recv();
                let rest = if is_large { vec![b'x'; 2 * MIB] } else { b"\r\n0\r\n\r\n".to_vec() };
                let _ = stream.write_all(&rest);
            });
        }
    });
    (addr, release)
}

const MIB: usize = 1 << 20;
const BEGINNING: usize = 7 * MIB;

/// A page that is being made lies on disk; a page that is too large is not stored.
#[test]
fn pages_that_are_being_made_are_not_in_memory() {
    let (addr, release) = slow_application();
    let lines = format!("[[site.route]]\nproxy = 'http://{addr}'\n");
    let kept = CachingServer::with_route(Site::new(), "10m", &lines);
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", kept.server.front()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
    };
    let before = memory();
    let clients: Vec<_> = (0..16)
        .map(|number| {
            let mut client = kept.server.connect();
            let page = if number < 8 { "slow" } else { "large" };
            client.send(Request::get(&format!("/{page}/{number}")).bytes());
            let head = client.head().unwrap();
            let told =
                if number < 8 { "sendoff; fwd=uri-miss; ttl=600" } else { "sendoff; fwd=uri-miss" };
            assert_eq!(head.header("Cache-Status"), Some(told));
            client.read(BEGINNING - MIB);
            client
        })
        .collect();
    let is_small = || memory() < before + 32;
    assert!(wait::until(LIMIT, is_small), "{before} MiB became {} MiB", memory());
    drop(release);
    drop(clients);
    let slow = kept.get_kept("/slow/x");
    assert!(slow.body == vec![b'x'; BEGINNING]);
}

/// When the head leaves, the page may still turn out to be too large, or the disk to be full.
#[test]
fn what_is_not_known_yet_is_not_said() {
    let page = "<?php header('Cache-Control: max-age=600'); for ($n = 0; $n < $_GET['mib']; $n++) { echo str_repeat('x', 1 << 20); flush(); }";
    let kept = CachingServer::with(Site::with("large.php", page), "http");
    // The larger one has no length, and is larger than a page may be.
    for mib in [1, 9] {
        let answer = kept.get(&format!("/large.php?mib={mib}"));
        assert_eq!(status(&answer), "sendoff; fwd=uri-miss; ttl=600", "{mib}");
    }
    kept.get_kept("/large.php?mib=1");
    assert_eq!(kept.bodies().len(), 1);
    // As if the disk were full.
    std::fs::remove_dir_all(kept.site.outside("pages")).unwrap();
    let answer = kept.get("/large.php?mib=1&other");
    assert_eq!(status(&answer), "sendoff; fwd=uri-miss; ttl=600");
    kept.server.await_log("a page could not be kept");
}

/// An application that answers its first connection with these fields and a page, and closes all
/// others.
fn dying_application(fields: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{fields}\r\n\r\nwhole");
    thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        let _ = first.read(&mut [0; 65536]);
        let _ = first.write_all(answer.as_bytes());
        drop(first);
        listener.incoming().for_each(drop);
    });
    addr
}

/// A page that has just become stale is sent if no answer comes (RFC 9111 §4.2.4), unless the
/// application or the operator forbids it.
#[test]
fn a_page_that_has_just_become_old_stands_in_for_no_answer() {
    for (fields, rule, stands_in) in [
        ("Cache-Control: max-age=1", "http", true),
        ("X-Accel-Expires: 1", "10m", true),
        ("Cache-Control: max-age=1, must-revalidate", "http", false),
        ("Cache-Control: max-age=1, proxy-revalidate", "http", false),
        ("Cache-Control: s-maxage=1", "http", false),
        ("Cache-Control: max-age=1, stale-if-error=0", "http", false),
        ("Cache-Control: max-age=1", "http, stale 0", false),
    ] {
        let addr = dying_application(fields);
        let lines = format!("[[site.route]]\nproxy = 'http://{addr}'\n");
        let kept = CachingServer::with_route(Site::new(), rule, &lines);
        assert_eq!(kept.get("/page").text(), "whole", "{fields}");
        let answer = wait::for_some("an answer to an old page", || {
            Some(kept.get("/page")).filter(|page| !status(page).starts_with("sendoff; hit; ttl="))
        });
        let expected =
            if stands_in { (200, "sendoff; hit; detail=stale-if-error; ttl=0") } else { (502, "") };
        assert_eq!((answer.status(), status(&answer)), expected, "{fields} {rule}");
        let head = kept.server.ask(&Request::new("HEAD", "/page"));
        assert_eq!((head.status(), status(&head)), expected, "HEAD {fields} {rule}");
    }
}

/// A failure that the application itself reports is its answer.
#[test]
fn nothing_stands_in_unasked_for_what_an_application_says() {
    let kept = CachingServer::start("http");
    let target = "/page.php?head[]=Cache-Control:+max-age=1";
    kept.get(target);
    kept.site.write_at(kept.site.outside("broken"), "");
    let answer = wait::for_some("an answer to an old page", || {
        Some(kept.get(target)).filter(|page| !is_hit(page))
    });
    assert_eq!((answer.status(), &*answer.text()), (500, "broken"));
}

/// The client has what was announced, and need not wait for work that follows; nor need the cache.
#[test]
fn a_body_of_the_announced_length_is_complete_before_its_script_ends() {
    let script = "<?php while (ob_get_level()) ob_end_flush(); header('Content-Length: 4'); echo 'page'; flush();
                  file_get_contents('pipe'); echo 'more'; file_put_contents('done', '.');";
    for is_fpm in [false, true] {
        let site = Site::with("works.php", script);
        let pipe = site.fifo("pipe");
        let fpm = is_fpm.then(|| Fpm::start(site.root(), ""));
        let attached = |fpm: &Fpm| format!("fastcgi = {{ '.php' = '{}' }}", fpm.address());
        let lines = fpm.as_ref().map(attached).unwrap_or_default();
        let kept = CachingServer::with_lines(site, &lines, "10m");
        let mut client = kept.server.connect();
        let mut ask = || client.ask(&Request::get("/works.php"));
        assert_eq!(ask().text(), "page");
        // The connection is free for the next request, and the page is kept.
        wait::for_some("a kept page", || Some(ask()).filter(is_hit));
        // A response to HEAD has no body to wait for.
        assert_eq!(client.ask(&Request::new("HEAD", "/works.php?head")).status(), 200);
        assert!(is_hit(&client.ask(&Request::get("/works.php"))));
        pipe.release();
        assert!(wait::until(LIMIT, || kept.site.path("done").exists()), "{}", kept.server.log());
    }
}

/// The page is made to its end for others, as by nginx: impatient clients do not keep a slow page
/// out of the cache.
#[test]
fn a_page_whose_client_leaves_is_kept() {
    let script = "<?php file_put_contents(__DIR__ . '/../runs', '.', FILE_APPEND);
                  while (ob_get_level()) ob_end_flush(); echo 'begin '; flush(); file_get_contents('pipe'); echo 'end';";
    let site = Site::with("slow.php", script);
    let pipe = site.fifo("pipe");
    let kept = CachingServer::with(site, "10m");
    let mut client = kept.server.connect();
    client.send(Request::get("/slow.php").bytes());
    assert_eq!(client.head().unwrap().status, 200);
    drop(client);
    // The event loop, which is the only one, learns of it before it answers this request.
    assert_eq!(kept.get("/missing").status(), 404);
    pipe.release();
    assert_eq!(kept.get_kept("/slow.php").text(), "begin end");
    assert_eq!(kept.runs(), 1);
}
