//! Limits on the cost of a hostile expression.

/// The largest compiled expression, in bytes: PCRE2 refuses longer ones.
pub(crate) const EXPRESSION: usize = 1 << 20;

/// Nesting of operators in an expression.
pub(crate) const EXPRESSION_DEPTH: usize = 64;

/// Bytes of a value that a directive makes for a header or a variable.
pub const VALUE: usize = 16 << 10;

/// Limits of PCRE2 for one match.
pub(crate) const PATTERN: &str = "(*LIMIT_MATCH=100000)(*LIMIT_DEPTH=5000)(*LIMIT_HEAP=8192)";
