//! From the command line to the resolved configuration.

use std::path::{Path, PathBuf};

use sendoff_config::{
    Accel, AccessLog, Attachment, Bounds, Config, Delivery, FrontConfig, Limits, Listener,
    LogFormat, LogTarget, MAX_THREADS, PoolConfig, Site, Timeouts, TrustedProxies, Variable,
    Workers,
};

use crate::account;
use crate::failure::Failure;
use crate::options::{Serve, Snapshot, WorkerCount};

/// With `--workers auto`, workers for each core that are kept while no request comes.
const FEWEST_PER_CORE: usize = 2;
/// With `--workers auto`, bytes of the machine's memory for each worker that may exist. A forked worker shares most of
/// its memory; what frameworks allocate in a request is 10 to 40 MB, and PHP should not take more than a quarter.
const MEMORY_PER_WORKER: u64 = 4 * 32 * 1024 * 1024;
const MOST_WORKERS: usize = 256;

/// The environment variable with the filter for the log.
const LOG: &str = "SENDOFF_LOG";
const LOG_DEFAULT: &str = "info";

/// The filter for the log, which the supervisor reads for all its processes.
pub(crate) fn log_filter() -> String {
    std::env::var(LOG).unwrap_or_else(|_| LOG_DEFAULT.to_owned())
}

/// Resolves the command line: fills in what depends on the machine, and checks the files and users that it names.
///
/// # Errors
/// Something that the command line names does not exist or cannot be used.
pub(crate) fn configure(serve: Serve, log: String) -> Result<Config, Failure> {
    let root = folder(&serve.root)?;
    if let Some(setting) = serve.php_ini.iter().find(|setting| !setting.contains('=')) {
        return Err(Failure::Input(format!("--php-ini {setting}: expected KEY=VALUE")));
    }
    let mut trusted_proxies =
        TrustedProxies { fields: serve.proxy_field.into(), ..TrustedProxies::default() };
    for text in &serve.trust_proxy {
        let added = trusted_proxies.add(text);
        added.map_err(|why| Failure::Input(format!("--trust-proxy {text}: {why}")))?;
    }
    let account = account::choose(serve.user.as_deref(), &root)?;
    let access_log = match serve.access_log {
        Some(path) if path == Path::new("-") => Some(LogTarget::Stdout),
        Some(path) => Some(LogTarget::File(absolute(&path)?)),
        None => None,
    };
    let format = serve.access_log_format;
    let request_ids =
        serve.request_id || format != LogFormat::json() && format.has(Variable::RequestId);
    let access_log = access_log.map(|to| AccessLog { to, format });
    let front = FrontConfig {
        threads: serve.threads.unwrap_or_else(|| u8::try_from(cores()).unwrap_or(1)),
        access_log,
        request_ids,
        timeouts: Timeouts {
            head: serve.head_timeout,
            body: serve.body_timeout,
            idle: serve.idle_timeout,
            send: serve.send_timeout,
        },
        limits: Limits { max_body: serve.max_body },
    };
    let replaced = serve.fastcgi.iter().any(Attachment::replaces_workers);
    let pool = (!replaced).then(|| PoolConfig {
        name: "default".to_owned(),
        workers: match serve.workers {
            WorkerCount::Fixed(count) => Workers::Fixed(count),
            WorkerCount::Auto => Workers::Auto(bounds(serve.worker_idle_timeout)),
        },
        php_ini: serve.php_ini,
        max_requests: serve.max_requests,
        request_timeout: Some(serve.request_timeout).filter(|timeout| !timeout.is_zero()),
        snapshot: serve.snapshot.into(),
    });
    let mut accel = Vec::new();
    for Accel { prefix, folder: path } in serve.accel {
        accel.push(Accel { prefix, folder: folder(&path)? });
    }
    accel.sort_by_key(|accel| std::cmp::Reverse(accel.prefix.len()));
    let delivery = Delivery::from(serve.delivery);
    let site = Site {
        follow: serve
            .follow_symlinks_into
            .iter()
            .map(|path| absolute(path))
            .collect::<Result<_, _>>()?,
        fastcgi: serve.fastcgi,
        fastcgi_timeout: serve.fastcgi_timeout,
        sendfile_from: serve
            .sendfile_from
            .iter()
            .map(|path| folder(path))
            .collect::<Result<_, _>>()?,
        accel,
        delivery,
        channel: delivery.accepts_files() && serve.snapshot == Snapshot::Lease,
        pool: pool.as_ref().map(|_| 0),
        listeners: (0..serve.listen.len()).collect(),
        ..Site::new(root)
    };
    let listener = |address| Listener { address, proxy_protocol: serve.proxy_protocol };
    Ok(Config {
        log,
        listen: serve.listen.into_iter().map(listener).collect(),
        trusted_proxies,
        account,
        shutdown_timeout: serve.shutdown_timeout,
        front,
        sites: vec![site],
        pools: pool.into_iter().collect(),
    })
}

/// A folder that must exist, without symbolic links.
fn folder(path: &Path) -> Result<PathBuf, Failure> {
    let path = path.canonicalize().map_err(Failure::input(path.display()))?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(Failure::Input(format!("{} is not a folder", path.display())))
    }
}

/// A path that need not lead anywhere yet.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(Failure::input(path.display()))
}

/// Between which numbers of workers `--workers auto` chooses on this machine.
fn bounds(idle: std::time::Duration) -> Bounds {
    let min = FEWEST_PER_CORE * cores();
    let memory = rustix::system::sysinfo();
    let by_memory = memory.totalram / MEMORY_PER_WORKER * u64::from(memory.mem_unit.max(1));
    let by_memory = usize::try_from(by_memory).unwrap_or(usize::MAX);
    Bounds { min, max: by_memory.min(MOST_WORKERS).max(min), idle }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS.into()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::options::{Command, Options};

    fn config(options: &[&str]) -> Result<Config, Failure> {
        let line = ["sendoff", "serve", "/"].iter().chain(options);
        let Command::Serve(serve) = Options::try_parse_from(line).unwrap().command else {
            panic!("expected serve")
        };
        configure(*serve, LOG_DEFAULT.to_owned())
    }

    #[test]
    fn without_options_every_value_has_its_default() {
        let config = config(&[]).unwrap();
        assert_eq!(config.shutdown_timeout, Duration::from_secs(30));
        assert_eq!(config.front.limits.max_body, 1 << 30);
        let seconds = |n| Duration::from_secs(n);
        let timeouts = config.front.timeouts;
        assert_eq!((timeouts.head, timeouts.body), (seconds(30), seconds(60)));
        assert_eq!((timeouts.idle, timeouts.send), (seconds(75), seconds(60)));
        let pool = &config.pools[config.sites[0].pool.unwrap()];
        assert_eq!(pool.request_timeout, Some(seconds(300)));
        let bounds = pool.bounds().unwrap();
        assert!(
            bounds.min == 2 * cores() && bounds.max >= bounds.min && bounds.idle == seconds(30)
        );
        assert_eq!(config.sites.len(), 1);
    }

    #[test]
    fn workers_are_there_unless_an_application_takes_all_their_requests() {
        assert_eq!(config(&["--workers", "3"]).unwrap().pools[0].first_workers(), 3);
        for (attached, workers) in
            [(".php=unix:/x", 0), ("/=unix:/x", 0), (".pl=unix:/x", 4), ("/a=unix:/x", 4)]
        {
            let config = config(&["--workers", "4", "--fastcgi", attached]).unwrap();
            let found = config.pools.first().map_or(0, PoolConfig::first_workers);
            assert_eq!(found, workers, "{attached}");
            assert_eq!(config.sites[0].pool.is_some(), workers > 0, "{attached}");
        }
    }

    #[test]
    fn times_and_sizes_take_units_and_zero_means_no_deadline() {
        let options = ["--request-timeout", "0", "--head-timeout", "500ms", "--max-body", "64M"];
        let config = config(&options).unwrap();
        assert_eq!(config.pools[0].request_timeout, None);
        assert_eq!(config.front.timeouts.head, Duration::from_millis(500));
        assert_eq!(config.front.limits.max_body, 64 << 20);
    }

    #[test]
    fn the_longest_prefix_of_uris_comes_first_and_folders_must_exist() {
        let accel = config(&["--accel", "/a=/", "--accel", "/a/b=/proc/self/.."]).unwrap();
        let accel = &accel.sites[0].accel;
        assert_eq!((&*accel[0].prefix, &*accel[0].folder), ("/a/b", Path::new("/proc")));
        for missing in [["--accel", "/a=/nowhere"], ["--sendfile-from", "/proc/version"]] {
            assert!(matches!(config(&missing), Err(Failure::Input(_))), "{missing:?}");
        }
    }
}
