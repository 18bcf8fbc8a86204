//! Which handler answers a path.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use http::StatusCode;
use sendoff_config::Matching;

use crate::static_files::{CacheLimits, Entry, FileCache, Found, Kind, Refusal, Root, refuses};

/// Index files of a folder, in order.
const INDEX: [&str; 2] = ["index.php", "index.html"];

/// Endings of files that PHP installations run. Files with these endings, in upper or lower case, are never sent as static files:
/// their source may contain passwords.
const SOURCE_ENDINGS: [&str; 3] = ["php", "phar", "phtml"];

/// How many beginnings of a path are tried as a script with path info: each costs a system call.
const MAX_SCRIPTS_IN_PATH: usize = 16;

/// A script and how it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    /// `SCRIPT_FILENAME`.
    pub(crate) filename: Vec<u8>,
    /// `SCRIPT_NAME`.
    pub(crate) name: Vec<u8>,
    /// `PATH_INFO`: what follows the script in the path.
    pub(crate) path_info: Vec<u8>,
    /// What runs it.
    pub(crate) upstream: Upstream,
}

/// What runs a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upstream {
    /// A worker of the pool with this number.
    Workers(usize),
    /// The FastCGI application with this number.
    Application(usize),
}

/// What a path leads to.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// A script, which a worker or a FastCGI application runs.
    Script(Script),
    /// A static file in its current state.
    File(Rc<Entry>),
    /// A folder whose name lacks the slash at its end.
    Folder,
    /// An error page of this status. `why` is for the log; it tells the operator what refuses the path and which option would help.
    Refused { status: StatusCode, why: Option<Cow<'static, str>> },
}

impl Route {
    fn forbidden(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused { status: StatusCode::FORBIDDEN, why: Some(why.into()) }
    }

    const NOT_FOUND: Self = Self::Refused { status: StatusCode::NOT_FOUND, why: None };
}

/// Routes the requests of one event loop.
#[derive(Debug)]
pub(crate) struct Router {
    root: Vec<u8>,
    files: RefCell<FileCache>,
    /// Endings of scripts, with their dot, and what runs them.
    endings: Vec<(Vec<u8>, Upstream)>,
    /// Path prefixes that belong to a FastCGI application, longest first.
    prefixes: Vec<(Vec<u8>, Upstream)>,
}

impl Router {
    /// A router for the site at `root`. Symbolic links in it may lead to the folders in `follow`. At most `open_files` files are
    /// kept open. Workers of `pool` run its scripts.
    ///
    /// # Errors
    /// One of the folders cannot be opened.
    pub(crate) fn new(
        root: &Path,
        follow: &[PathBuf],
        open_files: usize,
        pool: Option<usize>,
    ) -> io::Result<Self> {
        let limits = CacheLimits::default();
        let limits = CacheLimits { entries: limits.entries.min(open_files), ..limits };
        let files = FileCache::new(Root::open(root, follow)?, limits);
        let workers = pool.map(|pool| (b".php".to_vec(), Upstream::Workers(pool)));
        Ok(Self {
            root: root.as_os_str().as_bytes().to_vec(),
            files: RefCell::new(files),
            endings: workers.into_iter().collect(),
            prefixes: Vec::new(),
        })
    }

    /// Attaches the FastCGI application with this number to an ending or a prefix. The first attachment wins.
    pub(crate) fn attach(&mut self, matching: &Matching, application: usize) {
        let upstream = Upstream::Application(application);
        match matching {
            Matching::Ending(ending) => {
                let ending = ending.as_bytes().to_vec();
                self.endings.retain(|(known, upstream)| {
                    *known != ending || matches!(upstream, Upstream::Application(_))
                });
                self.endings.push((ending, upstream));
            }
            Matching::Prefix(prefix) => {
                self.prefixes.push((prefix.as_bytes().to_vec(), upstream));
                self.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
            }
        }
    }

    /// `DOCUMENT_ROOT`.
    #[must_use]
    pub(crate) fn root_bytes(&self) -> &[u8] {
        &self.root
    }

    /// The route of a decoded and normalised path, which starts with a slash.
    #[must_use]
    pub(crate) fn route(&self, path: &[u8]) -> Route {
        if let Some(route) = self.beneath_prefix(path) {
            return route;
        }
        if refuses(path) {
            return Route::forbidden("names that begin with a dot are not served");
        }
        if is_source(path) || self.endings.iter().any(|(ending, _)| has_ending(path, ending)) {
            return self.source(path);
        }
        let found = self.files.borrow_mut().lookup(&path[1..]);
        match found {
            Ok(Found::File(entry)) => Route::File(entry),
            Ok(Found::Directory) => self.folder(path),
            Err(refusal) => self.missing(path, &refusal),
        }
    }

    fn beneath_prefix(&self, path: &[u8]) -> Option<Route> {
        self.prefixes.iter().find_map(|(prefix, upstream)| {
            let rest = path.strip_prefix(&prefix[..])?;
            let inside = rest.is_empty() || rest.starts_with(b"/");
            inside.then(|| self.script(prefix, rest, *upstream))
        })
    }

    fn runs(&self, path: &[u8]) -> Option<Upstream> {
        let mut endings = self.endings.iter();
        endings.find(|(ending, _)| path.ends_with(ending)).map(|(_, upstream)| *upstream)
    }

    /// The route of a path with the ending of a script: an upstream runs the file, or the client gets 403. It is never sent.
    fn source(&self, path: &[u8]) -> Route {
        let kind = self.files.borrow_mut().kind(&path[1..]);
        match kind {
            Ok(Kind::File) => match self.runs(path) {
                Some(upstream) => self.script(path, b"", upstream),
                None => Route::forbidden(
                    "it looks like a script, and nothing runs it; --fastcgi .EXT=ADDRESS would",
                ),
            },
            Ok(Kind::Directory) => self.folder(path),
            Err(refusal) => self.missing(path, &refusal),
        }
    }

    fn missing(&self, path: &[u8], refusal: &Refusal) -> Route {
        match refusal {
            Refusal::NotFound => {
                self.script_in_path(path).unwrap_or_else(|| self.front_controller())
            }
            Refusal::Forbidden(why) => Route::forbidden(why.to_string()),
            Refusal::Failed(error) => Route::Refused {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                why: Some(error.to_string().into()),
            },
        }
    }

    fn folder(&self, path: &[u8]) -> Route {
        if path.ends_with(b"/") { self.index(path) } else { Route::Folder }
    }

    fn script(&self, name: &[u8], path_info: &[u8], upstream: Upstream) -> Route {
        Route::Script(Script {
            filename: [&self.root[..], name].concat(),
            name: name.to_vec(),
            path_info: path_info.to_vec(),
            upstream,
        })
    }

    fn is_file(&self, path: &[u8]) -> bool {
        matches!(self.files.borrow_mut().kind(&path[1..]), Ok(Kind::File))
    }

    fn index(&self, folder: &[u8]) -> Route {
        for name in INDEX {
            let path = [folder, name.as_bytes()].concat();
            if self.is_file(&path) {
                return self.route(&path);
            }
        }
        match self.front_controller() {
            // The folder exists, but has no index file; the server lists no folders.
            Route::Refused { .. } => {
                Route::forbidden("the folder has neither index.php nor index.html")
            }
            route => route,
        }
    }

    /// `/dir/x.php/more`: the shortest beginning that has a script's ending and is a file is the script; the rest is its `PATH_INFO`.
    fn script_in_path(&self, path: &[u8]) -> Option<Route> {
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let scripts = slashes.filter_map(|end| Some((end, self.runs(&path[..end])?)));
        let mut scripts = scripts.take(MAX_SCRIPTS_IN_PATH);
        let (end, upstream) = scripts.find(|&(end, _)| self.is_file(&path[..end]))?;
        Some(self.script(&path[..end], &path[end..], upstream))
    }

    /// A path that leads to no file belongs to `index.php` at the root, if there is one.
    fn front_controller(&self) -> Route {
        let controller = b"/index.php";
        match self.runs(controller) {
            Some(upstream) if self.is_file(controller) => self.script(controller, b"", upstream),
            _ => Route::NOT_FOUND,
        }
    }
}

fn has_ending(path: &[u8], ending: &[u8]) -> bool {
    path.len() >= ending.len() && path[path.len() - ending.len()..].eq_ignore_ascii_case(ending)
}

/// Whether a path has the ending of a file that PHP runs.
pub(crate) fn is_source(path: &[u8]) -> bool {
    let ending = path.rsplit(|&b| b == b'.').next().unwrap_or_default();
    SOURCE_ENDINGS.iter().any(|source| ending.eq_ignore_ascii_case(source.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(files: &[&str]) -> (tempfile::TempDir, Router) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let router = Router::new(dir.path(), &[], 100, Some(0)).unwrap();
        (dir, router)
    }

    fn route(router: &Router, path: &str) -> String {
        match router.route(path.as_bytes()) {
            Route::Script(script) => {
                assert_eq!(script.filename, [router.root_bytes(), &script.name].concat());
                let text = |bytes| String::from_utf8(bytes).unwrap();
                format!("{} {}", text(script.name), text(script.path_info))
            }
            Route::File(entry) => format!("file of {}", entry.size),
            Route::Folder => "folder".to_owned(),
            Route::Refused { status, .. } => status.as_str().to_owned(),
        }
    }

    #[test]
    fn a_site_without_front_controller() {
        let (_dir, router) = site(&[
            "a.txt",
            "x.php",
            "up.jpg",
            "sub/index.html",
            "p.php/real.txt",
            "empty/d/f",
            "s.PHP",
            ".git/x",
            "q.phtml",
        ]);
        for (path, expected) in [
            ("/a.txt", "file of 1"),
            ("/a.txt/", "404"),
            ("/x.php", "/x.php "),
            ("/x.php/a/b", "/x.php /a/b"),
            ("/x.php/", "/x.php /"),
            ("/x.php/y.php/z", "/x.php /y.php/z"),
            ("/up.jpg/x.php", "404"),
            ("/up.jpg/x.php/y", "404"),
            ("/p.php/real.txt", "file of 1"),
            ("/p.php/none", "404"),
            ("/sub", "folder"),
            ("/sub/", "file of 1"),
            ("/empty/", "403"),
            ("/x.php.", "404"),
            ("/s.PHP", "403"),
            ("/q.phtml", "403"),
            ("/.git/x", "403"),
            ("/none", "404"),
        ] {
            assert_eq!(route(&router, path), expected, "{path}");
        }
    }

    #[test]
    fn a_front_controller_gets_what_is_not_there() {
        let (_dir, router) = site(&["index.php", "a.txt", "sub/f"]);
        for (path, expected) in [
            ("/", "/index.php "),
            ("/blog/2026", "/index.php "),
            ("/none.php", "/index.php "),
            ("/index.php/x", "/index.php /x"),
            ("/sub/", "/index.php "),
            ("/a.txt", "file of 1"),
            ("/.env", "403"),
        ] {
            assert_eq!(route(&router, path), expected, "{path}");
        }
    }
}
