//! Sites: one for each `<VirtualHost>`, and one for the server around them if there is none.

use sendoff_convert_document::{Directive, Document, Section, Unreadable};

use super::areas::Area;
use super::clients::{self, Clients, Trust};
use super::hosts::{self, Fate, Host};
use super::listen::Address;
use super::mapping::{Mapped, Mapping, Proxied};
use super::sections::{self, Kind, Part};
use super::tree::Tree;
use super::{access, fields, handlers, index, keys, options, php, proxy, redirect, rewrite};

/// The folder of a site that names none.
const NO_FILES: &str = "/srv";
/// The most sections of all sites: the time grows with their number.
const MAX_SECTIONS: usize = 20_000;

/// Converts a file.
pub(super) fn all(tree: &Tree) -> Result<Document, Unreadable> {
    let main = &tree.directives[..];
    let hosts: Vec<&Directive> = main.iter().filter(|one| one.name == "<virtualhost").collect();
    let mut document = Document::default();
    top(main, &mut document.top);
    if hosts.is_empty() && !main.iter().any(|one| one.name == "documentroot") {
        let says = "no <VirtualHost> and no DocumentRoot in this file: name apache2.conf, or a file of sites-available";
        let place = main.first().map(|first| first.place.clone());
        return Err(Unreadable { place, says: says.to_owned() });
    }
    let mut blocks: Vec<&[Directive]> = vec![main];
    blocks.extend(hosts.iter().map(|host| host.inner()));
    proxy::balancers(&blocks, &mut document.groups);
    let hosts = hosts::all(main, &hosts, tree.is_whole);
    let trusted: Vec<Trust> = hosts.iter().map(|host| Trust::of(main, host.inner())).collect();
    let is_known = |trust: &&Trust| matches!(trust, Trust::Proxies { .. });
    let of_server = trusted.iter().find(is_known).unwrap_or(&Trust::None);
    of_server.set(&mut document.top);
    for (host, trust) in hosts.into_iter().zip(&trusted) {
        site(tree, host, trust.clients(of_server), &mut document)?;
    }
    // A balancer that no site names is left out.
    let sites = &document.sites;
    document.groups.retain(|group| match &group.texts("name")[..] {
        [name] if group.has("hosts") => sites.iter().any(|section| section.mentions(name)),
        _ => true,
    });
    Ok(document)
}

/// The keys of the whole server.
fn top(main: &[Directive], top: &mut Section) {
    for directive in main {
        match directive.name.as_str() {
            "user" => top.set("user", directive.word()),
            "timeout" => match directive.word().parse::<u32>() {
                Ok(seconds @ 1..) => {
                    top.set("body_timeout", format!("{seconds}s"));
                    top.set("send_timeout", format!("{seconds}s"));
                }
                _ => directive.left_out(top, "it is no time"),
            },
            "keepalivetimeout" => {
                if let Ok(seconds @ 1..) = directive.word().parse::<u32>() {
                    top.set("idle_timeout", format!("{seconds}s"));
                }
            }
            _ => {}
        }
    }
}

/// A site while it is made.
struct Site<'d> {
    main: &'d [Directive],
    host: Option<&'d [Directive]>,
    addresses: Vec<Address>,
    fate: Fate,
    clients: Clients,
    has_tls: bool,
    name: String,
}

fn site(
    tree: &Tree,
    host: Host<'_>,
    clients: Clients,
    document: &mut Document,
) -> Result<(), Unreadable> {
    if matches!(host.fate, Fate::Unreachable) {
        document.rest.absorb_comments(host.remarks);
        return Ok(());
    }
    let mut section = Section::new("site");
    section.absorb_comments(host.remarks);
    let name: String = host.names.first().map_or("main", String::as_str).to_owned();
    let name = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let place = host.directive.map(|host| host.place.clone());
    section.set_list("hosts", host.names);
    let made = Site {
        main: &tree.directives,
        host: host.directive.map(Directive::inner),
        addresses: host.addresses,
        fate: host.fate,
        clients,
        has_tls: host.has_tls,
        name,
    };
    let sections = made.sections(section, tree.is_whole, &mut document.groups);
    document.sites.extend(sections);
    if document.sites.len() > MAX_SECTIONS {
        let says = format!("the result would have more than {MAX_SECTIONS} routes");
        return Err(Unreadable { place, says });
    }
    Ok(())
}

impl Site<'_> {
    /// The directives of this name outside of sections: of the server, then of the host.
    fn named<'s>(&'s self, name: &'s str) -> impl DoubleEndedIterator<Item = &'s Directive> {
        self.main.iter().chain(self.host.unwrap_or_default()).filter(move |one| one.name == name)
    }

    fn sections(
        &self,
        mut site: Section,
        is_whole: bool,
        groups: &mut Vec<Section>,
    ) -> Vec<Section> {
        let mut listened: Vec<String> = Vec::new();
        for address in &self.addresses {
            let listen = address.listen(self.has_tls);
            if !listened.contains(&listen) {
                listened.push(listen);
            }
        }
        site.set_list("listen", listened);
        let mut routes = Vec::new();
        if matches!(self.fate, Fate::Refused) {
            let mut route = Section::new("site.route");
            route.set("deny", true);
            routes.push(route);
        }
        let passed = proxy::passed(self.main, self.host);
        let mapping = self.mapping(&passed, &mut site, &mut routes);
        let parts = sections::parts(self.main, self.host, &mapping);
        self.tls(&mut site, &mut routes);
        match &mapping.root {
            Some(root) => site.set("root", root.clone()),
            None => site.set("root", NO_FILES),
        }
        for alias in &mapping.aliases {
            site.set_in("alias", &alias.path, alias.folder.clone());
        }
        let has_php = php::keys(&parts, is_whole, &self.name, &mut site, groups);
        let index = keys::set(&parts, mapping.root.as_deref(), &mut site, has_php);
        let blocks = [self.main, self.host.unwrap_or_default()];
        keys::other_access_files(blocks, &parts, &mut routes);
        keys::no_index(&parts, &mut routes);
        let own = rewrite::of_server(self.main, self.host);
        let compared = match rewrite::changes_paths(&own) {
            true => access::Compared::Changed,
            false => access::Compared::Same,
        };
        if compared == access::Compared::Changed {
            access::of_locations(&parts, self.clients, &mut routes);
        }
        let mut has_done = self.rewriting(&mapping, &mut site, &mut routes);
        if !passed.is_empty() {
            routes.extend(proxy::forwarded(&parts));
        }
        fields::routes(&parts, &mut site, &mut routes);
        let (of_server, of_sections): (Vec<Part<'_>>, Vec<Part<'_>>) =
            parts.iter().cloned().partition(|part| part.kind == Kind::Server);
        let mut redirects = redirect::routes(&of_server, &mapping.elsewhere);
        routes.extend(redirects.clone());
        access::routes(&parts, self.has_tls, compared, self.clients, &mut routes);
        clients::name(blocks, self.clients, &mut site);
        keys::name_unknown(&parts, &mut routes, &mut site);
        handlers::routes(&parts, &mapping.elsewhere, &mut routes);
        let own = redirect::routes(&of_sections, &mapping.elsewhere);
        routes.extend(own.clone());
        redirects.extend(own);
        for part in &of_sections {
            let around = rewrite::Around {
                folder: part.folder.as_deref(),
                has_tls: self.has_tls,
                root: mapping.root.as_deref(),
            };
            let has_rules = part.directives.iter().any(|one| one.name == "rewriterule");
            if has_rules && part.folder.is_none() && part.kind != Kind::If {
                routes.extend(unknown_rules(part));
            } else if part.kind != Kind::If {
                has_done |= rewrite::routes(&part.directives, around, &mut site, &mut routes);
            }
        }
        routes.extend(index::routes(&index, &mapping.elsewhere, &redirects));
        let settings = proxy::Settings::of(&parts, blocks);
        proxy::routes(&passed, &parts, &settings, &mut routes);
        options::listings(&parts, &index, &mut routes);
        if has_done {
            if let Some(root) = &mapping.root {
                site.set_in("alias", rewrite::DONE, root.clone());
            }
            routes.insert(0, rewrite::guard());
        }
        routes.iter_mut().for_each(Section::empty_missing_groups);
        [vec![site], routes].concat()
    }

    /// True if a `ProxyPassMatch`, or a rule with `[P]`, passes requests on.
    fn passes_by_expression(&self) -> bool {
        fn any(block: &[Directive]) -> bool {
            block.iter().any(|one| {
                let is_rule = one.name == "rewriterule"
                    && one
                        .words
                        .get(2)
                        .is_some_and(|flags| flags.to_ascii_uppercase().contains('P'));
                one.name == "proxypassmatch" || is_rule || any(one.inner())
            })
        }
        let own = self.main.iter().filter(|one| one.name != "<virtualhost");
        any(self.host.unwrap_or_default())
            || own.into_iter().any(|one| any(std::slice::from_ref(one)))
    }

    /// The folders behind the paths of the site.
    fn mapping(
        &self,
        passed: &[proxy::Passed<'_>],
        site: &mut Section,
        routes: &mut Vec<Section>,
    ) -> Mapping {
        let root = self.named("documentroot").next_back().map(|root| root.word().to_owned());
        let proxied = passed.iter().filter(|one| one.target.is_some());
        let elsewhere: Vec<String> = proxied.map(|one| one.path.clone()).collect();
        let proxied = match self.passes_by_expression() {
            true => Proxied::Any,
            false => Proxied::Paths(elsewhere.clone()),
        };
        let mut mapping = Mapping { root, aliases: Vec::new(), elsewhere, proxied };
        // What an exception of ProxyPass leaves to files is in no folder for sections: their rules
        // hold for all paths then.
        if passed.iter().any(|one| one.target.is_none()) {
            mapping.elsewhere.clear();
        }
        // Apache asks the aliases of the host first, and takes the first that fits.
        let aliases = self.host.unwrap_or_default().iter().chain(self.main);
        for directive in aliases.filter(|one| one.name == "alias") {
            let [path, folder, ..] = &directive.words[..] else {
                directive.left_out(site, "an alias in a section");
                continue;
            };
            let path = path.trim_end_matches('/');
            let is_file = !folder.ends_with('/')
                && folder.rsplit('/').next().is_some_and(|name| name.contains('.'))
                && path.rsplit('/').next().is_some_and(|name| name.contains('.'));
            if is_file || path.is_empty() || !path.starts_with('/') || !folder.starts_with('/') {
                directive.left_out(site, "an alias is a folder");
                continue;
            }
            let is_hidden = |earlier: &Mapped| {
                path.strip_prefix(&earlier.path)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if mapping.aliases.iter().any(is_hidden) {
                let text = format!("{}: an earlier alias has its paths", directive.text());
                site.note(&directive.place, text);
                continue;
            }
            let folder = folder.trim_end_matches('/');
            let folder = if folder.is_empty() { "/" } else { folder };
            mapping.aliases.push(Mapped { path: path.to_owned(), folder: folder.to_owned() });
        }
        for name in ["scriptalias", "scriptaliasmatch", "aliasmatch"] {
            for directive in self.named(name) {
                let area = match name {
                    "scriptalias" => super::areas::beneath(directive.word()),
                    _ => super::areas::matching(directive.word()),
                };
                let Some(condition) = area.without(std::iter::empty()) else { continue };
                let mut route = Section::new("site.route");
                condition.set(&mut route);
                directive.left_out(&mut route, "its requests are refused");
                route.set("deny", true);
                routes.push(route);
            }
        }
        mapping
    }

    /// The certificate, and the issuers of clients' certificates.
    fn tls(&self, site: &mut Section, routes: &mut Vec<Section>) {
        if !self.has_tls {
            return;
        }
        fn last<'s>(site: &'s Site<'_>, name: &'s str) -> Option<&'s str> {
            site.named(name).next_back().map(Directive::word)
        }
        match last(self, "sslcertificatefile") {
            Some(certificate) => {
                site.set_in("tls", "certificate", certificate);
                site.set_in(
                    "tls",
                    "key",
                    last(self, "sslcertificatekeyfile").unwrap_or(certificate),
                );
            }
            None => {
                site.comment("The file names no certificate.");
                site.set_in("tls", "certificate", "self-signed");
            }
        }
        if let Some(chain) = self.named("sslcertificatechainfile").next_back() {
            chain.left_out(site, "append it to the certificate");
        }
        site.set("https_redirect", false);
        if let Some(protocol) = self.named("sslprotocol").next_back() {
            let text = protocol.words.join(" ").to_ascii_lowercase();
            let has = |name: &str| text.split_whitespace().any(|word| word == name);
            let has_older = has("tlsv1.2")
                || has("+tlsv1.2")
                || (has("all") || has("+all")) && !has("-tlsv1.2");
            if text.contains("tlsv1.3") && !has_older {
                site.set_in("tls", "oldest", "1.3");
            }
        }
        let client = self.named("sslverifyclient").next_back();
        let Some(client) = client.filter(|one| !one.word().eq_ignore_ascii_case("none")) else {
            return;
        };
        match (client.word().to_ascii_lowercase().as_str(), last(self, "sslcacertificatefile")) {
            ("require", Some(issuers)) => site.set_in("tls", "client_issuers", issuers),
            ("optional", Some(issuers)) => {
                site.set_in("tls", "client_issuers", issuers);
                site.set_in("tls", "client_certificates", "optional");
            }
            _ => {
                let mut route = Section::new("site.route");
                client.left_out(&mut route, "every request is refused");
                route.set("deny", true);
                routes.push(route);
            }
        }
    }

    /// The rules of the server.
    fn rewriting(&self, mapping: &Mapping, site: &mut Section, routes: &mut Vec<Section>) -> bool {
        let own = rewrite::of_server(self.main, self.host);
        let around =
            rewrite::Around { folder: None, has_tls: self.has_tls, root: mapping.root.as_deref() };
        rewrite::routes(&own, around, site, routes)
    }
}

/// Refuses the paths of a section whose rules have no folder.
fn unknown_rules(part: &Part<'_>) -> Option<Section> {
    let directive = part.directives.iter().find(|one| one.name == "rewriterule")?;
    let condition = part.area.without(std::iter::empty::<&Area>())?;
    let mut route = Section::new("site.route");
    condition.set(&mut route);
    directive.left_out(&mut route, "rules of this kind of section; its requests are refused");
    route.set("deny", true);
    Some(route)
}
