//! Lines for LiteSpeed's page cache (`docs/lscache.md`): the sections `<IfModule LiteSpeed>` of a
//! site whose plugins speak to the cache.
//!
//! Each line sets variables from which the cache reads what it says about a request.

use std::borrow::Cow;

use crate::environment::{Conditional, Fixed};
use crate::problem::Problem;
use crate::scope::Scope;
use crate::state::Variables;
use crate::syntax;
use crate::text::{self, lossy};

/// The treatment of the lines in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheLines {
    /// `<IfModule LiteSpeed>` does not apply, as in Apache.
    #[default]
    Skipped,
    /// The lines are obeyed.
    Obeyed,
}

/// The name of the module, in lower case.
const MODULE: &[u8] = b"litespeed";

/// Words about the request's page, as in `X-LiteSpeed-Cache-Control`.
const CONTROL: &[u8] = b"Cache-Control";
/// Names of cookies that pages differ by.
const VARY: &[u8] = b"Cache-Vary";
/// Parameters that pages do not differ by.
const KEY: &[u8] = b"Cache-Key-Modify";

/// Beginning of a flag that sets a variable whose value has commas.
const QUOTED_VARIABLE: &[u8] = b"E=\"";

/// The variables from which plugins see what the lines have said.
const VARY_VALUE: &[u8] = b"LSCACHE_VARY_VALUE";
const VARY_COOKIE: &[u8] = b"LSCACHE_VARY_COOKIE";

impl CacheLines {
    /// True for the module whose sections apply to obeyed lines.
    pub(crate) fn is_loaded(self, module: &[u8]) -> bool {
        self == Self::Obeyed && module.eq_ignore_ascii_case(MODULE)
    }

    /// Sets a variable by `[E=NAME:VALUE]`. Values for the cache add up.
    pub(crate) fn set(self, variables: &mut Variables, name: &[u8], value: &[u8]) {
        let known = [CONTROL, VARY].into_iter().find(|known| known.eq_ignore_ascii_case(name));
        let (Self::Obeyed, Some(known)) = (self, known) else {
            return variables.set(name, value.to_vec());
        };
        let before = variables.get(known).filter(|before| !before.is_empty());
        let all = before.map_or_else(|| value.to_vec(), |before| [before, b",", value].concat());
        if known == VARY {
            variables.set(VARY_COOKIE, all.clone());
        } else if let Some(vary) = value.strip_prefix(b"vary=") {
            variables.set(VARY_VALUE, vary.to_vec());
        }
        variables.set(known, all);
    }

    /// The arguments of a directive, with each list of cookies that is in quotes as several flags:
    /// `[E="Cache-Vary:a,b"]` as `[E=Cache-Vary:a,E=Cache-Vary:b]`. Apache has no such quotes.
    pub(crate) fn arguments<'a>(self, name: &[u8], rest: &'a [u8]) -> Cow<'a, [u8]> {
        let begins = text::find(rest, QUOTED_VARIABLE);
        let (Self::Obeyed, Some(at)) = (self, begins) else { return Cow::Borrowed(rest) };
        let (before, quoted) = (&rest[..at], &rest[at + QUOTED_VARIABLE.len()..]);
        let parts = text::find(quoted, b"\"").map(|end| (&quoted[..end], &quoted[end + 1..]));
        let Some((pair, behind)) = parts.filter(|_| name.eq_ignore_ascii_case(b"RewriteRule"))
        else {
            return Cow::Borrowed(rest);
        };
        let colon = text::find(pair, b":").map_or(pair.len(), |colon| colon + 1);
        let (variable, values) = pair.split_at(colon);
        let values = values.split(|byte| *byte == b',').filter(|value| !value.is_empty());
        let flags: Vec<_> = values.map(|value| [b"E=", variable, value].concat()).collect();
        Cow::Owned([before, &flags.join(&b","[..]), behind].concat())
    }

    /// Parses a directive of the cache; `None`: it is none.
    pub(crate) fn parse(self, scope: &mut Scope, name: &[u8], rest: &[u8]) -> Option<Parsed> {
        if self == Self::Skipped {
            return None;
        }
        let words = syntax::words(rest);
        let has = |word: &[u8]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
        Some(match name.to_ascii_lowercase().as_slice() {
            b"cachelookup" if has(b"off") => forbid(scope, None),
            b"cachedisable" => forbid(scope, words.iter().find(|word| word.starts_with(b"/"))),
            b"cachekeymodify" => words.iter().try_for_each(|word| modify(scope, word)),
            b"cachelookup" | b"cacheenable" => Ok(()),
            name if name.starts_with(b"cache") => {
                Err(Problem::Ignored("the server's configuration decides about its cache".into()))
            }
            _ => return None,
        })
    }
}

type Parsed = Result<(), Problem>;

/// Keeps requests for paths that begin with this one away from the cache; `None`: all requests.
fn forbid(scope: &mut Scope, path: Option<&Vec<u8>>) -> Parsed {
    match path {
        Some(path) if path != b"/" => {
            let path = String::from_utf8_lossy(path).replace(['\\', '"'], "");
            let pattern = regex_literal(&path);
            let line = format!("\"^{pattern}\" Cache-Control=no-cache");
            let rule = Conditional::parse_with(b"Request_URI", line.as_bytes(), false)?;
            scope.conditional.push(rule);
        }
        _ => scope.fixed.push(Fixed::Set(CONTROL.to_vec(), b"no-cache".to_vec())),
    }
    Ok(())
}

/// A pattern that matches this text alone.
fn regex_literal(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "/_-".contains(character);
    text.chars().fold(String::new(), |mut pattern, character| {
        if !plain(character) {
            pattern.push('\\');
        }
        pattern.push(character);
        pattern
    })
}

/// `-qs:NAME`: pages do not differ by parameters whose names begin so.
fn modify(scope: &mut Scope, word: &[u8]) -> Parsed {
    if !word.starts_with(b"-qs:") {
        return Err(Problem::Ignored(format!("{:?} is not supported", lossy(word))));
    }
    let known = scope.fixed.iter_mut().find_map(|fixed| match fixed {
        Fixed::Set(name, value) if name == KEY => Some(value),
        Fixed::Set(..) | Fixed::Unset(_) => None,
    });
    match known {
        Some(value) => value.extend_from_slice(&[b",", word].concat()),
        None => scope.fixed.push(Fixed::Set(KEY.to_vec(), word.to_vec())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_lists_are_several_flags() {
        let rest = |text: &'static str| {
            let rest = CacheLines::Obeyed.arguments(b"rewriterule", text.as_bytes());
            String::from_utf8(rest.into_owned()).unwrap()
        };
        for (text, expected) in [
            (".? - [E=\"Cache-Vary:a,,b\"]", ".? - [E=Cache-Vary:a,E=Cache-Vary:b]"),
            (".? - [L,E=\"Cache-Vary:,a\",NC]", ".? - [L,E=Cache-Vary:a,NC]"),
            (".? - [E=\"Cache-Vary:a,b]", ".? - [E=\"Cache-Vary:a,b]"),
            (".? - [E=Cache-Control:no-cache]", ".? - [E=Cache-Control:no-cache]"),
            (".? - [E=\"\"]", ".? - []"),
        ] {
            assert_eq!(rest(text), expected);
        }
    }

    #[test]
    fn words_for_the_cache_add_up() {
        let mut variables = Variables::default();
        let mut set = |name: &str, value: &str| {
            CacheLines::Obeyed.set(&mut variables, name.as_bytes(), value.as_bytes());
        };
        set("cache-control", "no-cache");
        set("Cache-Control", "vary=+webp");
        set("cache-vary", "a");
        set("Cache-Vary", "b");
        set("other", "1");
        set("other", "2");
        let value = |name: &str| variables.get(name.as_bytes()).map(lossy);
        assert_eq!(value("Cache-Control").as_deref(), Some("no-cache,vary=+webp"));
        assert_eq!(value("Cache-Vary").as_deref(), Some("a,b"));
        assert_eq!(value("LSCACHE_VARY_VALUE").as_deref(), Some("+webp"));
        assert_eq!(value("LSCACHE_VARY_COOKIE").as_deref(), Some("a,b"));
        assert_eq!(value("other").as_deref(), Some("2"));
    }
}
