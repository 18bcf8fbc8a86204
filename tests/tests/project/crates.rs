//! The size of the crates, which ARCHITECTURE.md limits.

use std::collections::BTreeMap;

use sendoff_tests::repository::files;

/// Most lines of a crate, its tests included.
const MOST: usize = 8000;

#[test]
fn no_crate_has_more_lines_than_the_limit() {
    let all = files();
    let document = all.iter().find(|file| file.path == "ARCHITECTURE.md").unwrap();
    assert!(document.text.contains("A crate has at most 8,000 lines"));
    let mut lines = BTreeMap::<&str, usize>::new();
    for file in all.iter().filter(|file| file.has_ending(&["rs"])) {
        let Some(path) = file.path.strip_prefix("crates/") else { continue };
        let (name, _) = path.split_once('/').unwrap();
        *lines.entry(name).or_default() += file.text.lines().count();
    }
    assert!(lines.len() > 50, "the crates are found");
    lines.retain(|_, count| *count > MOST);
    assert!(lines.is_empty(), "above {MOST} lines: {lines:?}");
}
