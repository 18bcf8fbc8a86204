//! Texts with variables in them.

use sendoff_apache_expression::{Word, template};

use super::Evaluation;

/// A text that is made for each request.
#[derive(Debug)]
pub(crate) struct Template(Word);

impl Template {
    /// Parses a text with `%{NAME}`, `%{FUNCTION:TEXT}` and `$1` in it.
    ///
    /// # Errors
    /// A sentence that says what is not understood.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        template(text).map(Self)
    }

    /// The text for a request.
    pub(crate) fn expand(&self, evaluation: &mut Evaluation<'_>) -> Vec<u8> {
        evaluation.word(&self.0)
    }
}
