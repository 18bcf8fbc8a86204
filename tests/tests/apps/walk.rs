//! A walk through an application: a file of requests, with the answers that may differ from server to server.
//!
//! Each line is a request: method, target, and behind ` | ` fields (`Name: value`), a form (`= a=1&b=2`), or a difference
//! (`! SERVER THEIRS OURS why`): that server answers with the status THEIRS, Sendoff with OURS. Without such a
//! field, status, fields and body are equal; with it, only the statuses are looked at.

use std::collections::BTreeMap;
use std::fmt::Write;

use sendoff_tests::{Request, Response};

use crate::farm::{Farm, Peer};

/// Fields in which correct servers differ: time, connection, framing, name of the server, validators of files (each server has its own
/// form of `ETag`), and whether ranges are announced.
const BY_NATURE: [&str; 9] = [
    "accept-ranges",
    "connection",
    "content-length",
    "date",
    "etag",
    "keep-alive",
    "server",
    "transfer-encoding",
    "upgrade",
];

/// What belongs to an application: texts in bodies that change from answer to answer, each between two others.
pub(crate) type Volatile = &'static [(&'static str, &'static str)];

/// What a server may answer instead.
struct Difference {
    peer: Peer,
    theirs: u16,
    ours: u16,
}

struct Step<'a> {
    line: &'a str,
    request: Request,
    differences: Vec<Difference>,
}

impl<'a> Step<'a> {
    fn parse(line: &'a str) -> Self {
        let mut parts = line.split(" | ");
        let (method, target) = parts.next().unwrap().split_once(' ').expect(line);
        let mut request = Request::new(method, target.trim());
        let mut differences = Vec::new();
        for part in parts {
            if let Some(form) = part.strip_prefix("= ") {
                request = Request::post(target, "application/x-www-form-urlencoded", form);
            } else if let Some(difference) = part.strip_prefix("! ") {
                let words: Vec<_> = difference.splitn(4, ' ').collect();
                assert_eq!(words.len(), 4, "a difference has a reason: {line}");
                let peer = match words[0] {
                    "nginx" => Peer::Nginx,
                    "apache" => Peer::Apache,
                    other => panic!("{other}: {line}"),
                };
                let [theirs, ours] = [1, 2].map(|at| words[at].parse().expect(line));
                differences.push(Difference { peer, theirs, ours });
            } else {
                let (name, value) = part.split_once(": ").expect(line);
                request = request.header(name, value);
            }
        }
        Self { line, request, differences }
    }
}

/// Sends every request of the walk to all servers, compares Sendoff's preset with nginx and its `.htaccess` files with
/// Apache, and returns the number of requests. Cookies are kept, for each server its own.
///
/// # Panics
/// If answers differ.
pub(crate) fn walk(farm: &Farm, text: &str, volatile: Volatile) -> usize {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let steps: Vec<_> = lines.map(Step::parse).collect();
    let mut jars = [const { BTreeMap::new() }; 4];
    let mut wrong = String::new();
    for step in &steps {
        let pairs = [(Peer::Preset, Peer::Nginx), (Peer::Htaccess, Peer::Apache)];
        for (ours, theirs) in pairs {
            let [our, their] = [ours, theirs].map(|peer| {
                let response = farm.ask(peer, &with_cookies(&step.request, &jars[peer as usize]));
                keep_cookies(&response, &mut jars[peer as usize]);
                response
            });
            let expected = step.differences.iter().find(|difference| difference.peer == theirs);
            if let Some(why) = judge(expected, &our, &their, volatile) {
                write!(wrong, "\n== {} [{ours:?} and {theirs:?}]\n{why}\n", step.line).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}\n{}", farm.logs());
    steps.len()
}

/// What is wrong with two answers, if anything is.
fn judge(
    expected: Option<&Difference>,
    our: &Response,
    their: &Response,
    volatile: Volatile,
) -> Option<String> {
    let statuses = (our.status(), their.status());
    if let Some(difference) = expected {
        let known = (difference.ours, difference.theirs);
        let safe = ![401, 403].contains(&their.status()) || our.status() >= 400;
        return (statuses != known || !safe).then(|| format!("{statuses:?}, known is {known:?}"));
    }
    if our.status() != their.status() {
        let shown = |response: &Response| response.text().chars().take(300).collect::<String>();
        return Some(format!("status {statuses:?}\n{}\n--\n{}", shown(our), shown(their)));
    }
    let own_pages = is_page_of_server(our) && is_page_of_server(their);
    let (one, other) = (fields(our, own_pages), fields(their, own_pages));
    if one != other {
        return Some(format!("fields\nours   {one:?}\ntheirs {other:?}"));
    }
    if own_pages {
        return None;
    }
    let (one, other) = (body(our, volatile), body(their, volatile));
    let place = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        let part = &text.as_bytes()[place.saturating_sub(80)..(place + 120).min(text.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    (one != other).then(|| {
        format!(
            "bodies of {} and {} bytes at {place}:\n{}\n--\n{}",
            one.len(),
            other.len(),
            around(&one),
            around(&other)
        )
    })
}

/// Whether a response carries an error page or a redirect that the server itself has written, not the application.
fn is_page_of_server(response: &Response) -> bool {
    let text = response.text();
    let marks = ["<p>sendoff</p>", "<hr><center>nginx", "<!DOCTYPE HTML PUBLIC"];
    let redirect = response.status() < 400 && !text.contains("<html");
    response.status() >= 300
        && (text.is_empty() || redirect || marks.iter().any(|mark| text.contains(mark)))
}

/// Fields that must agree. The type of an error page that the server wrote is its own affair.
fn fields(response: &Response, own_page: bool) -> Vec<(String, String)> {
    let named = response.head.headers.iter().map(|(name, value)| {
        let name = name.to_ascii_lowercase();
        let value = match &*name {
            // The name and the attributes of a cookie; value and dates differ.
            "set-cookie" => masked(value),
            "location" => value.replace("http://example.test/", "/"),
            "expires" | "last-modified" if value.ends_with(" GMT") => "a date".to_owned(),
            // Servers name the same type for scripts in one of two ways, and add the charset of text or do not.
            "content-type" => plain_type(value),
            _ => value.clone(),
        };
        (name, value)
    });
    let mut all: Vec<_> = named
        .filter(|(name, _)| !BY_NATURE.contains(&&**name))
        .filter(|(name, _)| !(own_page && name == "content-type"))
        .collect();
    all.sort();
    all
}

fn plain_type(value: &str) -> String {
    let kind = value.split(';').next().unwrap_or_default().trim();
    match kind {
        "application/javascript" | "application/x-javascript" => "text/javascript".to_owned(),
        "image/vnd.microsoft.icon" => "image/x-icon".to_owned(),
        other => other.to_owned(),
    }
}

fn masked(cookie: &str) -> String {
    let attributes = cookie.split(';').enumerate().map(|(at, part)| {
        let (name, value) = part.trim().split_once('=').unwrap_or((part.trim(), ""));
        let kept = at > 0 && !name.eq_ignore_ascii_case("expires");
        format!("{name}={}", if kept { value } else { "" })
    });
    attributes.collect::<Vec<_>>().join("; ")
}

/// The body with what is volatile cut out.
fn body(response: &Response, volatile: Volatile) -> String {
    let mut text = response.body.iter().map(|&byte| char::from(byte)).collect::<String>();
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
    text
}

fn with_cookies(request: &Request, jar: &BTreeMap<String, String>) -> Request {
    if jar.is_empty() {
        return request.clone();
    }
    let pairs: Vec<_> = jar.iter().map(|(name, value)| format!("{name}={value}")).collect();
    request.clone().header("Cookie", &pairs.join("; "))
}

fn keep_cookies(response: &Response, jar: &mut BTreeMap<String, String>) {
    for cookie in response.head.all("set-cookie") {
        let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
        if cookie.contains("expires=Thu, 01-Jan-1970") || cookie.contains("Max-Age=0") {
            jar.remove(name);
        } else {
            jar.insert(name.to_owned(), value.to_owned());
        }
    }
}
