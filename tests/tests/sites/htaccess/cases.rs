//! The format of the corpus: `## NAME` begins a site, `@ PATH` a file of it, `> METHOD TARGET |
//! FIELD: VALUE` is a request that both servers answer alike, and `! STATUS METHOD TARGET` a
//! request that Sendoff answers with this status and Apache differently. `@ PATH -> TARGET` is a
//! symbolic link of the user who runs the tests, `@ PATH => TARGET` one of the files' owner.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};

use sendoff_tests::{Request, Site};

/// A site and the requests to it.
pub(crate) struct Case {
    pub name: String,
    pub host: String,
    pub root: PathBuf,
    pub requests: Vec<Asked>,
}

/// A request of a case.
#[derive(Clone)]
pub(crate) struct Asked {
    /// Sendoff's status, if Apache's answer differs.
    pub differs: Option<u16>,
    pub line: String,
    pub method: String,
    pub target: String,
    pub fields: Vec<(String, String)>,
}

/// The script that `PHP` stands for in a file. It shows its own path and its variables.
pub(crate) const SCRIPT: &str = r#"<?php
header('X-Script: yes');
$seen = [];
foreach ($_SERVER as $name => $value) {
    if (preg_match('/^(REDIRECT_|E_|HTTP_X_|HTTP_AUTHORIZATION$)/', $name)) $seen[] = "$name=$value";
}
sort($seen, SORT_STRING);
echo 'script ', substr(__FILE__, strlen($_SERVER['DOCUMENT_ROOT'])), "\n";
echo 'path info ', $_SERVER['PATH_INFO'] ?? '', "\n";
echo 'query ', $_SERVER['QUERY_STRING'] ?? '', "\n";
echo 'memory ', ini_get('memory_limit'), ' ', ini_get('display_errors'), "\n";
foreach ($seen as $line) echo $line, "\n";
"#;

/// Writes the sites of a corpus beneath a folder.
pub(crate) fn parse(corpus: &str, site: &Site) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut file: Option<(PathBuf, String)> = None;
    for line in corpus.lines().chain(["## "]) {
        let marker = ["## ", "@ ", "> ", "! "].iter().find(|marker| line.starts_with(**marker));
        let Some(marker) = marker else {
            if let Some((_, contents)) = &mut file {
                contents.push_str(line);
                contents.push('\n');
            }
            continue;
        };
        if let Some((path, contents)) = file.take() {
            write(site, path, &contents);
        }
        let rest = &line[marker.len()..];
        match (*marker, cases.last_mut()) {
            ("## ", _) if rest.is_empty() => {}
            ("## ", _) => {
                let host = format!("case{}.test", cases.len());
                let root = site.folder(&host);
                cases.push(Case { name: rest.to_owned(), host, root, requests: Vec::new() });
            }
            ("@ ", Some(case)) if rest.contains(" => ") => {
                let (link, to) = rest.split_once(" => ").unwrap();
                let (link, owner) = (case.root.join(link), case.root.metadata().unwrap().uid());
                symlink(to, &link).unwrap();
                lchown(&link, Some(owner), None).unwrap();
            }
            ("@ ", Some(case)) => match rest.split_once(" -> ") {
                Some((link, to)) => symlink(to, case.root.join(link)).unwrap(),
                None if rest.ends_with('/') => {
                    site.folder(&format!("{}/{rest}", case.host));
                }
                None => file = Some((case.root.join(rest), String::new())),
            },
            ("! ", Some(case)) => {
                let (status, rest) = rest.split_once(' ').unwrap();
                case.requests.push(Asked { differs: status.parse().ok(), ..asked(rest) });
            }
            (_, Some(case)) => case.requests.push(asked(rest)),
            (_, None) => panic!("{line:?} comes before a case"),
        }
    }
    cases
}

fn write(site: &Site, path: PathBuf, contents: &str) {
    let text = match contents.trim_end() {
        "PHP" => SCRIPT.to_owned(),
        "" if path.extension().is_some_and(|ending| ending != "htaccess") => {
            said(site.root(), &path)
        }
        _ => contents.replace("ROOT", &root_of(site, &path).display().to_string()),
    };
    site.write_at(path, text);
}

fn root_of(site: &Site, path: &Path) -> PathBuf {
    let host = path.strip_prefix(site.root()).unwrap().components().next().unwrap();
    site.root().join(host)
}

/// The contents of a file for which the corpus gives none: its path.
fn said(root: &Path, path: &Path) -> String {
    format!("file {}\n", path.strip_prefix(root).unwrap().display())
}

fn asked(line: &str) -> Asked {
    let mut parts = line.split(" | ");
    let (method, target) = parts.next().unwrap().split_once(' ').expect("METHOD TARGET");
    let field = |text: &str| {
        let (name, value) = text.split_once(": ").expect("FIELD: VALUE");
        (name.to_owned(), value.to_owned())
    };
    Asked {
        differs: None,
        line: line.to_owned(),
        method: method.to_owned(),
        target: target.to_owned(),
        fields: parts.map(field).collect(),
    }
}

impl Asked {
    /// The header fields, with a `Host`.
    pub(crate) fn sent(&self, host: &str) -> Vec<(String, String)> {
        let mut fields = self.fields.clone();
        if !fields.iter().any(|(name, _)| name == "Host") {
            fields.insert(0, ("Host".to_owned(), host.to_owned()));
        }
        fields
    }

    /// The request as it is sent.
    pub(crate) fn request(&self, host: &str) -> Request {
        let mut request = Request::get(&self.target);
        request.method.clone_from(&self.method);
        let sent = self.sent(host);
        sent.iter().fold(request, |request, (name, value)| request.header(name, value))
    }
}

/// All files of the corpus.
pub(crate) fn corpus() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sites/htaccess/corpus");
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    names.iter().map(|name| fs::read_to_string(name).unwrap()).collect()
}
