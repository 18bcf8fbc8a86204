//! Lines and words of a file, as Apache reads them: `.htaccess` files and the configuration.

use crate::limits;

/// A line with a directive or a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The number of its first line, from 1.
    pub number: usize,
    /// The directive, or the section with its `<`.
    pub name: Vec<u8>,
    /// The arguments, without blanks at either end.
    pub rest: Vec<u8>,
}

/// A line is longer than Apache allows.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The number of its first line, from 1.
    pub number: usize,
}

/// The lines of a file. A backslash at the end of a line joins the next one to it, in comments too.
///
/// # Errors
/// A line is longer than Apache allows.
pub fn lines(bytes: &[u8]) -> Result<Vec<Line>, TooLong> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut found = Vec::new();
    let mut physical = bytes.split(|byte| *byte == b'\n').enumerate();
    while let Some((index, first)) = physical.next() {
        let mut line = Vec::new();
        let mut part = first;
        loop {
            part = part.strip_suffix(b"\r").unwrap_or(part);
            let Some(start) = part.strip_suffix(b"\\") else {
                line.extend_from_slice(part);
                break;
            };
            line.extend_from_slice(start);
            if line.len() > limits::LINE {
                break;
            }
            let Some((_, next)) = physical.next() else { break };
            part = next;
        }
        let number = index + 1;
        if line.len() > limits::LINE {
            return Err(TooLong { number });
        }
        let mut rest = line.trim_ascii();
        if rest.is_empty() || rest.starts_with(b"#") {
            continue;
        }
        let name = word(&mut rest).unwrap_or_default();
        found.push(Line { number, name, rest: rest.trim_ascii().to_vec() });
    }
    Ok(found)
}

/// Takes the next word off a text. Quotes keep blanks; a backslash escapes a quote or a backslash.
pub fn word(text: &mut &[u8]) -> Option<Vec<u8>> {
    let trimmed = text.trim_ascii_start();
    let quote = trimmed.first().copied().filter(|byte| matches!(byte, b'"' | b'\''));
    let body = if quote.is_some() { &trimmed[1..] } else { trimmed };
    if trimmed.is_empty() {
        *text = trimmed;
        return None;
    }
    let (mut word, mut at) = (Vec::new(), 0);
    while let Some(&byte) = body.get(at) {
        let ends = quote.map_or(byte.is_ascii_whitespace(), |quote| byte == quote);
        if ends {
            break;
        }
        match body.get(at + 1) {
            Some(&next) if byte == b'\\' && (next == b'\\' || Some(next) == quote) => {
                word.push(next);
                at += 2;
            }
            _ => {
                word.push(byte);
                at += 1;
            }
        }
    }
    let end = at + usize::from(quote.is_some() && at < body.len());
    *text = body[end..].trim_ascii_start();
    Some(word)
}

/// All words of a text.
pub fn words(mut text: &[u8]) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| word(&mut text)).collect()
}

/// Takes the next argument of a rewrite directive off a text: backslashes stay, and a backslash
/// before a blank keeps the blank.
pub fn raw_word<'a>(text: &mut &'a [u8]) -> Option<&'a [u8]> {
    let trimmed = text.trim_ascii_start();
    let quote = trimmed.first().copied().filter(|byte| matches!(byte, b'"' | b'\''));
    let body = if quote.is_some() { &trimmed[1..] } else { trimmed };
    if trimmed.is_empty() {
        return None;
    }
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        let ends = quote.map_or(byte.is_ascii_whitespace(), |quote| byte == quote);
        if ends {
            break;
        }
        let hidden = byte == b'\\' && body.get(at + 1).is_some_and(u8::is_ascii_whitespace);
        at += if hidden { 2 } else { 1 };
    }
    let at = at.min(body.len());
    *text = &body[(at + 1).min(body.len())..];
    Some(&body[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &Line) -> (usize, &str, &str) {
        let str = |bytes| std::str::from_utf8(bytes).unwrap();
        (line.number, str(&line.name), str(&line.rest))
    }

    #[test]
    fn lines_are_joined_and_numbered() {
        let file =
            b"\xEF\xBB\xBF# a \\\n comment\n\n  Header set \\\r\n  A b  \r\n<If \"x\">\nEnd \\";
        let lines = lines(file).unwrap();
        let found: Vec<_> = lines.iter().map(text).collect();
        assert_eq!(found, [(4, "Header", "set   A b"), (6, "<If", "\"x\">"), (7, "End", "")]);
    }

    #[test]
    fn long_lines_are_refused() {
        let file = [&b"x\n"[..], &[b'a'; 9000]].concat();
        assert_eq!(lines(&file), Err(TooLong { number: 2 }));
    }

    #[test]
    fn words_and_quotes() {
        let found = words(br#"a "b \"c\" \d" 'e "f"' \\.g "open"#);
        let expected: [&[u8]; 5] = [b"a", br#"b "c" \d"#, br#"e "f""#, br"\.g", b"open"];
        assert_eq!(found, expected);
    }

    #[test]
    fn raw_words_keep_backslashes() {
        let mut rest: &[u8] = br#"^a\ b\\.c$ "d e" [L]"#;
        assert_eq!(raw_word(&mut rest), Some(&br"^a\ b\\.c$"[..]));
        assert_eq!(raw_word(&mut rest), Some(&b"d e"[..]));
        assert_eq!(raw_word(&mut rest), Some(&b"[L]"[..]));
        assert_eq!(raw_word(&mut rest), None);
    }
}
