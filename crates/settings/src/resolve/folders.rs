//! Folders of a site: its root, and others that its paths lead to or that files are sent from. Each
//! must exist.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use sendoff_config::{Accel, Alias, FolderLink, LinkedFolder};
use sendoff_setting_values::{At, FilePath, Map};

use super::context::Context;
use crate::keys::Site;

/// Folders beside the root.
pub(super) struct Folders {
    pub(super) aliases: Vec<Alias>,
    pub(super) accel: Vec<Accel>,
    pub(super) sendfile_from: Vec<PathBuf>,
    /// The folders that are written as symbolic links.
    pub(super) links: Vec<FolderLink>,
}

impl Context<'_> {
    /// The root of a site, and its path as written if it leads through symbolic links.
    pub(super) fn root(&mut self, section: &Site) -> Option<(PathBuf, Option<PathBuf>)> {
        let Some(written) = &section.root else {
            if !section.broken {
                self.problems
                    .error(section.place, "this site has no root")
                    .help("root is the folder with its files: root = \"/var/www/example\"");
            }
            return None;
        };
        let root = self.folder(written)?;
        let link = absolute_link(&written.value.0, &root);
        Some((root, link))
    }

    /// The other folders of a site.
    pub(super) fn folders(&mut self, section: &Site) -> Folders {
        let mut links = Vec::new();
        let aliases = self.by_prefix(section.alias.as_ref(), |prefix| &prefix.0);
        let aliases = aliases.into_iter().enumerate().map(|(number, (prefix, folder, written))| {
            links.extend(link(LinkedFolder::Alias(number), &written, &folder));
            Alias { prefix, folder }
        });
        let aliases = aliases.collect();
        let accel = self.by_prefix(section.accel.as_ref(), |path| &path.0);
        let accel = accel.into_iter().enumerate().map(|(number, (prefix, folder, written))| {
            links.extend(link(LinkedFolder::Accel(number), &written, &folder));
            Accel { prefix, folder }
        });
        let accel = accel.collect();
        let mut sendfile_from = Vec::new();
        for written in section.sendfile_from.iter().flat_map(|list| &list.value.0) {
            let Some(folder) = self.folder(written) else { continue };
            links.extend(link(LinkedFolder::SendfileFrom, &written.value.0, &folder));
            sendfile_from.push(folder);
        }
        Folders { aliases, accel, sendfile_from, links }
    }

    /// Prefixes with their folders, and the folders' paths as written; the longest prefix first.
    fn by_prefix<K>(
        &mut self,
        map: Option<&At<Map<K, FilePath>>>,
        prefix: impl Fn(&K) -> &String,
    ) -> Vec<(String, PathBuf, PathBuf)> {
        let mut folders = Vec::new();
        for (key, path) in map.iter().flat_map(|map| &map.value.0) {
            let (folder, written) = (self.folder(path), path.value.0.clone());
            folders.extend(folder.map(|folder| (prefix(&key.value).clone(), folder, written)));
        }
        folders.sort_by_key(|(prefix, ..)| Reverse(prefix.len()));
        folders
    }
}

/// Returns the path of a folder as written, made absolute, if it leads through symbolic links.
/// `folder`: the folder that it leads to now.
fn absolute_link(written: &Path, folder: &Path) -> Option<PathBuf> {
    // Without the current folder there is no relative path that could be used anyway.
    std::path::absolute(written).ok().filter(|written| written != folder)
}

fn link(folder: LinkedFolder, written: &Path, leads_to: &Path) -> Option<FolderLink> {
    Some(FolderLink { folder, link: absolute_link(written, leads_to)? })
}
