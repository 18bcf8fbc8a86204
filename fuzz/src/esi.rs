//! The promise: of a page of any bytes, the parts are ranges of the page in their order, fragments
//! are on the page's own host, and a part of the request becomes no markup.

use http::header::COOKIE;
use sendoff_esi::Template;
use sendoff_esi::target::target;
use sendoff_esi::template::{Attempt, Include, Node};
use sendoff_message::request::Request;
use sendoff_message::request::sample::request;

/// Checks the promise for a page.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let Ok(template) = Template::parse(input) else { return };
    let mut asked = request(Some("a.test"));
    asked.uri = "/b/c?d=<e>".into();
    asked.query = Some("d=<e>&f=//evil.test/".into());
    let cookie = "a=<esi:include src='/x'/>; b=//evil.test/";
    asked.headers.insert(COOKIE, http::HeaderValue::from_static(cookie));
    let end = walk(&template.nodes, &asked, 0);
    assert!(end <= input.len());
}

/// Checks nodes behind this byte of the page. Returns the last byte that they concern.
fn walk(nodes: &[Node], asked: &Request, from: usize) -> usize {
    nodes.iter().fold(from, |at, node| match node {
        Node::Text(range) => {
            assert!(at <= range.start && range.start < range.end);
            range.end
        }
        Node::Variable(variable) => {
            let html = variable.as_html(asked);
            assert!(!html.iter().any(|byte| b"<>\"'".contains(byte)));
            at
        }
        Node::Include(Include { src, alt, .. }) => {
            for address in [Some(src), alt.as_ref()].into_iter().flatten() {
                let uri = address.address(asked).and_then(|address| target(&address, asked));
                if let Ok(uri) = uri {
                    assert!(uri.starts_with('/'), "{uri}");
                }
            }
            at
        }
        Node::Try(Attempt { attempt, except }) => {
            walk(attempt, asked, at).max(walk(except, asked, at))
        }
    })
}

/// Pages to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let pages: [&[u8]; 5] = [
        b"a<esi:include src='/x?$(QUERY_STRING{f})' alt=\"http://a.test/y\" onerror='continue'/>b",
        b"<esi:try> <esi:attempt>a<esi:include src='$(HTTP_COOKIE{b})'/></esi:attempt><esi:except>b</esi:except></esi:try>",
        b"<!--esi <esi:vars>$(HTTP_COOKIE{a}|'c') $(HTTP_HOST)</esi:vars>--><!-- d -->",
        b"<esi:remove>a</esi:remove><esi:comment text='b'/><esi:inline name='c'>d</esi:inline>",
        b"<esi:include src='../x'></esi:include>$(HTTP_REFERER)",
    ];
    pages.map(<[u8]>::to_vec).to_vec()
}

/// Strings that pages are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"<esi:include src='",
    b"/>",
    b"</esi:",
    b"<!--esi ",
    b"-->",
    b"<esi:vars>",
    b"$(",
    b"HTTP_COOKIE{",
    b"<esi:try>",
    b"<esi:attempt>",
    b"&amp;",
];
