//! docs/htaccess.md lists exactly the directives that the parser knows.

use std::collections::BTreeSet;

use sendoff_htaccess::{Effect, directives};

/// The names between backquotes in the second column of a section's table.
fn listed(document: &str, section: &str) -> BTreeSet<String> {
    let start = document.find(&format!("\n## {section}\n")).expect(section);
    let rest = &document[start + 4..];
    let text = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let columns = rows.filter_map(|row| row.split(" | ").nth(1));
    let names = columns.flat_map(|column| column.split('`').skip(1).step_by(2).map(str::to_owned));
    names.collect()
}

#[test]
fn the_tables_list_what_the_parser_knows() {
    let document = include_str!("../../../docs/htaccess.md");
    for (section, effect) in
        [("Obeyed", Effect::Obeyed), ("Ignored", Effect::Ignored), ("Refused", Effect::Refused)]
    {
        let known = directives().filter(|(_, of)| *of == effect).map(|(name, _)| name.to_owned());
        let known: BTreeSet<String> = known.collect();
        assert_eq!(listed(document, section), known, "{section}");
        assert!(!known.is_empty());
    }
}

#[test]
fn no_directive_is_listed_twice() {
    let mut names: Vec<_> = directives().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
