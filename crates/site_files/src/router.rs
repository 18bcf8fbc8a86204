//! The choice of the handler for a path.

mod files;
mod scripts;
mod target;

use std::cell::Ref;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use http::StatusCode;
use sendoff_config::FrontController;
use sendoff_config::url_path::has_ending;
use sendoff_static_files::{CacheShare, Found, PathKind, Refusal, Root, WritingUser, types};

pub use self::files::ListKind;
use self::scripts::Worker;
pub use self::target::{PathTarget, Script, Upstream};
use crate::mounts::Mounts;
use crate::never_served::{Exceptions, is_source};

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

    /// The handler of a path that does not exist.
    pub fn missing_at(&self, path: &[u8]) -> PathTarget {
        match self.exceptions.hidden(path) {
            Some(hidden) => PathTarget::forbidden(hidden.to_string()),
            None => self.controller(path),
        }
    }

    /// True if the path is refused because of its name alone.
    pub fn hides(&self, path: &[u8]) -> bool {
        self.exceptions.hidden(path).is_some()
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
}

#[cfg(test)]
mod tests;
