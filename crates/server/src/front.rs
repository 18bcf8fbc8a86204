//! The front: one event loop per thread, each with its own listeners, connections, open files and links.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};

use sendoff_config::{Address, Attachment, Config, PoolConfig, Site};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::LocalSet;

use crate::access_log::{self, AccessLog};
use crate::connection;
use crate::explain::Secret;
use crate::handler::choice::Choice;
use crate::handler::direct::Sizes;
use crate::handler::sendfile::Sendable;
use crate::response::Head;
use crate::router::Router;
use crate::upstream::{
    Application, Channel, Claims, Link, Links, Master, NewLink, Pool, WorkerId, enforce,
    receive_workers, sweep, tune,
};

/// How long accepting pauses when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a front is started with.
#[derive(Debug)]
pub struct Front {
    /// What to do, the same for all event loops.
    pub config: Config,
    /// Where the access log goes, opened for appending.
    pub access_log: Option<File>,
    /// What `sendoff explain` knows and nobody else; `None`: nothing is explained.
    pub explain: Option<Secret>,
    /// The listeners of each event loop: as many lists as threads.
    pub listeners: Vec<Vec<TcpListener>>,
    /// Where the PHP master sends new workers.
    pub pool_socket: OwnedFd,
}

/// What an event loop knows.
pub(crate) struct Loop {
    pub(crate) number: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) explain: Option<Arc<Secret>>,
    pub(crate) router: Router,
    pub(crate) pool: Arc<Pool>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) applications: Arc<[Arc<Application>]>,
    pub(crate) sendable: Sendable,
    pub(crate) sizes: Sizes,
    pub(crate) choice: Choice,
    /// Where applications on this host may open links; `None` if there is none.
    pub(crate) channel: Option<Channel>,
    pub(crate) claims: Rc<Claims>,
    links: Rc<Links>,
    stop: watch::Receiver<bool>,
    connections: Cell<usize>,
    /// Told when the last connection ends.
    last_closed: Notify,
    date: RefCell<(u64, Rc<str>)>,
}

impl Front {
    /// Runs until `stop` says so and the last response has been sent. `ready` is called from any thread, once, when all
    /// workers have arrived.
    ///
    /// # Errors
    /// An event loop could not be started.
    pub fn run(
        self,
        ready: impl Fn() + Send + Sync + 'static,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let Self { config, access_log, explain, listeners, pool_socket } = self;
        let site = config.sites.first().ok_or_else(|| io::Error::other("there is no site"))?;
        let pool = Pool::new(listeners.len());
        let applications = applications(site);
        let (channel, registrations) = open_channel(site, listeners.len()).unzip();
        let workers = config.pool.as_ref().map_or(0, PoolConfig::first_workers);
        let master = Master::new(&pool_socket)?;
        // If it cannot be told, workers that hang in requests of the previous front are not missed.
        if let Err(error) = master.front_started() {
            tracing::warn!(%error, "the PHP master does not take messages");
        }
        let (config, access_log) = (Arc::new(config), access_log.map(Arc::new));
        let explain = explain.map(Arc::new);
        let (stopper, stopping) = watch::channel(false);
        let (ready, said) = (Box::new(ready), Once::new());
        let announce = Arc::new(Announce {
            workers,
            pool: Arc::clone(&pool),
            ready,
            said,
            loops_missing: AtomicUsize::new(listeners.len()),
        });
        let (draining, busy) = watch::channel(());
        let draining = Arc::new(draining);
        let (mut senders, mut loops) = (Vec::new(), Vec::new());
        for (number, listeners) in listeners.into_iter().enumerate() {
            let (sender, links) = mpsc::unbounded_channel();
            senders.push(sender);
            loops.push(Start {
                number,
                config: Arc::clone(&config),
                access_log: access_log.clone(),
                explain: explain.clone(),
                pool: Arc::clone(&pool),
                applications: Arc::clone(&applications),
                channel: channel.clone(),
                listeners,
                links,
                master: master.clone(),
                stop: stopping.clone(),
                announce: Arc::clone(&announce),
                busy: busy.clone(),
                draining: Arc::clone(&draining),
            });
        }
        drop(busy);
        let mut loops = loops.into_iter();
        let first = loops.next().ok_or_else(|| io::Error::other("no event loop was asked for"))?;
        let threads: Vec<_> = loops
            .map(|start| {
                let (name, stopper) = (format!("loop-{}", start.number), stopper.clone());
                std::thread::Builder::new().name(name).spawn(move || {
                    let result = start.run(std::future::pending());
                    // If it could not start, nobody accepts what the kernel gives to its listeners: all of them end, and
                    // the supervisor starts a new front.
                    stopper.send_replace(true);
                    result
                })
            })
            .collect::<io::Result<_>>()?;
        let result = first.run(async move {
            if let Some((channel, registrations)) = channel.zip(registrations) {
                tokio::task::spawn_local(channel.receive(registrations, senders.clone()));
            }
            let mut registered = std::pin::pin!(receive_workers(pool_socket, &senders));
            tokio::select! {
                () = stop => {
                    stopper.send_replace(true);
                    // Requests that are still open may need the workers that take the place of others.
                    drop(registered.await);
                }
                // The supervisor is gone, or no worker could be announced any more.
                result = &mut registered => {
                    tracing::info!(?result, "the pool socket is closed, the front stops");
                    stopper.send_replace(true);
                }
            }
            std::future::pending::<()>().await;
        });
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("an event loop panicked"))??;
        }
        result
    }
}

/// One for each attachment; attachments to the same address share it, and with it the connections.
fn applications(site: &Site) -> Arc<[Arc<Application>]> {
    let mut all: Vec<Arc<Application>> = Vec::new();
    for Attachment { address, .. } in &site.fastcgi {
        let known = all.iter().find(|application| application.address() == address).cloned();
        let new = || Application::new(address.clone(), site.fastcgi_timeout);
        all.push(known.unwrap_or_else(new));
    }
    all.into()
}

/// The channel, if there is an application that could use it: one on this host.
fn open_channel(site: &Site, event_loops: usize) -> Option<(Channel, OwnedFd)> {
    let is_here = |attachment: &Attachment| matches!(attachment.address, Address::Unix(_));
    if !site.channel || !site.fastcgi.iter().any(is_here) {
        return None;
    }
    let opened = Channel::open(event_loops);
    if let Err(error) = &opened {
        tracing::warn!(%error, "no channel for FastCGI applications: they cannot hand files over");
    }
    opened.ok()
}

/// Calls `ready` when every event loop runs and the last of the first workers has arrived.
struct Announce {
    workers: usize,
    pool: Arc<Pool>,
    ready: Box<dyn Fn() + Send + Sync>,
    said: Once,
    /// Event loops that do not run yet.
    loops_missing: AtomicUsize,
}

impl Announce {
    fn when_complete(&self) {
        let loops_run = self.loops_missing.load(Ordering::SeqCst) == 0;
        if loops_run && self.pool.workers() == self.workers {
            self.said.call_once(|| (self.ready)());
        }
    }
}

/// An event loop that is about to run.
struct Start {
    number: usize,
    config: Arc<Config>,
    access_log: Option<Arc<File>>,
    explain: Option<Arc<Secret>>,
    pool: Arc<Pool>,
    applications: Arc<[Arc<Application>]>,
    channel: Option<Channel>,
    listeners: Vec<TcpListener>,
    links: mpsc::UnboundedReceiver<NewLink>,
    master: Master,
    stop: watch::Receiver<bool>,
    announce: Arc<Announce>,
    /// Held while the loop has connections.
    busy: watch::Receiver<()>,
    /// Closed when no loop is busy any more.
    draining: Arc<watch::Sender<()>>,
}

impl Start {
    /// Runs the event loop and, beside it, `also`.
    fn run(self, also: impl Future<Output = ()>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = LocalSet::new();
        local.block_on(&runtime, async move {
            tokio::select! {
                result = self.serve() => result,
                () = also => Ok(()),
            }
        })
    }

    async fn serve(self) -> io::Result<()> {
        let Self {
            number,
            config,
            access_log,
            explain,
            pool,
            applications,
            listeners,
            mut links,
            ..
        } = self;
        let Self { channel, master, stop, announce, busy, draining, .. } = self;
        let access_log = access_log.as_deref().map(AccessLog::new).transpose()?;
        let site = config.sites.first().ok_or_else(|| io::Error::other("there is no site"))?;
        let mut router = Router::new(&site.root, &site.follow)?;
        for (number, attachment) in site.fastcgi.iter().enumerate() {
            router.attach(&attachment.matching, number);
        }
        let Site { root, follow, sendfile_from, accel, .. } = site;
        let sendable = Sendable::open(root, follow, sendfile_from, accel)?;
        let event_loop = Rc::new(Loop {
            number,
            router,
            applications,
            sendable,
            sizes: Sizes::default(),
            choice: Choice::default(),
            config,
            explain,
            pool,
            access_log,
            channel,
            claims: Rc::default(),
            links: Rc::default(),
            stop,
            connections: Cell::new(0),
            last_closed: Notify::new(),
            date: RefCell::new((0, "".into())),
        });
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::task::spawn_local(Rc::clone(&event_loop).accept(listener));
        }
        if event_loop.access_log.is_some() {
            tokio::task::spawn_local(Rc::clone(&event_loop).flush_access_log());
        }
        if number == 0 && !event_loop.applications.is_empty() {
            tokio::task::spawn_local(sweep(Arc::clone(&event_loop.applications)));
        }
        event_loop.look_after_workers(master);
        announce.loops_missing.fetch_sub(1, Ordering::SeqCst);
        announce.when_complete();
        let linking = Rc::clone(&event_loop);
        tokio::task::spawn_local(async move {
            while let Some(new) = links.recv().await {
                linking.add_link(new, &announce);
            }
        });
        event_loop.stopping().await;
        let drained = async {
            while event_loop.connections.get() > 0 {
                event_loop.last_closed.notified().await;
            }
        };
        if tokio::time::timeout(event_loop.config.drain_timeout(), drained).await.is_err() {
            let connections = event_loop.connections.get();
            tracing::warn!(connections, "responses are not finished in time (--shutdown-timeout)");
        }
        // A worker ends when one of its links is closed, and another loop may still need it.
        drop(busy);
        draining.closed().await;
        if let Some(log) = &event_loop.access_log {
            log.flush();
        }
        Ok(())
    }
}

/// A connection that the end of its event loop waits for, however its task ends.
struct Counted(Rc<Loop>);

impl Counted {
    fn new(event_loop: Rc<Loop>) -> Self {
        event_loop.connections.set(event_loop.connections.get() + 1);
        Self(event_loop)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let left = self.0.connections.get() - 1;
        self.0.connections.set(left);
        if left == 0 {
            self.0.last_closed.notify_one();
        }
    }
}

impl Loop {
    async fn accept(self: Rc<Self>, listener: tokio::net::TcpListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = self.stopping() => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let counted = Counted::new(Rc::clone(&self));
                    tokio::task::spawn_local(async move {
                        connection::serve(Rc::clone(&counted.0), stream, peer).await;
                    });
                }
                // The client was gone before we looked.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::error!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Starts the tasks that keep workers neither stuck nor too many nor too few.
    fn look_after_workers(&self, master: Master) {
        let Some(config) = &self.config.pool else { return };
        let pool = || (Arc::clone(&self.pool), Rc::clone(&self.links));
        if let Some(limit) = config.request_timeout {
            let (pool, links) = pool();
            tokio::task::spawn_local(enforce(limit, pool, links, master.clone()));
        }
        // One event loop decides for all.
        if let Some(bounds) = config.bounds().filter(|_| self.number == 0) {
            let (pool, links) = pool();
            tokio::task::spawn_local(tune(bounds, pool, links, master));
        }
    }

    fn add_link(&self, new: NewLink, announce: &Announce) {
        let pid = new.pid;
        if let Err(error) = Link::start(new, self.number, &self.pool, &self.links, &self.claims) {
            tracing::error!(worker = pid, %error, "a worker could not be taken on");
        }
        announce.when_complete();
    }

    async fn flush_access_log(self: Rc<Self>) {
        while let Some(log) = &self.access_log {
            tokio::time::sleep(access_log::FLUSH_INTERVAL).await;
            log.flush();
        }
    }

    pub(crate) fn link(&self, worker: WorkerId) -> Option<Rc<Link>> {
        self.links.borrow().get(&worker).cloned()
    }

    /// The one site there is.
    pub(crate) fn site(&self) -> &Site {
        // An event loop without a site does not start.
        &self.config.sites[0]
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ends when the front is told to stop.
    pub(crate) fn stopping(&self) -> impl Future<Output = ()> + use<> {
        let mut stop = self.stop.clone();
        async move {
            // An error means that nobody is left who could say so.
            let _ = stop.wait_for(|&stop| stop).await;
        }
    }

    /// The time as HTTP writes it (RFC 9110 §5.6.7).
    pub(crate) fn date(&self) -> Rc<str> {
        let now = SystemTime::now();
        let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut date = self.date.borrow_mut();
        if date.0 != second {
            *date = (second, httpdate::fmt_http_date(now).into());
        }
        Rc::clone(&date.1)
    }

    /// Fields that every response has.
    pub(crate) fn common_fields(&self, head: &mut Head<'_>) {
        self.common_fields_unless(head, |_| false);
    }

    /// Fields that every response has, unless the application has set them.
    pub(crate) fn common_fields_unless(&self, head: &mut Head<'_>, is_set: impl Fn(&str) -> bool) {
        for (name, value) in self.common(&self.date()) {
            if !is_set(name) {
                head.field(name.as_bytes(), value.as_bytes());
            }
        }
    }

    /// The same as field lines.
    pub(crate) fn common_lines(&self) -> String {
        let lines = self.common(&self.date()).map(|(name, value)| format!("{name}: {value}\r\n"));
        lines.concat()
    }

    fn common<'a>(&self, date: &'a str) -> [(&'static str, &'a str); 2] {
        [("Server", "sendoff"), ("Date", date)]
    }
}
