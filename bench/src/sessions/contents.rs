//! The site of a workload: its files, and the bytes that a right answer has.

use super::backend;
use super::model::{Kind, Scenario, State};
use crate::site::Site;
use anyhow::{Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::time::SystemTime;

const PARTS: &str = include_str!("../../sites/page.php");
/// A paragraph of padding; each begins with its offset, so that a client sees what is missing.
const PARAGRAPH: usize = 4096;
/// The files of items are pieces of one text; each begins somewhere in this many bytes.
const STARTS: usize = 1 << 20;

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

/// A user who asks for the page of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) state: usize,
    pub(crate) user: u32,
    /// The chosen check, product or download.
    pub(crate) item: usize,
}

/// The contents of the site, for comparison.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) scenario: &'static Scenario,
    /// Groups of items.
    pub(crate) groups: usize,
    /// By state.
    paddings: Vec<Vec<u8>>,
    embedded: Vec<Vec<u8>>,
    /// By state and item; empty for states without pictures.
    pictures: Vec<Vec<Vec<u8>>>,
    /// The text of which the items' own files are pieces.
    stock: Vec<u8>,
    /// `Last-Modified` of the embedded files.
    pub(crate) date: String,
}

impl Contents {
    pub(crate) fn new(scenario: &'static Scenario, groups: usize) -> Self {
        let states = scenario.states;
        let items = scenario.items.each * groups;
        Self {
            scenario,
            groups,
            paddings: (0_u64..).zip(states).map(|(seed, s)| noise(seed, s.padding)).collect(),
            embedded: (100_u64..)
                .zip(scenario.files)
                .map(|(seed, file)| noise(seed, file.size))
                .collect(),
            pictures: (1000_u64..)
                .step_by(100)
                .zip(states)
                .map(|(seed, state)| pictures(seed, state, items))
                .collect(),
            stock: stock(scenario),
            date: httpdate::fmt_http_date(SystemTime::UNIX_EPOCH),
        }
    }

    /// Writes the site. All servers share the files, so they agree on their dates.
    pub(crate) fn write(&mut self, site: &Site, backend: SocketAddr) -> Result<()> {
        self.ensure_space(site)?;
        site.directory("files")?;
        for (number, bytes) in self.embedded.iter().enumerate() {
            site.file(&format!("files/{number}.gif"), bytes)?;
        }
        let first = fs::metadata(site.root.join("files/0.gif"))?.modified()?;
        for printing in [Printing::Pieces, Printing::Once] {
            self.write_pages(site, printing, backend)?;
        }
        self.write_stock(site)?;
        // One date for all files, so one value for all conditional requests.
        for number in 0..self.embedded.len() {
            let path = site.root.join(format!("files/{number}.gif"));
            fs::File::open(path)?.set_modified(first)?;
        }
        self.date = httpdate::fmt_http_date(first);
        Ok(())
    }

    fn ensure_space(&self, site: &Site) -> Result<()> {
        let group: usize = self.scenario.items.files.iter().copied().flatten().sum();
        let needed = (group * self.groups) as u64;
        let stat = rustix::fs::statvfs(&site.root)?;
        let free = stat.f_bavail * stat.f_frsize;
        // Servers need space for temporary files, too.
        ensure!(needed < free / 2, "the site takes {needed} bytes, and {free} are free");
        Ok(())
    }

    fn write_pages(&self, site: &Site, printing: Printing, backend: SocketAddr) -> Result<()> {
        let folder = printing.folder();
        site.directory(folder)?;
        let collected = printing == Printing::Once;
        let constants =
            format!("<?php\nconst BACK_END = '{backend}';\nconst COLLECTED = {collected};\n");
        site.file(&format!("{folder}/settings.php"), constants.as_bytes())?;
        site.file(&format!("{folder}/head.php"), self.scenario.head.as_bytes())?;
        site.file(&format!("{folder}/foot.html"), self.scenario.foot.as_bytes())?;
        site.file(&format!("{folder}/page.php"), PARTS.as_bytes())?;
        for (number, state) in self.scenario.states.iter().enumerate() {
            let name = state.name;
            let Some(script) = script(state) else { continue };
            site.file(&format!("{folder}/{name}.php"), script.as_bytes())?;
            if matches!(state.kind, Kind::Page { .. }) {
                site.file(&format!("{folder}/{name}.txt"), &self.paddings[number])?;
            }
            for (item, bytes) in self.pictures[number].iter().enumerate() {
                site.file(&format!("{folder}/{name}-{item}.jpg"), bytes)?;
            }
        }
        Ok(())
    }

    fn write_stock(&self, site: &Site) -> Result<()> {
        let items = &self.scenario.items;
        if items.files.is_empty() {
            return Ok(());
        }
        site.directory("stock")?;
        for group in 0..self.groups {
            site.directory(&format!("stock/{group}"))?;
        }
        for item in 0..items.each * self.groups {
            for class in 0..items.files.len() {
                let (mark, rest) = self.stored(class, item);
                let bytes = [mark.as_bytes(), rest].concat();
                site.file(&self.stock_path(class, item)[1..], &bytes)?;
            }
        }
        Ok(())
    }

    /// The path of a script.
    pub(crate) fn path(&self, printing: Printing, visit: Visit) -> String {
        let (folder, name) = (printing.folder(), self.scenario.states[visit.state].name);
        format!("/{folder}/{name}.php?user={}&item={}", visit.user, visit.item)
    }

    /// The path of an item's own file.
    pub(crate) fn stock_path(&self, class: usize, item: usize) -> String {
        format!("/stock/{}/{class}-{item}.bin", item / self.scenario.items.each)
    }

    /// An item's own file: its beginning, and the rest.
    pub(crate) fn stored(&self, class: usize, item: usize) -> (String, &[u8]) {
        let mark = format!("[{class}:{item}]");
        let size = self.scenario.size(class, item) - mark.len();
        // An odd step, so that neighbours begin in different places of a page of memory.
        let start = (item * 40_503 + class * 7_919) % STARTS;
        (mark, &self.stock[start..start + size])
    }

    /// The right answer of a script: its calculated part, and two parts that are there already.
    pub(crate) fn page(&self, visit: Visit) -> (Vec<u8>, [&[u8]; 2]) {
        let state = &self.scenario.states[visit.state];
        let Kind::Page { asks } = state.kind else {
            return (Vec::new(), [&self.pictures[visit.state][visit.item], b""]);
        };
        let mut text = self.scenario.head.replace("<?= $title ?>", &title(state));
        let _infallible = writeln!(text, "<p>Customer {}", visit.user);
        for ask in 0..asks {
            text.push_str("<table>\n");
            for record in backend::answer(&command(state, ask), &visit.user.to_string()).lines() {
                let (label, amount) = record.split_once(';').unwrap_or_default();
                let _infallible = writeln!(text, "<tr><td>{label}<td>{amount}");
            }
            text.push_str("</table>\n");
        }
        text.push_str(self.scenario.foot);
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

/// The script of a state; `None` if the web server sends a file.
fn script(state: &State) -> Option<String> {
    let name = state.name;
    match state.kind {
        Kind::Download => None,
        Kind::Picture { .. } => Some(format!(
            "<?php\nheader('Content-Type: image/jpeg');\n\
             readfile(__DIR__ . '/{name}-' . (int) ($_GET['item'] ?? 0) . '.jpg');\n"
        )),
        Kind::Page { asks } => {
            let mut text = format!(
                "<?php\nrequire __DIR__ . '/settings.php';\nrequire __DIR__ . '/page.php';\n\
                 $user = (int) ($_GET['user'] ?? 0);\nhead('{}', $user);\n",
                title(state)
            );
            for ask in 0..asks {
                let _infallible = writeln!(text, "records('{}', $user);", command(state, ask));
            }
            let _infallible = writeln!(text, "foot(__DIR__ . '/{name}.txt');");
            Some(text)
        }
    }
}

fn pictures(seed: u64, state: &State, items: usize) -> Vec<Vec<u8>> {
    match state.kind {
        Kind::Page { .. } | Kind::Download => Vec::new(),
        Kind::Picture { first, step } => {
            (0..items).zip(seed..).map(|(item, seed)| noise(seed, first + step * item)).collect()
        }
    }
}

/// Random bytes, the same in every run, for the largest file of an item.
fn stock(scenario: &Scenario) -> Vec<u8> {
    let largest = scenario.items.files.iter().copied().flatten().max();
    let mut bytes = vec![0; largest.map_or(0, |largest| largest + STARTS)];
    fastrand::Rng::with_seed(7).fill(&mut bytes);
    bytes
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
    use super::super::published::{BANKING, ECOMMERCE, Published, SUPPORT};
    use super::*;

    /// Averages over the published shares, in KB of 1,000 bytes.
    #[derive(Debug, Default)]
    struct Averages {
        /// Pages and pictures of scripts.
        dynamic: f64,
        embedded: f64,
        /// Embedded files after 304s.
        sent: f64,
        downloads: f64,
    }

    fn averages(published: &Published) -> Averages {
        let scenario = published.scenario;
        let contents = Contents::new(scenario, 1);
        let mut all = Averages::default();
        for ((number, state), share) in scenario.states.iter().enumerate().zip(published.shares) {
            let share = share / 100.0 / 1e3;
            let items = 0..scenario.items.each;
            let mean = |bytes: f64| bytes / scenario.items.each as f64;
            if state.kind != Kind::Download {
                let pages = items.clone().map(|item| {
                    let visit = Visit { state: number, user: 12_345, item };
                    let (text, [padding, end]) = contents.page(visit);
                    (text.len() + padding.len() + end.len()) as f64
                });
                all.dynamic += share * mean(pages.sum());
            }
            for &index in state.embedded {
                let file = scenario.files[usize::from(index)];
                all.embedded += share * file.size as f64;
                all.sent += share * file.size as f64 * (1.0 - file.kept);
            }
            for &class in state.pictures {
                let pictures = items.clone().map(|item| scenario.size(class, item) as f64);
                let picture = share * mean(pictures.sum());
                all.embedded += picture;
                all.sent += picture;
            }
            if state.kind == Kind::Download {
                all.downloads += share * 6.92e6;
            }
        }
        all
    }

    #[test]
    fn pages_have_the_sizes_of_the_papers() {
        for published in [&BANKING, &ECOMMERCE, &SUPPORT] {
            let all = averages(published);
            let size = all.dynamic + all.embedded;
            assert!((size - published.size).abs() < 1.0, "{size} KB: {all:?}");
            let share = all.dynamic / (all.dynamic + all.sent + all.downloads) * 100.0;
            assert!((share - published.dynamic).abs() < 1.0, "{share} % dynamic: {all:?}");
        }
    }

    #[test]
    fn the_site_holds_the_files_of_every_item() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let site = Site::create(dir.path(), None, &[]).expect("a site");
        let mut contents = Contents::new(ECOMMERCE.scenario, 2);
        contents.write(&site, SocketAddr::from(([127, 0, 0, 1], 1))).expect("written");
        for (class, item) in [(0, 0), (2, 9), (1, 10), (2, 19)] {
            let path = site.root.join(&contents.stock_path(class, item)[1..]);
            let bytes = fs::read(path).expect("a file");
            let (mark, rest) = contents.stored(class, item);
            assert_eq!(bytes, [mark.as_bytes(), rest].concat());
            assert_eq!(bytes.len(), contents.scenario.size(class, item));
        }
        assert_eq!(contents.scenario.size(2, 19), 5_327 + 9 * 3_911);
        assert!(site.root.join("once/productdetail.txt").is_file());
    }
}
