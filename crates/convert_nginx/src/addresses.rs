//! `allow` and `deny`: nginx takes the first that contains the address of the client, Sendoff the
//! longest.
//!
//! Two networks are disjoint, or one contains the other. So a network decides nothing in nginx if
//! an earlier rule names a network around it. Without such rules, the first and the longest network
//! are the same.

use std::net::IpAddr;

use super::tree::Directive;
use sendoff_convert_document::Section;

/// The networks of all addresses.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// A network: its first address, and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    first: IpAddr,
    prefix: u32,
}

/// The rules that decide.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Clients {
    Everyone,
    None,
    /// The values of `allow_from` and `deny_from`.
    Networks {
        allow: Vec<String>,
        deny: Vec<String>,
    },
    /// A rule cannot be read, or cannot be expressed; the reason.
    Unknown(String),
}

impl Clients {
    /// The clients that these rules let through.
    pub(super) fn of(rules: &[&Directive]) -> Self {
        let mut kept: Vec<(bool, Network)> = Vec::new();
        let (mut otherwise, mut sockets) = (None, None);
        for rule in rules {
            let allows = rule.name == "allow";
            match rule.word() {
                "all" => {
                    otherwise = Some(allows);
                    break;
                }
                "unix:" => sockets = sockets.or(Some(allows)),
                word => match network(word) {
                    Some(network) if kept.iter().any(|(_, known)| known.contains(network)) => {}
                    Some(network) => kept.push((allows, network)),
                    None => return Self::Unknown(format!("{word} is not an address")),
                },
            }
        }
        let otherwise = otherwise.unwrap_or(true);
        Self::expressed(&kept, otherwise, sockets.unwrap_or(otherwise))
    }

    /// `allow_from` decides for clients of UNIX sockets, too: if there is one, they are refused.
    fn expressed(kept: &[(bool, Network)], otherwise: bool, sockets: bool) -> Self {
        let of = |wanted: bool| -> Vec<String> {
            kept.iter().filter(|(allows, _)| *allows == wanted).map(|(_, n)| n.text()).collect()
        };
        // What is allowed within nothing that is denied needs no rule if all others are allowed.
        let is_needed = |network: &Network| {
            !otherwise || kept.iter().any(|(allows, other)| !allows && other.contains(*network))
        };
        let (mut allow, deny) = (of(true), of(false));
        if otherwise && !kept.iter().any(|(allows, network)| *allows && is_needed(network)) {
            allow.clear();
        }
        match (otherwise, sockets) {
            (false, false) if allow.is_empty() => return Self::None,
            (false, true) if allow.is_empty() => {
                return Self::Unknown("it allows clients of UNIX sockets only".to_owned());
            }
            (true, true) if allow.is_empty() && deny.is_empty() => return Self::Everyone,
            (true, true) if allow.is_empty() => {}
            (true, _) => allow.extend(EVERYWHERE.map(str::to_owned)),
            (false, _) => {}
        }
        Self::Networks { allow, deny }
    }

    /// Adds the rules to a route. Returns true if the route refuses every request.
    pub(super) fn set(self, rules: &[&Directive], route: &mut Section) -> bool {
        match self {
            Self::Everyone => return false,
            Self::Networks { allow, deny } => {
                let sockets = |rule: &&&Directive| rule.name == "allow" && rule.word() == "unix:";
                if let Some(rule) = rules.iter().find(sockets).filter(|_| !allow.is_empty()) {
                    let text = "allow unix: has no equal here: clients of UNIX sockets are refused";
                    route.left_out(&rule.place, text);
                }
                route.set_list("allow_from", allow);
                route.set_list("deny_from", deny);
                return false;
            }
            Self::None => {}
            Self::Unknown(why) => {
                for rule in rules {
                    let text =
                        format!("{} has no equal: {why}; every request is refused", rule.text());
                    route.left_out(&rule.place, text);
                }
            }
        }
        route.set("deny", true);
        true
    }
}

impl Network {
    fn contains(self, other: Self) -> bool {
        self.prefix <= other.prefix && masked(other.first, self.prefix) == Some(self.first)
    }

    fn text(self) -> String {
        let is_host = self.prefix == bits(self.first);
        if is_host { self.first.to_string() } else { format!("{}/{}", self.first, self.prefix) }
    }
}

/// The number of bits of addresses of this family.
fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with zeros behind the prefix; `None`: the prefix is too long.
fn masked(address: IpAddr, prefix: u32) -> Option<IpAddr> {
    let rest = bits(address).checked_sub(prefix)?;
    Some(match address {
        IpAddr::V4(address) => {
            let kept = u32::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V4((u32::from(address) & kept).into())
        }
        IpAddr::V6(address) => {
            let kept = u128::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V6((u128::from(address) & kept).into())
        }
    })
}

/// A network as Sendoff writes it; `None`: the word is none.
pub(super) fn network_text(word: &str) -> Option<String> {
    network(word).map(|network| network.text())
}

fn network(word: &str) -> Option<Network> {
    let (address, prefix) = word.split_once('/').map_or((word, None), |(a, p)| (a, Some(p)));
    let address: IpAddr = address.parse().ok()?;
    // nginx compares clients of IPv4 with networks of IPv4 only.
    if matches!(address, IpAddr::V6(six) if six.to_ipv4_mapped().is_some()) {
        return None;
    }
    let prefix = match prefix.map(|prefix| (prefix.parse::<u32>(), prefix.parse::<IpAddr>())) {
        None => bits(address),
        Some((Ok(length), _)) => length,
        Some((_, Ok(IpAddr::V4(mask)))) if address.is_ipv4() => mask_length(mask.into())?,
        Some(_) => return None,
    };
    Some(Network { first: masked(address, prefix)?, prefix })
}

/// The length of a prefix that is written as a mask, such as 255.255.0.0.
fn mask_length(mask: u32) -> Option<u32> {
    let length = mask.leading_ones();
    (length + mask.trailing_zeros() >= 32).then_some(length)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::super::tree;
    use super::*;

    struct Text(String);

    impl sendoff_convert_document::Files for Text {
        fn read(&self, _: &Path) -> std::io::Result<String> {
            Ok(self.0.clone())
        }

        fn matching(&self, _: &Path) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    /// The clients of the tests; `None` is a client of a UNIX socket.
    fn clients() -> impl Iterator<Item = Option<IpAddr>> {
        let addresses =
            ["10.0.0.1", "10.1.0.1", "10.1.2.3", "10.1.2.4", "11.0.0.1", "fd00::1", "fd01::2"];
        addresses.into_iter().map(|address| address.parse().ok()).chain([None])
    }

    fn in_network(client: Option<IpAddr>, word: &str) -> bool {
        let Some(client) = client else { return false };
        network(word).is_some_and(|network| masked(client, network.prefix) == Some(network.first))
    }

    /// nginx's rule.
    fn first_decides(rules: &[Directive], client: Option<IpAddr>) -> bool {
        let named = |rule: &&Directive| match rule.word() {
            "all" => true,
            "unix:" => client.is_none(),
            word => in_network(client, word),
        };
        rules.iter().find(named).is_none_or(|rule| rule.name == "allow")
    }

    /// Sendoff's rule, as docs/config.md has it.
    fn longest_decides(allow: &[String], deny: &[String], client: Option<IpAddr>) -> bool {
        let longest = |words: &[String]| {
            let containing = words.iter().filter(|word| in_network(client, word));
            containing.filter_map(|word| network(word)).map(|network| network.prefix).max()
        };
        match (longest(allow), longest(deny)) {
            (Some(allow), Some(deny)) => allow > deny,
            (None, None) => allow.is_empty(),
            (allow, _) => allow.is_some(),
        }
    }

    #[test]
    fn random_lists_let_the_same_clients_through() {
        const WORDS: [&str; 12] = [
            "all",
            "unix:",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3",
            "10.1.2.0/24",
            "10.1.99.99/255.255.0.0",
            "0.0.0.0/0",
            "11.0.0.1",
            "fd00::/8",
            "fd00::1",
            "::/0",
        ];
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((state >> 33) % below).unwrap()
        };
        for _ in 0..20_000 {
            let lines: String = (0..random(7))
                .map(|_| format!("{} {};\n", ["allow", "deny"][random(2)], WORDS[random(12)]))
                .collect();
            let rules = tree::read(Path::new("a.conf"), &Text(lines.clone())).unwrap();
            let references: Vec<_> = rules.iter().collect();
            let made = Clients::of(&references);
            for client in clients() {
                let theirs = first_decides(&rules, client);
                let ours = match &made {
                    Clients::Everyone => true,
                    Clients::None | Clients::Unknown(_) => false,
                    Clients::Networks { allow, deny } => longest_decides(allow, deny, client),
                };
                // Clients of sockets may be refused; every other client gets what nginx gives.
                assert!(!ours || theirs, "{lines}{made:?} is wider for {client:?}");
                let is_exact = client.is_none() || matches!(made, Clients::Unknown(_));
                assert!(is_exact || ours == theirs, "{lines}{made:?} is stricter for {client:?}");
            }
        }
    }
}
