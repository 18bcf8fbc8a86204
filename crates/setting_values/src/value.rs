//! Reading of values from TOML, and printing.

use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::place::At;
use crate::read::{FileReader, Item, Scope, Wrong};

/// The type of a key.
pub trait Value: Sized {
    /// The words for its values in messages: "a size such as 64K".
    fn kind() -> String;

    /// Reads the value. `None` after a mistake, which the reader then has.
    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self>;

    /// The value as TOML; `None` for values that are printed as sections of their own.
    fn toml(&self) -> Option<Toml>;

    /// The allowed values, as far as a JSON schema can express them.
    fn schema() -> Json;
}

/// A value that is written as one text, in a file and on the command line.
pub trait Word: Sized + Clone + PartialEq {
    /// The words for its values in messages.
    const KIND: &'static str;
    /// True if a number may be written without quotation marks.
    const NUMBERS: bool = false;
    /// The only texts that are allowed; empty if they are too many to list.
    const CHOICES: &'static [&'static str] = &[];

    /// Parses the text.
    ///
    /// # Errors
    /// The mistake in the text.
    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong>;

    /// The text that is parsed to the same value.
    fn text(&self) -> String;
}

impl<T: Word> Value for T {
    fn kind() -> String {
        T::KIND.to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let number;
        let text = match item.value {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(value) if T::NUMBERS => {
                number = value.to_string();
                &number
            }
            _ => {
                reader.expected(item, &Self::kind());
                return None;
            }
        };
        match T::parse(text, &reader.scope()) {
            Ok(value) => Some(value),
            Err(wrong) => {
                reader.wrong(item, wrong);
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        let text = self.text();
        Some(match text.parse() {
            Ok(number) if T::NUMBERS => Toml::Integer(number),
            _ => Toml::String(text),
        })
    }

    fn schema() -> Json {
        if !T::CHOICES.is_empty() {
            json!({"enum": T::CHOICES})
        } else if T::NUMBERS {
            json!({"type": ["string", "integer"]})
        } else {
            json!({"type": "string"})
        }
    }
}

impl Value for bool {
    fn kind() -> String {
        "true or false".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        match item.value {
            DeValue::Boolean(value) => Some(*value),
            _ => {
                reader.expected(item, &Self::kind());
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        Some(Toml::Boolean(*self))
    }

    fn schema() -> Json {
        json!({"type": "boolean"})
    }
}

/// `true`; `false` would mean the same as no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Yes;

impl Value for Yes {
    fn kind() -> String {
        "true".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        match item.value {
            DeValue::Boolean(true) => Some(Self),
            DeValue::Integer(number) => {
                let help = format!(
                    "write true here, and the number as a key of its own: status = {number}"
                );
                reader.wrong(item, Wrong::new("expected true").help(help));
                None
            }
            _ => {
                reader.expected(item, "true; remove the key to switch it off");
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        Some(Toml::Boolean(true))
    }

    fn schema() -> Json {
        json!({"const": true})
    }
}

/// A number within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Value for Number<MIN, MAX> {
    fn kind() -> String {
        match (MIN, MAX) {
            (0, u64::MAX) => "a number".to_owned(),
            _ => format!("a number from {MIN} to {MAX}"),
        }
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        if let DeValue::Integer(number) = item.value
            && let Ok(number) = u64::from_str_radix(number.as_str(), number.radix())
            && (MIN..=MAX).contains(&number)
            // A number that TOML cannot express cannot be printed either.
            && i64::try_from(number).is_ok()
        {
            return Some(Self(number));
        }
        reader.expected(item, &Self::kind());
        None
    }

    fn toml(&self) -> Option<Toml> {
        Some(Toml::Integer(i64::try_from(self.0).unwrap_or(i64::MAX)))
    }

    fn schema() -> Json {
        match (MIN, MAX) {
            (_, u64::MAX) => json!({"type": "integer", "minimum": MIN}),
            _ => json!({"type": "integer", "minimum": MIN, "maximum": MAX}),
        }
    }
}

/// Several values, or one without brackets.
#[derive(Debug, Clone, PartialEq)]
pub struct List<T>(pub Vec<At<T>>);

impl<T> List<T> {
    /// Values that are the default.
    pub fn of(values: impl IntoIterator<Item = T>) -> Self {
        Self(values.into_iter().map(At::default).collect())
    }

    /// The values without their places.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|at| &at.value)
    }
}

impl<T: Value> Value for List<T> {
    fn kind() -> String {
        format!("{}, or a list", T::kind())
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let DeValue::Array(array) = item.value else {
            return T::read(item, reader).map(|value| Self(vec![At { value, place: item.place }]));
        };
        let mut list = Vec::with_capacity(array.len());
        let mut complete = true;
        for value in array {
            let item = reader.item(value);
            match T::read(item, reader) {
                Some(value) => list.push(At { value, place: item.place }),
                None => complete = false,
            }
        }
        complete.then_some(Self(list))
    }

    fn toml(&self) -> Option<Toml> {
        match &*self.0 {
            [one] => one.value.toml(),
            list => list.iter().map(|at| at.value.toml()).collect::<Option<_>>().map(Toml::Array),
        }
    }

    fn schema() -> Json {
        json!({"anyOf": [T::schema(), {"type": "array", "items": T::schema()}]})
    }
}

/// A table whose keys the operator chooses, in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Map<K, V>(pub Vec<(At<K>, At<V>)>);

impl<K: Word, V: Value> Value for Map<K, V> {
    fn kind() -> String {
        format!("a table: {} = {}", K::KIND, V::kind())
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let DeValue::Table(table) = item.value else {
            reader.expected(item, "a table in braces");
            return None;
        };
        let mut map = Vec::with_capacity(table.len());
        for (key, value) in table {
            let (name, value) = (reader.key(key), reader.item(value));
            let name_text = key.get_ref().as_ref();
            let key = K::parse(name_text, &reader.scope());
            let key = key.map_err(|wrong| reader.wrong_key(name, wrong)).ok();
            let (place, value) = (value.place, V::read(value, reader));
            map.push(
                key.zip(value)
                    .map(|(key, value)| (At { value: key, place: name }, At { value, place })),
            );
        }
        map.into_iter().collect::<Option<_>>().map(Self)
    }

    fn toml(&self) -> Option<Toml> {
        let pairs = self.0.iter().map(|(key, value)| Some((key.value.text(), value.value.toml()?)));
        pairs.collect::<Option<_>>().map(Toml::Table)
    }

    fn schema() -> Json {
        json!({"type": "object", "additionalProperties": V::schema()})
    }
}
