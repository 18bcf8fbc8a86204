//! What is asked of the servers: the workloads with their targets, and one document root that all servers share.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// How old the files look. opcache does not keep scripts that changed within the last seconds, a site's files are older.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// The page a workload asks for.
#[derive(Clone, Copy, Debug)]
enum Page {
    /// A script that prints "hello".
    Hello,
    /// `echo file_get_contents()` of a file of this many bytes.
    Echo(usize),
    /// hello, file, world, another file, bye; each file of this many bytes.
    Mixed(usize),
    /// `readfile()` of a file of this many bytes.
    Readfile(usize),
    /// `include` of a file of this many bytes, which holds no code.
    Include(usize),
    /// This many bytes of HTML in the script itself, behind `?>`.
    Html(usize),
    /// A plain file of this many bytes, no PHP.
    Static(usize),
}

/// One line of the report.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    page: Page,
    /// How many times nginx + php-fpm's requests/s, and how many times less CPU per response, is wanted of sendoff.
    pub(crate) target: Option<f64>,
}

const fn workload(name: &'static str, page: Page, target: Option<f64>) -> Workload {
    Workload { name, page, target }
}

/// Every workload, in the order of the report.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload("hello", Page::Hello, Some(1.3)),
    workload("file-10k", Page::Echo(10 * KIB), Some(1.3)),
    workload("file-60k", Page::Echo(60 * KIB), Some(2.0)),
    workload("file-200k", Page::Echo(200 * KIB), Some(3.0)),
    workload("file-1m", Page::Echo(MIB), Some(4.5)),
    workload("mixed-60k", Page::Mixed(60 * KIB), Some(1.8)),
    workload("mixed-1m", Page::Mixed(MIB), Some(4.0)),
    workload("readfile-1m", Page::Readfile(MIB), None),
    workload("include-60k", Page::Include(60 * KIB), Some(2.0)),
    workload("html-60k", Page::Html(60 * KIB), Some(1.8)),
    workload("static-10k", Page::Static(10 * KIB), Some(1.0)),
    workload("static-60k", Page::Static(60 * KIB), Some(1.0)),
    workload("static-200k", Page::Static(200 * KIB), Some(1.0)),
    workload("static-1m", Page::Static(MIB), Some(1.0)),
];

impl Workload {
    /// The request target.
    pub(crate) fn path(&self) -> String {
        match self.page {
            Page::Static(size) => format!("/{}", file_name(size, 'a')),
            _ => format!("/{}.php", self.name),
        }
    }

    /// The exact body a server must answer with.
    pub(crate) fn body(&self) -> Vec<u8> {
        match self.page {
            Page::Hello => b"hello".to_vec(),
            Page::Echo(size)
            | Page::Readfile(size)
            | Page::Include(size)
            | Page::Html(size)
            | Page::Static(size) => text(size, 'a'),
            Page::Mixed(size) => {
                [&b"hello"[..], &text(size, 'a'), b"world", &text(size, 'b'), b"bye"].concat()
            }
        }
    }

    fn files(&self) -> Vec<(usize, char)> {
        match self.page {
            Page::Hello | Page::Html(_) => vec![],
            Page::Echo(size) | Page::Readfile(size) | Page::Include(size) | Page::Static(size) => {
                vec![(size, 'a')]
            }
            Page::Mixed(size) => vec![(size, 'a'), (size, 'b')],
        }
    }

    fn script(&self) -> Option<String> {
        let path = |size, which| format!("__DIR__ . '/{}'", file_name(size, which));
        let code = match self.page {
            Page::Hello => "echo 'hello';".to_owned(),
            Page::Echo(size) => format!("echo file_get_contents({});", path(size, 'a')),
            Page::Mixed(size) => format!(
                "$a = {};\n$b = {};\necho 'hello';\necho file_get_contents($a);\necho 'world';\n\
                 echo file_get_contents($b);\necho 'bye';",
                path(size, 'a'),
                path(size, 'b')
            ),
            Page::Readfile(size) => format!("readfile({});", path(size, 'a')),
            Page::Include(size) => format!("include {};", path(size, 'a')),
            Page::Html(size) => {
                format!("?>\n{}", String::from_utf8_lossy(&text(size, 'a')))
            }
            Page::Static(_) => return None,
        };
        if let Page::Html(_) = self.page {
            // What follows the text would be part of it.
            return Some(format!("<?php\n{code}"));
        }
        Some(format!("<?php\n{code}\n"))
    }
}

fn file_name(size: usize, which: char) -> String {
    format!("data/{size}-{which}.txt")
}

/// Text that does not compress to nothing and never repeats, the same in every run.
fn text(size: usize, which: char) -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789\n";
    let mut random = fastrand::Rng::with_seed(size as u64 ^ u64::from(u32::from(which)) << 32);
    (0..size).map(|_| LETTERS[random.usize(..LETTERS.len())]).collect()
}

/// A user that may own the site and run the servers.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// Debian's web user, when we are root and so must name somebody else; `None` when the servers run as ourselves.
    pub(crate) fn for_servers() -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        Self::find(&passwd, "www-data")
            .context("run as root, the benchmark needs the user www-data, which does not exist")
            .map(Some)
    }

    fn find(passwd: &str, name: &str) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            (found == name).then(|| Self { name: name.to_owned(), uid, gid })
        })
    }
}

/// The document root.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) root: PathBuf,
    /// Owner of the site and user of the servers' workers, if not ourselves.
    pub(crate) account: Option<Account>,
}

impl Site {
    /// Writes scripts and files below `dir`, readable by everybody.
    pub(crate) fn create(dir: &Path, account: Option<Account>) -> Result<Self> {
        let site = Self { root: dir.join("site"), account };
        site.directory("")?;
        site.directory("data")?;
        for workload in WORKLOADS {
            if let Some(script) = workload.script() {
                site.file(&format!("{}.php", workload.name), script.as_bytes())?;
            }
            for (size, which) in workload.files() {
                site.file(&file_name(size, which), &text(size, which))?;
            }
        }
        Ok(site)
    }

    fn directory(&self, name: &str) -> Result<()> {
        let path = self.root.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        self.hand_over(&path, 0o755)
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.root.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        fs::File::open(&path)?.set_modified(SystemTime::now() - AGE)?;
        self.hand_over(&path, 0o644)
    }

    fn hand_over(&self, path: &Path, mode: u32) -> Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        if let Some(account) = &self.account {
            chown(path, Some(account.uid), Some(account.gid))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_holds_what_the_workloads_promise() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let site = Site::create(dir.path(), None).expect("site");
        for workload in WORKLOADS {
            let path = site.root.join(&workload.path()[1..]);
            let on_disk = fs::read(&path).expect("the page exists");
            let changed = fs::metadata(&path).and_then(|m| m.modified());
            let age = changed.expect("a time").elapsed().expect("in the past");
            assert!(age >= AGE, "{age:?}");
            match workload.page {
                Page::Static(size) => {
                    assert_eq!(on_disk, workload.body());
                    assert_eq!(on_disk.len(), size);
                }
                _ => assert!(on_disk.starts_with(b"<?php\n")),
            }
        }
    }

    #[test]
    fn the_two_files_of_a_mixed_page_differ() {
        assert_ne!(text(KIB, 'a'), text(KIB, 'b'));
        assert_eq!(text(KIB, 'a'), text(KIB, 'a'));
    }

    #[test]
    fn accounts_are_found_by_whole_name() {
        let passwd =
            "www-data2:x:1:2::/:/bin/sh\nwww-data:x:33:34:www:/var/www:/usr/sbin/nologin\n";
        let found = Account::find(passwd, "www-data").expect("present");
        assert_eq!((found.uid, found.gid), (33, 34));
        assert!(Account::find(passwd, "nobody").is_none());
    }
}
