//! Values about TLS.

use std::path::PathBuf;
use std::time::Duration;

use sendoff_config::{CipherSuite, KeyExchange, units};

use super::plain::FilePath;
use crate::read::{Scope, Wrong, similar};
use crate::value::Word;

/// The source of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateFrom {
    /// From a file.
    File(PathBuf),
    /// The server signs it itself.
    SelfSigned,
    /// The server obtains it from an authority.
    Auto,
}

const SELF_SIGNED: &str = "self-signed";
const AUTO: &str = "auto";

impl Word for CertificateFrom {
    const KIND: &'static str = "\"auto\", \"self-signed\" or a path";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        match text {
            SELF_SIGNED => Ok(Self::SelfSigned),
            AUTO => Ok(Self::Auto),
            _ if text.contains(['/', '.']) => {
                FilePath::parse(text, scope).map(|FilePath(path)| Self::File(path))
            }
            _ => {
                let wrong = Wrong::new(format!("\"{text}\" is not {}", Self::KIND));
                Err(match similar(text, [SELF_SIGNED, AUTO].into_iter()) {
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
            Self::Auto => AUTO.to_owned(),
        }
    }
}

impl Word for CipherSuite {
    const KIND: &'static str = "the name of a cipher suite";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let all = Self::ALL.map(|suite| (suite, suite.names()));
        named(
            text,
            &all,
            "TLS 1.2 and 1.3 have no other suites with forward secrecy and authenticated encryption",
        )
    }

    fn text(&self) -> String {
        let [_, openssl] = self.names();
        openssl.to_owned()
    }
}

impl Word for KeyExchange {
    const KIND: &'static str = "the name of a group";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let all = Self::ALL.map(|group| (group, group.names()));
        named(text, &all, "there are X25519MLKEM768, X25519, secp256r1 and secp384r1")
    }

    fn text(&self) -> String {
        let [name, ..] = self.names();
        name.to_owned()
    }
}

/// The value with this name.
fn named<T: Copy, const N: usize>(
    text: &str,
    all: &[(T, [&'static str; N])],
    help: &str,
) -> Result<T, Wrong> {
    if let Some((value, _)) = all.iter().find(|(_, names)| names.contains(&text)) {
        return Ok(*value);
    }
    let wrong = Wrong::new(format!("\"{text}\" is not known here"));
    Err(match similar(text, all.iter().flat_map(|(_, names)| names.iter().copied())) {
        Some(known) => wrong.help(format!("did you mean \"{known}\"?")),
        None => wrong.help(help),
    })
}

/// The URL of an authority's directory (RFC 8555 §7.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeDirectory(pub String);

/// The directories of Let's Encrypt, by their words.
const LETS_ENCRYPT: [(&str, &str); 2] = [
    ("letsencrypt", "https://acme-v02.api.letsencrypt.org/directory"),
    ("staging", "https://acme-staging-v02.api.letsencrypt.org/directory"),
];

impl AcmeDirectory {
    /// The directory of Let's Encrypt.
    #[must_use]
    pub fn lets_encrypt() -> Self {
        Self(LETS_ENCRYPT[0].1.to_owned())
    }
}

impl Word for AcmeDirectory {
    const KIND: &'static str = "\"letsencrypt\", \"staging\" or a URL that begins with https://";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if let Some((_, url)) = LETS_ENCRYPT.iter().find(|(word, _)| *word == text) {
            return Ok(Self((*url).to_owned()));
        }
        let host = text.strip_prefix("https://").and_then(|rest| rest.split('/').next());
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_plain && host.is_some_and(|host| !host.is_empty()) {
            return Ok(Self(text.to_owned()));
        }
        let wrong = Wrong::new(format!("\"{text}\" is not {}", Self::KIND));
        Err(match similar(text, LETS_ENCRYPT.iter().map(|(word, _)| *word)) {
            Some(known) => wrong.help(format!("did you mean \"{known}\"?")),
            None if text.starts_with("http:") => wrong.help("ACME is spoken by https alone"),
            None => wrong,
        })
    }

    fn text(&self) -> String {
        let known = LETS_ENCRYPT.iter().find(|(_, url)| *url == self.0);
        known.map_or_else(|| self.0.clone(), |(word, _)| (*word).to_owned())
    }
}

/// An e-mail address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Email(pub String);

impl Word for Email {
    const KIND: &'static str = "an e-mail address such as \"admin@example.org\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let bare = text.strip_prefix("mailto:").unwrap_or(text);
        let is_plain = bare.bytes().all(|byte| byte.is_ascii_graphic() && !b",?".contains(&byte));
        let has_parts = bare.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && host.contains('.') && !host.contains('@')
        });
        if is_plain && has_parts {
            Ok(Self(bare.to_owned()))
        } else {
            Err(Wrong::new(format!("\"{text}\" is not {}", Self::KIND)))
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The value of `Strict-Transport-Security`: the time for which browsers use only https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hsts {
    /// The time, from each response on.
    pub max_age: Duration,
    /// Further directives.
    pub directives: Vec<String>,
}

/// Its directives (RFC 6797 §6.1; `preload` asks for the browsers' built-in lists).
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
