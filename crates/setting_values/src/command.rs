//! The command of a program.

use std::path::Path;

use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::read::{FileReader, Item, Wrong};
use crate::value::Value;

/// A program and its arguments; not empty. The program is a name, or a path that begins with a
/// slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command(pub Vec<String>);

/// Characters with a meaning in a shell. They are refused in a command that is one text, because no
/// shell reads it.
const FOR_A_SHELL: &[char] =
    &['"', '\'', '\\', '$', '`', '|', '&', ';', '<', '>', '*', '?', '~', '#'];

impl Command {
    /// The program, by its name or with its path.
    pub fn program(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    fn of(words: Vec<String>, folder: &Path) -> Result<Self, Wrong> {
        let mut words = words;
        match words.first_mut() {
            None => return Err(Wrong::new("the command is empty").help(HELP)),
            Some(program) if program.is_empty() => {
                return Err(Wrong::new("the program has no name").help(HELP));
            }
            Some(program) if program.contains('/') => {
                *program = folder.join(&*program).display().to_string();
            }
            Some(_) => {}
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(Wrong::new("a NUL cannot stand in an argument"));
        }
        Ok(Self(words))
    }
}

const HELP: &str =
    "write the program and its arguments: command = [\"rackup\", \"-s\", \"sendoff\"]";

const AS_A_LIST: &str =
    "in a list every text is taken as it is: command = [\"rackup\", \"-s\", \"sendoff\"]";

impl Value for Command {
    fn kind() -> String {
        "a program and its arguments, as a list, or as a text that is split at spaces".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
        let words: Vec<String> = match item.value {
            DeValue::String(text) => {
                let words = text.split_whitespace().map(str::to_owned).collect();
                if let Some(at) = text.find(FOR_A_SHELL) {
                    let character = &text[at..=at];
                    let says = format!("no shell reads this, and {character} is for one");
                    reader.wrong(item, Wrong::new(says).at(at).help(AS_A_LIST));
                    return None;
                }
                words
            }
            DeValue::Array(array) => {
                let mut words = Vec::with_capacity(array.len());
                for value in array {
                    let item = reader.item(value);
                    let DeValue::String(word) = item.value else {
                        reader.expected(item, "a text in quotation marks");
                        return None;
                    };
                    words.push(word.to_string());
                }
                words
            }
            _ => {
                reader.expected(item, &Self::kind());
                return None;
            }
        };
        match Self::of(words, reader.scope().folder) {
            Ok(command) => Some(command),
            Err(wrong) => {
                reader.wrong(item, wrong);
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        Some(Toml::Array(self.0.iter().cloned().map(Toml::String).collect()))
    }

    fn schema() -> Json {
        let list = json!({"type": "array", "items": {"type": "string"}, "minItems": 1});
        json!({"anyOf": [{"type": "string"}, list]})
    }
}
