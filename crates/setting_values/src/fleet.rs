//! The engine by which several nodes act as one.

use sendoff_config::EngineAddress;

use crate::proxy::host_port;
use crate::read::{Scope, Wrong, similar};
use crate::value::Word;

/// The schemes, and true for TLS.
const SCHEMES: [(&str, bool); 4] =
    [("redis", false), ("rediss", true), ("valkey", false), ("valkeys", true)];

/// The port of an engine whose URL has none.
const USUAL_PORT: u16 = 6379;

/// The longest name of a fleet.
const LONGEST_NAME: usize = 64;

/// The URL of a server that speaks the protocol of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineUrl {
    /// Connections are encrypted.
    pub is_tls: bool,
    /// The address.
    pub address: EngineAddress,
    /// The number of the database.
    pub database: u16,
}

impl EngineUrl {
    /// The host, without a port; `None` for a socket.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let EngineAddress::Tcp(host_port) = &self.address else { return None };
        let host = host_port.rsplit_once(':').map_or(&**host_port, |(host, _)| host);
        Some(host.trim_start_matches('[').trim_end_matches(']'))
    }
}

impl Word for EngineUrl {
    const KIND: &'static str = "a URL such as \"redis://10.0.0.31:6379\", \"rediss://engine.internal\" or \"redis://unix:/run/redis/redis.sock\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let wrong = |says: String| Wrong::new(says).help(format!("expected {}", Self::KIND));
        if text.contains(|c: char| c.is_control() || c == ' ' && !text.contains("unix:")) {
            return Err(wrong(format!("\"{text}\" is not a URL")));
        }
        let Some((name, rest)) = text.split_once("://") else {
            return Err(wrong(format!("\"{text}\" does not begin with redis:// or rediss://")));
        };
        let known = SCHEMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let Some(&(_, is_tls)) = known else {
            let says = format!("\"{name}\" is not the protocol of an engine");
            let similar = similar(name, SCHEMES.iter().map(|(name, _)| *name));
            return Err(match similar {
                Some(similar) => Wrong::new(says).at(0).help(format!("did you mean {similar}://?")),
                None => wrong(says).at(0),
            });
        };
        if let Some(path) = rest.strip_prefix("unix:") {
            if is_tls || !path.starts_with('/') {
                return Err(wrong(match is_tls {
                    true => "a socket needs no TLS".to_owned(),
                    false => "the path of the socket does not begin with a slash".to_owned(),
                }));
            }
            let address = EngineAddress::Unix(path.into());
            return Ok(Self { is_tls, address, database: 0 });
        }
        if rest.contains('@') {
            // The URL would be in every process, and in messages.
            return Err(Wrong::new("the URL names a user or a password").at(name.len() + 3).help(
                "write the name to the key user, the password into a file, and the file's path to password_file",
            ));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let Some(address) = host_port(authority, USUAL_PORT) else {
            return Err(wrong(format!("\"{authority}\" is not a host and a port")));
        };
        let number = path.strip_prefix('/').unwrap_or(path);
        let database = if number.is_empty() { Ok(0) } else { number.parse() };
        let database = database.map_err(|_| {
            Wrong::new(format!("\"{number}\" is not the number of a database"))
                .at(text.len() - number.len())
                .help(
                    "write the number behind a slash, such as redis://10.0.0.31:6379/2, or nothing",
                )
        })?;
        Ok(Self { is_tls, address: EngineAddress::Tcp(address), database })
    }

    fn text(&self) -> String {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        match self.database {
            0 => format!("{scheme}://{}", self.address),
            database => format!("{scheme}://{}/{database}", self.address),
        }
    }
}

/// The common name of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetName(pub String);

impl Word for FleetName {
    const KIND: &'static str = "a name such as \"shop\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if text.is_empty() || text.len() > LONGEST_NAME {
            return Err(Wrong::new(format!("a name has from 1 to {LONGEST_NAME} characters")));
        }
        match text.find(|c| !is_plain(c)) {
            None => Ok(Self(text.to_owned())),
            Some(at) => Err(Wrong::new("a name has only letters, digits, \"-\", \"_\" and \".\"")
                .at(at)
                .help("the keys in the engine begin with it")),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}
