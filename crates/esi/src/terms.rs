//! The words in the head of a part that count for the whole page.

use std::time::SystemTime;

use sendoff_message::response::{Field, ResponseHead};

/// Directives that count for the whole page if one part has them.
const STAY: [&str; 3] = ["private", "must-revalidate", "no-transform"];

/// The time for which a client may keep a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The response says nothing.
    Unsaid,
    /// Seconds from now.
    For(u64),
    /// `no-cache`
    None,
    /// `no-store`
    Never,
}

/// The end of the time for which a client may keep a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It does not depend on the time of day.
    Fixed(Lifetime),
    /// The age in seconds at which it ends (`max-age`).
    AtAge(u64),
    /// `Expires`
    At(SystemTime),
}

/// The terms on which a client gets a part of a page. They stay the same while the part grows older.
#[derive(Debug, Clone)]
pub struct Terms {
    end: End,
    pub(crate) directives: Vec<&'static str>,
    /// Request fields that the part varies with, in lower case.
    pub(crate) vary: Vec<String>,
    pub(crate) cookies: Vec<Field>,
}

impl Terms {
    /// The terms in a head.
    #[must_use]
    pub fn of(head: &ResponseHead) -> Self {
        let control = control(head);
        let directives = STAY.into_iter().filter(|name| control.contains(name)).collect();
        let cookies = head.fields.iter().filter(|field| field.is("Set-Cookie")).cloned();
        let (end, vary) = (End::of(head, &control), vary(head).collect());
        Self { end, directives, vary, cookies: cookies.collect() }
    }

    /// The rest of the lifetime of a response of this age in seconds.
    pub(crate) fn lifetime(&self, age: u64, now: SystemTime) -> Lifetime {
        match self.end {
            End::Fixed(lifetime) => lifetime,
            End::AtAge(end) => Lifetime::For(end.saturating_sub(age)),
            End::At(end) => Lifetime::For(end.duration_since(now).unwrap_or_default().as_secs()),
        }
    }
}

/// The age in seconds that a head states.
#[must_use]
pub fn stated_age(head: &ResponseHead) -> u64 {
    text(head, "Age").and_then(|age| age.parse().ok()).unwrap_or(0)
}

impl End {
    fn of(head: &ResponseHead, control: &str) -> Self {
        if control.contains("no-store") {
            return Self::Fixed(Lifetime::Never);
        }
        if control.contains("no-cache") || control.is_empty() && head.has("Pragma") {
            return Self::Fixed(Lifetime::None);
        }
        let mut words = control.split(',').map(str::trim);
        if let Some(value) = words.find_map(|word| word.strip_prefix("max-age=")) {
            return Self::AtAge(value.trim_matches('"').parse().unwrap_or(0));
        }
        if head.has("Expires") {
            let end = text(head, "Expires").and_then(|date| httpdate::parse_http_date(date).ok());
            return end.map_or(Self::Fixed(Lifetime::For(0)), Self::At);
        }
        Self::Fixed(Lifetime::Unsaid)
    }
}

impl Lifetime {
    /// The lifetime of a page with parts that have these. A part that says nothing may change at any
    /// time.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Unsaid, Self::Unsaid) => Self::Unsaid,
            (Self::For(one), Self::For(other)) => Self::For(one.min(other)),
            _ => Self::None,
        }
    }
}

/// The directives of `Cache-Control`, in lower case.
fn control(head: &ResponseHead) -> String {
    let fields = head.fields.iter().filter(|field| field.is("Cache-Control"));
    let values = fields.map(|field| String::from_utf8_lossy(field.value()).to_ascii_lowercase());
    values.collect::<Vec<_>>().join(",")
}

/// The members of `Vary`, in lower case.
pub(crate) fn vary(head: &ResponseHead) -> impl Iterator<Item = String> {
    let fields = head.fields.iter().filter(|field| field.is("Vary"));
    let values = fields.map(|field| String::from_utf8_lossy(field.value()).to_ascii_lowercase());
    let text = values.collect::<Vec<_>>().join(",");
    let names = text.split(',').map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect::<Vec<_>>().into_iter()
}

fn text<'h>(head: &'h ResponseHead, name: &str) -> Option<&'h str> {
    head.value(name).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim)
}
