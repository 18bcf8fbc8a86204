//! Texts of routes and values of maps, with `$path`, `$1` and similar variables.

use std::ops::Range;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, percent_encode_byte};
use sendoff_message::request::{NOT_IN_PATH, Request};

use crate::maps::{Mapped, Maps};

/// Bytes that are percent-encoded in a parameter of a query string.
const NOT_IN_QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A parsed text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text(Vec<TextPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TextPart {
    Literal(Bytes),
    Group(usize),
    Variable(TextVariable),
    /// The value of the map with this number.
    Map(usize),
}

/// The beginning of the variables for values of maps.
const MAP: &str = "map_";

/// The numbers of maps by their names.
pub(crate) trait MapNames {
    /// The number of the map with this name.
    fn number(&self, name: &str) -> Option<usize>;
}

/// No maps: the values of maps contain none.
struct NoMaps;

impl MapNames for NoMaps {
    fn number(&self, _: &str) -> Option<usize> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextVariable {
    Path,
    Query,
    Host,
    Scheme,
    Uri,
    RemoteAddr,
}

const VARIABLES: [(&str, TextVariable); 6] = [
    ("path", TextVariable::Path),
    ("query", TextVariable::Query),
    ("host", TextVariable::Host),
    ("scheme", TextVariable::Scheme),
    ("uri", TextVariable::Uri),
    ("remote_addr", TextVariable::RemoteAddr),
];

/// The match of an expression: its subject at that time, and the ranges of its groups.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    pub(super) subject: Vec<u8>,
    pub(super) ranges: Vec<Option<Range<usize>>>,
}

/// The parts of a text that were determined when its route matched.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(super) groups: Groups,
    /// The origin of the groups, which decides on their encoding.
    subject: Subject,
    /// Values of maps, by the numbers of the maps.
    pub(super) maps: Vec<(usize, Mapped)>,
}

/// The subject of an expression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Subject {
    /// The path, normalised.
    #[default]
    Path,
    /// A part of the request that a map is about: any bytes.
    Value,
}

impl Captured {
    /// The parts of a map's value.
    pub(super) fn of_value(groups: Groups) -> Self {
        Self { groups, subject: Subject::Value, maps: Vec::new() }
    }

    /// The value of the map with this number.
    pub(super) fn map(&self, number: usize) -> Option<&Mapped> {
        self.maps.iter().find(|(known, _)| *known == number).map(|(_, mapped)| mapped)
    }
}

impl Groups {
    /// The match of a whole text.
    pub(super) fn whole(subject: &[u8]) -> Self {
        Self { subject: subject.to_vec(), ranges: vec![Some(0..subject.len())] }
    }

    fn get(&self, number: usize) -> &[u8] {
        let range = self.ranges.get(number).cloned().flatten();
        range.and_then(|range| self.subject.get(range)).unwrap_or_default()
    }
}

/// The use of a rendered text, which decides on the encoding of its decoded parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A path in the file system or a parameter for scripts: not encoded.
    Plain,
    /// A URI, or a text that a browser may show.
    Uri,
    /// The value of a field. The path is encoded as in a URI; a part of the request that a map is
    /// about stays as it is, without control characters.
    Field,
    /// The query part of a URI.
    Query,
}

impl Text {
    /// Parses a text. `$$` is a dollar sign, and so is a `$` without a variable.
    pub(crate) fn parse(text: &str, maps: &dyn MapNames) -> Self {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            literal.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at + 1..];
            let part = if let Some(after) = rest.strip_prefix('$') {
                rest = after;
                None
            } else if let Some(digit) = rest.chars().next().and_then(|c| c.to_digit(10)) {
                rest = &rest[1..];
                Some(TextPart::Group(digit as usize))
            } else if let Some((number, after)) = map(rest, maps) {
                rest = after;
                Some(TextPart::Map(number))
            } else {
                VARIABLES.iter().find_map(|(name, variable)| {
                    rest = rest.strip_prefix(name)?;
                    Some(TextPart::Variable(*variable))
                })
            };
            match part {
                Some(part) => {
                    if !literal.is_empty() {
                        parts.push(TextPart::Literal(std::mem::take(&mut literal).into()));
                    }
                    parts.push(part);
                }
                None => literal.push(b'$'),
            }
        }
        literal.extend_from_slice(rest.as_bytes());
        if !literal.is_empty() {
            parts.push(TextPart::Literal(literal.into()));
        }
        Self(parts)
    }

    /// Parses the value of a map.
    pub(crate) fn of_map(text: &str) -> Self {
        Self::parse(text, &NoMaps)
    }

    /// The numbers of the maps whose values are in the text.
    pub(crate) fn maps(&self) -> impl Iterator<Item = usize> {
        self.0.iter().filter_map(|part| match part {
            TextPart::Map(number) => Some(*number),
            _ => None,
        })
    }

    /// True if the text may differ between clients that ask for the same address.
    pub(crate) fn shows_client(&self, maps: &Maps) -> bool {
        self.0.iter().any(|part| match part {
            TextPart::Variable(TextVariable::RemoteAddr) => true,
            TextPart::Map(number) => maps.tell_clients_apart(*number),
            TextPart::Variable(_) | TextPart::Literal(_) | TextPart::Group(_) => false,
        })
    }

    /// True if the text begins like this for every request.
    pub(crate) fn begins_with(&self, beginning: &[u8]) -> bool {
        matches!(self.0.first(), Some(TextPart::Literal(literal)) if literal.starts_with(beginning))
    }

    /// The text, if it is the same for all requests.
    pub(crate) fn fixed(&self) -> Option<Bytes> {
        match self.0.as_slice() {
            [] => Some(Bytes::new()),
            [TextPart::Literal(bytes)] => Some(bytes.clone()),
            _ => None,
        }
    }

    /// The text for a request, without a copy if it is the same for all.
    pub(crate) fn bytes(&self, request: &Request, captured: &Captured, for_use: Use) -> Bytes {
        self.fixed().unwrap_or_else(|| self.render(request, captured, for_use).into())
    }

    /// The text for a request.
    pub(crate) fn render(&self, request: &Request, captured: &Captured, for_use: Use) -> Vec<u8> {
        let mut out = Vec::new();
        self.render_into(&mut out, request, captured, for_use);
        out
    }

    fn render_into(&self, out: &mut Vec<u8>, request: &Request, captured: &Captured, for_use: Use) {
        let decoded = |bytes: &[u8], out: &mut Vec<u8>| match for_use {
            Use::Plain => out.extend_from_slice(bytes),
            Use::Uri | Use::Field => {
                out.extend(percent_encode(bytes, NOT_IN_PATH).flat_map(str::bytes));
            }
            Use::Query => out.extend(percent_encode(bytes, NOT_IN_QUERY).flat_map(str::bytes)),
        };
        for part in &self.0 {
            match part {
                TextPart::Literal(bytes) => out.extend_from_slice(bytes),
                TextPart::Group(number) => {
                    let group = captured.groups.get(*number);
                    match (captured.subject, for_use) {
                        (Subject::Value, Use::Plain | Use::Field) => without_controls(group, out),
                        (Subject::Path | Subject::Value, _) => decoded(group, out),
                    }
                }
                TextPart::Map(number) => {
                    if let Some(mapped) = captured.map(*number) {
                        let (text, captured) = mapped.text();
                        text.render_into(out, request, captured, for_use);
                    }
                }
                TextPart::Variable(TextVariable::Path) => decoded(&request.path, out),
                TextPart::Variable(TextVariable::Query) => {
                    out.extend_from_slice(request.query.as_deref().unwrap_or_default());
                }
                TextPart::Variable(TextVariable::Host) => {
                    out.extend_from_slice(request.host_name().as_bytes());
                }
                TextPart::Variable(TextVariable::Scheme) => {
                    out.extend_from_slice(request.scheme.as_str().as_bytes());
                }
                TextPart::Variable(TextVariable::Uri) => out.extend_from_slice(&request.uri),
                TextPart::Variable(TextVariable::RemoteAddr) => {
                    out.extend_from_slice(&request.peer.address());
                }
            }
        }
    }
}

/// The map that a variable stands for, and the rest of the text.
fn map<'t>(text: &'t str, maps: &dyn MapNames) -> Option<(usize, &'t str)> {
    let name = text.strip_prefix(MAP)?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (name, rest) = name.split_at(name.find(|c| !is_part(c)).unwrap_or(name.len()));
    Some((maps.number(name)?, rest))
}

/// Writes bytes that a client chose, with control characters as `%XX`: they must not end a field or
/// a parameter. A field may have tabs (RFC 9110 §5.5).
fn without_controls(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'\t' => out.push(b'\t'),
            0..0x20 | 0x7f => out.extend(percent_encode_byte(*byte).bytes()),
            _ => out.push(*byte),
        }
    }
}
