//! The choice of the handler for a path.

use std::borrow::Cow;
use std::cell::Ref;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use http::StatusCode;
use sendoff_config::{FrontController, Matching};
use sendoff_static_files::{CacheShare, Entry, Found, PathKind, Refusal, Root, WritingUser, types};

use crate::mounts::{MountedPath, Mounts};
use crate::never_served::{Exceptions, is_source};
use crate::path::{contains, has_ending};

/// The most prefixes of a path that are tried as a script with path info, because each costs a
/// system call.
const MAX_SCRIPTS_IN_PATH: usize = 16;

/// A script and the parameters of its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// `SCRIPT_FILENAME`.
    pub filename: Vec<u8>,
    /// `SCRIPT_NAME`.
    pub name: Vec<u8>,
    /// `PATH_INFO`: the part of the path after the script.
    pub path_info: Vec<u8>,
    /// The upstream that runs it.
    pub upstream: Upstream,
}

/// The upstream of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// A worker of the pool with this number.
    Workers(usize),
    /// The FastCGI application with this number.
    Application(usize),
}

/// The target of a path.
#[derive(Debug, Clone)]
pub enum PathTarget {
    /// A script, which a worker or a FastCGI application runs.
    Script(Script),
    /// A static file in its current state.
    File(Rc<Entry>),
    /// A folder whose entries are listed.
    Listing,
    /// A folder whose path lacks the trailing slash.
    Folder,
    /// An error page of this status. `why` is for the log: it tells the operator the reason and the
    /// option that would help.
    Refused {
        /// The status.
        status: StatusCode,
        /// The reason, for the log.
        why: Option<Cow<'static, str>>,
    },
}

impl PathTarget {
    /// Refused, for this reason.
    pub fn forbidden(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused { status: StatusCode::FORBIDDEN, why: Some(why.into()) }
    }

    /// There is no such file.
    pub const NOT_FOUND: Self = Self::Refused { status: StatusCode::NOT_FOUND, why: None };
}

/// The worker script of a site.
#[derive(Debug)]
struct Worker {
    /// The script, without path info.
    script: Script,
    /// The script answers for paths that lead to no file.
    is_controller: bool,
}

/// Finds the files and scripts of the site's folders by path.
#[derive(Debug)]
pub struct Router {
    root: Vec<u8>,
    mounts: Mounts,
    index: Vec<Vec<u8>>,
    front_controller: FrontController,
    exceptions: Exceptions,
    /// Endings of scripts, with their dot, and the upstreams that run them.
    endings: Vec<(Vec<u8>, Upstream)>,
    worker: Option<Worker>,
    /// Path prefixes that belong to a FastCGI application, longest first.
    prefixes: Vec<(Vec<u8>, usize)>,
    /// The only scripts that run, or folders of such scripts with a trailing slash; empty: all
    /// scripts run.
    php_only: Vec<Vec<u8>>,
    /// The user in whose writable folders no script runs; `None`: scripts run there as well.
    distrusted: Option<WritingUser>,
}

/// The kind of an entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// A folder.
    Folder,
    /// A regular file of this size in bytes.
    File(u64),
}

impl Router {
    /// Closes files that no request has used since the last call.
    pub fn close_unused_files(&self) {
        self.mounts.close_unused();
    }

    /// A router for a site. No script runs in folders that `distrusted` may write to.
    ///
    /// # Errors
    /// One of the site's folders cannot be opened.
    pub fn new(
        config: &sendoff_config::Site,
        distrusted: Option<WritingUser>,
        share: &Rc<CacheShare>,
    ) -> io::Result<Self> {
        let bytes = |names: &[String]| names.iter().map(|name| name.clone().into_bytes()).collect();
        let workers = config.pool.map(|pool| (b".php".to_vec(), Upstream::Workers(pool)));
        let mut router = Self {
            root: config.root.as_os_str().as_bytes().to_vec(),
            mounts: Mounts::open(config, share)?,
            index: bytes(&config.index),
            front_controller: config.front_controller.clone(),
            exceptions: Exceptions::new(&config.serve),
            endings: workers.into_iter().collect(),
            worker: None,
            prefixes: Vec::new(),
            php_only: bytes(&config.php_only),
            distrusted,
        };
        for (number, attachment) in config.fastcgi.iter().enumerate() {
            router.attach(&attachment.matching, number);
        }
        router.worker = config.worker.as_ref().map(|worker| Worker {
            script: router.worker_script(worker.file.as_os_str().as_bytes(), worker.pool),
            is_controller: worker.is_controller,
        });
        Ok(router)
    }

    /// A worker script as requests see it. A script outside of the site's folders appears to lie in
    /// the root.
    pub fn worker_script(&self, file: &[u8], pool: usize) -> Script {
        let path = self.path_of(file);
        let name = path.unwrap_or_else(|| {
            let name = file.rsplit(|byte| *byte == b'/').next().unwrap_or(file);
            [b"/", name].concat()
        });
        let upstream = Upstream::Workers(pool);
        Script { filename: file.to_vec(), name, path_info: Vec::new(), upstream }
    }

    /// The worker script, if it answers for paths that lead to no file.
    fn worker_controller(&self) -> Option<&Script> {
        self.worker.as_ref().filter(|worker| worker.is_controller).map(|worker| &worker.script)
    }

    /// The number of the pool that runs the worker script of the site, if it has one.
    pub fn worker_pool(&self) -> Option<usize> {
        match self.worker.as_ref()?.script.upstream {
            Upstream::Workers(pool) => Some(pool),
            Upstream::Application(_) => None,
        }
    }

    /// The upstream that runs the script at `name`: the workers of the worker script if `name` is
    /// that script, otherwise `upstream`.
    fn runner(&self, name: &[u8], upstream: Upstream) -> Upstream {
        match &self.worker {
            Some(Worker { script, .. }) if script.name == name => script.upstream,
            _ => upstream,
        }
    }

    /// The number of the pool that runs the site's `.php` scripts, if a pool does.
    pub fn pool(&self) -> Option<usize> {
        match self.runs(b".php") {
            Some(Upstream::Workers(pool)) => Some(pool),
            Some(Upstream::Application(_)) | None => None,
        }
    }

    /// Attaches the FastCGI application with this number to an ending or a prefix. The first
    /// attachment wins.
    fn attach(&mut self, matching: &Matching, application: usize) {
        match matching {
            Matching::Ending(ending) => {
                let upstream = Upstream::Application(application);
                let ending = ending.as_bytes().to_vec();
                self.endings.retain(|(known, upstream)| {
                    *known != ending || matches!(upstream, Upstream::Application(_))
                });
                self.endings.push((ending, upstream));
            }
            Matching::Prefix(prefix) => {
                self.prefixes.push((prefix.as_bytes().to_vec(), application));
                self.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
            }
            Matching::Routes => {}
        }
    }

    /// The names of index files.
    pub fn index_names(&self) -> &[Vec<u8>] {
        &self.index
    }

    /// The folder of the site that contains an absolute path, and the rest of the path; `None`: no
    /// folder contains it.
    pub fn root_of<'p>(&self, path: &'p [u8]) -> Option<(Ref<'_, Root>, &'p [u8])> {
        self.mounts.root_of(path)
    }

    /// The alias that contains a path: the length of its prefix, and its folder.
    pub fn alias(&self, path: &[u8]) -> Option<(usize, &[u8])> {
        self.mounts.alias(path)
    }

    /// The length of the path of the site's outermost folder that contains this folder of the site,
    /// or is the same.
    pub fn outermost(&self, folder: &[u8]) -> usize {
        self.mounts.outermost(folder)
    }

    /// The media type of an ending, which must be in lower case and without its dot.
    pub fn media_type(&self, ending: &str) -> Option<&[u8]> {
        let own = self.mounts.media_types().get(ending).map(|own| &own[..]);
        own.or_else(|| types::of_ending(ending).map(str::as_bytes))
    }

    #[must_use]
    /// The absolute path of a site's path in the file system, even if there is no file.
    pub fn filename(&self, path: &[u8]) -> Vec<u8> {
        self.mounts.place(path).filename()
    }

    /// The site's path of a file with this absolute name; `None`: it is in none of the site's
    /// folders.
    pub fn path_of(&self, file: &[u8]) -> Option<Vec<u8>> {
        self.mounts.place_of_file(file).map(|place| place.site_path())
    }

    /// The path of the root in the file system.
    pub fn root_bytes(&self) -> &[u8] {
        &self.root
    }

    /// The route of a decoded and normalised path, which starts with a slash.
    #[must_use]
    pub fn route(&self, path: &[u8]) -> PathTarget {
        if let Some(route) = self.beneath_prefix(path) {
            return route;
        }
        self.file_or_script(path)
    }

    /// The file or script in the folders at a path.
    fn file_or_script(&self, path: &[u8]) -> PathTarget {
        if let Some(hidden) = self.exceptions.hidden(path) {
            return PathTarget::forbidden(hidden.to_string());
        }
        if is_source(path) || self.endings.iter().any(|(ending, _)| has_ending(path, ending)) {
            return self.source(path);
        }
        match self.mounts.place(path).lookup() {
            Ok(Found::File(entry)) => match self.exceptions.protected(path) {
                Some(protected) => PathTarget::forbidden(protected.to_string()),
                None => PathTarget::File(entry),
            },
            Ok(Found::Directory) => self.folder(path),
            Err(refusal) => self.missing(path, &refusal),
        }
    }

    /// The compressed variant of a file, which lies beside it with this ending. The variant must be
    /// a file that may be served, and must not be older than the original.
    pub fn ready_made(&self, entry: &Entry, ending: &str) -> Option<Rc<Entry>> {
        let (path, found) = self.mounts.beside(entry, ending)?;
        let Ok(Found::File(ready)) = found else { return None };
        let is_refused = self.exceptions.hidden(&path).is_some()
            || self.exceptions.protected(&path).is_some()
            || is_source(&path);
        (!is_refused && ready.modified >= entry.modified).then_some(ready)
    }

    /// The call of the FastCGI application with this number as the filter of a file; `None`: the
    /// file is not in the site's folders.
    pub fn filter(&self, entry: &Entry, number: usize) -> Option<Script> {
        let place = self.mounts.place_of(entry)?;
        let (filename, name) = (place.filename(), place.site_path());
        let upstream = Upstream::Application(number);
        Some(Script { filename, name, path_info: Vec::new(), upstream })
    }

    /// The file at a path, for a route that runs no scripts.
    pub fn file(&self, path: &[u8]) -> PathTarget {
        match self.file_or_script(path) {
            PathTarget::Script(script) if script.name == path => {
                PathTarget::forbidden("the route serves files, and this is a script")
            }
            PathTarget::Script(_) => PathTarget::NOT_FOUND,
            other => other,
        }
    }

    /// The file at a path, for a route that runs no scripts and lists folders without an index file.
    pub fn file_or_listing(&self, path: &[u8]) -> PathTarget {
        let is_listed = path.ends_with(b"/")
            && self.exceptions.hidden(path).is_none()
            && self.exceptions.protected(path).is_none()
            && self.is_folder(path)
            && self.index_of(path).is_none();
        if is_listed { PathTarget::Listing } else { self.file(path) }
    }

    /// The names in a folder, at most this number.
    pub fn names_in(&self, folder: &[u8], most: usize) -> Result<Vec<Vec<u8>>, Refusal> {
        self.mounts.place(folder).names(most)
    }

    /// Kind and last modification of an entry of a folder; `None`: it is not served as a file or a
    /// folder.
    pub fn listed(&self, path: &[u8]) -> Option<(ListKind, u64)> {
        let is_refused = self.exceptions.hidden(path).is_some()
            || self.exceptions.protected(path).is_some()
            || is_source(path)
            || self.is_script(path);
        let identity = if is_refused { None } else { self.mounts.place(path).identity().ok() }?;
        let kind = match identity.is_regular_file() {
            true => ListKind::File(identity.size),
            false => ListKind::Folder,
        };
        Some((kind, identity.modified().0))
    }

    /// True if an upstream runs a file of this name.
    pub fn is_script(&self, name: &[u8]) -> bool {
        self.runs(name).is_some()
    }

    /// The static file with this absolute name, served at `path`.
    pub fn at(&self, file: &[u8], path: &[u8]) -> PathTarget {
        if is_source(file) {
            return PathTarget::forbidden("it looks like a script, and the rules do not run it");
        }
        let Some(place) = self.mounts.place_of_file(file) else {
            return PathTarget::forbidden(
                "the rules lead to a file outside the folders of the site",
            );
        };
        let refused = self.exceptions.hidden(place.path()).map(|why| why.to_string());
        let protected = || self.exceptions.protected(place.path()).map(|why| why.to_string());
        if let Some(why) = refused.or_else(protected) {
            return PathTarget::forbidden(why);
        }
        match place.lookup() {
            Ok(Found::File(entry)) => PathTarget::File(entry),
            Ok(Found::Directory) => self.folder(path),
            Err(Refusal::NotFound) => PathTarget::NOT_FOUND,
            Err(refusal) => self.missing(path, &refusal),
        }
    }

    /// The script with this absolute name, called as `name`.
    pub fn php(&self, file: &[u8], name: &[u8], path_info: &[u8]) -> PathTarget {
        let upstream = self.runs(file).or_else(|| self.runs(b".php"));
        let Some(upstream) = upstream else {
            return PathTarget::forbidden("it is a script, and nothing runs it");
        };
        let Some(place) = self.mounts.place_of_file(file) else {
            return PathTarget::forbidden(
                "the rules lead to a script outside the folders of the site",
            );
        };
        if let Some(hidden) = self.exceptions.hidden(place.path()) {
            return PathTarget::forbidden(hidden.to_string());
        }
        match place.kind() {
            Ok(PathKind::File) => {
                let upstream = self.runner(&place.site_path(), upstream);
                self.script_at_place(&place, name, path_info, upstream)
            }
            Ok(PathKind::Directory) | Err(Refusal::NotFound) => PathTarget::NOT_FOUND,
            Err(refusal) => self.missing(name, &refusal),
        }
    }

    /// The handler of a path that does not exist.
    pub fn missing_at(&self, path: &[u8]) -> PathTarget {
        match self.exceptions.hidden(path) {
            Some(hidden) => PathTarget::forbidden(hidden.to_string()),
            None => self.controller(path),
        }
    }

    /// The script at a path, or the script that a prefix of the path names, regardless of its
    /// ending.
    pub fn script_at(&self, path: &[u8], upstream: Upstream) -> PathTarget {
        if let Some(hidden) = self.exceptions.hidden(path) {
            return PathTarget::forbidden(hidden.to_string());
        }
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let mut ends = ends.skip(1).take(MAX_SCRIPTS_IN_PATH).chain([path.len()]);
        match ends.find(|&end| self.is_file(&path[..end])) {
            Some(end) => self.script(&path[..end], &path[end..], upstream),
            None if self.is_folder(path) && path.ends_with(b"/") => {
                let index = self.index_of(path);
                index.map_or(PathTarget::NOT_FOUND, |index| self.script(&index, b"", upstream))
            }
            None => PathTarget::NOT_FOUND,
        }
    }

    /// A FastCGI application that answers for a path, even if there is no file.
    pub fn application(&self, name: &[u8], path_info: &[u8], number: usize) -> PathTarget {
        PathTarget::Script(Script {
            filename: [&self.root[..], name].concat(),
            name: name.to_vec(),
            path_info: path_info.to_vec(),
            upstream: Upstream::Application(number),
        })
    }

    fn beneath_prefix(&self, path: &[u8]) -> Option<PathTarget> {
        let found = self.prefixes.iter().find(|(prefix, _)| contains(prefix, path));
        let (prefix, number) = found?;
        Some(self.application(prefix, &path[prefix.len()..], *number))
    }

    /// True if the path is refused because of its name alone.
    pub fn hides(&self, path: &[u8]) -> bool {
        self.exceptions.hidden(path).is_some()
    }

    /// True if a FastCGI application answers for the path, regardless of files.
    pub fn is_beneath_prefix(&self, path: &[u8]) -> bool {
        self.prefixes.iter().any(|(prefix, _)| contains(prefix, path))
    }

    fn runs(&self, path: &[u8]) -> Option<Upstream> {
        let mut endings = self.endings.iter();
        endings.find(|(ending, _)| path.ends_with(ending)).map(|(_, upstream)| *upstream)
    }

    /// The route of a path with the ending of a script: an upstream runs the file, or the client
    /// gets 403. The file is never sent.
    fn source(&self, path: &[u8]) -> PathTarget {
        match self.mounts.place(path).kind() {
            Ok(PathKind::File) => match self.runs(path) {
                Some(upstream) => self.script(path, b"", self.runner(path, upstream)),
                None => PathTarget::forbidden(
                    "it looks like a script, and nothing runs it; fastcgi = { \".EXT\" = ADDRESS } (--fastcgi .EXT=ADDRESS) would",
                ),
            },
            Ok(PathKind::Directory) => self.folder(path),
            Err(refusal) => self.missing(path, &refusal),
        }
    }

    fn missing(&self, path: &[u8], refusal: &Refusal) -> PathTarget {
        match refusal {
            Refusal::NotFound => self.script_in_path(path).unwrap_or_else(|| self.controller(path)),
            Refusal::Forbidden(why) => PathTarget::forbidden(why.to_string()),
            Refusal::Failed(error) => PathTarget::Refused {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                why: Some(error.to_string().into()),
            },
        }
    }

    fn folder(&self, path: &[u8]) -> PathTarget {
        if path.ends_with(b"/") { self.index(path) } else { PathTarget::Folder }
    }

    /// A script that exists. The site's rules may forbid to run it.
    fn script(&self, name: &[u8], path_info: &[u8], upstream: Upstream) -> PathTarget {
        self.script_at_place(&self.mounts.place(name), name, path_info, upstream)
    }

    fn script_at_place(
        &self,
        place: &MountedPath<'_, '_>,
        name: &[u8],
        path_info: &[u8],
        upstream: Upstream,
    ) -> PathTarget {
        if let Some(protected) = self.exceptions.protected(place.path()) {
            return PathTarget::forbidden(protected.to_string());
        }
        let is_listed = |allowed: &Vec<u8>| match allowed.strip_suffix(b"/") {
            Some(_) => name.starts_with(allowed),
            None => name == allowed,
        };
        if !self.php_only.is_empty() && !self.php_only.iter().any(is_listed) {
            let name = String::from_utf8_lossy(name);
            return PathTarget::forbidden(format!("php_only (--php-only) does not list {name}"));
        }
        let writable = self.distrusted.as_ref().map(|user| place.writable_above(user));
        match writable {
            None | Some(Ok(None)) => {}
            Some(Ok(Some(folder))) => {
                return PathTarget::forbidden(format!(
                    "the workers' user may write to {}; scripts_in_writable_folders = true would run scripts there",
                    folder.display()
                ));
            }
            Some(Err(refusal)) => {
                return PathTarget::forbidden(format!(
                    "whether the workers' user may write to it cannot be found out: {refusal}"
                ));
            }
        }
        PathTarget::Script(Script {
            filename: place.filename(),
            name: name.to_vec(),
            path_info: path_info.to_vec(),
            upstream,
        })
    }

    /// True if there is a file at a path.
    pub fn is_file(&self, path: &[u8]) -> bool {
        self.mounts.place(path).is_file()
    }

    /// True if there is a folder at a path.
    pub fn is_folder(&self, path: &[u8]) -> bool {
        matches!(self.mounts.place(path).kind(), Ok(PathKind::Directory))
    }

    /// The path of a folder's index file.
    pub fn index_of(&self, folder: &[u8]) -> Option<Vec<u8>> {
        let mut paths = self.index.iter().map(|name| [folder, name].concat());
        paths.find(|path| self.is_file(path))
    }

    fn index(&self, folder: &[u8]) -> PathTarget {
        // The worker script answers for its folder, regardless of its name.
        if let Some(worker) = self.worker_controller()
            && worker.name.strip_prefix(folder).is_some_and(|name| !name.contains(&b'/'))
        {
            return PathTarget::Script(worker.clone());
        }
        if let Some(index) = self.index_of(folder) {
            return self.file_or_script(&index);
        }
        // A front controller answers for its own folder. The server lists no folders.
        let own = match &self.front_controller {
            FrontController::Listed(all) => all.iter().any(|controller| {
                folder.strip_suffix(b"/").is_some_and(|name| name == controller.folder.as_bytes())
            }),
            FrontController::Off | FrontController::Nearest => false,
        };
        let controller = if own { self.controller(folder) } else { PathTarget::NOT_FOUND };
        match controller {
            PathTarget::Refused { .. } => {
                let names = self.index.iter().map(|name| String::from_utf8_lossy(name));
                let names = names.collect::<Vec<_>>().join(" nor ");
                PathTarget::forbidden(format!(
                    "the folder has neither {names}: put one there, or name another (index, --index)"
                ))
            }
            route => route,
        }
    }

    /// `/dir/x.php/more`: the script is the shortest prefix that has a script's ending and is a
    /// file; the rest is its `PATH_INFO`.
    fn script_in_path(&self, path: &[u8]) -> Option<PathTarget> {
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let scripts = slashes.filter_map(|end| Some((end, self.runs(&path[..end])?)));
        let mut scripts = scripts.take(MAX_SCRIPTS_IN_PATH);
        let (end, upstream) = scripts.find(|&(end, _)| self.is_file(&path[..end]))?;
        let upstream = self.runner(&path[..end], upstream);
        Some(self.script(&path[..end], &path[end..], upstream))
    }

    /// The front controller for a path that leads to no file.
    fn controller(&self, path: &[u8]) -> PathTarget {
        if let Some(worker) = self.worker_controller() {
            return PathTarget::Script(worker.clone());
        }
        match &self.front_controller {
            FrontController::Off => PathTarget::NOT_FOUND,
            FrontController::Listed(all) => {
                let contains = |folder: &str| {
                    let rest = path.strip_prefix(folder.as_bytes());
                    rest.is_some_and(|rest| rest.starts_with(b"/"))
                };
                let found = all.iter().find(|controller| contains(&controller.folder));
                found.map_or(PathTarget::NOT_FOUND, |found| self.run(found.script.as_bytes()))
            }
            FrontController::Nearest => {
                let slashes = path.iter().enumerate().rev().filter(|(_, b)| **b == b'/');
                let mut scripts = slashes
                    .take(MAX_SCRIPTS_IN_PATH)
                    .map(|(at, _)| [&path[..at], b"/index.php"].concat());
                let found = scripts.find(|script| self.is_file(script));
                found.map_or(PathTarget::NOT_FOUND, |script| self.run(&script))
            }
        }
    }

    fn run(&self, script: &[u8]) -> PathTarget {
        match self.runs(script) {
            Some(upstream) if self.is_file(script) => {
                self.script(script, b"", self.runner(script, upstream))
            }
            _ => PathTarget::NOT_FOUND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_static_files::CacheLimits;

    fn router(site: &sendoff_config::Site) -> Router {
        Router::new(site, None, &CacheShare::new(CacheLimits::default())).unwrap()
    }

    fn site(files: &[&str]) -> (tempfile::TempDir, Router) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let site = sendoff_config::Site::new(dir.path().to_owned());
        let router = router(&sendoff_config::Site { pool: Some(0), ..site });
        (dir, router)
    }

    fn route(router: &Router, path: &str) -> String {
        match router.route(path.as_bytes()) {
            PathTarget::Script(script) => {
                assert_eq!(script.filename, [router.root_bytes(), &script.name].concat());
                let text = |bytes| String::from_utf8(bytes).unwrap();
                format!("{} {}", text(script.name), text(script.path_info))
            }
            PathTarget::File(entry) => format!("file of {}", entry.size),
            PathTarget::Folder => "folder".to_owned(),
            PathTarget::Listing => "listing".to_owned(),
            PathTarget::Refused { status, .. } => status.as_str().to_owned(),
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
            ("/sub/", "403"),
            ("/a.txt", "file of 1"),
            ("/.env", "403"),
        ] {
            assert_eq!(route(&router, path), expected, "{path}");
        }
    }
}
