//! The engine by which several nodes act as one.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::proxy::ProxyTls;

/// The nodes that act as one, as each of them knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// The common name of the nodes, with which all of their keys in the engine begin.
    pub name: String,
    /// The engine.
    pub engine: Engine,
    /// The file with a secret that only the nodes have; `None`: they share nothing that needs one.
    #[serde(with = "crate::path::optional")]
    pub secret_file: Option<PathBuf>,
}

/// A server that speaks the protocol of Redis. Its password is with the credentials of sites,
/// because workers know the configuration, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// The address.
    pub address: EngineAddress,
    /// TLS to the engine; `None`: there is none.
    pub tls: Option<ProxyTls>,
    /// The user; `None`: the engine's default one.
    pub user: Option<String>,
    /// The file with the user's password.
    #[serde(with = "crate::path::optional")]
    pub password_file: Option<PathBuf>,
    /// The number of the database.
    pub database: u16,
}

/// The address of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineAddress {
    /// A host and a port.
    Tcp(String),
    /// The path of a socket.
    Unix(#[serde(with = "crate::path::one")] PathBuf),
}

impl fmt::Display for EngineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host_port) => f.write_str(host_port),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
