//! Names and values of header fields, parameters of scripts, and `Cache-Control`.

use std::time::Duration;

use sendoff_config::units;
use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use super::plain::Time;
use super::text::{Expression, Template};
use crate::place::At;
use crate::read::{FileReader, Item, Scope, Wrong, similar};
use crate::value::{List, Value, Word};

/// True for a byte that the name of a field or a cookie may have (RFC 9110 §5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The name of a header field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldName(pub String);

impl Word for FieldName {
    const KIND: &'static str = "the name of a field such as \"Cache-Control\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text.is_empty() {
            return Err(Wrong::new("the name of the field is missing"));
        }
        match text.bytes().position(|byte| !is_token(byte)) {
            Some(at) if text.as_bytes()[at] == b':' => {
                Err(Wrong::new("the name of a field ends before the colon"))
            }
            Some(_) => Err(Wrong::new(format!("\"{text}\" is not the name of a field"))),
            None => Ok(Self(text.to_owned())),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// A change of a header field, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderOp {
    /// The change.
    pub change: Change,
    /// The name.
    pub name: String,
}

/// A change of a header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The value replaces all fields of the name.
    Set,
    /// The value is added (`+`).
    Add,
    /// The value is set unless the field is present (`?`).
    Default,
}

impl Word for HeaderOp {
    const KIND: &'static str =
        "the name of a field, with + in front to add it, with ? to set it only where it is missing";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        let (change, name) = match text.as_bytes().first() {
            Some(b'+') => (Change::Add, &text[1..]),
            Some(b'?') => (Change::Default, &text[1..]),
            Some(b'-') => {
                let name = &text[1..];
                return Err(Wrong::new("a minus sign has no meaning here")
                    .help(format!("to remove the field write \"{name}\" = false")));
            }
            _ => (Change::Set, text),
        };
        FieldName::parse(name, scope).map(|name| Self { change, name: name.0 })
    }

    fn text(&self) -> String {
        let sign = match self.change {
            Change::Set => "",
            Change::Add => "+",
            Change::Default => "?",
        };
        format!("{sign}{}", self.name)
    }
}

/// The value of a header field.
#[derive(Debug, Clone, PartialEq)]
pub enum HeaderText {
    /// The field is removed.
    Remove,
    /// Values; several of them only to add fields.
    Values(List<Template>),
}

impl Value for HeaderText {
    fn kind() -> String {
        "a text, or false to remove the field".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        if let DeValue::Boolean(false) = item.value {
            return Some(Self::Remove);
        }
        if !matches!(item.value, DeValue::String(_) | DeValue::Array(_)) {
            reader.expected(item, &Self::kind());
            return None;
        }
        let values = List::<Template>::read(item, reader)?;
        for At { value, place } in &values.0 {
            if value.text.contains(char::is_control) {
                reader.problems.error(*place, "a header field cannot have several lines");
                return None;
            }
            if value.text.ends_with(" always") {
                reader
                    .problems
                    .warning(*place, "\"always\" becomes part of the field")
                    .help("remove it: fields are set whatever the status is");
            }
        }
        Some(Self::Values(values))
    }

    fn toml(&self) -> Option<Toml> {
        match self {
            Self::Remove => Some(Toml::Boolean(false)),
            Self::Values(values) => values.toml(),
        }
    }

    fn schema() -> Json {
        json!({"anyOf": [{"const": false}, <List<Template>>::schema()]})
    }
}

/// A parameter of the query string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryName(pub String);

impl Word for QueryName {
    const KIND: &'static str = "the name of a parameter";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text.is_empty() || text.contains(['=', '&', '?']) || text.contains(char::is_control) {
            return Err(Wrong::new(format!("{text:?} is not the name of a parameter"))
                .help("write query = { NAME = 'VALUE' }"));
        }
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The name of a parameter for scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamName(pub String);

impl Word for ParamName {
    const KIND: &'static str = "the name of a parameter such as APP_ENV";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if text.is_empty() || !text.bytes().all(usual) {
            return Err(Wrong::new(format!("\"{text}\" is not the name of a parameter"))
                .help("it consists of letters, digits and underscores"));
        }
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// A condition on a field or a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldTest {
    /// The field is present, or it is missing.
    There(bool),
    /// Its value matches the expression, or does not match it.
    Matches(Expression, bool),
}

impl Value for FieldTest {
    fn kind() -> String {
        "an expression for the value, with ! in front for all others; true: it is there; false: it is missing".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let text = match item.value {
            DeValue::Boolean(there) => return Some(Self::There(*there)),
            DeValue::String(text) => text.as_ref(),
            _ => {
                reader.expected(item, &Self::kind());
                return None;
            }
        };
        let (expression, matches) = match text.strip_prefix('!') {
            Some(rest) => (rest, false),
            None => (text, true),
        };
        match Expression::parse(expression, &reader.scope()) {
            Ok(expression) => Some(Self::Matches(expression, matches)),
            Err(mut wrong) => {
                wrong.at = wrong.at.map(|at| at + usize::from(!matches));
                // The sign is nginx's; the advice is right for this key, too.
                wrong.help = match expression.split_once(' ') {
                    Some(("~", rest)) => Some(format!("write '{rest}'")),
                    Some(("~*", rest)) => Some(format!("write '(?i){rest}'")),
                    Some(("=", rest)) => Some(format!("write '^{rest}$'")),
                    _ => wrong.help,
                };
                reader.wrong(item, wrong);
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        Some(match self {
            Self::There(there) => Toml::Boolean(*there),
            Self::Matches(expression, true) => Toml::String(expression.text.clone()),
            Self::Matches(expression, false) => Toml::String(format!("!{}", expression.text)),
        })
    }

    fn schema() -> Json {
        json!({"type": ["string", "boolean"]})
    }
}

/// The value of `Cache-Control`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caching {
    /// Time for which caches may keep the response.
    pub max_age: Option<Duration>,
    /// Further directives.
    pub directives: Vec<String>,
}

/// Directives of `Cache-Control` in responses (RFC 9111 §5.2.2, RFC 8246, RFC 5861); a directive
/// that ends with `=` has a number.
const DIRECTIVES: [&str; 12] = [
    "public",
    "private",
    "immutable",
    "no-cache",
    "no-store",
    "no-transform",
    "must-revalidate",
    "must-understand",
    "proxy-revalidate",
    "s-maxage=",
    "stale-while-revalidate=",
    "stale-if-error=",
];

/// The replacement for a value of nginx's `expires` and Apache's `ExpiresDefault`.
fn instead_of_expires(text: &str) -> Option<&'static str> {
    let unit = text
        .strip_prefix(|c: char| c.is_ascii_digit())
        .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    Some(match text {
        "max" => "write \"365d\"",
        "off" => "remove the key",
        "epoch" | "-1" => "write \"no-cache\"",
        _ if text.starts_with("access ") || text.starts_with("now ") => {
            "write the time alone, with its unit: \"30d\""
        }
        _ if matches!(unit, Some("y" | "M" | "w")) => {
            "the units are s, m, h and d: \"365d\" is a year"
        }
        _ => return None,
    })
}

impl Word for Caching {
    const KIND: &'static str = "a time, and words of Cache-Control: \"30d\", \"1h, public\", \"365d, immutable\", \"no-store\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let mut caching = Self { max_age: None, directives: Vec::new() };
        if let Some(help) = instead_of_expires(text) {
            return Err(Wrong::new(format!("\"{text}\" is not understood")).help(help));
        }
        let separators = [',', ' '];
        let mut at = 0;
        for word in text.split_inclusive(separators) {
            let begin = at;
            at += word.len();
            let word = word.trim_end_matches(separators);
            if word.is_empty() {
                continue;
            }
            let number = word.split_once('=').filter(|(_, number)| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            });
            let known = match number {
                Some((name, _)) => DIRECTIVES.contains(&&*format!("{name}=")),
                None => DIRECTIVES.contains(&word) && !word.ends_with('='),
            };
            if known {
                caching.directives.push(word.to_owned());
                continue;
            }
            match units::time(word) {
                Ok(time) if caching.max_age.is_none() && time.subsec_nanos() == 0 => {
                    caching.max_age = Some(time);
                }
                Ok(_) if caching.max_age.is_some() => {
                    return Err(Wrong::new("there are two times").at(begin));
                }
                _ => {
                    let wrong = Wrong::new(format!(
                        "\"{word}\" is neither a time in whole seconds nor a word of Cache-Control"
                    ));
                    let bare = DIRECTIVES.map(|directive| directive.trim_end_matches('='));
                    return Err(match similar(word, bare.into_iter()) {
                        _ if word.starts_with("max-age") => {
                            wrong.help("write the time alone, with its unit: \"30d\"")
                        }
                        Some(known) => wrong.help(format!("did you mean \"{known}\"?")),
                        None => wrong.help(format!("expected {}", Self::KIND)),
                    }
                    .at(begin));
                }
            }
        }
        if caching == (Self { max_age: None, directives: Vec::new() }) {
            return Err(Wrong::new("this text is empty").help(format!("expected {}", Self::KIND)));
        }
        Ok(caching)
    }

    fn text(&self) -> String {
        let time = self.max_age.map(|time| Time(time).text());
        time.into_iter().chain(self.directives.iter().cloned()).collect::<Vec<_>>().join(", ")
    }
}

/// A media type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MimeType(pub String);

impl Word for MimeType {
    const KIND: &'static str = "a media type such as \"text/javascript\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let essence = text.split(';').next().unwrap_or_default().trim_end();
        let valid = essence.split_once('/').is_some_and(|(kind, subtype)| {
            [kind, subtype].iter().all(|part| !part.is_empty() && part.bytes().all(is_token))
        });
        if !valid || !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            return Err(Wrong::new(format!("\"{text}\" is not a media type"))
                .help(format!("expected {}", Self::KIND)));
        }
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}
