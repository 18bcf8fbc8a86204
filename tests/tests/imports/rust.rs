//! Imports between the files of one crate. Cargo sees to it that crates import each other one way.

use std::collections::{BTreeMap, BTreeSet};

use sendoff_tests::repository::SourceFile;

use crate::Imports;

/// A module that is a file.
#[derive(Debug, Default)]
struct Module {
    file: String,
    /// Its source, without comments, strings and tests.
    text: String,
    /// Modules declared here, except for tests.
    children: BTreeSet<String>,
    uses: Vec<Use>,
}

/// One name brought into scope; `*` for all of a module.
#[derive(Debug)]
struct Use {
    name: String,
    /// From the root of the crate, or empty if it is of another crate.
    path: Vec<String>,
    is_public: bool,
}

/// Modules by their path from the root of the crate.
type Modules = BTreeMap<Vec<String>, Module>;

pub(crate) fn imports(all: &[SourceFile]) -> Imports {
    let roots = all.iter().filter(|file| {
        let is_root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
        is_root && !file.path.contains("/tests/")
    });
    let mut imports = Imports::new();
    for root in roots {
        let mut modules = Modules::new();
        load(all, &root.path, &[], &mut modules);
        for (path, module) in &modules {
            imports
                .entry(module.file.clone())
                .or_default()
                .extend(of_module(path, module, &modules));
        }
    }
    imports
}

/// Reads a file and the modules that it declares.
fn load(all: &[SourceFile], file: &str, path: &[String], modules: &mut Modules) {
    let Some(source) = all.iter().find(|source| source.path == file) else { return };
    let text = plain(&source.text);
    let (folder, name) = file.rsplit_once('/').unwrap();
    let inside = match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        name => format!("{folder}/{}", name.trim_end_matches(".rs")),
    };
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    for (at, _) in text.match_indices("mod ") {
        let starts_word = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let declared = text[at + 4..].split_once(';').map(|(name, _)| name);
        let Some(child) = declared.filter(|name| starts_word && is_name(name)) else { continue };
        let candidates = [format!("{inside}/{child}.rs"), format!("{inside}/{child}/mod.rs")];
        if let Some(file) = candidates.iter().find(|file| all.iter().any(|one| one.path == **file))
        {
            module.children.insert(child.to_owned());
            load(all, file, &[path, &[child.to_owned()]].concat(), modules);
        }
    }
    let is_declaration = |line: &&str| line.contains("mod ") && line.ends_with(';');
    let text: String = text
        .lines()
        .filter(|line| !is_declaration(line))
        .map(|line| line.to_owned() + "\n")
        .collect();
    (module.uses, module.text) = take_uses(&text, path, &module.children);
    modules.insert(path.to_vec(), module);
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Without comments, without the contents of strings, and up to the tests, which stand at the end.
fn plain(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut skips_item = false;
    for line in source.lines() {
        if line.starts_with("#[cfg(test)]") {
            skips_item = true;
            continue;
        }
        if skips_item {
            // `mod tests;` and the like; a block goes on to the end of the file.
            if line.ends_with('{') {
                break;
            }
            skips_item = line.starts_with('#');
            continue;
        }
        let quoted = line.split("//").next().unwrap().split('"').step_by(2);
        text.push_str(&quoted.collect::<Vec<_>>().join("\"\""));
        text.push('\n');
    }
    text
}

/// The `use` declarations, and the text without them.
fn take_uses(text: &str, module: &[String], children: &BTreeSet<String>) -> (Vec<Use>, String) {
    let (mut uses, mut rest, mut in_use) = (Vec::new(), String::new(), None::<(String, bool)>);
    for line in text.lines() {
        let bare = line.trim_start();
        if in_use.is_none() {
            let (visibility, tail) = match bare.split_once("use ") {
                Some((before, tail)) => (before.trim(), tail),
                None => ("none", ""),
            };
            let is_restricted = visibility.starts_with("pub(") && visibility.ends_with(')');
            if visibility.is_empty() || visibility == "pub" || is_restricted {
                in_use = Some((tail.to_owned(), !visibility.is_empty()));
            } else {
                rest.push_str(line);
                rest.push('\n');
                continue;
            }
        } else if let Some((tree, _)) = &mut in_use {
            tree.push_str(bare);
        }
        if let Some((tree, is_public)) = in_use.take_if(|(tree, _)| tree.ends_with(';')) {
            for (path, name) in flatten(tree.trim_end_matches(';')) {
                let path = absolute(&path, module, children);
                uses.push(Use { name, path, is_public });
            }
        }
    }
    (uses, rest)
}

/// `a::{b, c::d as e}` as paths with the names that they bring.
fn flatten(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((prefix, group)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path: Vec<_> = path.split("::").map(|part| part.trim().to_owned()).collect();
        let name = if name.is_empty() { path.last().unwrap().clone() } else { name.to_owned() };
        return vec![(path, name)];
    };
    let prefix: Vec<_> =
        prefix.split("::").filter(|part| !part.trim().is_empty()).map(str::to_owned).collect();
    let (mut all, mut depth, mut start) = (Vec::new(), 0, 0);
    let group = group.strip_suffix('}').unwrap_or(group);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                for (path, name) in
                    flatten(&group[start..at]).into_iter().filter(|(_, name)| !name.is_empty())
                {
                    let is_self = path == ["self"];
                    let path = if is_self { prefix.clone() } else { [&prefix[..], &path].concat() };
                    let name = if is_self { prefix.last().unwrap().clone() } else { name };
                    all.push((path, name));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    all
}

/// A path from the root of the crate; empty if it begins with another crate or a name that is not known here.
fn absolute(path: &[String], module: &[String], children: &BTreeSet<String>) -> Vec<String> {
    let (mut base, mut rest) = (module.to_vec(), path);
    match path[0].as_str() {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        first if children.contains(first) => {}
        _ => return Vec::new(),
    }
    [&base[..], rest].concat()
}

/// The files that a module imports.
fn of_module(path: &[String], module: &Module, modules: &Modules) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for import in module.uses.iter().filter(|import| !import.path.is_empty()) {
        // A re-export is an import if the module itself uses the name.
        if !import.is_public || has_word(&module.text, &import.name) {
            files.extend(definer(&import.path, modules, 0));
        }
    }
    for written in paths(&module.text) {
        let mut full = absolute(&written, path, &module.children);
        if full.is_empty() {
            let alias = module.uses.iter().find(|import| import.name == written[0]);
            let Some(alias) = alias.filter(|alias| !alias.path.is_empty()) else { continue };
            full = [&alias.path[..], &written[1..]].concat();
        }
        files.extend(definer(&full, modules, 0));
    }
    files.remove(&module.file);
    files
}

/// The file that defines an item; none for a module, of which nothing is used yet.
fn definer(path: &[String], modules: &Modules, depth: usize) -> Option<String> {
    let known = (0..=path.len()).rev().find(|len| modules.contains_key(&path[..*len]))?;
    let (module, rest) = (&modules[&path[..known]], &path[known..]);
    let item = rest.first()?;
    let again =
        |import: &Use| definer(&[&import.path[..], &rest[1..]].concat(), modules, depth + 1);
    if depth < 8 && item != "*" {
        let mut uses = module.uses.iter().filter(|import| !import.path.is_empty());
        if let Some(import) = uses.clone().find(|import| import.name == *item) {
            return again(import);
        }
        if !defines(&module.text, item)
            && let Some(all) = uses.find(|import| import.name == "*")
        {
            let from = &all.path[..all.path.len() - 1];
            return definer(&[from, rest].concat(), modules, depth + 1);
        }
    }
    Some(module.file.clone())
}

fn defines(text: &str, item: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union"];
    kinds.iter().any(|kind| has_word(text, &format!("{kind} {item}")))
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

/// Everything of the form `a::b`, with at least two names.
fn paths(text: &str) -> Vec<Vec<String>> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let paths = words.filter(|word| word.contains("::") && !word.starts_with("::"));
    let parts = paths
        .map(|path| path.split("::").filter(|part| is_name(part)).map(str::to_owned).collect());
    parts.filter(|path: &Vec<String>| path.len() > 1).collect()
}

#[test]
fn rust_imports_are_found() {
    let files = [
        (
            "c/src/lib.rs",
            "mod a;\npub mod b;\n#[cfg(test)]\nmod tests;\npub use b::{\n    inner::Deep,\n    Thing,\n};\n",
        ),
        (
            "c/src/a.rs",
            "use std::io;\nuse crate::{Deep, b};\nfn f() { b::inner::g(); } // b::Thing\n",
        ),
        (
            "c/src/b/mod.rs",
            "pub mod inner;\npub struct Thing;\nuse inner::Deep as D;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n",
        ),
        (
            "c/src/b/inner.rs",
            "pub struct Deep(super::Thing);\npub fn g() { let _ = \"crate::a::f\"; }\n",
        ),
        ("c/src/tests.rs", "use crate::a::f;\n"),
    ];
    let files =
        files.map(|(path, text)| SourceFile { path: path.to_owned(), text: text.to_owned() });
    let found = imports(&files);
    let of = |file: &str| found[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("c/src/lib.rs"), [""; 0]);
    assert_eq!(of("c/src/a.rs"), ["c/src/b/inner.rs"]);
    assert_eq!(of("c/src/b/mod.rs"), ["c/src/b/inner.rs"]);
    assert_eq!(of("c/src/b/inner.rs"), ["c/src/b/mod.rs"]);
    assert!(!found.contains_key("c/src/tests.rs"));
}
