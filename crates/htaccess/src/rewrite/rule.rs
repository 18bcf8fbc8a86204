//! Parsing of `RewriteRule` and the directives beside it.

use std::sync::Arc;

use sendoff_apache_expression::Pattern;

use super::{Condition, Config, Flags, Rule, Substitution};
use crate::problem::Problem;
use crate::syntax::raw_word;
use crate::text::lossy;

impl Config {
    /// `RewriteRule PATTERN SUBSTITUTION [FLAGS]`
    pub(crate) fn rule(&mut self, line: usize, mut rest: &[u8]) -> Result<(), Problem> {
        let conditions = std::mem::take(&mut self.pending);
        let pattern = raw_word(&mut rest).ok_or("RewriteRule wants a pattern")?;
        let output = raw_word(&mut rest).ok_or("RewriteRule wants a substitution")?;
        let flags = match raw_word(&mut rest) {
            Some(flags) if !flags.is_empty() => Flags::parse(flags)?,
            _ => Flags::default(),
        };
        let (negated, pattern) = match pattern.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let rule = Rule {
            line,
            pattern: Pattern::new(pattern, flags.ignore_case)?,
            negated,
            substitution: match output {
                b"-" => None,
                text => Some(Substitution::parse(text)?),
            },
            flags,
            conditions,
        };
        self.rules.push(Arc::new(rule));
        Ok(())
    }

    /// `RewriteCond TEXT CONDITION [FLAGS]`
    pub(crate) fn condition(&mut self, rest: &[u8]) -> Result<(), Problem> {
        self.pending.push(Condition::parse(rest)?);
        Ok(())
    }

    /// `RewriteBase PATH`
    pub(crate) fn set_base(&mut self, path: &[u8]) -> Result<(), Problem> {
        if path.first() != Some(&b'/') {
            return Err("RewriteBase wants a path that begins with a slash".into());
        }
        let mut base = path.to_vec();
        if base.last() != Some(&b'/') {
            base.push(b'/');
        }
        self.base = Some(base);
        Ok(())
    }

    /// `RewriteOptions NAME...`
    pub(crate) fn set_options(&mut self, names: &[Vec<u8>]) -> Result<(), Problem> {
        let options = self.options.get_or_insert_default();
        for name in names {
            match name.to_ascii_lowercase().as_slice() {
                b"inherit" => options.inherit = true,
                b"inheritbefore" => options.inherit_before = true,
                b"inheritdown" => options.inherit_down = true,
                b"inheritdownbefore" => options.inherit_down_before = true,
                b"ignoreinherit" => options.ignore_inherit = true,
                b"allownoslash" => options.no_slash = true,
                b"mergebase" => options.merge_base = true,
                b"allowanyuri"
                | b"ignorecontextinfo"
                | b"legacyprefixdocroot"
                | b"longurloptimization" => {}
                name if name.starts_with(b"maxredirects=") => {}
                _ => return Err(format!("RewriteOptions has no {:?}", lossy(name)).into()),
            }
        }
        Ok(())
    }
}
