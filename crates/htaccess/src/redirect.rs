//! `Redirect` and `RedirectMatch`.

use sendoff_apache_expression::{Pattern, fill};

use crate::budget::TooCostly;
use crate::expression::{Evaluation, Template};
use crate::problem::Problem;
use crate::state::{Context, Pass};
use crate::syntax;
use crate::text::{self, lossy};
use crate::variables;

/// A redirect, or a refusal.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) line: usize,
    pub(crate) status: u16,
    from: From,
    to: Vec<u8>,
}

#[derive(Debug)]
enum From {
    Path(Vec<u8>),
    Matching(Pattern),
    /// `Redirect 301 TARGET`: everything in the folder.
    Everything(Template),
}

/// The name of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Redirect,
    Match,
    Temporary,
    Permanent,
}

impl Redirect {
    /// Parses the arguments of a directive.
    ///
    /// # Errors
    /// It is not understood.
    pub(crate) fn parse(line: usize, form: Form, rest: &[u8]) -> Result<Self, Problem> {
        let mut words = syntax::words(rest);
        let mut status = if form == Form::Permanent { 301 } else { 302 };
        // The status may be left out.
        let takes_status = matches!(form, Form::Redirect | Form::Match);
        if takes_status
            && words.first().is_some_and(|word| word.first() != Some(&b'/'))
            && let Some(given) = words.first().and_then(|word| status_named(word))
        {
            status = given;
            words.remove(0);
        }
        let goes_elsewhere = (300..400).contains(&status);
        if let ([to], Form::Redirect, true) = (words.as_slice(), form, goes_elsewhere) {
            let template = Template::parse(to).map_err(Problem::Refused)?;
            return Ok(Self { line, status, from: From::Everything(template), to: Vec::new() });
        }
        let (from, to) = match words.as_slice() {
            [from, to] if goes_elsewhere => (from, to.clone()),
            [from] if !goes_elsewhere => (from, Vec::new()),
            [_] => return Err("the redirect has no target".into()),
            _ => return Err("a redirect wants a path and, unless it refuses, a target".into()),
        };
        if form != Form::Match && goes_elsewhere && !is_uri(&to) && to.first() != Some(&b'/') {
            return Err(format!("{:?} is neither a URI nor a path", lossy(&to)).into());
        }
        let from = if form == Form::Match {
            From::Matching(Pattern::new(from, false)?)
        } else {
            From::Path(from.clone())
        };
        Ok(Self { line, status, from, to })
    }

    /// True if it covers every path.
    pub(crate) fn covers_all(&self) -> bool {
        matches!(self.from, From::Everything(_))
    }

    /// The target for a request; `None` if the redirect does not match. A refusal has an empty
    /// target.
    pub(crate) fn target(
        &self,
        context: &Context<'_>,
        pass: &Pass,
    ) -> Result<Option<Vec<u8>>, TooCostly> {
        context.budget.time()?;
        let mut target = match &self.from {
            From::Path(prefix) => {
                let Some(rest) = beneath(prefix, &pass.path) else { return Ok(None) };
                text::concat(&[&self.to, &text::escape_path(rest)])
            }
            From::Everything(template) => {
                escape_filled(&template.expand(&mut Evaluation::new(context, pass)))
            }
            From::Matching(pattern) => {
                let Some(groups) = pattern.groups(&pass.path, &context.budget)? else {
                    return Ok(None);
                };
                escape_filled(&fill(&self.to, &groups))
            }
        };
        if !(300..400).contains(&self.status) {
            return Ok(Some(Vec::new()));
        }
        if target.first() == Some(&b'/') {
            target = text::concat(&[&variables::origin(context), &target]);
        }
        if let Some(query) = pass.query.as_ref().filter(|_| !target.contains(&b'?')) {
            target = text::concat(&[&target, b"?", query]);
        }
        Ok(Some(target))
    }
}

/// The rest of a path behind a prefix that ends at the end of a segment.
fn beneath<'a>(prefix: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix)?;
    let whole = prefix.last() == Some(&b'/') || matches!(rest.first(), None | Some(b'/'));
    whole.then_some(rest)
}

/// Escapes the path of a target, and leaves its query unchanged.
fn escape_filled(target: &[u8]) -> Vec<u8> {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len());
    let start = text::find(&target[..end], b"://").map_or(0, |at| at + 3);
    let escaped = text::escape_path(&target[start..end]);
    text::concat(&[&target[..start], &escaped, &target[end..]])
}

fn status_named(word: &[u8]) -> Option<u16> {
    match word.to_ascii_lowercase().as_slice() {
        b"permanent" => Some(301),
        b"temp" => Some(302),
        b"seeother" => Some(303),
        b"gone" => Some(410),
        digits if digits.len() == 3 && digits.iter().all(u8::is_ascii_digit) => {
            u16::try_from(text::number(digits)).ok().filter(|status| (300..600).contains(status))
        }
        _ => None,
    }
}

/// True if a text begins with a scheme and a slash.
pub(crate) fn is_uri(text: &[u8]) -> bool {
    let scheme = text::find(text, b":").map_or(&b""[..], |colon| &text[..colon]);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    !scheme.is_empty() && scheme.iter().all(is_part) && text.get(scheme.len() + 1) == Some(&b'/')
}
