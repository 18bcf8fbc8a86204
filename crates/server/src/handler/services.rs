//! What the handlers of one event loop share.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustls::ServerConfig;
use sendoff_config::Config;
use tokio::sync::watch;

use super::choice::Choices;
use super::patience::Patience;
use super::sizes::Sizes;
use crate::at_work::AtWork;
use crate::auth::Auth;
use crate::challenges::Challenges;
use crate::clients::Requests;
use crate::clock::Clock;
use crate::compress::Compressor;
use crate::observe::access_log::Logs;
use crate::observe::explain::Secret;
use crate::observe::gather::Gatherer;
use crate::observe::meters::Meters;
use crate::page_cache::PageCache;
use crate::rates::Rates;
use crate::site::sites::Sites;
use crate::upstream::{Attached, Channel, Claims, Gateway, LocalPool};

/// The sites, the upstreams, and what was learned about scripts. A reload makes a new value, which shares what stays.
pub(crate) struct Services {
    /// The number of the event loop.
    pub(crate) number: usize,
    pub(crate) config: Arc<Config>,
    /// The secret of `sendoff explain`; `None`: nothing is explained.
    pub(crate) explain: Option<Arc<Secret>>,
    pub(crate) compressor: Arc<Compressor>,
    pub(crate) page_cache: Arc<PageCache>,
    pub(crate) sites: Sites,
    /// By the number of the site; `None`: it does not speak TLS.
    pub(crate) tls: Arc<[Option<Arc<ServerConfig>>]>,
    /// What authorities are answered that check names.
    pub(crate) challenges: Arc<Challenges>,
    /// By the number of the pool.
    pub(crate) pools: Vec<LocalPool>,
    /// Those of each site, by the numbers of both.
    pub(crate) attached: Arc<[Vec<Attached>]>,
    /// Applications that speak HTTP, SCGI or AJP, of each site, by the numbers of both.
    pub(crate) gateways: Arc<[Vec<Arc<Gateway>>]>,
    /// Where applications on this host may open links; `None` if there is none.
    pub(crate) channel: Option<Channel>,
    pub(crate) claims: Rc<Claims>,
    pub(crate) sizes: Rc<Sizes>,
    pub(crate) choices: Rc<Choices>,
    pub(crate) patience: Rc<Patience>,
    /// The requests that applications are to answer.
    pub(crate) at_work: Rc<AtWork>,
    pub(crate) auth: Arc<Auth>,
    /// How often clients have asked.
    pub(crate) rates: Arc<Rates>,
    /// What they have under way.
    pub(crate) requests: Arc<Requests>,
    /// The server is about to end.
    pub(crate) is_leaving: Arc<AtomicBool>,
    pub(crate) clock: Rc<Clock>,
    pub(crate) logs: Logs,
    pub(crate) meters: Meters,
    /// Where the metrics come from.
    pub(crate) gatherer: Gatherer,
    /// For each pool: that this value may still ask for its workers.
    pub(crate) _in_use: Vec<watch::Receiver<()>>,
}

impl Services {
    /// Reads the folder of kept pages if the configuration keeps pages and that has not been done.
    pub(crate) fn start_page_cache(&self) {
        if self.config.keeps_pages() {
            self.page_cache.start(self.config.front.page_cache.size);
        }
    }
}
