//! Writers change the files of pages in all ways while fast and slow clients read the pages:
//! each client receives exactly what its script saw.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use sendoff_tests::mapper::Mapper;
use sendoff_tests::{Client, Progress, Request, Server, Site, pattern};

const FILES: usize = 16;
const SMALLEST: u64 = 10_000;
const LARGEST: u64 = 2_000_000;

/// The longest that a lease may hold a writer (`docs/handover.md` §3).
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A script that sends a hash of the contents that it has read, before them or, if it reads in
/// pieces, behind them. It pauses in between, so that writers change the file while the script
/// holds it.
const SCRIPT: &str = r"<?php
    $nap = fn () => usleep(mt_rand(0, 30000));
    $file = 'f' . $_GET['f'];
    if ($_GET['way'] === 'pieces') {
        $in = @fopen($file, 'r');
        for ($hash = hash_init('fnv1a64'); $in && !feof($in); mt_rand(0, 20) || $nap()) {
            echo $piece = fread($in, 8192);
            hash_update($hash, $piece);
        }
        exit(hash_final($hash));
    }
    $s = (string) @file_get_contents($file);
    header('X-Saw: ' . hash('fnv1a64', $s));
    $nap();
    switch ($_GET['way']) {
        case 'once': echo $s; break;
        case 'twice': echo '<', $s, '>'; flush(); $nap(); echo $s; break;
        case 'parts': foreach (str_split($s, 50000) as $part) echo $part; break;
    }";
const WAYS: [&str; 4] = ["once", "pieces", "twice", "parts"];

/// A way in which a writer changes a file; the kinds take turns in this order.
type Change = fn(&Path, &[u8]) -> io::Result<()>;
const CHANGES: [(&str, Change); 8] = [
    ("truncates", |path, new| fs::write(path, new)),
    ("writes in place", |path, new| writing(path)?.write_all_at(new, 0)),
    ("appends", |path, new| {
        let mut file = OpenOptions::new().append(true).open(path)?;
        if file.metadata()?.len() > LARGEST {
            file.set_len(SMALLEST)?;
        }
        file.write_all(&new[..new.len().min(9000)])
    }),
    ("renames over it", |path, new| {
        let other = path.with_extension(format!("{:?}", thread::current().id()));
        fs::write(&other, new)?;
        fs::rename(&other, path)
    }),
    ("removes and makes", |path, new| {
        fs::remove_file(path)?;
        fs::write(path, new)
    }),
    ("does not wait", |path, new| {
        let nonblock = OFlags::NONBLOCK.bits().cast_signed();
        loop {
            match OpenOptions::new().write(true).custom_flags(nonblock).open(path) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                file => break file?.write_all_at(new, 0),
            }
        }
    }),
    ("reads and writes", |path, new| {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut all = Vec::new();
        file.read_to_end(&mut all)?;
        all.reverse();
        file.rewind()?;
        file.write_all(&all)?;
        file.write_all_at(&new[..new.len().min(100)], 5000)
    }),
    ("cuts", |path, new| {
        let file = writing(path)?;
        file.set_len(0)?;
        file.set_len(new.len() as u64)?;
        file.write_all_at(&new[new.len() / 2..], new.len() as u64 / 2)
    }),
];

fn writing(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn nap(&mut self, longest: Duration) {
        let micros = u64::try_from(longest.as_micros()).unwrap();
        thread::sleep(Duration::from_micros(self.below(micros)));
    }

    fn size(&mut self) -> usize {
        // Most sites have more small files than large ones.
        let most = [60_000, 300_000, LARGEST][usize::try_from(self.below(3)).unwrap()];
        usize::try_from(SMALLEST + self.below(most - SMALLEST)).unwrap()
    }
}

fn fnv1a64(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Writes until the end; returns how often, and the longest that it took.
fn writer(site: &Site, mapper: &Mapper, number: usize, end: Instant) -> (u64, Duration) {
    let mut random = Random(number as u64 * 77 + 5);
    // One in nine writes through mappings.
    let mut mapper = (number % (CHANGES.len() + 1) == 8).then(|| mapper.start());
    let (what, change) = CHANGES[number % CHANGES.len()];
    let (mut changes, mut longest) = (0, Duration::ZERO);
    while Instant::now() < end {
        let path = site.path(&format!("f{}", random.below(FILES as u64)));
        let new = pattern(random.below(u64::MAX), random.size());
        let start = Instant::now();
        match &mut mapper {
            Some(mapper) => {
                mapper.write_to(&path, char::from(b'a' + u8::try_from(changes % 26).unwrap()));
            }
            None => match change(&path, &new) {
                // Another writer has just removed it.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                done => done.unwrap_or_else(|e| panic!("who {what}: {e}")),
            },
        }
        changes += 1;
        longest = longest.max(start.elapsed());
        random.nap(Duration::from_millis(100));
    }
    (changes, longest)
}

/// Reads a page slowly at first, so that its pieces stay in sockets and in the front for a while.
fn lag(client: &mut Client, random: &mut Random) {
    for _ in 0..random.below(40) {
        client.read_some(16 * 1024);
        random.nap(Duration::from_millis(20));
    }
}

/// Reads pages until the end; returns how many.
fn reader(server: &Server, number: usize, end: Instant) -> u64 {
    let mut random = Random(number as u64 * 99 + 7);
    let is_slow = number % 2 == 1;
    let connect = || match is_slow {
        true => Client::connect_narrow(server.addr(), 16 * 1024),
        false => server.connect(),
    };
    let (mut client, mut pages) = (connect(), 0);
    while Instant::now() < end {
        let way = WAYS[usize::try_from(random.below(4)).unwrap()];
        let file = random.below(FILES as u64);
        client.send(Request::get(&format!("/page.php?f={file}&way={way}")).bytes());
        let head = client.head().unwrap();
        if is_slow {
            lag(&mut client, &mut random);
        }
        let response = client.body_of(head, "GET").expect("a whole page");
        let what = format!("f{file} {way}, {} bytes, slow: {is_slow}", response.body.len());
        assert_eq!(response.status(), 200, "{what}");
        check(way, response.header("X-Saw"), &response.body, &what);
        if response.head.closes() {
            client = connect();
        }
        pages += 1;
    }
    pages
}

fn check(way: &str, saw: Option<&str>, body: &[u8], what: &str) {
    if way == "pieces" {
        let (body, saw) = body.split_at(body.len() - 16);
        assert_eq!(fnv1a64(body).as_bytes(), saw, "{what}: not what the script read");
        return;
    }
    let bodies = if way == "twice" {
        let len = body.len() / 2 - 1;
        assert_eq!((body[0], body[len + 1]), (b'<', b'>'), "{what}");
        vec![&body[1..=len], &body[len + 2..]]
    } else {
        vec![body]
    };
    for body in bodies {
        assert_eq!(Some(&*fnv1a64(body)), saw, "{what}: not what the script saw");
    }
}

fn writers_against_readers(writers: usize, readers: usize, time: Duration) {
    let site = Site::with("page.php", SCRIPT);
    for number in 0..FILES {
        site.write(&format!("f{number}"), pattern(number as u64, 10_000 << (number % 8)));
    }
    let mapper = &Mapper::compile(&site);
    let options = ["--workers", "12", "--threads", "2", "--php-ini", "memory_limit=256M"];
    let server = Server::start(site.root(), &options);
    let workers = server.workers();
    let end = Instant::now() + time;
    let _progress = Progress::new(0, &format!("{writers} writers, {time:?} in all"));
    let (site, on) = (&site, &server);
    let (changes, longest, pages) = thread::scope(|scope| {
        let writers: Vec<_> = (0..writers)
            .map(|number| scope.spawn(move || writer(site, mapper, number, end)))
            .collect();
        let readers: Vec<_> =
            (0..readers).map(|number| scope.spawn(move || reader(on, number, end))).collect();
        let pages: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        let (changes, waits): (Vec<_>, Vec<_>) =
            writers.into_iter().map(|writer| writer.join().unwrap()).unzip();
        (changes.iter().sum::<u64>(), waits.into_iter().max().unwrap(), pages)
    });
    println!("{pages} pages, {changes} changes, the longest of which took {longest:?}");
    assert!(pages > 100 && changes > 100, "{pages} pages, {changes} changes");
    assert!(longest < LONGEST_WAIT, "a writer was held for {longest:?}");
    assert_eq!(server.workers(), workers, "no worker may end:\n{}", server.log());
    for complaint in ["RECALL", "is lost", "ending"] {
        assert!(!server.log().contains(complaint), "{}", server.log());
    }
}

#[test]
fn every_kind_of_writer_for_five_seconds() {
    writers_against_readers(9, 12, Duration::from_secs(5));
}

#[test]
#[ignore = "heavy: make test-heavy; SENDOFF_MINUTES says how long"]
fn every_kind_of_writer_for_minutes() {
    let minutes = std::env::var("SENDOFF_MINUTES").ok().and_then(|text| text.parse().ok());
    writers_against_readers(24, 32, Duration::from_secs_f64(60.0 * minutes.unwrap_or(2.5)));
}
