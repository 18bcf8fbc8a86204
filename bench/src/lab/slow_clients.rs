//! Slow clients: downloads that a script prints, read at the speed of a slow line, while the server
//! is asked for a small page.

use super::asking::{MIB, ask, hello_site};
use super::experiment::{Effort, Figure};
use super::results::{Point, Values};
use super::rounds::{Measurement, Setting};
use crate::cpu;
use crate::http::Decoder;
use crate::measure::Contestant;
use crate::servers::common;
use crate::site::{Page, Workload, text};
use crate::stats::Spread;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

const PART: &str = "clients";
/// Bytes per second of each client: a common line of the papers' time.
const LINE: u64 = 100_000;
/// Time between two reads of a client.
const TICK: Duration = Duration::from_millis(100);
/// A page that takes longer counts as not answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a server to notice that the clients of the last round have gone.
const RECOVERY: Duration = Duration::from_secs(30);

pub(crate) const SLOW_CLIENTS: Measurement = Measurement {
    name: "slow-clients",
    about: "1 to 1,000 clients read a download of 100 MB from a script at 100,000 bytes/s: workers held, memory, and the time of a small page meanwhile",
    workers: 4,
    servers: common,
    points: |effort| {
        let counts = effort.choose(&[1, 8, 40][..], &[1, 4, 16, 64, 250, 1000]);
        counts.iter().map(|&n| Point::new(PART, f64::from(n), format!("{n} clients"))).collect()
    },
    furnish: |site, effort| {
        hello_site(site)?;
        site.add(&download(effort))
    },
    run,
    figures,
};

fn size(effort: Effort) -> usize {
    effort.choose(10, 100) * MIB
}

fn download(effort: Effort) -> Workload {
    Workload::new("download", Page::Readfile(size(effort)))
}

fn figures() -> Vec<Figure> {
    let of = |title, y, value| Figure::bars(PART, title, y, value);
    vec![
        of("A small page meanwhile", "ms, median of the pages", "hello_ms"),
        of("Small pages answered within 5 s", "%", "answered"),
        of("Processes that wait for slow clients", "processes", "held"),
        of("Memory", "KB per client", "kb_per_client"),
        of("Temporary files", "MB", "disk_mb"),
    ]
}

fn run(setting: &Setting, contestant: &Contestant, point: &Point) -> Result<Values> {
    let (addr, roots) = (contestant.running.addr, contestant.running.roots());
    recovered(addr)?;
    let size = size(setting.effort);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    let count = point.x as usize;
    let needed = (size * count) as u64;
    let free = free_bytes(setting)?;
    let spools =
        contestant.name != crate::report::SENDOFF && !contestant.name.starts_with("apache");
    ensure!(
        !spools || needed < free,
        "not measured: its temporary files may need {} MB, and {} MB are free",
        needed / MIB as u64,
        free / MIB as u64
    );
    let memory = memory_kb(&roots)?;
    let path = download(setting.effort).path();
    let mut clients = Clients::connect(addr, &path, count, text(size, 'a'))?;
    let time = setting.plan.time.max(Duration::from_secs(1));
    let reader = thread::spawn(move || clients.read_for(time).map(|()| clients));
    let mut answers = Vec::new();
    let (started, mut asked) = (Instant::now(), 0_u32);
    while started.elapsed() < time || asked == 0 {
        asked += 1;
        let before = Instant::now();
        if ask(addr, "/hello.php", PATIENCE).is_ok_and(|body| body == b"hello") {
            answers.push(before.elapsed().as_secs_f64() * 1e3);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let clients = reader.join().map_err(|_| anyhow::anyhow!("the clients failed"))??;
    let mut values = Values::new();
    let mut note = |name: &str, value: f64| values.insert(name.to_owned(), value);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        note("answered", answers.len() as f64 / f64::from(asked) * 100.0);
        note("kb_per_client", (memory_kb(&roots)? - memory) as f64 / count as f64);
        note("disk_mb", temporary_bytes(&roots)? as f64 / MIB as f64);
        if let Some(held) = held(&roots)? {
            note("held", held as f64);
        }
    }
    if let Some(spread) = Spread::of(answers) {
        note("hello_ms", spread.median);
    }
    drop(clients);
    Ok(values)
}

/// Waits until a server whose clients have gone answers again.
fn recovered(addr: SocketAddr) -> Result<()> {
    let started = Instant::now();
    loop {
        match ask(addr, "/hello.php", PATIENCE) {
            Ok(body) => {
                ensure!(body == b"hello", "a wrong page");
                return Ok(());
            }
            Err(error) if started.elapsed() > RECOVERY => {
                return Err(error).context("no answer after the clients had gone");
            }
            Err(_) => {}
        }
    }
}

fn free_bytes(setting: &Setting) -> Result<u64> {
    let stat = rustix::fs::statvfs(&setting.dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Memory of all processes in KB, with shared pages divided among them.
pub(crate) fn memory_kb(roots: &[u32]) -> Result<i64> {
    let mut sum = 0;
    for process in cpu::tree(roots)? {
        // A process may end meanwhile.
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid));
        let text = text.unwrap_or_default();
        let pss =
            text.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next());
        sum += pss.and_then(|kb| kb.parse::<i64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Size of the temporary files that the processes have open, each counted once.
fn temporary_bytes(roots: &[u32]) -> Result<u64> {
    let mut sizes = BTreeMap::new();
    for process in cpu::tree(roots)? {
        // A process may end meanwhile.
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", process.pid)) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let (Ok(target), Ok(file)) = (fs::read_link(&path), fs::metadata(&path)) else {
                continue;
            };
            // lighttpd's have names. Files in memory count as memory.
            let target = target.as_os_str().as_encoded_bytes();
            let temporary = file.nlink() == 0 || target.starts_with(b"/var/tmp/lighttpd-");
            if file.is_file() && temporary && !target.starts_with(b"/memfd:") {
                sizes.insert((file.dev(), file.ino()), file.blocks() * 512);
            }
        }
    }
    Ok(sizes.values().sum())
}

/// Number of processes that wait for a peer to take bytes; `None` if the kernel does not tell.
fn held(roots: &[u32]) -> Result<Option<usize>> {
    // write, poll (Apache writes without waiting, then polls), writev, sendfile, sendto, sendmsg,
    // splice: numbers of the calls on x86-64.
    const WRITING: [&str; 7] = ["1", "7", "20", "40", "44", "46", "275"];
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(None);
    }
    let mut held = 0;
    for process in cpu::tree(roots)? {
        let Ok(call) = fs::read_to_string(format!("/proc/{}/syscall", process.pid)) else {
            continue;
        };
        held += usize::from(call.split(' ').next().is_some_and(|number| WRITING.contains(&number)));
    }
    Ok(Some(held))
}

struct Client {
    stream: TcpStream,
    decoder: Decoder,
    read: u64,
}

struct Clients {
    clients: Vec<Client>,
    body: Vec<u8>,
}

impl Clients {
    fn connect(addr: SocketAddr, path: &str, count: usize, body: Vec<u8>) -> Result<Self> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n");
        let client = |_| -> Result<Client> {
            let mut stream = TcpStream::connect(addr)?;
            stream.write_all(request.as_bytes())?;
            stream.set_nonblocking(true)?;
            Ok(Client { stream, decoder: Decoder::new(), read: 0 })
        };
        let clients = (0..count).map(client).collect::<Result<_>>().context("a slow client")?;
        Ok(Self { clients, body })
    }

    /// Reads at the speed of the line.
    fn read_for(&mut self, time: Duration) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < time {
            let due = u64::try_from(started.elapsed().as_millis())? * LINE / 1000;
            for client in &mut self.clients {
                client.read_up_to(due, &self.body)?;
            }
            thread::sleep(TICK);
        }
        Ok(())
    }
}

impl Client {
    /// Reads until `due` bytes have come, or no more are there. Every byte is compared.
    fn read_up_to(&mut self, due: u64, expected: &[u8]) -> Result<()> {
        let mut buffer = [0; 16 * 1024];
        while self.read < due {
            let size = usize::try_from(due - self.read)?.min(buffer.len());
            let n = match self.stream.read(&mut buffer[..size]) {
                Ok(0) => anyhow::bail!("a download ended after {} bytes", self.read),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("a download"),
            };
            self.read += n as u64;
            let mut at = usize::try_from(self.decoder.body_len())?;
            let mut right = true;
            self.decoder.feed(&buffer[..n], |piece| {
                right &= expected.get(at..at + piece.len()) == Some(piece);
                at += piece.len();
            })?;
            ensure!(right, "a download differs before byte {at}");
            if self.decoder.is_done() {
                return Ok(());
            }
        }
        Ok(())
    }
}
