//! A folder with files, and a worker that runs scripts on them.

use std::fs;
use std::path::Path;

use super::TempDir;
use super::fpm::Fpm;
use super::front::{Front, Piece};
use super::link::Request;
use super::master::Master;

/// Settings that change the path of the output.
pub const SETTINGS: [&str; 2] = ["output_buffering=0", "output_buffering=4096"];
/// The default of `sendoff.threshold`.
pub const THRESHOLD: usize = 16_384;

pub fn bytes(text: &str) -> Piece {
    Piece::Bytes(text.as_bytes().to_vec())
}

/// Text of this length, different for each seed.
pub fn content(seed: &str, len: usize) -> Vec<u8> {
    seed.bytes().chain(*b" and on, ").cycle().take(len).collect()
}

/// A script, its files, and a worker that runs it.
pub struct Site {
    pub dir: TempDir,
    _master: Master,
    pub front: Front,
}

impl Site {
    pub fn new(setting: &str) -> Self {
        let master = Master::start(&["--php-ini", setting]);
        let front = Front::new(master.worker());
        Self { dir: TempDir::new(), _master: master, front }
    }

    pub fn file(&self, name: &str, content: &[u8]) {
        fs::write(self.dir.path().join(name), content).unwrap();
    }

    /// Writes the script; `$d` is its folder.
    pub fn script(&self, code: &str) -> Request {
        self.file("index.php", format!("<?php $d = __DIR__; {code}").as_bytes());
        // opcache must not answer with an earlier script of this name.
        Request::new(&self.dir.file("index.php"))
    }

    pub fn ask(&mut self, code: &str) -> Vec<Piece> {
        // Each script has a new name: opcache checks a file's time only once in two seconds.
        let name = format!(
            "script-{:x}.php",
            code.bytes().fold(7u64, |h, b| h.wrapping_mul(31) + u64::from(b))
        );
        self.file(&name, format!("<?php $d = __DIR__; {code}").as_bytes());
        self.front.ask(&Request::new(&self.dir.file(&name)))
    }
}

/// Runs a program of tests/lazy on a worker and on php-fpm, each in its own folder, and compares
/// the answers.
pub fn same_as_fpm(program: &str, rounds: u32) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lazy").join(program);
    let request = Request::new(program.to_str().unwrap());
    for setting in [SETTINGS[0], SETTINGS[1], "output_buffering=On"] {
        let settings =
            [setting, "memory_limit=512M", "opcache.jit=tracing", "opcache.jit_buffer_size=32M"];
        let options: Vec<_> = settings.iter().flat_map(|setting| ["--php-ini", setting]).collect();
        let master = Master::start(&options);
        let mut front = Front::new(master.worker());
        let fpm = Fpm::start(&settings);
        let kept = TempDir::new();
        for seed in 0..rounds {
            let request = request.clone().with("LAZY_SEED", &seed.to_string());
            let (ours, theirs) = (TempDir::new(), TempDir::new());
            let request = request.with("LAZY_KEPT", kept.path().to_str().unwrap());
            let body = front.body(&request.clone().with("LAZY_DIR", ours.path().to_str().unwrap()));
            let fpm = fpm.ask(&request.with("LAZY_DIR", theirs.path().to_str().unwrap()));
            let end = fpm.stdout.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            let theirs = &fpm.stdout[end..];
            if body != theirs {
                let at = body.iter().zip(theirs).take_while(|(a, b)| a == b).count();
                let around = |all: &[u8]| {
                    let end = all.len().min(at + 80);
                    String::from_utf8_lossy(&all[at.saturating_sub(40).min(end)..end]).into_owned()
                };
                let (ours, theirs) = (around(&body), around(theirs));
                panic!("{setting}, seed {seed}, at {at}:\nours {ours}\nfpm  {theirs}");
            }
        }
    }
}
