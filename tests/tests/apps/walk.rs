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
/// form of `ETag`), whether ranges are announced, and the number of a request.
const BY_NATURE: [&str; 10] = [
    "accept-ranges",
    "connection",
    "content-length",
    "date",
    "etag",
    "keep-alive",
    "server",
    "transfer-encoding",
    "upgrade",
    "x-request-id",
];

/// What belongs to an application: texts in bodies that change from answer to answer, each between two others.
pub(crate) type Volatile = &'static [(&'static str, &'static str)];

/// Names and values.
type Fields = Vec<(String, String)>;

/// What a server may answer instead.
struct Difference {
    peer: Peer,
    theirs: u16,
    ours: u16,
}

struct Step<'a> {
    line: &'a str,
    request: Request,
    target: &'a str,
    form: Option<&'a str>,
    differences: Vec<Difference>,
}

impl<'a> Step<'a> {
    fn parse(line: &'a str) -> Self {
        let mut parts = line.split(" | ");
        let (method, target) = parts.next().unwrap().split_once(' ').expect(line);
        let mut request = Request::new(method, target.trim());
        let mut differences = Vec::new();
        let mut form = None;
        for part in parts {
            if let Some(fields) = part.strip_prefix("= ") {
                form = Some(fields);
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
        Self { line, request, target: target.trim(), form, differences }
    }

    /// The request to one server, with the cookies and the token that it has given.
    fn request(&self, known: &Known) -> Request {
        let request = match self.form {
            Some(form) => {
                let form = form.replace("{token}", &known.token);
                Request::post(self.target, "application/x-www-form-urlencoded", form)
            }
            None => self.request.clone(),
        };
        let pairs: Vec<_> =
            known.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if pairs.is_empty() { request } else { request.header("Cookie", &pairs.join("; ")) }
    }
}

/// What a server has told its client.
#[derive(Default)]
struct Known {
    cookies: BTreeMap<String, String>,
    /// What the newest form says to prove that it is one.
    token: String,
}

impl Known {
    fn learn(&mut self, response: &Response) {
        for cookie in response.head.all("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if cookie.contains("expires=Thu, 01-Jan-1970") || cookie.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        if let Some((_, rest)) = response.text().split_once("name=\"token\" value=\"") {
            self.token = rest.split('"').next().unwrap().to_owned();
        }
    }
}

/// Sends every request of the walk to all servers, compares Sendoff's preset with nginx and its `.htaccess` files with
/// Apache, and returns the number of requests. Cookies and tokens of forms (`{token}`)
/// are kept, for each server its own.
///
/// # Panics
/// If answers differ.
pub(crate) fn walk(farm: &Farm, text: &str, volatile: Volatile) -> usize {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let steps: Vec<_> = lines.map(Step::parse).collect();
    let mut known: [Known; 4] = Default::default();
    let mut wrong = String::new();
    for step in &steps {
        let pairs = [(Peer::Preset, Peer::Nginx), (Peer::Htaccess, Peer::Apache)];
        for (ours, theirs) in pairs {
            let expected = step.differences.iter().find(|difference| difference.peer == theirs);
            let mut compare = || {
                let [our, their] = [ours, theirs].map(|peer| {
                    let response = farm.ask(peer, &step.request(&known[peer as usize]));
                    known[peer as usize].learn(&response);
                    response
                });
                judge(expected, &our, &their, volatile)
            };
            // Pages show the time: a second may begin between two answers. A form is sent once.
            let tries = if step.form.is_some() { 1 } else { 3 };
            let found: Vec<_> = (0..tries).map_while(|_| compare()).collect();
            if found.len() == tries
                && let Some(why) = found.last()
            {
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
        let rest = |of: &Fields, without: &Fields| -> Fields {
            of.iter().filter(|field| !without.contains(field)).cloned().collect()
        };
        let (only_ours, only_theirs) = (rest(&one, &other), rest(&other, &one));
        let counts = (one.len(), other.len());
        return Some(format!("fields {counts:?}\nours   {only_ours:?}\ntheirs {only_theirs:?}"));
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
fn fields(response: &Response, own_page: bool) -> Fields {
    let named = response.head.headers.iter().map(|(name, value)| {
        let name = name.to_ascii_lowercase();
        let value = match &*name {
            // The name and the attributes of a cookie; value and dates differ.
            "set-cookie" => masked(value),
            "location" => value.replace("http://example.test/", "/"),
            "expires" | "last-modified" if value.ends_with(" GMT") || value.ends_with(" +0000") => {
                "a date".to_owned()
            }
            // Servers name the same type for scripts in one of two ways, and add the charset of text or do not.
            "content-type" => plain_type(value),
            // Apache joins what several fields say.
            "vary" => value.replace(", ", ","),
            _ => value.clone(),
        };
        (name, value)
    });
    let mut all: Vec<_> = named
        .filter(|(name, _)| !BY_NATURE.contains(&&**name))
        .filter(|(name, _)| !(own_page && name == "content-type"))
        .collect();
    all.sort();
    // Apache's module also sends a session's cookies that PHP has replaced by newer ones of the same name.
    all.dedup_by(|one, other| one.0 == "set-cookie" && one == other);
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
