//! Lines of the access log in every format, and the ids of requests.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sendoff_tests::{LIMIT, Request, Server, Site, Stock, pattern, wait};

/// The lines of a log, when there are `count`.
#[track_caller]
fn lines(log: &Path, count: usize) -> Vec<String> {
    wait::for_some("the lines of the access log", || {
        let text = fs::read_to_string(log).unwrap();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        (lines.len() == count).then_some(lines)
    })
}

/// A server with a log in this format. The site has a generated page, a page that hands a file
/// over, and a file.
fn start(site: &Site, format: &str, options: &[&str]) -> (Server, std::path::PathBuf) {
    site.write("made.php", "<?php echo 'made', $_SERVER['REQUEST_ID'] ?? '';");
    site.write("big.php", "<?php echo 'head', file_get_contents('big');");
    site.write("fails.php", "<?php error_log('it fails'); posix_kill(getmypid(), 9);");
    site.write("big", pattern(1, 100_000));
    let log = site.write_at(site.outside("access.log"), "");
    let mut all = vec!["--access-log", log.to_str().unwrap(), "--access-log-format", format];
    all.extend(options);
    (Server::start(site.root(), &all), log)
}

/// nginx writes the same text for the same variables.
#[test]
fn lines_of_an_own_format_are_those_of_nginx() {
    let format = r#"$remote_addr|$remote_user|$request|$request_method|$request_uri|$scheme|$server_protocol|$status|$body_bytes_sent|$host|$http_referer|$http_x_odd|$http_none|$query_string|$uri"#;
    let site = Site::new();
    let (server, ours) = start(&site, format, &[]);
    let theirs = site.write_at(site.outside("nginx.log"), "");
    fs::set_permissions(&theirs, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let http = format!("log_format own '{format}';");
    let log = format!("access_log {} own;", theirs.display());
    let nginx = Stock::nginx(site.root(), &http, &log);
    let odd = "\"quoted\" \\ \u{e4}\t{}";
    let requests = [
        Request::get("/big").header("Referer", "http://a.example/?\"x\""),
        Request::get("/big?a=%20b&c").header("X-Odd", odd).header("Host", "Shop.Example:80"),
        Request::get("/no%20such%C3%A4?x"),
        Request::new("HEAD", "/big"),
    ];
    for request in &requests {
        server.ask(request);
        nginx.ask(request);
    }
    let ours = lines(&ours, requests.len());
    let text = fs::read_to_string(&theirs).unwrap();
    let theirs: Vec<_> = text.lines().filter(|line| !line.contains("/-/whose")).collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // The pages of errors differ.
        let without_length = |line: &str| {
            let mut values: Vec<_> = line.split('|').map(str::to_owned).collect();
            if values[7] == "404" {
                values[8].clear();
            }
            values
        };
        assert_eq!(without_length(ours), without_length(theirs));
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn lines_tell_what_became_of_a_request() {
    let format = "$uri $site $worker $bytes_handed_over $bytes_copied $body_bytes_sent $queue_time $request_time";
    let site = Site::new();
    let (server, log) = start(&site, format, &["--workers", "1"]);
    let worker = server.workers()[0].to_string();
    server.get("/big.php").expect(200);
    server.get("/made.php").expect(200);
    server.get("/big").expect(200);
    let lines = lines(&log, 3);
    let values: Vec<Vec<_>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    assert_eq!(values[0][..6], ["/big.php", "default", &worker, "100000", "4", "100004"]);
    assert_eq!(values[1][..6], ["/made.php", "default", &worker, "0", "4", "4"]);
    assert_eq!(values[2][..6], ["/big", "default", "-", "100000", "0", "100000"]);
    for line in &values[..2] {
        let [queued, took] = [line[6], line[7]].map(|time| time.parse::<f64>().unwrap());
        assert!(queued <= took && took < LIMIT.as_secs_f64(), "{line:?}");
    }
    assert_eq!(values[2][6], "-");
}

#[test]
fn json_lines_are_objects_whatever_clients_send() {
    let site = Site::new();
    let (server, log) = start(&site, "json", &[]);
    let odd = "\"},{\"status\":1 \\ \u{e4}\tx";
    server.ask(&Request::get("/made.php?\u{e4}\"").header("User-Agent", odd));
    let mut client = server.connect();
    client.send(b"\x01\xff\"nonsense\r\n\r\n");
    assert_eq!(client.response("GET").status(), 400);
    let lines = lines(&log, 2);
    let expected_agent = r#""user_agent":"\"},{\"status\":1 \\ "#;
    assert!(lines[0].contains(expected_agent) && lines[0].contains("\\u0009"), "{}", lines[0]);
    assert!(lines[0].contains(r#""status":200,"body_bytes_sent":4,"bytes_handed_over":0"#));
    assert!(lines[0].contains(r#""request_id":null"#), "{}", lines[0]);
    assert!(lines[1].contains(r#""method":null"#) && lines[1].contains(r#""status":400"#));
    let check = std::process::Command::new("php")
        .args([
            "-r",
            "foreach (file($argv[1]) as $line) json_decode($line, flags: JSON_THROW_ON_ERROR);",
        ])
        .arg(&log)
        .output()
        .expect("php");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}

#[test]
fn requests_have_ids_where_they_are_asked_for() {
    let site = Site::new();
    let (server, log) = start(&site, "$request_id $uri", &["--trust-proxy", "127.0.0.1"]);
    let given = Request::get("/made.php").header("X-Request-Id", "edge-42:a");
    assert_eq!(server.ask(&given).text(), "madeedge-42:a");
    let made = server.page("/made.php");
    let made = made.strip_prefix("made").unwrap();
    assert!(made.len() == 32 && made.bytes().all(|b| b.is_ascii_hexdigit()), "{made}");
    let forged = Request::get("/made.php").header("X-Request-Id", "a b\"");
    let forged = server.ask(&forged).text();
    assert_eq!(forged.len(), 36, "{forged}");
    let failing = Request::get("/fails.php").header("X-Request-Id", "edge-43");
    assert_eq!(server.ask(&failing).status(), 502);
    server.await_log("GET /fails.php [edge-43]");
    let lines = lines(&log, 4);
    assert_eq!(lines[0], "edge-42:a /made.php");
    assert_eq!(lines[1], format!("{made} /made.php"));
    assert_eq!(lines[3], "edge-43 /fails.php");
}

/// The id connects a line of the error log with the line of the access log.
#[test]
fn lines_of_the_error_log_name_the_ids_of_their_requests() {
    let site = Site::new();
    site.write("odd.php", "<?php header('X Odd: a'); echo 'odd';");
    site.write("says.php", "<?php error_log('said');");
    let options = ["--trust-proxy", "127.0.0.1", "--max-body", "1000"];
    let (server, log) = start(&site, "$request_id $status", &options);
    let large = Request::post("/made.php", "text/plain", vec![b'x'; 1001]);
    let cases = [
        (Request::get("/says.php"), 200, "said"),
        (Request::get("/odd.php"), 502, "it sent an invalid header field"),
        (large, 413, "request refused"),
        (Request::get("/fails.php"), 502, "answered with 502"),
    ];
    for (number, (request, status, what)) in cases.into_iter().enumerate() {
        let id = format!("edge-{number}");
        let response = server.connect().try_ask(&request.header("X-Request-Id", &id)).unwrap();
        assert_eq!(response.status(), status);
        let name = format!("[{id}]");
        let is_named = |line: &str| line.contains(what) && line.contains(&name);
        let comes = wait::until(LIMIT, || server.log().lines().any(is_named));
        assert!(comes, "{what} {name}:\n{}", server.log());
        assert_eq!(lines(&log, number + 1)[number], format!("{id} {status}"));
    }
}

#[test]
fn without_the_option_there_are_no_ids_and_clients_cannot_choose_one() {
    let site = Site::new();
    let (server, _) = start(&site, "combined", &[]);
    let asking = Request::get("/made.php").header("X-Request-Id", "mine");
    assert_eq!(server.ask(&asking).text(), "made");
    let other = Site::new();
    let (server, _) = start(&other, "combined", &["--request-id"]);
    assert_ne!(server.ask(&asking).text(), "mademine");
    assert_ne!(server.page("/made.php"), server.page("/made.php"));
}

/// Three sites: one in the server's log, one with a log of its own, one without.
fn three(own: &str) -> String {
    format!(
        "listen = '127.0.0.1:0'\nthreads = 1\naccess_log = 'all.log'\naccess_log_format = '$host $uri'\n\
         [[site]]\nhosts = 'a.test'\nroot = 'root'\n\
         [[site]]\nhosts = 'b.test'\nroot = 'root'\n{own}\n\
         [[site.route]]\nprefix = '/quiet'\naccess_log = false\n\
         [[site]]\nhosts = 'c.test'\nroot = 'root'\naccess_log = 'off'\n"
    )
}

#[test]
fn a_site_has_a_log_of_its_own_or_none_and_a_route_is_left_out() {
    let site = Site::with("f.txt", "f");
    site.write("quiet/f.txt", "q");
    let write = |own: &str| site.write_at(site.outside("sendoff.toml"), three(own));
    let config = write("access_log = 'b.log'\naccess_log_format = '$site|$uri'");
    let server = Server::try_run(&config, site.root(), 4).unwrap();
    let ask = |host: &str| {
        for target in ["/f.txt", "/quiet/f.txt"] {
            server.ask(&Request::get(target).header("Host", host)).expect(200);
        }
    };
    let [all, own, renamed, other] =
        ["all.log", "b.log", "b.log.1", "c.log"].map(|name| site.outside(name));
    for host in ["a.test", "b.test", "c.test"] {
        ask(host);
    }
    assert_eq!(lines(&own, 1), ["b.test|/f.txt"]);
    assert_eq!(lines(&all, 2), ["a.test /f.txt", "a.test /quiet/f.txt"]);
    fs::rename(&own, &renamed).unwrap();
    assert_eq!(server.command(&["reopen"]).unwrap(), "2 log files were opened again\n");
    ask("b.test");
    assert_eq!(lines(&own, 1), ["b.test|/f.txt"]);
    assert_eq!(lines(&renamed, 1), ["b.test|/f.txt"]);
    // The format changes, then the file.
    write("access_log = 'b.log'");
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    ask("b.test");
    assert_eq!(lines(&own, 2)[1], "b.test /f.txt");
    write("access_log = 'c.log'");
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    ask("b.test");
    assert_eq!(lines(&other, 1), ["b.test /f.txt"]);
    write("access_log = 'nowhere/c.log'");
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains("nowhere/c.log: the folder of the file does not exist"), "{said}");
    ask("b.test");
    assert_eq!(lines(&other, 2)[1], "b.test /f.txt");
    assert_eq!((lines(&all, 2).len(), lines(&own, 2).len()), (2, 2));
}

/// Requests may name secrets: a log that the server creates is not for other users.
#[test]
fn new_logs_are_for_the_owner_and_the_group() {
    let site = Site::with("f.txt", "f");
    let own = |log: &str| {
        let config = three(&format!("access_log = '{log}'"));
        site.write_at(site.outside("sendoff.toml"), config)
    };
    let mode_of = |name: &str| fs::metadata(site.outside(name)).unwrap().mode() & 0o777;
    // The scenarios run with the mask 022.
    let kept = site.write_at(site.outside("b.log"), "");
    assert_eq!(mode_of("b.log"), 0o644);
    let server = Server::try_run(&own("b.log"), site.root(), 4).unwrap();
    assert_eq!((mode_of("all.log"), mode_of("b.log")), (0o640, 0o644), "at the start");
    fs::remove_file(kept).unwrap();
    server.command(&["reopen"]).unwrap();
    assert_eq!(mode_of("b.log"), 0o640, "opened again");
    own("c.log");
    server.command(&["reload"]).unwrap();
    assert_eq!(mode_of("c.log"), 0o640, "after a reload");
}

/// More files than go with one message to the front.
#[test]
fn five_hundred_sites_have_logs_of_their_own() {
    const COUNT: usize = 500;
    let site = Site::with("f.txt", "f");
    let write = |count: usize| {
        let sites = (0..count).map(|number| {
            format!(
                "[[site]]\nhosts = 's{number}.test'\nroot = 'root'\naccess_log = 'logs/{number}'\n"
            )
        });
        let text = format!("listen = '127.0.0.1:0'\nthreads = 1\n{}", sites.collect::<String>());
        site.write_at(site.outside("sendoff.toml"), text)
    };
    site.write_at(site.outside("logs/none"), "");
    let server = Server::try_run(&write(1), site.root(), 4).unwrap();
    write(COUNT);
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    for turn in 1..=2 {
        let mut client = server.connect();
        for number in 0..COUNT {
            let host = format!("s{number}.test");
            client.ask(&Request::get("/f.txt").header("Host", &host)).expect(200);
        }
        for number in 0..COUNT {
            assert_eq!(lines(&site.outside(&format!("logs/{number}")), 1).len(), 1, "{turn}");
        }
        let said = server.command(&["reopen"]);
        assert_eq!(said.unwrap(), format!("{COUNT} log files were opened again\n"));
        for number in 0..COUNT {
            fs::remove_file(site.outside(&format!("logs/{number}"))).unwrap();
        }
        let said = server.command(&["reopen"]);
        assert_eq!(said.unwrap(), format!("{COUNT} log files were opened again\n"));
    }
}
