//! The example site works, and demonstrates each way of handing over. The example in C answers.

use bytes::BytesMut;
use rustix::process::Signal;
use sendoff_fastcgi::record::{BeginRequest, Header, Kind};
use sendoff_fastcgi::{Decoder, RecordPart};
use sendoff_tests::{
    Client, LIMIT, Request, Server, Site, Stock, binary, dies_with_us, pattern, processes,
    static_library, wait,
};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

fn copy(from: &Path, site: &Site, name: &str) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            copy(&entry.path(), site, &format!("{name}/"));
        } else {
            site.write(&name, fs::read(entry.path()).unwrap());
        }
    }
}

/// A new user who works as root has the clone in root's own folder.
#[test]
#[cfg_attr(not(root), ignore = "needs root: changes users")]
fn make_serve_runs_no_script_as_root_as_root() {
    let site = Site::new();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let clone = site.outside("clone");
    let mut cp = Command::new("cp");
    fs::create_dir_all(clone.join("examples")).unwrap();
    fs::create_dir_all(clone.join("tools")).unwrap();
    assert!(
        cp.arg("-R")
            .arg(repository.join("examples/site"))
            .arg(clone.join("examples"))
            .status()
            .unwrap()
            .success()
    );
    fs::copy(repository.join("tools/serve"), clone.join("tools/serve")).unwrap();
    let who = "<?php echo posix_getpwuid(posix_geteuid())['name'], ' ', __DIR__;";
    fs::write(clone.join("examples/site/who.php"), who).unwrap();
    assert!(
        Command::new("chown").args(["-R", "root:root"]).arg(&clone).status().unwrap().success()
    );
    for mode in [0o755, 0o700] {
        fs::set_permissions(&clone, fs::Permissions::from_mode(mode)).unwrap();
        let mut serve = dies_with_us(&clone.join("tools/serve"), "TERM");
        serve.arg(binary()).arg("127.0.0.1:0").env("XDG_RUNTIME_DIR", site.folder("run"));
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let url = ready.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        let addr = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        let said = Client::connect(addr).ask(&Request::get("/who.php")).text();
        let (user, folder) = said.split_once(' ').unwrap();
        assert_eq!(user, "www-data");
        assert_eq!(
            folder == clone.join("examples/site").to_str().unwrap(),
            mode == 0o755,
            "{said}"
        );
        processes::signal(child.id(), Signal::TERM);
        let done = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(told.contains("so a copy is served"), mode == 0o700, "{told}");
        assert_eq!(Path::new(folder).exists(), mode == 0o755, "the copy is gone");
    }
}

/// Unchanged scripts, whose pages go into files in memory.
#[test]
fn a_page_leaves_by_way_of_a_file_in_memory() {
    let site = Site::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/dev-shm");
    copy(&example.join("site"), &site, "");
    site.write("error.php", "<?php echo 'before'; http_response_code(404); echo ' and after';");
    site.write("flush.php", "<?php echo 'one'; ob_end_flush(); flush(); echo ' two';");
    site.write("none.php", "<?php http_response_code(204);");
    let pages = site.outside("pages");
    let prepend = fs::read_to_string(example.join("prepend.php")).unwrap();
    let prepend = prepend.replace("/dev/shm/sendoff-pages", pages.to_str().unwrap());
    let prepend = site.write_at(site.outside("prepend.php"), prepend);
    site.write_at(pages.join("x"), "");
    fs::remove_file(pages.join("x")).unwrap();
    let ini = format!("auto_prepend_file={}", prepend.display());
    let folder = pages.to_str().unwrap();
    let by_file = Server::start(site.root(), &["--sendfile-from", folder, "--php-ini", &ini]);
    let plain = Server::start(site.root(), &[]);
    for target in ["/?kb=4", "/?kb=64", "/?kb=1000", "/error.php", "/flush.php", "/none.php"] {
        let (one, other) = (by_file.get(target), plain.get(target));
        assert_eq!(one.status(), other.status(), "{target}");
        assert!(one.body == other.body, "{target}");
        assert_eq!(one.header("content-type"), other.header("content-type"), "{target}");
    }
    assert!(by_file.get("/?kb=64").header("etag").is_some(), "it is a file");
    assert_eq!(fs::read_dir(&pages).unwrap().count(), 0, "a file is left behind");
}

#[test]
fn it_answers_and_keeps_its_record() {
    let site = Site::new();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/site"), &site, "");
    let server = Server::start(site.root(), &[]);

    let page = server.page("/");
    for table in ["powers", "primes", "roots"] {
        let contents = fs::read_to_string(site.path(&format!("tables/{table}.html"))).unwrap();
        assert!(page.contains(&contents), "{table}");
    }
    for target in ["/upload.php", "/download.php", "/responses.php"] {
        assert!(server.page(target).trim_end().ends_with("</html>"), "{target}");
    }
    assert_eq!(server.get("/no/such/page").status(), 404);
    assert_eq!(
        server.get("/style.css").header("content-type").unwrap().split(';').next(),
        Some("text/css")
    );

    let one = server.get("/download.php?how=readfile");
    let other = server.get("/download.php?how=echo");
    assert_eq!(one.expect(200).len(), 5 << 20);
    assert!(one.body == other.body);

    let upload = Request::upload("/upload.php", "file", "a <b>.bin", &pattern(1, 1_000_000));
    let answer = server.ask(&upload).text();
    assert!(answer.contains("a &lt;b&gt;.bin") && answer.contains("1,000,000 bytes"), "{answer}");

    what_pages_say_about_themselves_is_true(&site, &server);

    // 5 MB by each download, and the tables of the first page.
    let record = server.page("/responses.php");
    assert!(record.matches("<td class=\"number\">5.0 MB</td>").count() >= 2, "{record}");
    assert!(record.contains("<td>/</td>"), "{record}");
}

/// The page about downloads claims: behind nginx no PHP worker waits for slow clients either, but
/// nginx has a temporary file for each client. Here all clients share one copy in memory.
#[test]
fn slow_downloads_have_a_temporary_file_each_in_nginx_and_one_copy_here() {
    const CLIENTS: u64 = 8;
    let site = Site::new();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/site"), &site, "");
    let ours = Server::start(site.root(), &["--workers", "4"]);
    let stock = Stock::start(site.root(), &[]);
    let all = [vec![ours.pid()], processes::descendants(ours.pid())].concat();
    let held = [(ours.addr(), all), (stock.addr(), stock.processes())].map(|(addr, pids)| {
        // The first request makes the file.
        Client::connect(addr).ask(&Request::get("/download.php?how=readfile")).expect(200);
        let before = temporary_bytes(&pids);
        let slow: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = Client::connect_narrow(addr, 4096);
                client.send(Request::get("/download.php?how=readfile").bytes());
                assert_eq!(client.head().unwrap().status, 200);
                client
            })
            .collect();
        // Four workers for nine clients: each gets its turn while the others wait for their bytes.
        Client::connect(addr).ask(&Request::get("/responses.php")).expect(200);
        let held = || temporary_bytes(&pids).saturating_sub(before);
        if addr == stock.addr() {
            wait::until(LIMIT, || held() > CLIENTS << 21);
        }
        let held = held();
        drop(slow);
        held
    });
    eprintln!("bytes in temporary files: {held:?}");
    assert!(held[0] <= 5 << 20 && held[1] > CLIENTS << 21, "{held:?}");
}

/// Room that open files without a name take.
fn temporary_bytes(pids: &[u32]) -> u64 {
    let open = |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let files = pids.iter().flat_map(open).filter_map(|entry| entry.ok()?.path().metadata().ok());
    files.filter(|file| file.is_file() && file.nlink() == 0).map(|file| file.blocks() * 512).sum()
}

/// Pages show the output of `sendoff explain` from the time when they were written. Its files must
/// be the files of today's output; the division of generated text and the worker differ from
/// machine to machine.
fn what_pages_say_about_themselves_is_true(site: &Site, server: &Server) {
    let files = |table: &str| {
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
        let files = rows.filter(|row| row.contains(" file, "));
        // The download is in the machine's folder for temporary files.
        let named = |row: String| match row.split_once("/sendoff-site-download-") {
            Some((before, _)) => before.rsplit_once(' ').unwrap().0.to_owned(),
            None => row,
        };
        files.map(named).collect::<Vec<_>>()
    };
    for (name, target, expected) in [
        ("index", "/", 3),
        ("download", "/download.php?how=readfile", 1),
        ("upload", "/upload.php", 0),
        ("responses", "/responses.php", 0),
    ] {
        let shown = fs::read_to_string(site.path(&format!("parts/explained/{name}.txt"))).unwrap();
        let today = server.explain(target, &[]).unwrap();
        assert_eq!(files(&shown), files(&today), "{name}.txt: {today}");
        assert_eq!(files(&shown).len(), expected, "{name}.txt: {shown}");
        let page = server.page(target.split('?').next().unwrap());
        let first = shown.lines().next().unwrap();
        assert!(page.contains(first) && page.contains("page_bottom(__FILE__"), "{name}: {page}");
    }
}

#[test]
fn the_program_in_c_answers() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c/build");
    let built = Command::new(script).arg(static_library()).arg(&program).status();
    assert!(built.unwrap().success());
    let site = Site::new();
    let socket = site.outside("page.sock");
    let mut child = dies_with_us(&program, "KILL").arg(&socket).spawn().unwrap();
    wait::for_some("the socket", || {
        // The front runs as www-data.
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).ok()
    });
    let server =
        Server::start(site.root(), &["--fastcgi", &format!("/page=unix:{}", socket.display())]);
    let page = server.page("/page/info?a=1");
    assert!(
        page.contains("PATH_INFO = /info\n") && page.contains("QUERY_STRING = a=1\n"),
        "{page}"
    );
    let body = pattern(1, 300_000);
    for _ in 0..3 {
        let echo = server.ask(&Request::post("/page", "text/plain", body.clone()));
        assert!(echo.expect(200).ends_with(&body));
    }
    assert!(!ends_a_broken_request(&socket));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// True if the response to a request whose body breaks off has an `END_REQUEST`.
fn ends_a_broken_request(socket: &Path) -> bool {
    let mut server = UnixStream::connect(socket).unwrap();
    let mut request = BeginRequest { keep_conn: true }.encode(1).to_vec();
    request.extend(Header::new(Kind::PARAMS, 1, 0).encode());
    request.extend(Header::new(Kind::STDIN, 1, 4).encode());
    server.write_all(&[&request[..], b"body"].concat()).unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let (mut decoder, mut received) = (Decoder::default(), Vec::new());
    server.read_to_end(&mut received).unwrap();
    let mut received = BytesMut::from(&received[..]);
    let mut parts = std::iter::from_fn(|| decoder.next(&mut received).unwrap());
    parts.any(|part| matches!(part, RecordPart::Record { kind: Kind::END_REQUEST, .. }))
}
