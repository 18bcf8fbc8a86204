//! The order in which Caddy carries out the directives of a block: by name, then by path.

/// Caddy's order. Names of the same line are alike.
const ORDER: &[&str] = &[
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "log_skip",
    "log_name",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "invoke",
    "handle",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
];

/// The order of the directives, as global options may change it.
#[derive(Debug, Clone)]
pub(super) struct Order {
    names: Vec<String>,
}

impl Default for Order {
    fn default() -> Self {
        Self { names: ORDER.iter().map(|name| (*name).to_owned()).collect() }
    }
}

/// The name by which a directive is ordered.
pub(super) fn ordered_name(name: &str) -> &str {
    match name {
        "basicauth" => "basic_auth",
        "handle_path" => "handle",
        "skip_log" => "log_skip",
        name => name,
    }
}

impl Order {
    /// `order NAME first`, `last`, `before OTHER` or `after OTHER`. Returns false if it is not
    /// understood.
    pub(super) fn change(&mut self, words: &[String]) -> bool {
        let words: Vec<&str> = words.iter().map(|word| ordered_name(word)).collect();
        let [name, place, rest @ ..] = &words[..] else { return false };
        let mut names: Vec<_> = self.names.iter().filter(|n| n != name).cloned().collect();
        let other = rest.first().and_then(|other| names.iter().position(|n| n == other));
        let at = match (*place, other) {
            ("first", _) => 0,
            ("last", _) => names.len(),
            ("before", Some(at)) => at,
            ("after", Some(at)) => at + 1,
            _ => return false,
        };
        names.insert(at, (*name).to_owned());
        self.names = names;
        true
    }

    /// The place of a directive; `None`: the directive is unknown.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == ordered_name(name))
    }
}

/// The properties by which directives are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rank {
    /// The place of its name.
    pub(super) place: usize,
    /// The length of the only path of its matcher; otherwise 0.
    pub(super) path: usize,
    pub(super) has_matcher: bool,
}

impl Rank {
    pub(super) fn precedes(&self, other: &Self) -> bool {
        match () {
            () if self.place != other.place => self.place < other.place,
            () if self.path > 0 && other.path > 0 => self.path > other.path,
            () => self.has_matcher && !other.has_matcher,
        }
    }
}
