//! The allocations and system calls of the front for one request on a kept connection. They are the
//! same on every machine, and grow easily without anybody noticing.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sendoff_tests::{Request, Server, Site};

use crate::allocations::{Allocations, compile};

const CONFIG: &str = "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n\
    [[pool]]\nworkers = 2\n\
    [[site]]\nroot = 'root'\n\
    [[site.route]]\npath = '/kept.php'\npage_cache = '1h'\n";

/// Requests between two looks at the counters.
const REQUESTS: u64 = 50;

/// Work that the event loop does by the clock falls into some rounds; the cheapest round has least
/// of it.
const ROUNDS: usize = 3;

/// The cost of one request.
#[derive(Debug)]
struct Cost {
    allocations: u64,
    calls: u64,
}

/// A server whose front counts its allocations.
struct Counted {
    server: Server,
    allocations: Allocations,
    steps: PathBuf,
}

impl Counted {
    fn start(site: &Site) -> Self {
        let steps = site.outside("steps");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        compile(&folder.join("../tools/steps.c"), &steps, &[]);
        let config = site.write_at(site.outside("sendoff.toml"), CONFIG);
        let (server, allocations) = Allocations::of_server(site, &config, 2);
        Self { server, allocations, steps }
    }

    /// The cost of a request for `target`, to the nearest whole number.
    fn cost(&self, target: &str) -> Cost {
        let mut client = self.server.connect();
        let mut ask = |times| {
            for _ in 0..times {
                client.ask(&Request::get(target)).expect(200);
            }
        };
        ask(REQUESTS);
        let rounds = (0..ROUNDS).map(|_| {
            let before = self.allocations.made();
            ask(REQUESTS);
            let allocations = self.allocations.made() - before;
            (allocations, self.calls(|| ask(REQUESTS)))
        });
        let (allocations, calls): (Vec<_>, Vec<_>) = rounds.unzip();
        let each = |counts: Vec<u64>| (counts.into_iter().min().unwrap() + REQUESTS / 2) / REQUESTS;
        Cost { allocations: each(allocations), calls: each(calls) }
    }

    /// The system calls of the front while `what` happens.
    fn calls(&self, what: impl FnOnce()) -> u64 {
        let mut steps = Command::new(&self.steps)
            .arg("--calls")
            .arg(self.server.front().to_string())
            .args(["sh", "-c", "echo begun; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(steps.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n", "the front can be traced");
        what();
        drop(steps.stdin.take());
        let mut counts = String::new();
        output.read_to_string(&mut counts).unwrap();
        assert!(steps.wait().unwrap().success());
        let total = counts.lines().find_map(|line| line.strip_prefix("total 0 "));
        total.unwrap().parse().unwrap()
    }
}

/// Each limit is the cost when it was written down, and one more.
#[test]
fn requests_cost_as_little_as_ever() {
    let site = Site::new();
    site.write("ok.php", "<?php echo 'ok';");
    site.write("10k", [b'x'; 10_240]);
    site.write("kept.php", "<?php echo str_repeat('kept page ', 200);");
    let counted = Counted::start(&site);
    let rows = [
        ("/10k", Cost { allocations: 13, calls: 7 }),
        ("/ok.php", Cost { allocations: 27, calls: 9 }),
        ("/kept.php", Cost { allocations: 31, calls: 11 }),
    ];
    let mut grown = Vec::new();
    for (target, limit) in rows {
        let cost = counted.cost(target);
        println!("{target}: {cost:?}");
        if cost.allocations > limit.allocations || cost.calls > limit.calls {
            grown.push(format!("{target}: {cost:?}, the limit is {limit:?}"));
        }
    }
    assert!(
        grown.is_empty(),
        "a request costs the front more than before:\n{}\n`tools/instructions --profile` shows who allocates and which system calls \
         are made (SENDOFF=target/quick/sendoff measures this build)",
        grown.join("\n")
    );
}
