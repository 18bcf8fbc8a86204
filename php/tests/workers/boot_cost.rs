//! Cost of hello in worker mode and in ordinary mode. Not part of `make test`: figures are no
//! assertions.
//!
//! `cargo test --release -p sendoff-php --test workers -- boot_cost --ignored --nocapture` prints CPU time
//! per request, as the kernel counts it, and the process id for a profiler.

use std::fs;

use crate::common::TempDir;
use crate::common::link::Request;
use crate::common::master::Master;

/// Nanoseconds of CPU time that a process has used.
fn spent(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "it prints figures"]
fn hello() {
    let rounds: u32 = std::env::var("ROUNDS").map_or(20_000, |rounds| rounds.parse().unwrap());
    let dir = TempDir::new();
    fs::write(dir.file("hello.php"), "<?php echo \"hello\\n\";").unwrap();
    let worker = "<?php $h = static function () { echo \"hello\\n\"; }; while (sendoff_handle_request($h)) {}";
    fs::write(dir.file("worker.php"), worker).unwrap();
    let path = dir.file("worker.php");
    for (name, options, script) in [
        ("ordinary", vec![], dir.file("hello.php")),
        ("worker", vec!["--worker-script", &path], path.clone()),
        ("ordinary", vec![], dir.file("hello.php")),
        ("worker", vec!["--worker-script", &path], path.clone()),
    ] {
        let master = Master::start(&options);
        let mut worker = master.worker();
        let pid = worker.pid.as_raw_nonzero().get();
        let request = Request::new(&script);
        for _ in 0..500 {
            assert_eq!(worker.link().ask(&request).body(), "hello\n");
        }
        let before = spent(pid);
        for _ in 0..rounds {
            worker.link().ask(&request);
        }
        let each = (spent(pid) - before) / u64::from(rounds);
        println!("{name}: process {pid}, {each} ns of CPU per request");
    }
}
