//! What a supervisor keeps: the processes of the server, and what they were started with.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use sendoff_acme::CertificateReport;
use sendoff_config::php_ini::Contents;
use sendoff_config::{Config, ListenAddress, LogTarget, Site};
use sendoff_report::status::{Encryption, SiteStatus};
use sendoff_server::front::Purge;
use sendoff_tls::Vault;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::control::{Answer, Confinement, PoolReport, Reloaded, Report, SiteReport};
use crate::explain::Door;
use crate::failure::Failure;
use crate::groups::Groups;
use crate::kept::Kept;
use crate::listen::SocketFile;
use crate::log::open_target;
use crate::orders::{Reply, ToFront};
use crate::source::Source;
use crate::systemd;
use crate::upgrade::Predecessor;

/// Between two signals to a PHP master: sent at once, they would arrive as one.
const SIGNAL_GAP: Duration = Duration::from_millis(50);

/// How long a front may take to cut its responses and to write the last lines of the access log.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// Log files that the front is told of at a time. The supervisor has them open meanwhile.
const LOGS_PER_MESSAGE: usize = 64;

/// How long the front may take to say what it does.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the front may take to forget pages: it looks at all that it keeps, and removes their files.
const PURGE_TIMEOUT: Duration = Duration::from_secs(60);

/// The processes of a server, and what they were started with.
pub(super) struct Supervisor {
    pub(super) config: Config,
    pub(super) front: Kept,
    /// One for each pool.
    pub(super) masters: Vec<Kept>,
    /// Makes the control groups of pools.
    pub(super) groups: Groups,
    /// Masters of pools that a reload has replaced. They end when no request needs them any more.
    pub(super) leaving: Vec<Kept>,
    /// Where the configuration comes from.
    pub(super) source: Source,
    /// What PHP's settings were when the masters were started.
    pub(super) php_ini: Contents,
    /// Where it listens; no address has port 0.
    pub(super) addresses: Vec<ListenAddress>,
    /// Those of UNIX listeners. They are removed when the server has ended.
    pub(super) files: Vec<SocketFile>,
    /// Likewise.
    pub(super) door: Option<Door>,
    /// What is said when the server is ready.
    pub(super) line: String,
    /// What the front writes to when it is ready, until it has.
    pub(super) not_ready: Option<pipe::Receiver>,
    /// The server whose place this one takes, until it is ready.
    pub(super) predecessor: Option<Rc<Predecessor>>,
    /// Told when the server is ready, if commands are not taken before that.
    pub(super) opens_commands: Option<oneshot::Sender<()>>,
    pub(super) started: Instant,
    /// When it ended, and why it changed nothing.
    pub(super) last_reload: Option<(Instant, Option<String>)>,
}

impl Supervisor {
    /// Says that the server is ready, and goes on for ever. Fails if the server does not get ready. A call that is dropped
    /// forgets nothing.
    pub(super) async fn keep_running(&mut self) -> Result<Infallible, Failure> {
        if let Some(ready) = &mut self.not_ready {
            tokio::select! {
                biased;
                read = ready.read_u8() => {
                    read.map_err(Failure::system("the front closed its pipe"))?;
                }
                failure = self.front.failure() => return Err(failure),
                failure = first_of(self.masters.iter_mut().map(Kept::failure)) => return Err(failure),
            }
            self.not_ready = None;
            if let Some(predecessor) = self.predecessor.take() {
                predecessor.ready();
            }
            systemd::ready(&self.line);
            self.opens_commands.take().map(|tell| tell.send(()));
            let mut stdout = io::stdout().lock();
            // The server is ready even if standard output is closed.
            let _ = writeln!(stdout, "{}", self.line).and_then(|()| stdout.flush());
        }
        loop {
            let leaving = self.leaving.iter_mut().enumerate();
            let ended = leaving.map(|(number, master)| async move {
                master.ended().await;
                number
            });
            tokio::select! {
                never = self.front.keep() => match never {},
                never = first_of(self.masters.iter_mut().map(Kept::keep)) => match never {},
                number = first_of(ended) => drop(self.leaving.swap_remove(number)),
            }
        }
    }

    /// Gives the front descriptors of the logs' files of now. The front could not open them: their folders may be root's.
    pub(super) fn reopen_logs(&self) -> Result<String, String> {
        let targets = self.config.log_targets();
        let files = targets.into_iter().filter_map(|target| match target {
            LogTarget::Stdout => None,
            LogTarget::File(path) => Some((target, path.display())),
        });
        let files: Vec<_> = files.collect();
        let (mut opened, mut failed) = (Vec::new(), Vec::new());
        for files in files.chunks(LOGS_PER_MESSAGE) {
            let mut reopened = Vec::new();
            for (target, path) in files {
                match open_target(target) {
                    Ok(file) => reopened.push(((*target).clone(), file)),
                    Err(error) => failed.push(format!("{path}: {error}")),
                }
            }
            opened.extend(reopened.iter().map(|(target, _)| target.clone()));
            // A front that does not run opens the files at its start.
            if let Some(orders) = self.front.orders()
                && !reopened.is_empty()
            {
                let (targets, files): (Vec<_>, Vec<_>) = reopened.into_iter().unzip();
                let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
                orders
                    .send(&ToFront::ReopenLogs(targets), &files)
                    .map_err(|error| format!("the front cannot be told of the new log: {error}"))?;
            }
        }
        match (&*opened, &*failed) {
            ([], []) => Ok("there is no log file to open again".to_owned()),
            ([LogTarget::File(path)], []) => Ok(format!("{} was opened again", path.display())),
            (all, []) => Ok(format!("{} log files were opened again", all.len())),
            (_, [first]) => Err(format!("{first}: lines still go to the old file")),
            (_, [first, others @ ..]) => Err(format!(
                "{first}, and {} other files: their lines still go to the old files",
                others.len()
            )),
        }
    }

    /// Sends the server's state to a client. `reloading`: since when a reload runs.
    pub(super) fn report(
        &self,
        reloading: Option<Instant>,
        certificates: Vec<CertificateReport>,
        reply: oneshot::Sender<Answer>,
    ) -> impl Future<Output = ()> + use<> {
        let site = |site: &Site| {
            let root = site.root_link.as_ref().unwrap_or(&site.root);
            let (name, root) = (site.name.clone(), root.display().to_string());
            SiteReport { name, root, sent: SiteStatus::default() }
        };
        let reloaded = |(at, error): &(Instant, Option<String>)| Reloaded {
            ago: at.elapsed().as_secs(),
            error: error.clone(),
        };
        let pools = self.config.pools.iter().zip(&self.masters);
        let report = Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            front_pid: self.front.pid(),
            confinement: self.front.pid().and_then(Confinement::of),
            uptime: self.started.elapsed().as_secs(),
            listeners: self.addresses.iter().map(ToString::to_string).collect(),
            config: self.source.file(),
            refused: 0,
            sites: self.config.sites.iter().map(site).collect(),
            connections: None,
            idle_connections: None,
            limits: BTreeMap::new(),
            tls: Encryption::None,
            pools: pools
                .map(|(pool, master)| PoolReport::new(pool, master.recipe.group.as_ref()))
                .collect(),
            upstreams: Vec::new(),
            requests: Vec::new(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            certificates,
            reloading: reloading.map(|since| since.elapsed().as_secs()),
            last_reload: self.last_reload.as_ref().map(reloaded),
        };
        let asked = self.front.orders().and_then(|orders| {
            let (status, pipe) = Reply::new().ok()?;
            orders.send(&ToFront::Status, &[pipe.as_fd()]).ok()?;
            Some(status)
        });
        async move {
            let status = match asked {
                Some(status) => status.receive(STATUS_TIMEOUT).await.ok(),
                None => None,
            };
            let report = report.with(status);
            // It fails if the client has left.
            let _ = reply.send(Answer::Status(Box::new(report)));
        }
    }

    /// Has the front forget kept pages: those that `url` means, or all.
    pub(super) fn purge(
        &self,
        url: Option<&str>,
        reply: oneshot::Sender<Answer>,
    ) -> impl Future<Output = ()> + use<> {
        let asked = url.map_or(Ok(Purge::Everything), Purge::of_url).and_then(|purge| {
            let orders = self.front.orders().ok_or("the front does not run")?;
            let ask = || -> io::Result<Reply> {
                let (answer, pipe) = Reply::new()?;
                orders.send(&ToFront::Purge(purge), &[pipe.as_fd()])?;
                Ok(answer)
            };
            ask().map_err(|error| format!("the front cannot be asked: {error}"))
        });
        async move {
            let purged = match asked {
                Ok(answer) => answer.receive::<usize>(PURGE_TIMEOUT).await.map_err(|error| {
                    format!("the front does not say that it has forgotten pages: {error}")
                }),
                Err(why) => Err(why),
            };
            // It fails if the client has left.
            let _ = reply.send(match purged {
                Ok(pages) => Answer::Purged(pages.into()),
                Err(why) => Answer::Failed(why),
            });
        }
    }

    /// Lets the front finish its responses, then the workers their scripts, and ends in time whatever they do.
    pub(super) async fn drain(&mut self) {
        let told = Instant::now();
        let kill_at = told + self.config.kill_timeout();
        // A listener kept open here would take connections that no process accepts; and workers that the master announces
        // after the end of the front must find the socket closed, or they would wait for requests for ever.
        self.front.recipe.close();
        self.front.signal(Signal::TERM);
        // Requests may still wait for a pool whose master comes when it is called.
        let on_demand = self.masters.iter_mut().filter(|master| master.is_on_demand());
        tokio::select! {
            () = self.front.end_by(kill_at) => {}
            never = first_of(on_demand.map(Kept::keep)) => match never {},
        }
        for master in self.masters.iter().chain(&self.leaving) {
            master.signal(Signal::TERM);
        }
        let kill_at = kill_at.max(Instant::now() + SIGNAL_GAP);
        let mut late = Vec::new();
        for master in self.masters.iter_mut().chain(&mut self.leaving) {
            if !master.ends_by(kill_at).await {
                // A second signal makes it kill its workers.
                master.signal(Signal::TERM);
                late.push(master);
            }
        }
        for master in late {
            master.end_by(told + self.config.shutdown_timeout).await;
        }
    }

    /// Ends the front at once. It cuts its responses and writes the last lines of the access log.
    pub(super) async fn cut(&mut self) {
        self.front.recipe.close();
        self.front.signal(Signal::INT);
        self.front.end_by(Instant::now() + CUT_GRACE).await;
    }
}

/// Logs what has become of a command or a signal, and tells the client if there is one.
pub(super) fn answer(
    client: impl IntoIterator<Item = oneshot::Sender<Answer>>,
    done: Result<String, String>,
) {
    match &done {
        Ok(what) => tracing::info!("{what}"),
        Err(why) => tracing::error!("{why}"),
    }
    for client in client {
        // It fails if the client has left.
        let _ = client.send(done.clone().map_or_else(Answer::Failed, Answer::Done));
    }
}

/// The credentials of the sites, sealed. Warns of those that clients will complain about.
pub(super) fn credentials(config: &Config) -> Result<OwnedFd, String> {
    let (vault, complaints) = Vault::fill(config);
    for complaint in complaints {
        let site = &config.sites[complaint.site].name;
        let says = format!("TLS of site {site}: {}", complaint.says);
        if complaint.is_error {
            return Err(says);
        }
        tracing::warn!("{says}");
    }
    vault.seal().map_err(|error| format!("cannot store the credentials: {error}"))
}

/// Runs futures side by side until the first of them ends; for ever if there is none.
pub(super) async fn first_of<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> T {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|context| {
        let mut polled = futures.iter_mut().map(|future| future.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Where new workers are announced: the master's end and the front's. The supervisor keeps both ends open for the next master or
/// front if a process dies.
pub(super) fn pool_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
