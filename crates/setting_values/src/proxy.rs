//! Applications that requests are passed on to.

use sendoff_config::{ForwardedFields as Fields, ProxyAddress, ProxyHost as Host};

use crate::read::{Scope, Wrong, similar};
use crate::value::Word;

/// The protocol of an application, by the scheme of its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyScheme {
    /// HTTP/1.1 in the clear.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 in the clear, by prior knowledge.
    H2,
    /// HTTP/2 over TLS.
    H2s,
    /// SCGI.
    Scgi,
    /// The uwsgi protocol.
    Uwsgi,
    /// AJP 1.3.
    Ajp,
}

const SCHEMES: [(&str, ProxyScheme, u16); 7] = [
    ("http", ProxyScheme::Http, 80),
    ("https", ProxyScheme::Https, 443),
    ("h2", ProxyScheme::H2, 80),
    ("h2s", ProxyScheme::H2s, 443),
    ("scgi", ProxyScheme::Scgi, 4000),
    ("uwsgi", ProxyScheme::Uwsgi, 3031),
    ("ajp", ProxyScheme::Ajp, 8009),
];

/// The address of an application, and its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    /// The protocol.
    pub scheme: ProxyScheme,
    /// The address: a socket, a host and a port, or the name of an upstream.
    pub address: ProxyAddress,
}

impl ProxyUrl {
    /// The host, without a port; `None` for a socket and an upstream.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let ProxyAddress::Tcp(host_port) = &self.address else { return None };
        let host = host_port.rsplit_once(':').map_or(&**host_port, |(host, _)| host);
        Some(host.trim_start_matches('[').trim_end_matches(']'))
    }
}

impl Word for ProxyUrl {
    const KIND: &'static str = "a URL such as \"http://127.0.0.1:8080\", \"http://unix:/run/app.sock\", \"http://upstream:NAME\", \"h2://...\", \"scgi://...\", \"uwsgi://...\" or \"ajp://...\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text.contains(|c: char| c.is_control() || c == ' ' && !text.contains("unix:")) {
            return Err(wrong(format!("\"{text}\" is not a URL")));
        }
        let Some((name, rest)) = text.split_once("://") else {
            let says = format!("\"{text}\" does not say what the application speaks");
            let text = text.trim_start_matches('/');
            return Err(Wrong::new(says).help(format!(
                "write \"http://{text}\", or with https://, h2://, h2s://, scgi://, uwsgi:// or ajp:// before it"
            )));
        };
        let known = SCHEMES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
        let Some(&(_, scheme, port)) = known else {
            let wrong = Wrong::new(format!("\"{name}\" is not among the protocols"));
            return Err(match (name, similar(name, SCHEMES.iter().map(|(name, ..)| *name))) {
                ("fastcgi" | "fcgi", _) => {
                    wrong.at(0).help(format!("write fastcgi = \"{rest}\" in place of proxy"))
                }
                ("grpc", _) => wrong.at(0).help(format!("gRPC is HTTP/2: write h2://{rest}")),
                ("grpcs", _) => wrong.at(0).help(format!("gRPC is HTTP/2: write h2s://{rest}")),
                ("ws" | "wss", _) => wrong.at(0).help("WebSockets come with http:// and https://"),
                (_, Some(similar)) => wrong.at(0).help(format!("did you mean {similar}://?")),
                _ => wrong.at(0).help(format!("expected {}", Self::KIND)),
            });
        };
        if let Some(path) = rest.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self { scheme, address: ProxyAddress::Unix(path.into()) }),
                false => Err(wrong("the path of the socket does not begin with a slash")),
            };
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if !matches!(path, "" | "/") {
            return Err(Wrong::new("the URL has a path").at(text.len() - path.len()).help(
                "the path of the request is passed on; a route with rewrite changes it: rewrite = \"/base$path\"",
            ));
        }
        // `upstream:8080` is port 8080 of a host with the name `upstream`.
        let upstream = authority.strip_prefix("upstream:");
        if let Some(name) = upstream.filter(|name| !name.is_empty() && name.parse::<u16>().is_err())
        {
            return Ok(Self { scheme, address: ProxyAddress::Upstream(name.to_owned()) });
        }
        let address = host_port(authority, port)
            .ok_or_else(|| wrong(format!("\"{authority}\" is not a host and a port")))?;
        Ok(Self { scheme, address: ProxyAddress::Tcp(address) })
    }

    fn text(&self) -> String {
        let name = SCHEMES.iter().find(|(_, scheme, _)| *scheme == self.scheme);
        let name = name.map_or("http", |(name, ..)| name);
        format!("{name}://{}", self.address)
    }
}

fn wrong(says: impl Into<String>) -> Wrong {
    Wrong::new(says.into()).help(format!("expected {}", ProxyUrl::KIND))
}

/// The host and the port, by default this one; `None`: the text is something else.
pub(crate) fn host_port(authority: &str, usual: u16) -> Option<String> {
    let after_brackets = authority.rfind(']').unwrap_or(0);
    let has_port = authority[after_brackets..].contains(':');
    let whole = if has_port { authority.to_owned() } else { format!("{authority}:{usual}") };
    let is_plain =
        whole.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    let is_ambiguous = !whole.starts_with('[') && whole.matches(':').count() > 1;
    let has_both = whole.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    (has_both && is_plain && !is_ambiguous).then_some(whole)
}

/// The `Host` field of requests that are passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyHost {
    /// The host that the client named.
    Client,
    /// The host in the URL of the application.
    Upstream,
    /// This text.
    Fixed(HostText),
}

impl Word for ProxyHost {
    const KIND: &'static str = "\"client\", \"upstream\" or a host such as \"app.internal:8080\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        match text {
            "client" | "$host" | "$http_host" => Ok(Self::Client),
            "upstream" | "$proxy_host" => Ok(Self::Upstream),
            _ => HostText::parse(text, scope).map(Self::Fixed),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Client => "client".to_owned(),
            Self::Upstream => "upstream".to_owned(),
            Self::Fixed(text) => text.0.clone(),
        }
    }
}

impl From<&ProxyHost> for Host {
    fn from(host: &ProxyHost) -> Self {
        match host {
            ProxyHost::Client => Self::Client,
            ProxyHost::Upstream => Self::Upstream,
            ProxyHost::Fixed(text) => Self::Fixed(text.0.clone()),
        }
    }
}

/// A host, perhaps with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostText(pub String);

impl Word for HostText {
    const KIND: &'static str = "a host such as \"app.internal\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        if !text.is_empty() && text.bytes().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(Wrong::new(format!("\"{text}\" is not {}", Self::KIND)))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The fields that tell an application about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedFields {
    /// `X-Forwarded-For` and the fields that go with it.
    XForwarded,
    /// `Forwarded`.
    Forwarded,
    /// None.
    Off,
}

const FIELDS: [(&str, ForwardedFields); 3] = [
    ("X-Forwarded-For", ForwardedFields::XForwarded),
    ("Forwarded", ForwardedFields::Forwarded),
    ("off", ForwardedFields::Off),
];

impl Word for ForwardedFields {
    const KIND: &'static str = "\"X-Forwarded-For\", \"Forwarded\" or \"off\"";
    const CHOICES: &'static [&'static str] = &["X-Forwarded-For", "Forwarded", "off"];

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let known = FIELDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        known.map(|(_, fields)| *fields).ok_or_else(|| {
            Wrong::new(format!("\"{text}\" is none of X-Forwarded-For, Forwarded, off"))
        })
    }

    fn text(&self) -> String {
        let word = FIELDS.iter().find(|(_, fields)| fields == self);
        word.map_or_else(String::new, |(word, _)| (*word).to_owned())
    }
}

impl From<ForwardedFields> for Fields {
    fn from(fields: ForwardedFields) -> Self {
        match fields {
            ForwardedFields::XForwarded => Self::XForwarded,
            ForwardedFields::Forwarded => Self::Forwarded,
            ForwardedFields::Off => Self::Off,
        }
    }
}
