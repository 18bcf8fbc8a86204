//! Reports about wrong configurations: each file in `broken/` has cases of an input and its report.
//! `renew` writes the reports again; read them before they are committed.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::machine::{CONFIG, Fake};
use sendoff_settings::{load, resolve};

/// Begins a case, before its title.
const CASE: &str = "=== ";
/// Stands between an input and its report.
const REPORT: &str = "--- report\n";

struct Case {
    title: String,
    input: String,
    report: String,
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn cases(file: &Path) -> Vec<Case> {
    let text = format!("\n{}", std::fs::read_to_string(file).unwrap());
    let start = format!("\n{CASE}");
    text.split(&start)
        .skip(1)
        .map(|case| {
            let (title, rest) = case.split_once('\n').unwrap_or((case, ""));
            let (input, report) = rest.split_once(REPORT).unwrap_or((rest, ""));
            let mut input = input.to_owned();
            if !input.is_empty() && !input.ends_with('\n') {
                input.push('\n');
            }
            Case { title: title.to_owned(), input, report: report.trim_end().to_owned() }
        })
        .collect()
}

/// The report of `sendoff check` on a file, and true if the file can be used.
fn report(input: &str) -> (String, bool) {
    let machine = Fake { config: input.to_owned() };
    let mut loaded = load(Path::new(CONFIG), &machine);
    let config = resolve(&loaded.top, &loaded.sources, &machine, &mut loaded.problems);
    assert_eq!(config.is_none(), loaded.problems.errors() > 0);
    (loaded.problems.report(&loaded.sources, false).trim_end().to_owned(), config.is_some())
}

#[test]
fn reports_are_those_that_were_reviewed() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for file in files() {
        for Case { title, input, report: reviewed } in cases(&file) {
            count += 1;
            let (report, is_usable) = report(&input);
            assert!(!report.is_empty(), "{title}: nothing is wrong with it");
            assert_eq!(is_usable, !report.contains('×'), "{title}");
            if report != reviewed {
                wrong.push(format!("{}: {title}\n{report}\n", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 100, "{count} cases");
}

#[test]
#[ignore = "writes the reports again"]
fn renew() {
    for file in files() {
        let mut text = String::new();
        for Case { title, input, .. } in cases(&file) {
            let report = report(&input).0;
            writeln!(text, "{CASE}{title}\n{input}{REPORT}{report}\n").unwrap();
        }
        std::fs::write(&file, text).unwrap();
    }
}
