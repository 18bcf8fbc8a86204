//! Traces: the collector, and the share of recorded requests.

use sendoff_config::ProxyAddress;
use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::authority::AuthorityUrl;
use crate::proxy::{ProxyScheme, ProxyUrl};
use crate::read::{FileReader, Item, Scope, Wrong};
use crate::value::{Value, Word};

/// The path of a collector whose URL has none.
const USUAL_PATH: &str = "/v1/traces";

/// The port at which collectors speak gRPC.
const GRPC_PORT: &str = ":4317";

/// The URL of a collector that takes OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorUrl {
    /// The address; the protocol is HTTP/1.1.
    pub server: ProxyUrl,
    /// Path and query, in origin form.
    pub target: String,
}

impl Word for CollectorUrl {
    const KIND: &'static str = "a URL such as \"http://127.0.0.1:4318/v1/traces\" or \"https://otel.internal:4318/v1/traces\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        let Some((scheme, _)) = text.split_once("://") else {
            return Err(Wrong::new(format!("\"{text}\" does not begin with http:// or https://"))
                .help(format!("expected {}", Self::KIND)));
        };
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(Wrong::new("traces are sent over HTTP/1.1").at(0).help(
                "write http:// or https://, and the port of the collector for OTLP over HTTP, often 4318",
            ));
        }
        let AuthorityUrl { server, target } = AuthorityUrl::parse(text, scope)?;
        match &server.address {
            ProxyAddress::Upstream(_) => {
                return Err(Wrong::new("the collector is one host, not an upstream")
                    .help(format!("expected {}", Self::KIND)));
            }
            ProxyAddress::Tcp(host) if host.ends_with(GRPC_PORT) => {
                let at = text.find(GRPC_PORT).unwrap_or(0);
                return Err(Wrong::new("4317 is the port of collectors for gRPC")
                    .at(at)
                    .help("write 4318, the port for OTLP over HTTP"));
            }
            ProxyAddress::Tcp(_) | ProxyAddress::Unix(_) => {}
        }
        let target = if target == "/" { USUAL_PATH.to_owned() } else { target };
        Ok(Self { server, target })
    }

    fn text(&self) -> String {
        AuthorityUrl { server: self.server.clone(), target: self.target.clone() }.text()
    }
}

impl CollectorUrl {
    /// True if connections are encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.server.scheme == ProxyScheme::Https
    }
}

/// A share, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(pub u32);

impl Share {
    /// Everything.
    pub const ALL: Self = Self(1_000_000);

    /// The share that a text of a number in `unit` parts per million stands for.
    fn parse(number: &str, unit: f64) -> Option<Self> {
        let parts = number.trim().parse::<f64>().ok()? * unit;
        let is_share = (0.0..=f64::from(Self::ALL.0)).contains(&parts);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the number is from 0 to a million"
        )]
        is_share.then(|| Self(parts.round() as u32))
    }
}

impl Value for Share {
    fn kind() -> String {
        "a number from 0 to 1 such as 0.1, or a text such as \"10%\"".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let share = match item.value {
            DeValue::Float(number) => Self::parse(number.as_str(), 1e6),
            DeValue::Integer(number) => Self::parse(number.as_str(), 1e6),
            DeValue::String(text) => match text.strip_suffix('%') {
                Some(percent) => Self::parse(percent, 1e4),
                None => Self::parse(text, 1e6),
            },
            _ => None,
        };
        if share.is_none() {
            reader.expected(item, &Self::kind());
        }
        share
    }

    fn toml(&self) -> Option<Toml> {
        Some(Toml::Float(f64::from(self.0) / 1e6))
    }

    fn schema() -> Json {
        json!({"anyOf": [
            {"type": "number", "minimum": 0, "maximum": 1},
            {"type": "string", "pattern": "^[0-9.]+%$"},
        ]})
    }
}
