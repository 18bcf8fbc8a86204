//! Limits on the cost of a hostile file or request.

use std::time::Duration;

/// The largest file, in bytes. The largest file of common applications has 30 KB.
pub const FILE: usize = 1 << 20;

/// The approximate size in memory of all compiled files of a path, in bytes. 5,000 rewrite rules
/// take 17 MB.
pub(crate) const WEIGHT: usize = 64 << 20;

/// The longest line in bytes, continuations included, as in Apache.
pub(crate) const LINE: usize = 8190;

/// Directives and sections per file.
pub(crate) const DIRECTIVES: usize = 10_000;

/// Nesting of sections.
pub(crate) const NESTING: usize = 32;

/// Internal redirects of a request, as in Apache.
pub(crate) const REDIRECTS: usize = 10;

/// Rounds of a rule list by the flag N. Apache allows 10,000.
pub(crate) const ROUNDS: usize = 1000;

/// Rules and conditions that may be tried for a request, over all rounds, redirects and look-ups.
pub(crate) const RULE_STEPS: usize = 20_000;

/// Processor time of one evaluation, for all of its expressions, conditions and look-ups. Rules of
/// common applications take microseconds.
pub(crate) const TIME: Duration = Duration::from_millis(200);

/// Requests within a request: index names, `-F`, `-U`, `%{LA-U:...}`.
pub(crate) const LOOKUPS: usize = 64;

/// Nesting of look-ups.
pub(crate) const LOOKUP_DEPTH: usize = 4;

/// Bytes of a rewritten path, as in Apache with its usual limits.
pub(crate) const PATH: usize = 2 * 8190;

/// Bytes of a value that a directive makes for a header or a variable.
pub(crate) use sendoff_apache_expression::MAX_VALUE as VALUE;

/// Folders with rules between the site's root and a file.
pub(crate) const FOLDERS: usize = 256;

/// Bytes of all values that directives make for a request.
pub(crate) const MADE: usize = 4 << 20;
