//! docs/config.md.

use std::fmt::Write;

use crate::keys::{
    Auth, Authorize, Fleet, Pool, Proxy, RequestMap, Route, Site, Tls, Top, Traces, Upstream,
};
use crate::print::inline;
use crate::section::{Default, Key, Section, sentence};

/// The text above the lists of keys.
const INTRODUCTION: &str = include_str!("docs.md");

/// The page about the configuration file.
#[must_use]
pub fn docs() -> String {
    let mut text = INTRODUCTION.to_owned();
    section::<Top>(&mut text);
    section::<Site>(&mut text);
    section::<RequestMap>(&mut text);
    section::<Route>(&mut text);
    section::<Auth>(&mut text);
    section::<Authorize>(&mut text);
    section::<Proxy>(&mut text);
    section::<Tls>(&mut text);
    section::<Pool>(&mut text);
    section::<Upstream>(&mut text);
    section::<Traces>(&mut text);
    section::<Fleet>(&mut text);
    text
}

/// The heading of a section's keys.
pub(crate) fn titled<T: Section>() -> String {
    match T::TITLE.chars().next() {
        Some('[') => format!("`{}`", T::TITLE),
        _ if ["auth", "authorize", "proxy"].contains(&T::TITLE) => {
            format!("`{}` of a route", T::TITLE)
        }
        _ if T::TITLE == "tls" => "`tls` of a site".to_owned(),
        _ => "Before the first section".to_owned(),
    }
}

fn section<T: Section>(text: &mut String) {
    let title = titled::<T>();
    // Writing to a string cannot fail.
    let _ = write!(text, "\n## {title}\n\n{}\n\n", sentence(T::DOC));
    text.push_str("| key | value | default | meaning | example |\n|---|---|---|---|---|\n");
    for key in T::KEYS.iter().filter(|key| !key.example.starts_with("see ")) {
        let cells = [
            format!("`{}`", key.name),
            (key.kind)(),
            default(key),
            sentence(key.doc),
            format!("`{} = {}`", key.name, key.example),
        ];
        let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
}

/// The default for the documents; empty if the key has none.
pub(crate) fn default(key: &Key) -> String {
    match (key.default)() {
        Default::Value(value) => match inline(&value) {
            empty if empty == "{}" => "none".to_owned(),
            value => format!("`{value}`"),
        },
        Default::Described(text) => text.to_owned(),
        Default::Nothing => String::new(),
    }
}
