//! The report: one HTML page that needs no other file.

use super::claims::Verdict;
use super::digest::{Cell, Digest, Row, Table};
use super::experiment::Effort;
use super::plot::{self, Curve, Origin, Texts, number};
use crate::stats::Spread;
use anyhow::Result;
use std::fmt::Write;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}\
td,th{border-bottom:1px solid #ddd;padding:.25rem .6rem;text-align:right;white-space:nowrap}td:first-child,th:first-child{text-align:left}\
svg{max-width:100%;height:auto}.paper{color:#666;font-style:italic}.failed{color:#b00020}small{color:#666}";

/// Text of other programs, for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page of the experiments that have results.
pub(crate) fn page(digests: &[Digest], effort: Effort) -> Result<String> {
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Sendoff: the lab</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style>\n\
         <h1>Sendoff: the lab</h1>\n\
         <p>Every figure of ours on this page was measured by the runs that it names. Cells show the median \
         of the rounds (smallest to largest). Servers take turns within a round, and ratios are taken within \
         a round. The load generator shares the machine with the servers. Figures of the papers come from \
         other machines and other software: compare shapes of curves, not heights. The web workloads are \
         our own implementation of published parameters; no figure is a SPEC result.{}</p>\n<ul>\n",
        effort.warning()
    );
    let measured = || digests.iter().filter(|digest| digest.is_measured());
    for digest in measured() {
        let (name, about) = (digest.name, escape(digest.about));
        let _infallible = writeln!(text, "<li><a href=\"#{name}\">{name}</a>: {about}</li>");
    }
    text.push_str("</ul>\n");
    for digest in measured() {
        section(&mut text, digest)?;
    }
    text.push_str("</html>\n");
    Ok(text)
}

fn section(text: &mut String, digest: &Digest) -> Result<()> {
    let (name, about) = (digest.name, escape(digest.about));
    let _infallible = write!(text, "<h2 id=\"{name}\">{name}</h2>\n<p>{about}</p>\n");
    conditions(text, digest);
    verdicts(text, &digest.verdicts);
    for table in &digest.tables {
        draw(text, table)?;
    }
    list(text, "Failed", "failed", &digest.failures);
    list(text, "Not measured", "missing", &digest.missing);
    Ok(())
}

fn conditions(text: &mut String, digest: &Digest) {
    for session in &digest.sessions {
        let _infallible = writeln!(
            text,
            "<details><summary>{}, {}, load {:.1} at the start; rounds: {}, {} s each</summary><p><small>{}<br><code>{}</code></small></p></details>",
            escape(&session.date),
            escape(&session.machine),
            session.load,
            session.rounds,
            session.seconds,
            session
                .versions
                .iter()
                .map(|(name, version)| escape(&format!("{name}: {version}")))
                .collect::<Vec<_>>()
                .join("<br>"),
            escape(&session.command)
        );
    }
    if let Some(noise) = digest.noise {
        let _infallible = writeln!(
            text,
            "<p><small>Noise: half of the series spread by more than {:.0} % of their median between the \
             rounds, the widest by {:.0} %.</small></p>",
            noise.median, noise.max
        );
    }
}

/// Statements of the papers, and the ratios of this run.
fn verdicts(text: &mut String, verdicts: &[Verdict]) {
    if verdicts.is_empty() {
        return;
    }
    text.push_str("<h3>Statements of the papers</h3>\n<table><tr><th>statement<th class=\"paper\">paper<th>holds if<th>here<th>\n");
    for verdict in verdicts {
        let _infallible = writeln!(
            text,
            "<tr><td>{}<td class=\"paper\">{}<td>{}<td>{}<td>{}",
            escape(verdict.says),
            verdict.paper.map_or_else(String::new, |paper| number(&paper)),
            verdict.holds,
            verdict.measured.map_or_else(String::new, range),
            verdict.outcome
        );
    }
    text.push_str("</table>\n");
}

/// Draws a figure and its table.
fn draw(text: &mut String, table: &Table) -> Result<()> {
    let figure = &table.figure;
    let measured = table.columns.iter().enumerate().map(|(at, column)| {
        let here = |row: &Row| match row.cells[at] {
            Cell::Measured(spread) => Some((row.x, spread.median)),
            Cell::Failed | Cell::Missing => None,
        };
        let points = table.rows.iter().filter_map(here).collect();
        let (name, colour) = (column.name.clone(), column.place);
        Curve { name, points, origin: Origin::Measured, colour }
    });
    let free = table.columns.iter().map(|column| column.place + 1).max().unwrap_or(0);
    let papers = (free..).zip(figure.papers).map(|(colour, paper)| Curve {
        colour,
        name: paper.name.to_owned(),
        points: paper.points.to_vec(),
        origin: Origin::Paper,
    });
    let curves: Vec<Curve> = measured.chain(papers).collect();
    let labels: Vec<(f64, String)> =
        table.rows.iter().map(|row| (row.x, row.label.clone())).collect();
    let texts = Texts { x: figure.x, y: figure.y, labels: &labels };
    let svg = plot::draw(figure.shape, &texts, &curves)?;
    let _infallible = write!(text, "<h3>{}</h3>\n{svg}\n<p>", escape(figure.title));
    for curve in &curves {
        let (colour, name) = (curve.css(), escape(&curve.name));
        let _infallible =
            write!(text, "<span style=\"color:{colour}\">&#9632;</span> {name} &ensp;");
    }
    text.push_str("</p>\n");
    numbers(text, table);
    Ok(())
}

fn numbers(text: &mut String, table: &Table) {
    let _infallible = write!(text, "<table><tr><th>{}", escape(table.figure.y));
    for column in &table.columns {
        let _infallible = write!(text, "<th>{}", escape(&column.name));
    }
    for paper in table.figure.papers {
        let _infallible = write!(text, "<th class=\"paper\">{}", escape(paper.name));
    }
    text.push('\n');
    for row in &table.rows {
        let _infallible = write!(text, "<tr><td>{}", escape(&row.label));
        for cell in &row.cells {
            let _infallible = write!(text, "<td>{}", shown(*cell));
        }
        for paper in &row.papers {
            let shown = paper.map_or_else(String::new, |paper| number(&paper));
            let _infallible = write!(text, "<td class=\"paper\">{shown}");
        }
        text.push('\n');
    }
    text.push_str("</table>\n");
}

fn shown(cell: Cell) -> String {
    match cell {
        Cell::Measured(spread) => range(spread),
        Cell::Failed => "<span class=\"failed\">failed</span>".to_owned(),
        Cell::Missing => String::new(),
    }
}

fn range(Spread { median, min, max }: Spread) -> String {
    if min < max {
        format!("{} <small>({}-{})</small>", number(&median), number(&min), number(&max))
    } else {
        number(&median)
    }
}

fn list(text: &mut String, title: &str, class: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _infallible = writeln!(text, "<h3>{title}</h3>\n<ul class=\"{class}\">");
    for line in lines {
        let _infallible = writeln!(text, "<li>{}</li>", escape(line));
    }
    text.push_str("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::super::claims::{Bound, Claim, Ratio};
    use super::super::experiment::{Experiment, Figure, Shape, Stage, Value, Workbench};
    use super::super::markdown;
    use super::super::papers::SPEED_UP;
    use super::super::results::{Conditions, Finished, Point, Results, Series, Values};
    use super::*;

    struct Sizes;

    impl Experiment for Sizes {
        fn name(&self) -> &'static str {
            "sizes"
        }
        fn about(&self) -> &'static str {
            "pages <of all sizes>"
        }
        fn points(&self, _: Effort) -> Vec<Point> {
            vec![Point::new("p", 10.0, "10 KB"), Point::new("p", 60.0, "60 KB")]
        }
        fn start(&self, _: &Workbench, _: &mut Conditions) -> Result<Box<dyn Stage>> {
            anyhow::bail!("not started")
        }
        fn figures(&self) -> Vec<Figure> {
            vec![Figure {
                title: "speed-up",
                part: "p",
                shape: Shape::Lines,
                x: "KB",
                y: "times",
                value: Value::RatioTo("rate", "old"),
                papers: SPEED_UP,
            }]
        }
        fn claims(&self) -> &'static [Claim] {
            &[Claim {
                says: "a <paper>: new is faster",
                part: "p",
                value: "rate",
                ratio: Ratio::Servers { x: 10.0, of: "new", to: "old" },
                paper: Some(1.26),
                holds: Bound::Above(1.0),
            }]
        }
    }

    fn series(name: &str, rates: &[f64], error: Option<&str>) -> Series {
        let rounds = rates.iter().map(|&rate| Values::from([("rate".to_owned(), rate)])).collect();
        Series { name: name.into(), rounds, error: error.map(str::to_owned) }
    }

    #[test]
    fn ratios_pair_the_rounds_and_failures_are_shown() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let mut results = Results::read(dir.path(), "sizes").expect("nothing yet");
        let all = vec![
            series("old", &[100.0, 200.0], None),
            series("new", &[300.0, 600.0], None),
            series("bad", &[987_654.0], Some("status <502>")),
        ];
        let point = Point::new("p", 10.0, "10 KB");
        results.add_session(Conditions::default()).expect("written");
        results.add(Finished { point, series: all }).expect("written");
        let digests = [Digest::new(&Sizes, Effort::Full, results)];
        let text = page(&digests, Effort::Full).expect("a page");
        // Three times in each round, although the machine was twice as fast in the second.
        assert!(text.contains("<tr><td>10 KB<td>3.00<td class=\"paper\">1.26"), "{text}");
        assert!(text.contains("status &lt;502&gt;") && !text.contains("987654"), "{text}");
        assert!(text.contains("pages &lt;of all sizes&gt;"), "{text}");
        assert!(text.contains("<td>above 1<td>3.00<td>holds"), "{text}");
        assert!(text.contains("<ul class=\"missing\">\n<li>p, 60 KB</li>"), "{text}");
        let text = markdown::page(&digests, Effort::Full);
        assert!(text.contains("| 10 KB | 3.00 | *1.26* |"), "{text}");
        assert!(text.contains("- p, 10 KB, bad: status &lt;502>\n"), "{text}");
        assert!(text.contains("new is faster | 1.26 | above 1 | 3.00 | holds |"), "{text}");
        assert!(text.contains("### Not measured\n\n- p, 60 KB\n"), "{text}");
        assert!(!text.contains("987654"), "{text}");
    }
}
