//! The workloads with their targets, and the document root that all servers share.

use crate::peers::PHP_WORKERS;
use anyhow::{Context, Result};
use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// Age of the site's files: opcache does not keep scripts that changed within the last seconds.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// The line that generated bodies repeat.
const LINE: &str = "sixty-three bytes and a line feed are what this line is made of\n";

/// The page of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Page {
    /// A script that prints "hello".
    Hello,
    /// `echo file_get_contents()` of a file of this many bytes.
    Echo(usize),
    /// hello, file, world, another file, bye; each file of this many bytes.
    Mixed(usize),
    /// `readfile()` of a file of this many bytes.
    Readfile(usize),
    /// `fpassthru()` of a file of this many bytes.
    Passthru(usize),
    /// A file of this many bytes read and printed in pieces of 8 KiB.
    Loop(usize),
    /// The same with the loop of Symfony's BinaryFileResponse, in pieces of 16 KiB.
    Symfony(usize),
    /// A file of this many bytes that the worker writes to before it prints it, so that the
    /// snapshot guard must act each time.
    Changing(usize),
    /// This many bytes that the script generates.
    Generated(usize),
    /// This many bytes that a FastCGI program in C generates and prints piece by piece.
    Responder(usize),
    /// The same, printed as one string.
    WholeResponder(usize),
    /// `include` of a file of this many bytes, which holds no code.
    Include(usize),
    /// This many bytes of HTML in the script itself, behind `?>`.
    Html(usize),
    /// A file of this many bytes that the script reads and does not print.
    Eager(usize, Look),
    /// `echo file_get_contents()` of a file of this many bytes, after this many additions.
    Working(usize, u32),
    /// A page of this many bytes that the script writes to a temporary file, names in `X-Sendfile`
    /// and removes.
    NamedCopy(usize),
    /// A page whose script builds a table of this many entries first; in worker mode once.
    Booting(u32),
    /// A plain file of this many bytes, no PHP.
    Static(usize),
}

/// The use that a script makes of a file that it reads and does not print.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    Md5,
    Match,
    Replace,
}

/// Sendoff's target, relative to nginx + php-fpm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// At least this factor in requests/s, and in CPU time saved per response.
    Both(f64),
    /// At least this factor in CPU time saved per response.
    Cpu(f64),
    /// At least this factor in the workers' CPU time saved per response: the cost of a download for
    /// the application.
    Worker(f64),
}

/// One line of the report.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) name: Cow<'static, str>,
    page: Page,
    pub(crate) target: Option<Target>,
}

const fn workload(name: &'static str, page: Page, target: Option<Target>) -> Workload {
    Workload { name: Cow::Borrowed(name), page, target }
}

const fn both(times: f64) -> Option<Target> {
    Some(Target::Both(times))
}

const fn cpu(times: f64) -> Option<Target> {
    Some(Target::Cpu(times))
}

/// Every workload, in the order of the report.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload("hello", Page::Hello, both(1.5)),
    workload("file-10k", Page::Echo(10 * KIB), both(1.3)),
    workload("file-60k", Page::Echo(60 * KIB), both(2.0)),
    workload("file-200k", Page::Echo(200 * KIB), both(3.0)),
    workload("file-1m", Page::Echo(MIB), both(4.5)),
    workload("mixed-60k", Page::Mixed(60 * KIB), both(1.8)),
    workload("mixed-1m", Page::Mixed(MIB), both(4.0)),
    workload("readfile-1m", Page::Readfile(MIB), cpu(5.0)),
    workload("fpassthru-1m", Page::Passthru(MIB), cpu(5.0)),
    workload("loop-1m", Page::Loop(MIB), cpu(5.0)),
    workload("symfony-1m", Page::Symfony(MIB), cpu(5.0)),
    workload("readfile-100m", Page::Readfile(100 * MIB), Some(Target::Worker(8.0))),
    workload("loop-100m", Page::Loop(100 * MIB), Some(Target::Worker(8.0))),
    workload("include-60k", Page::Include(60 * KIB), cpu(2.0)),
    workload("html-60k", Page::Html(60 * KIB), cpu(1.8)),
    // No slower than 1.05 times the time of stock PHP.
    workload("eager-md5", Page::Eager(60 * KIB, Look::Md5), cpu(0.95)),
    workload("eager-match", Page::Eager(60 * KIB, Look::Match), cpu(0.95)),
    workload("eager-replace", Page::Eager(60 * KIB, Look::Replace), cpu(0.95)),
    workload("changing-60k", Page::Changing(60 * KIB), None),
    workload("generated-32k", Page::Generated(32 * KIB), None),
    workload("generated-128k", Page::Generated(128 * KIB), both(1.8)),
    workload("generated-1m", Page::Generated(MIB), both(2.2)),
    workload("generated-4m", Page::Generated(4 * MIB), None),
    workload("static-10k", Page::Static(10 * KIB), both(1.0)),
    workload("static-60k", Page::Static(60 * KIB), both(1.0)),
    workload("static-200k", Page::Static(200 * KIB), both(1.0)),
    workload("static-1m", Page::Static(MIB), both(1.0)),
];

/// Files of another server, through nginx, HAProxy and Sendoff as proxies. The target is relative
/// to nginx.
pub(crate) const PROXIED: &[Workload] = &[
    workload("proxied-1k", Page::Static(KIB), both(1.0)),
    workload("proxied-10k", Page::Static(10 * KIB), both(1.0)),
    workload("proxied-60k", Page::Static(60 * KIB), both(1.0)),
    workload("proxied-1m", Page::Static(MIB), both(1.0)),
];

/// Pages of PHP from page caches. The target is relative to nginx.
pub(crate) const KEPT: &[Workload] = &[
    workload("kept-2k", Page::Generated(2 * KIB), both(1.0)),
    workload("kept-30k", Page::Generated(30 * KIB), both(1.0)),
    workload("kept-128k", Page::Generated(128 * KIB), both(1.0)),
    workload("kept-1m", Page::Generated(MIB), both(1.0)),
];

/// The experiment on generated bodies: Sendoff's delivery modes against each other.
pub(crate) const THESIS_PHP: &[Workload] = &[
    workload("php-32k", Page::Generated(32 * KIB), None),
    workload("php-128k", Page::Generated(128 * KIB), None),
    workload("php-512k", Page::Generated(512 * KIB), None),
    workload("php-1m", Page::Generated(MIB), None),
    workload("php-4m", Page::Generated(4 * MIB), None),
];

/// The same, generated by a program in C.
pub(crate) const THESIS_C: &[Workload] = &[
    workload("c-32k", Page::Responder(32 * KIB), None),
    workload("c-128k", Page::Responder(128 * KIB), None),
    workload("c-512k", Page::Responder(512 * KIB), None),
    workload("c-1m", Page::Responder(MIB), None),
    workload("c-4m", Page::Responder(4 * MIB), None),
    workload("c-whole-128k", Page::WholeResponder(128 * KIB), None),
    workload("c-whole-1m", Page::WholeResponder(MIB), None),
    workload("c-whole-4m", Page::WholeResponder(4 * MIB), None),
];

impl Workload {
    /// A page with a name of its own, without a target.
    pub(crate) fn new(name: impl Into<Cow<'static, str>>, page: Page) -> Self {
        Self { name: name.into(), page, target: None }
    }

    /// The request target.
    pub(crate) fn path(&self) -> String {
        match self.page {
            Page::Responder(size) => format!("/responder?{size}"),
            Page::WholeResponder(size) => format!("/responder?{size}&whole"),
            Page::Static(size) => format!("/{}", file_name(size, 'a')),
            _ => format!("/{}.php", self.name),
        }
    }

    /// Maximum number of connections that request it at a time. nginx writes data that a client has
    /// not accepted yet to disk.
    pub(crate) fn connections(&self) -> usize {
        match self.page {
            Page::Readfile(size) | Page::Loop(size) if size > 10 * MIB => 4,
            _ => usize::MAX,
        }
    }

    /// The exact body of a right answer.
    pub(crate) fn body(&self) -> Vec<u8> {
        match self.page {
            Page::Hello | Page::Booting(_) => b"hello".to_vec(),
            Page::Echo(size)
            | Page::Readfile(size)
            | Page::Passthru(size)
            | Page::Loop(size)
            | Page::Symfony(size)
            | Page::Changing(size)
            | Page::Include(size)
            | Page::Html(size)
            | Page::Working(size, _)
            | Page::NamedCopy(size)
            | Page::Static(size) => text(size, 'a'),
            Page::Mixed(size) => {
                [&b"hello"[..], &text(size, 'a'), b"world", &text(size, 'b'), b"bye"].concat()
            }
            Page::Generated(size) | Page::Responder(size) | Page::WholeResponder(size) => {
                LINE.as_bytes().repeat(size / LINE.len())
            }
            Page::Eager(size, _) => size.to_string().into_bytes(),
        }
    }

    fn files(&self) -> Vec<(usize, char)> {
        match self.page {
            Page::Hello
            | Page::Booting(_)
            | Page::Html(_)
            | Page::Generated(_)
            | Page::Responder(_)
            | Page::WholeResponder(_) => vec![],
            Page::Echo(size)
            | Page::Readfile(size)
            | Page::Passthru(size)
            | Page::Loop(size)
            | Page::Symfony(size)
            | Page::Include(size)
            | Page::Eager(size, _)
            | Page::Changing(size)
            | Page::Working(size, _)
            | Page::NamedCopy(size)
            | Page::Static(size) => vec![(size, 'a')],
            Page::Mixed(size) => vec![(size, 'a'), (size, 'b')],
        }
    }

    fn script(&self) -> Option<String> {
        let path = |size, which| format!("__DIR__ . '/{}'", file_name(size, which));
        let open = |size| format!("$f = fopen({}, 'rb');\n", path(size, 'a'));
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
            Page::Passthru(size) => open(size) + "fpassthru($f);",
            Page::Loop(size) => open(size) + "while (!feof($f)) {\n\techo fread($f, 8192);\n}",
            Page::Symfony(size) => {
                open(size)
                    + "$out = fopen('php://output', 'wb');\n\
                       while (($data = fread($f, 16384)) !== '' && $data !== false) {\n\
                       \tfwrite($out, $data);\n}"
            }
            Page::Changing(size) => format!(
                "$f = __DIR__ . '/data/of-' . getmypid() . '.txt';\n\
                 if (!is_file($f)) copy({}, $f);\n\
                 $first = file_get_contents($f, false, null, 0, 1);\n\
                 $h = fopen($f, 'r+');\nfwrite($h, $first);\nfclose($h);\n\
                 echo file_get_contents($f);",
                path(size, 'a')
            ),
            Page::Working(size, operations) => format!(
                "for ($sum = 0, $i = 0; $i < {operations}; $i++) $sum += $i;\n\
                 echo file_get_contents({});",
                path(size, 'a')
            ),
            Page::NamedCopy(size) => format!(
                "$page = tempnam(__DIR__ . '/data', 'page');\n\
                 file_put_contents($page, file_get_contents({}));\n\
                 header(\"X-Sendfile: $page\");\nunlink($page);",
                path(size, 'a')
            ),
            Page::Booting(entries) => format!(
                "$table = array_map('md5', range(1, {entries}));\n\
                 $answer = static function () use ($table) {{ echo isset($table[1]) ? 'hello' : ''; }};\n\
                 if (!isset($_SERVER['FRANKENPHP_WORKER'])) $answer();\n\
                 else while (frankenphp_handle_request($answer));"
            ),
            Page::Generated(size) => {
                // opcache would combine two literals into one constant.
                format!(
                    "echo str_repeat(\"{}\", (int) ($_GET['lines'] ?? {}));",
                    LINE.escape_default(),
                    size / LINE.len()
                )
            }
            Page::Eager(size, look) => {
                let look = match look {
                    Look::Md5 => "$seen = md5($text);",
                    Look::Match => "$seen = preg_match_all('/\\bthe\\b/', $text);",
                    Look::Replace => "$seen = str_replace('e', 'E', $text);",
                };
                format!(
                    "$text = file_get_contents({});\n{look}\necho strlen($text);",
                    path(size, 'a')
                )
            }
            Page::Include(size) => format!("include {};", path(size, 'a')),
            // Must be at the end of the file: all following bytes are text.
            Page::Html(size) => {
                let text = String::from_utf8_lossy(&text(size, 'a')).into_owned();
                return Some(format!("<?php\n?>\n{text}"));
            }
            Page::Responder(_) | Page::WholeResponder(_) | Page::Static(_) => return None,
        };
        Some(format!("<?php\n{code}\n"))
    }
}

fn file_name(size: usize, which: char) -> String {
    format!("data/{size}-{which}.txt")
}

/// Text that does not compress well, the same in every run. Its period is more than a megabyte, so
/// no two memory pages of a file are equal.
pub(crate) fn text(size: usize, which: char) -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789\n";
    const PERIOD: usize = MIB + 31;
    let mut random = fastrand::Rng::with_seed(size as u64 ^ u64::from(u32::from(which)) << 32);
    let once: Vec<u8> =
        (0..size.min(PERIOD)).map(|_| LETTERS[random.usize(..LETTERS.len())]).collect();
    once.into_iter().cycle().take(size).collect()
}

/// A user that may own the site and run the servers.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// Debian's web user, if the benchmark runs as root; otherwise `None`: the servers then run as
    /// the same user.
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

/// An empty folder for servers. Their workers may run as another user and must be able to reach the
/// site in it.
pub(crate) fn temporary_folder(prefix: &str) -> Result<tempfile::TempDir> {
    let dir = tempfile::Builder::new().prefix(prefix).tempdir()?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// The document root.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) root: PathBuf,
    /// Owner of the site and user of the servers' workers; `None`: the user of the benchmark.
    pub(crate) account: Option<Account>,
    /// PHP workers of every server.
    pub(crate) workers: usize,
}

impl Site {
    /// Writes the workloads' scripts and files below `dir`, readable by all users.
    pub(crate) fn create(
        dir: &Path,
        account: Option<Account>,
        workloads: &[&Workload],
    ) -> Result<Self> {
        let site = Self { root: dir.join("site"), account, workers: PHP_WORKERS };
        site.directory("")?;
        site.directory("data")?;
        for workload in workloads {
            site.add(workload)?;
        }
        Ok(site)
    }

    /// Writes the script and the files of a workload.
    pub(crate) fn add(&self, workload: &Workload) -> Result<()> {
        if let Some(script) = workload.script() {
            self.file(&format!("{}.php", workload.name), script.as_bytes())?;
        }
        for (size, which) in workload.files() {
            self.file(&file_name(size, which), &text(size, which))?;
        }
        Ok(())
    }

    /// The same site for servers with this many PHP workers.
    pub(crate) fn with_workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    pub(crate) fn directory(&self, name: &str) -> Result<()> {
        let path = self.root.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        self.hand_over(&path, 0o755)
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.root.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        fs::File::open(&path)?.set_modified(SystemTime::now() - AGE)?;
        self.hand_over(&path, 0o644)
    }

    /// Gives the files of a folder below the root, which another program wrote, to the servers'
    /// user.
    pub(crate) fn adopt(&self, folder: &Path) -> Result<()> {
        for entry in folder.read_dir()? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.hand_over(&entry.path(), 0o755)?;
                self.adopt(&entry.path())?;
            } else {
                self.hand_over(&entry.path(), 0o644)?;
            }
        }
        Ok(())
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
        let all: Vec<&Workload> = WORKLOADS.iter().collect();
        let site = Site::create(dir.path(), None, &all).expect("site");
        for workload in all {
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
