//! The table of keys that `section!` declares.
//!
//! Each section of the file is declared once, in `keys.rs`: a key's name, type, default,
//! description and example. The declaration generates the struct with the values of a file, its
//! reader and printer, the lists for messages, the documentation and the schema.

use sendoff_setting_values::{At, FileReader, Place, similar};
use serde_json::{Map, Value as Json, json};
use toml::de::{DeString, DeTable, DeValue};
use toml::{Spanned, Value as Toml};

use crate::foreign::advice;

/// A key of a section.
pub(crate) struct Key {
    /// The name in the file.
    pub(crate) name: &'static str,
    /// The lines of the description.
    pub(crate) doc: &'static [&'static str],
    /// The words for its values, in messages and documents.
    pub(crate) kind: fn() -> String,
    /// The default.
    pub(crate) default: fn() -> Default,
    /// An example of a value.
    pub(crate) example: &'static str,
    /// The names that other servers have for it.
    pub(crate) also: &'static [&'static str],
    /// The JSON schema of its values.
    pub(crate) schema: fn() -> Json,
}

/// A field of a section, which holds the value of a key.
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

/// The default of a key.
pub(crate) enum Default {
    /// This value.
    Value(Toml),
    /// Described in words.
    Described(&'static str),
    /// No default, or the key is required.
    Nothing,
}

/// A section of the file.
pub(crate) trait Section: Sized {
    /// The line that begins it in the file: `[[site]]`.
    const TITLE: &'static str;
    /// The lines of the description.
    const DOC: &'static [&'static str];
    /// Its keys.
    const KEYS: &'static [Key];

    /// The keys of all sections, by their titles.
    fn all() -> &'static [(&'static str, &'static [Key])];

    /// The section without any key.
    fn empty(place: Place) -> Self;

    /// Reads the section. Mistakes go to the reader.
    fn read(table: &DeTable<'_>, place: Place, reader: &mut FileReader<'_>) -> Self;

    /// The values that differ from the defaults.
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
            /// The place at which the section begins.
            pub place: sendoff_setting_values::Place,
            /// True if a value could not be read.
            pub broken: bool,
            $($(#[doc = $key_doc])+ pub $key: $crate::section::held!($type $(, $default)?),)+
        }

        /// Equal sections have the same values, whatever their places.
        impl PartialEq for $section {
            fn eq(&self, other: &Self) -> bool {
                true $(&& self.$key == other.$key)+
            }
        }

        impl $section {
            /// The section without any key.
            #[must_use]
            pub fn empty(place: sendoff_setting_values::Place) -> Self {
                Self {
                    place,
                    broken: false,
                    $($key: $crate::section::absent!($($default)?),)+
                }
            }

            /// Fills in values that are not set from another section.
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
                kind: <$type as sendoff_setting_values::Value>::kind,
                default: || $crate::section::default!($type $(, = $default)? $(, $absent)?),
                example: $example,
                also: &[$($($also),+)?],
                schema: <$type as sendoff_setting_values::Value>::schema,
            }),+];

            fn all() -> &'static [(&'static str, &'static [$crate::section::Key])] {
                SECTIONS
            }

            fn empty(place: sendoff_setting_values::Place) -> Self {
                Self::empty(place)
            }

            fn read(
                table: &toml::de::DeTable<'_>,
                place: sendoff_setting_values::Place,
                reader: &mut sendoff_setting_values::FileReader<'_>,
            ) -> Self {
                let mut this = Self::empty(place);
                for (key, value) in table {
                    let item = reader.item(value);
                    let name: &str = key.get_ref();
                    $(if name == $crate::section::name!($key $($name)?) {
                        let before = reader.problems.0.len();
                        match <$type as sendoff_setting_values::Value>::read(item, reader) {
                            Some(value) => {
                                let at = sendoff_setting_values::At { value, place: item.place };
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
                    $crate::section::unknown_key::<Self>(reader, key, value);
                }
                this
            }

            fn entries(
                &self,
            ) -> Vec<(&'static $crate::section::Key, toml::Value, sendoff_setting_values::Place)> {
                let values = [$(
                    $crate::section::given!(self.$key $(, $default)?)
                        .and_then(|at| Some((sendoff_setting_values::Value::toml(&at.value)?, at.place))),
                )+];
                let both = Self::KEYS.iter().zip(values);
                both.filter_map(|(key, value)| value.map(|(value, place)| (key, value, place)))
                    .collect()
            }
        }
    };
}

macro_rules! held {
    ($type:ty) => { Option<sendoff_setting_values::At<$type>> };
    ($type:ty, $default:expr) => { sendoff_setting_values::At<$type> };
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
        match sendoff_setting_values::Value::toml(&value) {
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
        sendoff_setting_values::At::default($default)
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

/// Reports a key that the section does not have. TOML reads a name with a dot, such as php-fpm's
/// `pm.max_children`, as a table.
pub(crate) fn unknown_key<T: Section>(
    reader: &mut FileReader<'_>,
    key: &Spanned<DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
) {
    let (name, place) = (key.get_ref().as_ref(), reader.key(key));
    if let DeValue::Table(table) = value.get_ref() {
        let parts: Vec<_> = table.keys().map(|part| (part, format!("{name}.{part}"))).collect();
        let is_known = |name: &str| meant::<T>(name).is_some();
        if parts.iter().any(|(_, name)| is_known(name)) {
            for (part, name) in parts {
                let place = reader.key(part);
                unknown_name::<T>(reader, &name, place);
            }
            return;
        }
    }
    unknown_name::<T>(reader, name, place);
}

/// The meaning of an unknown name.
enum Meant {
    /// A key of the section.
    Here(&'static Key),
    /// A key of the section with this title.
    Elsewhere(&'static str, &'static Key),
    /// No key: the advice.
    Nothing(&'static str),
}

/// The likely meaning of a name from another server, or of a key of another section.
fn meant<T: Section>(name: &str) -> Option<Meant> {
    let called = |key: &&Key| key.also.iter().any(|also| also.eq_ignore_ascii_case(name));
    let of_all = |is: &dyn Fn(&&'static Key) -> bool| {
        T::all().iter().find_map(|(title, keys)| {
            keys.iter().find(|key| is(key)).map(|key| Meant::Elsewhere(title, key))
        })
    };
    let here = T::KEYS.iter().find(called).map(Meant::Here);
    here.or_else(|| of_all(&|key| key.name == name))
        .or_else(|| advice(name).map(Meant::Nothing))
        .or_else(|| of_all(&called))
}

fn unknown_name<T: Section>(reader: &mut FileReader<'_>, name: &str, place: Place) {
    let problem = reader.problems.error(place, format!("there is no key \"{name}\" here"));
    match meant::<T>(name) {
        Some(Meant::Here(key)) => {
            problem.label(format!("it is called \"{}\"", key.name));
            problem.help(match (key.kind)().strip_prefix("sections ") {
                Some(title) => format!("it is a section that begins with {title}"),
                None => format!("for example: {} = {}", key.name, key.example),
            });
        }
        Some(Meant::Elsewhere(title, Key { name: "route", .. })) => {
            problem.label(format!("not a key of {}", T::TITLE));
            problem.help(format!(
                "a route belongs to a site: write [[site.route]] behind the keys of its {title}"
            ));
        }
        Some(Meant::Elsewhere(title, key)) => {
            problem.label(format!("not a key of {}", T::TITLE));
            problem.help(match key.name {
                same if same == name => format!("\"{name}\" is a key of {title}"),
                // The section is written as one value: `tls = { ... }`.
                other if !title.contains(['[', ' ']) => {
                    format!("write {title} = {{ {other} = {} }}", key.example)
                }
                other => format!("it is called \"{other}\", a key of {title}"),
            });
        }
        Some(Meant::Nothing(advice)) => {
            problem.label(format!("not a key of {}", T::TITLE)).help(advice);
        }
        None => match similar(name, T::KEYS.iter().map(|key| key.name)) {
            Some(similar) => {
                problem.label(format!("did you mean \"{similar}\"?"));
            }
            None => {
                let names: Vec<_> = T::KEYS.iter().map(|key| key.name).collect();
                problem.label(format!("not a key of {}", T::TITLE)).help(format!(
                    "the keys of {} are {}",
                    T::TITLE,
                    names.join(", ")
                ));
            }
        },
    }
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
