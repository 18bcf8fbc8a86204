//! Bounds that keep a hostile file or request from costing much.

/// Bytes of a file. The largest that common applications ship has 30 KB.
pub const FILE: usize = 1 << 20;

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
pub(crate) const RULE_STEPS: usize = 100_000;

/// Requests within a request: index names, `-F`, `-U`, `%{LA-U:...}`.
pub(crate) const LOOKUPS: usize = 64;

/// Look-ups within look-ups.
pub(crate) const LOOKUP_DEPTH: usize = 4;

/// Bytes of a rewritten path, as in Apache with its usual limits.
pub(crate) const PATH: usize = 2 * 8190;

/// Bytes of a value that a directive makes for a header or a variable.
pub(crate) const VALUE: usize = 64 << 10;

/// Folders between the site's root and a file whose rules are read.
pub(crate) const FOLDERS: usize = 256;

/// What PCRE2 may try for one match: about 10 ms.
pub(crate) const PATTERN: &str = "(*LIMIT_MATCH=200000)(*LIMIT_DEPTH=5000)(*LIMIT_HEAP=8192)";

/// Bytes of a compiled expression's stack.
pub(crate) const JIT_STACK: usize = 512 << 10;
