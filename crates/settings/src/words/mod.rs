//! The types of values.

mod address;
mod choice;
mod command;
mod keep;
mod plain;
mod processors;
mod proxy;
mod rate;
mod rules;
mod target;
mod text;
mod tls;

pub use address::{AppAddress, Backend, Client, HostName, Listen, ListenPlace, SocketAccess};
pub use choice::{
    App, ClientCertificates, Coding, Compress, Delivery, Htaccess, ProxyField, Snapshot, Symlinks,
    TlsVersion,
};
pub use command::Command;
pub use keep::Keep;
pub use plain::{
    Count, FilePath, Free, IniSettings, LineFormat, LogPath, PositiveTime, Raw, Size, Status, Time,
    Umask,
};
pub use processors::Processors;
pub use proxy::{ForwardedFields, HostText, ProxyHost, ProxyScheme, ProxyUrl};
pub use rate::Frequency;
pub use rules::{
    Caching, Change, FieldName, FieldTest, HeaderOp, HeaderText, MimeType, ParamName, QueryName,
};
pub use target::{Candidate, Destination, Replacement};
pub use text::{
    Ending, Expression, FileName, FrontController, Matching, Method, Php, Prefix, Template, UrlPath,
};
pub use tls::{AcmeDirectory, CertificateFrom, Email, Hsts};
