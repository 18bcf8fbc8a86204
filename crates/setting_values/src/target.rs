//! Targets of `rewrite`, `redirect` and `try_files`.

use super::text::Template;
use crate::read::{Scope, Wrong};
use crate::value::Word;

/// The new path of `rewrite`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement(pub Template);

/// Flags behind a replacement in nginx. Apache has letters in brackets.
const FLAGS: [&str; 4] = ["last", "break", "redirect", "permanent"];

impl Word for Replacement {
    const KIND: &'static str = Template::KIND;

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        if text.starts_with('^') {
            return Err(Wrong::new("an expression is no part of rewrite")
                .at(0)
                .help("write match = 'EXPRESSION' and rewrite = \"PATH\""));
        }
        if let Some((target, flag)) = text.rsplit_once(' ')
            && (FLAGS.contains(&flag) || flag.starts_with('[') && flag.ends_with(']'))
        {
            return Err(Wrong::new(format!("\"{flag}\" is not understood"))
                .at(text.len() - flag.len())
                .help(instead_of_flag(target.trim_end(), flag)));
        }
        if !text.starts_with(['/', '$']) {
            let wrong = Wrong::new(format!("\"{text}\" does not begin with a slash"));
            return Err(wrong.help(match text.contains("://") {
                true => format!("the way to another host is redirect = \"{text}\""),
                false => format!("write rewrite = \"/{text}\""),
            }));
        }
        Template::parse(text, scope).map(Self)
    }

    fn text(&self) -> String {
        self.0.text()
    }
}

/// The target of `redirect`: a path of the site, or a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination(pub Template);

impl Word for Destination {
    const KIND: &'static str = Template::KIND;

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        let is_status = |word: &str| {
            word.len() == 3 && word.starts_with('3') && word.bytes().all(|b| b.is_ascii_digit())
        };
        if let Some((status, target)) = text.split_once(' ')
            && is_status(status)
        {
            return Err(Wrong::new("the status is a key of its own").at(0).help(format!(
                "write redirect = \"{}\" and status = {status}",
                target.trim_start()
            )));
        }
        if let Some((target, flag)) = text.rsplit_once(' ')
            && (FLAGS.contains(&flag)
                || is_status(flag)
                || flag.starts_with('[') && flag.ends_with(']'))
        {
            let target = target.trim_end();
            let help = match flag {
                "permanent" | "301" | "[R=301,L]" | "[L,R=301]" | "[R=301]" => {
                    format!("write redirect = \"{target}\" and status = 301")
                }
                _ => format!("write redirect = \"{target}\"; status = 301 makes it permanent"),
            };
            return Err(Wrong::new(format!("\"{flag}\" is not understood"))
                .at(text.len() - flag.len())
                .help(help));
        }
        let has_scheme = text.split_once(':').is_some_and(|(scheme, _)| {
            !scheme.is_empty() && !scheme.contains(['/', '.', '?', '$']) || scheme == "$scheme"
        });
        if !text.starts_with(['/', '$']) && !has_scheme {
            return Err(Wrong::new(format!("\"{text}\" is neither a path nor a URL")).help(
                format!("write \"/{text}\" for a path, \"https://{text}\" for another host"),
            ));
        }
        Template::parse(text, scope).map(Self)
    }

    fn text(&self) -> String {
        self.0.text()
    }
}

fn instead_of_flag(target: &str, flag: &str) -> String {
    let flags: Vec<_> = flag.trim_matches(['[', ']']).split(',').map(str::trim).collect();
    let has = |wanted: &[&str]| flags.iter().any(|flag| wanted.contains(flag));
    if has(&["permanent", "R=301"]) {
        format!("write redirect = \"{target}\" and status = 301")
    } else if has(&["redirect", "R", "R=302"]) {
        format!("write redirect = \"{target}\"")
    } else if has(&["F", "G"]) {
        "write deny = true in place of rewrite; G is status = 410".to_owned()
    } else {
        format!(
            "write rewrite = \"{target}\": later routes see the new path, up to the first with a handler"
        )
    }
}

/// An element of `try_files`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate(pub Template);

impl Word for Candidate {
    const KIND: &'static str = Template::KIND;

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        let words: Vec<_> = text.split_whitespace().collect();
        if words.len() > 1 && words.iter().all(|word| word.starts_with(['/', '$', '=', '@'])) {
            let ours = |word: &&str| {
                let word = word.replace("$uri", "$path");
                format!("\"{}\"", word.replace("?$args", "").replace("?$query_string", ""))
            };
            let list: Vec<_> = words.iter().map(ours).collect();
            return Err(Wrong::new("these are several paths in one text")
                .help(format!("write a list: [{}]", list.join(", "))));
        }
        if let Some(status) = text.strip_prefix('=') {
            return match status.parse() {
                Ok(400..=599_u16) => Template::parse(text, scope).map(Self),
                _ => Err(Wrong::new(format!("\"{text}\" is not a status"))
                    .help("expected = and a status from 400 to 599, such as \"=404\"")),
            };
        }
        if text.starts_with('@') {
            return Err(Wrong::new(format!("there is no named location \"{text}\""))
                .help("write the path that is meant, or a route behind this one"));
        }
        if let Some(rest) = text.strip_prefix("$uri") {
            return Err(Wrong::new(
                "$uri is the path with the query, as the client sent it: no file has such a name",
            )
            .help(format!("write \"$path{rest}\": nginx's $uri is $path here")));
        }
        if !text.starts_with(['/', '$']) {
            return Err(Wrong::new(format!("\"{text}\" is neither a path nor a status"))
                .help("a path begins with a slash or with $path, a status with ="));
        }
        Template::parse(text, scope).map(Self)
    }

    fn text(&self) -> String {
        self.0.text()
    }
}

impl Candidate {
    /// True for a status in place of a path.
    #[must_use]
    pub fn is_status(&self) -> bool {
        self.0.text.starts_with('=')
    }
}
