//! Purges as plugins for Varnish request them: `PURGE`, `BAN` and `PURGEKEYS` with the fields for
//! which their VCL files look (`docs/page-cache.md`, "Plugins for Varnish").
//!
//! Varnish compares regular expressions with the addresses and tags of pages. The parts of them that
//! are plain texts are looked for here, which concerns at least the pages that Varnish would purge;
//! any other expression concerns all pages of the site, because too many purged pages are better
//! than too few.

use http::HeaderMap;
use sendoff_message::request::{Request, host_name};

use super::lscache::{Named, NamedPurge};
use super::purge::Purge;
use super::tags;

/// Methods of requests that purge pages.
pub const METHODS: [&str; 3] = ["PURGE", "BAN", "PURGEKEYS"];

/// Fields with tags, separated by blanks or commas.
const TAGS: [&str; 4] = ["xkey-purge", "xkey", "surrogate-key", "cache-tag"];

/// The same, for old pages that are sent while new ones are made.
const SOFT: &str = "xkey-softpurge";

/// Fields with an expression for tags, which may be a list: Magento's, Drupal's, FOSHttpCache's.
const EXPRESSIONS: [&str; 4] =
    ["x-magento-tags-pattern", "cache-tags", "x-cache-tags", "purge-cache-tags"];

/// Parts of expressions that stand for the beginning or the end of a tag in a list.
const BOUNDS: [&str; 8] =
    ["(^|,)", "(,|$)", "(^|\\s)", "(\\s|$)", "(^| )", "( |$)", "(?:^|,)", "(?:,|$)"];

/// Most bytes of an expression that is read. A list of more tags concerns all pages.
const LONGEST: usize = 64 << 10;

/// The purge that a request to the site with this name orders.
#[must_use]
pub fn ordered(site: &str, request: &Request) -> Purge {
    let fields = &request.headers;
    let mut named = NamedPurge::new(site);
    for name in TAGS.into_iter().chain([SOFT]) {
        let words = texts(fields, name);
        let words = words.iter().flat_map(|text| tags::words(text));
        named.names.extend(words.map(|tag| Named::Tag(tag.to_owned())));
    }
    named.is_stale = fields.contains_key(SOFT) && !fields.contains_key(TAGS[0]);
    for name in EXPRESSIONS {
        for text in texts(fields, name) {
            named.names.extend(tags_of(&text).unwrap_or_else(|| vec![Named::All]));
        }
    }
    if !named.names.is_empty() {
        return Purge::Named(named);
    }
    let uri = &request.uri;
    let url = texts(fields, "x-url").pop();
    let is_expression = request.method.as_str() != METHODS[0]
        || uri.ends_with(b".*")
        || texts(fields, "x-purge-method").iter().any(|text| text.eq_ignore_ascii_case("regex"));
    if url.is_none() && !is_expression {
        return Purge::of(site, &host_name(request.host.as_deref().unwrap_or_default()), uri);
    }
    let expression = url.unwrap_or_else(|| String::from_utf8_lossy(uri).into_owned());
    named.names.push(match texts_of(&expression) {
        None => Named::All,
        Some(texts) => match <[String; 1]>::try_from(texts) {
            Ok([text]) => Named::Containing(text.into_bytes()),
            Err(texts) => Named::AddressWith(texts),
        },
    });
    Purge::Named(named)
}

/// The values of a field.
fn texts(fields: &HeaderMap, name: &str) -> Vec<String> {
    let values = fields.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}

/// The tags that an expression lists; `None`: it may mean any tag.
fn tags_of(expression: &str) -> Option<Vec<Named>> {
    if expression.len() > LONGEST {
        return None;
    }
    let mut text = expression.to_owned();
    for bound in BOUNDS {
        text = text.replace(bound, " ");
    }
    // The parts of a tag around the dots, which stand for any character.
    let (mut tags, mut parts) = (Vec::new(), vec![String::new()]);
    let (mut rest, mut is_closed) = (text.chars(), false);
    while let Some(character) = rest.next() {
        let plain = match character {
            '\\' => Some(escaped(&mut rest)?),
            '*' | '+' | '?' | '[' | ']' | '{' | '}' => return None,
            '(' | ')' | '|' | ',' | '^' | '$' | '.' => None,
            blank if blank.is_whitespace() => None,
            plain => Some(plain),
        };
        match (plain, character) {
            // A text right behind a group, or right before it, belongs to each tag in it.
            (Some(_), _) | (None, '.' | '(' | '^') if is_closed => return None,
            (None, '(' | '^') if parts != [""] => return None,
            (Some(plain), _) => parts.last_mut()?.push(plain),
            (None, '.') => parts.push(String::new()),
            (None, _) => {
                is_closed = matches!(character, ')' | '$');
                tags.extend(tag(std::mem::replace(&mut parts, vec![String::new()])));
            }
        }
    }
    tags.extend(tag(parts));
    (!tags.is_empty()).then_some(tags)
}

/// The tag with these parts; `None`: it is empty.
fn tag(mut parts: Vec<String>) -> Option<Named> {
    match (parts.len(), parts.pop()?) {
        (1, only) => (!only.is_empty()).then_some(Named::Tag(only)),
        (_, last) => {
            parts.push(last);
            parts.retain(|part| !part.is_empty());
            Some(Named::TagWith(parts))
        }
    }
}

/// The character that a backslash protects; `None`: it stands for a class of characters, or for a
/// place.
fn escaped(rest: &mut std::str::Chars<'_>) -> Option<char> {
    rest.next().filter(|character| !character.is_ascii_alphanumeric())
}

/// Texts that each address contains for which the expression holds; `None`: there are none.
///
/// Varnish compares the address as the client has sent it; here the path is decoded and normalised.
/// So the texts have no escapes, and no slashes and dots that normalising removes.
fn texts_of(expression: &str) -> Option<Vec<String>> {
    let text = expression.trim();
    let text = text.strip_prefix('^').unwrap_or(text);
    let text = text.strip_suffix('$').filter(|text| !text.ends_with('\\')).unwrap_or(text);
    let text = text.strip_suffix("(.*)").unwrap_or(text);
    let (mut texts, mut rest) = (vec![String::new()], text.chars());
    while let Some(character) = rest.next() {
        match character {
            '\\' => texts.last_mut()?.push(escaped(&mut rest)?),
            '[' | ']' | '{' | '}' | '(' | ')' | '|' | '^' | '$' => return None,
            // The character before it may be missing.
            '*' | '?' => {
                texts.last_mut()?.pop();
                texts.push(String::new());
            }
            '.' | '+' => texts.push(String::new()),
            '%' => {
                let digits = rest.clone().take(2).take_while(char::is_ascii_hexdigit).count();
                rest.by_ref().take(digits).for_each(drop);
                texts.push(String::new());
            }
            character if !character.is_ascii() => texts.push(String::new()),
            character => texts.last_mut()?.push(character),
        }
    }
    let is_removed = |text: &String| {
        text.contains("//") || text.split('/').any(|segment| matches!(segment, "." | ".."))
    };
    if texts.iter().any(is_removed) {
        return None;
    }
    texts.retain(|text| !text.is_empty());
    (!texts.is_empty()).then_some(texts)
}

#[cfg(test)]
mod tests {
    use http::Method;
    use sendoff_message::request::sample::request;

    use super::*;

    fn order(method: &str, uri: &str, fields: &[(&'static str, &str)]) -> Purge {
        let mut request = request(Some("a.test"));
        request.method = Method::from_bytes(method.as_bytes()).unwrap();
        request.uri = uri.to_owned().into();
        for (name, value) in fields {
            request.headers.insert(*name, value.parse().unwrap());
        }
        ordered("site", &request)
    }

    fn named(purge: Purge) -> (Vec<Named>, bool) {
        let Purge::Named(named) = purge else { panic!("{purge:?}") };
        (named.names, named.is_stale)
    }

    #[test]
    fn tags_are_purged_in_every_form_that_plugins_send() {
        let tag = |name: &str| Named::Tag(name.to_owned());
        let with = |texts: &[&str]| Named::TagWith(texts.iter().map(|&text| text.into()).collect());
        for (fields, tags) in [
            // Magento
            (
                ("x-magento-tags-pattern", "((^|,)cat_p_1(,|$))|((^|,)cat_c_2(,|$))"),
                vec![tag("cat_p_1"), tag("cat_c_2")],
            ),
            (("x-magento-tags-pattern", ".*"), vec![Named::All]),
            // Drupal
            (("cache-tags", "node:1 node_list"), vec![tag("node:1"), tag("node_list")]),
            (
                ("cache-tags", "node:1|config:system.menu"),
                vec![tag("node:1"), with(&["config:system", "menu"])],
            ),
            // FOSHttpCache
            (("x-cache-tags", "(^|,)(post\\-1|post\\.2)(,|$)"), vec![tag("post-1"), tag("post.2")]),
            (("xkey-purge", "a b"), vec![tag("a"), tag("b")]),
            // Any other expression
            (("x-cache-tags", "post-[0-9]+"), vec![Named::All]),
            (("x-cache-tags", "a(b|c)"), vec![Named::All]),
            (("x-cache-tags", "(b|c)a"), vec![Named::All]),
            (("x-cache-tags", "(b|c)(d|e)"), vec![Named::All]),
            (("x-cache-tags", "b$.|c"), vec![Named::All]),
            // A dot is any character.
            (("cache-tags", "node:."), vec![with(&["node:"])]),
            (("cache-tags", "a\\.b|x.y"), vec![tag("a.b"), with(&["x", "y"])]),
            (("cache-tags", "."), vec![with(&[])]),
            (("x-cache-tags", "\\bpost\\b"), vec![Named::All]),
        ] {
            assert_eq!(named(order("BAN", "/", &[fields])), (tags, false), "{fields:?}");
        }
        assert_eq!(
            named(order("PURGEKEYS", "/", &[("xkey-softpurge", "a")])),
            (vec![tag("a")], true)
        );
    }

    #[test]
    fn addresses_are_purged_alone_or_by_an_expression() {
        let page = |uri: &[u8]| Purge::page("site", "a.test", uri);
        assert_eq!(order("PURGE", "/a%20b?c", &[]), page(b"/a%20b?c"));
        assert_eq!(order("PURGE", "/x", &[("x-purge-method", "exact")]), page(b"/x"));
        assert_eq!(order("PURGE", "/x/*", &[]), Purge::of("site", "a.test", b"/x/*"));
        let containing = |text: &str| vec![Named::Containing(text.as_bytes().to_vec())];
        let with = |texts: &[&str]| {
            vec![Named::AddressWith(texts.iter().map(|&text| text.into()).collect())]
        };
        let regex = ("x-purge-method", "regex");
        for (method, uri, fields, names) in [
            // proxy-cache-purge, WP Rocket
            ("PURGE", "/.*", vec![regex], containing("/")),
            ("PURGE", "/blog/.*", vec![regex], containing("/blog/")),
            ("PURGE", "/blog/.*", vec![], containing("/blog/")),
            ("BAN", "/bl%6Fg", vec![], with(&["/bl", "g"])),
            ("BAN", "/", vec![("x-url", "^/a\\.html$")], containing("/a.html")),
            ("BAN", "/", vec![("x-url", ".*")], vec![Named::All]),
            ("BAN", "/", vec![("x-url", "\\.(css|js)$")], vec![Named::All]),
            ("BAN", "/x?y", vec![], with(&["/", "y"])),
            ("BAN", "/", vec![("x-url", "^/a.html$")], with(&["/a", "html"])),
            ("BAN", "/", vec![("x-url", "^/a.$")], containing("/a")),
            ("BAN", "/", vec![("x-url", "ab*c+d.*\\?e")], with(&["a", "c", "d", "?e"])),
            ("BAN", "/", vec![("x-url", "caf%C3%A9/x%2")], with(&["caf", "/x"])),
            ("BAN", "/", vec![("x-url", "^http://a.test/p1$")], vec![Named::All]),
            ("BAN", "/", vec![("x-url", "/a/\\./b")], vec![Named::All]),
            ("BAN", "/", vec![("x-url", "(?i)/P1")], vec![Named::All]),
            ("BAN", "/", vec![("x-url", "/a\\d")], vec![Named::All]),
            ("BAN", "/", vec![("x-url", "^")], vec![Named::All]),
        ] {
            assert_eq!(named(order(method, uri, &fields)).0, names, "{method} {uri} {fields:?}");
        }
    }
}
