//! Clients that try to get at other users' pages through the cache of LSCache's plugins, and clients
//! that leave before a purge.

use std::fs;

use sendoff_tests::{Fifo, Fpm, LIMIT, Request, Response, Server, Site, wait};

use crate::lscache::{LsCache, PAGE};
use crate::{CachingServer, is_hit, status};

/// More cookies or parameters than PHP reads (`max_input_vars`).
const TOO_MANY: usize = 1001;

/// Sessions whose names begin like cookies of statistics.
#[test]
fn a_session_named_like_statistics_tells_users_apart() {
    let kept = LsCache::start();
    let target = "/page.php?c=private,max-age=600";
    for name in ["_gallery_session", "_gate", "_pk_session", "_ga_session", "_hjs", "__utmsession"]
    {
        let alice = kept.keep(target, &format!("theme=dark; {name}=alice"));
        let bob = kept.get(target, &format!("theme=dark; {name}=bob"));
        assert!(!is_hit(&bob) && bob.text() != alice, "{name}: {}", bob.text());
    }
}

/// `max-age` of an `.htaccess` file is for responses that say nothing themselves.
#[test]
fn lines_of_htaccess_keep_no_session_and_no_error() {
    let page = r"<?php
        if (isset($_GET['session'])) session_start();
        if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
        foreach ((array) ($_GET['h'] ?? []) as $field) header($field, false);
        echo uniqid();";
    let site = Site::with("page.php", page);
    let lines = "<IfModule LiteSpeed>\nRewriteEngine on\n\
                 RewriteRule .* - [E=Cache-Control:max-age=120]\n</IfModule>\n";
    site.write(".htaccess", lines);
    let kept = LsCache::with(site, "htaccess = true");
    kept.keep("/page.php", "");
    kept.keep("/page.php?h[]=X-LiteSpeed-Cache-Control:+public,max-age=60", "");
    // The session exists, so that PHP sets no cookie.
    let session = "PHPSESSID=aaaaaaaaaaaaaaaaaaaaaaaa01";
    for target in [
        "/page.php?session",
        "/page.php?status=500",
        "/page.php?status=503",
        "/page.php?status=404",
        "/page.php?status=301",
        "/page.php?h[]=Cache-Control:+private",
        "/page.php?h[]=Cache-Control:+max-age=0",
        "/page.php?h[]=CDN-Cache-Control:+no-store",
        "/page.php?h[]=Pragma:+no-cache",
        "/page.php?h[]=Expires:+0",
        "/page.php?h[]=X-LiteSpeed-Cache-Control:",
    ] {
        let answers = [(); 3].map(|()| kept.get(target, session));
        for answer in &answers {
            assert_eq!(status(answer), "sendoff; fwd=uri-miss", "{target}");
        }
    }
}

/// PHP stops reading cookies before the one by which pages differ.
#[test]
fn many_cookies_make_no_page_of_others() {
    let kept = LsCache::start();
    let many = "a=;".repeat(TOO_MANY);
    let long = format!("a={};", "x".repeat(9000));
    let site = Site::with("page.php", PAGE);
    site.write(
        ".htaccess",
        "<IfModule LiteSpeed>\nRewriteEngine on\nRewriteRule .? - [E=\"Cache-Vary:currency\"]\n</IfModule>\n",
    );
    let by_line = LsCache::with(site, "htaccess = true");
    for (kept, target, cookie) in [
        (&kept, "/page.php?c=public,max-age=600", "_lscache_vary=member"),
        (&kept, "/page.php?c=public,max-age=600&v=cookie=currency", "currency=EUR"),
        (&by_line, "/page.php?c=public,max-age=600", "currency=EUR"),
    ] {
        for junk in [&many, &long] {
            let poison = kept.get(target, &format!("{junk}{cookie}"));
            assert_eq!(poison.header("Cache-Status"), None, "{target}");
        }
        let text = kept.keep(target, cookie);
        assert!(text.contains("member") || text.contains("EUR"), "{target}: {text}");
        assert_eq!(kept.get(target, &format!("{many}{cookie}")).header("Cache-Status"), None);
    }
}

/// Ignored parameters count when PHP stops reading.
#[test]
fn many_ignored_parameters_make_no_page_of_others() {
    let site = Site::with(
        "page.php",
        "<?php header('X-LiteSpeed-Cache-Control: public,max-age=600'); echo uniqid(), ' page ', $_GET['page'] ?? 1;",
    );
    site.write(".htaccess", "<IfModule LiteSpeed>\nCacheKeyModify -qs:utm*\n</IfModule>\n");
    let kept = LsCache::with(site, "htaccess = true");
    let poison = kept.keep(&format!("/page.php?{}page=2", "utm_x=1&".repeat(TOO_MANY)), "");
    assert!(poison.ends_with("page 1"), "{poison}");
    assert!(kept.keep("/page.php?page=2", "").ends_with("page 2"));
    let few = kept.get("/page.php?utm_x=1&page=2", "");
    assert!(is_hit(&few) && few.text().ends_with("page 2"));
}

/// The same hole without plugins: a variable is made of a cookie that PHP does not read.
#[test]
fn many_cookies_bypass_every_cache() {
    let page = "<?php echo $_SERVER['ROLE'] ?? '-', ' ', $_COOKIE['role'] ?? '-';";
    let site = Site::with("page.php", page);
    site.write(".htaccess", "SetEnvIf Cookie role=(\\w+) ROLE=$1\n");
    let kept = CachingServer::with_lines(site, "htaccess = true", "10m, cookies");
    let ask = |cookie: &str| kept.server.ask(&Request::get("/page.php").header("Cookie", cookie));
    let many = "a=;".repeat(TOO_MANY);
    for _ in 0..3 {
        let poison = ask(&format!("{many}role=admin"));
        assert_eq!((&*poison.text(), poison.header("Cache-Status")), ("admin -", None));
    }
    let admin = wait::for_some("a kept page", || Some(ask("role=admin")).filter(is_hit));
    assert_eq!(admin.text(), "admin admin");
}

/// Waits for the pipe, whether its client is there or not.
const SLOW: &str = r"<?php
touch(__DIR__ . '/../begun');
file_get_contents(__DIR__ . '/pipe');
foreach ((array) ($_GET['h'] ?? []) as $field) header($field, false);
echo 'saved';
";

/// Sends a request for the slow script, leaves before its response, and lets the script end.
fn leave(site: &Site, server: &Server, pipe: &Fifo, request: &Request) {
    let begun = site.outside("begun");
    let _ = fs::remove_file(&begun);
    let mut client = server.connect();
    client.send(request.bytes());
    assert!(wait::until(LIMIT, || begun.exists()), "the script has begun");
    drop(client);
    // The server answers others after it has seen the end of the connection.
    let next = server.get("/none");
    assert_eq!(next.status(), 404);
    pipe.release();
}

/// A client that leaves before its change is made does not keep the old page alive.
#[test]
fn a_purge_is_obeyed_after_its_client_has_left() {
    let site = Site::with("page.php", PAGE);
    site.write("slow.php", SLOW);
    let pipe = site.fifo("pipe");
    let kept = LsCache::with(site, "");
    is_obeyed(&kept, &pipe);
}

/// php-fpm ends a script at its next output once the server has closed the connection.
#[test]
fn a_purge_of_php_fpm_is_obeyed_after_its_client_has_left() {
    let site = Site::with("page.php", PAGE);
    site.write("slow.php", SLOW);
    let pipe = site.fifo("pipe");
    let fpm = Fpm::start(site.root(), "");
    let kept = LsCache::with(site, &format!("fastcgi = {{ '.php' = '{}' }}", fpm.address()));
    is_obeyed(&kept, &pipe);
}

fn is_obeyed(kept: &LsCache, pipe: &Fifo) {
    let target = "/page.php?c=public,max-age=600&t=P_1";
    let orders = "/slow.php?h[]=X-LiteSpeed-Purge:+tag=P_1";
    for request in [Request::post(orders, "text/plain", "x"), Request::get(orders)] {
        let old = kept.keep(target, "");
        leave(&kept.site, &kept.server, pipe, &request);
        let is_new = |page: &Response| page.text() != old;
        wait::for_some("a new page", || Some(kept.get(target, "")).filter(is_new));
    }
}

/// The same for the pages that an unsafe request may have changed (RFC 9111 §4.4).
#[test]
fn a_change_is_noted_after_its_client_has_left() {
    let site = Site::with("page.php", crate::PAGE);
    site.write("slow.php", SLOW);
    let pipe = site.fifo("pipe");
    let kept = CachingServer::with(site, "10m");
    kept.get("/page.php");
    let old = kept.get_kept("/page.php").text();
    let request = Request::post("/slow.php?h[]=Location:+/page.php", "text/plain", "x");
    leave(&kept.site, &kept.server, &pipe, &request);
    let is_new = |page: &Response| page.text() != old;
    wait::for_some("a new page", || Some(kept.get("/page.php")).filter(is_new));
}

/// A script that dies may have made its change.
#[test]
fn a_change_of_a_script_that_dies_is_noted() {
    let page = r"<?php
        if ($_SERVER['REQUEST_METHOD'] === 'POST') posix_kill(getmypid(), 9);
        echo uniqid();";
    let kept = CachingServer::with(Site::with("page.php", page), "10m, stale 1h");
    kept.get("/page.php");
    let old = kept.get_kept("/page.php").text();
    let died = kept.server.ask(&Request::post("/page.php", "text/plain", "x"));
    assert_eq!(died.status(), 502);
    assert_ne!(kept.get("/page.php").text(), old);
}

/// A confirmation (304) with other tags.
#[test]
fn a_confirmed_page_has_the_tags_of_its_confirmation() {
    let page = r#"<?php
        $again = ($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '"a"';
        header('X-LiteSpeed-Cache-Control: public,max-age=' . ($again ? 600 : 1));
        header('X-LiteSpeed-Tag: tag= ' . ($again ? 'T_new' : 'T_old'));
        if (isset($_GET['purge'])) { header('X-LiteSpeed-Purge: tag=' . $_GET['purge']); exit; }
        header('ETag: "a"');
        if ($again && !is_file(__DIR__ . '/../changed')) { http_response_code(304); exit; }
        echo uniqid();"#;
    let kept = LsCache::with(Site::with("page.php", page), "");
    let old = kept.keep("/page.php", "");
    // A page of one second that is still there for a hundred was confirmed.
    let is_confirmed = |page: &Response| {
        let ttl = status(page).strip_prefix("sendoff; hit; ttl=").and_then(|ttl| ttl.parse().ok());
        ttl.is_some_and(|ttl: u64| ttl > 100)
    };
    let page =
        wait::for_some("a confirmed page", || Some(kept.get("/page.php", "")).filter(is_confirmed));
    assert_eq!(page.text(), old);
    kept.get("/page.php?purge=T_old", "");
    assert_eq!(kept.get("/page.php", "").text(), old);
    kept.get("/page.php?purge=T_new", "");
    assert_ne!(kept.get("/page.php", "").text(), old);
}

/// Words as LiteSpeed reads them: by their beginnings, and with blanks behind `tag=`.
#[test]
fn words_are_read_as_litespeed_reads_them() {
    let kept = LsCache::start();
    for control in ["no-cache;+public,+max-age=60", "public;+no-store,+max-age=60"] {
        let target = format!("/page.php?c={}", control.replace(';', "%3B"));
        let answers = [(); 3].map(|()| kept.get(&target, ""));
        assert!(answers.iter().all(|answer| !is_hit(answer)), "{control}");
    }
    let target = "/page.php?c=public,max-age=600&t=tag=+W_1,public:+W_2";
    for tag in ["W_1", "tag=+W_2"] {
        let old = kept.keep(target, "");
        kept.get(&format!("/page.php?c=no-cache&p={tag}"), "");
        assert_ne!(kept.get(target, "").text(), old, "{tag}");
    }
}
