//! Texts, numbers with units, paths of files, settings of PHP.

use std::path::PathBuf;
use std::time::Duration;

use sendoff_config::{LogFormat, is_charset, units};
use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::place::{At, Place};
use crate::read::{FileReader, Item, Scope, Wrong};
use crate::value::{Value, Word};

/// Any text without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Free(pub String);

impl Word for Free {
    const KIND: &'static str = "a text";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text.is_empty() {
            return Err(Wrong::new("this text is empty").help("remove the key to have its default"));
        }
        match text.find(char::is_control) {
            None => Ok(Self(text.to_owned())),
            Some(at) => Err(Wrong::new("a control character is not allowed here").at(at)),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The name of a charset (RFC 2978 §2.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charset(pub String);

impl Word for Charset {
    const KIND: &'static str = "a charset such as \"utf-8\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        match is_charset(text.as_bytes()) {
            true => Ok(Self(text.to_owned())),
            false => Err(Wrong::new(format!("{text:?} is no name of a charset"))
                .help("write \"utf-8\", or remove the key")),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// Any text, in one line or several. It may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw(pub String);

impl Word for Raw {
    const KIND: &'static str = "a text";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        match text.find('\0') {
            None => Ok(Self(text.to_owned())),
            Some(at) => Err(Wrong::new("a text has no NUL").at(at)),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The target of an access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPath {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// A file.
    File(FilePath),
}

impl Word for LogPath {
    const KIND: &'static str = "a path, \"-\" or \"off\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        Ok(match text {
            "off" => Self::Off,
            "-" => Self::Stdout,
            path => Self::File(FilePath::parse(path, scope)?),
        })
    }

    fn text(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Stdout => "-".to_owned(),
            Self::File(path) => path.text(),
        }
    }
}

/// The format of a line of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFormat(pub String);

impl Word for LineFormat {
    const KIND: &'static str =
        "\"combined\", \"json\" or a text with variables such as $remote_addr";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        text.parse::<LogFormat>().map(|_| Self(text.to_owned())).map_err(Wrong::new)
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

impl LineFormat {
    /// The format in the resolved configuration.
    #[must_use]
    pub fn resolved(&self) -> LogFormat {
        // The text was parsed when it was read.
        self.0.parse().unwrap_or_else(|_| LogFormat::combined())
    }
}

/// Permissions that new files do not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Umask(pub u32);

impl Word for Umask {
    const KIND: &'static str = "permissions in octal such as \"027\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let digits = text.trim_start_matches("0o");
        match u32::from_str_radix(digits, 8) {
            Ok(mask @ 0..=0o777) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Self(mask))
            }
            _ => Err(Wrong::new(format!("\"{text}\" is not from 000 to 777 in octal"))),
        }
    }

    fn text(&self) -> String {
        format!("{:03o}", self.0)
    }
}

/// A time; zero switches the limit off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Duration);

impl Word for Time {
    const KIND: &'static str = "a time such as \"30s\", \"500ms\" or \"2m\"";
    const NUMBERS: bool = true;

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        units::time(text).map(Self).map_err(Wrong::new)
    }

    fn text(&self) -> String {
        let nanos = self.0.as_nanos();
        const SECOND: u128 = 1_000_000_000;
        let units =
            [("d", 86_400 * SECOND), ("h", 3600 * SECOND), ("m", 60 * SECOND), ("s", SECOND)];
        for (unit, length) in units {
            if nanos >= length && nanos.is_multiple_of(length) {
                return format!("{}{unit}", nanos / length);
            }
        }
        match nanos {
            0 => "0s".to_owned(),
            _ if nanos.is_multiple_of(1_000_000) => format!("{}ms", nanos / 1_000_000),
            _ => format!("{}.{:09}s", self.0.as_secs(), self.0.subsec_nanos()),
        }
    }
}

/// A time that is more than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositiveTime(pub Duration);

impl Word for PositiveTime {
    const KIND: &'static str = "a time such as \"30s\", \"500ms\" or \"2m\", more than 0";
    const NUMBERS: bool = true;

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        units::positive_time(text).map(Self).map_err(Wrong::new)
    }

    fn text(&self) -> String {
        Time(self.0).text()
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl Word for Size {
    const KIND: &'static str = "a size such as \"64K\", \"100M\" or \"1G\"";
    const NUMBERS: bool = true;

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        units::size(text).map(Self).map_err(|says| {
            let wrong = Wrong::new(says);
            // 64MB, 64MiB.
            match text.to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
                short if short != text && units::size(short).is_ok() => {
                    wrong.help(format!("write \"{short}\""))
                }
                _ => wrong,
            }
        })
    }

    fn text(&self) -> String {
        for (unit, shift) in [("G", 30), ("M", 20), ("K", 10)] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return format!("{}{unit}", self.0 >> shift);
            }
        }
        self.0.to_string()
    }
}

/// A path of a file or folder; in a file, relative to the folder of that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePath(pub PathBuf);

impl Word for FilePath {
    const KIND: &'static str = "a path";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        let Free(text) = Free::parse(text, scope)?;
        if text.starts_with('~') {
            return Err(Wrong::new("\"~\" is not a folder here")
                .at(0)
                .help("write the whole path"));
        }
        Ok(Self(scope.folder.join(text)))
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

/// The number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// As many as requests need.
    Auto,
    /// As many as requests need, and none while no request comes.
    OnDemand,
    /// A fixed number.
    Fixed(u16),
}

impl Word for Count {
    const KIND: &'static str = "a number from 1 to 1024, \"auto\" or \"ondemand\"";
    const NUMBERS: bool = true;

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        match text.parse() {
            Ok(count @ 1..=1024) => Ok(Self::Fixed(count)),
            _ if text == "auto" => Ok(Self::Auto),
            _ if text == "ondemand" => Ok(Self::OnDemand),
            _ => Err(Wrong::new("neither a number from 1 to 1024 nor auto nor ondemand")),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::OnDemand => "ondemand".to_owned(),
            Self::Fixed(count) => count.to_string(),
        }
    }
}

/// A status code of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u16);

impl Word for Status {
    const KIND: &'static str = "a status from 400 to 599";
    const NUMBERS: bool = true;

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        match text.parse() {
            Ok(status @ 400..=599) => Ok(Self(status)),
            _ => {
                let wrong = Wrong::new(format!("\"{text}\" is not a status from 400 to 599"));
                Err(match text.contains(['x', 'X', ' ']) {
                    true => {
                        wrong.help("name each status: { 500 = \"/50x.html\", 502 = \"/50x.html\" }")
                    }
                    false => wrong,
                })
            }
        }
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Settings of PHP, in order; a name may have several values.
#[derive(Debug, Clone, PartialEq)]
pub struct IniSettings(pub Vec<(At<String>, Vec<String>)>);

/// The deepest nesting of a name's parts, such as `date.timezone`.
const MAX_PARTS: usize = 8;

impl IniSettings {
    /// No settings.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds a setting. A second value of `extension` and `zend_extension` stands beside the first,
    /// other names keep the last value, as PHP does.
    pub fn add(&mut self, name: &str, value: &str, place: Place) {
        let several = matches!(name, "extension" | "zend_extension");
        let known = self.0.iter_mut().find(|(known, _)| known.value == name);
        match known {
            Some((_, values)) if several => values.push(value.to_owned()),
            Some((_, values)) => *values = vec![value.to_owned()],
            None => {
                let name = At { value: name.to_owned(), place };
                self.0.push((name, vec![value.to_owned()]));
            }
        }
    }

    /// Reads a table: `date.timezone = "UTC"` is a table in a table.
    fn collect(&mut self, item: Item<'_>, prefix: &str, reader: &mut FileReader<'_>) -> Option<()> {
        let DeValue::Table(table) = item.value else {
            reader.expected(item, &Self::kind());
            return None;
        };
        let mut complete = true;
        for (key, value) in table {
            let (place, item) = (reader.key(key), reader.item(value));
            let name = format!("{prefix}{}", key.get_ref());
            if name.is_empty() || !name.bytes().all(is_ini_name) {
                reader.wrong_key(place, Wrong::new(format!("\"{name}\" is no setting of PHP")));
                complete = false;
                continue;
            }
            if let DeValue::Table(_) = item.value
                && prefix.matches('.').count() < MAX_PARTS
            {
                complete &= self.collect(item, &format!("{name}."), reader).is_some();
                continue;
            }
            let several = matches!(&*name, "extension" | "zend_extension");
            let values = match item.value {
                DeValue::Array(array) if several => array.iter().collect(),
                _ => vec![value],
            };
            for value in values {
                let item = reader.item(value);
                match ini_value(item) {
                    Some(text) => self.add(&name, &text, place),
                    None => {
                        reader
                            .expected(item, "a text, a number, true or false, without line breaks");
                        complete = false;
                    }
                }
            }
        }
        complete.then_some(())
    }
}

fn is_ini_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

fn ini_value(item: Item<'_>) -> Option<String> {
    match item.value {
        DeValue::String(text) if !text.contains(char::is_control) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(value) => Some(u8::from(*value).to_string()),
        _ => None,
    }
}

impl Value for IniSettings {
    fn kind() -> String {
        "a table: the name of a setting = a text, a number, true or false".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let mut settings = Self::none();
        settings.collect(item, "", reader)?;
        Some(settings)
    }

    fn toml(&self) -> Option<Toml> {
        let value = |values: &[String]| match values {
            [one] => Toml::String(one.clone()),
            several => Toml::Array(several.iter().cloned().map(Toml::String).collect()),
        };
        let pairs = self.0.iter().map(|(name, values)| (name.value.clone(), value(values)));
        Some(Toml::Table(pairs.collect()))
    }

    fn schema() -> Json {
        json!({"type": "object"})
    }
}
