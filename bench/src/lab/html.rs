//! The report: one HTML page that needs no other file.

use super::experiment::{Experiment, Figure, Value};
use super::plot::{self, Curve, Origin, Texts, number};
use super::results::{Finished, Results, Series};
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
pub(crate) fn page(experiments: &[(&dyn Experiment, Results)]) -> Result<String> {
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Sendoff: the lab</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style>\n\
         <h1>Sendoff: the lab</h1>\n\
         <p>Every figure of ours on this page was measured by the runs that it names. Cells show the median \
         of the rounds (smallest to largest). Servers take turns within a round, and ratios are taken within \
         a round. The load generator shares the machine with the servers. Figures of the papers come from \
         other machines and other software: compare shapes of curves, not heights. The web workloads are \
         our own implementation of published parameters; no figure is a SPEC result.</p>\n<ul>\n"
    );
    for (experiment, _) in experiments {
        let (name, about) = (experiment.name(), escape(experiment.about()));
        let _infallible = writeln!(text, "<li><a href=\"#{name}\">{name}</a>: {about}</li>");
    }
    text.push_str("</ul>\n");
    for (experiment, results) in experiments {
        section(&mut text, *experiment, results)?;
    }
    text.push_str("</html>\n");
    Ok(text)
}

fn section(text: &mut String, experiment: &dyn Experiment, results: &Results) -> Result<()> {
    let (name, about) = (experiment.name(), escape(experiment.about()));
    let _infallible = write!(text, "<h2 id=\"{name}\">{name}</h2>\n<p>{about}</p>\n");
    conditions(text, results);
    let names = names(results.finished.iter());
    for figure in experiment.figures() {
        let points: Vec<&Finished> =
            results.finished.iter().filter(|one| one.point.part == figure.part).collect();
        if !points.is_empty() {
            draw(text, &figure, &points, &names)?;
        }
    }
    failures(text, results);
    Ok(())
}

fn conditions(text: &mut String, results: &Results) {
    for session in &results.sessions {
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
    if let Some(noise) = noise(&results.finished) {
        let _infallible = writeln!(
            text,
            "<p><small>Noise: half of the series spread by more than {:.0} % of their median between the \
             rounds, the widest by {:.0} %.</small></p>",
            noise.median, noise.max
        );
    }
}

/// The width of the rates of a series, in per cent of its median, over all series with several rounds.
fn noise(finished: &[Finished]) -> Option<Spread> {
    let series = finished.iter().flat_map(|one| &one.series);
    let series = series.filter(|one| one.error.is_none() && one.rounds.len() > 1);
    Spread::of(series.filter_map(|one| {
        let rates = one.rounds.iter().filter_map(|round| round.get("rate").copied());
        let spread = Spread::of(rates)?;
        (spread.median > 0.0).then(|| (spread.max - spread.min) / spread.median * 100.0)
    }))
}

/// A figure of one series at one point.
fn spread(value: Value, point: &Finished, series: &Series) -> Option<Spread> {
    if series.error.is_some() {
        return None;
    }
    match value {
        Value::Of(name) => Spread::of(series.rounds.iter().filter_map(|r| r.get(name).copied())),
        Value::RatioTo(name, reference) => {
            let reference = point.series.iter().find(|one| one.name == reference)?;
            if reference.error.is_some() || reference.name == series.name {
                return None;
            }
            let pairs = series.rounds.iter().zip(&reference.rounds);
            Spread::of(pairs.filter_map(|(own, other)| Some(own.get(name)? / other.get(name)?)))
        }
    }
}

/// The names of all series, each once.
fn names<'a>(finished: impl Iterator<Item = &'a Finished>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for series in finished.flat_map(|one| &one.series) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    names
}

/// Draws a figure and its table. A series has the colour of its place in `all`.
fn draw(text: &mut String, figure: &Figure, points: &[&Finished], all: &[&str]) -> Result<()> {
    let mut names = all.to_vec();
    let at = |point: &Finished, name: &str| {
        let series = point.series.iter().find(|one| one.name == name)?;
        spread(figure.value, point, series)
    };
    names.retain(|name| points.iter().any(|point| at(point, name).is_some()));
    let measured = names.iter().map(|name| {
        let here = |point: &&Finished| Some((point.point.x, at(point, name)?.median));
        let mut line: Vec<(f64, f64)> = points.iter().filter_map(here).collect();
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        let colour = all.iter().position(|one| one == name).unwrap_or(0);
        Curve { name: (*name).to_owned(), points: line, origin: Origin::Measured, colour }
    });
    let papers = (all.len()..).zip(figure.papers).map(|(colour, paper)| Curve {
        colour,
        name: paper.name.to_owned(),
        points: paper.points.to_vec(),
        origin: Origin::Paper,
    });
    let curves: Vec<Curve> = measured.chain(papers).collect();
    let mut labels: Vec<(f64, String)> =
        points.iter().map(|point| (point.point.x, point.point.label.clone())).collect();
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let texts = Texts { x: figure.x, y: figure.y, labels: &labels };
    let svg = plot::draw(figure.shape, &texts, &curves)?;
    let _infallible = write!(text, "<h3>{}</h3>\n{svg}\n<p>", escape(figure.title));
    for curve in &curves {
        let (colour, name) = (curve.css(), escape(&curve.name));
        let _infallible =
            write!(text, "<span style=\"color:{colour}\">&#9632;</span> {name} &ensp;");
    }
    text.push_str("</p>\n<table><tr><th>");
    text.push_str(&escape(figure.y));
    for name in &names {
        let _infallible = write!(text, "<th>{}", escape(name));
    }
    for paper in figure.papers {
        let _infallible = write!(text, "<th class=\"paper\">{}", escape(paper.name));
    }
    text.push('\n');
    for (x, label) in &labels {
        let _infallible = write!(text, "<tr><td>{}", escape(label));
        let point = points.iter().find(|point| point.point.x == *x);
        for name in &names {
            text.push_str("<td>");
            text.push_str(
                &point.map_or_else(String::new, |point| cell(point, name, at(point, name))),
            );
        }
        for paper in figure.papers {
            let printed = paper.points.iter().find(|printed| printed.0 == *x);
            let shown = printed.map_or_else(String::new, |printed| number(&printed.1));
            let _infallible = write!(text, "<td class=\"paper\">{shown}");
        }
        text.push('\n');
    }
    text.push_str("</table>\n");
    Ok(())
}

fn cell(point: &Finished, name: &str, spread: Option<Spread>) -> String {
    match spread {
        Some(Spread { median, min, max }) if min < max => {
            format!("{} <small>({}-{})</small>", number(&median), number(&min), number(&max))
        }
        Some(Spread { median, .. }) => number(&median),
        None if point.series.iter().any(|one| one.name == name && one.error.is_some()) => {
            "<span class=\"failed\">failed</span>".to_owned()
        }
        None => String::new(),
    }
}

fn failures(text: &mut String, results: &Results) {
    let all = results.finished.iter().flat_map(|one| one.series.iter().map(move |s| (one, s)));
    let mut failed = all.filter_map(|(one, s)| Some((one, s, s.error.as_ref()?))).peekable();
    if failed.peek().is_none() {
        return;
    }
    text.push_str("<h3>Failed</h3>\n<ul class=\"failed\">\n");
    for (one, series, error) in failed {
        let line = format!("{}, {}, {}: {error}", one.point.part, one.point.label, series.name);
        let _infallible = writeln!(text, "<li>{}</li>", escape(&line));
    }
    text.push_str("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Effort, Shape, Stage, Workbench};
    use super::super::papers::SPEED_UP;
    use super::super::results::{Conditions, Point, Values};
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
            vec![Point::new("p", 10.0, "10 KB")]
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
        results.add(Finished { point, series: all }).expect("written");
        let text = page(&[(&Sizes, results)]).expect("a page");
        // Three times in each round, although the machine was twice as fast in the second.
        assert!(text.contains("<tr><td>10 KB<td>3.00<td class=\"paper\">1.26"), "{text}");
        assert!(text.contains("status &lt;502&gt;") && !text.contains("987654"), "{text}");
        assert!(text.contains("pages &lt;of all sizes&gt;"), "{text}");
    }
}
