//! Matchers: paths, and those that a name stands for.

use std::collections::HashMap;

use sendoff_convert_document::expression::{quote, unanchored, without_groups};
use sendoff_convert_document::network::is_network;
use sendoff_convert_document::{Directive, Place, host};
use toml::Value;

use super::conditions::{Case, Clients, Conditions, PathTest, Requests};
use super::global::Proxies;
use super::path;

/// The networks that `private_ranges` stands for.
pub(super) const PRIVATE: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1"];

/// The matchers of a block and of the blocks around it, by name with `@`.
#[derive(Debug, Clone)]
pub(super) struct Matchers<'d> {
    named: HashMap<&'d str, &'d Directive>,
    /// True if the site speaks TLS; `None`: at some of its addresses.
    has_tls: Option<bool>,
    proxies: Proxies,
}

/// The matcher in front of the words of a directive.
#[derive(Debug)]
pub(super) struct Matcher {
    pub(super) requests: Requests,
    /// The length of its only path, by which directives are ordered.
    pub(super) path_length: usize,
    /// True if there is a matcher other than `*`.
    pub(super) is_there: bool,
    /// The number of words that it takes.
    pub(super) words: usize,
}

impl<'d> Matchers<'d> {
    /// The matchers outside of all blocks.
    pub(super) fn new(has_tls: Option<bool>, proxies: Proxies) -> Self {
        Self { named: HashMap::new(), has_tls, proxies }
    }

    /// Adds the matchers that a block defines.
    pub(super) fn with(&self, block: &'d [Directive]) -> Self {
        let mut all = self.clone();
        for definition in block.iter().filter(|inner| inner.name.starts_with('@')) {
            all.named.insert(&definition.name, definition);
        }
        all
    }

    /// The matcher of a directive that takes none.
    pub(super) fn none(&self) -> Matcher {
        Matcher { requests: Requests::all(), path_length: 0, is_there: false, words: 0 }
    }

    /// The matcher of a directive.
    pub(super) fn of(&self, directive: &Directive) -> Matcher {
        let word = directive.word();
        let mut requests = Requests::all();
        let none = self.none();
        match word {
            "*" => Matcher { words: 1, ..none },
            _ if word.starts_with('/') => {
                paths(&[word], &directive.place, &mut requests);
                Matcher { requests, path_length: word.len(), is_there: true, words: 1 }
            }
            _ if word.starts_with('@') => match self.named.get(word) {
                Some(definition) => Matcher {
                    requests: self.defined(definition),
                    path_length: path_length(definition),
                    is_there: true,
                    words: 1,
                },
                None => {
                    requests.refuse(&directive.place, format!("{word} is not defined"));
                    Matcher { requests, path_length: 0, is_there: true, words: 1 }
                }
            },
            _ => none,
        }
    }

    /// The requests of a matcher with a name.
    fn defined(&self, definition: &Directive) -> Requests {
        self.set(&parts(definition))
    }

    /// The requests that all parts are for. Parts of one kind are merged, as in Caddy.
    fn set(&self, parts: &[Directive]) -> Requests {
        let mut requests = Requests::all();
        let merged = merged(parts);
        for part in &merged {
            requests = requests.and(&self.part(part, &merged));
        }
        requests
    }

    fn part(&self, part: &Directive, all: &[Directive]) -> Requests {
        let mut requests = Requests::all();
        let words: Vec<&str> = part.words.iter().map(String::as_str).collect();
        let place = &part.place;
        match &*part.name {
            "path" => paths(&words, place, &mut requests),
            "path_regexp" => path_regexp(&words, place, &mut requests),
            "method" => methods(&words, place, &mut requests),
            "host" => hosts(&words, place, &mut requests),
            "header" => field(&words, all, place, &mut requests),
            "header_regexp" => field_regexp(&words, place, &mut requests),
            "query" => parameter(&words, all, place, &mut requests),
            "protocol" => self.protocol(&words, place, &mut requests),
            "remote_ip" | "client_ip" => self.clients(&part.name, &words, place, &mut requests),
            "not" => return self.not(part),
            name => requests.refuse(place, format!("the matcher {name}")),
        }
        requests
    }

    fn protocol(&self, words: &[&str], place: &Place, requests: &mut Requests) {
        match (words, self.has_tls) {
            (["https"], Some(true)) | (["http"], Some(false)) => {}
            (["https"], Some(false)) | (["http"], Some(true)) => requests.alternatives.clear(),
            _ => requests.refuse(place, "the protocol"),
        }
    }

    fn clients(&self, name: &str, words: &[&str], place: &Place, requests: &mut Requests) {
        let is_known = match &self.proxies {
            Proxies::None => true,
            Proxies::Known { .. } => name != "remote_ip",
            Proxies::Unknown => false,
        };
        if words.contains(&"forwarded") || !is_known {
            return requests
                .refuse(place, "addresses of clients and of proxies are not told apart");
        }
        let mut networks = Vec::new();
        for word in words {
            match *word {
                "private_ranges" => networks.extend(PRIVATE.map(str::to_owned)),
                word if is_network(word) => networks.push(word.to_owned()),
                word => return requests.refuse(place, format!("{word} is no network")),
            }
        }
        requests.clients = Clients::From(networks);
    }

    /// `not`: the requests that a set is not for.
    fn not(&self, part: &Directive) -> Requests {
        let parts = merged(&parts(part));
        let inner: Vec<Requests> = parts.iter().map(|one| self.part(one, &parts)).collect();
        let mut all = Requests::all();
        let mut negated: Vec<Requests> = Vec::new();
        for one in &inner {
            match negation(one) {
                Ok(requests) => negated.push(requests),
                Err(why) => all.refuse(&part.place, format!("not: {why}")),
            }
        }
        if all.unknown.is_some() {
            return all;
        }
        match &mut negated[..] {
            [only] => only.clone(),
            several if several.iter().all(|one| one.clients == Clients::Everyone) => {
                all.alternatives = several.iter().flat_map(|o| o.alternatives.clone()).collect();
                all
            }
            _ => {
                all.refuse(&part.place, "not: one of several conditions about addresses");
                all
            }
        }
    }
}

/// The requests that others are not.
fn negation(requests: &Requests) -> Result<Requests, String> {
    if let Some((_, why)) = &requests.unknown {
        return Err(why.clone());
    }
    let mut negated = Requests::all();
    match (&requests.clients, &requests.alternatives[..]) {
        (_, []) => return Ok(negated),
        (Clients::From(networks), [only]) if *only == Conditions::default() => {
            negated.clients = Clients::NotFrom(networks.clone());
            return Ok(negated);
        }
        (Clients::Everyone, _) => {}
        _ => return Err("addresses beside other conditions".to_owned()),
    }
    let mut all = Conditions::default();
    for one in &requests.alternatives {
        let is_of_path =
            one.methods.is_none() && one.fields.is_empty() && one.parameters.is_empty();
        match (&one.paths[..], one.fields.iter().next()) {
            ([path], _) if is_of_path => {
                all.paths.push(PathTest { is_negated: !path.is_negated, ..path.clone() });
            }
            ([], Some((name, values)))
                if name == "Host" && one.fields.len() == 1 && one.methods.is_none() =>
            {
                match &values[..] {
                    [Value::String(text)] => {
                        let negated = Value::String(format!("!{text}"));
                        all.fields.entry(name.clone()).or_default().push(negated);
                    }
                    _ => return Err("several hosts".to_owned()),
                }
            }
            _ => return Err("only paths, hosts and addresses can be excluded".to_owned()),
        }
    }
    negated.alternatives = vec![all];
    Ok(negated)
}

/// The parts of a matcher with a name: behind the name, or in its block.
fn parts(definition: &Directive) -> Vec<Directive> {
    let mut all = Vec::new();
    if let Some((name, words)) = definition.words.split_first() {
        let place = definition.place.clone();
        // A block behind the name belongs to it, as in `@a not { ... }`.
        let block = definition.block.clone();
        all.push(Directive::new(name.clone(), words.to_vec(), block, place));
    } else {
        all.extend(definition.inner().iter().cloned());
    }
    all
}

/// Merges the parts of one kind of which one value must hold.
fn merged(parts: &[Directive]) -> Vec<Directive> {
    let mut merged: Vec<Directive> = Vec::new();
    for part in parts {
        let is_list = matches!(&*part.name, "path" | "method" | "host" | "remote_ip" | "client_ip");
        match merged.iter_mut().find(|known| is_list && known.name == part.name) {
            Some(known) => known.words.extend(part.words.iter().cloned()),
            None => merged.push(part.clone()),
        }
    }
    merged
}

/// The length of the path if the matcher has exactly one.
fn path_length(definition: &Directive) -> usize {
    let paths: Vec<_> = parts(definition)
        .into_iter()
        .filter(|part| part.name == "path")
        .flat_map(|part| part.words)
        .collect();
    match &paths[..] {
        [only] => only.len(),
        _ => 0,
    }
}

fn paths(words: &[&str], place: &Place, requests: &mut Requests) {
    if words.contains(&"*") {
        return;
    }
    let mut alternatives = Vec::new();
    for word in words {
        match path::pattern(word) {
            Ok(expression) => alternatives.push(expression),
            Err(why) => return requests.refuse(place, why),
        }
    }
    let expression = match &alternatives[..] {
        [only] => only.clone(),
        several => format!("(?:{})", several.join("|")),
    };
    let test = PathTest { expression, case: Case::Ignored, is_negated: false };
    requests.alternatives[0].paths.push(test);
}

fn path_regexp(words: &[&str], place: &Place, requests: &mut Requests) {
    let (name, text) = match words {
        [text] => ("", *text),
        [name, text] => (*name, *text),
        _ => return requests.refuse(place, "path_regexp without an expression"),
    };
    match path::expression(text) {
        Ok(expression) => {
            let test = PathTest {
                expression: unanchored(&without_groups(&expression)),
                case: Case::Exact,
                is_negated: false,
            };
            requests.alternatives[0].paths.push(test);
            requests.alternatives[0].groups = Some((name.to_owned(), expression));
        }
        Err(why) => requests.refuse(place, why),
    }
}

fn methods(words: &[&str], place: &Place, requests: &mut Requests) {
    let names: Vec<_> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let is_name = |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
    if names.is_empty() || !names.iter().all(is_name) {
        return requests.refuse(place, "this is no method");
    }
    let has = |name: &str| names.iter().any(|known| known == name);
    if has("HEAD") && !has("GET") {
        return requests.refuse(place, "HEAD stands for itself only beside GET");
    }
    requests.alternatives[0].methods = Some(names);
}

fn hosts(words: &[&str], place: &Place, requests: &mut Requests) {
    let mut all = Vec::new();
    for word in words {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-.*_".contains(&b);
        if word.is_empty() || !word.bytes().all(is_name) {
            return requests.refuse(place, format!("the host {word}"));
        }
        all.push(quote(&word.to_ascii_lowercase()).replace(r"\*", "[^.:]+"));
    }
    let expression = format!("(?i)^(?:{}){}", all.join("|"), host::END);
    let value = Value::String(expression);
    requests.alternatives[0].fields.insert("Host".to_owned(), vec![value]);
}

/// An expression for a value with stars at its ends.
fn value(text: &str) -> Result<Value, String> {
    if text.contains('{') {
        return Err(format!("{text} has placeholders"));
    }
    let (start, rest) = match text.strip_prefix('*') {
        Some(rest) => ("", rest),
        None => ("^", text),
    };
    Ok(match (text, rest.strip_suffix('*')) {
        ("*", _) => Value::Boolean(true),
        (_, Some(middle)) => Value::String(format!("{start}{}", quote(middle))),
        (_, None) => Value::String(format!(r"{start}{}\z", quote(rest))),
    })
}

fn field(words: &[&str], all: &[Directive], place: &Place, requests: &mut Requests) {
    let (name, wanted) = match words {
        [name] => (*name, Ok(Value::Boolean(!name.starts_with('!')))),
        [name, text] if !name.starts_with('!') => (*name, value(text)),
        _ => return requests.refuse(place, "header"),
    };
    let name = name.trim_start_matches('!');
    let is_repeated = all
        .iter()
        .filter(|other| other.name == "header" && other.word().eq_ignore_ascii_case(name))
        .count()
        > 1;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    match wanted {
        Ok(wanted) if is_name && !is_repeated && !name.eq_ignore_ascii_case("host") => {
            requests.alternatives[0].fields.insert(field_name(name), vec![wanted]);
        }
        Err(why) => requests.refuse(place, why),
        Ok(_) => requests.refuse(place, format!("the field {name}, or several of its values")),
    }
}

/// The name of a field in its usual spelling.
fn field_name(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    });
    words.collect::<Vec<_>>().join("-")
}

fn field_regexp(words: &[&str], place: &Place, requests: &mut Requests) {
    let (name, text) = match words {
        [name, text] | [_, name, text] => (*name, *text),
        _ => return requests.refuse(place, "header_regexp without an expression"),
    };
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    match path::expression(text) {
        Ok(expression) if is_name && !name.eq_ignore_ascii_case("host") => {
            let value = Value::String(format!("(?:{expression})"));
            requests.alternatives[0].fields.insert(field_name(name), vec![value]);
        }
        Ok(_) => requests.refuse(place, format!("the field {name}")),
        Err(why) => requests.refuse(place, why),
    }
}

fn parameter(words: &[&str], all: &[Directive], place: &Place, requests: &mut Requests) {
    let is_alone = all.iter().filter(|other| other.name == "query").count() == 1;
    let pair = words.first().and_then(|word| word.split_once('='));
    match pair {
        Some((name, text)) if words.len() == 1 && is_alone && !name.is_empty() => {
            let wanted = match text {
                "*" => Ok(Value::Boolean(true)),
                text if text.contains('{') => Err(format!("{text} has placeholders")),
                text => Ok(Value::String(format!(r"^{}\z", quote(text)))),
            };
            match wanted {
                Ok(wanted) => {
                    requests.alternatives[0].parameters.insert(name.to_owned(), vec![wanted]);
                }
                Err(why) => requests.refuse(place, why),
            }
        }
        _ => requests.refuse(place, "several parameters: versions of Caddy differ"),
    }
}
