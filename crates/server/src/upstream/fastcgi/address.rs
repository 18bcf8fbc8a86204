//! Where a FastCGI application listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a FastCGI application listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A UNIX socket.
    Unix(PathBuf),
    /// A host, by name or number, and a port.
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
            return Ok(Self::Unix(path.into()));
        }
        let host_port = text.strip_prefix("tcp:").unwrap_or_default();
        match host_port.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0) => {
                Ok(Self::Tcp(host_port.to_owned()))
            }
            _ => Err(format!("{text:?} is neither unix:/PATH nor tcp:HOST:PORT")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_port) => write!(f, "tcp:{host_port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in ["unix:/run/a.sock", "tcp:127.0.0.1:9000", "tcp:[::1]:9000", "tcp:php:9000"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for bad in ["", "unix:a.sock", "tcp:9000", "tcp::9000", "tcp:h:0", "tcp:h:99999", "h:9000"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad:?}");
        }
    }
}
