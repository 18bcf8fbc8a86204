//! Sites.

use std::cmp::Reverse;

use sendoff_config::{
    Attachment, Compression, Controller, ErrorPage, FrontController as Resolved, Host, Site,
    SiteWorker,
};
use sendoff_setting_values::{
    AppAddress, At, FrontController, HostName, Htaccess, List, Map, Matching, Place, Prefix,
    UrlPath, Word,
};

use super::context::Context;
use super::folders::Folders;
use super::pools::Pools;
use super::route::Routes;
use crate::keys;
use crate::machine::FileKind;

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
        let Folders { aliases, accel, sendfile_from, links } = self.folders(section);
        let (root, root_link) = self.root(section)?;
        let delivery = section.delivery.value.into();
        let (is_given, controller) = controller(section);
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
            follow: values(section.follow_symlinks_into.as_ref(), |path| path.0.clone()),
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
            htaccess: htaccess(section, is_given),
            page_cache: section.page_cache.as_ref().map(|keep| keep.value.0),
            warm: section.warm.as_ref().map(|sitemap| sitemap.value.0.clone()),
            esi: section.esi.value,
            purge_from: values(section.purge_from.as_ref(), |client| client.0),
            access_log: self.site_log(section, top),
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

fn htaccess(section: &keys::Site, has_controller: bool) -> sendoff_config::Htaccess {
    match section.htaccess.value {
        Htaccess::Off => sendoff_config::Htaccess::Ignored,
        Htaccess::Auto => sendoff_config::Htaccess::WhereFound { yields: !has_controller },
        Htaccess::On => sendoff_config::Htaccess::Obeyed,
    }
}

/// The front controller, and true if the operator has named one.
fn controller(section: &keys::Site) -> (bool, Resolved) {
    let is_given = section.front_controller.place != Place::Default;
    // The `.htaccess` files name the script for paths that lead to no file.
    if section.htaccess.value == Htaccess::On && !is_given {
        return (is_given, Resolved::Off);
    }
    (is_given, front_controller(&section.front_controller.value))
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
