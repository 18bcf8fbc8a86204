//! A stock PHP program, by its version or by its path.

use sendoff_config::PhpApi;

use crate::plain::FilePath;
use crate::read::{Scope, Wrong};
use crate::value::Word;

/// The program with PHP for the workers of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PhpProgram {
    /// `sendoff-php`, with the distribution's libphp.
    Libphp,
    /// A stock program of a version, such as `8.2`, in the system's folders.
    Version(String),
    /// The file of a stock program.
    File(FilePath),
}

/// The word for `sendoff-php`.
const LIBPHP: &str = "libphp";

impl Word for PhpProgram {
    const KIND: &'static str =
        "a version of PHP, such as \"8.2\", the path of a PHP program, or \"libphp\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        if text.contains('/') {
            return FilePath::parse(text, scope).map(Self::File);
        }
        if text == LIBPHP {
            return Ok(Self::Libphp);
        }
        if PhpApi::versions().any(|version| version == text) {
            return Ok(Self::Version(text.to_owned()));
        }
        let known = PhpApi::versions().collect::<Vec<_>>().join(", ");
        let wrong = Wrong::new(format!("\"{text}\" is no version of PHP that can be hosted"));
        Err(wrong.help(format!("write one of {known}, or a path, such as \"/usr/sbin/php-fpm\"")))
    }

    fn text(&self) -> String {
        match self {
            Self::Libphp => LIBPHP.to_owned(),
            Self::Version(version) => version.clone(),
            Self::File(path) => path.text(),
        }
    }
}
