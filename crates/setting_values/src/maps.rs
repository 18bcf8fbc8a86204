//! Maps: their names, the parts of requests that they are about, their rows, and conditions on
//! their values.

use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::read::{FileReader, Item, Scope, Wrong, similar};
use crate::rules::{FieldName, QueryName};
use crate::text::{Allowed, Expression, Template};
use crate::upstream::CookieName;
use crate::value::{Value, Word};

/// The name of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapName(pub String);

impl Word for MapName {
    const KIND: &'static str = "the name of a map";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if text.is_empty() || !text.bytes().all(usual) {
            let lower = text.to_ascii_lowercase().replace(['-', '.', ' '], "_");
            let wrong = Wrong::new(format!("\"{text}\" is not the name of a map"));
            return Err(wrong.help(match lower.bytes().all(usual) && !lower.is_empty() {
                true => format!("it has small letters, digits and underscores: {lower}"),
                false => "it has small letters, digits and underscores".to_owned(),
            }));
        }
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The part of a request that a map is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapSource {
    /// A request field.
    Header(FieldName),
    /// A cookie.
    Cookie(CookieName),
    /// A parameter of the query.
    Query(QueryName),
    /// The client's address.
    Client,
    /// The country of the client's address.
    Country,
    /// The host that the client named.
    Host,
    /// The path.
    Path,
    /// The method.
    Method,
    /// `http` or `https`.
    Scheme,
}

impl MapSource {
    /// The parts that have no name.
    const PLAIN: [(&'static str, Self); 6] = [
        ("client", Self::Client),
        ("country", Self::Country),
        ("host", Self::Host),
        ("path", Self::Path),
        ("method", Self::Method),
        ("scheme", Self::Scheme),
    ];
}

impl Word for MapSource {
    const KIND: &'static str = "header:NAME, cookie:NAME, query:NAME, \"client\", \"country\", \"host\", \"path\", \"method\" or \"scheme\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        if let Some((_, plain)) = Self::PLAIN.iter().find(|(name, _)| *name == text) {
            return Ok(plain.clone());
        }
        match text.split_once(':') {
            Some(("header", name)) => FieldName::parse(name, scope).map(Self::Header),
            Some(("cookie", name)) => CookieName::parse(name, scope).map(Self::Cookie),
            Some(("query", name)) => QueryName::parse(name, scope).map(Self::Query),
            _ => {
                let wrong = Wrong::new(format!("\"{text}\" is no part of a request"));
                Err(match instead_of_variable(text) {
                    Some(ours) => wrong.help(format!("write \"{ours}\"")),
                    None => wrong.help(format!("there are {}", Self::KIND)),
                })
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Header(FieldName(name)) => format!("header:{name}"),
            Self::Cookie(CookieName(name)) => format!("cookie:{name}"),
            Self::Query(QueryName(name)) => format!("query:{name}"),
            plain => {
                let named = Self::PLAIN.iter().find(|(_, known)| known == plain);
                named.map_or("", |(name, _)| name).to_owned()
            }
        }
    }
}

/// The part of a request that a variable of nginx or another word means.
fn instead_of_variable(text: &str) -> Option<String> {
    let name = text.strip_prefix('$').unwrap_or(text);
    let prefixed = |prefix, ours| name.strip_prefix(prefix).map(|rest| format!("{ours}:{rest}"));
    let plain = match name {
        "remote_addr" | "address" | "ip" => "client",
        "host" | "http_host" | "server_name" => "host",
        "uri" | "request_uri" | "document_uri" => "path",
        "request_method" => "method",
        _ if name.contains("country") => "country",
        _ => {
            return prefixed("http_", "header")
                .map(|header| header.replace('_', "-"))
                .or_else(|| prefixed("cookie_", "cookie"))
                .or_else(|| prefixed("arg_", "query"))
                .or_else(|| {
                    let names = MapSource::PLAIN.iter().map(|(name, _)| *name);
                    similar(name, names).map(str::to_owned)
                });
        }
    };
    Some(plain.to_owned())
}

/// The pattern of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum MapPattern {
    /// A text. Its meaning depends on the part of the request: a whole text, a host with `*.` in
    /// front, or a network.
    Text(String),
    /// An expression, written with `~` in front.
    Expression(Expression),
}

impl Word for MapPattern {
    const KIND: &'static str = "a text, or ~ and an expression";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        let Some(expression) = text.strip_prefix('~') else {
            if let Some(at) = text.find(char::is_control) {
                return Err(Wrong::new("a control character is not allowed here").at(at));
            }
            return match text {
                "default" => {
                    Err(Wrong::new("the default stands beside the rows").help("write default = \"...\" in the section of the map, or '~^default$' for this text"))
                }
                text => Ok(Self::Text(text.to_owned())),
            };
        };
        let parsed = Expression::parse(expression, scope).map(Self::Expression);
        parsed.map_err(|wrong| match expression.strip_prefix('*') {
            Some(rest) => wrong.help(format!("nginx's ~*{rest} is '~(?i){rest}' here")),
            None => wrong,
        })
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Expression(expression) => format!("~{}", expression.text),
        }
    }
}

/// The value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapValue(pub Template);

impl MapValue {
    /// The empty value.
    #[must_use]
    pub fn empty() -> Self {
        Self(Template { text: String::new(), group: 0, maps: Vec::new() })
    }
}

impl Word for MapValue {
    const KIND: &'static str = "a text, which may contain $0 for what the pattern matched, $1 to $9 for groups, $path, $host and the like";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if let Some(at) = text.find(char::is_control) {
            return Err(Wrong::new("a control character is not allowed here").at(at));
        }
        Template::parse_with(text, Allowed::MapValue).map(Self)
    }

    fn text(&self) -> String {
        self.0.text.clone()
    }
}

/// A condition on the value of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapTest {
    /// The value is this text.
    Is(String),
    /// The value is another text.
    IsNot(String),
    /// The value is not empty, or it is empty.
    Filled(bool),
}

impl Value for MapTest {
    fn kind() -> String {
        "the value, with ! in front for all others; true: it is not empty; false: it is empty"
            .to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        match item.value {
            DeValue::Boolean(filled) => Some(Self::Filled(*filled)),
            DeValue::String(text) => Some(match text.strip_prefix('!') {
                Some(text) => Self::IsNot(text.to_owned()),
                None => Self::Is(text.clone().into_owned()),
            }),
            _ => {
                reader.expected(item, &Self::kind());
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        Some(match self {
            Self::Is(text) => Toml::String(text.clone()),
            Self::IsNot(text) => Toml::String(format!("!{text}")),
            Self::Filled(filled) => Toml::Boolean(*filled),
        })
    }

    fn schema() -> Json {
        json!({"type": ["string", "boolean"]})
    }
}
