//! Pages of unmodified applications, as Debian packages them, and a script that only computes.

use super::asking::{ask, at_once};
use super::experiment::{Figure, Value};
use super::results::{Point, Values};
use super::rounds::{Measurement, Setting};
use crate::cpu;
use crate::measure::Contestant;
use crate::peers::{Apache, Nginx, Peer, Sendoff};
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PART: &str = "pages";
/// PHP workers of every server, and clients that ask: each worker has a request at all times.
const CLIENTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);
/// Pages of one application may differ by tokens and times, which have nearly the same length.
const TOLERANCE: usize = 200;

/// An application's page.
struct Application {
    label: &'static str,
    path: &'static str,
    /// A text that only the right page has.
    mark: &'static str,
}

const APPLICATIONS: [Application; 3] = [
    Application { label: "loops and strings", path: "/loops.php", mark: "done 2098176 " },
    Application {
        label: "phpMyAdmin, login",
        path: "/phpmyadmin/index.php",
        mark: "name=\"pma_username\"",
    },
    Application {
        label: "MediaWiki, main page",
        path: "/wiki.php?title=Main_Page",
        mark: "MediaWiki has been installed",
    },
];

pub(crate) const APPLICATION_PAGES: Measurement = Measurement {
    name: "applications",
    about: "Pages of phpMyAdmin and MediaWiki, and a script that only computes; PHP in php-fpm, in libphp, in Apache",
    workers: CLIENTS,
    servers: |sendoff| {
        let libphp = Sendoff {
            name: "sendoff, libphp",
            extra_args: [&sendoff.extra_args[..], &["--php=libphp".to_owned()]].concat(),
            ..sendoff.clone()
        };
        let servers: [Box<dyn Peer>; 4] = [
            Box::new(Nginx::Unlogged),
            Box::new(sendoff.clone()),
            Box::new(libphp),
            Box::new(Apache),
        ];
        servers.into()
    },
    points: |effort| {
        let shown = effort.choose(1, APPLICATIONS.len());
        let point = |(x, application): (u32, &Application)| {
            Point::new(PART, f64::from(x), application.label)
        };
        (0..).zip(&APPLICATIONS[..shown]).map(point).collect()
    },
    furnish: |site, _| {
        site.file("loops.php", include_bytes!("applications/loops.php"))?;
        symlink("/usr/share/phpmyadmin", site.root.join("phpmyadmin"))?;
        mediawiki(site)
    },
    run,
    figures: || {
        let of = |title, y, value| Figure::bars(PART, title, y, value);
        vec![
            of("CPU time of the server", "ms per page", "server_ms"),
            Figure {
                value: Value::RatioTo("server_ms", "nginx+fpm"),
                ..of("CPU time beside php-fpm", "times nginx + php-fpm", "server_ms")
            },
            of("Pages", "pages/s", "rate"),
        ]
    },
    claims: &[],
};

/// MediaWiki with a database in a file and without a cache: each page is made from its text.
fn mediawiki(site: &Site) -> Result<()> {
    let installed = Path::new("/usr/share/mediawiki");
    let installer = installed.join("maintenance/install.php");
    if !installer.is_file() {
        // Its page is missing then, and is shown as failed.
        return Ok(());
    }
    site.directory("wiki")?;
    let folder = site.root.join("wiki");
    let made = Command::new("php")
        .arg(installer)
        .args(["--dbtype", "sqlite", "--dbname", "wiki", "--pass", "correct horse battery"])
        .arg(format!("--dbpath={}", folder.display()))
        .arg(format!("--confpath={}", folder.display()))
        .args(["--server=http://127.0.0.1", "--scriptpath=/mediawiki", "A wiki", "Admin"])
        .output()
        .context("cannot run php (package php-cli)")?;
    ensure!(made.status.success(), "MediaWiki's installer: {made:?}");
    let settings = folder.join("LocalSettings.php");
    let text = fs::read_to_string(&settings)?
        + "$wgMainCacheType = CACHE_NONE;\n$wgJobRunRate = 0;\nwfLoadSkin('Vector');\n";
    fs::write(&settings, text)?;
    site.adopt(&folder)?;
    let page = format!(
        "<?php\nputenv('MW_CONFIG_FILE={}');\nrequire '{}/index.php';\n",
        settings.display(),
        installed.display()
    );
    site.file("wiki.php", page.as_bytes())
}

fn run(setting: &Setting, contestant: &Contestant, point: &Point) -> Result<Values> {
    let application = APPLICATIONS
        .iter()
        .find(|application| application.label == point.label)
        .context("an unknown application")?;
    let addr = contestant.running.addr;
    let page = || -> Result<usize> {
        let body = ask(addr, application.path, PATIENCE)?;
        let found = memchr::memmem::find(&body, application.mark.as_bytes());
        ensure!(found.is_some(), "the page lacks {:?}", application.mark);
        Ok(body.len())
    };
    // The scripts are compiled before the clock starts; workers share opcache.
    let usual = at_once(CLIENTS, page)?.into_iter().max().context("no page")?;
    let (roots, time) = (contestant.running.roots(), setting.plan.time);
    let before = cpu::sample(&roots)?;
    let started = Instant::now();
    let counts = at_once(CLIENTS, || {
        let mut done = 0;
        while done == 0 || started.elapsed() < time {
            let size = page()?;
            ensure!(size.abs_diff(usual) <= TOLERANCE, "a page of {size} bytes instead of {usual}");
            done += 1;
        }
        Ok(done)
    })?;
    let elapsed = started.elapsed();
    let used = cpu::sample(&roots)? - before;
    #[expect(clippy::cast_precision_loss, reason = "some thousand pages")]
    let count = counts.into_iter().sum::<usize>() as f64;
    Ok(Values::from([
        ("rate".to_owned(), count / elapsed.as_secs_f64()),
        ("server_ms".to_owned(), (used.front + used.worker).as_secs_f64() * 1e3 / count),
    ]))
}
