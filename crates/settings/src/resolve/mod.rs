//! From sections to the resolved configuration: fills in defaults, looks up names and files, and
//! reports contradictions.

mod authorize;
mod context;
mod fleet;
mod host;
mod hosts;
mod listen;
mod maps;
mod paths;
mod pool;
mod program;
mod proxy;
mod public;
mod redirects;
mod route;
mod site;
mod tls;
mod traces;
mod upstream;

use std::cell::OnceCell;
use std::path::Path;

use sendoff_config::{
    AccessLog, Account, Config, FrontConfig, Limits, LogFormat, LogTarget, MAX_THREADS, PageStore,
    ProxyFields, Site, SiteLog, Timeouts, TrustedProxies, Variable,
};
use sendoff_setting_values::{At, FilePath, LogPath, Place, Problems, ProxyField, Sources};

pub(crate) use context::{Context, unusable};

use crate::keys::Top;
use crate::machine::{Chosen, Machine};

/// The values of `log` that are no filter for single modules.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Divisor of the machine's memory for `max_queued`: workers need most of the rest.
const QUEUED_SHARE: u64 = 8;

/// Resolves the sections of the files or of a command line. `None`: there are errors in `problems`.
pub fn resolve(
    top: &Top,
    sources: &Sources,
    machine: &dyn Machine,
    problems: &mut Problems,
) -> Option<Config> {
    let mut context = Context { machine, sources, problems, found_host: OnceCell::new() };
    let config = context.config(top);
    if let Some(config) = &config {
        context.pages_are_for_some(top, config);
    }
    context.problems.sort();
    config.filter(|_| context.problems.errors() == 0)
}

impl Context<'_> {
    fn config(&mut self, top: &Top) -> Option<Config> {
        if top.site.value.0.is_empty() && !top.broken && self.problems.errors() == 0 {
            self.problems
                .error(top.place, "there is no site in the configuration")
                .help("a site begins with [[site]] and needs a root");
        }
        self.bodies_are_possible(Some(&top.max_body));
        let mut all_listeners = listen::ListenersSoFar::default();
        let shared = all_listeners.add(&top.listen.value, self);
        let mut pools = pool::Pools::resolve(top, self);
        let mut hosts = hosts::Taken::default();
        let mut sites = Vec::with_capacity(top.site.value.0.len());
        for section in &top.site.value.0 {
            let listeners = match &section.listen {
                Some(list) => all_listeners.add(&list.value, self),
                None => shared.clone(),
            };
            let listeners = self.met_by_tls(section, listeners, &mut all_listeners);
            if !section.broken {
                hosts.take(section, &listeners, self);
            }
            let tls = self.tls(section, top, &listeners, &all_listeners);
            // QUIC asks for no certificates, so clients of other sites are not led there.
            let asks_none = tls.tls.as_ref().is_none_or(|tls| tls.clients.is_none());
            let h3 = asks_none && listeners.iter().any(|number| all_listeners.is_quic(*number));
            let first = listeners.first().copied();
            let mut site = self.site(section, top, listeners, &mut pools);
            if let Some(site) = &mut site {
                self.redirects_end(section, &site.routes);
                if section.name.is_none()
                    && let Some(first) = first
                    && sites.iter().any(|other: &Site| other.name == site.name)
                {
                    site.name = format!("{} at {}", site.name, all_listeners.address(first));
                }
            }
            sites.extend(site.map(|site| Site {
                tls: tls.tls,
                https_port: tls.https_port,
                h3,
                ..site
            }));
        }
        self.addresses_are_used(top, &shared, &all_listeners, &sites);
        let listen = all_listeners.used(&mut sites);
        let account = sites.first().and_then(|first| self.account(top, &first.root));
        let access_log = top.access_log.as_ref().and_then(|log| self.log_target(log));
        let format = top.access_log_format.value.resolved();
        let access_log = access_log.map(|to| AccessLog { to, format });
        let own = sites.iter().filter_map(|site| match &site.access_log {
            SiteLog::Own(log) => Some(log),
            SiteLog::Server | SiteLog::Off => None,
        });
        // The JSON format always has an id if there is one.
        let asks = |log: &AccessLog| {
            log.format.has(Variable::RequestId) && log.format != LogFormat::json()
        };
        let asks_for_ids = access_log.iter().chain(own).any(asks);
        for network in top.trusted_proxies.iter().flat_map(|list| &list.value.0) {
            if network.value.0.prefix == 0 {
                self.problems
                    .warning(network.place, "every client is trusted to say who it is")
                    .help("name only the networks of your proxies");
            }
        }
        let levels = &top.log;
        // Levels of single modules are for developers and are not checked.
        let is_plain = !levels.value.0.contains(['=', ',', '[']);
        if is_plain && !LEVELS.contains(&levels.value.0.to_ascii_lowercase().as_str()) {
            self.problems
                .error(levels.place, format!("{:?} is no level of events", levels.value.0))
                .help(match levels.value.0.contains('/') {
                    true => "events go to standard error, which systemd's journal keeps; log is the level from which on they are written".to_owned(),
                    false => format!("there are {}", LEVELS.join(", ")),
                });
        }
        let threads = top.threads.as_ref().map_or(self.machine.cores() as u64, |n| n.value.0);
        Some(Config {
            log: top.log.value.0.clone(),
            listen,
            trusted_proxies: TrustedProxies {
                networks: top
                    .trusted_proxies
                    .iter()
                    .flat_map(|list| list.value.values())
                    .map(|client| client.0)
                    .collect(),
                unix: top.trust_unix.value,
                fields: match &top.proxy_field.value {
                    ProxyField::XForwardedFor => ProxyFields::XForwarded,
                    ProxyField::AddressesAlone => ProxyFields::Addresses { is_recursive: true },
                    ProxyField::LastAddressAlone => ProxyFields::Addresses { is_recursive: false },
                    ProxyField::Forwarded => ProxyFields::Forwarded,
                    ProxyField::None => ProxyFields::None,
                    ProxyField::Single(name) => ProxyFields::Single(name.0.to_ascii_lowercase()),
                },
            },
            account,
            state: match &top.state {
                Some(path) => path.value.0.clone(),
                None => self.machine.state_folder(),
            },
            acme: self.acme(top, &sites),
            tls: tls::algorithms(top),
            traces: self.traces(top),
            fleet: self.fleet(top),
            drain_delay: top.drain_delay.value.0,
            shutdown_timeout: top.shutdown_timeout.value.0,
            front: FrontConfig {
                threads: u8::try_from(threads).unwrap_or(MAX_THREADS).clamp(1, MAX_THREADS),
                access_log,
                request_ids: top.request_id.value || asks_for_ids,
                timeouts: Timeouts {
                    head: top.head_timeout.value.0,
                    body: top.body_timeout.value.0,
                    idle: top.idle_timeout.value.0,
                    send: top.send_timeout.value.0,
                },
                limits: Limits {
                    max_body: top.max_body.value.0,
                    connections: top.max_connections.map(|number| number.value.0),
                    connections_per_client: top
                        .max_connections_per_client
                        .map(|number| number.value.0),
                    body_rate: top.min_body_rate.value.0,
                    send_rate: top.min_send_rate.value.0,
                    queued: match &top.max_queued {
                        Some(size) => size.value.0,
                        None => self.machine.memory() / QUEUED_SHARE,
                    },
                },
                page_cache: PageStore {
                    folder: match &top.page_cache_folder {
                        Some(path) => path.value.0.clone(),
                        None => self.machine.cache_folder(),
                    },
                    size: top.page_cache_size.value.0,
                },
            },
            upstreams: pools.upstreams().used(self),
            pools: pools.used(account, &mut sites, self),
            sites,
        })
    }

    /// The target of a log; `None` if requests are not logged. A file must be writable.
    pub(crate) fn log_target(&mut self, log: &At<LogPath>) -> Option<LogTarget> {
        let path = match &log.value {
            LogPath::Off => return None,
            LogPath::Stdout => return Some(LogTarget::Stdout),
            LogPath::File(path) => At { value: path.clone(), place: log.place },
        };
        self.check_log_path(&path);
        self.check_log_writable(&path);
        Some(LogTarget::File(path.value.0))
    }

    /// Checks that an access log is the path of a file alone, without a format or nginx's words.
    fn check_log_path(&mut self, log: &At<FilePath>) {
        const FORMATS: [&str; 4] = ["combined", "json", "main", "common"];
        let path = log.value.0.to_string_lossy();
        let name = path.rsplit('/').next().unwrap_or_default();
        let format = path.rsplit_once(' ').filter(|(_, format)| FORMATS.contains(format));
        let (says, help) = match (name, format) {
            ("none" | "false", _) => {
                (format!("\"{name}\" is a file here"), "write access_log = \"off\"".to_owned())
            }
            (_, Some((path, format))) => {
                let format = if format == "json" { format } else { "combined" };
                (
                    "the format is a key of its own".to_owned(),
                    format!("write access_log = \"{path}\" and access_log_format = \"{format}\""),
                )
            }
            _ if name.starts_with("syslog:") || path.contains("/syslog:") => (
                "requests are logged to a file or to standard output".to_owned(),
                "access_log = \"-\" is standard output, which systemd's journal keeps".to_owned(),
            ),
            _ => return,
        };
        self.problems.error(log.place, says).help(help);
    }

    fn account(&mut self, top: &Top, root: &Path) -> Option<Account> {
        let place = top.user.as_ref().map_or(Place::Default, |user| user.place);
        let name = top.user.as_ref().map(|user| user.value.0.as_str());
        match self.machine.account(name, root) {
            Ok(Chosen { account, warning }) => {
                if let Some(warning) = warning {
                    self.problems.warning(place, warning);
                }
                account
            }
            Err(says) => {
                let problem = self.problems.error(place, says);
                if name.is_some_and(|name| name.contains([' ', ':'])) {
                    problem.help("write the user alone: the group is that of the account");
                }
                None
            }
        }
    }
}
