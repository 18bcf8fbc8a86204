//! The `sendoff.toml` that is being written: sections with keys and comments.

use std::collections::HashSet;

use toml::Value;

use crate::Conversion;
use crate::place::Place;

/// One section: `[[site]]` and the like, or the keys before the first section.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// The name in double brackets; empty for the keys before the first section.
    name: &'static str,
    /// The name of a map, in single brackets behind `name`.
    map: Option<String>,
    comments: Vec<Comment>,
    keys: Vec<(&'static str, Value)>,
}

/// A remark at the place in the result that it is about.
#[derive(Debug, Clone, PartialEq)]
struct Comment {
    /// The directive; `None` if the remark is about no single one.
    place: Option<Place>,
    text: String,
    kind: Kind,
}

/// The consequence of a remark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The directive is not in the result.
    LeftOut,
    /// The directive is in the result, with a difference that the remark explains.
    Note,
}

impl Section {
    /// An empty section; without a name, the keys before the first section.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// The section of a map of the site above it.
    #[must_use]
    pub fn map(name: &str) -> Self {
        Self { name: "site.map", map: Some(name.to_owned()), ..Self::default() }
    }

    /// Sets a key; the last value counts.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        let value = value.into();
        match self.keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.keys.push((key, value)),
        }
    }

    /// Adds an entry to a key whose value is a table.
    pub fn set_in(&mut self, key: &'static str, name: &str, value: impl Into<Value>) {
        if !self.has(key) {
            self.set(key, toml::Table::new());
        }
        let table = self.keys.iter_mut().find(|(known, _)| *known == key);
        if let Some((_, Value::Table(table))) = table {
            table.insert(name.to_owned(), value.into());
        }
    }

    /// Adds a value to an entry of a key whose value is a table.
    pub fn add_in(&mut self, key: &'static str, name: &str, value: String) {
        let table = self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| value);
        let mut values = match table.and_then(|table| table.get(name)).cloned() {
            None => return self.set_in(key, name, value),
            Some(Value::Array(values)) => values,
            Some(other) => vec![other],
        };
        values.push(value.into());
        self.set_in(key, name, values);
    }

    /// Sets a list; one value is written without brackets.
    pub fn set_list(&mut self, key: &'static str, mut values: Vec<String>) {
        match values.len() {
            0 => {}
            1 => self.set(key, values.remove(0)),
            _ => self.set(key, values),
        }
    }

    /// Removes a key whose value is a text.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.keys.iter().position(|(known, _)| *known == key)?;
        match self.keys.remove(at) {
            (_, Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The texts of a key whose value is a text or a list of texts.
    pub fn texts(&self, key: &str) -> Vec<String> {
        let value = self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| value);
        match value {
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(values)) => {
                values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }

    /// True if the section has this key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|(known, _)| *known == key)
    }

    /// True if the table of a key has this entry.
    #[must_use]
    pub fn has_in(&self, key: &str, name: &str) -> bool {
        let table = self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| value);
        table.and_then(|table| table.get(name)).is_some()
    }

    /// The text of an entry of a key whose value is a table.
    #[must_use]
    pub fn text_in(&self, key: &str, name: &str) -> Option<String> {
        let table = self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| value);
        table.and_then(|table| table.get(name)).and_then(Value::as_str).map(str::to_owned)
    }

    /// The keys with their values.
    pub(crate) fn keys_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Value)> {
        self.keys.iter_mut().map(|(key, value)| (*key, value))
    }

    /// Makes the route refuse, with a remark. Only its conditions stay.
    pub fn refuse(&mut self, text: &str) {
        const CONDITIONS: [&str; 6] = ["path", "match", "method", "header", "query", "when"];
        self.keys.retain(|(key, _)| CONDITIONS.contains(key));
        self.set("deny", true);
        self.remark(None, text.to_owned(), Kind::LeftOut);
    }

    /// True if the section has no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Says that a directive is not in the result.
    pub fn left_out(&mut self, place: &Place, text: impl Into<String>) {
        self.remark(Some(place.clone()), text.into(), Kind::LeftOut);
    }

    /// Says how the result differs from the directive.
    pub fn note(&mut self, place: &Place, text: impl Into<String>) {
        self.remark(Some(place.clone()), text.into(), Kind::Note);
    }

    /// A comment about no single directive.
    pub fn comment(&mut self, text: impl Into<String>) {
        self.remark(None, text.into(), Kind::Note);
    }

    fn remark(&mut self, place: Option<Place>, text: String, kind: Kind) {
        self.comments.push(Comment { place, text, kind });
    }

    /// Moves the keys and comments of another section into this one.
    /// Tables are merged; of two other values, the other section's counts.
    pub fn absorb(&mut self, other: Self) {
        self.comments.extend(other.comments);
        for (key, value) in other.keys {
            match value {
                Value::Table(table) => {
                    for (name, value) in table {
                        self.set_in(key, &name, value);
                    }
                }
                value => self.set(key, value),
            }
        }
    }

    /// Moves the comments of another section into this one.
    pub fn absorb_comments(&mut self, other: Self) {
        self.comments.extend(other.comments);
    }
}

/// All sections, in order.
#[derive(Debug, Default)]
pub struct Document {
    /// The keys before the first section.
    pub top: Section,
    /// The pools and upstreams.
    pub groups: Vec<Section>,
    /// The sites, each followed by its routes.
    pub sites: Vec<Section>,
    /// Remarks about directives that belong to no site.
    pub rest: Section,
}

impl Document {
    /// Writes the text. The same remark about the same directive is written once.
    pub fn finish(self) -> Conversion {
        let mut writer = Writer::default();
        for section in [self.top].iter().chain(&self.groups).chain(&self.sites).chain([&self.rest])
        {
            writer.section(section);
        }
        Conversion { text: writer.text, left_out: writer.left_out }
    }
}

#[derive(Debug, Default)]
struct Writer {
    text: String,
    known: HashSet<String>,
    left_out: usize,
}

impl Writer {
    fn section(&mut self, section: &Section) {
        let mut lines = String::new();
        for comment in &section.comments {
            let text = match &comment.place {
                Some(place) => format!("{place}: {}", comment.text),
                None => comment.text.clone(),
            };
            // A name in a file may contain any character; none may end the comment.
            let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            if comment.place.is_some() && !self.known.insert(text.clone()) {
                continue;
            }
            self.left_out += usize::from(comment.kind == Kind::LeftOut);
            lines.push_str(&format!("# {text}\n"));
        }
        if !section.name.is_empty() && !section.is_empty() {
            lines.push_str(&match &section.map {
                Some(map) => format!("[{}.{map}]\n", section.name),
                None => format!("[[{}]]\n", section.name),
            });
        }
        for (key, value) in &section.keys {
            lines.push_str(&format!("{key} = {}\n", inline(value)));
        }
        if lines.is_empty() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&lines);
    }
}

/// A value on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            format!("[{}]", values.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| {
                let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                let key = match !key.is_empty() && key.bytes().all(is_bare) {
                    true => key.clone(),
                    false => Value::String(key.clone()).to_string(),
                };
                format!("{key} = {}", inline(value))
            });
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::String(text) if text.contains('\n') => {
            // The library would write several lines.
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{}\"", escaped.replace('\n', "\\n").replace('\r', "\\r"))
        }
        value => value.to_string(),
    }
}

impl Section {
    /// True if a value names this upstream.
    pub fn mentions(&self, upstream: &str) -> bool {
        let name = format!("upstream:{upstream}");
        self.keys.iter().any(|(_, value)| inline(value).contains(&name))
    }

    /// True if a value contains the value of this map.
    #[must_use]
    pub fn contains_map(&self, map: &str) -> bool {
        let name = format!("$map_{map}");
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        self.keys.iter().any(|(key, value)| {
            let is_compared =
                *key == "when" && value.as_table().is_some_and(|when| when.contains_key(map));
            let text = inline(value);
            let mut behind = text.match_indices(&name).map(|(at, _)| &text[at + name.len()..]);
            is_compared || behind.any(|rest| !rest.starts_with(is_name))
        })
    }
}
