//! The choice of the site for a request, by the listener that the client connected to and the host
//! that it asked for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use sendoff_config::{Config, Host, Party};
use sendoff_lua_host::{ScriptShare, SharedByScripts};
use sendoff_message::request::Request;
use sendoff_static_files::{CacheLimits, CacheShare};

use super::Site;
use super::htaccess::HtaccessShare;

/// The sites of one event loop. A site is opened at its first request.
#[derive(Debug)]
pub struct Sites {
    config: Arc<Config>,
    /// One entry for each listener.
    listeners: Vec<ListenerSites>,
    open: RefCell<Vec<Option<Rc<Site>>>>,
    share: Rc<CacheShare>,
    htaccess: Rc<HtaccessShare>,
    scripts: Rc<ScriptShare>,
}

/// The sites of one listener.
#[derive(Debug, Default)]
struct ListenerSites {
    names: Arc<HostNames>,
    /// The only party that answers for them.
    party: Option<Rc<Party>>,
}

/// The host names of the sites of one listener, with the numbers of the sites.
#[derive(Debug, Default)]
pub struct HostNames {
    exact: HashMap<Box<str>, usize>,
    /// Endings of host names, longest first.
    beneath: Vec<(Box<str>, usize)>,
    /// The site for all other hosts: the site without hosts, otherwise the first site.
    default: Option<usize>,
    has_catch_all: bool,
}

impl HostNames {
    fn add(&mut self, site: &sendoff_config::Site, number: usize) {
        for host in &site.hosts {
            match host {
                Host::Exact(name) => {
                    self.exact.entry(name.as_str().into()).or_insert(number);
                }
                Host::Beneath(ending) => self.beneath.push((ending.as_str().into(), number)),
            }
        }
        self.beneath.sort_by_key(|(ending, _)| std::cmp::Reverse(ending.len()));
        if site.hosts.is_empty() && !self.has_catch_all {
            (self.default, self.has_catch_all) = (Some(number), true);
        }
        self.default = self.default.or(Some(number));
    }

    /// The number of the site for a host name; without a name, the default site.
    pub fn number_of(&self, host: Option<&str>) -> Option<usize> {
        host.map_or(self.default, |host| self.find(&host.to_ascii_lowercase()))
    }

    fn find(&self, host: &str) -> Option<usize> {
        let beneath = || {
            let found = self.beneath.iter().find(|(ending, _)| host.ends_with(&**ending));
            found.map(|(_, number)| *number)
        };
        self.exact.get(host).copied().or_else(beneath).or(self.default)
    }
}

impl Sites {
    /// Sites that are not open yet. At most `open_files` static files are kept open.
    pub fn new(config: Arc<Config>, open_files: usize, scripts: &Arc<SharedByScripts>) -> Self {
        let limits = CacheLimits { entries: CacheLimits::default().entries.min(open_files) };
        let open = RefCell::new(vec![None; config.sites.len()]);
        let (share, htaccess) = (CacheShare::new(limits), HtaccessShare::new());
        let scripts = ScriptShare::new(Arc::clone(scripts), &share);
        Self { listeners: by_listener(&config), config, open, share, htaccess, scripts }
    }

    /// Purges the fragments that the scripts of a site keep and that have one of these tags; `None`:
    /// all of them.
    pub fn purge_fragments(&self, site: &str, tags: Option<&[&str]>) {
        self.scripts.purge_fragments(site, tags);
    }

    /// True if a listener has another party than in the `other` configuration.
    pub fn parties_differ(&self, other: &Self) -> bool {
        let parties = |sites: &Self| -> Vec<_> {
            sites.listeners.iter().map(|hosts| hosts.party.clone()).collect()
        };
        parties(self) != parties(other)
    }

    /// The sites of another configuration. Unchanged sites stay open, with their files.
    pub fn renewed(&self, config: Arc<Config>) -> Self {
        let accounts = |config: &Config| -> Vec<_> {
            config.pools.iter().map(|pool| pool.account).chain([config.account]).collect()
        };
        let same_accounts = accounts(&config) == accounts(&self.config);
        let before = self.open.borrow();
        let open = config.sites.iter().enumerate().map(|(number, site)| {
            let is_same = same_accounts && self.config.sites.get(number) == Some(site);
            before.get(number).filter(|_| is_same).cloned().flatten()
        });
        let open = RefCell::new(open.collect());
        let (share, htaccess) = (Rc::clone(&self.share), Rc::clone(&self.htaccess));
        let scripts = Rc::clone(&self.scripts);
        Self { listeners: by_listener(&config), config, open, share, htaccess, scripts }
    }

    /// The site that answers a request.
    ///
    /// # Errors
    /// The site cannot be opened.
    pub fn of(&self, request: &Request) -> io::Result<Rc<Site>> {
        let none = || io::Error::other("no site listens here");
        let hosts = &self.listeners.get(request.listener).ok_or_else(none)?.names;
        let number = match hosts.default {
            // The usual case: with a single site, the host is irrelevant.
            Some(only) if hosts.exact.is_empty() && hosts.beneath.is_empty() => only,
            _ => hosts.find(&request.host_name()).ok_or_else(none)?,
        };
        self.open(number)
    }

    /// The number of the site for a host name on a listener; without a name, the default site of
    /// the listener.
    pub fn number_of(&self, listener: usize, host: Option<&str>) -> Option<usize> {
        self.listeners.get(listener)?.names.number_of(host)
    }

    /// The host names on a listener.
    pub fn names(&self, listener: usize) -> Option<&Arc<HostNames>> {
        self.listeners.get(listener).map(|hosts| &hosts.names)
    }

    /// The party whose processes answer all requests of a listener; `None` if there are several.
    pub fn party(&self, listener: usize) -> Option<&Rc<Party>> {
        self.listeners.get(listener)?.party.as_ref()
    }

    /// Closes static files that no request has used since the last call.
    pub fn close_unused_files(&self) {
        self.open.borrow().iter().flatten().for_each(|site| site.router.close_unused_files());
    }

    fn open(&self, number: usize) -> io::Result<Rc<Site>> {
        let before = self.open.borrow()[number].clone();
        if let Some(site) = before.as_ref().filter(|site| site.is_current()) {
            return Ok(Rc::clone(site));
        }
        let opened = Site::open(&self.config, number, &self.share, &self.htaccess, &self.scripts);
        let site = match (opened, before) {
            (Ok(site), _) => Rc::new(site),
            // The link leads to a folder that cannot be served: the previous release stays in use.
            (Err(_), Some(before)) => return Ok(before),
            (Err(error), None) => return Err(error),
        };
        self.open.borrow_mut()[number] = Some(Rc::clone(&site));
        Ok(site)
    }
}

fn by_listener(config: &Config) -> Vec<ListenerSites> {
    // After a reload, the listeners of a front have other numbers.
    let count =
        config.sites.iter().flat_map(|site| &site.listeners).max().map_or(0, |last| last + 1);
    let mut names: Vec<HostNames> = (0..count).map(|_| HostNames::default()).collect();
    for (number, site) in config.sites.iter().enumerate() {
        for &listener in &site.listeners {
            if let Some(names) = names.get_mut(listener) {
                names.add(site, number);
            }
        }
    }
    let party = |listener| config.sole_party(listener).map(Rc::new);
    let sites =
        |(listener, names)| ListenerSites { names: Arc::new(names), party: party(listener) };
    names.into_iter().enumerate().map(sites).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(hosts: &[&str]) -> sendoff_config::Site {
        let host = |name: &&str| match name.strip_prefix('*') {
            Some(ending) => Host::Beneath(ending.to_owned()),
            None => Host::Exact((*name).to_owned()),
        };
        let hosts = hosts.iter().map(host).collect();
        sendoff_config::Site { hosts, ..sendoff_config::Site::new("/".into()) }
    }

    #[test]
    fn exact_names_come_before_endings_and_long_endings_before_short_ones() {
        let mut hosts = HostNames::default();
        let sites = [
            site(&["a.example"]),
            site(&["*.example"]),
            site(&["*.b.example", "x.b.example"]),
            site(&[]),
            site(&[]),
        ];
        for (number, site) in sites.iter().enumerate() {
            hosts.add(site, number);
        }
        for (host, number) in [
            ("a.example", 0),
            ("c.example", 1),
            ("c.b.example", 2),
            ("x.b.example", 2),
            ("example", 3),
            ("192.0.2.1", 3),
        ] {
            assert_eq!(hosts.find(host), Some(number), "{host}");
        }
        let mut named_only = HostNames::default();
        named_only.add(&sites[0], 7);
        named_only.add(&sites[1], 8);
        assert_eq!(named_only.find("other"), Some(7), "the first is the default");
    }
}
