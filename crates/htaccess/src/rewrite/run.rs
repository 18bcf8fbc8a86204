//! Application of rewrite rules to a request.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use sendoff_apache_expression::Groups;

use super::substitution::{Escape, Expanded, Filling, QueryChange};
use super::{Flags, Options, Rule, Substitution};
use crate::cache_lines::CacheLines;
use crate::limits;
use crate::reason::Reason;
use crate::state::{Context, Pass, Refusal};
use crate::text;
use crate::variables;

/// The rules of a request, with inherited rules of the folders above.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) engine: bool,
    pub(crate) base: Option<Vec<u8>>,
    pub(crate) options: Options,
    /// Rules and the names of their files.
    pub(crate) rules: Vec<(Arc<str>, Arc<Rule>)>,
    /// The folder that the rules are for, without a slash at its end.
    pub(crate) folder: Vec<u8>,
}

/// The result of the rules.
#[derive(Debug)]
pub(crate) enum Rewritten {
    /// The request goes on as it is.
    Unchanged,
    /// The request begins again with the pass's query and this path.
    Again(Vec<u8>, Reason),
    /// A redirect.
    Redirect { status: u16, location: Vec<u8>, why: Reason },
}

/// The change that the list of rules made to `pass.file` and `pass.query`.
struct RuleChange {
    why: Reason,
    no_escape: bool,
    redirect: Option<u16>,
}

/// Applies rules to a request.
///
/// # Errors
/// A rule refuses the request.
pub(crate) fn rewrite(
    context: &Context<'_>,
    pass: &mut Pass,
    rules: &Rules,
) -> Result<Rewritten, Refusal> {
    let prefix = text::concat(&[&rules.folder, b"/"]);
    // A path of the folder without its slash is redirected first.
    let without_slash = pass.file == rules.folder && !rules.options.no_slash;
    if !rules.engine || without_slash || pass.rewriting_ended {
        return Ok(Rewritten::Unchanged);
    }
    let (file, query) = (pass.file.clone(), pass.query.clone());
    let mut run = RuleRun { context, rules, prefix: &prefix, of_rule: Groups::default() };
    let Some(change) = run.list(pass)? else {
        pass.file = file;
        return Ok(Rewritten::Unchanged);
    };
    let rewritten = std::mem::take(&mut pass.file);
    let is_bad = |query: &Vec<u8>| query.iter().any(|byte| *byte <= b' ' || *byte == 127);
    let as_is = scheme_length(&rewritten).is_none() || change.no_escape;
    if as_is && pass.query.as_ref().is_some_and(is_bad) {
        let why =
            Reason { text: "the new query has blanks; use the flag B".to_owned(), ..change.why };
        pass.file = file;
        return Err(Refusal { status: 403, why: Some(why) });
    }
    if let Some(scheme) = scheme_length(&rewritten) {
        let location = location(rules, &prefix, rewritten, scheme, &change, pass, query.as_deref());
        let status = change.redirect.unwrap_or(302);
        pass.file = file;
        return Ok(Rewritten::Redirect { status, location, why: change.why });
    }
    if rewritten == file {
        pass.file = file;
        return Ok(Rewritten::Unchanged);
    }
    if rewritten.first() != Some(&b'/') {
        return Err(Refusal { status: 400, why: Some(change.why) });
    }
    pass.file = file;
    let path = path_of(context, pass, rules, &prefix, rewritten);
    Ok(Rewritten::Again(path, change.why))
}

/// The path of the site for a file beneath it; other paths stay as they are.
fn path_of(
    context: &Context<'_>,
    pass: &Pass,
    rules: &Rules,
    prefix: &[u8],
    rewritten: Vec<u8>,
) -> Vec<u8> {
    let beneath = |folder: &[u8]| {
        rewritten.strip_prefix(folder).filter(|rest| rest.starts_with(b"/")).map(<[u8]>::to_vec)
    };
    let path = match &rules.base {
        Some(base) => rewritten.strip_prefix(prefix).map(|rest| text::concat(&[base, rest])),
        None => beneath(context.site.root),
    };
    let path =
        path.or_else(|| beneath(&pass.folder).map(|rest| text::concat(&[&pass.prefix, &rest])));
    path.unwrap_or(rewritten)
}

/// The value of `Location`.
fn location(
    rules: &Rules,
    prefix: &[u8],
    mut uri: Vec<u8>,
    scheme: usize,
    change: &RuleChange,
    pass: &Pass,
    old_query: Option<&[u8]>,
) -> Vec<u8> {
    if let (Some(base), Some(slash)) =
        (&rules.base, uri[scheme..].iter().position(|byte| *byte == b'/'))
    {
        let path = &uri[scheme + slash..];
        if let Some(rest) = path.strip_prefix(prefix) {
            uri = text::concat(&[&uri[..scheme + slash], base, rest]);
        }
    }
    if !change.no_escape {
        uri = escape_uri(&uri, scheme);
    }
    if let Some(query) = &pass.query {
        let as_is = change.no_escape || old_query == Some(query);
        let query = if as_is { query.clone() } else { text::escape_path(query) };
        uri = text::concat(&[&uri, b"?", &query]);
    }
    uri
}

fn escape_uri(uri: &[u8], scheme: usize) -> Vec<u8> {
    let slash = uri[scheme..].iter().position(|byte| *byte == b'/');
    let path = slash.map_or(uri.len(), |slash| scheme + slash);
    text::concat(&[&uri[..path], &text::escape_path(&uri[path..])])
}

/// The length of the scheme of an absolute URI, `://` included.
fn scheme_length(uri: &[u8]) -> Option<usize> {
    const SCHEMES: [&[u8]; 14] = [
        b"ajp://",
        b"balancer://",
        b"fcgi://",
        b"ftp://",
        b"gopher://",
        b"http://",
        b"https://",
        b"ldap://",
        b"mailto:",
        b"news:",
        b"nntp://",
        b"scgi://",
        b"ws://",
        b"wss://",
    ];
    let scheme = SCHEMES.iter().find(|scheme| text::starts_with_ignore_case(uri, scheme));
    scheme.map(|scheme| scheme.len())
}

struct RuleRun<'a> {
    context: &'a Context<'a>,
    rules: &'a Rules,
    /// The folder with a slash at its end.
    prefix: &'a [u8],
    of_rule: Groups,
}

impl RuleRun<'_> {
    /// Applies all rules. `None`: the path has not changed.
    fn list(&mut self, pass: &mut Pass) -> Result<Option<RuleChange>, Refusal> {
        let (mut change, mut at, mut round) = (None, 0, 1);
        let list = &self.rules.rules;
        while let Some((file, rule)) = list.get(at) {
            at += 1;
            let flags = &rule.flags;
            if pass.depth > 0 && (flags.not_in_lookups || flags.redirect.is_some()) {
                continue;
            }
            let step = self.context.budget.step();
            step.map_err(|_| self.refusal(500, file, rule, "too many rules were tried"))?;
            let Some(applied) = self.rule(pass, file, rule)? else {
                // The rules that are chained to the skipped rule are skipped as well.
                let mut chained = flags.chained;
                while chained && at < list.len() {
                    chained = list[at].1.flags.chained;
                    at += 1;
                }
                continue;
            };
            if pass.file.len() > limits::PATH {
                return Err(self.refusal(500, file, rule, "the path becomes too long"));
            }
            if let Applied::Path { redirect } = applied {
                let why = reason(file, rule, format!("rewritten to {}", text::lossy(&pass.file)));
                change = Some(RuleChange { why, no_escape: flags.no_escape, redirect });
            }
            if flags.end {
                pass.rewriting_ended = true;
            }
            if flags.end || flags.last {
                break;
            }
            if let Some(most) = flags.next_round {
                round += 1;
                if round >= most {
                    return Err(self.refusal(500, file, rule, "too many rounds by the flag N"));
                }
                at = 0;
                continue;
            }
            at += flags.skip;
        }
        Ok(change)
    }

    fn refusal(&self, status: u16, file: &Arc<str>, rule: &Rule, text: &str) -> Refusal {
        Refusal { status, why: Some(reason(file, rule, text.to_owned())) }
    }

    /// Applies one rule. `None` if the rule does not match.
    fn rule(
        &mut self,
        pass: &mut Pass,
        file: &Arc<str>,
        rule: &Rule,
    ) -> Result<Option<Applied>, Refusal> {
        let costly = || self.refusal(500, file, rule, "matching took too long");
        let uri = text::concat(&[&pass.file, &pass.path_info]);
        let uri = uri.strip_prefix(self.prefix).unwrap_or(&uri);
        let of_rule = rule.pattern.groups(uri, &self.context.budget).map_err(|_| costly())?;
        if of_rule.is_some() == rule.negated {
            return Ok(None);
        }
        self.of_rule = of_rule.unwrap_or_default();
        let Some((of_condition, mut fields)) = self.conditions(pass, file, rule)? else {
            return Ok(None);
        };
        let flags = &rule.flags;
        let filling = Filling { of_rule: &self.of_rule, of_condition: &of_condition, escape: None };
        let expand = |text: &Substitution, pass: &Pass| text.expand(self.context, pass, &filling);
        let escape = flags.escape_groups.then_some(Escape {
            only: &flags.escaped_bytes,
            never: &flags.unescaped_bytes,
            no_plus: flags.no_plus,
        });
        let new = rule.substitution.as_ref().map(|substitution| {
            let filling = Filling { escape, ..filling };
            substitution.expand(self.context, pass, &filling)
        });
        if let Some(Expanded { fields: more, .. }) = &new {
            fields.extend_from_slice(more);
        }
        for variable in &flags.variables {
            let text = expand(&variable.0, pass).bytes;
            set_variable(pass, &text, self.context.site.cache_lines);
        }
        for cookie in &flags.cookies {
            let text = expand(cookie, pass).bytes;
            set_cookie(self.context, pass, &text);
        }
        pass.depend_on(fields);
        if flags.proxy {
            let text = "the flag P is not supported: this server is no proxy";
            return Err(self.refusal(403, file, rule, text));
        }
        if let Some(status) = flags.status {
            return Err(self.refusal(status, file, rule, "refused by the rule"));
        }
        let force = |pass: &mut Pass| {
            let media_type = flags.media_type.as_ref().map(|text| expand(text, pass).bytes);
            let handler = flags.handler.as_ref().map(|text| expand(text, pass).bytes);
            pass.forced_type = media_type.or(pass.forced_type.take());
            pass.forced_handler = handler.or(pass.forced_handler.take());
        };
        let Some(new) = new else {
            force(pass);
            return Ok(Some(Applied::Nothing));
        };
        let asked_3f =
            self.context.request.target.windows(3).any(|w| w.eq_ignore_ascii_case(b"%3f"));
        if new.query_by_group && asked_3f && !flags.allow_3f {
            return Err(self.refusal(403, file, rule, "a group of the rule contains %3f"));
        }
        let redirect = self.substitute(pass, flags, new.bytes);
        if redirect.is_none() {
            force(pass);
        }
        Ok(Some(Applied::Path { redirect }))
    }

    /// Makes a substituted text the path. Returns the status of a redirect.
    fn substitute(&self, pass: &mut Pass, flags: &Flags, mut new: Vec<u8>) -> Option<u16> {
        if flags.discard_path_info {
            pass.path_info.clear();
        }
        let query = QueryChange {
            append: flags.append_query,
            discard: flags.discard_query,
            last_mark: flags.query_behind_last_mark,
        };
        query.apply(&mut new, &mut pass.query);
        if new.first() != Some(&b'/') && scheme_length(&new).is_none() {
            new = text::concat(&[self.prefix, &new]);
        }
        if let Some(status) = flags.redirect {
            if scheme_length(&new).is_none() {
                new = text::concat(&[&variables::origin(self.context), &new]);
            }
            pass.file = new;
            return Some(status);
        }
        // Apache turns a URI of the site itself into a path only where its configuration names the
        // port.
        let redirect = scheme_length(&new).map(|_| 302);
        pass.file = new;
        redirect
    }

    /// Tests a rule's conditions. Returns the groups and the request fields that decided.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn conditions(
        &self,
        pass: &Pass,
        file: &Arc<str>,
        rule: &Rule,
    ) -> Result<Option<(Groups, Vec<Vec<u8>>)>, Refusal> {
        let (mut of_condition, mut fields) = (Groups::default(), Vec::new());
        let mut conditions = rule.conditions.iter();
        while let Some(mut condition) = conditions.next() {
            let step = self.context.budget.step();
            step.map_err(|_| self.refusal(500, file, rule, "too many conditions were tried"))?;
            let filling =
                Filling { of_rule: &self.of_rule, of_condition: &of_condition, escape: None };
            let checked = condition.check(self.context, pass, &filling);
            let mut checked =
                checked.map_err(|_| self.refusal(500, file, rule, "matching took too long"))?;
            of_condition = checked.groups.unwrap_or(of_condition);
            if checked.holds {
                fields.append(&mut checked.fields);
                while condition.or_next {
                    let Some(next) = conditions.next() else { break };
                    condition = next;
                }
            } else if !condition.or_next {
                return Ok(None);
            }
        }
        Ok(Some((of_condition, fields)))
    }
}

enum Applied {
    /// `-`
    Nothing,
    Path {
        redirect: Option<u16>,
    },
}

fn reason(file: &Arc<str>, rule: &Rule, text: String) -> Reason {
    Reason { file: file.to_string(), line: rule.line, text }
}

/// `NAME:TEXT`, `!NAME`
fn set_variable(pass: &mut Pass, text: &[u8], lines: CacheLines) {
    if let Some(name) = text.strip_prefix(b"!") {
        pass.variables.remove(name);
        return;
    }
    let colon = text.iter().position(|byte| *byte == b':');
    let (name, value) = match colon {
        Some(colon) => (&text[..colon], &text[colon + 1..]),
        None => (text, &b""[..]),
    };
    lines.set(&mut pass.variables, name, value);
}

/// `NAME:VALUE:DOMAIN[:MINUTES[:PATH[:SECURE[:HTTPONLY[:SAMESITE]]]]]`
fn set_cookie(context: &Context<'_>, pass: &mut Pass, text: &[u8]) {
    let (separator, text) = match text.strip_prefix(b";") {
        Some(rest) => (b';', rest),
        None => (b':', text),
    };
    let mut parts = text.split(|byte| *byte == separator);
    let (Some(name), Some(value), Some(domain)) = (parts.next(), parts.next(), parts.next()) else {
        return;
    };
    let is_clean = |byte: &u8| *byte > 31 && *byte != 127;
    if !text.iter().all(is_clean) {
        return;
    }
    let (lifetime, path) = (parts.next(), parts.next());
    let is_true = |flag: Option<&[u8]>, name: &str| {
        flag.is_some_and(|flag| {
            [name, "true", "1"].iter().any(|yes| flag.eq_ignore_ascii_case(yes.as_bytes()))
        })
    };
    let path = path.filter(|path| !path.is_empty()).unwrap_or(b"/");
    let mut cookie = text::concat(&[name, b"=", value, b"; path=", path, b"; domain=", domain]);
    // A hundred years at most: dates have four digits.
    let minutes = lifetime.map_or(0, text::number).clamp(-10_000_000, 52_560_000);
    if minutes != 0 {
        let seconds = Duration::from_secs(minutes.unsigned_abs().saturating_mul(60));
        let end = if minutes > 0 {
            context.now().checked_add(seconds)
        } else {
            context.now().checked_sub(seconds)
        };
        if let Some(end) = end.filter(|end| *end > UNIX_EPOCH) {
            cookie.extend_from_slice(b"; expires=");
            let date = httpdate::fmt_http_date(end);
            // Dashes within the date, as the first cookies had.
            let date: Vec<&str> = date.splitn(5, ' ').collect();
            cookie.extend_from_slice(
                match date.as_slice() {
                    [day, number, month, year, rest] => {
                        format!("{day} {number}-{month}-{year} {rest}")
                    }
                    other => other.join(" "),
                }
                .as_bytes(),
            );
        }
    }
    if is_true(parts.next(), "secure") {
        cookie.extend_from_slice(b"; secure");
    }
    if is_true(parts.next(), "httponly") {
        cookie.extend_from_slice(b"; HttpOnly");
    }
    if let Some(site) = parts.next().filter(|site| !matches!(*site, b"" | b"0" | b"false")) {
        cookie.extend_from_slice(b"; SameSite=");
        cookie.extend_from_slice(site);
    }
    pass.cookies.push(cookie);
}
