//! The site of the bank: its files, and the bytes that a right answer has.

use super::backend;
use super::banking::{BANKING, CHECKS};
use super::model::{Kind, State};
use crate::site::Site;
use anyhow::Result;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::time::SystemTime;

const HEAD: &str = include_str!("../../sites/banking/head.php");
const FOOT: &str = include_str!("../../sites/banking/foot.html");
const PARTS: &str = include_str!("../../sites/banking/bank.php");
/// A paragraph of padding; each begins with its offset, so that a client sees what is missing.
const PARAGRAPH: usize = 4096;

/// The way in which scripts print a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printing {
    /// Piece by piece, the padding by `readfile()`.
    Pieces,
    /// Collected, then printed once, as template engines do.
    Once,
}

impl Printing {
    fn folder(self) -> &'static str {
        match self {
            Self::Pieces => "pieces",
            Self::Once => "once",
        }
    }
}

/// A customer who looks at a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) state: usize,
    pub(crate) user: u32,
    /// The check whose picture is asked for.
    pub(crate) check: usize,
}

/// The contents of the site, for comparison.
#[derive(Debug)]
pub(crate) struct Bank {
    /// By state.
    paddings: Vec<Vec<u8>>,
    embedded: Vec<Vec<u8>>,
    /// By state and check; empty for states that are pages.
    pictures: Vec<Vec<Vec<u8>>>,
    /// `Last-Modified` of the embedded files.
    pub(crate) date: String,
}

impl Bank {
    pub(crate) fn new() -> Self {
        let states = BANKING.states;
        Self {
            paddings: (0_u64..).zip(states).map(|(seed, s)| noise(seed, s.padding)).collect(),
            embedded: (100_u64..)
                .zip(BANKING.files)
                .map(|(seed, file)| noise(seed, file.size))
                .collect(),
            pictures: (1000_u64..)
                .step_by(100)
                .zip(states)
                .map(|(s, st)| pictures(s, st))
                .collect(),
            date: httpdate::fmt_http_date(SystemTime::UNIX_EPOCH),
        }
    }

    /// Writes the site. All servers share the files, so they agree on their dates.
    pub(crate) fn write(&mut self, site: &Site, backend: SocketAddr) -> Result<()> {
        site.directory("files")?;
        for (number, bytes) in self.embedded.iter().enumerate() {
            site.file(&format!("files/{number}.gif"), bytes)?;
        }
        let first = fs::metadata(site.root.join("files/0.gif"))?.modified()?;
        for printing in [Printing::Pieces, Printing::Once] {
            self.write_pages(site, printing, backend)?;
        }
        // One date for all files, so one value for all conditional requests.
        for number in 0..self.embedded.len() {
            let path = site.root.join(format!("files/{number}.gif"));
            fs::File::open(path)?.set_modified(first)?;
        }
        self.date = httpdate::fmt_http_date(first);
        Ok(())
    }

    fn write_pages(&self, site: &Site, printing: Printing, backend: SocketAddr) -> Result<()> {
        let folder = printing.folder();
        site.directory(folder)?;
        let collected = printing == Printing::Once;
        let constants =
            format!("<?php\nconst BACK_END = '{backend}';\nconst COLLECTED = {collected};\n");
        site.file(&format!("{folder}/settings.php"), constants.as_bytes())?;
        site.file(&format!("{folder}/head.php"), HEAD.as_bytes())?;
        site.file(&format!("{folder}/foot.html"), FOOT.as_bytes())?;
        site.file(&format!("{folder}/bank.php"), PARTS.as_bytes())?;
        for (number, state) in BANKING.states.iter().enumerate() {
            let name = state.name;
            site.file(&format!("{folder}/{name}.php"), script(state).as_bytes())?;
            if matches!(state.kind, Kind::Page { .. }) {
                site.file(&format!("{folder}/{name}.txt"), &self.paddings[number])?;
            }
            for (check, bytes) in self.pictures[number].iter().enumerate() {
                site.file(&format!("{folder}/{name}-{check}.jpg"), bytes)?;
            }
        }
        Ok(())
    }

    pub(crate) fn path(printing: Printing, visit: Visit) -> String {
        let (folder, name) = (printing.folder(), BANKING.states[visit.state].name);
        format!("/{folder}/{name}.php?user={}&check={}", visit.user, visit.check)
    }

    /// The right answer: its calculated part, and two parts that are there already.
    pub(crate) fn page(&self, visit: Visit) -> (Vec<u8>, [&[u8]; 2]) {
        let state = &BANKING.states[visit.state];
        let Kind::Page { asks } = state.kind else {
            return (Vec::new(), [&self.pictures[visit.state][visit.check], b""]);
        };
        let mut text = HEAD.replace("<?= $title ?>", &title(state));
        let _infallible = writeln!(text, "<p>Customer {}", visit.user);
        for ask in 0..asks {
            text.push_str("<table>\n");
            for record in backend::answer(&command(state, ask), &visit.user.to_string()).lines() {
                let (label, amount) = record.split_once(';').unwrap_or_default();
                let _infallible = writeln!(text, "<tr><td>{label}<td>{amount}");
            }
            text.push_str("</table>\n");
        }
        text.push_str(FOOT);
        text.push_str("<pre>\n");
        (text.into_bytes(), [&self.paddings[visit.state], b"</pre>\n</html>\n"])
    }

    pub(crate) fn file(&self, index: u8) -> &[u8] {
        &self.embedded[usize::from(index)]
    }
}

fn title(state: &State) -> String {
    state.name.replace('_', " ")
}

fn command(state: &State, ask: usize) -> String {
    format!("{}-{ask}", state.name)
}

fn script(state: &State) -> String {
    let name = state.name;
    match state.kind {
        Kind::Picture { .. } => format!(
            "<?php\nheader('Content-Type: image/jpeg');\n\
             readfile(__DIR__ . '/{name}-' . (int) ($_GET['check'] ?? 0) . '.jpg');\n"
        ),
        Kind::Page { asks } => {
            let mut text = format!(
                "<?php\nrequire __DIR__ . '/settings.php';\nrequire __DIR__ . '/bank.php';\n\
                 $user = (int) ($_GET['user'] ?? 0);\nhead('{}', $user);\n",
                title(state)
            );
            for ask in 0..asks {
                let _infallible = writeln!(text, "records('{}', $user);", command(state, ask));
            }
            let _infallible = writeln!(text, "foot(__DIR__ . '/{name}.txt');");
            text
        }
    }
}

fn pictures(seed: u64, state: &State) -> Vec<Vec<u8>> {
    match state.kind {
        Kind::Page { .. } => Vec::new(),
        Kind::Picture { first, step } => {
            (0..CHECKS).zip(seed..).map(|(check, seed)| noise(seed, first + step * check)).collect()
        }
    }
}

/// Printable characters, the same in every run, in paragraphs that begin with their offset.
fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text = Vec::with_capacity(size + PARAGRAPH);
    while text.len() < size {
        let mark = format!("[{seed}:{}]", text.len());
        let rest = PARAGRAPH - mark.len();
        text.extend_from_slice(mark.as_bytes());
        text.extend((0..rest).map(|_| random.alphanumeric() as u8));
    }
    text.truncate(size);
    text
}

#[cfg(test)]
mod tests {
    use super::super::banking::SHARES;
    use super::*;

    /// Averages over the published shares, in KB of 1,000 bytes.
    #[test]
    fn pages_have_the_sizes_of_the_papers() {
        let bank = Bank::new();
        let (mut dynamic, mut full, mut sent) = (0.0, 0.0, 0.0);
        for ((number, state), share) in BANKING.states.iter().enumerate().zip(SHARES) {
            let share = share / 100.0;
            let sizes = (0..CHECKS).map(|check| {
                let (text, [padding, end]) =
                    bank.page(Visit { state: number, user: 12_345, check });
                (text.len() + padding.len() + end.len()) as f64
            });
            dynamic += share * sizes.sum::<f64>() / CHECKS as f64 / 1e3;
            for &index in state.embedded {
                let file = BANKING.files[usize::from(index)];
                full += share * file.size as f64 / 1e3;
                sent += share * file.size as f64 * (1.0 - file.kept) / 1e3;
            }
        }
        let (average, share) = (dynamic + full, dynamic / (dynamic + sent) * 100.0);
        assert!((average - 34.8).abs() < 1.0, "{average} KB: {dynamic} + {full}");
        assert!((share - 59.5).abs() < 1.0, "{share} % dynamic: {dynamic}, {sent}");
    }
}
