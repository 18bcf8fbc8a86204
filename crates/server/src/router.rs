//! Which handler answers a path.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use http::StatusCode;

use crate::static_files::{Files, Lookup, refuses};

/// Index files of a folder, in order.
const INDEX: [&str; 2] = ["index.php", "index.html"];

/// Endings of files that PHP installations run. Files with these endings are never sent as they are, whatever the case
/// of their letters: their source may hold passwords.
const SOURCE_ENDINGS: [&str; 3] = ["php", "phar", "phtml"];

/// A script and how it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// `SCRIPT_FILENAME`.
    pub filename: Vec<u8>,
    /// `SCRIPT_NAME`.
    pub name: Vec<u8>,
    /// `PATH_INFO`: what follows the script in the path.
    pub path_info: Vec<u8>,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// A worker.
    Script(Script),
    /// A file, by its path beneath the root.
    File(Vec<u8>),
    /// A folder whose name came without the slash at its end.
    Folder,
    /// The server itself, with this status.
    Refused(StatusCode),
}

/// Routes the requests of one event loop.
#[derive(Debug)]
pub struct Router {
    root: Vec<u8>,
    files: Files,
}

impl Router {
    /// A router for the site at `root`.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn new(root: &Path, follow: &[impl AsRef<Path>]) -> io::Result<Self> {
        let files = Files::open(root, follow)?;
        Ok(Self { root: OsStr::as_bytes(root.as_os_str()).to_vec(), files })
    }

    /// The site's files.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// `DOCUMENT_ROOT`.
    #[must_use]
    pub fn root_bytes(&self) -> &[u8] {
        &self.root
    }

    /// Decides on a decoded and normalised path, which starts with a slash.
    #[must_use]
    pub fn route(&self, path: &[u8]) -> Route {
        if refuses(path) {
            return Route::Refused(StatusCode::FORBIDDEN);
        }
        match self.files.lookup(path) {
            // A file has no folder below it: `/a.txt/` is not `/a.txt`.
            Lookup::File(_) if path.ends_with(b"/") => self.front_controller(),
            Lookup::File(_) if path.ends_with(b".php") => self.script(path, b""),
            Lookup::File(_) if is_source(path) => Route::Refused(StatusCode::FORBIDDEN),
            Lookup::File(_) => Route::File(path.to_vec()),
            Lookup::Folder if path.ends_with(b"/") => self.index(path),
            Lookup::Folder => Route::Folder,
            Lookup::Forbidden => Route::Refused(StatusCode::FORBIDDEN),
            Lookup::NotFound => self.script_in_path(path).unwrap_or_else(|| self.front_controller()),
        }
    }

    fn script(&self, name: &[u8], path_info: &[u8]) -> Route {
        Route::Script(Script {
            filename: [&self.root[..], name].concat(),
            name: name.to_vec(),
            path_info: path_info.to_vec(),
        })
    }

    fn is_file(&self, path: &[u8]) -> bool {
        matches!(self.files.lookup(path), Lookup::File(_))
    }

    fn index(&self, folder: &[u8]) -> Route {
        for name in INDEX {
            let path = [folder, name.as_bytes()].concat();
            if self.is_file(&path) {
                return if path.ends_with(b".php") { self.script(&path, b"") } else { Route::File(path) };
            }
        }
        match self.front_controller() {
            // There is a folder, but no list of what is in it.
            Route::Refused(_) => Route::Refused(StatusCode::FORBIDDEN),
            route => route,
        }
    }

    /// `/dir/x.php/more`: the first name that ends in `.php` and is a file is the script, the rest is its `PATH_INFO`.
    fn script_in_path(&self, path: &[u8]) -> Option<Route> {
        let needle = b".php/";
        let ends = path.windows(needle.len()).enumerate().filter(|(_, part)| part == needle);
        let mut ends = ends.map(|(at, _)| at + needle.len() - 1);
        let end = ends.find(|&end| self.is_file(&path[..end]))?;
        Some(self.script(&path[..end], &path[end..]))
    }

    /// What is not there belongs to `index.php` at the root, if there is one.
    fn front_controller(&self) -> Route {
        let controller = b"/index.php";
        if self.is_file(controller) {
            self.script(controller, b"")
        } else {
            Route::Refused(StatusCode::NOT_FOUND)
        }
    }
}

fn is_source(path: &[u8]) -> bool {
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
        let router = Router::new(dir.path(), &[] as &[&Path]).unwrap();
        (dir, router)
    }

    fn route(router: &Router, path: &str) -> String {
        match router.route(path.as_bytes()) {
            Route::Script(script) => {
                assert_eq!(script.filename, [router.root_bytes(), &script.name].concat());
                let text = |bytes| String::from_utf8(bytes).unwrap();
                format!("{} {}", text(script.name), text(script.path_info))
            }
            Route::File(path) => format!("file {}", String::from_utf8(path).unwrap()),
            Route::Folder => "folder".to_owned(),
            Route::Refused(status) => status.as_str().to_owned(),
        }
    }

    #[test]
    fn a_site_without_front_controller() {
        let (_dir, router) =
            site(&["a.txt", "x.php", "up.jpg", "sub/index.html", "p.php/real.txt", "empty/d/f", "s.PHP", ".git/x", "q.phtml"]);
        for (path, expected) in [
            ("/a.txt", "file /a.txt"),
            ("/a.txt/", "404"),
            ("/x.php", "/x.php "),
            ("/x.php/a/b", "/x.php /a/b"),
            ("/x.php/", "/x.php /"),
            ("/x.php/y.php/z", "/x.php /y.php/z"),
            ("/up.jpg/x.php", "404"),
            ("/up.jpg/x.php/y", "404"),
            ("/p.php/real.txt", "file /p.php/real.txt"),
            ("/p.php/none", "404"),
            ("/sub", "folder"),
            ("/sub/", "file /sub/index.html"),
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
            ("/a.txt", "file /a.txt"),
            ("/.env", "403"),
        ] {
            assert_eq!(route(&router, path), expected, "{path}");
        }
    }
}
