//! Groups of expressions in texts: `$1` to `$9`.

use toml::Value;

use crate::document::Section;
use crate::expression::groups;

/// The keys of a route whose texts may name groups.
const KEYS: [&str; 7] = [
    "redirect",
    "rewrite",
    "try_files",
    "respond",
    "params",
    "request_headers",
    "response_headers",
];

impl Section {
    /// True if a text of the route names a group that its expression does not have.
    #[must_use]
    pub fn names_missing_group(&self) -> bool {
        let known = self.known_groups();
        let mut names = false;
        let mut copy = self.clone();
        copy.each_text(&mut |text| names |= without_missing(text, known) != *text);
        names
    }

    /// Makes texts of the route empty where they name groups that its expression does not have.
    pub fn empty_missing_groups(&mut self) {
        let known = self.known_groups();
        self.each_text(&mut |text| *text = without_missing(text, known));
    }

    fn known_groups(&self) -> usize {
        self.texts("match").first().map_or(0, |expression| groups(expression))
    }

    fn each_text(&mut self, act: &mut dyn FnMut(&mut String)) {
        for (_, value) in self.keys_mut().filter(|(key, _)| KEYS.contains(key)) {
            texts(value, act);
        }
    }
}

fn texts(value: &mut Value, act: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => act(text),
        Value::Array(values) => values.iter_mut().for_each(|value| texts(value, act)),
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| texts(value, act)),
        _ => {}
    }
}

/// A text without the groups above a number.
fn without_missing(text: &str, known: usize) -> String {
    let mut made = String::new();
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        let next = signs.peek().copied();
        let group = next.and_then(|next| next.to_digit(10)).filter(|group| *group > 0);
        match (sign, next, group) {
            ('$', Some('$'), _) => {
                signs.next();
                made.push_str("$$");
            }
            ('$', _, Some(group)) if usize::try_from(group).is_ok_and(|group| group > known) => {
                signs.next();
            }
            (sign, ..) => made.push(sign),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use crate::Section;

    #[test]
    fn groups_without_an_expression_are_empty() {
        let mut route = Section::new("site.route");
        route.set("match", "^/(a)(?:b)");
        route.set("rewrite", "/$1/$2/$$2/$path");
        assert!(route.names_missing_group());
        route.empty_missing_groups();
        assert_eq!(route.texts("rewrite"), ["/$1//$$2/$path"]);
        assert!(!route.names_missing_group());
    }
}
