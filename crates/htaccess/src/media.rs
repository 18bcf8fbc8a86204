//! Meanings of file name endings: `AddType`, `AddEncoding`, `AddHandler` and their like.

use crate::state::Context;
use crate::text;

/// A property that an ending may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property {
    Type,
    Encoding,
    Handler,
    Charset,
    Language,
}

/// The directives of a section.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Ending in lower case without its dot, property, value; `None` removes the value of folders
    /// above.
    entries: Vec<(Vec<u8>, Property, Option<Vec<u8>>)>,
}

fn ending(text: &[u8]) -> Vec<u8> {
    text.strip_prefix(b".").unwrap_or(text).to_ascii_lowercase()
}

impl Config {
    /// `AddType VALUE ENDING...` and its like.
    pub(crate) fn add(&mut self, property: Property, value: &[u8], endings: &[Vec<u8>]) {
        // Apache stores all values in lower case.
        let value = value.to_ascii_lowercase();
        let entries = endings.iter().map(|text| (ending(text), property, Some(value.clone())));
        self.entries.extend(entries);
    }

    /// `RemoveType ENDING...` and its like.
    pub(crate) fn remove(&mut self, property: Property, endings: &[Vec<u8>]) {
        // Additions of the same section take effect wherever they stand.
        self.entries.splice(0..0, endings.iter().map(|text| (ending(text), property, None)));
    }
}

/// The combined properties of all endings of a file's name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Media {
    /// A directive or the server's table names the type.
    pub(crate) content_type: Option<Vec<u8>>,
    /// A directive defines a property of an ending.
    pub(crate) by_rule: bool,
    /// A directive names the type.
    pub(crate) type_by_rule: bool,
    pub(crate) encodings: Vec<Vec<u8>>,
    pub(crate) languages: Vec<Vec<u8>>,
    pub(crate) handler: Option<Vec<u8>>,
    pub(crate) charset: Option<Vec<u8>>,
    /// A directive removes the handler of the last ending, or gives it another type.
    pub(crate) handler_removed: bool,
}

/// Looks up the endings of a file's name in the sections that apply, the nearest section last.
pub(crate) fn media(context: &Context<'_>, configs: &[&Config], file: &[u8]) -> Media {
    let mut found = Media::default();
    let name = file.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let start = name.iter().position(|byte| *byte != b'.').unwrap_or(name.len());
    for part in name[start..].split(|byte| *byte == b'.').skip(1) {
        // The exceeded limit ends the request with an error.
        if context.budget.time().is_err() {
            break;
        }
        let part = part.to_ascii_lowercase();
        let look = |property| look(configs, &part, property);
        found.handler_removed = false;
        if let Some(media_type) = (context.site.media_type)(&part) {
            found.content_type = Some(media_type);
            found.type_by_rule = false;
        }
        if let Some(value) = look(Property::Type) {
            found.content_type = value.cloned();
            (found.by_rule, found.type_by_rule, found.handler_removed) = (true, true, true);
        }
        if let Some(value) = look(Property::Charset) {
            found.charset = value.cloned().or(found.charset);
            found.by_rule = true;
        }
        if let Some(value) = look(Property::Language) {
            found.languages.extend(value.cloned());
            found.by_rule = true;
        }
        if let Some(value) = look(Property::Encoding) {
            found.encodings.extend(value.cloned());
            found.by_rule = true;
        }
        match look(Property::Handler) {
            Some(Some(value)) => found.handler = Some(value.clone()),
            Some(None) => found.handler_removed = true,
            None => {}
        }
    }
    found
}

#[allow(clippy::option_option, reason = "nothing said; said that there is none; said what")]
fn look<'a>(
    configs: &[&'a Config],
    part: &[u8],
    property: Property,
) -> Option<Option<&'a Vec<u8>>> {
    let entries = configs.iter().rev().flat_map(|config| config.entries.iter().rev());
    let mut entries = entries.filter(|(known, of, _)| known == part && *of == property);
    entries.next().map(|(_, _, value)| value.as_ref())
}

/// Values joined as in a header field.
pub(crate) fn joined(values: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            joined.extend_from_slice(b", ");
        }
        joined = text::concat(&[&joined, value]);
    }
    joined
}
