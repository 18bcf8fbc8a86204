//! Configuration of a site: its files and the applications that answer for it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access_log::SiteLog;
use crate::compression::Compression;
use crate::maps::RequestMap;
use crate::proxy::Proxy;
use crate::route::{Network, PageCache, Route};
use crate::tls::Tls;

/// A site: its files, its routes and the applications that answer for it. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Its name in logs.
    pub name: String,
    /// The hosts that it answers for; empty: every host that no other site on the listener answers
    /// for.
    pub hosts: Vec<Host>,
    /// The numbers of its listeners in `Config::listen`; in a front that has reloaded, the places
    /// that listeners keep across reloads.
    pub listeners: Vec<usize>,
    /// TLS on its listeners with TLS; `None`: the site has no certificate.
    pub tls: Option<Tls>,
    /// The port of https to which requests without TLS are redirected; `None`: such requests are
    /// answered.
    pub https_port: Option<u16>,
    /// The value of `Strict-Transport-Security` (RFC 6797), sent under TLS.
    pub hsts: Option<String>,
    /// Clients may speak HTTP/3 at the ports of its addresses for TLS, and are told so. False for a
    /// site that asks for client certificates.
    pub h3: bool,
    /// The folder with static files and scripts.
    #[serde(with = "crate::path::one")]
    pub root: PathBuf,
    /// The path of the root with its symbolic links, if it has some: when the links change, the
    /// site has a new root.
    #[serde(with = "crate::path::optional")]
    pub root_link: Option<PathBuf>,
    /// Folders outside the root that are served at a path of the site, the longest path first.
    pub aliases: Vec<Alias>,
    /// The written paths of other folders, if they have symbolic links, as `root_link`.
    pub links: Vec<FolderLink>,
    /// The allowed targets of symbolic links.
    pub symlinks: Symlinks,
    /// Folders outside the root that symbolic links may always lead to.
    #[serde(with = "crate::path::list")]
    pub follow: Vec<PathBuf>,
    /// Names of index files, in order.
    pub index: Vec<String>,
    /// The script that answers for paths that lead to no file.
    pub front_controller: FrontController,
    /// Lua scripts that run before the routes are tried, in order.
    #[serde(with = "crate::path::list")]
    pub lua_before: Vec<PathBuf>,
    /// The maps that the routes use.
    pub maps: Vec<RequestMap>,
    /// The routes, in the order in which they are tried.
    pub routes: Vec<Route>,
    /// Exceptions from the files that are never served: names (`composer.json`) or endings
    /// (`*.sql`) of files and folders.
    pub serve: Vec<String>,
    /// Runs a script even if the user of its workers may write to the root, to a folder above the
    /// script, or to the script itself.
    pub scripts_in_writable_folders: bool,
    /// The only scripts that run: paths, or folders with a slash at the end; empty: all. Others are
    /// refused.
    pub php_only: Vec<String>,
    /// Media types by ending (without its dot) on top of the built-in ones.
    pub media_types: Vec<(String, String)>,
    /// Compression of responses.
    pub compression: Compression,
    /// Pages of the site for error statuses.
    pub error_pages: Vec<ErrorPage>,
    /// While this file exists every request is answered with 503.
    #[serde(with = "crate::path::optional")]
    pub maintenance: Option<PathBuf>,
    /// `SERVER_SOFTWARE`; `None`: the server's name and version.
    pub server_software: Option<String>,
    /// The use of `.htaccess` files.
    pub htaccess: Htaccess,
    /// The use of the page cache where no route says otherwise; `None`: `Off`.
    pub page_cache: Option<PageCache>,
    /// The sitemap whose pages are made before clients ask for them: a path of the site, or a URL.
    pub warm: Option<String>,
    /// Puts fragments in their places in pages that ask for it, where no route says otherwise.
    pub esi: bool,
    /// The clients that may purge pages by requests; empty: none.
    pub purge_from: Vec<Network>,
    /// The access log.
    pub access_log: SiteLog,
    /// The number in `Config::pools` of the pool that runs its scripts; `None`: FastCGI
    /// applications answer for all of them.
    pub pool: Option<usize>,
    /// The worker script that answers for paths that lead to no file.
    pub worker: Option<SiteWorker>,
    /// FastCGI applications and the requests for each, in the order of the configuration.
    pub fastcgi: Vec<Attachment>,
    /// The longest time in which a FastCGI application may send nothing while it has a request.
    pub fastcgi_timeout: Duration,
    /// Applications that routes pass requests on to.
    pub proxies: Vec<Proxy>,
    /// Folders outside the root whose files applications may name in `X-Sendfile`.
    #[serde(with = "crate::path::list")]
    pub sendfile_from: Vec<PathBuf>,
    /// Folders by the prefix of URIs in `X-Accel-Redirect`, longest prefix first.
    pub accel: Vec<Accel>,
    /// The way of responses out of the workers.
    pub delivery: Delivery,
    /// Lets FastCGI applications on this host open links and hand over files on them.
    pub channel: bool,
}

impl Site {
    /// A site with this folder; the other values are defaults.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        let controller = Controller { folder: String::new(), script: "/index.php".to_owned() };
        Self {
            name: "default".to_owned(),
            hosts: Vec::new(),
            listeners: vec![0],
            tls: None,
            https_port: None,
            hsts: None,
            h3: false,
            root,
            root_link: None,
            aliases: Vec::new(),
            links: Vec::new(),
            symlinks: Symlinks::Owner,
            follow: Vec::new(),
            index: ["index.php", "index.html"].map(str::to_owned).to_vec(),
            front_controller: FrontController::Listed(vec![controller]),
            lua_before: Vec::new(),
            maps: Vec::new(),
            routes: Vec::new(),
            serve: Vec::new(),
            scripts_in_writable_folders: true,
            php_only: Vec::new(),
            media_types: Vec::new(),
            compression: Compression::default(),
            error_pages: Vec::new(),
            maintenance: None,
            server_software: None,
            htaccess: Htaccess::Ignored,
            page_cache: None,
            warm: None,
            esi: false,
            purge_from: Vec::new(),
            access_log: SiteLog::Server,
            pool: None,
            worker: None,
            fastcgi: Vec::new(),
            fastcgi_timeout: Duration::from_secs(60),
            proxies: Vec::new(),
            sendfile_from: Vec::new(),
            accel: Vec::new(),
            delivery: Delivery::Auto,
            channel: true,
        }
    }

    /// True if the site names this host, which is in lower case.
    #[must_use]
    pub fn answers_for(&self, host: &str) -> bool {
        self.hosts.iter().any(|named| match named {
            Host::Exact(name) => name == host,
            Host::Beneath(ending) => host.ends_with(ending.as_str()),
        })
    }

    /// True if pages of some of its applications are kept.
    #[must_use]
    pub fn keeps_pages(&self) -> bool {
        let routes = self.routes.iter().map(|route| route.rules.settings.page_cache);
        routes.chain([self.page_cache]).any(|used| matches!(used, Some(PageCache::On(_))))
    }
}

/// The use of `.htaccess` files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Htaccess {
    /// The server does not look for them.
    Ignored,
    /// They decide everything, as in Apache.
    Obeyed,
    /// They decide for a path on which one lies. For other paths the site answers as with
    /// `Ignored`.
    WhereFound {
        /// The front controller is the default one: an `.htaccess` file that names a script for
        /// paths without a file takes precedence.
        yields: bool,
    },
}

/// A host that a site answers for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Host {
    /// This name or address, in lower case, without a port.
    Exact(String),
    /// Every name with this ending: `.example.org` for `*.example.org`.
    Beneath(String),
}

impl Host {
    /// The host in the notation of certificates.
    #[must_use]
    pub fn certificate_name(&self) -> String {
        match self {
            Self::Exact(name) => name.clone(),
            Self::Beneath(ending) => format!("*{ending}"),
        }
    }
}

/// A folder outside the root that is served at a path of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// The path, which begins with a slash and does not end with one.
    pub prefix: String,
    /// The folder.
    #[serde(with = "crate::path::one")]
    pub folder: PathBuf,
}

/// The path of a folder of a site, as it was written: with symbolic links on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderLink {
    /// The folder.
    pub folder: LinkedFolder,
    /// The path.
    #[serde(with = "crate::path::one")]
    pub link: PathBuf,
}

/// One of the folders of a site, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkedFolder {
    /// In `Site::aliases`.
    Alias(usize),
    /// One of `Site::sendfile_from`.
    SendfileFrom,
    /// In `Site::accel`.
    Accel(usize),
}

/// The allowed targets of symbolic links, beside the root, aliases and the folders that are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Symlinks {
    /// No others.
    Inside,
    /// Files that belong to the owner of the link.
    Owner,
    /// All files.
    Any,
}

/// The script that answers for paths that lead to no file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrontController {
    /// No script: the answer is 404.
    Off,
    /// The `index.php` in the folder of the path, or in the nearest folder above it.
    Nearest,
    /// Controllers by folder, the longest folder first. The first controller whose folder contains
    /// the path answers.
    Listed(Vec<Controller>),
}

/// The worker script of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteWorker {
    /// The number in `Config::pools` of its pool, which has a
    /// [`WorkerScript`](crate::WorkerScript).
    pub pool: usize,
    /// The path of the script, equal to the pool's.
    #[serde(with = "crate::path::one")]
    pub file: PathBuf,
    /// True if it is also the front controller. Otherwise it gets only requests that lead to its
    /// file.
    pub is_controller: bool,
}

/// The front controller of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// The folder's path without a slash at its end; "" is the root.
    pub folder: String,
    /// The script's path.
    pub script: String,
}

/// The page for an error status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorPage {
    /// From 400 to 599.
    pub status: u16,
    /// A path of the site, which is answered as a `GET` request; the status stays.
    pub path: String,
}

/// A prefix of URIs in `X-Accel-Redirect`, and its folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accel {
    /// The prefix, which begins with a slash.
    pub prefix: String,
    /// The folder.
    #[serde(with = "crate::path::one")]
    pub folder: PathBuf,
}

impl FromStr for Accel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((prefix, folder)) if prefix.starts_with('/') && !folder.is_empty() => {
                Ok(Self { prefix: prefix.to_owned(), folder: folder.into() })
            }
            _ => Err("expected /PREFIX=DIR".to_owned()),
        }
    }
}

/// The way of responses out of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// The cheapest way for each response.
    Auto,
    /// As `Auto`, and workers write every large response to the client themselves.
    Direct,
    /// Files are handed over, other bytes pass through the link.
    File,
    /// Files are handed over, other bytes lie in memory shared with the worker.
    Region,
    /// Every byte passes through the link.
    Relay,
}

/// The condition on which a worker gets the client's socket along with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LendPolicy {
    /// Every byte passes through the front.
    Never,
    /// The script made large responses before.
    Auto,
    /// Always, where it is possible.
    Always,
}

impl Delivery {
    /// True if workers may hand over files; otherwise every byte of their output passes through the
    /// link.
    #[must_use]
    pub fn accepts_files(self) -> bool {
        self != Self::Relay
    }

    /// True if workers may put generated bytes into shared memory.
    #[must_use]
    pub fn accepts_regions(self) -> bool {
        matches!(self, Self::Auto | Self::Direct | Self::Region)
    }

    /// The condition on which workers may write to clients themselves.
    #[must_use]
    pub fn direct(self) -> LendPolicy {
        match self {
            Self::Auto => LendPolicy::Auto,
            Self::Direct => LendPolicy::Always,
            Self::File | Self::Region | Self::Relay => LendPolicy::Never,
        }
    }
}

/// A FastCGI application and the requests that it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The requests it answers.
    pub matching: Matching,
    /// Its address.
    pub address: Address,
}

/// The requests for a FastCGI application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Matching {
    /// Files of the site with this ending, which begins with a dot, and paths that continue behind
    /// such a file.
    Ending(String),
    /// Everything beneath this path, which begins with a slash and does not end with one: "" is the
    /// whole site.
    Prefix(String),
    /// Only the requests that routes send to it.
    Routes,
}

impl Attachment {
    /// True if the application answers every request that PHP workers could answer.
    #[must_use]
    pub fn replaces_workers(&self) -> bool {
        match &self.matching {
            Matching::Ending(ending) => ending == ".php",
            Matching::Prefix(prefix) => prefix.is_empty(),
            Matching::Routes => false,
        }
    }
}

impl FromStr for Attachment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (matching, address) =
            text.split_once('=').ok_or("expected .EXT=ADDRESS or /PREFIX=ADDRESS")?;
        let matching = match matching.as_bytes() {
            [b'.', ending @ ..] if !ending.is_empty() && !ending.contains(&b'/') => {
                Matching::Ending(matching.to_owned())
            }
            [b'/', ..] => Matching::Prefix(matching.trim_end_matches('/').to_owned()),
            _ => return Err(format!("{matching:?} is neither .EXT nor /PREFIX")),
        };
        Ok(Self { matching, address: address.parse()? })
    }
}

/// The address of a FastCGI application.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Address {
    /// A UNIX socket.
    Unix(#[serde(with = "crate::path::one")] PathBuf),
    /// A host, by name or number, and a port.
    Tcp(String),
    /// The socket of the pool with this name, which has a program.
    Pool(String),
    /// The hosts of the upstream with this name, in
    /// [`Config::upstreams`](crate::Config::upstreams).
    Upstream(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
            return Ok(Self::Unix(path.into()));
        }
        if let Some(name) = text.strip_prefix("pool:").filter(|name| !name.is_empty()) {
            return Ok(Self::Pool(name.to_owned()));
        }
        if let Some(name) = text.strip_prefix("upstream:").filter(|name| !name.is_empty()) {
            return Ok(Self::Upstream(name.to_owned()));
        }
        let host_port = text.strip_prefix("tcp:").unwrap_or_default();
        match host_port.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0) => {
                Ok(Self::Tcp(host_port.to_owned()))
            }
            _ => Err(format!(
                "{text:?} is neither unix:/PATH nor tcp:HOST:PORT nor pool:NAME nor upstream:NAME"
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_port) => write!(f, "tcp:{host_port}"),
            Self::Pool(name) => write!(f, "pool:{name}"),
            Self::Upstream(name) => write!(f, "upstream:{name}"),
        }
    }
}
