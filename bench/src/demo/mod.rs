//! The demonstration: nginx + php-fpm and Sendoff side by side, with slow readers that a page
//! starts, and the counters of both on that page.

mod counters;

use crate::cpu::{self, CpuTime};
use crate::lab::{ask, hello_site};
use crate::peers::{Nginx, Peer, Running, Sendoff};
use crate::servers;
use crate::site::{Account, Page, Site, Workload, temporary_folder, text};
use crate::slow::SlowClients;
use anyhow::{Context, Result, ensure};
use clap::Args;
use counters::{Counters, Live, PageTimes};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Size of the download: it takes 100 s down a slow line. nginx writes it to disk for each reader.
const DOWNLOAD: usize = 10 * 1024 * 1024;
/// Most slow readers of each server: what nginx writes for them then needs 4 GB.
const MOST_READERS: usize = 400;
/// Time between two looks at the page's wishes, and between two lines of counters.
const LOOK: Duration = Duration::from_millis(500);
/// Pause between two small pages.
const PAUSE: Duration = Duration::from_millis(20);
/// A small page that takes longer counts as not answered.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file of the page's site in which its script writes the number of readers that it wants.
const WANTED: &str = "data/readers";
/// The file of the page's site with the counters.
const COUNTERS: &str = "live.json";

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Address of the page that shows both servers
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The sendoff binary [default: next to this one]
    #[arg(long, value_name = "PATH")]
    sendoff: Option<PathBuf>,
}

/// Runs until Ctrl-C.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let sendoff = Sendoff::at(options.sendoff.as_deref(), Vec::new())?;
    let dir = temporary_folder("sendoff-demo.")?;
    let shown = page_site(&folder(&dir, "shown")?)?;
    let measured = measured_site(&folder(&dir, "measured")?)?;
    let mut left_out = Vec::new();
    let peers = [Box::new(Nginx::Debian) as Box<dyn Peer>, Box::new(sendoff.clone())];
    let peers = servers::installed(peers, &mut left_out);
    ensure!(peers.len() == 2, "the demonstration needs both servers: {left_out:?}");
    let contestants = servers::start(&peers, &measured, dir.path())?;
    // A server of its own, so that the page does not count.
    let page = sendoff.start_at(options.listen, &shown, &folder(&dir, "page")?)?;

    let wanted = Arc::new(AtomicUsize::new(0));
    let mut servers = Vec::new();
    for contestant in contestants {
        servers.push(Shown::watch(contestant.name, contestant.running, &wanted));
    }
    println!("nginx + php-fpm and Sendoff, side by side: http://{}/", page.addr);
    println!("Ctrl-C ends them.");
    until_interrupted(|| {
        let readers = readers_wanted(&shown);
        if wanted.swap(readers, Ordering::Relaxed) != readers {
            servers.iter_mut().try_for_each(Shown::count_anew)?;
        }
        let counters = servers.iter().map(Shown::counters).collect::<Result<Vec<_>>>()?;
        let live = Live { readers, servers: counters };
        // A browser never reads half of the file.
        let (new, path) = (shown.root.join("live.new"), shown.root.join(COUNTERS));
        fs::write(&new, serde_json::to_vec(&live)?)?;
        Ok(fs::rename(&new, &path)?)
    })?;
    // A server would wait for readers that have not left.
    wanted.store(0, Ordering::Relaxed);
    thread::sleep(2 * LOOK);
    Ok(true)
}

fn folder(dir: &tempfile::TempDir, name: &str) -> Result<PathBuf> {
    let path = dir.path().join(name);
    fs::create_dir(&path)?;
    Ok(path)
}

fn page_site(dir: &Path) -> Result<Site> {
    let site = Site::create(dir, Account::for_servers()?, &[])?.with_workers(1);
    for (name, content) in [
        ("index.html", &include_bytes!("page/index.html")[..]),
        ("demo.css", include_bytes!("page/demo.css")),
        ("demo.js", include_bytes!("page/demo.js")),
        ("readers.php", include_bytes!("page/readers.php")),
        ("style.css", include_bytes!("../../../examples/site/style.css")),
        ("icon.svg", include_bytes!("../../../examples/site/icon.svg")),
    ] {
        site.file(name, content)?;
    }
    Ok(site)
}

fn measured_site(dir: &Path) -> Result<Site> {
    let site = Site::create(dir, Account::for_servers()?, &[])?;
    hello_site(&site)?;
    site.add(&download())?;
    Ok(site)
}

fn download() -> Workload {
    Workload::new("download", Page::Readfile(DOWNLOAD))
}

fn readers_wanted(site: &Site) -> usize {
    let text = fs::read_to_string(site.root.join(WANTED)).unwrap_or_default();
    text.trim().parse().unwrap_or(0).min(MOST_READERS)
}

/// Calls `look` at intervals until SIGINT or SIGTERM.
fn until_interrupted(mut look: impl FnMut() -> Result<()>) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            look()?;
            tokio::select! {
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    })
}

/// One of the two servers, with the threads that ask it. They end with the process.
struct Shown {
    name: String,
    running: Running,
    /// Its processor time when the number of readers changed.
    since: CpuTime,
    times: Arc<Mutex<PageTimes>>,
    /// The reason why its slow readers have stopped.
    failure: Arc<Mutex<Option<String>>>,
}

impl Shown {
    fn watch(name: String, running: Running, wanted: &Arc<AtomicUsize>) -> Self {
        let times = Arc::new(Mutex::new(PageTimes::default()));
        let failure = Arc::new(Mutex::new(None));
        let (addr, noted) = (running.addr, Arc::clone(&times));
        thread::spawn(move || {
            loop {
                let before = std::time::Instant::now();
                let answer = ask(addr, "/hello.php", PATIENCE);
                let time = answer.is_ok_and(|body| body == b"hello").then(|| before.elapsed());
                noted.lock().unwrap_or_else(PoisonError::into_inner).note(time);
                thread::sleep(PAUSE);
            }
        });
        let (wanted, failed) = (Arc::clone(wanted), Arc::clone(&failure));
        thread::spawn(move || {
            let mut clients = SlowClients::of(addr, download().path(), text(DOWNLOAD, 'a'));
            let mut read = || -> Result<()> {
                loop {
                    clients.set_count(wanted.load(Ordering::Relaxed))?;
                    clients.read_for(LOOK)?;
                }
            };
            let error = read().err().map(|error| format!("{error:#}"));
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = error;
        });
        Self { name, running, since: CpuTime::default(), times, failure }
    }

    fn count_anew(&mut self) -> Result<()> {
        self.since = cpu::sample(&self.running.roots())?;
        Ok(())
    }

    fn counters(&self) -> Result<Counters> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        Counters::of(&self.name, &self.running.roots(), self.since, &times, failure)
            .context("/proc")
    }
}
