//! Parts of the URLs and cookies in responses of applications.

use crate::proxy::HostText;
use crate::read::{Scope, Wrong};
use crate::value::Word;

/// The beginning of a URL: a scheme and a host, or a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlStart(pub String);

impl Word for UrlStart {
    const KIND: &'static str = "the beginning of a URL";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if let Some(at) = text.find(|sign: char| sign.is_control() || sign == ' ') {
            return Err(Wrong::new("a URL has no blanks and control characters").at(at));
        }
        match text.starts_with('/') || text.contains("://") {
            true => Ok(Self(text.to_owned())),
            false => Err(Wrong::new(format!("\"{text}\" is not the beginning of a URL"))
                .help("it begins with a scheme, such as http://app.internal/, or with a slash")),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The beginning of the `Path` of a cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookiePath(pub String);

impl Word for CookiePath {
    const KIND: &'static str = "the beginning of the path of a cookie";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if let Some(at) = text.find(|sign: char| sign.is_control() || sign == ';') {
            let wrong = Wrong::new("the path of a cookie has no semicolon and control characters");
            return Err(wrong.at(at));
        }
        match text.starts_with('/') {
            true => Ok(Self(text.to_owned())),
            false => Err(Wrong::new(format!("\"{text}\" does not begin with a slash"))
                .help(format!("write \"/{text}\""))),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The `Domain` of a cookie. It may be empty: the cookie has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieDomain(pub String);

impl Word for CookieDomain {
    const KIND: &'static str = "a host, or nothing";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        match text {
            "" => Ok(Self(String::new())),
            _ => HostText::parse(text, scope).map(|host| Self(host.0)),
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}
