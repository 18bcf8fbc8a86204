//! Sections, files and types to which documents and comments refer exist.
//!
//! A section is cited as "docs/NAME.md §N", "NAME.md, section N", or, within a document, "section
//! N". The section must exist and be about the same thing as the citation: the lines around the
//! citation, or the path of the file, share a word with the section's title, a word that the
//! section uses more than the rest of the document, or the name of a record.

use std::collections::{BTreeMap, HashSet};

use sendoff_tests::repository::{files, root};

/// This file, whose tests contain invented references.
const THIS: &str = "tests/tests/project/documents.rs";

const CODE: [&str; 9] = ["rs", "c", "h", "php", "phpt", "java", "sh", "toml", "stub"];

/// The numbered sections of a document.
type Sections<'a> = BTreeMap<u32, Section<'a>>;

struct Section<'a> {
    title: &'a str,
    text: String,
}

impl Section<'_> {
    /// Words of the title, and words that the section uses often and the other sections seldom.
    fn words(&self, all: &Sections<'_>) -> HashSet<String> {
        let mut telling = words(&self.text);
        telling.retain(|word| count(&self.text, word) >= 3 && self.is_typical(word, all));
        telling.extend(words(self.title));
        telling
    }

    /// Names of records and emphasised terms that are the section's own.
    fn terms(&self, all: &Sections<'_>) -> HashSet<&str> {
        let mut own = terms(&self.text);
        own.retain(|term| self.is_typical(&term.to_lowercase(), all));
        own
    }

    /// True if at least a third of all uses of a word, in lower case, are in this section.
    fn is_typical(&self, word: &str, all: &Sections<'_>) -> bool {
        3 * count(&self.text, word) >= all.values().map(|section| count(&section.text, word)).sum()
    }
}

fn count(text: &str, word: &str) -> usize {
    text.to_lowercase().matches(word).count()
}

fn sections(text: &str) -> Sections<'_> {
    let mut all = Sections::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let parts = heading.split_once(". ");
            let numbered = parts.and_then(|(number, title)| Some((number.parse().ok()?, title)));
            current = numbered.map(|(number, title)| {
                all.insert(number, Section { title, text: String::new() });
                number
            });
        } else if let Some(section) = current.and_then(|number| all.get_mut(&number)) {
            section.text.push_str(line);
            section.text.push('\n');
        }
    }
    all
}

/// A reference to a section of one of our documents.
#[derive(Debug, PartialEq)]
struct Citation<'a> {
    /// The document's name without its folder; empty for the citing document itself.
    document: &'a str,
    number: u32,
    /// Its offset in the citing file, in bytes.
    at: usize,
}

/// The text to which a bare "§7" or "section 7" refers.
#[derive(Clone, Copy, PartialEq)]
enum Bare {
    /// In code: the standard that the file implements.
    Standard,
    /// In a document with numbered sections: its own.
    Own,
    /// In another document: the document that the paragraph has named last.
    Named,
}

/// All references to our documents in a text.
fn citations(text: &str, bare: Bare) -> Vec<Citation<'_>> {
    let (mut found, mut named, mut end_of_name) = (Vec::new(), "", usize::MAX);
    for (at, _) in text.char_indices() {
        let rest = &text[at..];
        if rest.starts_with("\n\n") {
            named = "";
        } else if rest.starts_with(".md") {
            let start = text[..at]
                .rfind(|c: char| !(c.is_alphanumeric() || c == '-'))
                .map_or(0, |at| at + 1);
            (named, end_of_name) = (&text[start..at + 3], at + 3);
        } else if let Some(number) = section_number(rest) {
            let between = text.get(end_of_name..at).unwrap_or("-");
            let follows_name =
                between.chars().all(|c| "`)], ".contains(c) || "andto§0123456789".contains(c));
            let last = text[..at]
                .trim_end()
                .rsplit(|c: char| c.is_whitespace() || c == '(')
                .next()
                .unwrap();
            let of_a_standard = last == "FastCGI"
                || (!last.is_empty() && last.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
            if follows_name || (bare != Bare::Standard && !of_a_standard) {
                let document = if follows_name || bare == Bare::Named { named } else { "" };
                found.push(Citation { document, number, at });
            }
        }
    }
    found
}

/// The number in "§7" or "section 7"; `None` for subsections, which our documents do not have.
fn section_number(text: &str) -> Option<u32> {
    let rest = ["§", "section ", "Section ", "sections "]
        .iter()
        .find_map(|word| text.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let is_whole = !rest[end..]
        .strip_prefix('.')
        .is_some_and(|more| more.starts_with(|c: char| c.is_ascii_digit()));
    rest[..end].parse().ok().filter(|_| is_whole)
}

/// Words of four letters or more, in small letters and without an "s" at the end.
fn words(text: &str) -> HashSet<String> {
    let all = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() >= 4);
    all.map(|word| word.to_lowercase().trim_end_matches('s').to_owned()).collect()
}

/// Names of records and other words in capitals or emphasis.
fn terms(text: &str) -> HashSet<&str> {
    let capital =
        |word: &&str| word.len() >= 4 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let is_phrase = |term: &&str| {
        let plain = term.chars().all(|c| c.is_alphabetic() || c == ' ');
        plain && term.trim() == *term && term.len() >= 4
    };
    let emphasised = text.split('*').skip(1).step_by(2).filter(is_phrase);
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(capital)
        .chain(emphasised)
        .collect()
}

fn lines_around(text: &str, at: usize) -> &str {
    let start = text[..at].rmatch_indices('\n').nth(2).map_or(0, |(at, _)| at);
    let end = text[at..].match_indices('\n').nth(2).map_or(text.len(), |(end, _)| at + end);
    &text[start..end]
}

fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[test]
fn cited_sections_exist_and_are_about_what_cites_them() {
    let all = files();
    let documents: BTreeMap<_, _> = (all.iter().filter(|file| file.has_ending(&["md"])))
        .map(|file| (file.path.rsplit('/').next().unwrap(), sections(&file.text)))
        .collect();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for file in all.iter().filter(|file| file.path != THIS) {
        let bare = match file.has_ending(&["md"]) {
            false => Bare::Standard,
            true if sections(&file.text).is_empty() => Bare::Named,
            true => Bare::Own,
        };
        for citation in citations(&file.text, bare) {
            let name = match citation.document {
                "" => file.path.rsplit('/').next().unwrap(),
                name => name,
            };
            let place = format!(
                "{}:{}: {name} §{}",
                file.path,
                line(&file.text, citation.at),
                citation.number
            );
            let sections = documents.get(name);
            let section = sections.and_then(|all| Some((all, all.get(&citation.number)?)));
            let Some((all, section)) = section else {
                wrong.push(format!("{place} does not exist"));
                continue;
            };
            count += 1;
            let around = lines_around(&file.text, citation.at);
            let shared = section.terms(all).into_iter().any(|term| around.contains(term));
            if !shared && words(&format!("{} {around}", file.path)).is_disjoint(&section.words(all))
            {
                wrong.push(format!("{place} is about something else: {}", section.title));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "only {count} citations: were they all found?");
}

/// Text between single backticks, outside of code blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let outside = text.split("```").step_by(2);
    outside
        .flat_map(|text| text.split('`').skip(1).step_by(2))
        .filter(|quoted| !quoted.contains('\n'))
}

/// The path from the root for `target`, a path relative to the folder of the file `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next())
}

/// Text that looks like the path of a file in Rust or C.
fn is_path(quoted: &str) -> bool {
    let is_plain = quoted.chars().all(|c| c.is_alphanumeric() || "/_-.".contains(c));
    let ends = quoted.rsplit_once('.');
    is_plain && ends.is_some_and(|(name, ending)| !name.is_empty() && ["rs", "c"].contains(&ending))
}

/// Paths of files that exist nowhere, among the quoted texts of a document's line. A path is the
/// repository's, or relative to the folder of the document, or, for `crates/server/src/front.rs`,
/// `server/front.rs`. A name alone is a file in the folder of the path before it.
fn unknown_files<'t>(all: &HashSet<&str>, document: &str, line: &'t str) -> Vec<&'t str> {
    let find = |path: &str| {
        let full = path.split_once('/').map(|(name, rest)| format!("crates/{name}/src/{rest}"));
        let tests = format!("crates/{path}");
        let candidates = [Some(path.to_owned()), Some(resolve(document, path)), full, Some(tests)];
        candidates.into_iter().flatten().find(|path| all.contains(&**path))
    };
    let mut folder = String::new();
    let mut unknown = Vec::new();
    for path in quoted(line).filter(|quoted| is_path(quoted)) {
        let beside = || Some(format!("{folder}/{path}")).filter(|path| all.contains(&**path));
        match find(path).or_else(beside) {
            Some(found) => found.rsplit_once('/').unwrap_or_default().0.clone_into(&mut folder),
            None => unknown.push(path),
        }
    }
    unknown
}

#[test]
fn files_that_documents_name_exist() {
    let all = files();
    let paths: HashSet<&str> = all.iter().map(|file| &*file.path).collect();
    let mut wrong = Vec::new();
    for file in &all {
        if file.has_ending(&["md"]) {
            for target in
                links(&file.text).filter(|target| !target.contains(':') && !target.is_empty())
            {
                if !root().join(resolve(&file.path, target)).exists() {
                    wrong.push(format!("{}: {target}", file.path));
                }
            }
            for line in file.text.lines() {
                let unknown = unknown_files(&paths, &file.path, line).into_iter();
                wrong.extend(unknown.map(|path| format!("{}: {path}", file.path)));
            }
        }
        // `docs/NAME.md` in comments.
        for (at, _) in file.text.match_indices("docs/").filter(|_| file.path != THIS) {
            let rest = &file.text[at..];
            let end = rest
                .find(|c: char| !(c.is_alphanumeric() || "/-.".contains(c)))
                .unwrap_or(rest.len());
            let path = rest[..end].trim_end_matches('.');
            if path.ends_with(".md") && !path.contains("NAME") && !root().join(path).exists() {
                wrong.push(format!("{}: {path}", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "no such file:\n{}", wrong.join("\n"));
}

/// True for names such as `HeadDecoder`, but not for `Content` or `SENDOFF_ACCEPT`: at least two
/// capitals, each before a small letter.
fn is_type(text: &str) -> bool {
    let small_follows = |pair: &[u8]| pair[0].is_ascii_uppercase() && pair[1].is_ascii_lowercase();
    text.bytes().all(|b| b.is_ascii_alphanumeric())
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.as_bytes().windows(2).filter(|pair| small_follows(pair)).count() >= 2
}

#[test]
fn types_that_documents_name_exist() {
    let all = files();
    let code: HashSet<&str> = (all.iter().filter(|file| file.has_ending(&CODE)))
        .flat_map(|file| file.text.split(|c: char| !(c.is_alphanumeric() || c == '_')))
        .collect();
    let mut wrong = Vec::new();
    for file in all.iter().filter(|file| file.has_ending(&["md"])) {
        let unknown = quoted(&file.text).filter(|text| is_type(text) && !code.contains(text));
        wrong.extend(unknown.map(|name| format!("{}: {name}", file.path)));
    }
    assert!(wrong.is_empty(), "no such type:\n{}", wrong.join("\n"));
}

/// `tools/test-heavy` skips tests by these endings if root does not run it.
#[test]
fn tests_that_need_root_say_so_in_their_names() {
    let mut wrong = Vec::new();
    for file in files() {
        if !file.path.starts_with("tests/tests/") || file.path == THIS {
            continue;
        }
        for after in file.text.split("needs root: ").skip(1) {
            let name = after.split("fn ").nth(1).and_then(|text| text.split('(').next());
            let name = name.unwrap_or_default();
            if !["_as_root", "_in_control_groups"].iter().any(|ending| name.ends_with(ending)) {
                wrong.push(format!("{}: {name}", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "does not end in `_as_root`:\n{}", wrong.join("\n"));
}

#[test]
fn references_are_found() {
    let found = |text, bare| {
        let all = citations(text, bare).into_iter();
        all.map(|citation| (citation.document.to_owned(), citation.number)).collect::<Vec<_>>()
    };
    let is = |name: &str, number| (name.to_owned(), number);
    assert_eq!(
        found("// as `docs/a-b.md` §2, §3 has it (§9)", Bare::Standard),
        [is("a-b.md", 2), is("a-b.md", 3)]
    );
    assert_eq!(found(" * docs/a.md, section 8. RFC 9110 §5", Bare::Standard), [is("a.md", 8)]);
    assert_eq!(
        found("[a.md](docs/a.md) §4, and (§7)", Bare::Named),
        [is("a.md", 4), is("a.md", 7)]
    );
    assert_eq!(
        found("(section 4). RFC 9110 §5.2, RFC 3875 §4, FastCGI §5, FastCGI 1.0, §2.1", Bare::Own),
        [is("", 4)]
    );
}

#[test]
fn a_path_is_whole_or_a_name_beside_one() {
    let all = HashSet::from(["crates/a/src/b.rs", "crates/a/src/c/d.rs", "docs/e.c"]);
    let unknown = |line| unknown_files(&all, "docs/page.md", line);
    assert!(unknown("`a/b.rs`, `crates/a/src/b.rs`, then `a/c/d.rs`; `e.c`").is_empty());
    assert!(unknown("`a/c/d.rs`, `d.rs`, and not a path: `rs`").is_empty());
    assert_eq!(unknown("`b.rs`, `c/d.rs`, `a/c/d.rs`, `b.rs`"), ["b.rs", "c/d.rs", "b.rs"]);
}
