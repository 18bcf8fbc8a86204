//! The head of an assembled page, from the heads of its parts.
//!
//! A client may keep the page only for as long as every part says. Validators and lengths of the
//! page describe its text with the markup, which no client gets.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::SystemTime;

use sendoff_message::response::{Field, ResponseHead};

use crate::surrogate::CONTROL;
use crate::terms::{Lifetime, Terms, stated_age, vary};

/// Fields of a page that describe its text with the markup, or its time without its fragments'.
const OF_TEMPLATE: [&str; 12] = [
    CONTROL,
    "ETag",
    "Last-Modified",
    "Accept-Ranges",
    "Age",
    "Expires",
    "Pragma",
    "Cache-Control",
    "CDN-Cache-Control",
    "Content-MD5",
    "Content-Digest",
    "Repr-Digest",
];

/// The head of a page with markup.
#[derive(Debug, Clone)]
pub struct PageHead {
    /// Without the fields that describe the text with the markup.
    pub bare: ResponseHead,
    terms: Rc<Terms>,
    /// In seconds.
    pub age: u64,
}

impl PageHead {
    /// Takes the head of a page with markup.
    #[must_use]
    pub fn of(mut head: ResponseHead) -> Self {
        let (terms, age) = (Rc::new(Terms::of(&head)), stated_age(&head));
        forget_template(&mut head);
        Self { bare: head, terms, age }
    }
}

/// The heads of all parts, as far as they count for the whole page.
#[derive(Debug)]
pub struct Merged {
    page: ResponseHead,
    lifetime: Lifetime,
    directives: BTreeSet<&'static str>,
    /// Request fields that fragments vary with, in lower case.
    vary: BTreeSet<String>,
    cookies: Vec<Field>,
}

impl Merged {
    /// Begins with the page itself.
    #[must_use]
    pub fn of(PageHead { bare, terms, age }: PageHead, now: SystemTime) -> Self {
        let (lifetime, directives) = (terms.lifetime(age, now), &terms.directives);
        let directives = directives.iter().copied().collect();
        Self { page: bare, lifetime, directives, vary: BTreeSet::new(), cookies: Vec::new() }
    }

    /// Adds the terms of a fragment of this age in seconds.
    pub fn add(&mut self, fragment: &Terms, age: u64, now: SystemTime) {
        self.lifetime = self.lifetime.and(fragment.lifetime(age, now));
        self.directives.extend(&fragment.directives);
        self.vary.extend(fragment.vary.iter().cloned());
        self.cookies.extend(fragment.cookies.iter().cloned());
        if !self.cookies.is_empty() {
            self.directives.insert("private");
        }
    }

    /// Notes that the page shows a part of its request.
    pub fn shows_request(&mut self) {
        self.lifetime = self.lifetime.and(Lifetime::None);
        self.directives.insert("private");
    }

    /// Notes that a fragment is missing. The next page may have it.
    pub fn lacks_fragment(&mut self) {
        self.lifetime = self.lifetime.and(Lifetime::None);
    }

    /// The head of the assembled page, whose body has this length.
    #[must_use]
    pub fn into_head(self, length: u64) -> ResponseHead {
        let mut head = self.page;
        head.length = Some(length);
        let directives = self.directives.into_iter().map(str::to_owned);
        let lifetime = match self.lifetime {
            Lifetime::Unsaid => None,
            Lifetime::For(seconds) => Some(format!("max-age={seconds}")),
            Lifetime::None => Some("no-cache".to_owned()),
            Lifetime::Never => Some("no-store".to_owned()),
        };
        let control = directives.chain(lifetime).collect::<Vec<_>>().join(", ");
        if !control.is_empty() {
            head.field("Cache-Control", control);
        }
        if !self.vary.is_empty() {
            let own: BTreeSet<_> = vary(&head).collect();
            let more: Vec<_> = self.vary.difference(&own).cloned().collect();
            if !more.is_empty() {
                head.field("Vary", more.join(", "));
            }
        }
        let is_new = |field: &Field| !head.fields.contains(field);
        let cookies: Vec<_> = self.cookies.into_iter().filter(is_new).collect();
        head.fields.extend(cookies);
        head
    }
}

/// Removes the fields that describe the text with the markup.
pub fn forget_template(head: &mut ResponseHead) {
    head.fields.retain(|field| !OF_TEMPLATE.iter().any(|name| field.is(name)));
    head.length = None;
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn head(lines: &str) -> ResponseHead {
        let mut head = ResponseHead::new(StatusCode::OK, Some(1));
        for line in lines.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            head.fields.push(Field::shared(name.to_owned(), value.to_owned()));
        }
        head
    }

    fn merged(page: &str, fragments: &[&str]) -> String {
        let now = SystemTime::UNIX_EPOCH;
        let mut merged = Merged::of(PageHead::of(head(page)), now);
        for fragment in fragments.iter().map(|lines| head(lines)) {
            merged.add(&Terms::of(&fragment), stated_age(&fragment), now);
        }
        let page = merged.into_head(7);
        assert_eq!(page.length, Some(7));
        page.fields.iter().map(Field::text).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_page_lives_for_as_long_as_its_shortest_part() {
        let control = |page: &str, fragments: &[&str]| {
            merged(page, fragments).strip_prefix("Cache-Control: ").unwrap_or_default().to_owned()
        };
        let long = "Cache-Control: public, max-age=600, s-maxage=900";
        for (page, fragments, expected) in [
            ("", &[""][..], ""),
            (long, &[], "max-age=600"),
            (long, &["Cache-Control: max-age=50\nAge: 20"], "max-age=30"),
            ("Cache-Control: max-age=10\nAge: 20", &[long], "max-age=0"),
            (long, &[""], "no-cache"),
            ("", &[long], "no-cache"),
            (long, &["Cache-Control: no-cache"], "no-cache"),
            (long, &["Pragma: no-cache"], "no-cache"),
            (long, &["Cache-Control: no-store", ""], "no-store"),
            (
                long,
                &["Cache-Control: private, max-age=20, must-revalidate"],
                "must-revalidate, private, max-age=20",
            ),
            (long, &["Expires: Thu, 01 Jan 1970 00:00:09 GMT"], "max-age=9"),
            (long, &["Expires: 0"], "max-age=0"),
            (long, &["Cache-Control: max-age=soon"], "max-age=0"),
        ] {
            assert_eq!(control(page, fragments), expected, "{page} {fragments:?}");
        }
    }

    #[test]
    fn fields_of_the_template_go_and_those_of_fragments_count() {
        let page = "Content-Type: text/html\nETag: \"a\"\nLast-Modified: x\nAccept-Ranges: bytes\nSurrogate-Control: x\nVary: Cookie";
        let fragment = "Content-Type: text/plain\nSet-Cookie: a=1\nVary: cookie, X-A";
        assert_eq!(
            merged(page, &[fragment, fragment]),
            "Content-Type: text/html; Vary: Cookie; Cache-Control: private; Vary: x-a; Set-Cookie: a=1; Set-Cookie: a=1"
        );
        let page = PageHead::of(head("Cache-Control: public, max-age=5"));
        let mut merged = Merged::of(page, SystemTime::UNIX_EPOCH);
        merged.shows_request();
        let page = merged.into_head(1);
        assert_eq!(page.value("Cache-Control"), Some(&b"private, no-cache"[..]));
    }
}
