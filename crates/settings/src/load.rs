//! From files to sections: the file itself, and the files that it includes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use sendoff_setting_values::{At, FilePath, Place, Problems, Sources};

use crate::keys::Top;
use crate::machine::Machine;
use crate::nested::read;
use crate::resolve::unusable;
use crate::section::Section;

/// The contents of the files.
#[derive(Debug)]
pub struct Loaded {
    /// The sections of all files.
    pub top: Top,
    /// The files.
    pub sources: Sources,
    /// The errors and warnings about them so far.
    pub problems: Problems,
}

/// Reads a file and the files that it includes. The path must be absolute.
#[must_use]
pub fn load(path: &Path, machine: &dyn Machine) -> Loaded {
    let (mut sources, mut problems) = (Sources::default(), Problems::default());
    let mut top = match machine.read(path) {
        Ok(text) => {
            let file = sources.add(path.to_owned(), text);
            read::<Top>(&sources, file, &mut problems)
        }
        Err(error) => {
            problems
                .error(Place::Default, unusable(path, &error))
                .help("name the file with --config FILE");
            let mut top = Top::empty(Place::Default);
            top.broken = true;
            top
        }
    };
    let mut known = HashSet::from([machine.canonical(path).unwrap_or(path.to_owned())]);
    let mut wanted = top.include.take().map(|list| list.value.0).unwrap_or_default();
    while let Some(pattern) = wanted.pop() {
        for path in matching(&pattern, machine, &mut problems) {
            // A link to a folder above would give a file any number of names.
            let path = machine.canonical(&path).unwrap_or(path);
            if !known.insert(path.clone()) {
                let says = format!("{} is included twice", path.display());
                problems.error(pattern.place, says);
                continue;
            }
            if sources.is_full() {
                problems.error(pattern.place, "these are too many files");
                break;
            }
            match machine.read(&path) {
                Ok(text) => {
                    let file = sources.add(path, text);
                    let part = read::<Top>(&sources, file, &mut problems);
                    wanted.extend(add(&mut top, part, &mut problems));
                }
                Err(error) => {
                    problems.error(pattern.place, unusable(&path, &error));
                }
            }
        }
    }
    Loaded { top, sources, problems }
}

/// Reads the text of a file that includes nothing; `None` if it has errors.
#[must_use]
pub fn read_text(text: &str) -> Option<Top> {
    let (mut sources, mut problems) = (Sources::default(), Problems::default());
    let file = sources.add("/sendoff.toml".into(), text.to_owned());
    let top = read::<Top>(&sources, file, &mut problems);
    (problems.errors() == 0).then_some(top)
}

fn matching(
    pattern: &At<FilePath>,
    machine: &dyn Machine,
    problems: &mut Problems,
) -> Vec<PathBuf> {
    let text = pattern.value.0.to_string_lossy();
    let is_pattern = text.contains(['*', '?', '[']);
    match machine.matching(&pattern.value.0) {
        Ok(paths) if paths.is_empty() && !is_pattern => {
            problems.error(pattern.place, format!("{text} does not exist"));
            paths
        }
        Ok(paths) => {
            if paths.is_empty() {
                problems
                    .warning(pattern.place, format!("no file matches {text}"))
                    .help("nothing is included; a path that is not absolute begins at the folder of this file");
            }
            paths
        }
        Err(error) => {
            problems.error(pattern.place, format!("this pattern is wrong: {error}"));
            Vec::new()
        }
    }
}

/// Adds the sections of an included file. Returns its own `include` patterns.
fn add(top: &mut Top, mut part: Top, problems: &mut Problems) -> Vec<At<FilePath>> {
    let include = part.include.take().map(|list| list.value.0).unwrap_or_default();
    for (key, _, place) in part.entries() {
        problems
            .error(place, format!("\"{}\" cannot stand in an included file", key.name))
            .help("in included files only [[site]], [[pool]], [[upstream]] and include stand; move the key to the first file");
    }
    top.site.value.0.append(&mut part.site.value.0);
    top.pool.value.0.append(&mut part.pool.value.0);
    top.upstream.value.0.append(&mut part.upstream.value.0);
    top.broken |= part.broken;
    include
}
