//! Context of resolving: the machine, the files, and the list of problems.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use sendoff_config::HostProgram;
use sendoff_setting_values::{At, FilePath, Free, List, Place, Problems, Size, Sources};

use crate::machine::{FileKind, Machine};

/// Context of resolving.
pub(crate) struct Context<'a> {
    pub(crate) machine: &'a dyn Machine,
    pub(crate) sources: &'a Sources,
    pub(crate) problems: &'a mut Problems,
    /// The stock PHP program of pools that name none, once it has been looked for.
    pub(crate) found_host: OnceCell<Option<HostProgram>>,
}

impl Context<'_> {
    /// The path of a folder without symbolic links. The folder must exist.
    pub(crate) fn folder(&mut self, path: &At<FilePath>) -> Option<PathBuf> {
        let place = path.place;
        let path = &path.value.0;
        let says = match self.machine.canonical(path) {
            Ok(real) => match self.machine.kind(&real) {
                Ok(FileKind::Folder) => return Some(real),
                Ok(_) => format!("{} is not a folder", path.display()),
                Err(error) => unusable(path, &error),
            },
            Err(error) => unusable(path, &error),
        };
        let is_folder =
            |path: &&Path| self.machine.kind(path).is_ok_and(|kind| kind == FileKind::Folder);
        let nearest = path.ancestors().skip(1).find(is_folder);
        let nearest = nearest.filter(|_| self.machine.kind(path).is_err());
        let problem = self.problems.error(place, says);
        if let Some(nearest) = nearest
            && nearest != Path::new("/")
            && place != Place::Default
        {
            problem.help(format!("{} exists, but not what follows", nearest.display()));
        }
        None
    }

    /// The place of the name of an `[[upstream]]` or a `[[pool]]`. The name must differ from the
    /// known ones.
    /// ones.
    pub(crate) fn own_name<'n>(
        &mut self,
        kind: &str,
        name: &At<Free>,
        section: Place,
        known: impl IntoIterator<Item = (&'n str, Place)>,
    ) -> Place {
        let place = if name.place == Place::Default { section } else { name.place };
        let name = &name.value.0;
        if let Some((_, first)) = known.into_iter().find(|(known, _)| known == name) {
            self.problems
                .error(place, format!("two {kind}s have the name \"{name}\""))
                .other(first, "the other one")
                .help(format!("give each [[{kind}]] a name of its own"));
        }
        place
    }

    /// Scripts that must exist and be readable.
    pub(crate) fn scripts(&mut self, list: Option<&At<List<FilePath>>>) -> Vec<PathBuf> {
        let mut scripts = Vec::new();
        for At { value: FilePath(path), place } in list.iter().flat_map(|list| &list.value.0) {
            if let Err(error) = self.machine.read(path) {
                self.problems
                    .error(*place, unusable(path, &error))
                    .help("it must be a file that the user of the server may read");
            }
            scripts.push(path.clone());
        }
        scripts
    }

    /// Warns of a limit that refuses every request with a body. In nginx 0 is no limit.
    pub(crate) fn bodies_are_possible(&mut self, limit: Option<&At<Size>>) {
        if let Some(At { value: Size(0), place }) = limit {
            self.problems
                .warning(*place, "every request with a body is refused")
                .help("0 is a limit here; for none write a size that is never reached: \"1000G\"");
        }
    }

    /// The file of a log, which need not exist yet.
    pub(crate) fn check_log_writable(&mut self, path: &At<FilePath>) {
        if let Err(error) = self.machine.may_append(&path.value.0) {
            let says = unusable(&path.value.0, &error);
            self.problems.error(path.place, says).help(match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "the user who starts the server must be allowed to write it"
                }
                _ => "create the folder, or name a file in another one",
            });
        }
    }
}

/// Why a file or folder cannot be used.
pub(crate) fn unusable(path: &Path, error: &std::io::Error) -> String {
    let error = error.to_string();
    // The words say everything that the error number says.
    let words = error.split(" (os error").next().unwrap_or_default();
    format!("{}: {words}", path.display())
}
