//! A password in a file.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::credentials::read;

/// A password. It is in no debug output.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl Password {
    /// Reads a password. A line end behind it does not belong to it.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why| format!("{}: {why}", path.display());
        let text = String::from_utf8(read(path)?).map_err(|_| wrong("the password is no text"))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        match text {
            "" => Err(wrong("the file is empty")),
            _ if text.contains('\n') => Err(wrong("the file has more than one line")),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// The password.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_only_line_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Password::read(&path)
        };
        for text in ["a b\n", "a b\r\n", "a b"] {
            assert_eq!(read(text).unwrap().text(), "a b");
        }
        for text in ["", "\n", "a\nb\n"] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert_eq!(format!("{:?}", read("secret").unwrap()), "Password");
    }
}
