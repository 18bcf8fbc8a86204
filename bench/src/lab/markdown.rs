//! The report as Markdown: the tables and statements of the HTML page, without its diagrams.

use super::digest::{Cell, Digest, Table};
use super::experiment::Effort;
use super::plot::number;
use super::results::Conditions;
use crate::stats::Spread;
use std::fmt::Write;

/// The page of the experiments.
pub(crate) fn page(digests: &[Digest], effort: Effort) -> String {
    let mut text = String::from(
        "<!-- `make results` writes this page; changes by hand are lost. -->\n\
         # Results of the lab\n\n\
         The experiments of [bench/README.md](../bench/README.md), side by side on one machine. The \
         runs that each section names measured all figures here. Cells show the median of the rounds \
         (smallest to largest). Servers take turns within a round, and ratios are taken within a \
         round. The load generator shares the machine with the servers. Columns in italics are \
         figures of papers, from other machines and other software: compare ratios and shapes, not \
         heights. The web workloads are our own implementation of published parameters; no figure is \
         a SPEC result.",
    );
    text.push_str(effort.warning());
    text.push('\n');
    verdicts(&mut text, digests);
    for digest in digests.iter().filter(|digest| digest.is_measured()) {
        section(&mut text, digest);
    }
    let left: Vec<_> = digests.iter().filter(|digest| !digest.is_measured()).collect();
    if !left.is_empty() {
        text.push_str("\n## Not measured\n\n");
        for digest in left {
            let _infallible = writeln!(text, "- {}: {}", digest.name, escape(digest.about));
        }
    }
    text
}

/// Statements of the papers, over all experiments.
fn verdicts(text: &mut String, digests: &[Digest]) {
    let all = digests
        .iter()
        .flat_map(|digest| digest.verdicts.iter().map(|verdict| (digest.name, verdict)));
    text.push_str(
        "\n## Statements of the papers\n\n\
         A statement holds if the ratio lies within the bound in every round.\n\n\
         | experiment | statement | paper | holds if | here | |\n|---|---|---:|---|---:|---|\n",
    );
    for (name, verdict) in all {
        let _infallible = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} |",
            escape(verdict.says),
            verdict.paper.map_or_else(String::new, |paper| number(&paper)),
            verdict.holds,
            verdict.measured.map_or_else(String::new, range),
            verdict.outcome
        );
    }
}

fn section(text: &mut String, digest: &Digest) {
    let _infallible = write!(text, "\n## {}\n\n{}\n\n", digest.name, escape(digest.about));
    digest.sessions.iter().for_each(|session| conditions(text, session));
    if let Some(noise) = digest.noise {
        let _infallible = writeln!(
            text,
            "- Noise: half of the series spread by more than {:.0} % of their median between the rounds, \
             the widest by {:.0} %.",
            noise.median, noise.max
        );
    }
    digest.tables.iter().for_each(|one| table(text, one));
    list(text, "Failed", &digest.failures);
    list(text, "Not measured", &digest.missing);
}

fn conditions(text: &mut String, session: &Conditions) {
    let _infallible = writeln!(
        text,
        "- {}, {}, load {:.1} at the start; rounds: {}, {} s each",
        escape(&session.date),
        escape(&session.machine),
        session.load,
        session.rounds,
        session.seconds
    );
    for (name, version) in &session.versions {
        let _infallible = writeln!(text, "  - {}: {}", escape(name), escape(version));
    }
}

fn table(text: &mut String, table: &Table) {
    let figure = &table.figure;
    let _infallible = write!(text, "\n### {}\n\n| {} |", escape(figure.title), escape(figure.y));
    for column in &table.columns {
        let _infallible = write!(text, " {} |", escape(&column.name));
    }
    for paper in figure.papers {
        let _infallible = write!(text, " *{}* |", escape(paper.name));
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(table.columns.len() + figure.papers.len()));
    for row in &table.rows {
        let _infallible = write!(text, "\n| {} |", escape(&row.label));
        for cell in &row.cells {
            let shown = match cell {
                Cell::Measured(spread) => range(*spread),
                Cell::Failed => "failed".to_owned(),
                Cell::Missing => String::new(),
            };
            let _infallible = write!(text, " {shown} |");
        }
        for paper in &row.papers {
            let shown = paper.map_or_else(String::new, |paper| format!("*{}*", number(&paper)));
            let _infallible = write!(text, " {shown} |");
        }
    }
    text.push('\n');
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _infallible = write!(text, "\n### {title}\n\n");
    for line in lines {
        let _infallible = writeln!(text, "- {}", escape(line));
    }
}

fn range(Spread { median, min, max }: Spread) -> String {
    if min < max {
        format!("{} ({} to {})", number(&median), number(&min), number(&max))
    } else {
        number(&median)
    }
}

/// Text of other programs, for one line of Markdown.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => escaped.push(' '),
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '|' | '*' | '`' | '[' | ']' => escaped.extend(['\\', character]),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_other_programs_stays_in_its_cell() {
        assert_eq!(escape("a|b\nc <d> *e* `f`"), "a\\|b c &lt;d> \\*e\\* \\`f\\`");
    }

    #[test]
    fn a_range_is_shown_where_rounds_differ() {
        assert_eq!(range(Spread { median: 2.0, min: 2.0, max: 2.0 }), "2.00");
        assert_eq!(range(Spread { median: 2.0, min: 1.0, max: 30.0 }), "2.00 (1.00 to 30.0)");
    }
}
