//! The machine's real-time clock jumps while the server runs: dates are right at once, and time
//! limits are not affected.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use sendoff_tests::{LIMIT, Request, Response, Server, Site, dies_with_us, wait};

const HOUR: i64 = 3600;
/// The largest accepted difference between the server's clock and the expected time.
const EXACT: Duration = Duration::from_secs(60);

const CONFIG: &str = "listen = '127.0.0.1:0'\nthreads = 1\naccess_log = 'access.log'\n\
    access_log_format = '$request $time_iso8601 $request_time'\nidle_timeout = '10m'\n\
    [[pool]]\nworkers = 2\nrequest_timeout = '10m'\n\
    [[site]]\nroot = 'root'\n\
    [[site.route]]\npath = '/kept.php'\npage_cache = '10m'\n\
    [[site.route]]\npath = '/a.txt'\nrate = '2/h'\n";

/// A server whose real-time clock the test can set wrong.
struct Jumping {
    server: Server,
    wrong_by: File,
}

impl Jumping {
    fn start(site: &Site) -> Self {
        let library = site.outside("clock.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("helpers/clock.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
        assert!(compiler.status().unwrap().success());
        let path = site.write_at(site.outside("wrong_by"), 0_i64.to_ne_bytes());
        let wrong_by = File::options().write(true).open(&path).unwrap();
        let config = site.write_at(site.outside("sendoff.toml"), CONFIG);
        let mut command = dies_with_us(Path::new("env"), "KILL");
        command.arg(format!("LD_PRELOAD={}", library.display()));
        command.arg(format!("CLOCK_FILE={}", path.display()));
        let server = Server::try_run_by(command, &config, site.root(), 2).unwrap();
        Self { server, wrong_by }
    }

    fn set(&self, seconds: i64) {
        self.wrong_by.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// A response whose `Date` is checked against a clock that is wrong by `seconds`.
    fn get(&self, target: &str, seconds: i64) -> Response {
        let response = self.server.get(target);
        is_now(httpdate::parse_http_date(response.header("date").unwrap()).unwrap(), seconds);
        response
    }
}

fn is_now(time: SystemTime, wrong_by: i64) {
    let offset = Duration::from_secs(wrong_by.unsigned_abs());
    let now = SystemTime::now();
    let expected = if wrong_by < 0 { now - offset } else { now + offset };
    let off = time.duration_since(expected).unwrap_or_else(|error| error.duration());
    assert!(off < EXACT, "{time:?} is {off:?} from {expected:?}");
}

#[test]
fn an_hour_forward_and_back_changes_what_is_said_and_nothing_that_is_measured() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    site.write("kept.php", "<?php echo hrtime(true);");
    site.write("time.php", "<?php echo time();");
    let jumping = Jumping::start(&site);
    let server = &jumping.server;
    let first = jumping.get("/kept.php", 0).text().to_owned();
    assert_eq!(jumping.get("/kept.php", 0).text(), first);
    for _ in 0..2 {
        assert_eq!(server.get("/a.txt").text(), "static");
    }
    let mut kept = server.connect();
    assert_eq!(kept.ask(&Request::get("/ok.php")).text(), "ok");
    let mut before = first;
    for wrong_by in [HOUR, 0, -HOUR, HOUR, 0] {
        // A script is at work while the clock jumps, by more than the time limit of requests.
        let mut waiting = server.connect();
        waiting.send(Request::get("/wait.php").bytes());
        let head = waiting.head().unwrap();
        jumping.set(wrong_by);
        let time: u64 = jumping.get("/time.php", wrong_by).text().parse().unwrap();
        is_now(SystemTime::UNIX_EPOCH + Duration::from_secs(time), wrong_by);
        // By the new time the kept page is too old, or was made in the future: in both cases it is
        // made anew.
        let now = jumping.get("/kept.php", wrong_by).text().to_owned();
        assert_ne!(now, before, "{wrong_by}");
        assert_eq!(jumping.get("/kept.php", wrong_by).text(), now);
        before = now;
        // Two requests in an hour were allowed and made before the jump; no hour has passed since.
        jumping.get("/a.txt", wrong_by).expect(429);
        assert_eq!(kept.ask(&Request::get("/ok.php")).text(), "ok", "the connection is kept");
        pipe.release();
        assert_eq!(waiting.body_of(head, "GET").unwrap().body, b"first last");
        let line = wait::for_some("a line of the access log", || {
            let log = fs::read_to_string(site.outside("access.log")).ok()?;
            let mut lines = log.lines().filter(|line| line.contains("/wait.php"));
            lines.next().map(str::to_owned)
        });
        fs::write(site.outside("access.log"), "").unwrap();
        let mut fields = line.rsplit(' ');
        let took: f64 = fields.next().unwrap().parse().unwrap();
        assert!((0.0..LIMIT.as_secs_f64()).contains(&took), "{line}");
        let at = fields.next().unwrap();
        let expected = [-1, 0, 1].map(|minutes| iso8601_minute(wrong_by + 60 * minutes));
        assert!(expected.iter().any(|minute| at.starts_with(minute)), "{at}: {expected:?}");
    }
}

/// The current minute, by a clock that is wrong by `wrong_by` seconds, in the access log's form.
fn iso8601_minute(wrong_by: i64) -> String {
    let done = Command::new("date")
        .args(["-u", "-d", &format!("{wrong_by} seconds"), "+%Y-%m-%dT%H:%M"])
        .output()
        .unwrap();
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}
