//! Addresses to listen on, as an operator writes them.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use crate::ListenAddress;

/// The longest path of a UNIX socket, in bytes (`sun_path` holds a NUL, too).
const MAX_PATH: usize = 107;

/// `127.0.0.1:8080`, `[::]:80`, `unix:/run/site.sock`.
impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(Ok(address)) = text.strip_prefix("quic:").map(str::parse) {
            return Ok(Self::Quic(address));
        }
        let Some(path) = text.strip_prefix("unix:") else {
            return text.parse().map(Self::Tcp).map_err(|_| {
                "expected an address with a port, as 127.0.0.1:8080 or [::1]:8080, or unix:/PATH"
                    .to_owned()
            });
        };
        let path = Path::new(path);
        if !path.is_absolute() {
            Err("the path of a UNIX socket must start with a slash".to_owned())
        } else if path.as_os_str().len() > MAX_PATH {
            Err(format!("the path of a UNIX socket has at most {MAX_PATH} bytes"))
        } else if path.as_os_str().as_bytes().contains(&0) {
            Err("a path has no NUL".to_owned())
        } else {
            Ok(Self::Unix(path.into()))
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Quic(address) => write!(f, "quic:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_on_are_read_and_written_alike() {
        let longest = format!("unix:/{}", "a".repeat(MAX_PATH - 1));
        for text in ["127.0.0.1:80", "[::1]:0", "unix:/run/a.sock", &longest] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        let too_long = format!("{longest}a");
        for bad in ["", "nowhere", "8080", "unix:", "unix:a.sock", "unix:/a\0b", &too_long] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad:?}");
        }
    }
}
