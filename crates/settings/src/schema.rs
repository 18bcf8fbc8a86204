//! The JSON schema of the file, for editors.

use serde_json::{Map, Value as Json, json};

use crate::keys::Top;
use crate::section::{Default, Section};

/// The JSON schema (draft 2020-12) of the configuration file.
#[must_use]
pub fn schema() -> String {
    let mut schema = section::<Top>();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of Sendoff");
    format!("{schema:#}\n")
}

/// The schema of one section.
pub(crate) fn section<T: Section>() -> Json {
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
