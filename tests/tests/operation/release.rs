//! A root that is a symbolic link to a release.

use sendoff_tests::{Client, LIMIT, Request, Server, Site, wait};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SWITCHES: usize = 100;

/// Two releases and the link `current`.
struct Releases {
    site: Site,
    link: PathBuf,
}

impl Releases {
    fn new() -> Self {
        let site = Site::new();
        for release in ["one", "two"] {
            let write = |name: &str, text: &str| {
                site.write(&format!("{release}/{name}"), text.replace("RELEASE", release));
            };
            write("lib.php", "<?php function release() { return 'RELEASE'; }");
            write(
                "index.php",
                "<?php require 'lib.php';
                 echo implode(' ', ['RELEASE', release(), file_get_contents('part.txt'),
                     basename($_SERVER['DOCUMENT_ROOT']), basename(dirname($_SERVER['SCRIPT_FILENAME'])),
                     basename(__DIR__), basename(getcwd())]);",
            );
            write("part.txt", "RELEASE");
            // Larger than files that are kept in memory.
            write("big.txt", &"RELEASE ".repeat(20_000));
            write("send.php", "<?php header('X-Sendfile: ' . __DIR__ . '/big.txt');");
        }
        let link = site.outside("current");
        let releases = Self { site, link };
        releases.switch("one");
        releases
    }

    fn switch(&self, release: &str) {
        let new = self.link.with_extension("new");
        symlink(self.site.path(release), &new).unwrap();
        fs::rename(&new, &self.link).unwrap();
    }
}

/// Which release all pages are of.
fn release_of(client: &mut Client, target: &str) -> String {
    let response = client.ask(&Request::get(target));
    response.expect(200);
    let text = response.text();
    let mut words: Vec<_> = text.split_whitespace().collect();
    words.dedup();
    let [release] = *words else { panic!("{target} is of several releases: {words:?}") };
    release.to_owned()
}

fn start(root: &Path) -> Server {
    Server::start(root, &["--threads", "2", "--php-ini", "opcache.revalidate_freq=1000000"])
}

const TARGETS: [&str; 4] = ["/", "/big.txt", "/part.txt", "/send.php"];

#[test]
fn a_switched_link_is_seen_by_the_next_request() {
    let releases = Releases::new();
    let server = start(&releases.link);
    let workers = server.workers();
    let mut clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for number in 0..SWITCHES {
        let release = ["two", "one"][number % 2];
        releases.switch(release);
        for (client, target) in clients.iter_mut().zip(TARGETS.iter().cycle()) {
            assert_eq!(release_of(client, target), release, "{target} after {number} switches");
        }
    }
    assert_eq!(server.workers(), workers);
}

#[test]
fn a_folder_that_takes_the_name_of_the_root_is_served() {
    let site = Site::new();
    let root = site.outside("www");
    let fill = |folder: &Path, text: &str| {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("page.txt"), text).unwrap();
        fs::write(folder.join("secret.txt"), text).unwrap();
    };
    fill(&root, "one");
    let server = start(&root);
    // The kernel spreads them over the event loops.
    let mut clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
    let mut all_see = |text: &str| {
        for client in &mut clients {
            let mut sees = || client.ask(&Request::get("/page.txt")).text() == text;
            assert!(wait::until(LIMIT, &mut sees), "not {text}");
        }
    };
    all_see("one");
    let new = site.outside("new");
    fill(&new, "two");
    fs::rename(&root, site.outside("old")).unwrap();
    fs::rename(&new, &root).unwrap();
    all_see("two");
    fs::remove_dir_all(&root).unwrap();
    fill(&root, "three");
    fs::write(root.join(".htaccess"), "<Files secret.txt>\nRequire all denied\n</Files>\n")
        .unwrap();
    all_see("three");
    for client in &mut clients {
        client.ask(&Request::get("/secret.txt")).expect(403);
    }
}

#[test]
fn every_response_under_load_is_of_one_release_and_none_is_lost() {
    let releases = Releases::new();
    let server = start(&releases.link);
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let new = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = server.connect();
                while !stop.load(Ordering::Relaxed) {
                    for target in TARGETS {
                        let release = release_of(&mut client, target);
                        assert!(["one", "two"].contains(&&*release), "{target}: {release}");
                        new.fetch_add(usize::from(release == "two"), Ordering::Relaxed);
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for number in 0..SWITCHES {
            let before = asked.load(Ordering::Relaxed);
            releases.switch(["two", "one"][number % 2]);
            wait::until(LIMIT, || asked.load(Ordering::Relaxed) > before + 10);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let asked = asked.load(Ordering::Relaxed);
    let new = new.load(Ordering::Relaxed);
    assert!(asked >= 1000 && (100..asked - 100).contains(&new), "{new} of {asked} requests");
}

#[test]
fn a_link_that_leads_nowhere_for_a_while_leaves_the_release_in_place() {
    let releases = Releases::new();
    let server = start(&releases.link);
    let mut client = server.connect();
    assert_eq!(release_of(&mut client, "/"), "one");
    // As `ln -sfn` does, which removes the link first.
    fs::remove_file(&releases.link).unwrap();
    assert_eq!(release_of(&mut client, "/"), "one");
    symlink(releases.site.path("two"), &releases.link).unwrap();
    assert_eq!(release_of(&mut client, "/"), "two");
    // A front that is started again, and a reload, find the new release.
    server.command(&["reload"]).unwrap();
    releases.switch("one");
    assert_eq!(release_of(&mut client, "/"), "one");
}

/// Folders beneath the link, beside the root.
#[test]
fn a_switch_counts_for_the_other_folders_of_a_site() {
    let releases = Releases::new();
    let site = &releases.site;
    for release in ["one", "two"] {
        site.write(&format!("{release}/public/own.txt"), release);
        site.write(&format!("{release}/media/part.txt"), release);
        site.write(&format!("{release}/media/in.php"), "<?php echo basename(dirname(__DIR__));");
        site.write(&format!("{release}/private/name.txt"), release);
    }
    let current = releases.link.display();
    let send =
        format!("<?php header('X-Sendfile: ' . readlink('{current}') . '/private/name.txt');");
    site.write_at(site.outside("app/send.php"), &send);
    site.write_at(site.outside("app/named.php"), "<?php header('X-Accel-Redirect: /in/name.txt');");
    let fpm = sendoff_tests::Fpm::start(&site.outside("app"), "");
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1
        [[site]]\nhosts = 'beside.test'\nroot = 'app'\nalias = {{ '/media' = '{current}/media' }}
        accel = {{ '/in' = '{current}/private' }}
        [[site]]\nhosts = 'beneath.test'\nroot = '{current}/public'
        [[site]]\nhosts = 'named.test'\nroot = 'app'\nfastcgi = {{ '.php' = '{}' }}
        sendfile_from = '{current}/private'\naccel = {{ '/in' = '{current}/private' }}\n",
        fpm.address()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server =
        Server::try_run(&config, site.root(), 1).unwrap_or_else(|e| panic!("{}", e.stderr));
    let is = |release: &str| {
        for (host, target) in [
            ("beneath.test", "/own.txt"),
            ("beside.test", "/media/part.txt"),
            ("beside.test", "/media/in.php"),
            ("beside.test", "/named.php"),
            ("named.test", "/send.php"),
            ("named.test", "/named.php"),
        ] {
            let response = server.ask(&Request::get(target).header("Host", host));
            let seen = (response.status(), response.text());
            assert_eq!(seen, (200, release.to_owned()), "{host}{target}: {}", server.log());
        }
    };
    is("one");
    for _ in 0..3 {
        releases.switch("two");
        is("two");
        releases.switch("one");
        is("one");
    }
    // A release without one of the folders.
    fs::remove_dir_all(site.path("two/media")).unwrap();
    releases.switch("two");
    let part = |path: &str| server.ask(&Request::get(path).header("Host", "beside.test")).text();
    assert_eq!(part("/media/part.txt"), "one");
    site.write("two/media/part.txt", "two");
    assert_eq!(part("/media/part.txt"), "two");
}
