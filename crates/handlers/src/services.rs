//! The services that the handlers of one event loop share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustls::ServerConfig;
use sendoff_auth::Auth;
use sendoff_compress::Compressor;
use sendoff_config::Config;
use sendoff_delivery_stats::lending_stats::AllLendingStats;
use sendoff_delivery_stats::patience::Patience;
use sendoff_delivery_stats::sizes::Sizes;
use sendoff_exchange::clients::RequestCounts;
use sendoff_exchange::rates::Rates;
use sendoff_message::Clock;
use sendoff_observe::gather::Gatherer;
use sendoff_page_cache::PageCache;
use sendoff_report::access_log::Logs;
use sendoff_report::at_work::AtWork;
use sendoff_report::explain::Secret;
use sendoff_report::meters::Meters;
use sendoff_site::sites::Sites;
use sendoff_tls::{SiteTls, Tickets};
use sendoff_upstream_fastcgi::attached::Attached;
use sendoff_upstream_fastcgi::channel::Channel;
use sendoff_upstream_gateway::Gateway;
use sendoff_upstream_worker::claims::Claims;
use sendoff_upstream_worker::link::LocalPool;
use tokio::sync::watch;

use crate::challenges::Challenges;
use crate::esi::KeptMarkup;

/// The sites, the upstreams, and the statistics about scripts. A reload makes a new value, which
/// shares the unchanged parts.
pub struct Services {
    /// The number of the event loop.
    pub number: usize,
    /// The configuration of this generation.
    pub config: Arc<Config>,
    /// The secret of `sendoff explain`; `None`: nothing is explained.
    pub explain: Option<Arc<Secret>>,
    /// Buffers and kept files of compression, which all event loops share.
    pub compressor: Arc<Compressor>,
    /// Kept pages, which all event loops share.
    pub page_cache: Arc<PageCache>,
    /// The markup of kept pages that clients have got lately.
    pub markup: KeptMarkup,
    /// The sites of this generation.
    pub sites: Sites,
    /// TLS configurations by the number of the site; `None`: the site has no TLS.
    pub tls: Arc<[Option<SiteTls>]>,
    /// The keys of session tickets for clients that show no certificate.
    pub tickets: Tickets,
    /// TLS configurations for HTTP/3 by the place of the listener, made at its first packet.
    pub quic: RefCell<HashMap<usize, Arc<ServerConfig>>>,
    /// Answers to authorities that check names (ACME).
    pub challenges: Arc<Challenges>,
    /// Worker pools by their number.
    pub pools: Vec<LocalPool>,
    /// FastCGI applications, by the number of the site and the number of the application within it.
    pub attached: Arc<[Vec<Attached>]>,
    /// Applications that speak HTTP, SCGI, uwsgi or AJP, by the number of the site and the number of
    /// the application within it.
    pub gateways: Arc<[Vec<Arc<Gateway>>]>,
    /// The channel on which applications on this host may open links, if there is one.
    pub channel: Option<Channel>,
    /// Requests for which an application may open a link.
    pub claims: Rc<Claims>,
    /// Predicted sizes of responses, per script.
    pub sizes: Rc<Sizes>,
    /// Which delivery mode is quicker, per size class.
    pub lending: Rc<AllLendingStats>,
    /// The limit for the wait of an application for its client, before the response goes to a spool
    /// file.
    pub patience: Rc<Patience>,
    /// Requests for applications, for `sendoff status`.
    pub at_work: Rc<AtWork>,
    /// Passwords and attempts, which all event loops share.
    pub auth: Arc<Auth>,
    /// Rates of requests per client, which all event loops share.
    pub rates: Arc<Rates>,
    /// Requests in flight per client, which all event loops share.
    pub requests: Arc<RequestCounts>,
    /// True once the server is about to end.
    pub is_leaving: Arc<AtomicBool>,
    /// The time of day, as texts.
    pub clock: Rc<Clock>,
    /// The access logs.
    pub logs: Logs,
    /// Counters of this event loop.
    pub meters: Meters,
    /// Collects the figures of all event loops.
    pub gatherer: Gatherer,
    /// One receiver per pool: while it lives, this value may still ask for the pool's workers.
    pub _in_use: Vec<watch::Receiver<()>>,
}

impl Services {
    /// The TLS settings of a site.
    pub(crate) fn tls_of(&self, site: Option<usize>) -> Option<&SiteTls> {
        self.tls.get(site?)?.as_ref()
    }

    /// Starts to read the folder of kept pages if the configuration keeps pages and the folder was
    /// not read before.
    pub fn start_page_cache(&self) {
        if self.config.keeps_pages() {
            self.page_cache.start(self.config.front.page_cache.size);
        }
    }
}
