//! The published figures: `--save FILE` writes the measured values, and `make figures` writes the
//! tables of the README, of docs/measurements.md, docs/tuning.md and of the example site from `bench/figures.json`. No
//! figure in them is written by hand.

use crate::measure::{Measured, Plan, Sample};
use crate::report::SENDOFF;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Servers in the tables, in the order of the columns.
const PEERS: [&str; 4] = ["nginx+fpm-debian", "nginx+fpm-tuned", "lighttpd+fpm", "apache+mod_php"];

/// Workloads in the tables, in the order of the rows.
const WORKLOADS: [&str; 20] = [
    "hello",
    "file-10k",
    "file-60k",
    "file-200k",
    "file-1m",
    "mixed-60k",
    "mixed-1m",
    "readfile-1m",
    "loop-1m",
    "readfile-100m",
    "include-60k",
    "html-60k",
    "generated-32k",
    "generated-128k",
    "generated-1m",
    "changing-60k",
    "static-10k",
    "static-60k",
    "static-200k",
    "static-1m",
];

/// One benchmark run.
#[derive(Debug, Deserialize, Serialize)]
struct Figures {
    conditions: Conditions,
    /// Names of the columns of each workload's `peers`.
    peers: Vec<String>,
    workloads: Vec<Row>,
}

/// Conditions of the measurement.
#[derive(Debug, Deserialize, Serialize)]
struct Conditions {
    date: String,
    machine: String,
    servers: String,
    rounds: usize,
    seconds: f64,
    connections: usize,
}

#[derive(Debug, Deserialize, Serialize)]
struct Row {
    name: String,
    /// CPU time of Sendoff per response, in µs: median of the rounds.
    us: f64,
    peers: Vec<Compared>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Compared {
    /// Requests per second of Sendoff divided by the other server's, within a round: median of the
    /// rounds.
    ratio: f64,
    /// CPU time of the other server per response, in µs: median of the rounds.
    us: f64,
}

/// Writes the values for the published tables.
///
/// # Errors
/// A server or a workload of the tables was not measured or has failed, or the file cannot be
/// written.
pub(crate) fn save(
    path: &Path,
    names: &[String],
    measured: &[Measured],
    plan: Plan,
    versions: &[(String, String)],
) -> Result<()> {
    let column = |name: &str| {
        let found = names.iter().position(|other| other == name);
        found.with_context(|| format!("--save needs {name}, which was not measured"))
    };
    let (own, peers) = (column(SENDOFF)?, PEERS.map(column));
    let peers = peers.into_iter().collect::<Result<Vec<_>>>()?;
    let row = |name: &str| {
        let one = measured.iter().find(|one| one.workload.name == name);
        let one = one.with_context(|| format!("--save needs {name}, which was not measured"))?;
        let failed = || format!("--save needs {name}, which has failed");
        let own = &one.series[own];
        let micros = |spread: Option<crate::stats::Spread>| {
            spread.map(|s| (s.median * 10.0).round() / 10.0).with_context(failed)
        };
        let compared = peers.iter().map(|peer| {
            let peer = &one.series[*peer];
            let ratio = own.ratio(peer, |s| s.rate).with_context(failed)?.median;
            let us = micros(peer.spread(Sample::server_us))?;
            Ok(Compared { ratio: (ratio * 100.0).round() / 100.0, us })
        });
        Ok(Row {
            name: name.to_owned(),
            us: micros(own.spread(Sample::server_us))?,
            peers: compared.collect::<Result<_>>()?,
        })
    };
    let mut servers: Vec<&str> = Vec::new();
    for (_, version) in versions.iter().filter(|(name, _)| PEERS.contains(&name.as_str())) {
        let new = version.split(", ").filter(|part| !servers.contains(part)).collect::<Vec<_>>();
        servers.extend(new);
    }
    let date = std::process::Command::new("date").args(["-u", "+%F"]).output()?.stdout;
    let figures = Figures {
        conditions: Conditions {
            date: String::from_utf8(date)?.trim().to_owned(),
            machine: crate::report::machine(),
            servers: servers.join(", "),
            rounds: plan.rounds,
            seconds: plan.time.as_secs_f64(),
            connections: plan.connections,
        },
        peers: PEERS.map(String::from).into(),
        workloads: WORKLOADS.into_iter().map(row).collect::<Result<_>>()?,
    };
    let text = figures.text()?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

impl Figures {
    /// JSON with one line per workload, so that changes are visible line by line.
    fn text(&self) -> Result<String> {
        let conditions = serde_json::to_string_pretty(&self.conditions)?.replace('\n', "\n  ");
        let peers = serde_json::to_string(&self.peers)?.replace(',', ", ");
        let rows = self.workloads.iter().map(serde_json::to_string);
        let rows = rows.collect::<Result<Vec<_>, _>>()?.join(",\n    ");
        Ok(format!(
            "{{\n  \"conditions\": {conditions},\n  \"peers\": {peers},\n  \"workloads\": [\n    {rows}\n  ]\n}}\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::fs;

    /// Labels of the workloads in the tables.
    const LABELS: [(&str, &str); WORKLOADS.len()] = [
        ("hello", "`echo \"hello\"`"),
        ("file-10k", "`echo file_get_contents()`, 10 KB"),
        ("file-60k", "`echo file_get_contents()`, 60 KB"),
        ("file-200k", "`echo file_get_contents()`, 200 KB"),
        ("file-1m", "`echo file_get_contents()`, 1 MB"),
        ("mixed-60k", "a page with two files of 60 KB"),
        ("mixed-1m", "a page with two files of 1 MB"),
        ("readfile-1m", "`readfile()`, 1 MB"),
        ("loop-1m", "`while (!feof($f)) echo fread($f, 8192)`, 1 MB"),
        ("readfile-100m", "`readfile()`, 100 MB"),
        ("include-60k", "`include` of 60 KB of HTML"),
        ("html-60k", "60 KB of HTML between `?>` and `<?php`"),
        ("generated-32k", "a generated page, 32 KB"),
        ("generated-128k", "a generated page, 128 KB"),
        ("generated-1m", "a generated page, 1 MB"),
        ("changing-60k", "a file of 60 KB that the script changes before it sends it"),
        ("static-10k", "a static file, 10 KB"),
        ("static-60k", "a static file, 60 KB"),
        ("static-200k", "a static file, 200 KB"),
        ("static-1m", "a static file, 1 MB"),
    ];

    /// Workloads in the README: one of each kind, and the two that others win.
    const README: [&str; 8] = [
        "hello",
        "file-60k",
        "file-1m",
        "readfile-100m",
        "generated-128k",
        "generated-1m",
        "changing-60k",
        "static-60k",
    ];

    /// Workloads in docs/tuning.md.
    const TUNING: [&str; 5] = ["hello", "file-1m", "readfile-1m", "generated-1m", "static-1m"];

    const MEASUREMENTS: &str = "docs/measurements.md";

    const BEGIN: &str = "<!-- Written by `make figures` from bench/figures.json. -->\n";
    const END: &str = "<!-- The end of what `make figures` writes. -->\n";

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
    }

    fn figures() -> Figures {
        let text = fs::read_to_string(root().join("bench/figures.json")).expect("the figures");
        serde_json::from_str(&text).expect("figures as --save writes them")
    }

    /// Formats a number with separators: 44604 becomes "44,604".
    fn grouped(number: f64) -> String {
        let digits = format!("{number:.0}");
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    }

    impl Figures {
        fn label(name: &str) -> &'static str {
            LABELS.iter().find(|(known, _)| *known == name).expect("a label").1
        }

        fn row(&self, name: &str) -> &Row {
            self.workloads.iter().find(|row| row.name == name).expect("a row")
        }

        fn conditions(&self) -> String {
            let Conditions { date, machine, servers, rounds, seconds, connections } =
                &self.conditions;
            format!(
                "Measured on {date}: {machine}; {servers}. Medians of {rounds} rounds of {seconds} s with {connections} keep-alive connections."
            )
        }

        fn compared(&self, names: &[&str]) -> String {
            let mut text = "| response | Sendoff | nginx + php-fpm as Debian ships them | the same, tuned | lighttpd + php-fpm | Apache + mod_php |\n|---|---|---|---|---|---|\n".to_owned();
            for Row { name, us, peers } in names.iter().map(|name| self.row(name)) {
                let _infallible = write!(text, "| {} | {} µs |", Self::label(name), grouped(*us));
                for Compared { ratio, us } in peers {
                    let _infallible = write!(text, " {ratio:.2}×, {} µs |", grouped(*us));
                }
                text.push('\n');
            }
            text + "\n" + &self.conditions() + "\n"
        }

        fn tuning(&self) -> String {
            let mut text =
                "| CPU time per response, µs | nginx + php-fpm, tuned | Sendoff |\n|---|---|---|\n"
                    .to_owned();
            for name in TUNING {
                let row = self.row(name);
                let (label, theirs) = (Self::label(name), grouped(row.peers[1].us));
                let _infallible = writeln!(text, "| {label} | {theirs} | {} |", grouped(row.us));
            }
            text + "\n" + &self.conditions() + "\n"
        }

        /// The file that the example site includes.
        fn php(&self) -> String {
            let mut text = "<?php\n// CPU time of the whole server side for one response, in µs: nginx + php-fpm, tuned, and Sendoff.\n// Written by `make figures` from bench/figures.json.\n\nreturn [\n".to_owned();
            let _infallible = writeln!(text, "    'conditions' => '{}',", self.conditions());
            for row in &self.workloads {
                let (name, theirs) = (&row.name, row.peers[1].us);
                let _infallible = writeln!(text, "    '{name}' => [{theirs:.0}, {:.0}],", row.us);
            }
            text + "];\n"
        }

        /// Each file that contains figures, with its expected contents.
        fn files(&self) -> Vec<(&'static str, String)> {
            let with = |path: &str, block: &str| {
                let text = fs::read_to_string(root().join(path)).expect(path);
                let (before, rest) = text.split_once(BEGIN).expect("where the figures begin");
                let (_, after) = rest.split_once(END).expect("where the figures end");
                format!("{before}{BEGIN}{block}{END}{after}")
            };
            vec![
                ("README.md", with("README.md", &self.compared(&README))),
                (MEASUREMENTS, with(MEASUREMENTS, &self.compared(&WORKLOADS))),
                ("docs/tuning.md", with("docs/tuning.md", &self.tuning())),
                ("examples/site/parts/figures.php", self.php()),
            ]
        }
    }

    #[test]
    fn published_figures_are_those_of_the_file() {
        let figures = figures();
        assert_eq!(figures.peers, PEERS);
        let names: Vec<_> = figures.workloads.iter().map(|row| &*row.name).collect();
        assert_eq!(names, WORKLOADS);
        for (path, expected) in figures.files() {
            let found = fs::read_to_string(root().join(path)).expect(path);
            assert!(found == expected, "{path} is not what `make figures` writes");
        }
        let text = fs::read_to_string(root().join("bench/figures.json")).expect("the figures");
        let (again, text): (serde_json::Value, serde_json::Value) = (
            serde_json::from_str(&figures.text().expect("text")).expect("JSON"),
            serde_json::from_str(&text).expect("JSON"),
        );
        assert_eq!(again["conditions"], text["conditions"]);
    }

    /// Times that are written by hand sooner or later contradict the table.
    #[test]
    fn the_readme_and_the_example_site_have_no_other_times() {
        let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
        let (before, rest) = readme.split_once(BEGIN).expect("where the figures begin");
        let (_, after) = rest.split_once(END).expect("where the figures end");
        for text in [before, after] {
            let mut times = text.match_indices(" µs").map(|(at, _)| &text[..at]);
            assert!(!times.any(|before| before.ends_with(|c: char| c.is_ascii_digit())));
        }
        for page in ["index.php", "download.php"] {
            let text = fs::read_to_string(root().join("examples/site").join(page)).expect(page);
            for call in text.split("page_figures(").skip(1) {
                let rows = call.split("])").next().expect("the rows").split(" => ").skip(1);
                let names: Vec<_> = rows.map(|row| row.split('\'').nth(1)).collect();
                let known = |name: &Option<&str>| name.is_some_and(|n| WORKLOADS.contains(&n));
                assert!(!names.is_empty() && names.iter().all(known), "{page}: {names:?}");
            }
        }
    }

    #[test]
    #[ignore = "`make figures` writes README.md, two pages of docs and a file of the example site"]
    fn renew() {
        for (path, text) in figures().files() {
            fs::write(root().join(path), text).expect(path);
        }
    }
}
