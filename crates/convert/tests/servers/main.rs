//! Conversions of each server's configuration, and the signs by which the server is told.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod apache;
mod caddy;
mod origin;
mod unit;

use std::path::Path;

use sendoff_convert_document::{Conversion, Files, OneFile, Unreadable};

/// Converts the configuration of one server.
type Convert = fn(&Path, &dyn Files) -> Result<Conversion, Unreadable>;

/// The conversion of a file with this name. Sendoff must be able to read the result.
#[track_caller]
fn readable(convert: Convert, name: &str, text: &str) -> Conversion {
    let converted = convert(Path::new(name), &OneFile(text.to_owned())).unwrap();
    assert!(sendoff_settings::read_text(&converted.text).is_some(), "{}", converted.text);
    converted
}

/// Checks that a conversion has a text. A text without a backslash has other quotation marks.
#[track_caller]
fn contains(converted: &Conversion, expected: &str) {
    let plain = |text: &str| text.replace('\'', "\"");
    assert!(plain(&converted.text).contains(&plain(expected)), "{}", converted.text);
}

/// Checks that texts cannot be read: a line of the mistake, if it has one, and words about it.
#[track_caller]
fn cannot_be_read(convert: Convert, name: &str, mistakes: &[(&str, Option<usize>, &str)]) {
    for (text, line, says) in mistakes {
        let error = convert(Path::new(name), &OneFile((*text).to_owned())).unwrap_err();
        assert!(error.says.contains(says), "{error}");
        if let Some(line) = line {
            assert!(error.to_string().contains(&format!("{name}:{line}:")), "{error}");
        }
    }
}
