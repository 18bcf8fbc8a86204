//! Addresses and names of hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use sendoff_config::{Address, ListenAddress, Network};

use crate::read::{Scope, Wrong};
use crate::value::Word;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Where.
    pub place: ListenPlace,
    /// Whether connections begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// Whether clients speak TLS.
    pub tls: bool,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenPlace {
    /// Every address of the machine.
    Everywhere(u16),
    /// The addresses of a host.
    Host(String, u16),
    /// One address.
    Ip(IpAddr, u16),
    /// A UNIX socket.
    Unix(PathBuf),
}

/// What stands behind an address whose connections begin with a PROXY protocol header.
const PROXY_PROTOCOL: &str = "proxy_protocol";

/// What stands behind an address where clients speak TLS.
const TLS: &str = "tls";

impl Listen {
    /// TCP on one address.
    #[must_use]
    pub fn tcp(ip: IpAddr, port: u16) -> Self {
        Self { place: ListenPlace::Ip(ip, port), proxy_protocol: false, tls: false }
    }
}

impl Word for Listen {
    const KIND: &'static str =
        "an address such as \"8080\", \"localhost:8080\", \"[::]:80\" or \"unix:/run/a.sock\"";
    const NUMBERS: bool = true;

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let wrong = |says: &str| Wrong::new(says).help(format!("expected {}", Self::KIND));
        let (mut address, mut proxy_protocol, mut tls) = (text, false, false);
        while let Some((rest, last)) = address.rsplit_once(' ') {
            match last {
                PROXY_PROTOCOL => proxy_protocol = true,
                TLS => tls = true,
                _ => break,
            }
            address = rest.trim_end();
        }
        let of = |place| Ok(Self { place, proxy_protocol, tls });
        if address.starts_with("unix:") {
            return match address.parse() {
                Ok(ListenAddress::Unix(_)) if tls => {
                    Err(Wrong::new("TLS on a UNIX socket is not implemented"))
                }
                Ok(ListenAddress::Unix(path)) => of(ListenPlace::Unix(path)),
                Ok(ListenAddress::Tcp(_)) => Err(wrong("the path of the socket is missing")),
                Err(says) => Err(wrong(&says)),
            };
        }
        if address.contains("://") {
            return Err(wrong(&format!("\"{text}\" is a URL, not an address")));
        }
        if let Some(unknown) = address.split_whitespace().nth(1) {
            let at = text.find(unknown).unwrap_or(0);
            let help = match unknown {
                "default_server" => "a site without hosts answers for all other hosts",
                "ssl" => "it is called tls here",
                "http2" => "HTTP/2 needs no word here: with TLS, clients choose it",
                "quic" => "HTTP/3 is not implemented",
                _ => "behind an address only tls and proxy_protocol may stand",
            };
            return Err(Wrong::new(format!("\"{unknown}\" is not understood")).at(at).help(help));
        }
        let (host, port) = match address.rsplit_once(':') {
            None if address.bytes().all(|byte| byte.is_ascii_digit()) => ("", address),
            None if address.parse::<IpAddr>().is_ok() || address.contains(char::is_alphabetic) => {
                return Err(wrong(&format!("\"{text}\" has no port")));
            }
            None => return Err(wrong(&format!("\"{text}\" is not an address"))),
            Some(_) if address.parse::<Ipv6Addr>().is_ok() => {
                return Err(Wrong::new(format!("\"{text}\" has no port"))
                    .help(format!("write \"[{address}]:80\"")));
            }
            Some(split) => split,
        };
        let Ok(number) = port.parse::<u16>() else {
            let at = address.len() - port.len();
            let wrong =
                wrong(&format!("\"{port}\" is not a port: a port is a number from 0 to 65535"));
            return Err(if port.is_empty() { wrong } else { wrong.at(at) });
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse() {
            Ok(ip) => of(ListenPlace::Ip(ip, number)),
            Err(_) if matches!(host, "" | "*") => of(ListenPlace::Everywhere(number)),
            Err(_) if is_host(host) => of(ListenPlace::Host(host.to_ascii_lowercase(), number)),
            Err(_) => Err(wrong(&format!("\"{host}\" is neither an address nor a host"))),
        }
    }

    fn text(&self) -> String {
        let address = match &self.place {
            ListenPlace::Everywhere(port) => port.to_string(),
            ListenPlace::Host(host, port) => format!("{host}:{port}"),
            ListenPlace::Ip(ip, port) => std::net::SocketAddr::new(*ip, *port).to_string(),
            ListenPlace::Unix(path) => format!("unix:{}", path.display()),
        };
        let words = [(self.tls, TLS), (self.proxy_protocol, PROXY_PROTOCOL)];
        let words = words.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word);
        std::iter::once(&*address).chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// Letters, digits, hyphens and underscores between dots.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
}

/// A host that a site answers for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostName {
    /// This one.
    Exact(String),
    /// Every name that ends so, with a dot first.
    Beneath(String),
}

impl Word for HostName {
    const KIND: &'static str = "a host such as \"example.org\" or \"*.example.org\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let lower = text.to_ascii_lowercase();
        if let Some(url) = lower.split_once("://") {
            let host = url.1.trim_end_matches('/');
            return Err(Wrong::new(format!("\"{text}\" is a URL, not a host"))
                .help(format!("write \"{host}\"")));
        }
        let name = lower.strip_prefix("*.").unwrap_or(&lower);
        if matches!(&*lower, "*" | "_" | "default") {
            return Err(Wrong::new(format!("\"{text}\" is not a host"))
                .help("a site without hosts answers for every host that no other site has: remove the key"));
        }
        if let Some(at) = name.find('*') {
            return Err(Wrong::new("a star may stand only for whole labels at the beginning")
                .at(text.len() - name.len() + at)
                .help("\"*.example.org\" is every host beneath example.org; or list the hosts"));
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if let Ok(ip) = bare.parse::<Ipv6Addr>() {
            return Ok(Self::Exact(format!("[{ip}]")));
        }
        if let Some((host, port)) = name.rsplit_once(':')
            && port.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(Wrong::new("a host has no port")
                .at(text.len() - port.len() - 1)
                .help(format!("write hosts = \"{host}\" and listen = \"{port}\"")));
        }
        if !is_host(name) {
            let wrong = Wrong::new(format!("\"{text}\" is not a host"));
            return Err(if name.contains([' ', ',']) {
                wrong.help("several hosts are a list: [\"example.org\", \"example.net\"]")
            } else if name.is_ascii() {
                wrong.help(format!("expected {}", Self::KIND))
            } else {
                wrong.help("write it as browsers send it, with xn-- (punycode)")
            });
        }
        let name = name.trim_end_matches('.').to_owned();
        Ok(if lower.starts_with("*.") {
            Self::Beneath(format!(".{name}"))
        } else {
            Self::Exact(name)
        })
    }

    fn text(&self) -> String {
        match self {
            Self::Exact(name) => name.clone(),
            Self::Beneath(name) => format!("*{name}"),
        }
    }
}

/// A network, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client(pub Network);

impl Word for Client {
    const KIND: &'static str = "a network such as \"10.0.0.0/8\", or an address";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            let wrong = Wrong::new(format!("\"{text}\" is neither a network nor an address"));
            return Err(match text {
                "all" | "any" | "*" => {
                    wrong.help("all networks are \"0.0.0.0/0\" and \"::/0\"; with allow_from every other address is denied anyway")
                }
                _ => wrong.help(format!("expected {}", Self::KIND)),
            });
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let Some(prefix) = prefix.map_or(Some(most), |prefix| prefix.parse().ok()) else {
            return Err(Wrong::new("behind the slash a number of bits is expected")
                .help(format!("expected {}", Self::KIND)));
        };
        if prefix > most {
            return Err(Wrong::new(format!("such an address has {most} bits, not {prefix}")));
        }
        let network = Network { address, prefix };
        let first = first_address(network);
        if first != address {
            return Err(Wrong::new(format!(
                "{address} is not the first address of a network of {prefix} bits"
            ))
            .help(format!(
                "write \"{first}/{prefix}\" for the network, or \"{address}\" for the address alone"
            )));
        }
        Ok(Self(network))
    }

    fn text(&self) -> String {
        let Network { address, prefix } = self.0;
        match (address, prefix) {
            (IpAddr::V4(_), 32) | (IpAddr::V6(_), 128) => address.to_string(),
            _ => format!("{address}/{prefix}"),
        }
    }
}

/// The address with only zeros behind the prefix.
fn first_address(network: Network) -> IpAddr {
    match network.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(network.prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(network.prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// Where a FastCGI application listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppAddress(pub Address);

impl Word for AppAddress {
    const KIND: &'static str =
        "an address such as \"unix:/run/php/php8.2-fpm.sock\" or \"127.0.0.1:9000\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text.contains(char::is_control) {
            return Err(Wrong::new("a control character is not allowed here"));
        }
        let parsed = text.parse().or_else(|_| match text.contains("//") {
            true => Err(String::new()),
            false if text.starts_with("unix:") => Err(String::new()),
            false => format!("tcp:{text}").parse(),
        });
        parsed.map(Self).map_err(|_| {
            let wrong = Wrong::new(format!("\"{text}\" is not an address of an application"));
            match text.strip_prefix('/') {
                Some(_) => wrong.help(format!("for a UNIX socket write \"unix:{text}\"")),
                None => wrong.help(format!("expected {}", Self::KIND)),
            }
        })
    }

    fn text(&self) -> String {
        let text = self.0.to_string();
        text.strip_prefix("tcp:").map_or(text.clone(), str::to_owned)
    }
}
