//! The parent process: opens listeners, keeps the front and the PHP master running, ends them.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::children::{self, Recipe};
use crate::explain::Door;
use crate::options::Serve;
use crate::{Failure, account};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// A child that lived shorter than this is started again with a pause, which doubles each time.
const SHORT_LIFE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) fn run(serve: &Serve) -> Result<(), Failure> {
    let root = serve.root.canonicalize().map_err(Failure::context(serve.root.display()))?;
    if !root.is_dir() {
        return Err(Failure(format!("{} is not a folder", root.display())));
    }
    if let Some(setting) = serve.php_ini.iter().find(|setting| !setting.contains('=')) {
        return Err(Failure(format!("--php-ini {setting}: expected KEY=VALUE")));
    }
    let account = account::choose(serve.user.as_deref(), &root)?;
    let (listeners, addresses) = listen(serve)?;
    let (pool_front, pool_php) = pool_sockets().map_err(Failure::context("cannot make sockets"))?;
    let (ready_in, ready_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(io::Error::from)
        .map_err(Failure::context("cannot make a pipe"))?;
    // Until the server has ended.
    let (_door, secret) = Door::open(&addresses).unzip();
    let front = Recipe::front(serve, listeners, pool_front, ready_out, secret, account)?;
    let named = serve.sendfile_from.iter().chain(serve.accel.iter().map(|(_, folder)| folder));
    if let Some(folder) = named.into_iter().find(|folder| !folder.is_dir()) {
        return Err(Failure(format!("{} is not a folder", folder.display())));
    }
    // The front takes a closed pool socket for the end of the supervisor, so without a master somebody else holds it.
    let (php, _pool_php) = if serve.needed_workers() > 0 {
        (Some(Recipe::php_master(serve, pool_php, account)?), None)
    } else {
        (None, Some(pool_php))
    };
    let urls: Vec<_> = addresses.iter().map(|address| format!("http://{address}/")).collect();
    let line = format!("sendoff: serving {} at {}", root.display(), urls.join(", "));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::context("cannot start an event loop"))?;
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(Failure::context("cannot handle signals"))?;
        let front = Kept::start(front)?;
        let php = php.map(Kept::start).transpose()?;
        Supervisor { front, php }.run(ready_in, &line, &mut signals).await
    })
}

/// A child that is started again when it dies.
struct Kept {
    recipe: Recipe,
    child: Child,
    started: Instant,
    pause: Duration,
}

impl Kept {
    fn start(recipe: Recipe) -> Result<Self, Failure> {
        let child = recipe.start()?;
        Ok(Self { recipe, child, started: Instant::now(), pause: FIRST_PAUSE })
    }

    /// Ends when it dies, and says how.
    async fn death(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => format!("the {} ended ({status})", self.recipe.name),
            Err(error) => format!("the {} is lost: {error}", self.recipe.name),
        }
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        if self.started.elapsed() < SHORT_LIFE {
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        } else {
            self.pause = FIRST_PAUSE;
        }
        self.child = self.recipe.start()?;
        self.started = Instant::now();
        Ok(())
    }
}

struct Supervisor {
    front: Kept,
    /// None if FastCGI applications answer all that workers could.
    php: Option<Kept>,
}

/// Ends when the child dies; never if there is none.
async fn death_of(child: &mut Option<Kept>) -> String {
    match child {
        Some(child) => child.death().await,
        None => std::future::pending().await,
    }
}

impl Supervisor {
    async fn run(
        mut self,
        ready: OwnedFd,
        line: &str,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let keep = tokio::select! {
            result = self.keep_running(ready, line) => result,
            () = signals.next() => Ok(()),
        };
        let stopped = tokio::select! {
            () = self.stop() => keep,
            () = signals.next() => keep,
        };
        // What is left now was told to go at once.
        for kept in [Some(&mut self.front), self.php.as_mut()].into_iter().flatten() {
            // An error means it is gone.
            let _ = kept.child.kill().await;
        }
        stopped
    }

    /// Goes on until something cannot be repaired.
    async fn keep_running(&mut self, ready: OwnedFd, line: &str) -> Result<(), Failure> {
        let ready =
            pipe::Receiver::from_owned_fd(ready).map_err(Failure::context("cannot read a pipe"))?;
        tokio::pin!(ready);
        tokio::select! {
            biased;
            read = ready.read_u8() => read.map(|_| ()).map_err(Failure::context("the front closed its pipe"))?,
            why = self.front.death() => return Err(Failure(format!("{why} before it was ready"))),
            why = death_of(&mut self.php) => return Err(Failure(format!("{why} before it was ready"))),
        }
        let mut stdout = io::stdout().lock();
        // If nobody reads it, the server is ready all the same.
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        drop(stdout);
        loop {
            tokio::select! {
                why = self.front.death() => {
                    tracing::error!("{why}, it is started again");
                    self.front.restart().await?;
                }
                why = death_of(&mut self.php) => {
                    tracing::error!("{why}, it is started again");
                    if let Some(php) = &mut self.php {
                        php.restart().await?;
                    }
                }
            }
        }
    }

    /// Lets the front finish its responses, then the workers their scripts.
    async fn stop(&mut self) {
        // A listener kept open here would take connections that nobody accepts; and workers that the master announces when
        // the front has gone must find nobody, or they would wait for requests for ever.
        self.front.recipe.close();
        children::signal(&self.front.child, Signal::TERM);
        // How they end matters to nobody any more.
        let _ = self.front.child.wait().await;
        if let Some(php) = &mut self.php {
            children::signal(&php.child, Signal::TERM);
            let _ = php.child.wait().await;
        }
    }
}

/// The signals that end the server.
struct Signals {
    terminate: SignalStream,
    interrupt: SignalStream,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Where new workers are announced: the master's end and the front's. The supervisor keeps both, so that a child that is
/// started again takes the place of the one that died.
fn pool_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Opens the listeners: for each event loop one per address, so that the kernel spreads connections (`SO_REUSEPORT`).
fn listen(serve: &Serve) -> Result<(Vec<Vec<OwnedFd>>, Vec<SocketAddr>), Failure> {
    let mut loops: Vec<Vec<OwnedFd>> = (0..serve.threads()).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for &wanted in &serve.listen {
        // Without the option another server's sockets of the same user would share the port in silence.
        let probe =
            bind(wanted, false).map_err(Failure::context(format!("cannot listen on {wanted}")))?;
        let address = local_address(&probe)
            .map_err(Failure::context(format!("cannot listen on {wanted}")))?;
        drop(probe);
        for of_loop in &mut loops {
            let socket = bind(address, true)
                .and_then(|socket| {
                    rustix::net::listen(&socket, BACKLOG).map(|()| socket).map_err(io::Error::from)
                })
                .map_err(Failure::context(format!("cannot listen on {address}")))?;
            of_loop.push(socket);
        }
        addresses.push(address);
    }
    Ok((loops, addresses))
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    // Accepted sockets inherit it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(address).map_err(|_| io::Error::other("the socket has no address"))
}
