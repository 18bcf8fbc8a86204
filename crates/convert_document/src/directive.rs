//! Directives of files that consist of lines and blocks.

use std::cell::Cell;

use crate::{Place, Section};

/// The most characters of a directive in a remark.
const SHOWN: usize = 100;

/// A directive.
#[derive(Debug, Clone)]
pub struct Directive {
    /// Its name.
    pub name: String,
    /// The words behind the name, without quotation marks.
    pub words: Vec<String>,
    /// The directives of its block.
    pub block: Option<Vec<Self>>,
    /// Its place in a file.
    pub place: Place,
    /// True once a part of the conversion has dealt with it: converted it, or said why not.
    taken: Cell<bool>,
}

impl Directive {
    /// A directive that nothing has taken.
    #[must_use]
    pub fn new(name: String, words: Vec<String>, block: Option<Vec<Self>>, place: Place) -> Self {
        Self { name, words, block, place, taken: Cell::new(false) }
    }

    /// The first word; empty if there is none.
    #[must_use]
    pub fn word(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The directives of its block; none if there is no block.
    #[must_use]
    pub fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Says that the caller deals with the directive. What nothing takes is named in the result.
    pub fn take(&self) {
        self.taken.set(true);
    }

    /// Takes the directive and everything within its block.
    pub fn take_whole(&self) {
        self.take();
        self.block.iter().flatten().for_each(Self::take_whole);
    }

    /// True if a part of the conversion has dealt with it.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.taken.get()
    }

    /// The directive as it stands in the file, shortened.
    #[must_use]
    pub fn text(&self) -> String {
        let text = [std::slice::from_ref(&self.name), &self.words[..]].concat().join(" ");
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    /// Says in a section that the directive is not in the result.
    pub fn left_out(&self, section: &mut Section, why: &str) {
        section.left_out(&self.place, format!("{} has no equal: {why}", self.text()));
    }
}
