//! The allocations of a server's front, which a preloaded library counts.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use sendoff_tests::{Server, Site, dies_with_us};

/// The counters of one front (`helpers/allocations.c`).
pub(crate) struct Allocations(File);

impl Allocations {
    /// Starts a server with this configuration and number of workers.
    pub(crate) fn of_server(site: &Site, config: &Path, workers: usize) -> (Server, Self) {
        let library = site.outside("allocations.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("helpers/allocations.c");
        compile(&source, &library, &["-shared", "-fPIC"]);
        let path = site.write_at(site.outside("allocations"), [0; 16]);
        let counters = File::options().read(true).write(true).open(&path).unwrap();
        let mut command = dies_with_us(Path::new("env"), "KILL");
        command.arg(format!("LD_PRELOAD={}", library.display()));
        command.arg(format!("ALLOCATIONS_FILE={}", path.display()));
        let server = Server::try_run_by(command, config, site.root(), workers);
        (server.unwrap_or_else(|failed| panic!("{failed:#?}")), Self(counters))
    }

    /// The number of allocations so far.
    pub(crate) fn made(&self) -> u64 {
        self.read(0)
    }

    /// The bytes that are allocated now.
    pub(crate) fn held(&self) -> u64 {
        self.read(8)
    }

    fn read(&self, offset: u64) -> u64 {
        let mut count = [0; 8];
        self.0.read_exact_at(&mut count, offset).unwrap();
        u64::from_ne_bytes(count)
    }
}

/// Compiles a C program or library of the tests.
pub(crate) fn compile(source: &Path, output: &Path, options: &[&str]) {
    let mut compiler = Command::new("cc");
    compiler.args(options).args(["-O1", "-o"]).arg(output).arg(source);
    assert!(compiler.status().unwrap().success());
}
