//! The front process: takes what the supervisor left it, gives up privileges, serves.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Gid, Resource, Rlimit, Signal, Uid};
use rustix::thread::CapabilitySet;
use sendoff_server::front::Front;
use sendoff_server::observe::explain::{SECRET_LEN, Secret};
use sendoff_server::settings::{Direct, Settings};
use sendoff_sys::process::{become_user, keep_freed_memory, take_inherited};
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;
use crate::options::{Delivery, Inherited, Serve, Snapshot};

/// Buffers of responses come and go. Without this a relayed body of 1 MB cost one `brk` and some 25 page faults.
/// How long responses may take to end after the order to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

const KEPT_MEMORY: u32 = 16 << 20;

pub(crate) fn run(serve: Serve, inherited: &Inherited) -> Result<(), Failure> {
    keep_freed_memory(KEPT_MEMORY);
    let supervisor = rustix::process::getppid();
    let take =
        |number| take_inherited(number).map_err(Failure::context(format!("descriptor {number}")));
    let mut listeners = Vec::new();
    for numbers in inherited.listeners.split(';') {
        let mut of_loop = Vec::new();
        for number in numbers.split(',') {
            let number = number
                .parse()
                .map_err(|_| Failure("--listeners is for sendoff serve".to_owned()))?;
            of_loop.push(TcpListener::from(take(number)?));
        }
        listeners.push(of_loop);
    }
    let pool_socket = take(inherited.pool_fd)?;
    let ready = take(inherited.ready_fd)?;
    let explain = inherited.explain_fd.map(take).transpose()?.map(read_secret);
    raise_descriptor_limit();
    // Log folders belong to root.
    let access_log = serve.access_log.as_deref().map(open_log).transpose()?;
    if let Some((uid, gid)) = inherited.uid.zip(inherited.gid) {
        become_user(Uid::from_raw(uid), Gid::from_raw(gid), CapabilitySet::empty())
            .map_err(Failure::context(format!("cannot become user {uid}")))?;
    }
    die_with(supervisor)?;
    let workers = serve.needed_workers();
    let settings = Settings { explain: explain.flatten(), ..settings(serve, access_log) };
    let front = Front { settings, listeners, pool_socket, workers };
    let announce = move || {
        // Nobody listens any more once the supervisor has heard it.
        let _ = rustix::io::write(&ready, b"r");
    };
    front.run(announce, told_to_stop()).map_err(Failure::context("the front stops"))
}

fn settings(serve: Serve, access_log: Option<File>) -> Settings {
    let workers = serve.worker_bounds();
    Settings {
        root: serve.root.canonicalize().unwrap_or(serve.root),
        follow: serve.follow_symlinks_into,
        accept_files: serve.delivery != Delivery::Relay,
        accept_regions: matches!(
            serve.delivery,
            Delivery::Auto | Delivery::Direct | Delivery::Region
        ),
        direct: match serve.delivery {
            Delivery::Auto => Direct::Auto,
            Delivery::Direct => Direct::Always,
            Delivery::File | Delivery::Region | Delivery::Relay => Direct::Never,
        },
        channel: serve.delivery != Delivery::Relay && serve.snapshot == Snapshot::Lease,
        workers,
        fastcgi: serve.fastcgi,
        fastcgi_timeout: serve.fastcgi_timeout,
        sendfile_from: serve.sendfile_from,
        accel: serve.accel,
        max_body: serve.max_body,
        head_timeout: serve.head_timeout,
        body_timeout: serve.body_timeout,
        idle_timeout: serve.idle_timeout,
        send_timeout: serve.send_timeout,
        shutdown_timeout: SHUTDOWN_TIMEOUT,
        access_log: access_log.map(Arc::new),
        explain: None,
    }
}

/// A front that is started again reads it again, so the place to read from is the file's, not the descriptor's.
fn read_secret(file: OwnedFd) -> Option<Arc<Secret>> {
    let mut text = [0; SECRET_LEN];
    let read = File::from(file).read_at(&mut text, 0).ok()?;
    Secret::new(&text[..read]).map(Arc::new)
}

/// `-` is standard output.
fn open_log(path: &Path) -> Result<File, Failure> {
    if path == Path::new("-") {
        let stdout = rustix::stdio::stdout().try_clone_to_owned();
        return stdout.map(File::from).map_err(Failure::context("--access-log -"));
    }
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(Failure::context(format!("--access-log {}", path.display())))
}

/// Stops when the supervisor dies. After the change of user, which would undo it.
fn die_with(supervisor: Option<rustix::process::Pid>) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Failure(format!("cannot tie its life to the supervisor's: {error}")))?;
    if rustix::process::getppid() == supervisor {
        Ok(())
    } else {
        Err(Failure("the supervisor is gone".to_owned()))
    }
}

/// A connection is a descriptor, so is a file on its way: take as many as we may have.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays where it is");
    }
}

async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be handled");
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
