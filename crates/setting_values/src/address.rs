//! Addresses and names of hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use sendoff_config::{Address, ListenAddress, Network};

use crate::read::{Scope, Wrong};
use crate::value::Word;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub place: ListenPlace,
    /// Connections begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// Clients speak TLS.
    pub tls: bool,
    /// Clients may speak HTTP/3 at the same port of UDP.
    pub h3: bool,
    /// Access to a UNIX socket.
    pub access: SocketAccess,
}

/// The place of a listener.
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

/// The permissions, owner and group of a UNIX socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Its permissions.
    pub mode: Option<u32>,
    /// The name of the user to whom it belongs.
    pub owner: Option<String>,
    /// The name of its group.
    pub group: Option<String>,
}

/// The option for an address whose connections begin with a PROXY protocol header.
const PROXY_PROTOCOL: &str = "proxy_protocol";

/// The option for an address where clients speak TLS.
const TLS: &str = "tls";

/// The option for an address where clients may also speak HTTP/3.
const H3: &str = "h3";

impl Listen {
    /// TCP on one address.
    #[must_use]
    pub fn tcp(ip: IpAddr, port: u16) -> Self {
        Self {
            place: ListenPlace::Ip(ip, port),
            proxy_protocol: false,
            tls: false,
            h3: false,
            access: SocketAccess::default(),
        }
    }

    /// Reads an option behind the address. `at`: the option's offset in the text.
    fn option(&mut self, word: &str, at: usize) -> Result<(), Wrong> {
        let is_unix = matches!(self.place, ListenPlace::Unix(_));
        match word.split_once('=') {
            None if word == PROXY_PROTOCOL => {
                self.proxy_protocol = true;
                return Ok(());
            }
            None if word == TLS && is_unix => {
                return Err(Wrong::new("TLS on a UNIX socket is not implemented").at(at));
            }
            None if word == TLS => {
                self.tls = true;
                return Ok(());
            }
            None if word == H3 && !is_unix => {
                self.h3 = true;
                return Ok(());
            }
            Some(("mode" | "owner" | "group", _)) if !is_unix => {
                return Err(Wrong::new(format!("\"{word}\" has a meaning only for a UNIX socket"))
                    .at(at)
                    .help("rules about the addresses of clients are routes with allow_from"));
            }
            Some(("mode", digits)) => {
                self.access.mode = Some(mode(digits).map_err(|wrong| wrong.at(at))?);
                return Ok(());
            }
            Some(("owner", name)) if !name.is_empty() => {
                self.access.owner = Some(name.to_owned());
                return Ok(());
            }
            Some(("group", name)) if !name.is_empty() => {
                self.access.group = Some(name.to_owned());
                return Ok(());
            }
            _ => {}
        }
        let help = match word {
            "default_server" => "a site without hosts answers for all other hosts",
            "ssl" => "it is called tls here",
            "http2" => "HTTP/2 needs no word here: with TLS, clients choose it",
            "quic" | "http3" => "it is called h3 here, behind tls: \"443 tls h3\"",
            _ if is_unix => {
                "behind it only proxy_protocol, mode=0660, owner=NAME and group=NAME may stand"
            }
            _ => "behind an address only tls, h3 and proxy_protocol may stand",
        };
        Err(Wrong::new(format!("\"{word}\" is not understood")).at(at).help(help))
    }
}

/// Permissions of a socket in octal. Only those for writing matter.
fn mode(digits: &str) -> Result<u32, Wrong> {
    match u32::from_str_radix(digits, 8) {
        Ok(mode @ 0..=0o777) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(mode),
        _ => Err(Wrong::new(format!("\"{digits}\" is not from 000 to 777 in octal"))
            .help("for instance mode=0660: the owner and the group may connect")),
    }
}

impl Word for Listen {
    const KIND: &'static str =
        "an address such as \"8080\", \"localhost:8080\", \"[::]:80\" or \"unix:/run/a.sock\"";
    const NUMBERS: bool = true;

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let address_len = address_len(text);
        let (address, options) = text.split_at(address_len);
        if address.contains("://") {
            return Err(wrong(&format!("\"{address}\" is a URL, not an address")));
        }
        let mut listen = Self {
            place: place(address)?,
            proxy_protocol: false,
            tls: false,
            h3: false,
            access: SocketAccess::default(),
        };
        let mut at = address_len;
        for word in options.split(' ') {
            if !word.is_empty() {
                listen.option(word, at)?;
            }
            at += word.len() + 1;
        }
        Ok(listen)
    }

    fn text(&self) -> String {
        let mut text = match &self.place {
            ListenPlace::Everywhere(port) => port.to_string(),
            ListenPlace::Host(host, port) => format!("{host}:{port}"),
            ListenPlace::Ip(ip, port) => std::net::SocketAddr::new(*ip, *port).to_string(),
            ListenPlace::Unix(path) => format!("unix:{}", path.display()),
        };
        let SocketAccess { mode, owner, group } = &self.access;
        let options = [
            mode.map(|mode| format!("mode={mode:04o}")),
            owner.as_ref().map(|name| format!("owner={name}")),
            group.as_ref().map(|name| format!("group={name}")),
            self.tls.then(|| TLS.to_owned()),
            self.h3.then(|| H3.to_owned()),
            self.proxy_protocol.then(|| PROXY_PROTOCOL.to_owned()),
        ];
        for option in options.into_iter().flatten() {
            text.push(' ');
            text += &option;
        }
        text
    }
}

fn wrong(says: &str) -> Wrong {
    Wrong::new(says).help(format!("expected {}", Listen::KIND))
}

/// The length of the address, before its options. The path of a socket may have blanks; a word with
/// `=`, or with neither a slash nor a dot, is an option.
fn address_len(text: &str) -> usize {
    let is_path =
        |word: &str| text.starts_with("unix:") && !word.contains('=') && word.contains(['/', '.']);
    let mut len = 0;
    for word in text.split(' ') {
        if len > 0 && !is_path(word) {
            return len;
        }
        len += word.len() + usize::from(len > 0);
    }
    len
}

fn place(address: &str) -> Result<ListenPlace, Wrong> {
    if address.starts_with("unix:") {
        return match address.parse() {
            Ok(ListenAddress::Unix(path)) => Ok(ListenPlace::Unix(path)),
            Ok(ListenAddress::Tcp(_) | ListenAddress::Quic(_)) => {
                Err(wrong("the path of the socket is missing"))
            }
            Err(says) => Err(wrong(&says)),
        };
    }
    if address.starts_with('/') {
        return Err(Wrong::new(format!("\"{address}\" is not an address"))
            .help(format!("for a UNIX socket write \"unix:{address}\"")));
    }
    let (host, port) = match address.rsplit_once(':') {
        None if address.bytes().all(|byte| byte.is_ascii_digit()) => ("", address),
        None if address.parse::<IpAddr>().is_ok() || address.contains(char::is_alphabetic) => {
            return Err(wrong(&format!("\"{address}\" has no port")));
        }
        None => return Err(wrong(&format!("\"{address}\" is not an address"))),
        Some(_) if address.parse::<Ipv6Addr>().is_ok() => {
            return Err(Wrong::new(format!("\"{address}\" has no port"))
                .help(format!("write \"[{address}]:80\"")));
        }
        Some(split) => split,
    };
    let Ok(number) = port.parse::<u16>() else {
        let at = address.len() - port.len();
        let wrong = wrong(&format!("\"{port}\" is not a port: a port is a number from 0 to 65535"));
        return Err(if port.is_empty() { wrong } else { wrong.at(at) });
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse() {
        Ok(ip) => Ok(ListenPlace::Ip(ip, number)),
        Err(_) if matches!(host, "" | "*") => Ok(ListenPlace::Everywhere(number)),
        Err(_) if is_host(host) => Ok(ListenPlace::Host(host.to_ascii_lowercase(), number)),
        Err(_) => Err(wrong(&format!("\"{host}\" is neither an address nor a host"))),
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
    /// The name itself.
    Exact(String),
    /// Every name with this ending, which begins with a dot.
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
        if let Some(rest) = lower.strip_prefix('.') {
            return Err(Wrong::new("a host does not begin with a dot")
                .at(0)
                .help(format!("what nginx calls .{rest} is [\"{rest}\", \"*.{rest}\"]")));
        }
        if lower.starts_with('~') {
            return Err(Wrong::new("expressions are not understood here")
                .at(0)
                .help("\"*.example.org\" is every host beneath example.org; a route compares with header = { Host = '...' }"));
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

/// The address of a FastCGI application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppAddress(pub Address);

impl Word for AppAddress {
    const KIND: &'static str = "an address such as \"unix:/run/php/php8.2-fpm.sock\" or \"127.0.0.1:9000\", \"pool:NAME\" or \"upstream:NAME\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text.contains(char::is_control) {
            return Err(Wrong::new("a control character is not allowed here"));
        }
        let parsed = text.parse().or_else(|_| match text.contains("//") {
            true => Err(String::new()),
            false
                if ["unix:", "pool:", "upstream:"]
                    .iter()
                    .any(|scheme| text.starts_with(scheme)) =>
            {
                Err(String::new())
            }
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
