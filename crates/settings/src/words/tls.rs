//! Values about TLS.

use std::path::PathBuf;
use std::time::Duration;

use sendoff_config::units;

use super::plain::FilePath;
use crate::read::{Scope, Wrong, similar};
use crate::value::Word;

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateFrom {
    /// From a file.
    File(PathBuf),
    /// The server signs it itself.
    SelfSigned,
}

const SELF_SIGNED: &str = "self-signed";

impl Word for CertificateFrom {
    const KIND: &'static str = "\"self-signed\" or a path";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        match text {
            SELF_SIGNED => Ok(Self::SelfSigned),
            _ if text.contains(['/', '.']) => {
                FilePath::parse(text, scope).map(|FilePath(path)| Self::File(path))
            }
            _ => {
                let wrong = Wrong::new(format!("\"{text}\" is not {}", Self::KIND));
                Err(match similar(text, [SELF_SIGNED].into_iter()) {
                    Some(known) => wrong.help(format!("did you mean \"{known}\"?")),
                    None => wrong.help("for example: tls = { certificate = \"fullchain.pem\", key = \"privkey.pem\" }"),
                })
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::SelfSigned => SELF_SIGNED.to_owned(),
        }
    }
}

/// The value of `Strict-Transport-Security`: how long browsers come by https alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hsts {
    /// How long, from each response on.
    pub max_age: Duration,
    /// Further directives.
    pub directives: Vec<String>,
}

/// Its directives (RFC 6797 §6.1; `preload` is that of the browsers' lists).
const DIRECTIVES: [&str; 2] = ["includeSubDomains", "preload"];

impl Word for Hsts {
    const KIND: &'static str =
        "a time, and \"includeSubDomains\" or \"preload\": \"365d, includeSubDomains\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let wrong = |says: String| Wrong::new(says).help(format!("expected {}", Self::KIND));
        let mut words = text.split([',', ';', ' ']).filter(|word| !word.is_empty());
        let Some(Ok(max_age)) = words.next().map(units::time) else {
            return Err(wrong(format!("\"{text}\" does not begin with a time")));
        };
        let mut directives = Vec::new();
        for word in words {
            match DIRECTIVES.iter().find(|known| known.eq_ignore_ascii_case(word)) {
                Some(known) => directives.push((*known).to_owned()),
                None => return Err(wrong(format!("\"{word}\" is not understood"))),
            }
        }
        Ok(Self { max_age, directives })
    }

    fn text(&self) -> String {
        let time = super::plain::Time(self.max_age).text();
        let directives = self.directives.iter().map(|word| format!(", {word}"));
        std::iter::once(time).chain(directives).collect()
    }
}

impl Hsts {
    /// The field's value.
    #[must_use]
    pub fn resolved(&self) -> String {
        let directives = self.directives.iter().map(|word| format!("; {word}"));
        std::iter::once(format!("max-age={}", self.max_age.as_secs())).chain(directives).collect()
    }
}
