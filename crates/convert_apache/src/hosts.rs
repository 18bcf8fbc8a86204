//! The hosts of a file: their addresses and names, as Apache chooses among them.
//!
//! Of the hosts at the address of a connection, Apache takes the first with a fitting `ServerName`
//! or `ServerAlias`, and without one the first of all. Sendoff prefers a whole name to one with a
//! star. So a name that an earlier host has taken is left out of later ones.

use sendoff_convert_document::{Directive, Section};

use super::listen::{self, Address, Wanted};

/// A host.
pub(super) struct Host<'d> {
    /// Its `<VirtualHost>`; `None`: the server itself.
    pub(super) directive: Option<&'d Directive>,
    pub(super) addresses: Vec<Address>,
    /// The addresses among them that its `<VirtualHost>` names: there, hosts with `*` get nothing.
    named: Vec<Address>,
    /// Its names; none: it answers for every name.
    pub(super) names: Vec<String>,
    pub(super) has_tls: bool,
    pub(super) fate: Fate,
    pub(super) remarks: Section,
}

/// The requests that reach a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Served,
    /// It gets requests that Apache would give to another host.
    Refused,
    /// No request reaches it.
    Unreachable,
}

/// A name that a host has taken, as Apache compares it: `*` and `?` stand for any characters.
struct Taken {
    addresses: Vec<Address>,
    pattern: String,
}

impl<'d> Host<'d> {
    /// The directives of its `<VirtualHost>`.
    pub(super) fn inner(&self) -> Option<&'d [Directive]> {
        self.directive.map(Directive::inner)
    }
}

/// The hosts, in the order of the file.
pub(super) fn all<'d>(
    main: &'d [Directive],
    sections: &[&'d Directive],
    is_whole: bool,
) -> Vec<Host<'d>> {
    let listened = listen::listened(main);
    let mut hosts: Vec<Host<'d>> = match sections {
        [] => vec![host(main, None, &listened, is_whole)],
        sections => sections.iter().map(|one| host(main, Some(one), &listened, is_whole)).collect(),
    };
    leave_to_named(&mut hosts);
    let mut taken: Vec<Taken> = Vec::new();
    let mut seen: Vec<Address> = Vec::new();
    for host in &mut hosts {
        choose(host, main, &taken, &seen);
        let block = host.directive.map_or(main, Directive::inner);
        let patterns = patterns(block).into_iter().map(|(_, pattern)| pattern);
        taken.extend(patterns.map(|pattern| Taken { addresses: host.addresses.clone(), pattern }));
        seen.extend(host.addresses.iter().cloned());
    }
    separate(&mut hosts);
    hosts
}

fn host<'d>(
    main: &'d [Directive],
    section: Option<&'d Directive>,
    listened: &[(Address, bool)],
    is_whole: bool,
) -> Host<'d> {
    let block = section.map_or(main, Directive::inner);
    let mut remarks = Section::default();
    let speaks_tls = |block: &[Directive]| {
        let engine = block.iter().rfind(|one| one.name == "sslengine");
        engine.map(|engine| engine.word().eq_ignore_ascii_case("on"))
    };
    let mut has_tls = speaks_tls(block).or_else(|| speaks_tls(main)).unwrap_or(false);
    let all: Vec<Address> = listened.iter().map(|(address, _)| address.clone()).collect();
    let mut wanted: Vec<Wanted> = Vec::new();
    for word in section.iter().flat_map(|section| &section.words) {
        match listen::wanted(word) {
            Some(one) => wanted.push(one),
            None => {
                if let Some(section) = section {
                    section.left_out(&mut remarks, "an address is a name or a star");
                }
            }
        }
    }
    // The addresses behind names are not known.
    let is_hidden = wanted.is_empty() && section.is_some_and(|section| !section.words.is_empty());
    if wanted.is_empty() {
        wanted.push(Wanted::any());
    }
    let (mut addresses, mut named) = (Vec::<Address>::new(), Vec::<Address>::new());
    for one in &wanted {
        match (one.among(&all), is_whole) {
            (found, _) if !found.is_empty() => {
                if one.has_host() {
                    named.extend(found.iter().cloned());
                }
                addresses.extend(found);
            }
            // A file of sites-available: Listen stands in another one.
            (_, false) => addresses.push(one.alone()),
            (_, true) if all.is_empty() => addresses.push(one.alone()),
            (_, true) => {
                if let Some(section) = section {
                    section.left_out(&mut remarks, "no Listen names its address");
                }
            }
        }
    }
    has_tls |= listened.iter().any(|(address, has_tls)| *has_tls && addresses.contains(address));
    let fate = match (addresses.is_empty(), is_hidden) {
        (true, _) => Fate::Unreachable,
        (false, true) => Fate::Refused,
        (false, false) => Fate::Served,
    };
    let names = Vec::new();
    Host { directive: section, addresses, named, names, has_tls, fate, remarks }
}

/// Takes addresses that one host names from hosts with `*`.
fn leave_to_named(hosts: &mut [Host<'_>]) {
    let named: Vec<Address> = hosts.iter().flat_map(|host| host.named.iter().cloned()).collect();
    for host in hosts.iter_mut().filter(|host| host.fate == Fate::Served) {
        let own = std::mem::take(&mut host.addresses);
        let is_kept = |one: &Address| host.named.contains(one) || !named.contains(one);
        host.addresses = own.into_iter().filter(is_kept).collect();
        if host.addresses.is_empty() {
            host.fate = Fate::Unreachable;
            if let Some(section) = host.directive {
                section.left_out(&mut host.remarks, "other hosts name its addresses");
            }
        }
    }
}

/// The names of a host, with their directives.
fn patterns(block: &[Directive]) -> Vec<(&Directive, String)> {
    let mut patterns = Vec::new();
    for directive in block {
        let words: &[String] = match directive.name.as_str() {
            "servername" => &directive.words[..directive.words.len().min(1)],
            "serveralias" => &directive.words,
            _ => continue,
        };
        for word in words {
            let name = word.rsplit_once("://").map_or(word.as_str(), |(_, name)| name);
            let name = match name.rsplit_once(':') {
                Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
                _ => name,
            };
            patterns.push((directive, name.to_ascii_lowercase()));
        }
    }
    patterns
}

/// True for a name that Sendoff's `hosts` may have.
fn is_known(name: &str) -> bool {
    let has_star = name.contains(['*', '?']);
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.*[]:".contains(&b))
        && (!has_star || name.starts_with("*.") && name.matches('*').count() == 1)
}

/// Finds the names of a host that no earlier one has taken.
fn choose(host: &mut Host<'_>, main: &[Directive], taken: &[Taken], seen: &[Address]) {
    let is_first = host.addresses.iter().any(|own| !seen.iter().any(|one| one.overlaps(own)));
    let block = host.directive.map_or(main, Directive::inner);
    let mut patterns = patterns(block);
    if patterns.is_empty() && !is_first {
        // Apache gives it the name of the server.
        patterns = self::patterns(main).into_iter().take(1).collect();
    }
    for (directive, name) in patterns {
        if !is_known(&name) {
            directive.left_out(&mut host.remarks, "such a host is not known");
            continue;
        }
        let is_earlier = |one: &&Taken| {
            one.addresses.iter().any(|one| host.addresses.iter().any(|own| own.overlaps(one)))
        };
        if let Some(one) = taken.iter().filter(is_earlier).find(|one| covers(&one.pattern, &name)) {
            let text = format!("{name}: an earlier host answers for {}", one.pattern);
            host.remarks.left_out(&directive.place, text);
        } else if !host.names.contains(&name) {
            host.names.push(name);
        }
    }
    if !host.names.is_empty() || host.fate != Fate::Served {
        return;
    }
    let has_names = !self::patterns(block).is_empty();
    host.fate = match (is_first, has_names) {
        (true, false) => Fate::Served,
        (true, true) => Fate::Refused,
        (false, _) => Fate::Unreachable,
    };
    if let Some(section) = host.directive.filter(|_| host.fate != Fate::Served) {
        section.left_out(&mut host.remarks, "no name leads to this host");
    }
}

/// True if an earlier host with this pattern may get requests for a name, which may have a star.
fn covers(pattern: &str, name: &str) -> bool {
    match (name.strip_prefix('*'), pattern.strip_prefix('*')) {
        (None, _) => fits(pattern.as_bytes(), name.as_bytes()),
        (Some(_), Some(rest)) if is_known(pattern) => name.ends_with(rest),
        (Some(_), _) if is_known(pattern) => false,
        // Both have stars: the patterns may share names.
        (Some(_), _) => pattern.contains(['*', '?']),
    }
}

/// True if a name fits a pattern, in which `*` stands for any characters and `?` for one.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // The places behind the last star, to go on from with one more character for it.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(sign) if *sign == b'?' || *sign == name[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((place, start)) => {
                    star = Some((place, start + 1));
                    (at, from) = (place + 1, start + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|sign| *sign == b'*')
}

/// A port has either one listener for all addresses, or one for each. In the first case, hosts with
/// an address of their own would get requests of others.
fn separate(hosts: &mut [Host<'_>]) {
    let any: Vec<Address> = hosts
        .iter()
        .filter(|host| host.fate != Fate::Unreachable)
        .flat_map(|host| &host.addresses)
        .filter(|address| address.is_any())
        .cloned()
        .collect();
    for host in hosts.iter_mut().filter(|host| host.fate != Fate::Unreachable) {
        let mut is_moved = false;
        for address in host.addresses.iter_mut().filter(|address| !address.is_any()) {
            if let Some(around) = any.iter().find(|any| any.port == address.port) {
                *address = around.clone();
                is_moved = true;
            }
        }
        if is_moved {
            host.fate = Fate::Refused;
            if let Some(section) = host.directive {
                let text = "other hosts have every address of its port: its requests are refused";
                section.left_out(&mut host.remarks, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{covers, fits};

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, holds) in [
            ("a.test", "a.test", true),
            ("*.test", "a.b.test", true),
            ("*.test", "test", false),
            ("w??.test", "www.test", true),
            ("*a*b", "xaxxb", true),
            ("*a*b", "xaxxbc", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), holds, "{pattern} {name}");
        }
        assert!(covers("*.test", "*.a.test") && !covers("*.a.test", "*.test"));
        assert!(covers("www.*", "*.test") && !covers("www.test", "*.test"));
    }
}
