//! The values of the operator's configuration: their types, their places in files, and the mistakes
//! in them.
//!
//! A type of values implements [`Value`], or [`Word`] if its values are written as one text. It
//! reads a value from TOML, prints it, and says in messages and in a JSON schema what it accepts.
//! The keys that have these types stand in the crate `settings`.
#![forbid(unsafe_code)]

mod address;
mod authority;
mod choice;
mod command;
mod fleet;
mod keep;
mod maps;
mod php_program;
mod place;
mod plain;
mod problem;
mod processors;
mod proxy;
mod public_url;
mod rate;
mod read;
mod rules;
mod sitemap;
mod target;
mod text;
mod tls;
mod traces;
mod upstream;
mod value;

pub use address::{AppAddress, Client, HostName, Listen, ListenPlace, SocketAccess};
pub use authority::AuthorityUrl;
pub use choice::{
    App, ClientCertificates, Coding, Compress, Delivery, Htaccess, ProxyField, Snapshot, Symlinks,
    TlsVersion,
};
pub use command::Command;
pub use fleet::{EngineUrl, FleetName};
pub use keep::Keep;
pub use maps::{MapName, MapPattern, MapSource, MapTest, MapValue};
pub use php_program::PhpProgram;
pub use place::{At, Place, Source, Sources};
pub use plain::{
    Charset, Count, FilePath, Free, IniSettings, LineFormat, LogPath, PositiveTime, Raw, Size,
    Status, Time, Umask,
};
pub use problem::{Problem, Problems};
pub use processors::Processors;
pub use proxy::{ForwardedFields, HostText, ProxyHost, ProxyScheme, ProxyUrl};
pub use public_url::{CookieDomain, CookiePath, UrlStart};
pub use rate::Frequency;
pub use read::{FileReader, Item, Scope, Wrong, similar};
pub use rules::{
    Caching, Change, FieldName, FieldTest, HeaderOp, HeaderText, MimeType, ParamName, QueryName,
};
pub use sitemap::SitemapAddress;
pub use target::{Candidate, Destination, Replacement};
pub use text::{
    Ending, Expression, FileName, FrontController, Matching, Method, Php, Prefix, Template, UrlPath,
};
pub use tls::{AcmeDirectory, CertificateFrom, Email, Hsts};
pub use traces::{CollectorUrl, Share};
pub use upstream::{Backend, Balance, CookieName};
pub use value::{List, Map, Number, Value, Word, Yes};
