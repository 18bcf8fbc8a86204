//! The resolved configuration: one immutable value that `sendoff` makes at its start and gives to
//! its processes.
//!
//! The supervisor writes the value to a sealed file ([`Config::seal`]); the front and the PHP
//! master inherit the open file and read it ([`Config::read`]). So each process works with the same
//! decisions: no child parses the command line or looks at an environment variable, and a child
//! that is started again finds what the first one found.
//!
//! The encoding is JSON. It is read once per process start, so its speed does not matter; it is in
//! the dependency tree already, names its fields (a binary of another version fails with a sentence
//! instead of reading nonsense), and `cat /proc/PID/fd/N` shows an operator what a running process
//! was told.
#![forbid(unsafe_code)]

mod access_log;
mod account;
mod acme;
mod charset;
mod compression;
mod config;
mod error;
mod fleet;
mod front;
mod group;
mod listen_address;
mod maps;
mod party;
mod password;
mod path;
mod php_build;
pub mod php_ini;
pub mod php_settings;
mod pool;
mod proxy;
mod route;
mod sealed;
mod site;
mod tls;
mod traces;
mod trusted_proxies;
pub mod units;
mod upstream;
pub mod url_path;

pub use access_log::{AccessLog, LogFormat, LogPart, LogTarget, SiteLog, Values, Variable};
pub use account::Account;
pub use acme::{AccountBinding, Acme, DnsHook};
pub use charset::is_charset;
pub use compression::{Coding, Compress, Compression};
pub use config::{Config, ListenAddress, Listener, SocketAccess};
pub use error::Error;
pub use fleet::{Engine, EngineAddress, Fleet};
pub use front::{FrontConfig, Limits, MAX_THREADS, PageStore, Timeouts};
pub use group::GroupLimits;
pub use maps::{MapCondition, MapPattern, MapRow, MapSource, MapTest, RequestMap};
pub use party::Party;
pub use password::{PasswordHash, PasswordLine, UnusableHash, password_lines, unusable_hashes};
pub use php_build::{PhpApi, PhpBuild};
pub use php_ini::PHP_VERSION;
pub use pool::{
    Bounds, FileVersion, HostProgram, PoolConfig, Program, SlowLog, Snapshot, WorkerScript, Workers,
};
pub use proxy::{
    ForwardedFields, GatewayProtocol, Proxy, ProxyAddress, ProxyHost, ProxyTimeouts, ProxyTls,
    ProxyUrls, TUNNEL_TIMEOUT,
};
pub use route::{
    Authorizer, BasicAuth, Cache, CacheDialect, Clients, Conditions, FastCgiAuthorizer,
    FieldCondition, Handler, HeaderRule, HttpAuthorizer, Keeping, Network, PageCache, Rate, Route,
    RouteSettings, Rules,
};
pub use site::{
    Accel, Address, Alias, Attachment, Controller, Delivery, ErrorPage, FolderLink,
    FrontController, Host, Htaccess, LendPolicy, LinkedFolder, Matching, Site, SiteWorker,
    Symlinks,
};
pub use tls::{
    Certificate, CipherSuite, ClientCertificates, KeyExchange, Tls, TlsAlgorithms, TlsVersion,
};
pub use traces::Traces;
pub use trusted_proxies::{ProxyFields, TrustedProxies};
pub use upstream::{
    Balance, GrpcCheck, HashedPart, HostCheck, HttpCheck, Probe, Sticky, Upstream, UpstreamAddress,
    UpstreamHost,
};

#[cfg(test)]
mod tests;
