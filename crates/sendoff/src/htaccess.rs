//! What `sendoff check` says about `.htaccess` files: those of each site that obeys them are read as the server would read them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sendoff_config::Config;
use sendoff_htaccess::{File, MAX_FILE};
use sendoff_server::static_files::open_regular;

/// Folders between a site's folder and the deepest that is looked into, as in the server.
const MAX_DEPTH: usize = 256;

/// Folders that are looked into, and files that are read.
const MAX_FOLDERS: usize = 200_000;
const MAX_FILES: usize = 10_000;

/// Lines that are printed.
const MAX_LINES: usize = 200;

/// How long it may take: a check is done before each reload.
const MAX_TIME: Duration = Duration::from_secs(10);

/// What was found in the files of all sites.
#[derive(Debug)]
pub(crate) struct Report {
    lines: Vec<String>,
    left_out: usize,
    files: usize,
    folders: usize,
    started: Instant,
    /// Why not all was read.
    stopped: Option<String>,
}

impl Report {
    /// Reads the files of the sites that obey them.
    pub(crate) fn of(config: &Config) -> Self {
        let sites = config.sites.iter().filter(|site| site.htaccess);
        let aliases = sites.clone().flat_map(|site| &site.aliases);
        let folders = sites.map(|site| &site.root).chain(aliases.map(|alias| &alias.folder));
        let folders: BTreeSet<&Path> = folders.map(PathBuf::as_path).collect();
        let started = Instant::now();
        let (lines, left_out, stopped) = (Vec::new(), 0, None);
        let mut report = Self { lines, left_out, files: 0, folders: 0, started, stopped };
        for folder in &folders {
            // A folder beneath another one has been walked with it.
            let is_within = |other: &&Path| other != folder && folder.starts_with(other);
            if !folders.iter().any(is_within) {
                report.walk(folder);
            }
        }
        report
    }

    /// The number of files that were read.
    pub(crate) fn files(&self) -> usize {
        self.files
    }

    fn walk(&mut self, root: &Path) {
        let mut waiting = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = waiting.pop() {
            if self.is_enough(&folder) {
                return;
            }
            self.folders += 1;
            self.read(&folder.join(".htaccess"));
            let mut inner = match folders_in(&folder) {
                Ok(inner) => inner,
                Err(error) => {
                    self.line(format!("{}: not looked into: {error}", folder.display()));
                    continue;
                }
            };
            if depth == MAX_DEPTH && !inner.is_empty() {
                self.line(format!("{}: too deep to look into", folder.display()));
                continue;
            }
            inner.sort_unstable_by(|a, b| b.cmp(a));
            waiting.extend(inner.into_iter().map(|folder| (folder, depth + 1)));
        }
    }

    fn is_enough(&mut self, next: &Path) -> bool {
        let limit = match () {
            () if self.folders >= MAX_FOLDERS => format!("{MAX_FOLDERS} folders"),
            () if self.files >= MAX_FILES => format!("{MAX_FILES} files"),
            () if self.started.elapsed() >= MAX_TIME => format!("{} s", MAX_TIME.as_secs()),
            () => return self.stopped.is_some(),
        };
        let why =
            || format!(".htaccess files were read for {limit}; not those in {}", next.display());
        self.stopped.get_or_insert_with(why);
        true
    }

    fn read(&mut self, path: &Path) {
        let mut bytes = Vec::new();
        let read = open_regular(rustix::fs::CWD, path)
            .and_then(|(file, _)| file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes));
        let name = path.display().to_string();
        let file = match read {
            Ok(_) => File::parse(&bytes, &name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => File::unreadable(&name, &format!("it cannot be read: {error}")),
        };
        self.files += 1;
        for remark in file.remarks() {
            let place = match remark.line {
                0 => name.clone(),
                line => format!("{name}:{line}"),
            };
            self.line(format!("{place}: {} ({})", remark.text, remark.severity.effect()));
        }
    }

    fn line(&mut self, line: String) {
        if self.lines.len() < MAX_LINES {
            self.lines.push(line);
        } else {
            self.left_out += 1;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        if self.left_out > 0 {
            writeln!(f, "and {} more remarks about .htaccess files", self.left_out)?;
        }
        if let Some(stopped) = &self.stopped {
            writeln!(f, "{stopped}")?;
        }
        Ok(())
    }
}

/// The folders in a folder. Symbolic links are not followed: they could lead in circles.
fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut inner = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            inner.push(entry.path());
        }
    }
    Ok(inner)
}
