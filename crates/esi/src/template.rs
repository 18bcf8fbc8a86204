//! The elements of a page.

use std::fmt;
use std::ops::Range;

use crate::parser::Parser;
use crate::variables::{Text, Variable};

/// Most elements of one page. Each takes about 100 bytes of memory, and a page of 8 MiB could have
/// half a million.
pub(crate) const MOST_ELEMENTS: usize = 4096;

/// Deepest nesting of elements: the parser calls itself.
pub(crate) const DEEPEST: usize = 16;

/// A page whose markup has been read.
#[derive(Debug, PartialEq, Eq)]
pub struct Template {
    /// Its parts in their order.
    pub nodes: Vec<Node>,
    /// The number of its includes.
    pub includes: usize,
}

/// A part of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Node {
    /// These bytes of the page.
    Text(Range<usize>),
    /// A variable in `<esi:vars>`.
    Variable(Variable),
    /// `<esi:include>`.
    Include(Include),
    /// `<esi:try>`.
    Try(Attempt),
}

/// `<esi:include>`.
#[derive(Debug, PartialEq, Eq)]
pub struct Include {
    /// Its number among the includes of the page, in their order.
    pub number: usize,
    /// The address of the fragment.
    pub src: Text,
    /// The address of another fragment, if there is none at the first address.
    pub alt: Option<Text>,
    /// The consequence of a missing fragment.
    pub on_error: OnError,
}

/// The consequence of a missing fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The attempt fails, or without `<esi:try>` the page.
    Fail,
    /// The include is left out (`onerror="continue"`).
    Continue,
}

/// `<esi:try>`.
#[derive(Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The contents of `<esi:attempt>`.
    pub attempt: Vec<Node>,
    /// The contents of `<esi:except>`, which replace the attempt if one of its fragments is missing.
    pub except: Vec<Node>,
}

/// Markup that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Its first byte in the page.
    pub at: usize,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at, self.why)
    }
}

impl Template {
    /// Reads the markup of a page.
    ///
    /// # Errors
    /// An element is unknown, incomplete or in the wrong place, or there are too many.
    pub fn parse(page: &[u8]) -> Result<Self, Mistake> {
        Parser::new(page).page()
    }

    /// Bytes in memory, roughly.
    #[must_use]
    pub fn weight(&self) -> usize {
        weight(&self.nodes)
    }
}

fn weight(nodes: &[Node]) -> usize {
    let parts = nodes.iter().map(|node| match node {
        Node::Text(_) => 0,
        Node::Variable(variable) => variable.weight(),
        Node::Include(Include { src, alt, .. }) => {
            src.weight() + alt.as_ref().map_or(0, Text::weight)
        }
        Node::Try(Attempt { attempt, except }) => weight(attempt) + weight(except),
    });
    size_of_val(nodes) + parts.sum::<usize>()
}
