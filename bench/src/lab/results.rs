//! The results of an experiment: a file of JSON lines, which a run that was interrupted continues.
//!
//! A line is either a session (the conditions of a run) or a finished point, and is written at once
//! when it is known. A line that an interrupted run left unfinished is ignored, and its point is
//! measured again.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Named figures of one run of one server, such as `rate` in requests per second.
pub(crate) type Values = BTreeMap<String, f64>;

/// The conditions of one run of the tool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Conditions {
    /// UTC, to the minute.
    pub(crate) date: String,
    pub(crate) machine: String,
    /// Load average of one minute before the servers were started.
    pub(crate) load: f64,
    /// Each server with its version, or with the reason why it was left out.
    pub(crate) versions: Vec<(String, String)>,
    pub(crate) command: String,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

/// One x of one part of an experiment: it is measured on every server, or not at all.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Point {
    pub(crate) part: String,
    /// The place on the horizontal axis.
    pub(crate) x: f64,
    /// The text of the table's row.
    pub(crate) label: String,
}

impl Point {
    pub(crate) fn new(part: &str, x: f64, label: impl Into<String>) -> Self {
        Self { part: part.to_owned(), x, label: label.into() }
    }
}

/// All runs of one server, or of one way to answer, at one point.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// By round.
    pub(crate) rounds: Vec<Values>,
    /// The reason why the figures do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl Series {
    /// Adds a round, which may have failed.
    pub(crate) fn take(&mut self, round: Result<Values>) {
        match round {
            Ok(values) => self.rounds.push(values),
            Err(error) => self.error = Some(format!("{error:#}")),
        }
    }
}

/// A point with its figures.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Finished {
    #[serde(flatten)]
    pub(crate) point: Point,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Session(Conditions),
    Point(Finished),
}

/// The results of one experiment so far.
#[derive(Debug)]
pub(crate) struct Results {
    path: PathBuf,
    pub(crate) sessions: Vec<Conditions>,
    pub(crate) finished: Vec<Finished>,
}

impl Results {
    /// Reads the results in `folder`; there are none if the file does not exist.
    pub(crate) fn read(folder: &Path, experiment: &str) -> Result<Self> {
        let path = folder.join(format!("{experiment}.jsonl"));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
        };
        let mut results = Self { path, sessions: Vec::new(), finished: Vec::new() };
        let last = text.lines().count();
        for (number, line) in text.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(Line::Session(session)) => results.sessions.push(session),
                Ok(Line::Point(finished)) => results.finished.push(finished),
                // The run ended while it wrote this line.
                Err(_) if number + 1 == last && !text.ends_with('\n') => {}
                Err(error) => {
                    let shown = results.path.display();
                    return Err(error).context(format!("{shown}:{} is not a result", number + 1));
                }
            }
        }
        Ok(results)
    }

    /// Removes the results, so that everything is measured again.
    pub(crate) fn forget(&mut self) -> Result<()> {
        if self.path.exists() {
            fs::remove_file(&self.path)?;
        }
        self.sessions.clear();
        self.finished.clear();
        Ok(())
    }

    pub(crate) fn has(&self, point: &Point) -> bool {
        self.finished.iter().any(|finished| finished.point == *point)
    }

    pub(crate) fn add_session(&mut self, conditions: Conditions) -> Result<()> {
        self.append(&Line::Session(conditions.clone()))?;
        self.sessions.push(conditions);
        Ok(())
    }

    pub(crate) fn add(&mut self, finished: Finished) -> Result<()> {
        self.append(&Line::Point(finished.clone()))?;
        self.finished.push(finished);
        Ok(())
    }

    fn append(&self, line: &Line) -> Result<()> {
        let fail = || format!("cannot write {}", self.path.display());
        let mut file = open_after_last_line(&self.path).with_context(fail)?;
        let text = serde_json::to_string(line)? + "\n";
        file.write_all(text.as_bytes()).with_context(fail)
    }
}

/// Opens a file of lines for appending, without the line that an interrupted run left unfinished.
fn open_after_last_line(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let whole = fs::read(path)?;
    let end = memchr::memrchr(b'\n', &whole).map_or(0, |at| at + 1);
    if end < whole.len() {
        file.set_len(end as u64)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(x: f64) -> Finished {
        let rounds = vec![Values::from([("rate".to_owned(), 10.0)])];
        let series = vec![Series { name: "sendoff".into(), rounds, error: None }];
        Finished { point: Point::new("sizes", x, "10 KB"), series }
    }

    #[test]
    fn an_interrupted_line_is_measured_again() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let mut results = Results::read(dir.path(), "micro").expect("nothing yet");
        results.add_session(Conditions::default()).expect("written");
        results.add(finished(1.0)).expect("written");
        let path = dir.path().join("micro.jsonl");
        let mut text = fs::read_to_string(&path).expect("results");
        text.push_str("{\"point\":{\"part\":\"si");
        fs::write(&path, text).expect("written");

        let mut again = Results::read(dir.path(), "micro").expect("read");
        assert!(again.has(&finished(1.0).point));
        assert!(!again.has(&finished(2.0).point));
        again.add(finished(2.0)).expect("written");
        let third = Results::read(dir.path(), "micro").expect("read");
        assert_eq!(third.finished, [finished(1.0), finished(2.0)]);
        assert_eq!(third.sessions.len(), 1);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().expect("temporary folder");
        fs::write(dir.path().join("micro.jsonl"), "{}\n{}\n").expect("written");
        let error = Results::read(dir.path(), "micro").expect_err("damaged").to_string();
        assert!(error.contains("micro.jsonl:1"), "{error}");
    }
}
