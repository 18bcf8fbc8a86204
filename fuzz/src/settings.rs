//! The promise: a configuration file of any bytes is read, resolved and reported on, and its
//! printed form has the same meaning.

#[path = "../../crates/settings/tests/machine/complete.rs"]
mod complete;

use std::path::Path;

use complete::Complete;
use sendoff_settings::{load, print, read_text, resolve};

/// Checks the promise for a file, as far as it is text.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // Every file has the tried contents.
    let machine = Complete(|_: &Path| text.to_string());
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
