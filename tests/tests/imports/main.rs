//! Imports point one way: no file needs, directly or through others, a file that needs it.
//!
//! Rust: file A imports file B if A names an item that B defines, in a `use` or in a path, also through a re-export. That a
//! parent declares a module (`mod child;`) or only re-exports its items is no import; a child that uses its parent's items is
//! one. C: file A imports file B if A includes B, or names a function that B defines.
//!
//! What it does not see: names that macros make; method calls, which need no import of the file with the `impl`; what follows
//! the first `#[cfg(test)]` block of a file, and the rest of a line after `//` in a string; C functions reached through pointers
//! or macros, C data; calls from Rust to C and back. It may take a line in the middle of a long string for code.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod c;
mod rust;

use std::collections::{BTreeMap, BTreeSet};

use sendoff_tests::repository::files;

/// Which files each file imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Files that import each other in a circle, each circle and all circles sorted.
fn circles(imports: &Imports) -> BTreeSet<BTreeSet<&str>> {
    let reached_from = |start: &str| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![start.to_owned()]);
        while let Some(file) = next.pop() {
            for import in imports.get(&file).into_iter().flatten() {
                if reached.insert(import.clone()) {
                    next.push(import.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&str, _> =
        imports.keys().map(|file| (file.as_str(), reached_from(file))).collect();
    let circle_of = |file: &str| {
        let back = |other: &&str| reached[file].contains(*other) && reached[other].contains(file);
        reached.keys().copied().filter(back).collect::<BTreeSet<&str>>()
    };
    reached.keys().map(|file| circle_of(file)).filter(|circle| circle.len() > 1).collect()
}

/// The arrows within a circle.
fn describe(circle: &BTreeSet<&str>, imports: &Imports) -> String {
    let mut text = format!("a circle of {} files:\n", circle.len());
    for file in circle {
        for import in imports[*file].iter().filter(|import| circle.contains(import.as_str())) {
            text.push_str(&format!("  {file} -> {import}\n"));
        }
    }
    text
}

#[test]
fn imports_point_one_way() {
    let all = files();
    let mut imports = rust::imports(&all);
    imports.extend(c::imports(&all));
    let arrows: usize = imports.values().map(BTreeSet::len).sum();
    assert!(arrows > 200, "only {arrows} imports: were they all found?");
    let found: String = circles(&imports).iter().map(|circle| describe(circle, &imports)).collect();
    assert!(found.is_empty(), "{found}");
}

#[test]
fn circles_are_found_and_lines_are_none() {
    let imports: Imports = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f"), ("f", "")]
        .map(|(from, to)| (from.to_owned(), [to.to_owned()].into()))
        .into();
    let found: Vec<Vec<_>> = circles(&imports).into_iter().map(Vec::from_iter).collect();
    assert_eq!(found, [["a", "b", "c"]]);
}
