//! Rules about heads and bodies: `header`, `request_header`, `request_body` and `encode`.

use sendoff_convert_document::{Directive, Section};

use super::body::{Builder, Scope, Step};
use super::conditions::{Clients, Requests};
use super::forwarded;
use super::text::{Around, translate};

/// Sendoff's codings.
const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];
/// The length from which Caddy compresses, in bytes.
const MIN_LENGTH: i64 = 512;

/// A change of a field: its name with `+` or `?` in front, and the value or `false`.
pub(super) type Change = (String, toml::Value);

impl Builder<'_> {
    /// `header [+|-|?|>]NAME [VALUE]`, or a block of these.
    pub(super) fn header(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        if !self.is_for_all_clients(step) {
            return;
        }
        let lines: Vec<(&Directive, Vec<&str>)> = match &step.words[..] {
            [] => step.directive.inner().iter().map(|line| (line, words(line))).collect(),
            words => vec![(step.directive, words.to_vec())],
        };
        let mut changes = Vec::new();
        for (line, words) in lines {
            if matches!(words[..], ["defer"]) {
                continue;
            }
            match change(&words, &self.around(step, scope)) {
                Ok(change) => changes.push(change),
                Err(why) => line.left_out(&mut self.site, &why),
            }
        }
        let changes = ordered(changes);
        if !changes.is_empty() {
            self.rule(step, scope, &|route, _| set("response_headers", &changes, route));
        }
    }

    /// `request_header [+|-]NAME [VALUE]`. An application may trust it.
    pub(super) fn request_header(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        if step.requests.clients != Clients::Everyone {
            return self.refuse(step, scope, "a field for some clients");
        }
        let names_host = step.words.first().is_some_and(|name| {
            name.trim_start_matches(['+', '-', '?']).eq_ignore_ascii_case("host")
        });
        if names_host {
            return self.refuse(step, scope, "the key host of proxy names the host");
        }
        if step.words.first().is_some_and(|name| forwarded::is_of_proxy(name)) {
            let text = format!("{}: reverse_proxy sets this field", step.directive.text());
            return self.site.note(&step.directive.place, text);
        }
        let change = change(&step.words, &self.around(step, scope));
        match change {
            Ok(change) => {
                let changes = [change];
                self.rule(step, scope, &|route, _| set("request_headers", &changes, route));
            }
            Err(why) => self.refuse(step, scope, &why),
        }
    }

    /// `request_body { max_size SIZE }`
    pub(super) fn request_body(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        for option in step.directive.inner() {
            match (option.name.as_str(), bytes(option.word())) {
                ("max_size", Some(size)) => {
                    let requests = Requests { clients: Clients::Everyone, ..step.requests.clone() };
                    self.add(&requests, scope.mark, super::conditions::Seen::Whole, &|route, _| {
                        route.set("max_body", size);
                    });
                }
                _ => option.left_out(&mut self.site, "its size"),
            }
        }
    }

    /// `encode CODING...`
    pub(super) fn encode(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        if !self.is_for_all_clients(step) {
            return;
        }
        let named: Vec<&str> = step
            .words
            .iter()
            .copied()
            .chain(step.directive.inner().iter().map(|option| option.name.as_str()))
            .filter(|name| CODINGS.contains(name))
            .collect();
        let mut least = MIN_LENGTH;
        for option in step.directive.inner() {
            match option.name.as_str() {
                "minimum_length" => least = option.word().parse().unwrap_or(MIN_LENGTH).max(0),
                name if CODINGS.contains(&name) => {}
                _ => option.left_out(&mut self.site, "compress_types decides about the types"),
            }
        }
        let named: Vec<String> = match named.is_empty() {
            true => vec!["zstd".to_owned(), "gzip".to_owned()],
            false => named.into_iter().map(str::to_owned).collect(),
        };
        self.site.set_list("compress_with", named);
        self.site.set("compress_min_length", least);
        match step.requests.is_all() && scope.mark.is_none() {
            true => self.site.set("compress", true),
            false => self.rule(step, scope, &|route, _| route.set("compress", true)),
        }
    }

    /// True if a rule that guards nothing is for all clients; otherwise it is left out.
    fn is_for_all_clients(&mut self, step: &Step<'_>) -> bool {
        let is_known = step.requests.unknown.is_none();
        if !is_known || step.requests.clients != Clients::Everyone {
            step.directive.left_out(&mut self.site, "its matcher");
            return false;
        }
        true
    }

    fn around<'a>(&self, step: &'a Step<'_>, scope: &Scope<'_>) -> Around<'a> {
        let path = if scope.mark.is_some() { "$1" } else { "$path" };
        Around { path, is_rewritten: scope.is_rewritten, requests: &step.requests }
    }
}

fn words(line: &Directive) -> Vec<&str> {
    std::iter::once(&line.name).chain(&line.words).map(String::as_str).collect()
}

/// A change of a field.
///
/// # Errors
/// It cannot be expressed; the reason.
pub(super) fn change(words: &[&str], around: &Around<'_>) -> Result<Change, String> {
    let (name, value) = match words {
        [name] => (*name, None),
        [name, value] => (*name, Some(*value)),
        _ => return Err("a replacement within a value".to_owned()),
    };
    let name = name.trim_start_matches('>').trim_end_matches(':');
    let (sign, bare) = match name.chars().next() {
        Some(sign @ ('+' | '-' | '?')) => (sign, &name[1..]),
        _ => (' ', name),
    };
    let is_name = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_name {
        return Err("its name".to_owned());
    }
    match (sign, value) {
        ('-', _) => Ok((bare.to_owned(), false.into())),
        (_, None) => Err("it has no value".to_owned()),
        (sign, Some(value)) => {
            let value = translate(value, around).map_err(|p| format!("{p} is not known"))?;
            let name = if sign == ' ' { bare.to_owned() } else { format!("{sign}{bare}") };
            Ok((name, value.into()))
        }
    }
}

/// The changes of one block that have an effect: Caddy adds fields first, then sets them, and
/// removes them at last.
pub(super) fn ordered(changes: Vec<Change>) -> Vec<Change> {
    let names = |is_kind: &dyn Fn(&Change) -> bool| -> Vec<String> {
        let kind = changes.iter().filter(|change| is_kind(change));
        kind.map(|(name, _)| name.to_ascii_lowercase()).collect()
    };
    let removed = names(&|(_, value)| !value.is_str());
    let set = names(&|(name, value)| value.is_str() && !name.starts_with(['+', '?']));
    let is_kept = |(name, value): &Change| {
        let bare = name.trim_start_matches(['+', '?']).to_ascii_lowercase();
        match (value.is_str(), name.starts_with('+')) {
            (false, _) => true,
            (true, true) => !set.contains(&bare) && !removed.contains(&bare),
            (true, false) => name.starts_with('?') || !removed.contains(&bare),
        }
    };
    changes.iter().filter(|change| is_kept(change)).cloned().collect()
}

/// Sets changes of fields.
pub(super) fn set(key: &'static str, changes: &[Change], route: &mut Section) {
    for (name, value) in changes {
        match value.as_str() {
            Some(text) if name.starts_with('+') => route.add_in(key, name, text.to_owned()),
            _ => route.set_in(key, name, value.clone()),
        }
    }
}

/// A size such as `10MB` or `1GiB`, in bytes.
fn bytes(text: &str) -> Option<i64> {
    let end = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let number: i64 = text[..end].parse().ok()?;
    let factor = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "k" => 1000,
        "mb" | "m" => 1_000_000,
        "gb" | "g" => 1_000_000_000,
        "kib" | "ki" => 1 << 10,
        "mib" | "mi" => 1 << 20,
        "gib" | "gi" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}
