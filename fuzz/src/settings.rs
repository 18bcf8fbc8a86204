//! The promise: a configuration file of any bytes is read, resolved and reported on, and its
//! printed form has the same meaning.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sendoff_settings::{Chosen, FileKind, Machine, load, print, read_text, resolve};

/// Maximum number of path components of a file that exists.
const DEPTH: usize = 6;

/// A machine on which every folder exists, and every file has the tried contents.
struct Any<'a>(&'a str);

impl Machine for Any<'_> {
    fn read(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.to_owned())
    }

    fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        // The file includes itself under other names, up to a depth.
        let is_deep = pattern.components().count() > DEPTH;
        Ok(if is_deep { Vec::new() } else { vec![pattern.to_owned()] })
    }

    fn kind(&self, _: &Path) -> io::Result<FileKind> {
        Ok(FileKind::Folder)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn account(&self, _: Option<&str>, _: &Path) -> Result<Chosen, String> {
        Ok(Chosen { account: None, warning: None })
    }

    fn user(&self, _: &str) -> Option<u32> {
        Some(33)
    }

    fn group(&self, _: &str) -> Option<u32> {
        Some(33)
    }

    fn may_append(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn may_run(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn worker_group(&self, _: &str) -> Result<u32, String> {
        Ok(33)
    }

    fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![[192, 0, 2, 1].into()])
    }

    fn has_ipv6(&self) -> bool {
        true
    }

    fn state_folder(&self) -> PathBuf {
        "/".into()
    }

    fn cache_folder(&self) -> PathBuf {
        "/".into()
    }

    fn cores(&self) -> usize {
        2
    }

    fn memory(&self) -> u64 {
        1 << 30
    }
}

/// Checks the promise for a file, as far as it is text.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let machine = Any(&text);
    let mut loaded = load(Path::new("/etc/sendoff/sendoff.toml"), &machine);
    let config = resolve(&loaded.top, &loaded.sources, &machine, &mut loaded.problems);
    assert_eq!(config.is_some(), loaded.problems.errors() == 0);
    let report = loaded.problems.report(&loaded.sources, false);
    assert_eq!(report.is_empty(), loaded.problems.0.is_empty());
    if config.is_some() {
        let printed = print(&loaded.top);
        let again = read_text(&printed);
        assert!(again.as_ref() == Some(&loaded.top), "{printed}");
    }
}

/// Files to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let files: [&[u8]; 6] = [
        b"listen = [8080, 'localhost:81', '[::]:80', 'unix:/run/a mode=0660 group=www proxy_protocol']\nmax_body = '64K'\n[[site]]\nroot = '/srv'\n",
        b"[[pool]]\nname = 'a'\nphp_ini = { date.timezone = 'UTC', extension = ['x', 'y'], z = 1.5 }\n\
          min_workers = 1\numask = '022'\nenv.A = ''\n[[site]]\nroot = 'www'\npool = 'a'\n",
        b"[[site]]\nhosts = ['a.test', '*.b.test']\nroot = \"/srv/\\u00e4\"\nalias = { '/j' = '/k' }\n\
          front_controller = { '/' = '/i.php' }\nfastcgi = { '.php' = 'unix:/x', '/a' = 'h:1' }\n",
        b"[[site]]\nroot = '/srv'\n[[site.route]]\nmatch = '^/(a)(?<n>b)$'\nredirect = '/$1$$?$query'\nstatus = 301\n\
          [[site.route]]\nheader = { Cookie = '!x', A = true }\nresponse_headers = { '+L' = ['a', 'b'], S = false }\n",
        b"[[site]]\nroot = '/srv'\n[[site.route]]\ntry_files = ['$path', '=404']\ncache = '30d, immutable'\n\
          auth = { users = 'u', realm = 'r' }\nallow_from = ['10.0.0.0/8', '::/0']\nparams = { A = 'b' }\n",
        b"include = 'a.toml'\n[[site]]\nroot = \"\"\"\n/x\\\n  y\"\"\"\n",
    ];
    files.map(<[u8]>::to_vec).to_vec()
}

/// Strings that files are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"[[site]]\n",
    b"[[site.route]]\n",
    b"[[pool]]\n",
    b"root = '/srv'\n",
    b"include = ",
    b"match = '",
    b"prefix = '/a'\n",
    b"deny = true\n",
    b"respond = \"",
    b"\\u0041",
    b"\\\\",
    b"'''",
    b"\"\"\"",
    b"{ ",
    b" = ",
    b"[1, 2]",
    b"true",
    b"$1",
    b"(?<a>",
    b"\xc3\xa4",
    b"\x80",
    b"99999999999999999999",
];
