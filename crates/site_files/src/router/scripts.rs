//! The script for a path, and the upstream that runs it.

use sendoff_config::url_path::contains;
use sendoff_config::{FrontController, Matching};
use sendoff_static_files::{Entry, PathKind, Refusal};

use super::{PathTarget, Router, Script, Upstream};
use crate::mounts::MountedPath;

/// The most prefixes of a path that are tried as a script with path info, because each costs a
/// system call.
const MAX_SCRIPTS_IN_PATH: usize = 16;

/// The worker script of a site.
#[derive(Debug)]
pub(super) struct Worker {
    /// The script, without path info.
    pub(super) script: Script,
    /// The script answers for paths that lead to no file.
    pub(super) is_controller: bool,
}

impl Router {
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
    pub(super) fn worker_controller(&self) -> Option<&Script> {
        self.worker.as_ref().filter(|worker| worker.is_controller).map(|worker| &worker.script)
    }

    /// The number of the pool that runs the worker script of the site, if it has one.
    pub fn worker_pool(&self) -> Option<usize> {
        match self.worker.as_ref()?.script.upstream {
            Upstream::Workers(pool) => Some(pool),
            Upstream::Application(_) => None,
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
    pub(super) fn attach(&mut self, matching: &Matching, application: usize) {
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

    /// True if an upstream runs a file of this name.
    pub fn is_script(&self, name: &[u8]) -> bool {
        self.runs(name).is_some()
    }

    pub(super) fn runs(&self, path: &[u8]) -> Option<Upstream> {
        let mut endings = self.endings.iter();
        endings.find(|(ending, _)| path.ends_with(ending)).map(|(_, upstream)| *upstream)
    }

    /// The upstream that runs the script at `name`: the workers of the worker script if `name` is
    /// that script, otherwise `upstream`.
    pub(super) fn runner(&self, name: &[u8], upstream: Upstream) -> Upstream {
        match &self.worker {
            Some(Worker { script, .. }) if script.name == name => script.upstream,
            _ => upstream,
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

    /// `/dir/x.php/more`: the script is the shortest prefix that has a script's ending and is a
    /// file; the rest is its `PATH_INFO`.
    pub(super) fn script_in_path(&self, path: &[u8]) -> Option<PathTarget> {
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let scripts = slashes.filter_map(|end| Some((end, self.runs(&path[..end])?)));
        let mut scripts = scripts.take(MAX_SCRIPTS_IN_PATH);
        let (end, upstream) = scripts.find(|&(end, _)| self.is_file(&path[..end]))?;
        let upstream = self.runner(&path[..end], upstream);
        Some(self.script(&path[..end], &path[end..], upstream))
    }

    /// A script that exists. The site's rules may forbid to run it.
    pub(super) fn script(&self, name: &[u8], path_info: &[u8], upstream: Upstream) -> PathTarget {
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

    /// The front controller for a path that leads to no file.
    pub(super) fn controller(&self, path: &[u8]) -> PathTarget {
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

    /// The call of the FastCGI application with this number as the filter of a file; `None`: the
    /// file is not in the site's folders.
    pub fn filter(&self, entry: &Entry, number: usize) -> Option<Script> {
        let place = self.mounts.place_of(entry)?;
        let (filename, name) = (place.filename(), place.site_path());
        let upstream = Upstream::Application(number);
        Some(Script { filename, name, path_info: Vec::new(), upstream })
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

    pub(super) fn beneath_prefix(&self, path: &[u8]) -> Option<PathTarget> {
        let found = self.prefixes.iter().find(|(prefix, _)| contains(prefix, path));
        let (prefix, number) = found?;
        Some(self.application(prefix, &path[prefix.len()..], *number))
    }

    /// True if a FastCGI application answers for the path, regardless of files.
    pub fn is_beneath_prefix(&self, path: &[u8]) -> bool {
        self.prefixes.iter().any(|(prefix, _)| contains(prefix, path))
    }
}
