//! The report of `sendoff check` on `.htaccess` files. In sites that obey them, each file is read
//! as the server would read it; in other sites, files with rules about access are counted.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sendoff_config::{Config, Htaccess, PageCache, Site};
use sendoff_htaccess::{CacheLines, File, MAX_FILE};
use sendoff_static_files::open_regular;

/// Maximum depth of folders below a site's folder, as in the server.
const MAX_DEPTH: usize = 256;

/// Maximum numbers of folders to search and of files to read.
const MAX_FOLDERS: usize = 200_000;
const MAX_FILES: usize = 10_000;

/// Maximum number of lines to print.
const MAX_LINES: usize = 200;

/// Time limit: a check runs before each reload.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Findings in the files of all sites.
#[derive(Debug)]
pub(crate) struct HtaccessReport {
    lines: Vec<String>,
    left_out: usize,
    files: usize,
    folders: usize,
    started: Instant,
    /// The reason for stopping early.
    stopped: Option<String>,
    /// In sites that ignore the files: the first file with rules about access, and the
    /// number of such files.
    ignored: Option<(PathBuf, usize)>,
    cache_lines: CacheLines,
}

impl HtaccessReport {
    /// Reads the files of the sites that obey them.
    pub(crate) fn of(config: &Config) -> Self {
        let started = Instant::now();
        let (lines, left_out, stopped, ignored) = (Vec::new(), 0, None, None);
        let is_lscache = |site: &Site| site.page_cache.is_some_and(PageCache::is_lscache);
        let cache_lines = match config.sites.iter().any(is_lscache) {
            true => CacheLines::Obeyed,
            false => CacheLines::Skipped,
        };
        let (files, folders) = (0, 0);
        let mut report =
            Self { lines, left_out, files, folders, started, stopped, ignored, cache_lines };
        let obeyed = folders_of(config, |obeys| obeys != Htaccess::Ignored);
        obeyed.iter().for_each(|folder| report.walk(folder, Self::read));
        report.look_above(&obeyed);
        for folder in folders_of(config, |obeys| obeys == Htaccess::Ignored) {
            if !obeyed.iter().any(|other| folder.starts_with(other)) {
                report.walk(folder, Self::read_ignored);
            }
        }
        if let Some((first, count)) = report.ignored.take() {
            let others = match count - 1 {
                0 => String::new(),
                others => format!(", and {others} more files"),
            };
            report.line(format!(
                "{}{others}: about access, and ignored because of htaccess = false: do the site's routes protect the same?",
                first.display()
            ));
        }
        report
    }

    /// Names files above the folders of sites, which Apache reads where `AllowOverride` lets it.
    fn look_above(&mut self, folders: &BTreeSet<&Path>) {
        let above: BTreeSet<_> =
            folders.iter().flat_map(|folder| folder.ancestors().skip(1)).collect();
        for folder in above {
            let path = folder.join(".htaccess");
            if parsed(&path, self.cache_lines).is_some() {
                self.line(format!(
                    "{}: not read, because it is above the folder of the site: should the same hold there?",
                    path.display()
                ));
            }
        }
    }

    /// The number of files that were read.
    pub(crate) fn files(&self) -> usize {
        self.files
    }

    fn walk(&mut self, root: &Path, read: fn(&mut Self, &Path)) {
        let mut waiting = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = waiting.pop() {
            if self.stop_at_limit(&folder) {
                return;
            }
            self.folders += 1;
            read(self, &folder.join(".htaccess"));
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

    /// True if a limit is reached before the folder `next`, or was reached before it.
    fn stop_at_limit(&mut self, next: &Path) -> bool {
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

    fn read_ignored(&mut self, path: &Path) {
        if parsed(path, self.cache_lines).is_some_and(|file| file.protects()) {
            let (_, count) = self.ignored.get_or_insert_with(|| (path.to_owned(), 0));
            *count += 1;
        }
    }

    fn read(&mut self, path: &Path) {
        let name = path.display().to_string();
        let Some(file) = parsed(path, self.cache_lines) else { return };
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

impl fmt::Display for HtaccessReport {
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

/// A file parsed as the server would parse it; `None` if there is none.
fn parsed(path: &Path, lines: CacheLines) -> Option<File> {
    let mut bytes = Vec::new();
    let read = open_regular(rustix::fs::CWD, path)
        .and_then(|(file, _)| file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes));
    let name = path.display().to_string();
    match read {
        Ok(_) => Some(File::parse(&bytes, &name, lines)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(File::unreadable(&name, &format!("it cannot be read: {error}"))),
    }
}

/// The folders of sites that treat `.htaccess` files in the given way; none of them is inside
/// another.
fn folders_of(config: &Config, is_meant: impl Fn(Htaccess) -> bool) -> BTreeSet<&Path> {
    let sites = config.sites.iter().filter(|site| is_meant(site.htaccess));
    let aliases = sites.clone().flat_map(|site| &site.aliases);
    let folders = sites.map(|site| &site.root).chain(aliases.map(|alias| &alias.folder));
    let folders: BTreeSet<&Path> = folders.map(PathBuf::as_path).collect();
    let is_within = |folder: &&Path, other: &&Path| other != folder && folder.starts_with(other);
    let outermost = |folder: &&Path| !folders.iter().any(|other| is_within(folder, other));
    folders.iter().copied().filter(outermost).collect()
}

/// The subfolders of a folder. Symbolic links are not followed, because they could lead in circles.
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
