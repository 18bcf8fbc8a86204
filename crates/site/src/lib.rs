//! Sites: the choice of the site for a request ([`sites`]), its decision about the request
//! (`decide.rs`) and the effects of that ([`effects`]), and the files that applications may name
//! ([`naming`]).
#![forbid(unsafe_code)]

mod decide;
pub mod decided_for;
pub mod effects;
pub(crate) mod field_change;
mod htaccess;
pub mod listing;
mod maps;
mod matching;
pub mod naming;
pub mod pool_page;
mod release;
mod rules;
mod settled;
pub mod sites;
mod text;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use http::header::InvalidHeaderName;
use http::{HeaderName, StatusCode};
use sendoff_auth::PasswordQueues;
use sendoff_config::{
    Account, Authorizer, Clients, Compression, Config, Delivery, ErrorPage, PageCache, Route,
    SiteLog,
};
use sendoff_htaccess::CacheLines;
use sendoff_lua_host::{ScriptShare, SiteScripts};
use sendoff_message::configured::shared;
use sendoff_message::request::{Endpoint, Request, Scheme};
use sendoff_message::response::ResponseHead;
use sendoff_site_files::router::Router;
use sendoff_site_files::sendable::Sendable;
use sendoff_static_files::{CacheShare, WritingUser};
use sendoff_sys::process::groups_of;

use decided_for::DecidedFor;
use effects::{Answer, Effects};
use htaccess::decision::HtaccessDecision;
use htaccess::{Htaccess, HtaccessShare};
use maps::Maps;
use release::Release;
use rules::CompiledRoutes;
use text::MapNames;

pub use decide::DecisionContext;
pub use htaccess::decision::User;
pub use maps::check_countries;
pub use rules::{InternalTarget, Rewrites};
pub use settled::Settled;

/// `SERVER_SOFTWARE`, unless the site has its own.
const SOFTWARE: &str = concat!("sendoff/", env!("CARGO_PKG_VERSION"));

/// One site on one event loop.
#[derive(Debug)]
pub struct Site {
    /// Its number in the configuration.
    pub number: usize,
    /// The links to its folders.
    release: Release,
    /// Finds files and scripts below the root.
    pub router: Router,
    rules: CompiledRoutes,
    /// The numbers of the maps whose values are in its access log.
    logged_maps: Vec<usize>,
    /// Request fields that authorizers set.
    granted_fields: Vec<HeaderName>,
    /// `None`: the site has none.
    scripts: Option<SiteScripts>,
    /// Scripts that run before the routes are tried.
    lua_before: Vec<PathBuf>,
    htaccess: Option<Htaccess>,
    /// The files that applications may name.
    pub sendable: Sendable,
    /// The ways in which workers may deliver responses.
    pub delivery: Delivery,
    /// `SERVER_SOFTWARE`.
    pub software: Bytes,
    /// The queue of clients whose passwords are to be checked.
    pub queues: PasswordQueues,
    /// The settings of compression.
    pub compression: Compression,
    error_pages: Vec<ErrorPage>,
    maintenance: Option<PathBuf>,
    /// The port to which requests without TLS are redirected.
    https_port: Option<u16>,
    /// The value of `Strict-Transport-Security`.
    pub hsts: Option<Bytes>,
    /// Clients may speak HTTP/3 at the ports of its addresses for TLS.
    pub h3: bool,
    /// The use of the page cache where no route says otherwise.
    pub page_cache: Option<PageCache>,
    /// Pages are assembled where no route says otherwise.
    esi: bool,
    /// The clients that may purge pages.
    purgers: Clients,
}

impl Site {
    /// Opens the folders of the site with this number, and compiles its routes.
    ///
    /// # Errors
    /// One of the folders cannot be opened, or a route is not valid.
    pub(crate) fn open(
        config: &Config,
        number: usize,
        share: &Rc<CacheShare>,
        htaccess: &Rc<HtaccessShare>,
        scripts: &Rc<ScriptShare>,
    ) -> io::Result<Self> {
        let (release, site) = Release::of(&config.sites[number])?;
        let site = &*site;
        let software = shared(site.server_software.as_deref().unwrap_or(SOFTWARE));
        let maps = Maps::compile(&site.maps)?;
        let distrusted = match site.scripts_in_writable_folders {
            true => None,
            false => Some(user_of_scripts(config, site)?),
        };
        Ok(Self {
            number,
            release,
            router: Router::new(site, distrusted, share)?,
            scripts: has_scripts(site)
                .then(|| SiteScripts::new(scripts, &site.name, site.root.as_os_str().as_bytes())),
            lua_before: site.lua_before.clone(),
            granted_fields: granted_fields(&site.routes).map_err(io::Error::other)?,
            logged_maps: logged_maps(config, site, &maps),
            rules: CompiledRoutes::compile(&site.routes, maps).map_err(io::Error::other)?,
            sendable: Sendable::open(site)?,
            delivery: site.delivery,
            htaccess: Htaccess::new(site.htaccess, software.clone(), lines_of(site), htaccess),
            software,
            queues: PasswordQueues::default(),
            compression: site.compression.clone(),
            error_pages: site.error_pages.clone(),
            maintenance: site.maintenance.clone(),
            https_port: site.https_port,
            hsts: site.hsts.as_deref().map(shared),
            h3: site.h3,
            page_cache: site.page_cache,
            esi: site.esi,
            purgers: Clients { allow: site.purge_from.clone(), deny: Vec::new(), otherwise: false },
        })
    }

    /// The target of the redirect for a request without TLS, if the site redirects such requests.
    pub fn by_https(&self, request: &Request) -> Option<Bytes> {
        let port = self.https_port.filter(|_| request.scheme == Scheme::Http)?;
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let start = format!("https://{}{port}", request.host_name());
        Some([start.as_bytes(), &request.uri].concat().into())
    }

    /// True if the symbolic links to its folders, if there are any, still lead to the opened
    /// folders.
    fn is_current(&self) -> bool {
        self.release.is_current()
    }

    /// Names and values of the maps that the format of the access log names.
    pub fn logged_maps(&self, request: &Request) -> Vec<(String, Vec<u8>)> {
        self.rules.map_values(&self.logged_maps, request)
    }

    /// Finds an internal route that passes on a request which an application has redirected here.
    /// `asks` tells if the application with this number is acceptable.
    ///
    /// # Errors
    /// The route refuses the request; this is its answer.
    pub fn redirect_internally(
        &self,
        request: &mut Request,
        effects: &mut Effects,
        asks: impl Fn(usize, Rewrites) -> bool,
    ) -> Result<Option<InternalTarget>, Answer> {
        self.rules.redirect_internally(&self.router, request, effects, asks)
    }

    /// True if the site has internal routes that pass requests on.
    pub fn has_internal_routes(&self) -> bool {
        self.rules.have_internal()
    }

    /// True if its applications speak to the page cache in LSCache's language.
    pub fn speaks_lscache(&self) -> bool {
        self.page_cache.is_some_and(PageCache::is_lscache)
    }

    /// True if fragments are put in their places in pages of an application that asks for it.
    pub fn assembles(&self, effects: &Effects) -> bool {
        effects.settings.esi.unwrap_or(self.esi)
    }

    /// True if the client may purge pages by requests.
    pub fn lets_purge(&self, client: &Endpoint) -> bool {
        matching::may_ask(&self.purgers, client)
    }

    /// The clients for whom decisions about all files hold that a body may name. The names are not
    /// known yet when the response begins.
    pub fn names_decided_for(&self) -> DecidedFor {
        self.rules.names_decided_for()
    }

    /// Changes the head of a response as `.htaccess` files demand.
    pub fn change(&self, request: &Request, decision: &HtaccessDecision, head: &mut ResponseHead) {
        if let Some(files) = &self.htaccess {
            files.change(&self.router, request, decision, head);
        }
    }

    /// Changes the head of a response as Lua scripts demand. Returns the names of the fields that
    /// they set or removed.
    pub fn run_on_head(
        &self,
        scripts: &[Rc<[PathBuf]>],
        request: &Request,
        head: &mut ResponseHead,
    ) -> Vec<Bytes> {
        let Some(own) = &self.scripts else { return Vec::new() };
        scripts.iter().flat_map(|scripts| own.change(scripts, request, head)).collect()
    }

    /// The path of the site's own page for an error status.
    pub fn error_page(&self, status: StatusCode) -> Option<&str> {
        let mut pages = self.error_pages.iter();
        pages.find(|page| page.status == status.as_u16()).map(|page| &*page.path)
    }
}

/// The treatment of the lines for LiteSpeed's page cache in `.htaccess` files.
fn lines_of(site: &sendoff_config::Site) -> CacheLines {
    match site.page_cache.is_some_and(PageCache::is_lscache) {
        true => CacheLines::Obeyed,
        false => CacheLines::Skipped,
    }
}

/// The numbers of the maps of a site that the format of its access log names.
fn logged_maps(config: &Config, site: &sendoff_config::Site, maps: &Maps) -> Vec<usize> {
    let log = match &site.access_log {
        SiteLog::Server => config.front.access_log.as_ref(),
        SiteLog::Own(log) => Some(log),
        SiteLog::Off => None,
    };
    let names = log.into_iter().flat_map(|log| log.format.maps());
    names.filter_map(|name| maps.number(name)).collect()
}

/// The request fields that the authorizers of a site set. A client could pretend to be another user
/// by sending one.
fn granted_fields(routes: &[Route]) -> Result<Vec<HeaderName>, InvalidHeaderName> {
    let authorizers = routes.iter().filter_map(|route| route.rules.authorize.as_ref());
    let names = authorizers.flat_map(|authorizer| match authorizer {
        Authorizer::Http(authorizer) => &authorizer.copy_headers[..],
        Authorizer::FastCgi(_) => &[],
    });
    names.map(|name| HeaderName::from_bytes(name.as_bytes())).collect()
}

fn has_scripts(site: &sendoff_config::Site) -> bool {
    let by_route =
        |route: &Route| !route.rules.lua.is_empty() || !route.rules.lua_response.is_empty();
    !site.lua_before.is_empty() || site.routes.iter().any(by_route)
}

/// The user that runs the scripts of a site: the user of its pool, otherwise the server's own.
fn user_of_scripts(config: &Config, site: &sendoff_config::Site) -> io::Result<WritingUser> {
    let pool = site.pool.and_then(|pool| config.pools.get(pool));
    match pool.and_then(|pool| pool.account).or(config.account) {
        Some(Account { uid, gid }) => Ok(WritingUser { uid, groups: groups_of(uid, gid)? }),
        None => {
            let groups = rustix::process::getgroups()?.into_iter();
            let groups = groups.chain([rustix::process::getegid()]).map(|group| group.as_raw());
            Ok(WritingUser { uid: rustix::process::geteuid().as_raw(), groups: groups.collect() })
        }
    }
}
