//! Sends the same request to the stock servers and to ours, and expects the same response.

use crate::{Request, Response, Server, Site, Stock};

/// Headers in which two correct servers may differ.
const OUR_OWN: [&str; 6] =
    ["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"];

/// Both servers on one site.
pub struct Pair {
    /// The reference.
    pub stock: Stock,
    /// Ours.
    pub ours: Server,
}

impl Pair {
    /// Starts both, with php.ini settings (`KEY=VALUE`) on top of Debian's.
    pub fn start(site: &Site, ini: &[&str]) -> Self {
        let options: Vec<_> = ini.iter().flat_map(|setting| ["--php-ini", *setting]).collect();
        Self { stock: Stock::start(site.root(), ini), ours: Server::start(site.root(), &options) }
    }

    /// Sends a request to both, expects equal responses, and returns ours.
    ///
    /// # Panics
    /// If the answers differ.
    #[track_caller]
    pub fn same(&self, request: &Request) -> Response {
        let (stock, ours) = (self.stock.ask(request), self.ours.ask(request));
        let line =
            String::from_utf8_lossy(&request.bytes()).lines().next().unwrap_or_default().to_owned();
        assert_same(&line, &stock, &ours);
        ours
    }

    /// [`same`](Self::same) for `GET target`.
    ///
    /// # Panics
    /// If the answers differ.
    #[track_caller]
    pub fn same_page(&self, target: &str) -> Response {
        self.same(&Request::get(target))
    }
}

/// Expects that there is no [`difference`] between two responses.
///
/// # Panics
/// If there is one.
#[track_caller]
pub fn assert_same(what: &str, stock: &Response, ours: &Response) {
    if let Some(difference) = difference(what, stock, ours) {
        panic!("{difference}");
    }
}

/// The first difference of two responses in status line, headers or body, as a text; `None` if they
/// are equal. Headers in which two correct servers may differ are ignored.
pub fn difference(what: &str, stock: &Response, ours: &Response) -> Option<String> {
    // HTTP/2 has no reason phrases.
    let has_reason = !ours.is_multiplexed();
    let status = |response: &Response| {
        (response.head.status, has_reason.then(|| response.head.reason.clone()))
    };
    if status(ours) != status(stock) {
        let (ours_, stock) = (status(ours), status(stock));
        return Some(format!("{what}: status\nours {ours_:?}\nstock {stock:?}\n{}", ours.text()));
    }
    let (our_headers, stock_headers) = (headers(ours), headers(stock));
    if our_headers != stock_headers {
        return Some(format!("{what}: headers\nours {our_headers:?}\nstock {stock_headers:?}"));
    }
    let length = |response: &Response| response.header("content-length").map(str::to_owned);
    if let (Some(our_length), Some(stock_length)) = (length(ours), length(stock))
        && our_length != stock_length
    {
        return Some(format!("{what}: Content-Length: ours {our_length}, stock {stock_length}"));
    }
    let ours = if ours.is_multiplexed() { &of_version_1(ours, &stock.body) } else { ours };
    if ours.body == stock.body {
        return None;
    }
    let both = ours.body.iter().zip(&stock.body);
    let place = both.take_while(|(one, other)| one == other).count();
    let around = |body: &[u8]| {
        let part = &body[place.saturating_sub(40).min(body.len())..(place + 200).min(body.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    Some(format!(
        "{what}: bodies differ at byte {place}\nours, {} bytes: {}\nstock, {} bytes: {}",
        ours.body.len(),
        around(&ours.body),
        stock.body.len(),
        around(&stock.body)
    ))
}

/// The response of a script that shows its variables, with the `SERVER_PROTOCOL` that the stock
/// servers gave to their script.
fn of_version_1(response: &Response, stock: &[u8]) -> Response {
    // In the form of tests/scripts/env.php.
    const OURS: &[u8] = b"\"SERVER_PROTOCOL\": \"HTTP/2.0\"";
    const THEIRS: &[u8] = b"\"SERVER_PROTOCOL\": \"HTTP/1.";
    let mut response = response.clone();
    for place in 0..=response.body.len().saturating_sub(OURS.len()) {
        let range = place..place + OURS.len();
        let theirs = stock.get(range.clone()).filter(|theirs| theirs.starts_with(THEIRS));
        if let Some(theirs) = theirs
            && response.body[place..].starts_with(OURS)
        {
            response.body[range].copy_from_slice(theirs);
        }
    }
    response
}

/// Lower-case names, sorted; the order of values under one name is kept.
fn headers(response: &Response) -> Vec<(String, String)> {
    let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
    let mut all: Vec<_> = response.head.headers.iter().map(lower).collect();
    all.retain(|(name, _)| !OUR_OWN.contains(&name.as_str()));
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}
