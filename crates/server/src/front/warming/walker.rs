//! The walk through the pages of one site.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sendoff_config::{Host, Site};
use sendoff_handlers::services::Services;
use sendoff_handlers::{Fetched, OwnConnection, Warmed};
use sendoff_message::request::{Request, Scheme, host_name};
use sendoff_report::status::WarmedPages;
use sendoff_sitemap::document::MOST_BYTES;
use sendoff_sitemap::{Document, Location, Step, Walk};
use tokio::sync::Notify;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, sleep, timeout};

use super::super::running_loop::RunningLoop;
use super::WarmState;

/// The longest walk.
const LONGEST_WALK: Duration = Duration::from_secs(4 * 3600);

/// The longest time for a page or a sitemap.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);

/// The longest rest between two pages.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// The shortest time between the end of a walk and the next one.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// Pause before the workers are looked at again while clients need them.
const WHILE_BUSY: Duration = Duration::from_millis(100);

/// Errors in a row after which a walk ends: the application does not work.
const MOST_ERRORS: u32 = 10;

/// Pages in a row that were made and may not be kept, after which a walk ends: its pages are made in
/// vain.
const MOST_IN_VAIN: u32 = 20;

/// Errors of a walk that are logged.
const MOST_LOGGED: u64 = 5;

/// Redirects of a sitemap that are followed.
const MOST_REDIRECTS: u8 = 5;

/// Walks through the pages of one site.
pub(super) struct Walker {
    running: Weak<RunningLoop>,
    site: String,
    sitemap: String,
    state: Rc<WarmState>,
    errors_in_row: Cell<u32>,
    /// Pages in a row that were made and may not be kept.
    in_vain: Cell<u32>,
}

/// The end of a walk.
enum WalkEnd {
    /// Before its last page; the reason, as a sentence about "it".
    Early(String),
    /// The front ends.
    Front,
}

impl Walker {
    pub(super) fn new(
        running: &Rc<RunningLoop>,
        site: &str,
        sitemap: &str,
        state: &Rc<WarmState>,
    ) -> Self {
        Self {
            running: Rc::downgrade(running),
            site: site.to_owned(),
            sitemap: sitemap.to_owned(),
            state: Rc::clone(state),
            errors_in_row: Cell::default(),
            in_vain: Cell::default(),
        }
    }

    pub(super) async fn run(self, purged: Arc<Notify>) {
        let Some(services) = self.services() else { return };
        let cache = Arc::clone(&services.page_cache);
        drop(services);
        cache.is_read().await;
        loop {
            let begun = Instant::now();
            match self.walk(begun).await {
                Err(WalkEnd::Front) => return,
                Err(WalkEnd::Early(why)) => self.ended(Some(why)),
                Ok(()) => self.ended(None),
            }
            // A site that is purged all the time is walked through half of the time at most.
            let pause = begun.elapsed().max(SHORTEST_PAUSE);
            let ended = Instant::now();
            tokio::select! {
                () = self.state.ordered.notified() => continue,
                () = purged.notified() => {}
            }
            tokio::select! {
                () = self.state.ordered.notified() => {}
                () = sleep((ended + pause).saturating_duration_since(Instant::now())) => {}
            }
        }
    }

    fn services(&self) -> Option<Rc<Services>> {
        Some(self.running.upgrade()?.services.get())
    }

    async fn walk(&self, begun: Instant) -> Result<(), WalkEnd> {
        self.begin();
        let (first, named) = self.first()?;
        let mut walk = Walk::new(first);
        while let Some(step) = walk.step() {
            if begun.elapsed() > LONGEST_WALK {
                let hours = LONGEST_WALK.as_secs() / 3600;
                return Err(WalkEnd::Early(format!("it has taken {hours} hours")));
            }
            match step {
                Step::Sitemap(at) => match self.sitemap(&at, &named).await? {
                    Ok(document) => {
                        let running = self.running.upgrade().ok_or(WalkEnd::Front)?;
                        let services = running.services.get();
                        walk.take(document, |at| self.is_own(&running, &services, &named, at));
                        for left_out in walk.take_left_out() {
                            tracing::info!(site = self.site, sitemap = %at, "{left_out}");
                        }
                        let listed = walk.listed() as u64;
                        self.count(|pages| pages.listed = listed);
                    }
                    Err(why) => self.fail(&at, &why)?,
                },
                Step::Page(at) => self.page(&at).await?,
            }
        }
        Ok(())
    }

    fn begin(&self) {
        let mut status = self.state.status.borrow_mut();
        (status.is_running, status.walk) = (true, WarmedPages::default());
        (status.error, status.cut) = (None, None);
        self.errors_in_row.set(0);
        self.in_vain.set(0);
    }

    fn ended(&self, cut: Option<String>) {
        let mut status = self.state.status.borrow_mut();
        status.is_running = false;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        status.ended = Some(now.map_or(0, |since| since.as_secs()));
        let (walk, site) = (status.walk, &self.site);
        status.all.add(walk);
        match &cut {
            None => tracing::info!(site, made = walk.made, "warmed {walk}"),
            Some(why) => tracing::warn!(
                site,
                made = walk.made,
                "warmed {walk}; the walk has ended early: {why}"
            ),
        }
        status.cut = cut;
    }

    fn count(&self, change: impl FnOnce(&mut WarmedPages)) {
        change(&mut self.state.status.borrow_mut().walk);
    }

    /// Counts an error.
    fn fail(&self, at: &Location, why: &str) -> Result<(), WalkEnd> {
        let mut status = self.state.status.borrow_mut();
        status.walk.errors += 1;
        if status.walk.errors <= MOST_LOGGED {
            tracing::warn!(site = self.site, "{at} is not warmed: {why}");
        }
        status.error = Some(format!("{at}: {why}"));
        self.errors_in_row.set(self.errors_in_row.get() + 1);
        if self.errors_in_row.get() >= MOST_ERRORS {
            return Err(WalkEnd::Early(format!("{MOST_ERRORS} requests in a row have failed")));
        }
        Ok(())
    }

    /// The address of the sitemap, and its host.
    fn first(&self) -> Result<(Location, String), WalkEnd> {
        let running = self.running.upgrade().ok_or(WalkEnd::Front)?;
        let services = running.services.get();
        let site = services.config.sites.iter().find(|site| site.name == self.site);
        let first = site.and_then(|site| {
            if !self.sitemap.starts_with('/') {
                return Location::parse(&self.sitemap);
            }
            let connections = connections(&running, site);
            // Clients are redirected from http to https if the site has both.
            let secure = connections.iter().find(|to| to.scheme == Scheme::Https);
            let OwnConnection { scheme, local, .. } = secure.or(connections.first())?;
            let port = local.port().filter(|port| *port != scheme.default_port());
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let host = site.hosts.iter().find_map(|host| match host {
                Host::Exact(name) => Some(name),
                Host::Beneath(_) => None,
            })?;
            Location::parse(&format!("{}://{host}{port}{}", scheme.as_str(), self.sitemap))
        });
        let first = first.ok_or_else(|| {
            WalkEnd::Early(format!("{} leads to no address of the site", self.sitemap))
        })?;
        let named = host_name(first.authority.as_bytes());
        Ok((first, named))
    }

    fn is_own(
        &self,
        running: &RunningLoop,
        services: &Services,
        named: &str,
        at: &Location,
    ) -> bool {
        let site = services.config.sites.iter().find(|site| site.name == self.site);
        let connection = site.and_then(|site| connection(running, site, at));
        connection.is_some_and(|to| services.is_own(&self.site, named, &to, &at.authority))
    }

    /// Requests a sitemap, as soon as clients do not need the workers.
    async fn sitemap(
        &self,
        at: &Location,
        named: &str,
    ) -> Result<Result<Document, String>, WalkEnd> {
        let (mut at, mut redirects) = (at.clone(), 0);
        while redirects <= MOST_REDIRECTS {
            let running = self.running.upgrade().ok_or(WalkEnd::Front)?;
            let services = running.services.get();
            if !self.is_own(&running, &services, named, &at) {
                return Ok(Err(format!("the site does not answer for {at}")));
            }
            let request = self.request(&running, &services, &at);
            drop(running);
            let mut request = match request {
                Ok(request) => request,
                Err(why) => return Ok(Err(why)),
            };
            let most = usize::try_from(MOST_BYTES).unwrap_or(usize::MAX);
            let fetched = timeout(LONGEST_ANSWER, services.fetch(&mut request, most)).await;
            match fetched.unwrap_or_else(|_| Err(too_slow())) {
                Ok(Fetched::Body(body)) => {
                    let read = spawn_blocking(move || Document::read(&body)).await;
                    return Ok(read.unwrap_or_else(|error| Err(error.to_string())));
                }
                Ok(Fetched::Redirect(to)) => match at.join(&to) {
                    Some(to) => (at, redirects) = (to, redirects + 1),
                    None => return Ok(Err(format!("it is redirected to {to:?}"))),
                },
                Ok(Fetched::Busy) => sleep(WHILE_BUSY).await,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Err(format!("it is redirected more than {MOST_REDIRECTS} times")))
    }

    /// Has a page made, as soon as clients do not need the workers, and rests.
    async fn page(&self, at: &Location) -> Result<(), WalkEnd> {
        let (warmed, begun) = loop {
            let begun = Instant::now();
            match self.warm(at).await? {
                Warmed::Busy => sleep(WHILE_BUSY).await,
                warmed => break (warmed, begun),
            }
        };
        if matches!(warmed, Warmed::Fresh | Warmed::NotKept { is_asked: false }) {
            self.note(at, warmed)?;
            yield_now().await;
        } else {
            self.note(at, warmed)?;
            sleep(begun.elapsed().min(LONGEST_REST)).await;
        }
        Ok(())
    }

    /// Has a page made, unless clients need the workers.
    async fn warm(&self, at: &Location) -> Result<Warmed, WalkEnd> {
        let running = self.running.upgrade().ok_or(WalkEnd::Front)?;
        let services = running.services.get();
        if !services.page_cache.has_room(services.config.front.page_cache.size) {
            return Err(WalkEnd::Early("the page cache is full (page_cache_size)".to_owned()));
        }
        let request = self.request(&running, &services, at);
        drop(running);
        let mut request = match request {
            Ok(request) => request,
            Err(why) => return Ok(Warmed::Failed(why)),
        };
        let warmed = timeout(LONGEST_ANSWER, services.warm(&mut request)).await;
        Ok(warmed.unwrap_or_else(|_| Warmed::Failed(too_slow())))
    }

    /// Counts a page.
    fn note(&self, at: &Location, warmed: Warmed) -> Result<(), WalkEnd> {
        match warmed {
            Warmed::Busy => return Ok(()),
            Warmed::Fresh => self.count(|pages| pages.fresh += 1),
            Warmed::Made => {
                self.count(|pages| pages.made += 1);
                self.in_vain.set(0);
            }
            Warmed::NotKept { is_asked } => {
                self.count(|pages| pages.not_kept += 1);
                self.in_vain.set(self.in_vain.get() + u32::from(is_asked));
            }
            Warmed::Failed(why) => return self.fail(at, &why),
        }
        self.errors_in_row.set(0);
        if self.in_vain.get() >= MOST_IN_VAIN {
            let why = format!("the last {MOST_IN_VAIN} pages were made and may not be kept");
            return Err(WalkEnd::Early(why));
        }
        Ok(())
    }

    fn request(
        &self,
        running: &RunningLoop,
        services: &Services,
        at: &Location,
    ) -> Result<Request, String> {
        let site = services.config.sites.iter().find(|site| site.name == self.site);
        let connection = site.and_then(|site| connection(running, site, at));
        let connection = connection.ok_or("the site has no address for clients of this URL")?;
        services.own_request(&connection, &at.authority, &at.uri)
    }
}

fn too_slow() -> String {
    format!("it takes longer than {} s", LONGEST_ANSWER.as_secs())
}

/// The connections by which clients reach a site.
fn connections(running: &RunningLoop, site: &Site) -> Vec<OwnConnection> {
    let place = |&place: &usize| {
        let (scheme, local) = running.address(place)?;
        Some(OwnConnection { listener: place, scheme, local })
    };
    site.listeners.iter().filter_map(place).collect()
}

/// The connection by which clients reach an address: at its port, if the site listens there.
fn connection(running: &RunningLoop, site: &Site, at: &Location) -> Option<OwnConnection> {
    let scheme = if at.is_https { Scheme::Https } else { Scheme::Http };
    let mut all = connections(running, site);
    all.retain(|to| to.scheme == scheme);
    let same_port = all.iter().position(|to| to.local.port() == Some(at.port()));
    match same_port {
        Some(number) => Some(all.swap_remove(number)),
        None => all.into_iter().next(),
    }
}
