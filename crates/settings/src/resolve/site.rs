//! Sites.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use sendoff_config::{
    Accel, AccessLog, Alias, Attachment, Compression, Controller, ErrorPage, FolderLink,
    FrontController as Resolved, Host, LinkedFolder, Site, SiteLog, SiteWorker,
};
use sendoff_setting_values::{
    AppAddress, At, FilePath, FrontController, HostName, Htaccess, List, Map, Matching, Place,
    Prefix, UrlPath, Word,
};

use super::context::Context;
use super::pool::Pools;
use super::route::Routes;
use crate::keys;
use crate::machine::FileKind;

/// Returns the path of a folder as written, made absolute, if it leads through symbolic links.
/// `folder`: the folder that it leads to now.
fn absolute_link(written: &Path, folder: &Path) -> Option<PathBuf> {
    // Without the current folder there is no relative path that could be used anyway.
    std::path::absolute(written).ok().filter(|written| written != folder)
}

fn link(folder: LinkedFolder, written: &Path, leads_to: &Path) -> Option<FolderLink> {
    Some(FolderLink { folder, link: absolute_link(written, leads_to)? })
}

impl Context<'_> {
    /// Resolves a site; `None` if its folder is unusable.
    pub(crate) fn site(
        &mut self,
        section: &keys::Site,
        top: &keys::Top,
        listeners: Vec<usize>,
        pools: &mut Pools,
    ) -> Option<Site> {
        let (pool, worker) = pools.of_site(section.pool.as_ref(), self);
        let mut attached: Vec<_> = self.attached(section.fastcgi.as_ref());
        for (_, At { value, place }) in section.fastcgi.iter().flat_map(|map| &map.value.0) {
            pools.program(&value.0, *place, self);
        }
        let replaced = !section.php.value || attached.iter().any(Attachment::replaces_workers);
        let maps = self.maps(section, top);
        let (routes, proxies) = Routes::resolve(section, &mut attached, pool, pools, self);
        let mut links = Vec::new();
        let aliases = self.folders(section.alias.as_ref(), |prefix| &prefix.0);
        let aliases = aliases.into_iter().enumerate().map(|(number, (prefix, folder, written))| {
            links.extend(link(LinkedFolder::Alias(number), &written, &folder));
            Alias { prefix, folder }
        });
        let aliases = aliases.collect();
        let accel = self.folders(section.accel.as_ref(), |path| &path.0);
        let accel = accel.into_iter().enumerate().map(|(number, (prefix, folder, written))| {
            links.extend(link(LinkedFolder::Accel(number), &written, &folder));
            Accel { prefix, folder }
        });
        let accel = accel.collect();
        let list = |paths: &List<FilePath>| paths.values().map(|path| path.0.clone()).collect();
        let follow = section.follow_symlinks_into.as_ref().map(|at| list(&at.value));
        let mut sendfile_from = Vec::new();
        for written in section.sendfile_from.iter().flat_map(|list| &list.value.0) {
            let Some(folder) = self.folder(written) else { continue };
            links.extend(link(LinkedFolder::SendfileFrom, &written.value.0, &folder));
            sendfile_from.push(folder);
        }
        let Some(root) = &section.root else {
            if !section.broken {
                self.problems
                    .error(section.place, "this site has no root")
                    .help("root is the folder with its files: root = \"/var/www/example\"");
            }
            return None;
        };
        let (written, root) = (root.value.0.clone(), self.folder(root)?);
        let root_link = absolute_link(&written, &root);
        let delivery = section.delivery.value.into();
        // The `.htaccess` files name the script for paths that lead to no file.
        let is_given = section.front_controller.place != Place::Default;
        let controller = if section.htaccess.value == Htaccess::On && !is_given {
            Resolved::Off
        } else {
            front_controller(&section.front_controller.value)
        };
        let lua_before = self.scripts(section.lua_before.as_ref());
        let site = Site {
            name: name(section),
            hosts: hosts(section),
            listeners,
            tls: None,
            https_port: None,
            h3: false,
            hsts: section.hsts.as_ref().map(|hsts| hsts.value.resolved()),
            aliases,
            links,
            symlinks: section.symlinks.value.into(),
            follow: follow.unwrap_or_default(),
            index: section.index.value.values().map(|name| name.0.clone()).collect(),
            front_controller: controller,
            lua_before,
            maps,
            routes,
            serve: values(section.serve.as_ref(), |name| name.0.clone()),
            scripts_in_writable_folders: section.scripts_in_writable_folders.value,
            php_only: values(section.php_only.as_ref(), |path| path.0.clone()),
            media_types: pairs(section.media_types.as_ref(), |ending, media_type| {
                (ending.0.trim_start_matches('.').to_owned(), media_type.0.clone())
            }),
            compression: compression(section),
            error_pages: pairs(section.error_pages.as_ref(), |status, path| ErrorPage {
                status: status.0,
                path: path.0.clone(),
            }),
            maintenance: section.maintenance.as_ref().map(|path| path.value.0.clone()),
            server_software: section.server_software.as_ref().map(|text| text.value.0.clone()),
            htaccess: match section.htaccess.value {
                Htaccess::Off => sendoff_config::Htaccess::Ignored,
                Htaccess::Auto => sendoff_config::Htaccess::WhereFound { yields: !is_given },
                Htaccess::On => sendoff_config::Htaccess::Obeyed,
            },
            page_cache: section.page_cache.as_ref().map(|keep| keep.value.0),
            warm: section.warm.as_ref().map(|sitemap| sitemap.value.0.clone()),
            esi: section.esi.value,
            purge_from: values(section.purge_from.as_ref(), |client| client.0),
            access_log: self.access_log(section, top),
            pool: pool.filter(|_| !replaced),
            worker: worker.filter(|_| !replaced).map(|(pool, file)| SiteWorker {
                pool,
                file,
                is_controller: !is_given && section.htaccess.value != Htaccess::On,
            }),
            fastcgi: attached,
            fastcgi_timeout: section.fastcgi_timeout.value.0,
            proxies,
            sendfile_from,
            accel,
            delivery,
            channel: pools.allows_channel(pool.unwrap_or_default(), delivery),
            root,
            root_link,
        };
        self.scripts_exist(section, &site);
        self.warms(section, &site);
        Some(site)
    }

    /// Checks that pages of the sitemap can be kept, and that its host is known.
    fn warms(&mut self, section: &keys::Site, site: &Site) {
        let Some(At { value: sitemap, place }) = &section.warm else { return };
        if !site.keeps_pages() {
            self.problems
                .error(*place, "warm has a meaning only if pages are kept")
                .help("keep them: page_cache = \"http\", or a time such as \"10m\"");
        }
        let names_one = site.hosts.iter().any(|host| matches!(host, Host::Exact(_)));
        if !names_one && !sitemap.names_host() {
            let url = format!("https://example.org{}", sitemap.0);
            self.problems
                .error(*place, "the host of the sitemap is not known: hosts names none")
                .help(format!("write its URL: warm = \"{url}\""));
        }
    }

    /// The access log of a site.
    fn access_log(&mut self, section: &keys::Site, top: &keys::Top) -> SiteLog {
        let format = section.access_log_format.as_ref();
        let to = match (&section.access_log, format) {
            (None, None) => return SiteLog::Server,
            (Some(to), _) => self.log_target(to),
            (None, Some(_)) => top.access_log.as_ref().and_then(|to| self.log_target(to)),
        };
        match (to, format) {
            (Some(to), _) => {
                let format = format.unwrap_or(&top.access_log_format).value.resolved();
                SiteLog::Own(AccessLog { to, format })
            }
            (None, Some(format)) => {
                self.problems
                    .error(format.place, "there is no log that could have this format")
                    .help("name its file: access_log = \"/var/log/sendoff/access.log\"");
                SiteLog::Off
            }
            (None, None) => SiteLog::Off,
        }
    }

    /// Pairs of a prefix and a folder, the longest prefix first. Each folder must exist.
    fn folders<K>(
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

    fn attached(&mut self, map: Option<&At<Map<Matching, AppAddress>>>) -> Vec<Attachment> {
        pairs(map, |matching, address| Attachment {
            matching: match matching {
                Matching::Ending(ending) => sendoff_config::Matching::Ending(ending.clone()),
                Matching::Prefix(prefix) => sendoff_config::Matching::Prefix(prefix.clone()),
            },
            address: address.0.clone(),
        })
    }

    /// Warns of front controllers that the operator names and that do not exist. (A site without
    /// the default script has no front controller.)
    fn scripts_exist(&mut self, section: &keys::Site, site: &Site) {
        if section.front_controller.place == Place::Default {
            return;
        }
        for (_, script) in section.front_controller.value.folders() {
            let place = match script.place {
                Place::Default => section.front_controller.place,
                place => place,
            };
            let path = site.root.join(script.value.0.trim_start_matches('/'));
            let is_aliased = site.aliases.iter().any(|alias| {
                script.value.0.strip_prefix(&alias.prefix).is_some_and(|rest| rest.starts_with('/'))
            });
            if !is_aliased && !self.machine.kind(&path).is_ok_and(|kind| kind == FileKind::File) {
                let says = format!("{} does not exist", path.display());
                self.problems
                    .warning(place, says)
                    .help("paths that lead nowhere are answered with 404 until it does");
            }
        }
    }
}

fn name(section: &keys::Site) -> String {
    let host = || section.hosts.as_ref()?.value.values().next().map(HostName::text);
    let name = section.name.as_ref().map(|name| name.value.0.clone());
    name.or_else(host).unwrap_or_else(|| "default".to_owned())
}

fn hosts(section: &keys::Site) -> Vec<Host> {
    values(section.hosts.as_ref(), |host| match host {
        HostName::Exact(name) => Host::Exact(name.clone()),
        HostName::Beneath(name) => Host::Beneath(name.clone()),
    })
}

fn compression(section: &keys::Site) -> Compression {
    let usual = Compression::default();
    let types = section.compress_types.as_ref().map(|types| {
        types.value.values().map(|media_type| media_type.0.to_ascii_lowercase()).collect()
    });
    Compression {
        of: section.compress.value.into(),
        codings: section.compress_with.value.values().map(|coding| (*coding).into()).collect(),
        types: types.unwrap_or(usual.types),
        min_length: section.compress_min_length.value.0,
        cross_site: section.compress_cross_site.value,
    }
}

fn front_controller(controller: &FrontController) -> Resolved {
    match controller {
        FrontController::Off => Resolved::Off,
        FrontController::Nearest => Resolved::Nearest,
        FrontController::Script(_) | FrontController::Folders(_) => {
            let folders = controller.folders().into_iter();
            let mut folders: Vec<_> = folders
                .map(|(Prefix(folder), At { value: UrlPath(script), .. })| Controller {
                    folder,
                    script,
                })
                .collect();
            folders.sort_by_key(|controller| Reverse(controller.folder.len()));
            Resolved::Listed(folders)
        }
    }
}

fn values<T, R>(list: Option<&At<List<T>>>, resolve: impl Fn(&T) -> R) -> Vec<R> {
    list.iter().flat_map(|list| list.value.values()).map(resolve).collect()
}

fn pairs<K, V, R>(map: Option<&At<Map<K, V>>>, resolve: impl Fn(&K, &V) -> R) -> Vec<R> {
    map.iter()
        .flat_map(|map| &map.value.0)
        .map(|(key, value)| resolve(&key.value, &value.value))
        .collect()
}
