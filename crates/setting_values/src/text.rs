//! Paths of URLs, expressions, and texts in which parts of the request are filled in.

use pcre2::bytes::RegexBuilder;
use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::place::At;
use crate::read::{FileReader, Item, Scope, Wrong, similar};
use crate::value::{Map, Value, Word};

/// A path of the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlPath(pub String);

impl Word for UrlPath {
    const KIND: &'static str = "a path of the site, which begins with a slash";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if let Some(wrong) = modifier(text) {
            return Err(wrong);
        }
        if !text.starts_with('/') {
            let wrong = Wrong::new(format!("\"{text}\" does not begin with a slash"));
            return Err(match text.contains("://") {
                true => wrong.help(
                    "only the path is compared, without the host; for hosts there is [[site]]",
                ),
                false => wrong.help(format!("write \"/{text}\"")),
            });
        }
        if let Some(at) = text.find(char::is_control) {
            return Err(Wrong::new("a control character is not allowed here").at(at));
        }
        if let Some(at) = text.find(['?', '#']) {
            return Err(Wrong::new("a path ends where the query begins")
                .at(at)
                .help("compare the query with query = { NAME = 'VALUE' }"));
        }
        if let Some(at) = text.find("//") {
            return Err(Wrong::new(
                "two slashes: the paths of requests have single ones when they are compared",
            )
            .at(at));
        }
        if text.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(Wrong::new(
                "\".\" and \"..\" are resolved before paths are compared: this would never match",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The signs that nginx has in front of the path of a location. Here the key decides how a path is
/// compared.
fn modifier(text: &str) -> Option<Wrong> {
    let (sign, rest) = text.split_once(' ')?;
    let rest = rest.trim_start();
    let instead = match sign {
        "=" => format!("path = '{rest}'"),
        "^~" => format!("prefix = '{rest}'"),
        "~" => format!("match = '{rest}'"),
        "~*" => format!("match = '(?i){rest}'"),
        _ => return None,
    };
    let wrong = Wrong::new(format!("\"{sign}\" is no part of a path or an expression")).at(0);
    Some(wrong.help(format!("nginx's location {sign} {rest} is {instead} here")))
}

/// A path of the site and everything beneath it. It does not end with a slash: "" is the whole
/// site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(pub String);

impl Word for Prefix {
    const KIND: &'static str = "a folder of the site, such as \"/admin\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        if let Some(folder) = text.strip_suffix("/*") {
            return Err(Wrong::new("a star has no meaning here").at(text.len() - 1).help(format!(
                "\"{}\" is the folder with everything beneath it",
                if folder.is_empty() { "/" } else { folder }
            )));
        }
        UrlPath::parse(text, scope).map(|path| Self(path.0.trim_end_matches('/').to_owned()))
    }

    fn text(&self) -> String {
        if self.0.is_empty() { "/".to_owned() } else { self.0.clone() }
    }
}

/// The ending of a file's name, with its dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending(pub String);

impl Word for Ending {
    const KIND: &'static str = "an ending such as \"png\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let bare = text.strip_prefix("*.").or_else(|| text.strip_prefix('.')).unwrap_or(text);
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+.~".contains(&byte);
        if bare.is_empty() || !bare.bytes().all(usual) {
            let wrong = Wrong::new(format!("\"{text}\" is not the ending of a name"));
            let parts: Vec<_> =
                bare.split(['|', ',', ' ']).filter(|part| !part.is_empty()).collect();
            let are_usual = parts.len() > 1 && parts.iter().all(|part| part.bytes().all(usual));
            return Err(match are_usual {
                true => wrong.help(format!("write a list: [\"{}\"]", parts.join("\", \""))),
                false => wrong.help(
                    "an ending consists of letters and digits; an expression goes into match",
                ),
            });
        }
        Ok(Self(format!(".{}", bare.to_ascii_lowercase())))
    }

    fn text(&self) -> String {
        self.0.trim_start_matches('.').to_owned()
    }
}

/// The requests that go to a FastCGI application: an ending, or a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matching {
    /// Files with this ending, which begins with a dot.
    Ending(String),
    /// A folder without its last slash.
    Prefix(String),
}

impl Word for Matching {
    const KIND: &'static str = "an ending such as \".php\" or a folder such as \"/app\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        match text.as_bytes() {
            [b'.', _, ..] if !text.contains('/') && !text.contains(char::is_control) => {
                Ok(Self::Ending(text.to_owned()))
            }
            [b'/', ..] => Prefix::parse(text, scope).map(|prefix| Self::Prefix(prefix.0)),
            _ => Err(Wrong::new(format!("\"{text}\" is neither an ending nor a folder"))
                .help(format!("expected {}", Self::KIND))),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Ending(ending) => ending.clone(),
            Self::Prefix(prefix) => Prefix(prefix.clone()).text(),
        }
    }
}

/// The name of a file or folder without a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName(pub String);

impl Word for FileName {
    const KIND: &'static str = "a name of a file";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text.is_empty() || text.contains(char::is_control) {
            return Err(Wrong::new(format!("{text:?} is not a name")));
        }
        // A name may have blanks, but a text with dots in all of its words is several names.
        if let Some((first, rest)) = text.split_once(' ')
            && text.split_whitespace().all(|name| name.contains('.'))
        {
            let list: Vec<_> = text.split_whitespace().map(|name| format!("\"{name}\"")).collect();
            let at = first.len() + 1 + (rest.len() - rest.trim_start().len());
            return Err(Wrong::new("these are several names in one text")
                .at(at)
                .help(format!("write a list: [{}]", list.join(", "))));
        }
        match text.find('/') {
            Some(at) => Err(Wrong::new("a name has no slash").at(at)),
            None => Ok(Self(text.to_owned())),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// A method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method(pub String);

impl Word for Method {
    const KIND: &'static str = "a method such as \"GET\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        const USUAL: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
        let upper = text.to_ascii_uppercase();
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
        if text.is_empty() || !text.bytes().all(is_letter) {
            return Err(Wrong::new(format!("\"{text}\" is not a method"))
                .help("several methods are a list: [\"GET\", \"POST\"]"));
        }
        if upper != text && USUAL.contains(&&*upper) {
            return Err(Wrong::new("methods are written in capital letters: case matters in HTTP")
                .help(format!("write \"{upper}\"")));
        }
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// A PCRE2 expression.
#[derive(Debug, Clone)]
pub struct Expression {
    /// The text of the expression, as the operator wrote it.
    pub text: String,
    /// The number of its groups.
    pub groups: usize,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The longest expression, in bytes: PCRE2's compile time grows with the length.
const LONGEST_EXPRESSION: usize = 8192;

impl Word for Expression {
    const KIND: &'static str = "an expression (PCRE2), best in single quotes: '^/old/(.+)$'";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if let Some(wrong) = modifier(text) {
            return Err(wrong);
        }
        if text.len() > LONGEST_EXPRESSION {
            return Err(Wrong::new(format!("an expression may have {LONGEST_EXPRESSION} bytes")));
        }
        // The library's wrapper expects no NUL, and `(*` would change the limits that the server
        // sets.
        if let Some(at) = text.find('\0') {
            return Err(Wrong::new("an expression has no NUL; write \\x00").at(at));
        }
        if text.starts_with("(*") {
            return Err(Wrong::new("verbs such as (*UTF) at the beginning are not allowed").at(0));
        }
        match RegexBuilder::new().build(text) {
            Ok(regex) => Ok(Self { text: text.to_owned(), groups: regex.captures_len() - 1 }),
            Err(error) => {
                let whole = error.to_string();
                let says = whole.rsplit_once(": ").map_or(&*whole, |(_, says)| says);
                let wrong = Wrong::new(format!("this expression is wrong: {says}"));
                Err(match error.offset() {
                    Some(at) => wrong.at(at),
                    None => wrong,
                })
            }
        }
    }

    fn text(&self) -> String {
        self.text.clone()
    }
}

/// A text in which `$path` and the like stand for parts of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The text as the operator wrote it.
    pub text: String,
    /// The highest group of the route's expression in the text; 0: none.
    pub group: usize,
    /// The names of the maps whose values are in the text.
    pub maps: Vec<String>,
}

/// The variables that a text may contain besides parts of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// A text of a route: groups of its expression, and values of maps.
    RouteText,
    /// A value of a map: what its pattern matched, and groups.
    MapValue,
}

/// The beginning of the variables for values of maps.
const MAP: &str = "map_";

/// The variables that may follow a dollar sign.
const VARIABLES: [&str; 6] = ["path", "query", "host", "scheme", "uri", "remote_addr"];

impl Word for Template {
    const KIND: &'static str = "a text, which may contain $path, $query, $host, $scheme, $uri, $remote_addr, $map_NAME and $1 to $9";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        Self::parse_with(text, Allowed::RouteText)
    }

    fn text(&self) -> String {
        self.text.clone()
    }
}

impl Template {
    /// Parses a text that may contain these variables.
    pub(crate) fn parse_with(text: &str, allowed: Allowed) -> Result<Self, Wrong> {
        if let Some(at) = text.find(|c: char| c.is_control() && c != '\n' && c != '\t') {
            return Err(Wrong::new("a control character is not allowed here").at(at));
        }
        let (mut group, mut maps) = (0, Vec::new());
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            let at = text.len() - rest.len() + dollar;
            let after = &rest[dollar + 1..];
            let name_len =
                after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
            let (name, _) = after.split_at(name_len);
            let taken = match (after.as_bytes().first(), name) {
                (Some(b'$'), _) => 1,
                (Some(digit @ b'1'..=b'9'), _) => {
                    group = group.max(usize::from(digit - b'0'));
                    1
                }
                (Some(b'0'), _) if allowed == Allowed::MapValue => 1,
                (_, name) if name.starts_with(MAP) && allowed == Allowed::MapValue => {
                    return Err(
                        Wrong::new("the value of a map cannot contain another map's").at(at)
                    );
                }
                (_, name) if name.starts_with(MAP) => {
                    maps.push(name[MAP.len()..].to_owned());
                    name.len()
                }
                (_, name) if VARIABLES.contains(&name) => name.len(),
                (_, name) => return Err(unknown_variable(name, at)),
            };
            rest = &after[taken..];
        }
        Ok(Self { text: text.to_owned(), group, maps })
    }
}

fn unknown_variable(name: &str, at: usize) -> Wrong {
    /// The names that nginx and Caddy have for them.
    const ELSEWHERE: [(&str, &str); 7] = [
        ("request_uri", "uri"),
        ("args", "query"),
        ("query_string", "query"),
        ("http_host", "host"),
        ("server_name", "host"),
        ("document_uri", "path"),
        ("is_args", "query"),
    ];
    if name.is_empty() || name == "0" {
        return Wrong::new("this dollar sign stands for nothing")
            .at(at)
            .help("for the sign itself write $$; groups are $1 to $9");
    }
    let wrong = Wrong::new(format!("there is no ${name}")).at(at);
    let known = ELSEWHERE.iter().find(|(other, _)| *other == name).map(|(_, ours)| *ours);
    match known.or_else(|| similar(name, VARIABLES.into_iter())) {
        Some(known) => wrong.help(format!("did you mean ${known}?")),
        None => wrong.help(format!(
            "there are ${}, $map_NAME and $1 to $9, for named groups too; the sign itself is $$",
            VARIABLES.join(", $")
        )),
    }
}

/// The script that answers for paths that lead to no file.
#[derive(Debug, Clone, PartialEq)]
pub enum FrontController {
    /// No script: the answer is 404.
    Off,
    /// The `index.php` in the folder of the path, or in the nearest folder above it.
    Nearest,
    /// The same script for the whole site.
    Script(UrlPath),
    /// A script per folder.
    Folders(Map<Prefix, UrlPath>),
}

impl Value for FrontController {
    fn kind() -> String {
        "\"off\", \"nearest\", a script such as \"/index.php\", or a table: folder = script"
            .to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        match item.value {
            DeValue::Table(_) => Map::read(item, reader).map(Self::Folders),
            DeValue::String(text) => match text.as_ref() {
                "off" => Some(Self::Off),
                "nearest" => Some(Self::Nearest),
                text if text.starts_with('/') => UrlPath::read(item, reader).map(Self::Script),
                text => {
                    let wrong = Wrong::new(format!("expected {}", Self::kind()));
                    let wrong = match similar(text, ["off", "nearest"].into_iter()) {
                        Some(known) => wrong.help(format!("did you mean \"{known}\"?")),
                        None if text.contains('.') => wrong.help(format!("write \"/{text}\"")),
                        None => wrong,
                    };
                    reader.wrong(item, wrong);
                    None
                }
            },
            _ => {
                reader.expected(item, &Self::kind());
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        match self {
            Self::Off => Some(Toml::String("off".to_owned())),
            Self::Nearest => Some(Toml::String("nearest".to_owned())),
            Self::Script(path) => path.toml(),
            Self::Folders(folders) => folders.toml(),
        }
    }

    fn schema() -> Json {
        json!({"anyOf": [{"type": "string"}, <Map<Prefix, UrlPath>>::schema()]})
    }
}

impl FrontController {
    /// The folders and their scripts.
    #[must_use]
    pub fn folders(&self) -> Vec<(Prefix, At<UrlPath>)> {
        match self {
            Self::Off | Self::Nearest => Vec::new(),
            Self::Script(path) => vec![(Prefix(String::new()), At::default(path.clone()))],
            Self::Folders(map) => {
                map.0.iter().map(|(folder, path)| (folder.value.clone(), path.clone())).collect()
            }
        }
    }
}

/// The script that a PHP worker runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Php {
    /// The script at the path of the request.
    Requested,
    /// The same script for every path.
    Script(UrlPath),
}

impl Value for Php {
    fn kind() -> String {
        "true, or a script such as \"/index.php\"".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        match item.value {
            DeValue::Boolean(true) => Some(Self::Requested),
            DeValue::String(_) => UrlPath::read(item, reader).map(Self::Script),
            _ => {
                reader.expected(item, &Self::kind());
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        match self {
            Self::Requested => Some(Toml::Boolean(true)),
            Self::Script(path) => path.toml(),
        }
    }

    fn schema() -> Json {
        json!({"anyOf": [{"const": true}, {"type": "string"}]})
    }
}
