//! The fields by which a server offers assembly, and by which an application asks for it
//! (Edge Architecture Specification, W3C Note `edge-arch`).

use sendoff_message::response::{Field, ResponseHead};

/// The request field by which the server says that it assembles pages.
pub const CAPABILITY: &str = "surrogate-capability";

/// Its value.
pub const OFFER: &str = "sendoff=\"ESI/1.0\"";

/// The response field by which an application asks for it.
pub const CONTROL: &str = "Surrogate-Control";

/// A value of it.
pub const ASSEMBLE: &str = "content=\"ESI/1.0\"";

/// The token of the language, in lower case.
const TOKEN: &str = "esi/1.0";

/// The field in which plugins of LSCache ask for assembly by `esi=on`.
const LSCACHE: &str = "X-LiteSpeed-Cache-Control";

/// True if the application asks for assembly by `Surrogate-Control: content="ESI/1.0"`.
#[must_use]
pub fn asks(head: &ResponseHead) -> bool {
    let mut fields = head.fields.iter().filter(|field| field.is(CONTROL));
    fields.any(|field| {
        let value = String::from_utf8_lossy(field.value()).to_ascii_lowercase();
        value.split(',').any(|directive| {
            let Some((name, tokens)) = directive.split_once('=') else { return false };
            // Behind a semicolon stands the name of the server that is meant.
            let tokens = tokens.split(';').next().unwrap_or_default().trim().trim_matches('"');
            name.trim() == "content" && tokens.split_whitespace().any(|token| token == TOKEN)
        })
    })
}

/// True if a plugin of LSCache asks for assembly.
#[must_use]
pub fn asks_as_plugin(head: &ResponseHead) -> bool {
    let says = |field: &Field| {
        let value = String::from_utf8_lossy(field.value()).to_ascii_lowercase();
        value.split(',').any(|word| word.split_whitespace().collect::<String>() == "esi=on")
    };
    head.fields.iter().any(|field| field.is(LSCACHE) && says(field))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn only_an_explicit_wish_counts() {
        let asks_by = |name: &'static str, value: &'static str| {
            let mut head = ResponseHead::new(StatusCode::OK, None);
            head.field(name, value);
            (asks(&head), asks_as_plugin(&head))
        };
        for value in [
            "content=\"ESI/1.0\"",
            "max-age=60, content=\"ESI/1.0\"",
            "no-store,content = \"SSI/1.0 esi/1.0\";sendoff",
            "content=ESI/1.0",
        ] {
            assert_eq!(asks_by(CONTROL, value), (true, false), "{value}");
        }
        for value in ["", "ESI/1.0", "max-age=60", "content=\"ESI/1.01\"", "x-content=\"ESI/1.0\""]
        {
            assert_eq!(asks_by(CONTROL, value), (false, false), "{value}");
        }
        assert_eq!(asks_by(LSCACHE, "public,max-age=60,esi=on"), (false, true));
        assert_eq!(asks_by(LSCACHE, "no-cache, ESI = on"), (false, true));
        for value in ["esi=off", "no-esi=on", "esi", "public"] {
            assert_eq!(asks_by(LSCACHE, value), (false, false), "{value}");
        }
    }
}
