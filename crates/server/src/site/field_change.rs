//! Changes of header fields, ready to be made.

use bytes::Bytes;

/// A change of the response's fields, ready to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldChange {
    Set(Bytes, Bytes),
    Add(Bytes, Bytes),
    Default(Bytes, Bytes),
    Remove(Bytes),
}

impl FieldChange {
    /// Changes a header section.
    pub(crate) fn apply(&self, fields: &mut Vec<(Bytes, Bytes)>) {
        match self {
            Self::Remove(name) => remove(fields, name),
            Self::Add(name, value) => fields.push((name.clone(), value.clone())),
            Self::Default(name, value) => {
                if !fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                    fields.push((name.clone(), value.clone()));
                }
            }
            Self::Set(name, value) => {
                remove(fields, name);
                fields.push((name.clone(), value.clone()));
            }
        }
    }
}

fn remove(fields: &mut Vec<(Bytes, Bytes)>, name: &[u8]) {
    fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
}
