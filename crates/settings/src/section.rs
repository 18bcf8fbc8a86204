//! The table of keys: what `section!` makes of it.
//!
//! Each section of the file is declared once, in `keys.rs`: a key's name, type, default, sentence and example. From the
//! declaration come the struct that holds what a file says, the code that reads it and prints it, the lists from which
//! messages are made, the documentation and the schema.

use serde_json::{Map, Value as Json, json};
use toml::de::{DeString, DeTable};
use toml::{Spanned, Value as Toml};

use crate::place::{At, Place};
use crate::read::{Reader, similar};

/// A key of a section.
pub(crate) struct Key {
    /// As it stands in the file.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) doc: &'static [&'static str],
    /// What its values are called.
    pub(crate) kind: fn() -> String,
    /// What holds without it.
    pub(crate) default: fn() -> Default,
    /// A value.
    pub(crate) example: &'static str,
    /// What operators who come from other servers call it.
    pub(crate) also: &'static [&'static str],
    /// Its values as a JSON schema.
    pub(crate) schema: fn() -> Json,
}

/// What a section holds for a key.
pub(crate) trait Fill {
    /// Takes the other value if this one is not set.
    fn fill(&mut self, other: Self);
}

impl<T> Fill for Option<At<T>> {
    fn fill(&mut self, other: Self) {
        if self.is_none() {
            *self = other;
        }
    }
}

impl<T> Fill for At<T> {
    fn fill(&mut self, other: Self) {
        if self.place == Place::Default {
            *self = other;
        }
    }
}

/// What holds without a key.
pub(crate) enum Default {
    /// This value.
    Value(Toml),
    /// What the sentence says.
    Described(&'static str),
    /// Nothing; or the section is not complete.
    Nothing,
}

/// A section of the file.
pub(crate) trait Section: Sized {
    /// How it begins in the file: `[[site]]`.
    const TITLE: &'static str;
    /// What it is.
    const DOC: &'static [&'static str];
    /// Its keys.
    const KEYS: &'static [Key];

    /// The keys of all sections, by their titles.
    fn all() -> &'static [(&'static str, &'static [Key])];

    /// Without any key.
    fn empty(place: Place) -> Self;

    /// Reads it; what is wrong is in the reader.
    fn read(table: &DeTable<'_>, place: Place, reader: &mut Reader<'_>) -> Self;

    /// What differs from the defaults.
    fn entries(&self) -> Vec<(&'static Key, Toml, Place)>;
}

/// Declares a section. `KEY: TYPE` is a key that may be absent; `KEY: TYPE = VALUE` has a default;
/// `as "NAME"` stands before the type where the name in the file is a word of Rust's.
macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        $section:ident $title:literal
        $(
            $(#[doc = $key_doc:literal])+
            $key:ident $(as $name:literal)? : $type:ty $(= $default:expr)? $(, unless $absent:literal)?,
                example $example:literal $(, also $($also:literal)+)?;
        )+
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone)]
        pub struct $section {
            /// Where it begins.
            pub place: $crate::place::Place,
            /// Whether a value could not be read.
            pub broken: bool,
            $($(#[doc = $key_doc])+ pub $key: $crate::section::held!($type $(, $default)?),)+
        }

        /// Equal sections say the same, wherever they stand.
        impl PartialEq for $section {
            fn eq(&self, other: &Self) -> bool {
                true $(&& self.$key == other.$key)+
            }
        }

        impl $section {
            /// Without any key.
            #[must_use]
            pub fn empty(place: $crate::place::Place) -> Self {
                Self {
                    place,
                    broken: false,
                    $($key: $crate::section::absent!($($default)?),)+
                }
            }

            /// Takes what is not set from another section.
            pub fn fill(&mut self, other: Self) {
                $($crate::section::Fill::fill(&mut self.$key, other.$key);)+
            }
        }

        impl $crate::section::Section for $section {
            const TITLE: &'static str = $title;
            const DOC: &'static [&'static str] = &[$($doc),+];
            const KEYS: &'static [$crate::section::Key] = &[$($crate::section::Key {
                name: $crate::section::name!($key $($name)?),
                doc: &[$($key_doc),+],
                kind: <$type as $crate::value::Value>::kind,
                default: || $crate::section::default!($type $(, = $default)? $(, $absent)?),
                example: $example,
                also: &[$($($also),+)?],
                schema: <$type as $crate::value::Value>::schema,
            }),+];

            fn all() -> &'static [(&'static str, &'static [$crate::section::Key])] {
                SECTIONS
            }

            fn empty(place: $crate::place::Place) -> Self {
                Self::empty(place)
            }

            fn read(
                table: &toml::de::DeTable<'_>,
                place: $crate::place::Place,
                reader: &mut $crate::read::Reader<'_>,
            ) -> Self {
                let mut this = Self::empty(place);
                for (key, value) in table {
                    let item = reader.item(value);
                    let name: &str = key.get_ref();
                    $(if name == $crate::section::name!($key $($name)?) {
                        let before = reader.problems.0.len();
                        match <$type as $crate::value::Value>::read(item, reader) {
                            Some(value) => {
                                let at = $crate::place::At { value, place: item.place };
                                $crate::section::store!(this.$key, at $(, $default)?);
                            }
                            None => {
                                this.broken = true;
                                reader.give_example(before, name, $example);
                            }
                        }
                        continue;
                    })+
                    this.broken = true;
                    $crate::section::unknown_key::<Self>(reader, key);
                }
                this
            }

            fn entries(
                &self,
            ) -> Vec<(&'static $crate::section::Key, toml::Value, $crate::place::Place)> {
                let values = [$(
                    $crate::section::given!(self.$key $(, $default)?)
                        .and_then(|at| Some(($crate::value::Value::toml(&at.value)?, at.place))),
                )+];
                let both = Self::KEYS.iter().zip(values);
                both.filter_map(|(key, value)| value.map(|(value, place)| (key, value, place)))
                    .collect()
            }
        }
    };
}

macro_rules! held {
    ($type:ty) => { Option<$crate::place::At<$type>> };
    ($type:ty, $default:expr) => { $crate::place::At<$type> };
}

macro_rules! name {
    ($key:ident) => {
        stringify!($key)
    };
    ($key:ident $name:literal) => {
        $name
    };
}

macro_rules! default {
    ($type:ty) => {
        $crate::section::Default::Nothing
    };
    ($type:ty, $absent:literal) => {
        $crate::section::Default::Described($absent)
    };
    ($type:ty, = $default:expr) => {{
        let value: $type = $default;
        match $crate::value::Value::toml(&value) {
            Some(value) => $crate::section::Default::Value(value),
            None => $crate::section::Default::Nothing,
        }
    }};
}

macro_rules! absent {
    () => {
        None
    };
    ($default:expr) => {
        $crate::place::At::default($default)
    };
}

macro_rules! store {
    ($field:expr, $at:expr) => {
        $field = Some($at)
    };
    ($field:expr, $at:expr, $default:expr) => {
        $field = $at
    };
}

macro_rules! given {
    ($field:expr) => {
        $field.as_ref()
    };
    ($field:expr, $default:expr) => {
        Some(&$field).filter(|at| at.value != $default)
    };
}

pub(crate) use {absent, default, given, held, name, section, store};

/// A key that the section does not have.
pub(crate) fn unknown_key<T: Section>(reader: &mut Reader<'_>, key: &Spanned<DeString<'_>>) {
    let (name, place) = (key.get_ref().as_ref(), reader.key(key));
    let problem = reader.problems.error(place, format!("there is no key \"{name}\" here"));
    match T::KEYS.iter().find(|known| known.also.contains(&name)) {
        Some(known) => {
            problem.label(format!("it is called \"{}\"", known.name));
            problem.help(format!("for example: {} = {}", known.name, known.example));
            return;
        }
        None => problem.label(format!("not a key of {}", T::TITLE)),
    };
    if let Some(similar) = similar(name, T::KEYS.iter().map(|key| key.name)) {
        problem.label(format!("did you mean \"{similar}\"?"));
        return;
    }
    let called = |known: &Key| known.name == name || known.also.contains(&name);
    let found = T::all().iter().find_map(|(title, keys)| {
        keys.iter().find(|known| called(known)).map(|known| (*title, known.name))
    });
    problem.help(match found {
        Some((title, "route")) => {
            format!(
                "a route belongs to a site: write [[site.route]] behind the keys of its {title}"
            )
        }
        Some((title, known)) => format!("\"{known}\" is a key of {title}"),
        None => {
            let names: Vec<_> = T::KEYS.iter().map(|key| key.name).collect();
            format!("the keys of {} are {}", T::TITLE, names.join(", "))
        }
    });
}

/// The schema of one section.
pub(crate) fn schema<T: Section>() -> Json {
    let mut properties = Map::new();
    for key in T::KEYS {
        let mut property = (key.schema)();
        property["description"] = json!(sentence(key.doc));
        if let Default::Value(value) = (key.default)() {
            property["default"] = json!(value);
        }
        properties.insert(key.name.to_owned(), property);
    }
    json!({
        "type": "object",
        "description": sentence(T::DOC),
        "additionalProperties": false,
        "properties": properties,
    })
}

/// The lines of a comment as one text.
pub(crate) fn sentence(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}
