//! The state of a supervisor: the processes of the server, and the arguments to restart them.

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
use sendoff_control::{Confinement, ControlAnswer, PoolReport, Reloaded, ServerReport, SiteReport};
use sendoff_report::status::{Encryption, SiteStatus};
use sendoff_server::front::Purge;
use sendoff_tls::{FleetSecrets, Sealed, Vault};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::start::Start;
use crate::explain::Door;
use crate::failure::Failure;
use crate::fragment_purges::FragmentPurges;
use crate::groups::{ControlGroups, PoolGroup};
use crate::listen::SocketFile;
use crate::log::open_target;
use crate::orders::{Reply, ToFront};
use crate::source::Source;
use crate::supervised::SupervisedChild;
use crate::systemd;
use crate::upgrade::Predecessor;

/// Pause between two signals to a PHP master: without it they would arrive as one.
const SIGNAL_GAP: Duration = Duration::from_millis(50);

/// Time limit for a front to cut its responses off and to write the last lines of the access log.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// Maximum number of log files in one message to the front. The supervisor has them open meanwhile.
const LOGS_PER_MESSAGE: usize = 64;

/// Time limit for the front to report its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit for the front to remove pages from the cache: it examines all pages, and removes
/// their files.
const PURGE_TIMEOUT: Duration = Duration::from_secs(60);

/// The processes of a server, and the arguments to restart them.
pub(super) struct Supervisor {
    pub(super) config: Config,
    pub(super) front: SupervisedChild,
    /// One for each pool.
    pub(super) masters: Vec<SupervisedChild>,
    /// Makes the control groups of pools.
    pub(super) groups: ControlGroups,
    /// The counters by which fragments are purged, for the next processes.
    pub(super) purges: FragmentPurges,
    /// Masters of pools that a reload has replaced. They end when no request needs them any more.
    pub(super) leaving: Vec<SupervisedChild>,
    /// The source of the configuration.
    pub(super) source: Source,
    /// PHP's settings at the start of the masters.
    pub(super) php_ini: Contents,
    /// The addresses of the listeners; none has port 0.
    pub(super) addresses: Vec<ListenAddress>,
    /// The files of UNIX listeners, removed when the server has ended.
    pub(super) files: Vec<SocketFile>,
    /// The secret of `sendoff explain`, removed when the server has ended.
    pub(super) door: Option<Door>,
    /// The line to print when the server is ready.
    pub(super) line: String,
    /// The wait for the front; `None` once the server is ready.
    pub(super) not_ready: Option<Start>,
    /// The server that this one replaces; `None` once this one is ready.
    pub(super) predecessor: Option<Rc<Predecessor>>,
    /// Tells the control socket to open when the server is ready; `None` if it is open already.
    pub(super) opens_commands: Option<oneshot::Sender<()>>,
    pub(super) started: Instant,
    /// The end of the last reload, and the reason if it changed nothing.
    pub(super) last_reload: Option<(Instant, Option<String>)>,
}

impl Supervisor {
    /// Reports that the server is ready, and keeps it running forever. Fails if the server does not
    /// become ready. Cancel safe.
    pub(super) async fn keep_running(&mut self) -> Result<Infallible, Failure> {
        if let Some(start) = &mut self.not_ready {
            tokio::select! {
                biased;
                ended = start.end() => ended?,
                failure = self.front.failure() => return Err(failure),
                failure = first_of(self.masters.iter_mut().map(SupervisedChild::failure)) => return Err(failure),
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
                never = first_of(self.masters.iter_mut().map(SupervisedChild::keep)) => match never {},
                number = first_of(ended) => drop(self.leaving.swap_remove(number)),
            }
        }
    }

    /// Opens the log files again and gives the descriptors to the front. The front could not open
    /// them: their folders may belong to root.
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

    /// Sends the server's state to a client. `reloading`: start of the running reload.
    pub(super) fn report(
        &self,
        reloading: Option<Instant>,
        certificates: Vec<CertificateReport>,
        reply: oneshot::Sender<ControlAnswer>,
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
        let report = ServerReport {
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
                .map(|(pool, master)| {
                    PoolReport::new(pool, master.recipe.group.as_ref().map(PoolGroup::used))
                })
                .collect(),
            upstreams: Vec::new(),
            requests: Vec::new(),
            warming: Vec::new(),
            fleet: None,
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
            // The send fails if the client has disconnected.
            let _ = reply.send(ControlAnswer::Status(Box::new(report)));
        }
    }

    /// Makes the front remove the kept pages of `url`, or all pages.
    pub(super) fn purge(
        &self,
        url: Option<&str>,
        reply: oneshot::Sender<ControlAnswer>,
    ) -> impl Future<Output = ()> + use<> {
        let asked = url.map_or(Ok(Purge::Everything), Purge::of_url);
        let asked = asked.and_then(|purge| self.ask_front(&ToFront::Purge(purge)));
        async move {
            let purged = match asked {
                Ok(answer) => answer.receive::<usize>(PURGE_TIMEOUT).await.map_err(|error| {
                    format!("the front does not say that it has forgotten pages: {error}")
                }),
                Err(why) => Err(why),
            };
            // The send fails if the client has disconnected.
            let _ = reply.send(match purged {
                Ok(pages) => ControlAnswer::Purged(pages.into()),
                Err(why) => ControlAnswer::Failed(why),
            });
        }
    }

    /// Has the front make the pages of sitemaps that are missing.
    pub(super) fn warm(
        &self,
        reply: oneshot::Sender<ControlAnswer>,
    ) -> impl Future<Output = ()> + use<> {
        let asked = self.ask_front(&ToFront::Warm);
        async move {
            let sites = match asked {
                Ok(answer) => answer
                    .receive::<usize>(STATUS_TIMEOUT)
                    .await
                    .map_err(|error| format!("the front does not answer: {error}")),
                Err(why) => Err(why),
            };
            // The send fails if the client has disconnected.
            let _ = reply.send(match sites {
                Ok(0) => ControlAnswer::Failed(
                    "no site has a sitemap: write warm = \"/sitemap.xml\" under [[site]]"
                        .to_owned(),
                ),
                Ok(1) => ControlAnswer::Done(
                    "missing pages of 1 site are being made: see sendoff status".to_owned(),
                ),
                Ok(sites) => ControlAnswer::Done(format!(
                    "missing pages of {sites} sites are being made: see sendoff status"
                )),
                Err(why) => ControlAnswer::Failed(why),
            });
        }
    }

    /// Sends the front an order that it answers.
    fn ask_front(&self, order: &ToFront) -> Result<Reply, String> {
        let orders = self.front.orders().ok_or("the front does not run")?;
        let ask = || -> io::Result<Reply> {
            let (answer, pipe) = Reply::new()?;
            orders.send(order, &[pipe.as_fd()])?;
            Ok(answer)
        };
        ask().map_err(|error| format!("the front cannot be asked: {error}"))
    }

    /// Lets the front finish its responses and the workers their scripts, and ends all of them at
    /// the time limit.
    pub(super) async fn drain(&mut self) {
        let told = Instant::now();
        let kill_at = told + self.config.kill_timeout();
        // A listener kept open here would take connections that no process accepts. Workers that
        // the master announces after the end of the front must find the pool socket closed, or they
        // would wait for requests forever.
        self.front.recipe.close();
        self.front.signal(Signal::TERM);
        // Requests may still wait for a pool whose master runs on demand.
        let on_demand = self.masters.iter_mut().filter(|master| master.is_on_demand());
        tokio::select! {
            () = self.front.end_by(kill_at) => {}
            never = first_of(on_demand.map(SupervisedChild::keep)) => match never {},
        }
        for master in self.masters.iter().chain(&self.leaving) {
            master.signal(Signal::TERM);
        }
        let kill_at = kill_at.max(Instant::now() + SIGNAL_GAP);
        let mut late = Vec::new();
        for master in self.masters.iter_mut().chain(&mut self.leaving) {
            if !master.ends_by(kill_at).await {
                // A second signal makes the master kill its workers.
                master.signal(Signal::TERM);
                late.push(master);
            }
        }
        for master in late {
            master.end_by(told + self.config.shutdown_timeout).await;
        }
    }

    /// Ends the front at once: it cuts its responses off and writes the last lines of the access
    /// log.
    pub(super) async fn cut(&mut self) {
        self.front.recipe.close();
        self.front.signal(Signal::INT);
        self.front.end_by(Instant::now() + CUT_GRACE).await;
    }
}

/// Logs the result of a command or a signal, and sends it to the client if there is one.
pub(super) fn answer(
    client: impl IntoIterator<Item = oneshot::Sender<ControlAnswer>>,
    done: Result<String, String>,
) {
    match &done {
        Ok(what) => tracing::info!("{what}"),
        Err(why) => tracing::error!("{why}"),
    }
    for client in client {
        // The send fails if the client has disconnected.
        let _ = client.send(done.clone().map_or_else(ControlAnswer::Failed, ControlAnswer::Done));
    }
}

/// The sealed credentials of the sites, and the secrets of a node of a fleet. Logs warnings about
/// certificates that clients will reject.
pub(super) fn credentials(config: &Config) -> Result<OwnedFd, String> {
    let (mut vault, complaints) = Vault::fill(config);
    vault.fleet = FleetSecrets::read(config, Sealed::TicketKeys)?;
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

/// Runs futures concurrently until the first one completes; waits forever if there is none.
pub(super) async fn first_of<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> T {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|context| {
        let mut polled = futures.iter_mut().map(|future| future.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// The socket pair on which a pool's master announces new workers: the master's end and the
/// front's. The supervisor keeps both ends open for the next master or front if a process dies.
pub(super) fn pool_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
