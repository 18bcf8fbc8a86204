//! The command line.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sendoff_server::settings::{Attachment, needs_workers};
use sendoff_server::upstream::Bounds;

/// With `--workers auto`, workers for each core that are kept though nobody needs them.
const FEWEST_PER_CORE: usize = 2;
/// With `--workers auto`, bytes of the machine's memory for each worker that may exist. A forked worker shares most of
/// its memory; what frameworks allocate in a request is 10 to 40 MB, and PHP should not take more than a quarter.
const MEMORY_PER_WORKER: u64 = 4 * 32 * 1024 * 1024;
const MOST_WORKERS: usize = 256;

/// Sends pages from PHP without the copies.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a folder: static files and PHP. Needs no configuration.
    Serve(Serve),
    /// The process that speaks HTTP; `serve` starts it.
    #[command(hide = true)]
    Front {
        #[command(flatten)]
        serve: Serve,
        #[command(flatten)]
        inherited: Inherited,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    /// The site.
    #[arg(default_value = ".")]
    pub(crate) root: PathBuf,
    /// Address to listen on; port 0 picks a free one. May be repeated.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Event loops that speak HTTP [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) threads: Option<u8>,
    /// PHP workers: requests that scripts work on at the same time. `auto`: as many as requests need that would wait
    /// otherwise, while there is memory and the processors have time.
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub(crate) workers: Workers,
    /// Seconds after which `--workers auto` ends workers that nobody needed.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) worker_idle_timeout: Duration,
    /// User to run as, if started by root [default: the owner of ROOT]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// PHP setting on top of php.ini, as `memory_limit=256M`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) php_ini: Vec<String>,
    /// Requests after which a worker is replaced; 0: never.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_requests: u64,
    /// How responses leave the workers: files by themselves, or everything copied through the link.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Delivery::Auto)]
    pub(crate) delivery: Delivery,
    /// What keeps a file as the script read it until it is sent: a lease on the file, or a copy.
    #[arg(long, value_enum, default_value_t = Snapshot::Lease)]
    pub(crate) snapshot: Snapshot,
    /// FastCGI application that answers instead of the workers: `.php=unix:/run/php/php8.2-fpm.sock` for all such files,
    /// `/app=tcp:127.0.0.1:9000` for everything beneath a path. May be repeated.
    #[arg(long, value_name = "MATCH=ADDRESS")]
    pub(crate) fastcgi: Vec<Attachment>,
    /// Seconds a FastCGI application may be silent while it has a request.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) fastcgi_timeout: Duration,
    /// Folder outside ROOT whose files applications may name in X-Sendfile. May be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) sendfile_from: Vec<PathBuf>,
    /// What URIs that begin with PREFIX mean in X-Accel-Redirect [default: files beneath ROOT]. May be repeated.
    #[arg(long, value_name = "/PREFIX=DIR", value_parser = accel)]
    pub(crate) accel: Vec<(String, PathBuf)>,
    /// Where the access log goes; `-` is standard output [default: nowhere]
    #[arg(long, value_name = "PATH|-")]
    pub(crate) access_log: Option<PathBuf>,
    /// Folder outside ROOT that symbolic links may lead to. May be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) follow_symlinks_into: Vec<PathBuf>,
    /// Largest request body, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub(crate) max_body: u64,
    /// Seconds a request head may take.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) head_timeout: Duration,
    /// Seconds a client may pause within a request body.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) body_timeout: Duration,
    /// Seconds a connection may wait for a request.
    #[arg(long, value_name = "SECONDS", default_value = "75", value_parser = seconds)]
    pub(crate) idle_timeout: Duration,
    /// Seconds a client may take nothing of its response.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) send_timeout: Duration,
}

impl Serve {
    /// The PHP workers to start: none if nothing would reach them.
    pub(crate) fn needed_workers(&self) -> usize {
        match self.workers {
            _ if !needs_workers(&self.fastcgi) => 0,
            Workers::Fixed(count) => count.into(),
            Workers::Auto => FEWEST_PER_CORE * cores(),
        }
    }

    /// Between which numbers of workers the front may choose, if that is its choice.
    pub(crate) fn worker_bounds(&self) -> Option<Bounds> {
        let min = self.needed_workers();
        let by_memory = || {
            let memory = rustix::system::sysinfo();
            let workers = memory.totalram / MEMORY_PER_WORKER * u64::from(memory.mem_unit.max(1));
            usize::try_from(workers).unwrap_or(usize::MAX)
        };
        (min > 0 && self.workers == Workers::Auto).then(|| Bounds {
            min,
            max: by_memory().min(MOST_WORKERS).max(min),
            idle: self.worker_idle_timeout,
        })
    }

    pub(crate) fn threads(&self) -> u8 {
        self.threads.unwrap_or_else(|| u8::try_from(cores()).unwrap_or(1))
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(64))
}

/// How many PHP workers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workers {
    Fixed(u16),
    Auto,
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count @ 1..=1024) => Ok(Self::Fixed(count)),
            _ if text == "auto" => Ok(Self::Auto),
            _ => Err("neither a number from 1 to 1024 nor auto".to_owned()),
        }
    }
}

/// Descriptors and facts that the supervisor leaves to the front.
#[derive(Debug, Clone, Args)]
pub(crate) struct Inherited {
    /// Listeners: a list for each event loop, loops separated by `;`.
    #[arg(long)]
    pub(crate) listeners: String,
    #[arg(long)]
    pub(crate) pool_fd: RawFd,
    #[arg(long)]
    pub(crate) ready_fd: RawFd,
    #[arg(long, requires = "gid")]
    pub(crate) uid: Option<u32>,
    #[arg(long, requires = "uid")]
    pub(crate) gid: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    /// Whatever is cheapest.
    Auto,
    /// Files are handed over, other bytes pass through the link.
    File,
    /// Every byte passes through the link.
    Relay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Snapshot {
    Lease,
    Copy,
}

fn accel(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((prefix, folder)) if prefix.starts_with('/') && !folder.is_empty() => {
            Ok((prefix.to_owned(), folder.into()))
        }
        _ => Err("expected /PREFIX=DIR".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_the_documented_options_are_there() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        let options = Options::try_parse_from([
            "sendoff",
            "serve",
            "/srv",
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "[::1]:80",
            "--threads",
            "2",
            "--workers",
            "3",
            "--user",
            "www-data",
            "--php-ini",
            "a=b",
            "--delivery",
            "auto",
            "--snapshot",
            "copy",
            "--fastcgi",
            "/app/=tcp:localhost:9000",
            "--sendfile-from",
            "/var/lib/app",
            "--accel",
            "/files=/var/lib/app",
            "--access-log",
            "-",
            "--head-timeout",
            "0.5",
        ]);
        let Command::Serve(serve) = options.unwrap().command else { panic!("expected serve") };
        assert_eq!((serve.listen.len(), serve.workers, serve.threads()), (2, Workers::Fixed(3), 2));
        assert_eq!(serve.head_timeout, Duration::from_millis(500));
        assert_eq!((serve.needed_workers(), serve.worker_bounds()), (3, None));
        for (attached, workers) in
            [(".php=unix:/x", 0), ("/=unix:/x", 0), (".pl=unix:/x", 4), ("/a=unix:/x", 4)]
        {
            let options = ["sendoff", "serve", "--workers", "4", "--fastcgi", attached];
            let options = Options::try_parse_from(options);
            let Command::Serve(serve) = options.unwrap().command else { panic!("expected serve") };
            assert_eq!(serve.needed_workers(), workers, "{attached}");
        }
        for bad in [
            ["--workers", "0"],
            ["--workers", "1025"],
            ["--workers", "many"],
            ["--listen", "nowhere"],
            ["--idle-timeout", "0"],
            ["--delivery", "pigeon"],
            ["--fastcgi", "php=unix:/x"],
            ["--fastcgi", ".=unix:/x"],
            ["--fastcgi", ".php=9000"],
            ["--fastcgi", "/app"],
            ["--accel", "files=/x"],
        ] {
            assert!(
                Options::try_parse_from(["sendoff", "serve"].iter().chain(&bad)).is_err(),
                "{bad:?}"
            );
        }
    }
}
