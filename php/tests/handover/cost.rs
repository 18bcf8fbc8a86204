//! Cost of a response for the worker: the figures of docs/zero-copy.md. Not part of `make test`:
//! figures are no assertions.
//!
//! `cargo test --release -p sendoff-php --test handover -- cost --ignored --nocapture`; `COST=word`
//! selects the rows that contain it, `SIZE`, `ROUNDS` and `JIT=1` change the rest.

use std::fs;

use crate::common::TempDir;
use crate::common::fpm::Fpm;
use crate::common::front::Front;
use crate::common::link::Request;
use crate::common::master::Master;
use crate::common::site::content;

/// Name and program of each row: `$d` is the folder, `$f` the path of the file, `$h` the open file,
/// `$out` php://output.
const SENDING: &[(&str, &str)] = &[
    ("echo fread 8192", "while (!feof($h)) echo fread($h, 8192);"),
    ("echo fread 16384", "while (!feof($h)) echo fread($h, 16384);"),
    ("echo fread 4096", "while (!feof($h)) echo fread($h, 4096);"),
    ("echo fread 1024", "while (!feof($h)) echo fread($h, 1024);"),
    ("echo fread 100000", "while (!feof($h)) echo fread($h, 100000);"),
    ("fwrite fread 16384", "while (!feof($h)) fwrite($out, fread($h, 16384));"),
    ("data fread 8192", "while (!feof($h)) { $data = fread($h, 8192); echo $data; }"),
    (
        "symfony 16384",
        "while ('' !== $data = fread($h, 16384)) { $n = fwrite($out, $data); if ($n === false || connection_aborted()) break; }",
    ),
    ("spl 8192", "$o = new SplFileObject($f); while (!$o->eof()) echo $o->fread(8192);"),
    ("concat", "echo '<head>' . file_get_contents($f) . '<foot>';"),
    ("rope", "$s = file_get_contents($f); echo \"<head>$s<foot>\";"),
    (
        "buffer with head",
        "ob_start(); echo '<head>', file_get_contents($f), '<foot>'; ob_end_flush();",
    ),
    ("substr middle", "echo substr(file_get_contents($f), 1000, -1000);"),
];

/// Programs that read a file but do not send it.
const EAGER: &[(&str, &str)] = &[
    ("eager md5", "$n = 0; while (!feof($h)) $n += strlen(md5(fread($h, 8192))); echo $n;"),
    (
        "eager hash_update",
        "$c = hash_init('crc32b'); while (!feof($h)) hash_update($c, fread($h, 8192)); echo hash_final($c);",
    ),
    (
        "eager strlen",
        "$n = 0; while (!feof($h)) { $s = fread($h, 8192); $n += strlen($s); } echo $n;",
    ),
    ("eager append", "$s = ''; while (!feof($h)) $s .= fread($h, 8192); echo strlen($s);"),
    (
        "eager spl",
        "$n = 0; $o = new SplFileObject($f); while (!$o->eof()) $n += strlen($o->fread(8192)); echo $n;",
    ),
    (
        "eager substr",
        "$n = 0; for ($i = 0; $i < 20000; $i++) $n += strlen(substr('some text', 2, 5)); echo $n;",
    ),
];

/// Nanoseconds of processor time that the first thread of a process has used.
fn spent(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// The minimum of several runs, in microseconds per response: load of other processes only adds to
/// it.
fn cost(pid: i32, rounds: u32, mut ask: impl FnMut()) -> u64 {
    (0..5).for_each(|_| ask());
    let runs = (0..5).map(|_| {
        let before = spent(pid);
        (0..rounds).for_each(|_| ask());
        (spent(pid) - before) / u64::from(rounds) / 1000
    });
    runs.min().unwrap()
}

#[test]
#[ignore = "measures"]
fn worker_time_per_response() {
    let size = std::env::var("SIZE").map_or(1_000_000, |size| size.parse().unwrap());
    let rounds =
        std::env::var("ROUNDS").map_or(20_000_000 / size, |rounds| rounds.parse().unwrap());
    let rounds = u32::try_from(rounds).unwrap().max(2);
    let only = std::env::var("COST").unwrap_or_default();
    let jit = std::env::var("JIT").is_ok();
    // A new script would be compiled for every request.
    let mut settings =
        vec!["output_buffering=4096", "memory_limit=512M", "opcache.file_update_protection=0"];
    if jit {
        settings.extend(["opcache.jit=tracing", "opcache.jit_buffer_size=32M"]);
    }
    let options: Vec<_> = settings.iter().flat_map(|setting| ["--php-ini", setting]).collect();
    let off = [&options[..], &["--php-ini", "sendoff.threshold=0"]].concat();
    let (lazy, plain, fpm) = (Master::start(&options), Master::start(&off), Fpm::start(&settings));
    let fpm_worker = fpm.worker();
    let dir = TempDir::new();
    fs::write(dir.path().join("file"), content("a", size)).unwrap();
    let mut fronts = [&lazy, &plain].map(|master| {
        let worker = master.worker();
        (worker.pid.as_raw_nonzero().get(), Front::new(worker))
    });
    let pids = [fronts[0].0, fronts[1].0, fpm_worker];
    println!(
        "worker time per response of {size} bytes in us: lazy, off, php-fpm (processes {pids:?})"
    );
    for (name, code) in SENDING.iter().chain(EAGER).filter(|(name, _)| name.contains(&only)) {
        let script = dir.file(&format!("{}.php", name.replace(' ', "-")));
        let open = "$d = __DIR__; $f = \"$d/file\"; $h = fopen($f, 'rb'); $out = fopen('php://output', 'wb');";
        fs::write(&script, format!("<?php {open} {code}")).unwrap();
        let request = Request::new(&script);
        let [lazy, off] =
            fronts.each_mut().map(|(pid, front)| cost(*pid, rounds, || drop(front.ask(&request))));
        let fpm = cost(fpm_worker, rounds, || drop(fpm.ask(&request)));
        println!("{name:20} {lazy:6} {off:6} {fpm:6}");
    }
}
