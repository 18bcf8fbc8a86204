//! The document: values with their places.

use std::path::Path;
use std::rc::Rc;

use serde_json::{Map, Value};

use sendoff_convert_document::{Files, Part, Place, Section, Unreadable};

/// A value, with its place.
#[derive(Debug, Clone)]
pub(super) struct Node<'v> {
    value: &'v Value,
    pub(super) place: Place,
}

impl<'v> Node<'v> {
    pub(super) fn new(value: &'v Value, file: Rc<str>) -> Self {
        Self { value, place: Place { file, part: Part::Value("".into()) } }
    }

    fn at(&self, value: &'v Value, name: &str) -> Self {
        let path = match &self.place.part {
            Part::Value(path) if !path.is_empty() => format!("{path}/{name}"),
            _ => name.to_owned(),
        };
        let place = Place { file: Rc::clone(&self.place.file), part: Part::Value(path.into()) };
        Self { value, place }
    }

    /// The member of an object.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        self.value.get(name).map(|value| self.at(value, name))
    }

    /// The text of a member.
    pub(super) fn text_of(&self, name: &str) -> Option<&'v str> {
        self.value.get(name).and_then(Value::as_str)
    }

    pub(super) fn text(&self) -> Option<&'v str> {
        self.value.as_str()
    }

    pub(super) fn number(&self) -> Option<f64> {
        self.value.as_f64()
    }

    pub(super) fn whole(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub(super) fn flag(&self) -> Option<bool> {
        self.value.as_bool()
    }

    pub(super) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    pub(super) fn is_array(&self) -> bool {
        self.value.is_array()
    }

    fn object(&self) -> Option<&'v Map<String, Value>> {
        self.value.as_object()
    }

    /// The members of an object.
    pub(super) fn members(&self) -> Vec<(&'v str, Self)> {
        let members = self.object().into_iter().flatten();
        members.map(|(name, value)| (name.as_str(), self.at(value, name))).collect()
    }

    /// The elements of an array; another value stands for itself.
    pub(super) fn elements(&self) -> Vec<Self> {
        match self.value {
            Value::Array(values) => {
                let numbered = values.iter().enumerate();
                numbered.map(|(number, value)| self.at(value, &number.to_string())).collect()
            }
            _ => vec![self.clone()],
        }
    }

    /// The texts of an array, or a single text; `None`: something else is among them.
    pub(super) fn texts(&self) -> Option<Vec<&'v str>> {
        self.elements().iter().map(Self::text).collect()
    }

    /// The value as it stands in the file, shortened.
    pub(super) fn shown(&self) -> String {
        let text = self.value.to_string();
        match text.char_indices().nth(100) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    /// True if two values are equal, wherever they stand.
    pub(super) fn equals(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// Says that the value is not in the result.
    pub(super) fn left_out(&self, section: &mut Section, why: &str) {
        section.left_out(&self.place, format!("{} has no equal: {why}", self.shown()));
    }

    /// Names the members that the caller does not deal with.
    pub(super) fn name_others(&self, known: &[&str], section: &mut Section) {
        for node in self.others(known) {
            section.left_out(&node.place, format!("{} has no equal here", node.shown()));
        }
    }

    /// The members with other names.
    pub(super) fn others(&self, known: &[&str]) -> Vec<Self> {
        let members = self.members().into_iter();
        members.filter(|(name, _)| !known.contains(name)).map(|(_, node)| node).collect()
    }
}

/// Reads a document. Unit allows comments in it.
pub(super) fn read(path: &Path, files: &dyn Files) -> Result<(Value, Rc<str>), Unreadable> {
    let name: Rc<str> = path.display().to_string().into();
    let unreadable = |says: String| Unreadable { place: None, says: format!("{name}: {says}") };
    let text = files.read(path).map_err(|error| unreadable(error.to_string()))?;
    let text = without_comments(&text);
    let value = serde_json::from_str::<Value>(&text).map_err(|error| {
        let place = Place { file: Rc::clone(&name), part: Part::Line(error.line().max(1)) };
        Unreadable { place: Some(place), says: format!("this is not JSON: {error}") }
    })?;
    match value.is_object() {
        true => Ok((value, name)),
        false => Err(unreadable("the document is not an object".to_owned())),
    }
}

/// The text with blanks in place of comments; the numbers of its lines stay.
fn without_comments(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => quoted(rest),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            next => next.len_utf8(),
        };
        let (part, behind) = rest.split_at(length);
        if next == '/' && length > 1 {
            result.extend(part.chars().filter(|sign| *sign == '\n'));
        } else {
            result.push_str(part);
        }
        rest = behind;
    }
    result
}

/// The length of the text in quotation marks at the beginning.
fn quoted(text: &str) -> usize {
    let mut is_escaped = true;
    for (at, sign) in text.char_indices() {
        match sign {
            '"' if !is_escaped => return at + 1,
            '\\' if !is_escaped => is_escaped = true,
            _ => is_escaped = false,
        }
    }
    text.len()
}
