//! Makes the pages of sitemaps before clients ask for them (`warm`, docs/page-cache.md).
//!
//! One event loop does this for the whole front, with a task for each site. A task walks through the
//! pages of its sitemap when the front has started, and again after purges that concern the site.
//! It requests one page at a time, rests for as long as the page has taken, and waits while clients
//! need the workers. Pages that are kept and fresh cost no request, so a walk after a restart, an
//! upgrade or a reload only makes pages that are missing.

mod walker;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use sendoff_config::Config;
use sendoff_report::status::WarmingStatus;
use tokio::sync::Notify;
use tokio::task::spawn_local;

use self::walker::Walker;
use super::generation::Tasks;
use super::running_loop::RunningLoop;

/// The sites whose pages are made before clients ask for them.
#[derive(Default)]
pub(super) struct Warming {
    /// By the name of the site.
    sites: RefCell<HashMap<String, WarmSite>>,
}

/// A site, and the task for it.
struct WarmSite {
    /// The address of its sitemap, as configured.
    sitemap: String,
    state: Rc<WarmState>,
    _task: Tasks,
}

/// The part of a site's task that others see.
struct WarmState {
    status: RefCell<WarmingStatus>,
    /// Notified when the operator orders a walk.
    ordered: Notify,
}

impl Warming {
    /// Goes on with the sites that another configuration has, too, and begins with new ones.
    pub(super) fn serve(&self, running: &Rc<RunningLoop>, config: &Config) {
        let wanted = || {
            let sites = config.sites.iter();
            sites.filter_map(|site| Some((&site.name, site.warm.as_ref()?)))
        };
        let mut sites = self.sites.borrow_mut();
        sites.retain(|name, known| {
            wanted().any(|(site, sitemap)| site == name && *sitemap == known.sitemap)
        });
        for (name, sitemap) in wanted() {
            if sites.contains_key(name) {
                continue;
            }
            let status = WarmingStatus { site: name.clone(), ..WarmingStatus::default() };
            let state = Rc::new(WarmState { status: RefCell::new(status), ordered: Notify::new() });
            let walker = Walker::new(running, name, sitemap, &state);
            let purged = running.services.get().page_cache.purges_of(name);
            let task = Tasks(vec![spawn_local(walker.run(purged))]);
            sites.insert(name.clone(), WarmSite { sitemap: sitemap.clone(), state, _task: task });
        }
    }

    /// Ends all walks.
    pub(super) fn end(&self) {
        self.sites.borrow_mut().clear();
    }

    /// Begins a walk at each site. Returns their number.
    pub(super) fn order(&self) -> usize {
        let sites = self.sites.borrow();
        sites.values().for_each(|site| site.state.ordered.notify_one());
        sites.len()
    }

    /// The state of each site, by name.
    pub(super) fn status(&self) -> Vec<WarmingStatus> {
        let sites = self.sites.borrow();
        let mut all: Vec<_> =
            sites.values().map(|site| site.state.status.borrow().clone()).collect();
        all.sort_by(|one, other| one.site.cmp(&other.site));
        all
    }
}
