//! Bounds that keep a hostile file or request from costing much.

use std::time::Duration;

/// Bytes of a file. The largest that common applications ship has 30 KB.
pub const FILE: usize = 1 << 20;

/// Bytes that the compiled files of a path may take together, about. 5,000 rewrite rules take 17 MB.
pub(crate) const WEIGHT: usize = 64 << 20;

/// Bytes that an expression takes at most: the library refuses longer ones.
pub(crate) const EXPRESSION: usize = 1 << 20;

/// Bytes of a line, continuations included, as in Apache.
pub(crate) const LINE: usize = 8190;

/// Directives and sections of a file.
pub(crate) const DIRECTIVES: usize = 10_000;

/// Sections within sections.
pub(crate) const NESTING: usize = 32;

/// Operators within operators of an expression.
pub(crate) const EXPRESSION_DEPTH: usize = 64;

/// Internal redirects of a request, as in Apache.
pub(crate) const REDIRECTS: usize = 10;

/// Rounds of a rule list by the flag N. Apache allows 10,000.
pub(crate) const ROUNDS: usize = 1000;

/// Rules and conditions that may be tried for a request, over all rounds, redirects and look-ups.
pub(crate) const RULE_STEPS: usize = 20_000;

/// Processor time of one evaluation, all expressions, conditions and look-ups together. Those of applications take microseconds.
pub(crate) const TIME: Duration = Duration::from_millis(200);

/// Requests within a request: index names, `-F`, `-U`, `%{LA-U:...}`.
pub(crate) const LOOKUPS: usize = 64;

/// Look-ups within look-ups.
pub(crate) const LOOKUP_DEPTH: usize = 4;

/// Bytes of a rewritten path, as in Apache with its usual limits.
pub(crate) const PATH: usize = 2 * 8190;

/// Bytes of a value that a directive makes for a header or a variable.
pub(crate) const VALUE: usize = 16 << 10;

/// Folders between the site's root and a file whose rules are read.
pub(crate) const FOLDERS: usize = 256;

/// Bytes of all values that directives make for a request.
pub(crate) const MADE: usize = 4 << 20;

/// What PCRE2 may try for one match.
pub(crate) const PATTERN: &str = "(*LIMIT_MATCH=100000)(*LIMIT_DEPTH=5000)(*LIMIT_HEAP=8192)";
