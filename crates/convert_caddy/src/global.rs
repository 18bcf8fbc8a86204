//! Global options.

use std::path::PathBuf;

use sendoff_convert_document::network::is_network;
use sendoff_convert_document::{Directive, Section};

use super::matcher::PRIVATE;
use super::order::Order;
use super::units;

/// The treatment of TLS, unless an address says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Https {
    /// Certificates are obtained, and clients are redirected.
    On,
    NoRedirects,
    Off,
}

/// The options.
#[derive(Debug)]
pub(super) struct Global {
    /// The keys before the first section.
    pub(super) top: Section,
    pub(super) order: Order,
    pub(super) https: Https,
    pub(super) http_port: u16,
    pub(super) https_port: u16,
    /// True if Caddy makes all certificates itself.
    pub(super) has_local_certificates: bool,
    pub(super) proxies: Proxies,
    /// The addresses of sites that name none with `bind`; none: every address.
    pub(super) binds: Vec<String>,
    /// The files of the configuration, which Caddy never sends.
    pub(super) files: Vec<PathBuf>,
}

/// Proxies that name the addresses of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proxies {
    None,
    /// These networks, in this field; `None`: `X-Forwarded-For`.
    Known {
        networks: Vec<String>,
        field: Option<String>,
    },
    /// The addresses of clients cannot be known as Caddy knows them.
    Unknown,
}

/// Options that change no answer.
const SILENT: [&str; 13] = [
    "admin",
    "debug",
    "grace_period",
    "shutdown_delay",
    "storage",
    "storage_clean_interval",
    "persist_config",
    "ocsp_stapling",
    "renew_interval",
    "key_type",
    "log",
    "skip_install_trust",
    "ocsp_interval",
];

/// Reads the options.
pub(super) fn read(options: &[Directive], files: &[PathBuf]) -> Global {
    let mut global = Global {
        top: Section::default(),
        order: Order::default(),
        https: Https::On,
        http_port: 80,
        https_port: 443,
        has_local_certificates: false,
        proxies: Proxies::None,
        binds: Vec::new(),
        files: files.to_vec(),
    };
    for option in options {
        global.option(option);
    }
    if let Proxies::Known { networks, field } = &global.proxies {
        // Caddy reads no other field of a proxy.
        let field = field.as_deref().unwrap_or("X-Forwarded-For alone");
        global.top.set("proxy_field", field);
        global.top.set_list("trusted_proxies", networks.clone());
    }
    global
}

impl Global {
    fn option(&mut self, option: &Directive) {
        match option.name.as_str() {
            name if SILENT.contains(&name) => {}
            "email" => self.top.set("acme_email", option.word()),
            "acme_ca" if option.word().starts_with("https://") => {
                self.top.set("acme_directory", option.word());
            }
            "acme_ca_root" => self.top.set("acme_roots", option.word()),
            "default_bind" => self.binds.clone_from(&option.words),
            "local_certs" => self.has_local_certificates = true,
            "http_port" => self.http_port = option.word().parse().unwrap_or(80),
            "https_port" => self.https_port = option.word().parse().unwrap_or(443),
            "auto_https" => match option.word() {
                "off" => self.https = Https::Off,
                "disable_redirects" => self.https = Https::NoRedirects,
                _ => option.left_out(&mut self.top, "the sites say whether they speak TLS"),
            },
            "order" => {
                if !self.order.change(&option.words) {
                    option.left_out(&mut self.top, "such a place is not known");
                }
            }
            "servers" => self.servers(option),
            _ => option.left_out(&mut self.top, "no option is like it"),
        }
    }

    fn servers(&mut self, servers: &Directive) {
        for option in servers.inner() {
            match option.name.as_str() {
                "trusted_proxies" | "client_ip_headers" => {
                    let is_whole = servers.words.is_empty();
                    if !is_whole || !self.name_clients(option) {
                        self.proxies = Proxies::Unknown;
                        let text = "no proxy is believed, and rules about addresses refuse";
                        option.left_out(&mut self.top, text);
                    }
                }
                "listener_wrappers" => {
                    option.left_out(&mut self.top, "proxy_protocol stands behind an address");
                }
                "timeouts" => {
                    for time in option.inner() {
                        let key = match time.name.as_str() {
                            "read_header" => "head_timeout",
                            "read_body" => "body_timeout",
                            "idle" => "idle_timeout",
                            _ => {
                                time.left_out(&mut self.top, "no time is like it");
                                continue;
                            }
                        };
                        match units::time(time.word()) {
                            Some(limit) => self.top.set(key, limit),
                            None => time.left_out(&mut self.top, "it is no time"),
                        }
                    }
                }
                "protocols" | "metrics" | "protocol" | "name" | "max_header_size"
                | "log_credentials" | "keepalive_interval" | "strict_sni_host" => {}
                _ => option.left_out(&mut self.top, "no option is like it"),
            }
        }
    }

    /// Takes over `trusted_proxies` or `client_ip_headers`. Returns false if it has no equal.
    fn name_clients(&mut self, option: &Directive) -> bool {
        if self.proxies == Proxies::None {
            self.proxies = Proxies::Known { networks: Vec::new(), field: None };
        }
        let Proxies::Known { networks, field } = &mut self.proxies else { return false };
        match (&*option.name, &option.words[..]) {
            ("client_ip_headers", [name]) => {
                *field =
                    Some(name.clone()).filter(|it| !it.eq_ignore_ascii_case("X-Forwarded-For"));
                true
            }
            ("trusted_proxies", [kind, words @ ..]) if kind == "static" => {
                words.iter().all(|word| match word.as_str() {
                    "private_ranges" => {
                        networks.extend(PRIVATE.map(str::to_owned));
                        true
                    }
                    word => {
                        networks.push(word.to_owned());
                        is_network(word)
                    }
                })
            }
            _ => false,
        }
    }
}
