//! The addresses and hosts of servers.

use std::collections::HashSet;

use super::tree::Directive;
use sendoff_convert_document::Section;

/// The end of a host that no client can name, for servers that nginx never chooses by host.
const NO_HOST: &str = "no-host.invalid";

/// The addresses of all servers.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// Ports at which a server listens on every address of IPv6, too.
    both: HashSet<String>,
    /// For each address, the number of the server that answers for unknown hosts.
    defaults: Vec<(String, usize)>,
}

impl Listeners {
    pub(super) fn of(servers: &[&Directive]) -> Self {
        let mut listeners = Self::default();
        for server in servers {
            for listen in listens(server) {
                if let Some(port) = listen.word().strip_prefix("[::]:") {
                    listeners.both.insert(port.to_owned());
                }
            }
        }
        for (number, server) in servers.iter().enumerate() {
            for address in listeners.addresses(server) {
                let known = listeners.defaults.iter_mut().find(|(known, _)| *known == address);
                match known {
                    Some((_, first)) if is_default(server) => *first = number,
                    Some(_) => {}
                    None => listeners.defaults.push((address, number)),
                }
            }
        }
        listeners
    }

    /// The addresses of a server, without the words behind them.
    fn addresses(&self, server: &Directive) -> Vec<String> {
        let listens = listens(server);
        if listens.is_empty() {
            return vec![self.address("80")];
        }
        listens.iter().map(|listen| self.address(listen.word())).collect()
    }

    fn address(&self, word: &str) -> String {
        let word =
            word.strip_prefix("*:").or_else(|| word.strip_prefix("0.0.0.0:")).unwrap_or(word);
        let word = word.strip_prefix("[::]:").unwrap_or(word);
        let is_port = word.bytes().all(|byte| byte.is_ascii_digit());
        match word {
            port if is_port && self.both.contains(port) => port.to_owned(),
            port if is_port => format!("0.0.0.0:{port}"),
            word if word.contains(':') => word.to_owned(),
            host => format!("{host}:80"),
        }
    }

    /// Sets `listen` and `hosts` of the site of the server with this number.
    pub(super) fn set(&self, number: usize, server: &Directive, site: &mut Section) {
        self.set_hosts(number, server, site);
        let mut addresses: Vec<String> = Vec::new();
        for listen in listens(server) {
            listen.take();
            let mut address = self.address(listen.word());
            for option in listen.words.iter().skip(1) {
                match option.as_str() {
                    "ssl" => address.push_str(" tls"),
                    "proxy_protocol" => address.push_str(" proxy_protocol"),
                    "default_server" | "http2" | "deferred" | "bind" | "reuseport" => {}
                    // Both addresses are one socket here.
                    option if option.starts_with("ipv6only=") => {}
                    option if option.starts_with("backlog=") || option.starts_with("fastopen=") => {
                    }
                    "quic" => {}
                    other => {
                        site.left_out(&listen.place, format!("listen ... {other} has no equal"));
                    }
                }
            }
            if listen.words.iter().any(|word| word == "quic") {
                let tls = format!("{address} tls");
                addresses.retain(|known| *known != tls);
                address = format!("{tls} h3");
            } else if addresses.contains(&format!("{address} h3")) {
                continue;
            }
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            addresses.push(self.address("80"));
        }
        site.set_list("listen", addresses);
    }

    fn set_hosts(&self, number: usize, server: &Directive, site: &mut Section) {
        let mut hosts = Vec::new();
        let mut has_unknown = false;
        for names in server.block.iter().flatten().filter(|inner| inner.name == "server_name") {
            names.take();
            for name in &names.words {
                match host(name) {
                    Ok(found) => hosts.extend(found),
                    Err(why) => {
                        has_unknown = true;
                        site.left_out(
                            &names.place,
                            format!("server_name {name} has no equal: {why}"),
                        );
                    }
                }
            }
        }
        hosts.dedup();
        let answers_for_unknown = self.defaults.iter().any(|(_, default)| *default == number);
        if hosts.is_empty() && (has_unknown || !answers_for_unknown) {
            site.comment(format!("{}: a name that no client asks for: no name of this server can be expressed, and it is not the default server", server.place));
            // Two sites at an address must not have the same host.
            hosts.push(match number {
                0 => NO_HOST.to_owned(),
                number => format!("{number}.{NO_HOST}"),
            });
        }
        site.set_list("hosts", hosts);
    }
}

pub(super) fn listens(server: &Directive) -> Vec<&Directive> {
    server.block.iter().flatten().filter(|inner| inner.name == "listen").collect()
}

/// True if the server says that it answers for unknown hosts.
pub(super) fn is_default(server: &Directive) -> bool {
    listens(server).iter().any(|listen| {
        listen.words.iter().any(|word| matches!(word.as_str(), "default_server" | "default"))
    })
}

fn host(name: &str) -> Result<Vec<String>, &'static str> {
    if matches!(name, "" | "_" | "\"\"" | "*" | "__" | "-" | "$hostname" | "localhost.localdomain")
    {
        return Ok(Vec::new());
    }
    if name.starts_with('~') {
        return Err("it is an expression");
    }
    if let Some(rest) = name.strip_prefix('.') {
        return Ok(vec![rest.to_owned(), format!("*.{rest}")]);
    }
    match name.strip_prefix("*.").unwrap_or(name) {
        rest if rest.contains(['*', '$', '_'])
            && !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) =>
        {
            Err("a star may stand only at its beginning")
        }
        _ => Ok(vec![name.to_owned()]),
    }
}
