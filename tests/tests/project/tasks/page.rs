//! The page: headings with their blocks.

use std::fs;

use sendoff_tests::repository;

/// A section of docs/tasks.md.
pub(super) struct Task {
    pub(super) heading: String,
    /// Its block of TOML.
    pub(super) toml: String,
    /// A request that shows it.
    pub(super) shell: Option<String>,
}

pub(super) fn text() -> String {
    fs::read_to_string(repository::root().join("docs/tasks.md")).unwrap()
}

/// All tasks, in the order of the page.
///
/// # Panics
/// If a task has no block, or two.
pub(super) fn tasks() -> Vec<Task> {
    let page = text();
    let sections = page.split("\n### ").skip(1);
    sections.map(|section| task(section.split("\n## ").next().unwrap())).collect()
}

fn task(section: &str) -> Task {
    let heading = section.lines().next().unwrap().to_owned();
    let block = |language| {
        let mut blocks = blocks(section, language);
        assert!(blocks.len() < 2, "{heading}: two blocks of {language}");
        blocks.pop()
    };
    let toml = block("toml").unwrap_or_else(|| panic!("{heading}: no block of TOML"));
    let shell = block("sh");
    Task { heading, toml, shell }
}

fn blocks(section: &str, language: &str) -> Vec<String> {
    let fence = format!("\n```{language}\n");
    let blocks = section.split(&fence).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}
