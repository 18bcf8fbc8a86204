//! Every block of docs/tasks.md is checked, and most of them run: the expectations stand in the
//! modules of the subjects, by the headings of the page.

mod access;
mod addresses;
mod applications;
mod files;
mod machine;
mod operation;
mod page;
mod php;
mod wordpress;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use machine::Machine;
use sendoff_tests::binary;

/// The heading of a task, and the requests that show it.
type Shown = (&'static str, fn(Machine));

/// Tasks whose blocks are checked alone, each with the reason.
const CHECKED: [(&str, &str); 6] = [
    ("Get a certificate from Let's Encrypt", "tests of ACME run with an authority of their own"),
    ("Run more PHP workers", "the number is measured in tests of the operation"),
    ("Give a long script more time", "an hour is too long; tests of deadlines use shorter ones"),
    ("Run a Python application", "needs the package for Python, whose tests run such a pool"),
    ("Run a Ruby application", "needs the gem, whose tests run such a pool"),
    ("Upgrade the server without downtime", "tests of the upgrade replace a program"),
];

fn shown() -> impl Iterator<Item = &'static Shown> {
    [
        addresses::TASKS,
        files::TASKS,
        access::TASKS,
        php::TASKS,
        wordpress::TASKS,
        applications::TASKS,
        operation::TASKS,
    ]
    .into_iter()
    .flatten()
}

/// Runs the tasks of a subject, and lists those that fail.
fn run(tasks: &[Shown]) {
    let fails = |(heading, show): &&Shown| {
        catch_unwind(AssertUnwindSafe(|| show(Machine::of(heading)))).is_err()
    };
    let failed: Vec<_> = tasks.iter().filter(fails).map(|(heading, _)| heading).collect();
    assert!(failed.is_empty(), "these tasks fail: {failed:#?}");
}

#[test]
fn each_task_has_an_expectation_or_a_reason() {
    let on_page: Vec<_> = page::tasks().into_iter().map(|task| task.heading).collect();
    let known: Vec<&str> =
        shown().map(|(heading, _)| *heading).chain(CHECKED.map(|c| c.0)).collect();
    let (page, tests): (BTreeSet<_>, BTreeSet<_>) =
        (on_page.iter().map(String::as_str).collect(), known.iter().copied().collect());
    assert_eq!(page, tests, "headings of the page, and of the tests");
    assert_eq!((page.len(), tests.len()), (on_page.len(), known.len()), "a heading stands twice");
    assert!(page.len() >= 40 && shown().count() >= 30, "{} tasks", page.len());
}

#[test]
fn sendoff_check_finds_no_mistake_in_any_block() {
    let mut wrong = Vec::new();
    for task in page::tasks() {
        let machine = Machine::of(&task.heading);
        let mut check = Command::new(binary());
        check.arg("check").arg("--config").arg(machine.write_config());
        let done = check.output().unwrap();
        if !done.status.success() || !done.stderr.is_empty() {
            let said = String::from_utf8_lossy(&done.stderr);
            wrong.push(format!("{}: {}\n{said}", task.heading, done.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_list_of_contents_names_every_subject() {
    let text = page::text();
    for subject in text.lines().filter_map(|line| line.strip_prefix("## ")) {
        let anchor = subject.to_lowercase().replace(' ', "-");
        assert!(text.contains(&format!("- [{subject}](#{anchor})")), "{subject}");
    }
}
