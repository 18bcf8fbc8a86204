//! `sendoff upgrade`: another process takes a server's place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;
use sendoff_tests::{Client, LIMIT, Request, Server, Site, binary, processes, sendoff, wait};

const BIG: usize = 8_000_000;

fn config(site: &Site, text: &str) -> PathBuf {
    let socket = site.outside("unix.sock");
    let text = format!(
        "listen = ['127.0.0.1:0', 'unix:{}']\nthreads = 2\n{text}\n\
         [[pool]]\nname = 'www'\nworkers = 2\n[[site]]\nroot = 'root'\n",
        socket.display()
    );
    site.write_at(site.outside("sendoff.toml"), text)
}

fn site() -> Site {
    let site = Site::waiting();
    site.write("big", vec![b'x'; BIG]);
    site
}

/// The new server, from what `sendoff upgrade` says.
pub(crate) fn successor(said: &str) -> u32 {
    let words = said.strip_prefix("upgraded: process ").unwrap_or_else(|| panic!("{said}"));
    words.split(' ').next().unwrap().parse().unwrap()
}

/// Ends the server that has taken over, and waits for the end of both.
pub(crate) fn end(new: u32, old: Server) {
    processes::signal(new, Signal::TERM);
    assert!(wait::until(LIMIT, || !processes::runs(new)));
    let (status, log) = old.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// Sends requests on a connection that is kept until the server closes it, until told to stop.
/// Returns the number of answers.
fn keep_asking(address: std::net::SocketAddr, stop: &AtomicBool, answers: &AtomicUsize) {
    let mut client = Client::connect(address);
    while !stop.load(Ordering::Relaxed) {
        // A connection that the old server has closed while it was idle takes no request.
        let Ok(response) = client.try_ask(&Request::get("/ok.php")) else {
            client = Client::connect(address);
            let response = client.ask(&Request::get("/ok.php"));
            assert_eq!(response.text(), "ok");
            continue;
        };
        assert_eq!(response.text(), "ok");
        answers.fetch_add(1, Ordering::Relaxed);
        if response.head.closes() {
            client = Client::connect(address);
        }
    }
}

#[test]
fn nothing_is_lost_under_load_with_kept_connections_and_a_slow_download() {
    let site = site();
    let server = Server::try_run_with(&config(&site, ""), site.root(), 2, 2).unwrap();
    let (old, address) = (server.pid(), server.addr());
    let mut slow = Client::connect_narrow(address, 16 * 1024);
    slow.send(Request::get("/big").header("Connection", "close").bytes());
    let head = slow.head().unwrap();
    let (stop, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut new = old;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| keep_asking(address, &stop, &answers));
        }
        let more = |than: usize| answers.load(Ordering::Relaxed) > than + 50;
        assert!(wait::until(LIMIT, || more(0)));
        new = successor(&server.command(&["upgrade"]).unwrap());
        let now = answers.load(Ordering::Relaxed);
        assert!(wait::until(LIMIT, || more(now)), "the new server does not answer");
        stop.store(true, Ordering::Relaxed);
    });
    // The old server waits for the slow client; commands are for the new one.
    assert!(processes::runs(old), "{}", server.log());
    let status = sendoff(site.root(), &["status", "--listen", &address.to_string()]).unwrap();
    assert!(status.contains(&format!("process {new},")), "{status}");
    assert_eq!(slow.body_of(head, "GET").unwrap().body.len(), BIG);
    assert!(wait::until(LIMIT, || !processes::runs(old)), "{}", server.log());
    assert!(site.outside("unix.sock").exists(), "the file is the new server's");
    assert_eq!(Client::connect(address).ask(&Request::get("/ok.php")).text(), "ok");
    let explained = server.explain("/ok.php", &[]).unwrap();
    assert!(explained.contains("worker "), "{explained}");
    end(new, server);
    assert!(!site.outside("unix.sock").exists(), "left behind");
}

#[test]
fn a_server_that_cannot_start_leaves_everything_as_it_was() {
    let site = site();
    let file = config(&site, "");
    let server = Server::try_run_with(&file, site.root(), 2, 2).unwrap();
    let (front, workers) = (server.front(), server.workers());
    let mut kept = server.connect();
    assert_eq!(kept.ask(&Request::get("/ok.php")).text(), "ok");
    for (text, why) in [
        ("nonsense = true", "nonsense"),
        ("user = 'nobody-of-this-name'", "there is no user nobody-of-this-name"),
    ] {
        config(&site, text);
        let said = server.command(&["upgrade"]).unwrap_err();
        assert!(said.contains("not upgraded, nothing has changed: "), "{said}");
        assert!(said.contains(why), "{said}");
    }
    config(&site, "");
    assert_eq!(kept.ask(&Request::get("/ok.php")).text(), "ok");
    assert_eq!((server.front(), server.workers()), (front, workers));
    assert!(server.explain("/ok.php", &[]).unwrap().contains("worker "));
    assert!(site.outside("unix.sock").exists());
}

/// Puts the program at a path of its own, with `sendoff-php`, or the module for its stock PHP
/// program, beside it.
fn install(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let beside = fs::read_dir(binary().parent().unwrap()).unwrap();
    let names = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_needed = |name: &String| {
        name == "sendoff" || name == "sendoff-php" || name.starts_with("sendoff-host-")
    };
    for name in names.filter(is_needed) {
        let (new, there) = (folder.join(format!("{name}.new")), folder.join(&name));
        fs::copy(binary().with_file_name(&name), &new).unwrap();
        // A rename, as packages do it: a running program cannot be written to.
        fs::rename(new, there).unwrap();
    }
    folder.join("sendoff")
}

#[test]
fn sigusr2_starts_the_program_that_was_put_in_the_place_of_the_running_one() {
    let site = site();
    let folder = site.outside("bin");
    let program = install(&folder);
    let script = format!("shift; exec {} \"$@\"", program.display());
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", &script, "sh"]);
    let text = "listen = '127.0.0.1:0'\nthreads = 1\n\
        [[pool]]\nname = 'www'\nworkers = 1\n[[site]]\nroot = 'root'\n";
    let file = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run_by(command, &file, site.root(), 1).unwrap();
    install(&folder);
    server.signal(Signal::USR2);
    server.await_log("upgraded: process ");
    let log = server.log();
    let said = &log[log.find("upgraded: process ").unwrap()..];
    let new = successor(said);
    assert!(wait::until(LIMIT, || !processes::runs(server.pid())), "{log}");
    let runs = fs::read_link(format!("/proc/{new}/exe")).unwrap();
    assert_eq!(runs, program);
    assert_eq!(Client::connect(server.addr()).ask(&Request::get("/ok.php")).text(), "ok");
    end(new, server);
}

/// True if a page came from the cache, and its text.
fn kept(client: &mut Client, target: &str) -> (bool, String) {
    let page = client.ask(&Request::get(target));
    let is_hit = page.header("Cache-Status").unwrap().starts_with("sendoff; hit");
    (is_hit, page.text())
}

#[test]
fn the_old_server_and_the_new_one_hear_of_pages_that_the_other_forgets() {
    let site = site();
    let [form_begun, form_may_end, page_begun, page_may_end, last_may_end] =
        ["form_begun", "form", "page_begun", "page", "pipe"].map(|name| site.fifo(name));
    site.write("page.php", "<?php echo hrtime(true);");
    site.write("who.php", "<?php header('Cache-Control: no-store'); echo getmypid();");
    let wait = "<?php file_put_contents('NAME_begun', 'x'); file_get_contents('NAME');";
    let form = format!("{wait} header('Location: /page.php', true, 303);");
    site.write("form.php", form.replace("NAME", "form"));
    site.write("slow.php", format!("{wait} echo 'old';").replace("NAME", "page"));
    let text = "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n\
        [[pool]]\nname = 'www'\nworkers = 4\n\
        [[site]]\nroot = 'root'\n[[site.route]]\npage_cache = '10m'\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 4).unwrap();
    let address = server.addr();
    let kept_page = |client: &mut Client| {
        wait::for_some("a kept page", || Some(kept(client, "/page.php")).filter(|(hit, _)| *hit)).1
    };
    let old_workers = server.workers();
    // Three requests keep the old server busy: the first changes a page, the second makes a page
    // that is to be kept, the third ends last.
    let [mut form, mut slow, mut last] = [(); 3].map(|()| server.connect());
    last.send(Request::get("/wait.php").bytes());
    form.send(Request::post("/form.php", "text/plain", "x").bytes());
    slow.send(Request::get("/slow.php").bytes());
    assert_eq!((form_begun.await_script(), page_begun.await_script()), ("x".into(), "x".into()));
    let new = successor(&server.command(&["upgrade"]).unwrap());
    // The old server may still have accepted a connection.
    let mut client = wait::for_some("the new server", || {
        let mut client = Client::connect(address);
        let worker = client.ask(&Request::get("/who.php")).text().parse().unwrap();
        (!old_workers.contains(&worker)).then_some(client)
    });
    // The old server does not know this page.
    let first = kept_page(&mut client);
    form_may_end.release();
    assert_eq!(form.response("POST").status(), 303);
    let (is_hit, second) = kept(&mut client, "/page.php");
    assert!(!is_hit && second != first, "the form has changed it");
    assert_eq!(kept_page(&mut client), second);
    // A page that the old server makes during a purge is not kept.
    sendoff(site.root(), &["purge", "--all", "--listen", &address.to_string()]).unwrap();
    page_may_end.release();
    assert_eq!(slow.response("GET").text(), "old");
    // The old server has had the time to keep it.
    assert!(!kept(&mut client, "/who.php").0);
    last_may_end.release();
    assert_eq!(last.response("GET").text(), "first last");
    end(new, server);
    let files = fs::read_dir(site.outside("pages")).unwrap().map(|file| file.unwrap().path());
    let kept: Vec<_> = files.filter(|file| fs::read(file).unwrap() == b"old").collect();
    assert!(kept.is_empty(), "the next server would find {kept:?}");
}

/// The kernel lets a front write to the folders that it found at its start, and to no others that
/// get their names.
#[test]
fn a_replaced_folder_is_named_by_a_reload_and_written_to_after_an_upgrade() {
    let site = site();
    site.write("page.php", "<?php echo hrtime(true);");
    let text = "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n\
        [[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n[[site.route]]\npage_cache = '10m'\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 1).unwrap();
    let address = server.addr();
    let is_kept = |client: &mut Client| kept(client, "/page.php").0;
    assert!(wait::until(LIMIT, || is_kept(&mut server.connect())));
    server.command(&["reload"]).unwrap();
    assert!(!server.log().contains("was replaced"), "{}", server.log());
    let pages = site.outside("pages");
    fs::rename(&pages, site.outside("other")).unwrap();
    fs::create_dir(&pages).unwrap();
    server.command(&["reload"]).unwrap();
    server.await_log("/pages was replaced");
    let new = successor(&server.command(&["upgrade"]).unwrap());
    assert!(wait::until(LIMIT, || is_kept(&mut Client::connect(address))));
    assert!(fs::read_dir(&pages).unwrap().next().is_some());
    end(new, server);
}
