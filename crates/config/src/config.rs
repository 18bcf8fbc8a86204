//! The whole configuration.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access_log::{AccessLog, LogTarget, SiteLog};
use crate::account::Account;
use crate::acme::Acme;
use crate::fleet::Fleet;
use crate::front::FrontConfig;
use crate::pool::PoolConfig;
use crate::site::{Address, Site};
use crate::tls::TlsAlgorithms;
use crate::traces::Traces;
use crate::trusted_proxies::TrustedProxies;
use crate::upstream::Upstream;

/// The configuration of a server, with every default filled in and every path absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Filter of the events that are logged, in the syntax of `tracing_subscriber::filter::Targets`.
    pub log: String,
    /// The listeners, as the operator wrote them: port 0 stands for any free port.
    pub listen: Vec<Listener>,
    /// Proxies whose statements about the client are trusted (`X-Forwarded-For`, `Forwarded`, PROXY
    /// protocol).
    pub trusted_proxies: TrustedProxies,
    /// The user that the front changes to; `None`: the front stays the supervisor's user.
    pub account: Option<Account>,
    /// The folder for files that the server keeps across restarts: certificates that it made or
    /// obtained.
    #[serde(with = "crate::path::one")]
    pub state: PathBuf,
    /// The authority for certificates; `None` if no site asks for one.
    pub acme: Option<Acme>,
    /// The algorithms of TLS.
    pub tls: TlsAlgorithms,
    /// Traces of requests; `None`: requests are not traced.
    pub traces: Option<Traces>,
    /// Other nodes with which this one acts as one; `None`: it is alone.
    pub fleet: Option<Fleet>,
    /// Time after the stop signal in which the server still answers, while its readiness check
    /// already fails.
    pub drain_delay: Duration,
    /// Time from the end of `drain_delay` until the last process is gone.
    pub shutdown_timeout: Duration,
    /// The process that speaks HTTP.
    pub front: FrontConfig,
    /// The sites; the first one on a listener is the listener's default.
    pub sites: Vec<Site>,
    /// The pools of PHP workers and of programs, in the order of their numbers.
    pub pools: Vec<PoolConfig>,
    /// Upstreams with several hosts, to which sites refer by their names.
    pub upstreams: Vec<Upstream>,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The address.
    pub address: ListenAddress,
    /// Each connection begins with a PROXY protocol header, version 1 or 2. Only trusted proxies
    /// may connect then.
    pub proxy_protocol: bool,
    /// Clients speak TLS.
    pub tls: bool,
    /// Access to a UNIX socket.
    pub access: SocketAccess,
}

/// The permissions, owner and group of a UNIX socket's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketAccess {
    /// Permissions; a process needs the right to write to connect.
    pub mode: u32,
    /// The owner's user id; `None`: the supervisor's.
    pub owner: Option<u32>,
    /// The group id; `None`: the supervisor's.
    pub group: Option<u32>,
}

impl Default for SocketAccess {
    /// Every process that can reach the path may connect, as with nginx and as with a port of the
    /// loopback interface: the permissions of the folders above the path decide.
    fn default() -> Self {
        Self { mode: 0o666, owner: None, group: None }
    }
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// QUIC, on UDP, for HTTP/3.
    Quic(SocketAddr),
    /// A UNIX stream socket.
    Unix(#[serde(with = "crate::path::one")] PathBuf),
}

/// The largest part of `shutdown_timeout` that is reserved for resetting connections and killing
/// processes.
const RESERVE: Duration = Duration::from_secs(1);

/// ```text
///  signal                             drain_timeout     kill_timeout     shutdown_timeout
///    ├───────────────────────────────────────┼────────────────┼────────────────┤
///      front: open responses finish             front: resets     front killed    master killed,
///      then workers: scripts finish             and ends          workers killed  with its workers
/// ```
impl Config {
    /// The number of the pool that an address of an application names, if it names one.
    #[must_use]
    pub fn pool_at(&self, address: &Address) -> Option<usize> {
        let Address::Pool(name) = address else { return None };
        self.pools.iter().position(|pool| pool.name == *name)
    }

    /// The numbers of the pools that answer for a site.
    pub fn pools_of(&self, site: &Site) -> impl Iterator<Item = usize> {
        let of_php = [site.pool, site.worker.as_ref().map(|worker| worker.pool)];
        let of_programs = site.fastcgi.iter().map(|attachment| self.pool_at(&attachment.address));
        of_php.into_iter().chain(of_programs).flatten()
    }

    /// True if a route keeps pages of applications.
    #[must_use]
    pub fn keeps_pages(&self) -> bool {
        self.sites.iter().any(Site::keeps_pages)
    }

    /// Time from the signal until the front resets the connections that are still in the middle of
    /// a response, and ends.
    #[must_use]
    pub fn drain_timeout(&self) -> Duration {
        self.shutdown_timeout - self.reserve()
    }

    /// Time from the signal until the supervisor kills the front and the workers that have not
    /// ended by themselves.
    #[must_use]
    pub fn kill_timeout(&self) -> Duration {
        self.shutdown_timeout - self.reserve() / 2
    }

    /// Time that the PHP master gives its last workers to log their backtraces, before it kills
    /// them. It fits between `kill_timeout` and `shutdown_timeout`.
    #[must_use]
    pub fn last_grace(&self) -> Duration {
        self.reserve() / 4
    }

    /// The log of the site with this number, or of requests that belong to no site; `None` if these
    /// requests are not logged.
    #[must_use]
    pub fn log_of(&self, site: Option<usize>) -> Option<&AccessLog> {
        match site.and_then(|site| self.sites.get(site)).map(|site| &site.access_log) {
            None | Some(SiteLog::Server) => self.front.access_log.as_ref(),
            Some(SiteLog::Own(log)) => Some(log),
            Some(SiteLog::Off) => None,
        }
    }

    /// The targets of all access logs, each once: first the server's, then the sites'.
    #[must_use]
    pub fn log_targets(&self) -> Vec<&LogTarget> {
        let sites = (0..self.sites.len()).map(Some);
        let logs = std::iter::once(None).chain(sites).filter_map(|site| self.log_of(site));
        let mut seen = HashSet::new();
        logs.map(|log| &log.to).filter(|to| seen.insert(*to)).collect()
    }

    fn reserve(&self) -> Duration {
        (self.shutdown_timeout / 10).min(RESERVE)
    }
}
