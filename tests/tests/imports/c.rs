//! Imports between C files.

use std::collections::{BTreeMap, BTreeSet};

use sendoff_tests::repository::SourceFile;

use crate::Imports;

pub(crate) fn imports(all: &[SourceFile]) -> Imports {
    let sources: Vec<_> = all.iter().filter(|file| file.has_ending(&["c", "h"])).collect();
    let mut definers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in &sources {
        for name in functions(&file.text) {
            definers.entry(name).or_default().insert(&file.path);
        }
    }
    let mut imports = Imports::new();
    for file in &sources {
        let found = imports.entry(file.path.clone()).or_default();
        for name in included(&file.text) {
            let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            // Beside the file, else the only one of that name.
            let beside = format!("{folder}/{name}");
            let mut named = all.iter().filter(|other| other.path.ends_with(&format!("/{name}")));
            let target = match sources.iter().find(|other| other.path == beside) {
                Some(beside) => Some(&beside.path),
                None => named.next().filter(|_| named.next().is_none()).map(|other| &other.path),
            };
            found.extend(target.cloned());
        }
        // A header declares functions, it does not call them.
        for word in words(&file.text).into_iter().filter(|_| file.has_ending(&["c"])) {
            // A name that two programs define, such as `main`, identifies no file.
            if let Some(definers) = definers.get(word).filter(|definers| definers.len() == 1) {
                found.extend(definers.iter().map(|&definer| definer.to_owned()));
            }
        }
        found.remove(&file.path);
    }
    imports
}

fn included(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("#include \""));
    lines.filter_map(|rest| rest.split('"').next())
}

/// Functions that a file defines for others: in K&R style, the brace stands alone behind the last line of the declarator.
fn functions(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (brace, _) in text.match_indices("\n{") {
        let start = text[..brace].rfind(['}', ';', '/', '#']).map_or(0, |at| at + 1);
        let declarator = text[start..brace].trim_start();
        let Some((head, _)) = declarator.split_once('(') else { continue };
        let name = head.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap();
        let is_static = head.split_whitespace().any(|word| word == "static");
        // The Zend macros (`PHP_FUNCTION(name)`) are in capitals.
        if !is_static && name.chars().any(|c| c.is_ascii_lowercase()) {
            found.push(name);
        }
    }
    found
}

/// Words outside of comments.
fn words(text: &str) -> BTreeSet<&str> {
    let code = text.split("/*").enumerate();
    let code = code.map(|(at, part)| match part.split_once("*/") {
        Some((_, code)) if at > 0 => code,
        _ => part,
    });
    code.flat_map(|part| part.split(|c: char| !(c.is_alphanumeric() || c == '_'))).collect()
}

#[test]
fn c_imports_are_found() {
    let files = [
        (
            "p/a.c",
            "#include \"a.h\"\n#include <stdio.h>\n\n/* calls c_one */\nint\na_one(int x)\n{\n\treturn b_one(x);\n}\n",
        ),
        ("p/a.h", "int a_one(int x);\n"),
        (
            "p/b.c",
            "#include \"a.h\"\n\nstatic int hidden(void)\n{\n\treturn 1;\n}\n\nint b_one(int x)\n{\n\treturn hidden();\n}\n",
        ),
        ("p/c.c", "void c_one(void)\n{\n\thidden();\n}\n"),
    ];
    let files =
        files.map(|(path, text)| SourceFile { path: path.to_owned(), text: text.to_owned() });
    let found = imports(&files);
    let of = |file: &str| found[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("p/a.c"), ["p/a.h", "p/b.c"]);
    assert_eq!(of("p/a.h"), [""; 0]);
    assert_eq!(of("p/b.c"), ["p/a.h"]);
    assert_eq!(of("p/c.c"), [""; 0]);
}
