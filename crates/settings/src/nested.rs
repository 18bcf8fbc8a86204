//! Sections in sections, and sections in files.

use std::path::Path;

use sendoff_setting_values::{
    At, FileReader, Item, MapName, Place, Problems, Sources, Value, Word,
};
use serde_json::{Value as Json, json};
use toml::de::{DeString, DeTable, DeValue};
use toml::{Spanned, Value as Toml};

use crate::section::{self, Section};

/// The number of syntax errors of one file that are shown: a file in another format is one mistake.
const MAX_SYNTAX_ERRORS: usize = 5;

/// Reads a file that is in `sources`. Errors and warnings go to `problems`.
pub(crate) fn read<T: Section>(sources: &Sources, file: u16, problems: &mut Problems) -> T {
    let whole = Place::File { file, start: 0, end: 0 };
    let Some(source) = sources.get(file) else { return T::empty(whole) };
    let folder = source.path.parent().unwrap_or(Path::new("/"));
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let mut reader = FileReader::new(file, &source.text, folder, problems);
    for error in errors.iter().take(MAX_SYNTAX_ERRORS) {
        let place = reader.place(error.span().unwrap_or(0..0));
        reader.syntax(place, error.message());
    }
    // After a syntax error the parser guesses the rest of the table, perhaps wrongly.
    if !errors.is_empty() {
        return T::empty(whole);
    }
    T::read(table.get_ref(), whole, &mut reader)
}

/// Sections of the same kind, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Sections<T>(pub Vec<T>);

impl<T: Section> Value for Sections<T> {
    fn kind() -> String {
        format!("sections {}", T::TITLE)
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let DeValue::Array(array) = item.value else {
            reader.not_sections(item, T::TITLE);
            return None;
        };
        let mut sections = Vec::with_capacity(array.len());
        for value in array {
            let item = reader.item(value);
            let DeValue::Table(table) = item.value else {
                reader.not_sections(item, T::TITLE);
                return None;
            };
            sections.push(T::read(table, item.place, reader));
        }
        Some(Self(sections))
    }

    fn toml(&self) -> Option<Toml> {
        None
    }

    fn schema() -> Json {
        json!({"type": "array", "items": section::schema::<T>()})
    }
}

/// Sections of the same kind that the operator names: `[site.map.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Named<T>(pub Vec<(At<MapName>, T)>);

impl<T: Section> Value for Named<T> {
    fn kind() -> String {
        format!("sections {}", T::TITLE)
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let DeValue::Table(table) = item.value else {
            reader.not_named_sections(item, T::TITLE);
            return None;
        };
        let mut sections = Vec::with_capacity(table.len());
        for (key, value) in table {
            let (place, item) = (reader.key(key), reader.item(value));
            let DeValue::Table(table) = item.value else {
                reader.not_named_sections(item, T::TITLE);
                return None;
            };
            match MapName::parse(key.get_ref().as_ref(), &reader.scope()) {
                Ok(value) => {
                    sections.push((At { value, place }, T::read(table, place, reader)));
                }
                Err(wrong) => {
                    reader.wrong_key(place, wrong);
                    return None;
                }
            }
        }
        Some(Self(sections))
    }

    fn toml(&self) -> Option<Toml> {
        None
    }

    fn schema() -> Json {
        json!({"type": "object", "additionalProperties": section::schema::<T>()})
    }
}

/// A section that is written as one value: `auth = { users = "..." }`.
#[derive(Debug, Clone, PartialEq)]
pub struct Inline<T>(pub T);

impl<T: Section> Value for Inline<T> {
    fn kind() -> String {
        let names: Vec<_> = T::KEYS.iter().map(|key| key.name).collect();
        format!("a table with {}", names.join(", "))
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let DeValue::Table(table) = item.value else {
            reader.expected(item, &Self::kind());
            return None;
        };
        Some(Self(T::read(table, item.place, reader)))
    }

    fn toml(&self) -> Option<Toml> {
        let entries = self.0.entries().into_iter();
        Some(Toml::Table(entries.map(|(key, value, _)| (key.name.to_owned(), value)).collect()))
    }

    fn schema() -> Json {
        section::schema::<T>()
    }
}

/// A section that is written as one value, or as the value of its first key alone: `tls =
/// "self-signed"`.
#[derive(Debug, Clone, PartialEq)]
pub struct Short<T>(pub T);

impl<T: Section> Value for Short<T> {
    fn kind() -> String {
        format!("{}, or {}", (T::KEYS[0].kind)(), Inline::<T>::kind())
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let (DeValue::String(_), Place::File { start, end, .. }) = (item.value, item.place) else {
            let DeValue::Table(table) = item.value else {
                reader.expected(item, &Self::kind());
                return None;
            };
            return Some(Self(T::read(table, item.place, reader)));
        };
        let span = start as usize..end as usize;
        let name = Spanned::new(span.clone(), DeString::from(T::KEYS[0].name));
        let mut table = DeTable::new();
        table.insert(name, Spanned::new(span, item.value.clone()));
        let section = T::read(&table, item.place, reader);
        Some(Self(section))
    }

    fn toml(&self) -> Option<Toml> {
        let entries = self.0.entries();
        match &*entries {
            [(key, value, _)] if key.name == T::KEYS[0].name => Some(value.clone()),
            _ => Some(Toml::Table(
                entries.into_iter().map(|(key, value, _)| (key.name.to_owned(), value)).collect(),
            )),
        }
    }

    fn schema() -> Json {
        json!({"anyOf": [(T::KEYS[0].schema)(), section::schema::<T>()]})
    }
}
