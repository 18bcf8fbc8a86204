//! The cost limits of an evaluation, as far as matches need them.

/// A limit is reached.
#[derive(Debug)]
pub struct TooCostly;

/// The processor time that is left for an evaluation.
pub trait MatchBudget {
    /// Checks the processor time, before each match.
    ///
    /// # Errors
    /// The time is used up.
    fn time(&self) -> Result<(), TooCostly>;
}
