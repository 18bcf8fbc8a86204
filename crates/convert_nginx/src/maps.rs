//! `map` and `geo`: tables that give a variable its value. A table that a map of Sendoff cannot say
//! exactly is not converted, and rules with its variable say so.

use toml::Value;

use super::addresses::network_text;
use super::pattern::mistake;
use super::scope::Scope;
use super::tested::{Comparison, is_refusal, parts};
use super::text::{Use, translate};
use super::tree::Directive;
use sendoff_convert_document::Section;

/// The most expressions of a map (docs/maps.md).
const MAX_EXPRESSIONS: usize = 1000;

/// A table.
struct Table {
    from: String,
    rows: Vec<(String, String)>,
    default: String,
}

/// The name of the map for a variable of nginx; `None`: there is no such table, or it has no equal.
pub(super) fn name(variable: &str, scope: &Scope<'_>) -> Option<String> {
    let name = variable.to_ascii_lowercase();
    table(definition(&name, scope)?, scope)?;
    Some(name)
}

/// Adds the condition of an `if` about the value of a table to a route. Returns false if it has no
/// equal.
pub(super) fn condition(test: &Directive, scope: &Scope<'_>, route: &mut Section) -> bool {
    let found = || {
        let words = parts(test);
        let (subject, operator) = words.split_first()?;
        let name = name(subject.strip_prefix('$')?, scope)?;
        let Table { from, rows, default } = table(definition(&name, scope)?, scope)?;
        // nginx compares one of several fields of a name, and keeps the value for a path that
        // rewriting has changed since.
        let is_plain = matches!(&*from, "client" | "method" | "scheme");
        let is_open = from == "path" && !test.block.iter().flatten().any(refuses);
        let value = operator.get(1).copied().unwrap_or_default();
        let operator = operator.first().copied();
        let comparison = Comparison::of(operator, value)?;
        let values = rows.into_iter().map(|(_, value)| value).chain([default]);
        let asks_for_any = operator.is_none() || value.is_empty();
        let meant = meant(values.collect(), &comparison, asks_for_any)?;
        if !is_plain && !is_open {
            return None;
        }
        Some((name, meant))
    };
    let Some((name, mut meant)) = found() else { return false };
    match meant.len() {
        1 => route.set_in("when", &name, meant.remove(0)),
        _ => route.set_in("when", &name, meant),
    }
    true
}

/// The tests for the values of a table that a comparison means; `None`: they have no equal.
fn meant(
    mut values: Vec<String>,
    comparison: &Comparison,
    asks_for_any: bool,
) -> Option<Vec<Value>> {
    values.sort_unstable();
    values.dedup();
    let (open, fixed): (Vec<_>, Vec<_>) = values.into_iter().partition(|value| value.contains('$'));
    if !open.is_empty() {
        // Paths with parts of the request: such a value is some text, and neither empty nor 0.
        let are_paths = asks_for_any && open.iter().all(|value| value.starts_with('/'));
        let holds_for_any = comparison.holds("/");
        let agree = fixed
            .iter()
            .all(|value| comparison.holds(value) == (value.is_empty() != holds_for_any));
        return (are_paths && agree).then(|| vec![Value::Boolean(holds_for_any)]);
    }
    let meant = fixed.into_iter().filter(|value| comparison.holds(value));
    let meant: Option<Vec<Value>> = meant.map(compared).collect();
    meant.filter(|meant| !meant.is_empty())
}

/// The test for a value in a condition; `None`: a sign at its beginning has a meaning there.
fn compared(value: String) -> Option<Value> {
    match &*value {
        "" => Some(Value::Boolean(false)),
        text if text.starts_with('!') => None,
        _ => Some(Value::String(value)),
    }
}

/// True for a directive that refuses requests.
fn refuses(directive: &Directive) -> bool {
    directive.name == "return" && is_refusal(directive.word())
}

/// The sections of the maps that routes use.
pub(super) fn sections(scope: &Scope<'_>, routes: &[Section]) -> Vec<Section> {
    let tables = scope.outermost().iter().filter(|one| matches!(&*one.name, "map" | "geo"));
    let used = tables.filter_map(|one| {
        let name = variable(one)?.to_ascii_lowercase();
        if !routes.iter().any(|route| route.contains_map(&name)) {
            return None;
        }
        let Table { from, rows, default } = table(definition(&name, scope)?, scope)?;
        let mut section = Section::map(&name);
        section.set("from", from);
        for (pattern, value) in rows {
            section.set_in("values", &pattern, value);
        }
        if !default.is_empty() {
            section.set("default", default);
        }
        Some(section)
    });
    used.collect()
}

/// The only definition of a variable by a table.
fn definition<'d>(name: &str, scope: &Scope<'d>) -> Option<&'d Directive> {
    let is_named = |one: &&Directive| {
        matches!(&*one.name, "map" | "geo" | "split_clients" | "perl_set" | "js_set")
            && variable(one).is_some_and(|known| known.eq_ignore_ascii_case(name))
    };
    let mut found = scope.outermost().iter().filter(is_named);
    let (first, second) = (found.next()?, found.next());
    second.is_none().then_some(first)
}

/// The variable that a table defines.
fn variable(table: &Directive) -> Option<&str> {
    table.words.last()?.strip_prefix('$')
}

fn table(directive: &Directive, scope: &Scope<'_>) -> Option<Table> {
    match (&*directive.name, &directive.words[..]) {
        ("map", [source, _]) => map(source, directive.block.as_deref()?),
        ("geo", [_]) => geo(directive.block.as_deref()?, scope),
        ("geo", [address, _]) if address == "$remote_addr" => {
            geo(directive.block.as_deref()?, scope)
        }
        _ => None,
    }
}

fn map(source: &str, rows: &[Directive]) -> Option<Table> {
    let from = part(source)?;
    let knows_hosts = rows.iter().any(|row| row.name == "hostnames" && row.words.is_empty());
    let mut table = Table { from, rows: Vec::new(), default: String::new() };
    for row in rows {
        match (&*row.name, &row.words[..]) {
            ("hostnames" | "volatile", []) => {}
            ("default", [value]) => table.default = text(value, false)?,
            (pattern, [value]) => table.add(pattern, value, knows_hosts)?,
            _ => return None,
        }
    }
    let is_expression = |(pattern, _): &&(String, String)| pattern.starts_with('~');
    (table.rows.iter().filter(is_expression).count() <= MAX_EXPRESSIONS).then_some(table)
}

impl Table {
    /// Adds a row; `None`: it has no equal.
    fn add(&mut self, pattern: &str, value: &str, knows_hosts: bool) -> Option<()> {
        if let Some(expression) = pattern.strip_prefix('~') {
            let expression = match expression.strip_prefix('*') {
                Some(rest) => format!("(?i){rest}"),
                None => expression.to_owned(),
            };
            if mistake(&expression).is_some() || expression.starts_with("(*") {
                return None;
            }
            self.rows.push((format!("~{expression}"), text(value, true)?));
            return Some(());
        }
        let value = text(value, false)?;
        let is_host = self.from == "host";
        match pattern {
            // A star and a dot stand for names only if the table knows host names.
            _ if is_host && pattern.contains(['*', ':', '/']) && !knows_hosts => return None,
            _ if is_host && knows_hosts && pattern.starts_with('.') => {
                self.row(&pattern[1..], &value)?;
                self.row(&format!("*{pattern}"), &value)?;
            }
            _ if is_host && knows_hosts && pattern.trim_start_matches("*.").contains('*') => {
                return None;
            }
            // Signs that have a meaning here.
            _ if pattern.starts_with(['~', '\\']) || pattern == "default" => return None,
            _ if pattern.contains(char::is_control) => return None,
            _ => self.row(pattern, &value)?,
        }
        Some(())
    }

    /// Adds a row with a text. Of two for the same text, nginx refuses the file.
    fn row(&mut self, pattern: &str, value: &str) -> Option<()> {
        let mut rows = self.rows.iter();
        if rows.any(|(known, _)| known.eq_ignore_ascii_case(pattern)) {
            return None;
        }
        self.rows.push((pattern.to_owned(), value.to_owned()));
        Some(())
    }
}

fn geo(rows: &[Directive], scope: &Scope<'_>) -> Option<Table> {
    // The client is another one for this server than for others.
    if !scope.is_outermost("set_real_ip_from") {
        return None;
    }
    let mut table = Table { from: "client".to_owned(), rows: Vec::new(), default: String::new() };
    for row in rows {
        let [value] = &row.words[..] else { return None };
        if value.contains('$') {
            return None;
        }
        match &*row.name {
            "default" => table.default = text(value, false)?,
            "proxy" | "delete" | "ranges" | "proxy_recursive" => return None,
            network => table.row(&network_text(network)?, &text(value, false)?)?,
        }
    }
    Some(table)
}

/// The part of the request that a variable stands for.
fn part(source: &str) -> Option<String> {
    let name = source.strip_prefix('$')?;
    // Several variables, or a text around one.
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    if let Some(field) = name.strip_prefix("http_") {
        return Some(format!("header:{}", field.replace('_', "-")));
    }
    if let Some(cookie) = name.strip_prefix("cookie_") {
        return Some(format!("cookie:{cookie}"));
    }
    let plain = match name {
        "host" => "host",
        "uri" | "document_uri" => "path",
        "request_method" => "method",
        "scheme" => "scheme",
        _ => return None,
    };
    Some(plain.to_owned())
}

/// The value of a row; `None`: a variable in it has no equal here.
fn text(value: &str, has_groups: bool) -> Option<String> {
    if value.contains(char::is_control) {
        return None;
    }
    let text = translate(value, &Scope::new(&[]), Use::Value).ok()?;
    let is_group = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let names_group = text.replace("$$", "").split('$').skip(1).any(is_group);
    (has_groups || !names_group).then_some(text)
}
