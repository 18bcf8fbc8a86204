//! From sections to the text of a file: only values other than the defaults, with short comments.

use std::fmt::Write;

use toml::Value as Toml;

use crate::keys::Top;
use crate::section::{Key, Section, sentence};

/// The most columns of a comment.
const WIDTH: usize = 116;

/// The text of a file with these sections.
#[must_use]
pub fn print(top: &Top) -> String {
    let mut text = String::new();
    entries(&mut text, top);
    for pool in &top.pool.value.0 {
        header(&mut text, pool);
        entries(&mut text, pool);
    }
    for upstream in &top.upstream.value.0 {
        header(&mut text, upstream);
        entries(&mut text, upstream);
    }
    for site in &top.site.value.0 {
        header(&mut text, site);
        entries(&mut text, site);
        for (name, map) in &site.map.value.0 {
            text.push_str(&format!("\n[site.map.{}]\n", name.value.0));
            entries(&mut text, map);
        }
        for route in &site.route.value.0 {
            header(&mut text, route);
            entries(&mut text, route);
        }
    }
    text
}

fn header<T: Section>(text: &mut String, _: &T) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(T::TITLE);
    text.push('\n');
}

fn entries<T: Section>(text: &mut String, section: &T) {
    for (key, value, _) in section.entries() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# {}\n{} = {}", comment(key), key.name, inline(&value));
    }
}

/// The first sentence about a key, as far as it fits into a line.
fn comment(key: &Key) -> String {
    let whole = sentence(key.doc);
    let end = whole.find(". ").map_or(whole.len(), |end| end + 1);
    let mut short = whole[..end].to_owned();
    if short.chars().count() > WIDTH {
        let cut = short.char_indices().nth(WIDTH).map_or(short.len(), |(at, _)| at);
        short.truncate(short[..cut].rfind(' ').unwrap_or(cut));
        short.push_str(" ...");
    }
    short
}

/// A value in one line.
pub(crate) fn inline(value: &Toml) -> String {
    value.to_string().trim_end().to_owned()
}
