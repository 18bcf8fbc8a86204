//! A walk through an application: a file of requests, with the answers that may differ from server
//! to server.
//!
//! Each line is a request: a method, a target, and parts behind ` | `:
//!
//! | part | meaning |
//! |---|---|
//! | `Name: value` | a field |
//! | `= a=1&b=2` | a form |
//! | `+ FIELD NAME TYPE TEXT` | a file that is sent with the form |
//! | `< WORD BEFORE` | sets `{WORD}` to the answer's text after BEFORE, up to a quotation mark |
//! | `500` | the status of all answers; without this part Sendoff's must be below 500 |
//! | `! SERVER THEIRS OURS why` | the statuses of SERVER and of Sendoff; nothing else is compared |
//! | `~ SERVER FIELD why` | the only difference between SERVER and Sendoff: a field, or `body` |
//!
//! A line `@ START` with such a difference allows it in all requests whose target begins with
//! START; at least one of them must have it.
//!
//! `{token}` stands for the token of the newest form, `{etag}` and `{modified}` for the newest
//! validators, `{me}` for a different word for each server, which keeps their entries in the shared
//! database apart; `{%WORD}` is percent-encoded. Each server has cookies of its own.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sendoff_tests::{Request, Response};

use crate::farm::{Farm, Peer};
use crate::fields::{Fields, fields};

/// The values of `{me}`, in the order of [`Peer::ALL`].
const MARKS: [&str; 4] = ["peerw", "peerx", "peery", "peerz"];

/// The type of a form, unless the line has a `Content-Type`.
const FORM: &str = "application/x-www-form-urlencoded";

/// The lowest number of requests in a walk.
const ENOUGH: usize = 80;

/// Texts of an application that change from answer to answer: the text before and the text after
/// each.
pub(crate) type Volatile = &'static [(&'static str, &'static str)];

/// A known difference between the answers of a peer and of Sendoff.
#[derive(Clone)]
enum Difference {
    Statuses { peer: Peer, theirs: u16, ours: u16 },
    Part { peer: Peer, part: String },
}

impl Difference {
    fn parse(text: &str) -> Self {
        if let Some(text) = text.strip_prefix("! ") {
            let [peer, theirs, ours, _why] = words(text);
            let [theirs, ours] = [theirs, ours].map(|status| status.parse().expect(text));
            return Self::Statuses { peer: named(peer), theirs, ours };
        }
        let [mark, peer, part, _why] = words(text);
        assert_eq!(mark, "~", "{text}");
        Self::Part { peer: named(peer), part: part.to_owned() }
    }
}

/// A difference in all answers below a path.
struct Rule<'a> {
    line: &'a str,
    start: &'a str,
    difference: Difference,
    found: Cell<bool>,
}

impl<'a> Rule<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (start, difference) = line.strip_prefix("@ ")?.split_once(' ').expect(line);
        let difference = Difference::parse(difference);
        Some(Self { line, start, difference, found: Cell::new(false) })
    }
}

/// A file to upload: the name of the form's field, its own name, its type, its contents.
type Upload<'a> = [&'a str; 4];

struct Step<'a> {
    line: &'a str,
    method: &'a str,
    target: &'a str,
    fields: Vec<(&'a str, &'a str)>,
    form: Option<&'a str>,
    upload: Option<Upload<'a>>,
    learns: Vec<(&'a str, &'a str)>,
    status: Option<u16>,
    differences: Vec<Difference>,
}

impl<'a> Step<'a> {
    fn parse(line: &'a str) -> Self {
        let mut parts = line.split(" | ");
        let (method, target) = parts.next().unwrap().split_once(' ').expect(line);
        let mut step = Self {
            line,
            method,
            target: target.trim(),
            fields: Vec::new(),
            form: None,
            upload: None,
            learns: Vec::new(),
            status: None,
            differences: Vec::new(),
        };
        for part in parts {
            match part.split_at_checked(2) {
                Some(("= ", form)) => step.form = Some(form),
                Some(("+ ", upload)) => step.upload = Some(words(upload)),
                Some(("< ", learned)) => step.learns.push(learned.split_once(' ').expect(line)),
                Some(("! " | "~ ", _)) => step.differences.push(Difference::parse(part)),
                _ if part.parse::<u16>().is_ok() => step.status = part.parse().ok(),
                _ => step.fields.push(part.split_once(": ").expect(line)),
            }
        }
        step
    }

    /// True if the request sends a form or a file, which changes later answers: it is sent once.
    fn is_form(&self) -> bool {
        self.form.is_some() || self.upload.is_some()
    }

    /// The request to one server, with the cookies and words that this server has given.
    fn request(&self, known: &Known) -> Request {
        let target = known.insert(self.target);
        let form = known.insert(self.form.unwrap_or_default());
        let mut request = match self.upload {
            Some(upload) => {
                let (content_type, body) = multipart(&form, upload.map(|text| known.insert(text)));
                Request::post(&target, content_type, body)
            }
            None if self.form.is_some() => {
                let named = self.fields.iter().find(|(name, _)| *name == "Content-Type");
                Request::post(&target, named.map_or(FORM, |(_, kind)| kind), form)
            }
            None => Request::new(self.method, &target),
        };
        for (name, value) in self.fields.iter().filter(|(name, _)| *name != "Content-Type") {
            request = request.header(name, &known.insert(value));
        }
        let pairs: Vec<_> =
            known.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if pairs.is_empty() { request } else { request.header("Cookie", &pairs.join("; ")) }
    }
}

/// The first words of a text, and its rest.
fn words<const N: usize>(text: &str) -> [&str; N] {
    let words: Vec<_> = text.splitn(N, ' ').collect();
    words.try_into().unwrap_or_else(|_| panic!("{N} words are wanted: {text}"))
}

fn named(peer: &str) -> Peer {
    match peer {
        "nginx" => Peer::Nginx,
        "apache" => Peer::Apache,
        other => panic!("no server {other}"),
    }
}

/// The type and the body of a form with a file (RFC 7578).
fn multipart(form: &str, [field, name, kind, text]: [String; 4]) -> (&'static str, String) {
    let mut body = String::new();
    for (name, value) in form.split('&').filter_map(|pair| pair.split_once('=')) {
        write!(
            body,
            "--limit\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        )
        .unwrap();
    }
    write!(
        body,
        "--limit\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{name}\"\r\n\
         Content-Type: {kind}\r\n\r\n{text}\r\n--limit--\r\n"
    )
    .unwrap();
    ("multipart/form-data; boundary=limit", body)
}

/// The state that a server has given to its client.
struct Known {
    cookies: BTreeMap<String, String>,
    /// The values of words in braces.
    words: BTreeMap<String, String>,
}

impl Known {
    fn new(peer: Peer) -> Self {
        let me = MARKS[peer as usize];
        let words = [("me", me), ("token", ""), ("etag", ""), ("modified", "")];
        let words = words.map(|(word, text)| (word.to_owned(), text.to_owned()));
        Self { cookies: BTreeMap::new(), words: words.into() }
    }

    /// Replaces words in braces by their values.
    fn insert(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (word, value)| {
            let quoted = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
            text.replace(&format!("{{{word}}}"), value).replace(&format!("{{%{word}}}"), &quoted)
        })
    }

    fn learn(&mut self, response: &Response, learns: &[(&str, &str)]) {
        for cookie in response.head.all("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if cookie.contains("expires=Thu, 01-Jan-1970") || cookie.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        for (word, field) in [("etag", "etag"), ("modified", "last-modified")] {
            if let Some(value) = response.header(field) {
                self.words.insert(word.to_owned(), value.to_owned());
            }
        }
        let text = response.text();
        for (word, before) in learns.iter().chain(&[("token", "name=\"token\" value=\"")]) {
            if let Some((_, rest)) = text.split_once(before) {
                let value = rest.split(['"', '\'']).next().unwrap();
                self.words.insert((*word).to_owned(), value.to_owned());
            }
        }
    }
}

/// Sends every request of the walk to all servers, and compares Sendoff's preset with nginx and its
/// `.htaccess` files with Apache. The preset must refuse every request that nginx or Apache
/// refuses.
///
/// # Panics
/// If answers differ, or the walk is short.
pub(crate) fn walk(farm: &Farm, text: &str, volatile: Volatile) {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (rules, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with('@'));
    let rules: Vec<_> = rules.into_iter().filter_map(Rule::parse).collect();
    let steps: Vec<_> = lines.into_iter().map(Step::parse).collect();
    let mut known = Peer::ALL.map(Known::new);
    let mut wrong = String::new();
    for step in &steps {
        let mut statuses = [0; 4];
        for [ours, theirs] in [[Peer::Preset, Peer::Nginx], [Peer::Htaccess, Peer::Apache]] {
            let mut compare = || {
                let [our, their] = [ours, theirs].map(|peer| {
                    let known = &mut known[peer as usize];
                    let response = farm.ask(peer, &step.request(known));
                    known.learn(&response, &step.learns);
                    statuses[peer as usize] = response.status();
                    response
                });
                judge(step, &rules, theirs, &our, &their, volatile)
            };
            // Pages show the time: a second may begin between two answers.
            let tries = if step.is_form() { 1 } else { 3 };
            let found: Vec<_> = (0..tries).map_while(|_| compare()).collect();
            if found.len() == tries
                && let Some(why) = found.last()
            {
                write!(wrong, "\n== {} [{ours:?} and {theirs:?}]\n{why}\n", step.line).unwrap();
            }
        }
        let failed = statuses[..2].iter().any(|status| *status >= 500);
        if step.status.map_or(failed, |status| statuses != [status; 4]) {
            write!(wrong, "\n== {}\nunexpected: {statuses:?}", step.line).unwrap();
        }
        let refuses = |peer| [401, 403].contains(&statuses[peer as usize]);
        // A folder without one of the peer's index files is no refusal by a rule.
        let folder = step.target.ends_with('/') && !step.differences.is_empty();
        if (refuses(Peer::Nginx) || refuses(Peer::Apache))
            && statuses[Peer::Preset as usize] < 400
            && !folder
        {
            write!(wrong, "\n== {}\nallowed, and a peer refuses it: {statuses:?}", step.line)
                .unwrap();
        }
    }
    for rule in rules.iter().filter(|rule| !rule.found.get()) {
        write!(wrong, "\n== {}\nnever found", rule.line).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}\n{}", farm.logs());
    assert!(steps.len() >= ENOUGH, "{} requests", steps.len());
}

/// The unexpected differences of two answers, as a text; `None` if there are none.
fn judge(
    step: &Step<'_>,
    rules: &[Rule<'_>],
    peer: Peer,
    our: &Response,
    their: &Response,
    volatile: Volatile,
) -> Option<String> {
    let mut parts = Vec::new();
    for difference in &step.differences {
        match difference {
            Difference::Statuses { peer: of, theirs, ours } if *of == peer => {
                let (found, known) = ((our.status(), their.status()), (*ours, *theirs));
                return (found != known).then(|| format!("{found:?}, known is {known:?}"));
            }
            Difference::Part { peer: of, part } if *of == peer => parts.push(part.as_str()),
            _ => {}
        }
    }
    let rules = || rules.iter().filter(|rule| step.target.starts_with(rule.start));
    if our.status() != their.status() {
        let known = rules().find(|rule| {
            matches!(rule.difference, Difference::Statuses { peer: of, theirs, ours }
                if of == peer && (ours, theirs) == (our.status(), their.status()))
        });
        if let Some(rule) = known {
            rule.found.set(true);
            return None;
        }
        let shown = |response: &Response| response.text().chars().take(300).collect::<String>();
        let statuses = (our.status(), their.status());
        return Some(format!("status {statuses:?}\n{}\n--\n{}", shown(our), shown(their)));
    }
    let own_pages = is_page_of_server(our) && is_page_of_server(their);
    let mut ours = fields(our, peer, own_pages);
    let mut theirs = fields(their, peer, own_pages);
    for rule in rules() {
        if let Difference::Part { peer: at, part } = &rule.difference
            && *at == peer
            && of(&ours, part) != of(&theirs, part)
        {
            rule.found.set(true);
            ours.retain(|field| field.0 != *part);
            theirs.retain(|field| field.0 != *part);
        }
    }
    let different = fields_differ(&ours, &theirs, &mut parts);
    if different.is_some() {
        return different;
    }
    let length = |response: &Response| response.header("content-length").map(str::to_owned);
    if let (Some(one), Some(other)) = (length(our), length(their))
        && step.method == "HEAD"
        && one != other
    {
        return Some(format!("lengths {one} and {other}"));
    }
    if !own_pages {
        let different = bodies_differ(&body(our, volatile), &body(their, volatile));
        let known = parts.iter().position(|part| *part == "body").map(|at| parts.swap_remove(at));
        if known.is_none() && different.is_some() {
            return different;
        }
        if known.is_some() && different.is_none() {
            return Some("bodies are equal".to_owned());
        }
    }
    (!parts.is_empty()).then(|| format!("no difference in {parts:?}"))
}

/// The differences of two lists of fields, as a text. Removes the known differences that it finds
/// from `known`.
fn fields_differ(ours: &Fields, theirs: &Fields, known: &mut Vec<&str>) -> Option<String> {
    let found: Vec<_> = known
        .extract_if(.., |name| of(ours, name) != of(theirs, name))
        .map(str::to_owned)
        .collect();
    let rest = |these: &Fields, others: &Fields| -> Fields {
        let mut others = others.clone();
        let mut rest = these.clone();
        rest.retain(|field| match others.iter().position(|other| other == field) {
            Some(at) => {
                others.swap_remove(at);
                false
            }
            None => !found.contains(&field.0),
        });
        rest
    };
    let (only_ours, only_theirs) = (rest(ours, theirs), rest(theirs, ours));
    (!only_ours.is_empty() || !only_theirs.is_empty())
        .then(|| format!("ours   {only_ours:?}\ntheirs {only_theirs:?}"))
}

/// The values of one field.
fn of<'a>(fields: &'a Fields, name: &str) -> Vec<&'a str> {
    fields.iter().filter(|field| field.0 == name).map(|field| &*field.1).collect()
}

/// The place of the first difference of two texts, with the text around it; `None` if they are
/// equal.
pub(crate) fn bodies_differ(one: &str, other: &str) -> Option<String> {
    let place = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        let part = &text.as_bytes()[place.saturating_sub(80)..(place + 120).min(text.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    (one != other).then(|| {
        let (lengths, parts) = ((one.len(), other.len()), (around(one), around(other)));
        format!("bodies of {lengths:?} bytes at {place}:\n{}\n--\n{}", parts.0, parts.1)
    })
}

/// True for an error page or a redirect that the server itself has written, not the application.
fn is_page_of_server(response: &Response) -> bool {
    let text = response.text();
    let marks = ["<p>sendoff</p>", "<hr><center>nginx", "<!DOCTYPE HTML PUBLIC"];
    let redirect = response.status() < 400 && !text.contains("<html");
    response.status() >= 300
        && (text.is_empty() || redirect || marks.iter().any(|mark| text.contains(mark)))
}

/// Forms in which pages show the time of their request: the time of day with or without seconds;
/// seconds and milliseconds since 1970; an age; fourteen digits, and tokens whose last digits are
/// the time, as `MediaWiki` writes them.
const TIME: &str = r"(?x) (?<!\w)
    (\d{1,2}:\d\d(:\d\d)? | 1[789]\d{8}(\d{3})? | \d+[ ](sec|second|min|minute)s? | 20\d{12} | [0-9a-f]{40}\+\\)
    (?!\w)";

/// The body without the time of its request and without volatile texts.
pub(crate) fn body(response: &Response, volatile: Volatile) -> String {
    let text = response.body.iter().map(|&byte| char::from(byte)).collect::<String>();
    let mut text = unmarked(&text);
    for (before, after) in volatile {
        let mut kept = String::new();
        let mut rest = &*text;
        while let Some((first, next)) = rest.split_once(before) {
            kept += first;
            kept += before;
            rest = next.find(after).map_or("", |end| &next[end..]);
        }
        text = kept + rest;
    }
    without_times(&text)
}

fn without_times(text: &str) -> String {
    let times = pcre2::bytes::Regex::new(TIME).unwrap();
    let mut kept = String::new();
    let mut end = 0;
    for found in times.find_iter(text.as_bytes()).map(Result::unwrap) {
        kept += &text[end..found.start()];
        kept += "{time}";
        end = found.end();
    }
    kept + &text[end..]
}

/// A text without the words that keep servers apart.
pub(crate) fn unmarked(text: &str) -> String {
    MARKS.iter().fold(text.to_owned(), |text, mark| text.replace(mark, "{me}"))
}
