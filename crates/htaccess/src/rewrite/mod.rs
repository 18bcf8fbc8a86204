//! Rewriting: `RewriteEngine`, `RewriteRule` and the rest of Apache's mod_rewrite in a folder.

mod condition;
mod flags;
mod rule;
mod run;
mod substitution;

use std::sync::Arc;

pub(crate) use condition::Condition;
pub(crate) use flags::Flags;
pub(crate) use run::{Rewritten, Rules, rewrite};
use sendoff_apache_expression::Pattern;
use substitution::Substitution;

/// The rewriting of a folder.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) engine: Option<bool>,
    /// `RewriteBase`, with a slash at its end.
    pub(crate) base: Option<Vec<u8>>,
    /// `None`: the options of the folder above apply.
    pub(crate) options: Option<Options>,
    pub(crate) rules: Vec<Arc<Rule>>,
    /// Conditions of the next rule.
    pub(crate) pending: Vec<Condition>,
}

/// `RewriteOptions`
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// The rules of the folder above come after these.
    pub(crate) inherit: bool,
    /// The rules of the folder above come before these.
    pub(crate) inherit_before: bool,
    /// The rules of this folder are added behind, or before, the rules of folders below.
    pub(crate) inherit_down: bool,
    pub(crate) inherit_down_before: bool,
    /// The folder does not take rules from above.
    pub(crate) ignore_inherit: bool,
    /// A folder's rules apply to its path without the slash.
    pub(crate) no_slash: bool,
    /// The base of an inherited configuration is used.
    pub(crate) merge_base: bool,
}

impl Rule {
    /// True if the rule refuses the requests that it matches.
    pub(crate) fn refuses(&self) -> bool {
        self.flags.status.is_some_and(|status| status >= 400)
    }
}

/// A `RewriteRule` and its conditions.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) line: usize,
    pattern: Pattern,
    negated: bool,
    /// The new path; `None` for `-`, which keeps the path.
    substitution: Option<Substitution>,
    flags: Flags,
    conditions: Vec<Condition>,
}
