//! Tags by which applications name pages, in the fields that CDNs and Varnish's plugins know.

use sendoff_message::response::ResponseHead;

/// Response fields with the tags of a page, separated by blanks or commas: Fastly's, Varnish's,
/// Cloudflare's, Drupal's, FOSHttpCache's and Magento's.
const FIELDS: [&str; 6] =
    ["Surrogate-Key", "xkey", "Cache-Tag", "Cache-Tags", "X-Cache-Tags", "X-Magento-Tags"];

/// The tags of a response; `None`: no field is about tags.
pub(super) fn of(head: &ResponseHead) -> Option<Vec<String>> {
    let is_tagging =
        |name: &[u8]| FIELDS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let mut tags = None;
    for field in head.fields.iter().filter(|field| is_tagging(field.name())) {
        let text = String::from_utf8_lossy(field.value());
        tags.get_or_insert_with(Vec::new).extend(words(&text).map(str::to_owned));
    }
    tags.map(|mut tags| {
        tags.sort_unstable();
        tags.dedup();
        tags
    })
}

/// The words between blanks and commas.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_between = |character: char| character == ',' || character.is_ascii_whitespace();
    text.split(is_between).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn tags_are_read_from_all_fields() {
        let mut head = ResponseHead::new(StatusCode::OK, None);
        assert_eq!(of(&head), None);
        head.field("XKEY", "b  a");
        head.field("Cache-Tag", "node:1, a,");
        assert_eq!(of(&head).unwrap(), ["a", "b", "node:1"]);
    }
}
