//! Routes of a site: which requests they concern, what they change, and who answers.
//!
//! A site tries its routes in order. A route whose conditions all hold applies its [`Rules`]; if it has a [`Handler`], that
//! handler answers and no further route is tried, else the next route sees the request as the rules have left it. A request
//! that no handler took gets what the site's folder has at its path.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::compression::Compress;

/// One route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Where the operator wrote it, for the log: `sendoff.toml:14`, `--deny /private`.
    pub origin: String,
    /// The requests that it concerns.
    pub conditions: Conditions,
    /// What it changes.
    pub rules: Rules,
    /// Who answers; `None`: the routes that follow decide.
    pub handler: Option<Handler>,
}

/// Which requests a route concerns. Every condition that is given must hold; of a list, one element suffices. Without any
/// condition the route concerns all requests. Paths are compared decoded and normalised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Complete paths.
    pub paths: Vec<String>,
    /// Folders: the path itself and everything beneath it. They begin with a slash and do not end with one; "" is the
    /// whole site.
    pub prefixes: Vec<String>,
    /// Endings of the last segment of the path, with their dot, compared without regard to case.
    pub extensions: Vec<String>,
    /// A PCRE2 expression that matches anywhere in the path. Its groups are `$1` to `$9` in the route's texts.
    pub expression: Option<String>,
    /// Methods; `GET` includes `HEAD`.
    pub methods: Vec<String>,
    /// Request fields; all of them must match.
    pub headers: Vec<FieldCondition>,
    /// Parameters of the query string; all of them must match.
    pub query: Vec<FieldCondition>,
}

/// A condition on a request field or on a parameter of the query string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldCondition {
    /// The name; of a field without regard to case.
    pub name: String,
    /// A PCRE2 expression for the value; `None`: it must be there. A field that is absent matches no expression.
    pub value: Option<String>,
    /// The condition holds if the rest of it does not.
    pub negated: bool,
}

/// What a route changes. In its texts `$path`, `$query`, `$host`, `$scheme`, `$uri` (path and query as sent), `$remote_addr`
/// and `$1` to `$9` stand for parts of the request; `$$` is a dollar sign.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The new path and, behind `?`, the new query; without `?` the query stays.
    pub rewrite: Option<String>,
    /// Candidates for the new path, tried in order. A candidate that ends with a slash must be a folder, any other a file. The
    /// last candidate is not looked up: it is a path, which is taken as a rewrite, or `=STATUS`.
    pub try_files: Vec<String>,
    /// Clients are answered with 404: only applications lead requests here, by `X-Accel-Redirect` and `X-Reproxy-URL`.
    pub internal: bool,
    /// Whether applications may name files and URLs in response fields; `None`: as earlier routes say, or those that are no proxies.
    pub name_files: Option<bool>,
    /// Changes of request fields, in order.
    pub request_headers: Vec<HeaderRule>,
    /// Changes of response fields, in order.
    pub response_headers: Vec<HeaderRule>,
    /// What caches are told, unless the application says so itself.
    pub cache: Option<Cache>,
    /// Whether pages of applications are kept for other requests; `None`: as earlier routes say, or they are not.
    pub page_cache: Option<PageCache>,
    /// Whether clients may have kept pages forgotten by `PURGE`; `None`: as earlier routes say, or they may not.
    pub purge: Option<bool>,
    /// Which responses are compressed; `None`: those that the site says.
    pub compress: Option<Compress>,
    /// CGI parameters for scripts: names and texts. They replace the server's own of the same name.
    pub params: Vec<(String, String)>,
    /// Bytes of a request body.
    pub max_body: Option<u64>,
    /// Whether an application gets the request body while it arrives; `None`: as a route before says, or when it is complete.
    pub stream_body: Option<bool>,
    /// How long a script may send nothing; zero: for ever.
    pub request_timeout: Option<Duration>,
    /// How often one client may ask; `None`: as often as it likes.
    pub rate: Option<Rate>,
    /// Requests of one client that may be under way at a time; `None`: as many as it likes.
    pub concurrency: Option<u32>,
    /// Whether the request is logged; `None`: as the site says.
    pub access_log: Option<bool>,
    /// A name and a password are asked for.
    pub auth: Option<BasicAuth>,
    /// An application that is asked whether the client may have what it asks for.
    pub authorize: Option<Authorizer>,
    /// The number in `Site::fastcgi` of the application that gets static files as the data of a filter (FastCGI 1.0 §6.4).
    pub filter: Option<usize>,
    /// Which addresses may ask; `None`: all.
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

/// What caches are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// `Cache-Control: max-age` and `Expires`; `None`: neither.
    pub max_age: Option<Duration>,
    /// Further directives of `Cache-Control`: `public`, `immutable`, `no-store`.
    pub directives: Vec<String>,
}

/// Whether pages of applications are kept for other requests (docs/page-cache.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageCache {
    /// They are not.
    Off,
    /// They are.
    On(Keeping),
}

/// Which pages are kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keeping {
    /// How long a page is fresh of which the application says nothing; `None`: only pages are kept of which it does.
    pub fresh: Option<Duration>,
    /// The time after that in which the old page may be sent while a new one is made or cannot be made. The application may give
    /// another one. `None`: a short time if the application does not answer, otherwise none.
    pub stale: Option<Duration>,
    /// Whether requests with cookies get the same pages as those without.
    pub cookies: bool,
}

/// How often one client may ask: a bucket of tokens, of which each request takes one. A client is an IPv4 address, or the network
/// of 64 bits of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// After this time there is another token. Not zero.
    pub interval: Duration,
    /// Tokens in a full bucket. Not zero.
    pub burst: u32,
}

/// Basic authentication (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// What the client shows its user.
    pub realm: String,
    /// Lines `NAME:HASH`, as `htpasswd` writes them (bcrypt, apr1, sha).
    #[serde(with = "crate::path::one")]
    pub users: PathBuf,
}

/// A FastCGI application in the role of an authorizer (FastCGI 1.0 §6.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorizer {
    /// The number in `Site::fastcgi`.
    pub application: usize,
    /// The script that it runs (`SCRIPT_FILENAME`); `None`: it is told of the file at the request's path.
    #[serde(with = "crate::path::optional")]
    pub script: Option<PathBuf>,
}

/// Which addresses may ask. The longest network that contains the address decides; without one, `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// May ask.
    pub allow: Vec<Network>,
    /// May not.
    pub deny: Vec<Network>,
    /// Whether an address in none of the networks may ask.
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

/// Who answers a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handler {
    /// The file at the path. What looks like a script is refused.
    Static,
    /// A PHP worker runs the script at the path, or this one.
    Php {
        /// The number of its pool.
        pool: usize,
        /// A path of the site; `None`: the request's.
        script: Option<String>,
    },
    /// A FastCGI application.
    FastCgi {
        /// The number in `Site::fastcgi`.
        application: usize,
        /// Whether the path must lead to a file of the site.
        only_files: bool,
    },
    /// An application that speaks HTTP, SCGI or AJP.
    Proxy {
        /// The number in `Site::proxies`.
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
    /// The page with its figures.
    StatusPage,
    /// Whether the server takes requests, for load balancers.
    Ready,
}
