//! The JSON schema of the file, for editors.

use serde_json::json;

use crate::keys::Top;
use crate::section;

/// The JSON schema (draft 2020-12) of the configuration file.
#[must_use]
pub fn schema() -> String {
    let mut schema = section::schema::<Top>();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of Sendoff");
    format!("{schema:#}\n")
}
