//! Media types by the ending of a file name.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The table: each line has a type and its endings.
const TABLE: &str = include_str!("mime.types");

/// The type of files whose ending is not in the table.
pub const UNKNOWN: &str = "application/octet-stream";

static BY_ENDING: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let types = lines.filter_map(|line| line.split_once('\t'));
    types.flat_map(|(kind, endings)| endings.split(' ').map(move |ending| (ending, kind))).collect()
});

/// The type of an ending, which must be in lower case and without its dot.
#[must_use]
pub fn of_ending(ending: &str) -> Option<&'static str> {
    BY_ENDING.get(ending).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_type_and_each_ending_has_one() {
        let mut endings = Vec::new();
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (kind, of_kind) = line.split_once('\t').unwrap_or_else(|| panic!("{line}"));
            assert!(kind.split_once('/').is_some_and(|(_, name)| !name.is_empty()), "{line}");
            for ending in of_kind.split(' ') {
                assert!(!ending.is_empty() && ending == ending.to_ascii_lowercase(), "{line}");
                endings.push(ending);
            }
        }
        assert_eq!(BY_ENDING.len(), endings.len(), "an ending stands twice");
    }

    /// The tables of the servers that tests compare with, as they are installed here.
    #[test]
    fn types_are_those_of_nginx_and_then_of_apache() {
        let reasons = [("js", "text/javascript"), ("bmp", "image/bmp")];
        let nginx = std::fs::read_to_string("/etc/nginx/mime.types").unwrap();
        let of_nginx = |line: &str| {
            let mut words = line.trim().strip_suffix(';')?.split_whitespace().map(str::to_owned);
            Some((words.next()?, words.collect::<Vec<_>>()))
        };
        let mut known = Vec::new();
        for (kind, endings) in nginx.lines().filter_map(of_nginx) {
            for ending in endings {
                let differs = reasons.iter().find(|(of, _)| *of == ending);
                let expected = differs.map_or(&*kind, |(_, other)| other);
                assert_eq!(of_ending(&ending), Some(expected), "{ending}");
                known.push(ending);
            }
        }
        assert!(known.len() > 90, "{known:?}");
        for (ending, kind) in [
            ("woff", "font/woff"),
            ("pot", "text/plain"),
            ("mjs", "text/javascript"),
            ("map", "application/json"),
            ("webmanifest", "application/manifest+json"),
        ] {
            assert_eq!(of_ending(ending), Some(kind), "{ending}");
        }
        assert_eq!(of_ending("nothing-known"), None);
    }
}
