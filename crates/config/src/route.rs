//! Routes of a site: conditions, rules and handlers.
//!
//! A site tries its routes in order. A route whose conditions all hold applies its [`Rules`]; if it
//! has a [`Handler`], the handler answers and no further route is tried. Otherwise the next route
//! sees the request as the rules left it. The path of a request without a handler is looked up in
//! the site's folder.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::compression::Compress;
use crate::maps::MapCondition;
use crate::url_path::contains;

/// One route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The place in the configuration, for the log: `sendoff.toml:14`, `--deny /private`.
    pub origin: String,
    /// The conditions of the requests that it concerns.
    pub conditions: Conditions,
    /// The changes that it makes.
    pub rules: Rules,
    /// The handler that answers; `None`: the next routes decide.
    pub handler: Option<Handler>,
}

/// Conditions on a request. Every condition that is given must hold; one matching element of a list
/// suffices. Without any condition the route concerns all requests. Paths are compared decoded and
/// normalised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Complete paths.
    pub paths: Vec<String>,
    /// Folders: the path itself and everything beneath it. They begin with a slash and do not end
    /// with one; "" is the whole site.
    pub prefixes: Vec<String>,
    /// Endings of the last segment of the path, with their dot, compared without regard to case.
    pub extensions: Vec<String>,
    /// A PCRE2 expression that matches anywhere in the path. Its groups are `$1` to `$9` in the
    /// route's texts.
    pub expression: Option<String>,
    /// Methods; `GET` includes `HEAD`.
    pub methods: Vec<String>,
    /// Request fields; all of them must match.
    pub headers: Vec<FieldCondition>,
    /// Parameters of the query string; all of them must match.
    pub query: Vec<FieldCondition>,
    /// Values of the site's maps; all of them must match.
    pub when: Vec<MapCondition>,
}

impl Conditions {
    /// The condition on the path that holds for this path, or the first one, as a text for traces:
    /// `/about`, `/api/*`, `*.jpg` or an expression. `None`: there is no condition on the path.
    #[must_use]
    pub fn path_text(&self, path: &[u8]) -> Option<String> {
        let Self { paths, prefixes, extensions, expression, .. } = self;
        if let Some(path) = paths.iter().find(|known| known.as_bytes() == path) {
            return Some(path.clone());
        }
        let folders = prefixes.iter().filter(|folder| contains(folder.as_bytes(), path));
        let folder = folders.max_by_key(|folder| folder.len());
        if let Some(folder) = folder.or(prefixes.first()) {
            return Some(format!("{folder}/*"));
        }
        let first = paths.first().or(expression.as_ref()).cloned();
        first.or_else(|| extensions.first().map(|ending| format!("*{ending}")))
    }
}

/// A condition on a request field or on a parameter of the query string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldCondition {
    /// The name; a field's name is compared without regard to case.
    pub name: String,
    /// A PCRE2 expression for the value; `None`: the field must be present. A missing field matches
    /// no expression.
    pub value: Option<String>,
    /// Inverts the condition.
    pub negated: bool,
}

/// Declares a struct of optional settings, with a method that overrides them by a later route's
/// settings.
macro_rules! overlaid {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: Option<$kind:ty>,)* }) => {
        $(#[$meta])*
        pub struct $name { $($(#[$doc])* pub $field: Option<$kind>,)* }

        impl $name {
            /// Takes over each value that `later` has.
            pub fn overlay(&mut self, later: &Self) {
                $(if later.$field.is_some() { self.$field = later.$field; })*
            }
        }
    };
}

overlaid! {
    /// Settings of a route that the last matching route with a value decides. A new one is a field
    /// here, a key in `settings/keys.rs`, and the code that acts on it.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RouteSettings {
        /// Lets applications name files and URLs in response fields; `None`: only applications that
        /// are no proxies, or if the site lists folders for this.
        pub name_files: Option<bool>,
        /// The use of the page cache; `None`: `Off`.
        pub page_cache: Option<PageCache>,
        /// Puts fragments in their places in pages that ask for it; `None`: the site's choice.
        pub esi: Option<bool>,
        /// Lets clients remove cached pages by `PURGE`; `None`: false.
        pub purge: Option<bool>,
        /// The responses that are compressed; `None`: the site's choice.
        pub compress: Option<Compress>,
        /// The largest request body, in bytes; `None`: the server's limit.
        pub max_body: Option<u64>,
        /// Passes the request body to an application while it arrives; `None`: when it is complete.
        pub stream_body: Option<bool>,
        /// The longest time without output of a script; zero: no limit; `None`: the pool's.
        pub request_timeout: Option<Duration>,
        /// The longest time without a byte in either direction of a WebSocket to a FastCGI
        /// application; `None`: an hour.
        pub tunnel_timeout: Option<Duration>,
        /// The largest rate of a response, in bytes per second; zero and `None`: no limit.
        pub limit_rate: Option<u64>,
        /// Writes the request to the access log; `None`: the site's choice.
        pub access_log: Option<bool>,
        /// The number in `Site::fastcgi` of the application that gets static files as the data of a
        /// filter (FastCGI 1.0 §6.4).
        pub filter: Option<usize>,
    }
}

/// Changes by a route. In its texts `$path`, `$query`, `$host`, `$scheme`, `$uri` (path and query
/// as sent), `$remote_addr` and `$1` to `$9` stand for parts of the request, `$map_NAME` for the value
/// of a map; `$$` is a dollar sign.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The new path and, behind `?`, the new query; without `?` the query stays.
    pub rewrite: Option<String>,
    /// Candidates for the new path, tried in order. A candidate that ends with a slash must be a
    /// folder, any other a file. The last candidate is used without a check: a path, as in
    /// `rewrite`, or `=STATUS`.
    pub try_files: Vec<String>,
    /// Clients get 404: only applications lead requests here, by `X-Accel-Redirect` and
    /// `X-Reproxy-URL`.
    pub internal: bool,
    /// Settings; for each, the last matching route with a value decides.
    pub settings: RouteSettings,
    /// Changes of request fields, in order.
    pub request_headers: Vec<HeaderRule>,
    /// Changes of response fields, in order.
    pub response_headers: Vec<HeaderRule>,
    /// `Cache-Control`, unless the application sets it itself.
    pub cache: Option<Cache>,
    /// The charset for media types of text that name none; `None`: it is not named.
    pub charset: Option<String>,
    /// CGI parameters for scripts: names and texts. They replace the server's own parameters of the
    /// same name.
    pub params: Vec<(String, String)>,
    /// The request rate of one client; `None`: no limit.
    pub rate: Option<Rate>,
    /// Requests of one client in flight at a time; `None`: no limit.
    pub concurrency: Option<u32>,
    /// The map by whose value `rate` and `concurrency` count requests; `None`: by client. Requests
    /// with the empty value are not limited.
    pub limit_by: Option<String>,
    /// Users and passwords for the request.
    pub auth: Option<BasicAuth>,
    /// The application that decides whether the client may make the request.
    pub authorize: Option<Authorizer>,
    /// The client addresses that are allowed; `None`: all.
    pub clients: Option<Clients>,
    /// Lua scripts that run, in order, before the handler; one of them may answer.
    #[serde(with = "crate::path::list")]
    pub lua: Vec<PathBuf>,
    /// Lua scripts that run, in order, when the head of the response is known.
    #[serde(with = "crate::path::list")]
    pub lua_response: Vec<PathBuf>,
}

/// A change of a header section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeaderRule {
    /// Replaces all fields of this name.
    Set(String, String),
    /// Adds a field beside those that are there.
    Add(String, String),
    /// Sets the field unless it is there.
    Default(String, String),
    /// Removes all fields of this name.
    Remove(String),
}

/// `Cache-Control` and `Expires` of responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// `Cache-Control: max-age` and `Expires`; `None`: neither field.
    pub max_age: Option<Duration>,
    /// Further directives of `Cache-Control`: `public`, `immutable`, `no-store`.
    pub directives: Vec<String>,
}

/// The use of the page cache for pages of applications (docs/page-cache.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageCache {
    /// Pages are not kept.
    Off,
    /// Pages are kept for other requests.
    On(Keeping),
}

impl PageCache {
    /// True if applications tell the cache about their pages in LSCache's language.
    #[must_use]
    pub fn is_lscache(self) -> bool {
        matches!(self, Self::On(keeping) if keeping.dialect == CacheDialect::LsCache)
    }
}

/// The pages that are kept, and the time for which they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keeping {
    /// The lifetime of a page for which the application gives none; `None`: such a page is not
    /// kept.
    pub fresh: Option<Duration>,
    /// Time after `fresh` in which the old page may be sent while it is made anew, or if that
    /// fails; the application may give another one. `None`: a short time if the application does
    /// not answer, otherwise none.
    pub stale: Option<Duration>,
    /// Serves requests with cookies the same pages as requests without.
    pub cookies: bool,
    /// The language in which applications tell the cache about their pages.
    pub dialect: CacheDialect,
}

/// The language in which applications tell the page cache about their pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheDialect {
    /// HTTP's own fields, such as `Cache-Control` (RFC 9111).
    #[default]
    Http,
    /// The fields of LSCache's plugins, such as `X-LiteSpeed-Cache-Control` (docs/lscache.md).
    LsCache,
}

/// The request rate of one client: a token bucket from which each request takes one token. A client
/// is an IPv4 address, or the /64 network of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The time for one new token. Not zero.
    pub interval: Duration,
    /// Tokens in a full bucket. Not zero.
    pub burst: u32,
}

/// Basic authentication (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// The name of the protected area, which browsers show when they ask for the password.
    pub realm: String,
    /// A file of lines `NAME:HASH`, as `htpasswd` writes them.
    /// [`PasswordHash`](crate::PasswordHash) has the kinds of hashes.
    #[serde(with = "crate::path::one")]
    pub users: PathBuf,
}

/// An application that decides if a client may make a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authorizer {
    /// A FastCGI application in the role of an authorizer (FastCGI 1.0 §6.3).
    FastCgi(FastCgiAuthorizer),
    /// A web service that is asked by a subrequest.
    Http(HttpAuthorizer),
}

/// A FastCGI application in the role of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FastCgiAuthorizer {
    /// Its number in `Site::fastcgi`.
    pub application: usize,
    /// The script that it runs (`SCRIPT_FILENAME`); `None`: the file at the request's path.
    #[serde(with = "crate::path::optional")]
    pub script: Option<PathBuf>,
}

/// A web service that decides if a client may make a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpAuthorizer {
    /// Its number in `Site::proxies`. The protocol is HTTP/1.1 or HTTP/2.
    pub proxy: usize,
    /// Path and query of the question, in origin form.
    pub target: String,
    /// Fields of its answer that become fields of the request. A client's own fields of these names
    /// are removed from each request to the site.
    pub copy_headers: Vec<String>,
    /// The field of its answer with the name of the user.
    pub user: Option<String>,
    /// Time limit for the whole answer.
    pub timeout: Duration,
}

/// Client addresses that are allowed. The longest network that contains the address decides;
/// without one, `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Networks that are allowed.
    pub allow: Vec<Network>,
    /// Networks that are denied.
    pub deny: Vec<Network>,
    /// Allows an address in none of the networks.
    pub otherwise: bool,
}

/// A network: an address and the length of its prefix in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Any address of the network.
    pub address: IpAddr,
    /// At most 32 for IPv4 and 128 for IPv6.
    pub prefix: u8,
}

/// The handler that answers a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handler {
    /// The file at the path. Files that look like scripts are refused.
    Static,
    /// The file at the path, or the entries of a folder without an index file.
    Listing,
    /// A PHP script, run by a worker.
    Php {
        /// The number of its pool.
        pool: usize,
        /// The path of the script on the site; `None`: the request's path.
        script: Option<String>,
    },
    /// A FastCGI application.
    FastCgi {
        /// Its number in `Site::fastcgi`.
        application: usize,
        /// The path must lead to a file of the site.
        only_files: bool,
    },
    /// An application that speaks HTTP, SCGI, uwsgi or AJP.
    Proxy {
        /// Its number in `Site::proxies`.
        proxy: usize,
    },
    /// A redirect (RFC 9110 §15.4).
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// A text: a URI, or a path of this site.
        to: String,
    },
    /// A fixed response.
    Respond {
        /// From 200 on.
        status: u16,
        /// The media type of the body.
        content_type: String,
        /// A text.
        body: String,
    },
    /// An error page.
    Deny {
        /// 403, 404 or 410.
        status: u16,
    },
    /// The metrics of the server.
    Metrics,
    /// The page with live figures of the server.
    StatusPage,
    /// The readiness check for load balancers.
    Ready,
}
