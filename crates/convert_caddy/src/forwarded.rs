//! The fields that tell an application about the client. Sendoff sets them itself, unless `forwarded`
//! is off; a site that sets one of them has all of them from its routes.

use sendoff_convert_document::{Directive, Section};

/// The fields.
const NAMES: [&str; 5] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
];

/// True for a field with the value that Sendoff gives it.
pub(super) fn is_default(words: &[&str]) -> bool {
    let [name, value] = words else { return false };
    matches!(
        (name.to_ascii_lowercase().as_str(), *value),
        ("x-forwarded-for", "{remote_host}" | "{http.request.remote.host}")
            | ("x-forwarded-proto", "{scheme}" | "{http.request.scheme}")
            | ("x-forwarded-host", "{host}" | "{http.request.host}")
    )
}

/// The name of a field without the sign of a change, in small letters.
fn name_of(word: &str) -> String {
    word.trim_start_matches(['+', '-', '?', '>']).trim_end_matches(':').to_ascii_lowercase()
}

/// True for a field that `reverse_proxy` sets itself: a change by `request_header` is lost.
pub(super) fn is_of_proxy(word: &str) -> bool {
    NAMES[..3].contains(&&*name_of(word))
}

/// True if a directive sets one of the fields.
pub(super) fn are_set(directives: &[Directive]) -> bool {
    directives.iter().any(|directive| {
        let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
        // The name of a rule stands behind its matcher.
        let names = words.iter().take(2);
        let is_known = |word: &&&str| NAMES.contains(&&*name_of(word));
        let is_change = match directive.name.as_str() {
            "request_header" => names.filter(is_known).any(|word| !is_of_proxy(word)),
            "header_up" => names.take(1).any(|word| is_known(&word)) && !is_default(&words),
            _ => false,
        };
        is_change || are_set(directive.inner())
    })
}

/// The route with Caddy's values of the fields, for all requests.
pub(super) fn defaults() -> Section {
    let mut route = Section::new("site.route");
    route.comment("The fields that Caddy sends to applications; routes below change them.");
    for (name, value) in [
        ("X-Forwarded-For", "$remote_addr"),
        ("X-Forwarded-Proto", "$scheme"),
        ("X-Forwarded-Host", "$host"),
    ] {
        route.set_in("request_headers", name, value);
    }
    route
}
