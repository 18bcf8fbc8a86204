//! Routes.

use sendoff_config::{
    Address, Attachment, BasicAuth, Cache, Clients, Conditions, FieldCondition, Handler,
    HeaderRule, MapCondition, Matching, Network, PasswordLine, Proxy, ProxyAddress, Route,
    RouteSettings, Rules, password_lines, unusable_hashes,
};
use sendoff_setting_values::{
    AppAddress, At, Candidate, Change, Client, FieldTest, HeaderOp, HeaderText, List, Map, MapName,
    MapTest, Php, Place, Template, Word,
};

use super::context::{Context, unusable};
use super::paths;
use super::pool::Pools;
use crate::keys;

/// The keys that say what answers the requests of a route.
#[derive(Debug, Clone, Copy)]
enum HandlerKey {
    Static,
    Listing,
    Php,
    Fastcgi,
    Proxy,
    Redirect,
    Respond,
    Deny,
    Metrics,
    StatusPage,
    Ready,
}

impl HandlerKey {
    /// The key, as it is written.
    fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Listing => "listing",
            Self::Php => "php",
            Self::Fastcgi => "fastcgi",
            Self::Proxy => "proxy",
            Self::Redirect => "redirect",
            Self::Respond => "respond",
            Self::Deny => "deny",
            Self::Metrics => "metrics",
            Self::StatusPage => "status_page",
            Self::Ready => "ready",
        }
    }
}

/// Resolves the routes of one site.
pub(crate) struct Routes<'a, 'c> {
    attached: &'a mut Vec<Attachment>,
    pub(super) proxies: Vec<Proxy>,
    /// The pool of the site.
    pool: Option<usize>,
    pub(super) pools: &'a mut Pools,
    pub(super) context: &'a mut Context<'c>,
}

impl<'a, 'c> Routes<'a, 'c> {
    /// The routes of a site, and the applications that they pass requests on to. FastCGI
    /// applications that only routes name are added to `attached`.
    pub(crate) fn resolve(
        site: &keys::Site,
        attached: &'a mut Vec<Attachment>,
        pool: Option<usize>,
        pools: &'a mut Pools,
        context: &'a mut Context<'c>,
    ) -> (Vec<Route>, Vec<Proxy>) {
        let mut this = Self { attached, proxies: Vec::new(), pool, pools, context };
        let sections = &site.route.value.0;
        let routes: Vec<_> = sections.iter().map(|section| this.route(section)).collect();
        this.reachable(sections, &routes);
        (routes, this.proxies)
    }

    fn route(&mut self, section: &keys::Route) -> Route {
        let conditions = conditions(section);
        let errors = self.context.problems.errors();
        self.groups_exist(section);
        let rules = self.rules(section);
        let handler = self.handler(section);
        let is_empty = handler.is_none() && rules == Rules::default();
        if is_empty && !section.broken && self.context.problems.errors() == errors {
            self.context
                .problems
                .warning(section.place, "this route changes nothing and answers nothing")
                .help("give it a rule (rewrite, response_headers, ...) or a handler (deny, redirect, ...)");
        }
        let mut origin = self.context.sources.show(section.place);
        // The option may be given several times.
        if let (Place::Option(_), Some(prefix)) = (section.place, conditions.prefixes.first()) {
            origin = format!("{origin} {prefix}");
        }
        Route { origin, conditions, rules, handler }
    }

    fn rules(&mut self, section: &keys::Route) -> Rules {
        let texts = |list: &At<List<Candidate>>| {
            list.value.values().map(|path| path.0.text.clone()).collect::<Vec<_>>()
        };
        self.context.bodies_are_possible(section.max_body.as_ref());
        self.date_stays(section);
        self.limits_something(section);
        self.speaks_http(section);
        paths::of_try_files(section, self.context);
        paths::expression_can_match(section, self.context);
        let lua = self.context.scripts(section.lua.as_ref());
        let lua_response = self.context.scripts(section.lua_response.as_ref());
        Rules {
            rewrite: section.rewrite.as_ref().map(|text| text.value.0.text.clone()),
            try_files: section.try_files.as_ref().map(texts).unwrap_or_default(),
            internal: section.internal.is_some(),
            settings: RouteSettings {
                name_files: section.name_files.map(|at| at.value),
                page_cache: section.page_cache.as_ref().map(|keep| keep.value.0),
                esi: section.esi.map(|at| at.value),
                purge: section.purge.map(|at| at.value),
                compress: section.compress.as_ref().map(|compress| compress.value.into()),
                max_body: section.max_body.as_ref().map(|size| size.value.0),
                stream_body: section.stream_body.map(|at| at.value),
                request_timeout: section.request_timeout.as_ref().map(|time| time.value.0),
                tunnel_timeout: section.tunnel_timeout.as_ref().map(|time| time.value.0),
                limit_rate: section.limit_rate.as_ref().map(|size| size.value.0),
                access_log: section.access_log.map(|at| at.value),
                filter: section.filter.as_ref().map(|at| self.attach(&at.value.0, at.place)),
            },
            request_headers: header_rules(section.request_headers.as_ref()),
            response_headers: header_rules(section.response_headers.as_ref()),
            cache: section.cache.as_ref().map(|caching| Cache {
                max_age: caching.value.max_age,
                directives: caching.value.directives.clone(),
            }),
            charset: section.charset.as_ref().map(|charset| charset.value.0.clone()),
            params: section
                .params
                .iter()
                .flat_map(|map| &map.value.0)
                .map(|(name, text)| (name.value.0.clone(), text.value.text.clone()))
                .collect(),
            rate: section.rate.as_ref().map(|rate| rate.value.resolved()),
            concurrency: section
                .concurrency
                .map(|number| u32::try_from(number.value.0).unwrap_or(u32::MAX)),
            limit_by: section.limit_by.as_ref().map(|name| name.value.0.clone()),
            auth: section.auth.as_ref().and_then(|auth| self.auth(&auth.value.0)),
            authorize: section.authorize.as_ref().and_then(|at| self.authorizer(&at.value.0)),
            clients: clients(section),
            lua,
            lua_response,
        }
    }

    /// Reports `limit_by` without a limit.
    fn limits_something(&mut self, section: &keys::Route) {
        let Some(by) = &section.limit_by else { return };
        if section.rate.is_none() && section.concurrency.is_none() && !section.broken {
            self.context
                .problems
                .error(by.place, "limit_by has a meaning only beside rate or concurrency")
                .help("add rate = \"10/s burst=20\", or remove limit_by");
        }
    }

    /// Warns of the removal of `Date`, which has no effect.
    fn date_stays(&mut self, section: &keys::Route) {
        let changes = section.response_headers.iter().flat_map(|map| &map.value.0);
        for (op, text) in changes {
            let is_date = op.value.name.eq_ignore_ascii_case("Date");
            if is_date && matches!(text.value, HeaderText::Remove) {
                self.context
                    .problems
                    .warning(
                        op.place,
                        "Date is not removed: a server that has a clock must send it",
                    )
                    .help("remove this line (RFC 9110 §6.6.1)");
            }
        }
    }

    /// Refuses `lscache`: plugins purge pages of the whole site, and its fields are taken out of
    /// every response of the site.
    fn speaks_http(&mut self, section: &keys::Route) {
        let Some(keep) = &section.page_cache else { return };
        if keep.value.0.is_lscache() {
            self.context
                .problems
                .error(keep.place, "lscache is for whole sites, not for routes")
                .help("move page_cache = \"lscache\" under [[site]]; a route may say \"off\"");
        }
    }

    fn auth(&mut self, section: &keys::Auth) -> Option<BasicAuth> {
        let Some(users) = &section.users else {
            if !section.broken {
                self.context
                    .problems
                    .error(section.place, "users is missing")
                    .help("users is a file of lines NAME:HASH; `htpasswd -cB FILE NAME` makes one");
            }
            return None;
        };
        match self.context.machine.read(&users.value.0) {
            Ok(text) => self.users_are_hashed(&text, users.place),
            Err(error) => {
                let says = unusable(&users.value.0, &error);
                let problem = self.context.problems.error(users.place, says);
                problem.help(match error.kind() {
                    std::io::ErrorKind::NotFound => "`htpasswd -cB FILE NAME` makes such a file",
                    _ => "it must be readable for the user who starts the server",
                });
            }
        }
        let realm = section.realm.value.0.clone();
        if let Some(at) = realm.find(['"', '\\']) {
            let says = format!("{:?} cannot stand in a realm", &realm[at..=at]);
            self.context.problems.error(section.realm.place, says);
        }
        Some(BasicAuth { realm, users: users.value.0.clone() })
    }

    /// Warns of a file without users, and of lines that no password can match.
    fn users_are_hashed(&mut self, text: &str, place: Place) {
        let problems = &mut self.context.problems;
        if password_lines(text.as_bytes()).next().is_none() {
            problems.warning(place, "this file names no user, so every request is refused");
        }
        let mut lines = password_lines(text.as_bytes());
        if let Some((number, _)) = lines.find(|(_, line)| *line == PasswordLine::NoUser) {
            problems
                .warning(place, format!("line {number} of this file is not NAME:HASH"))
                .help("`htpasswd -B FILE NAME` adds such lines");
        }
        for (why, number, count) in unusable_hashes(text.as_bytes()) {
            let others = match count - 1 {
                0 => String::new(),
                others => format!(" (and {others} more)"),
            };
            let says = format!("line {number} of this file{others} refuses its user: {why}");
            problems.warning(place, says).help(why.help());
        }
    }

    fn handler(&mut self, section: &keys::Route) -> Option<Handler> {
        let given: Vec<(HandlerKey, Place)> = [
            section.statics.as_ref().map(|at| (HandlerKey::Static, at.place)),
            section.listing.as_ref().map(|at| (HandlerKey::Listing, at.place)),
            section.php.as_ref().map(|at| (HandlerKey::Php, at.place)),
            section.fastcgi.as_ref().map(|at| (HandlerKey::Fastcgi, at.place)),
            section.proxy.as_ref().map(|at| (HandlerKey::Proxy, at.place)),
            section.redirect.as_ref().map(|at| (HandlerKey::Redirect, at.place)),
            section.respond.as_ref().map(|at| (HandlerKey::Respond, at.place)),
            section.deny.as_ref().map(|at| (HandlerKey::Deny, at.place)),
            section.metrics.as_ref().map(|at| (HandlerKey::Metrics, at.place)),
            section.status_page.as_ref().map(|at| (HandlerKey::StatusPage, at.place)),
            section.ready.as_ref().map(|at| (HandlerKey::Ready, at.place)),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let [(first, at), (second, place), ..] = &*given {
            self.context
                .problems
                .error(
                    *place,
                    format!("a route has one handler, not {} and {}", first.name(), second.name()),
                )
                .other(*at, "the other one")
                .help("write two routes: the first that concerns a request answers it");
        }
        let key = given.first().map(|(key, _)| *key);
        let handler = key.map(HandlerKey::name);
        self.belongs(
            "status",
            section.status.as_ref().map(|at| at.place),
            handler,
            &["redirect", "respond", "deny"],
            section.broken,
        );
        self.belongs(
            "content_type",
            section.content_type.as_ref().map(|at| at.place),
            handler,
            &["respond"],
            section.broken,
        );
        self.belongs(
            "pool",
            section.pool.as_ref().map(|at| at.place),
            handler,
            &["php"],
            section.broken,
        );
        if let (Some(internal), Some(name)) = (&section.internal, handler)
            && !["proxy", "static"].contains(&name)
        {
            self.context
                .problems
                .error(internal.place, format!("internal has no meaning beside {name}"))
                .help(format!(
                    "applications lead requests to files (internal alone) and to proxy: remove {name}"
                ));
        }
        self.belongs(
            "only_files",
            section.only_files.as_ref().map(|at| at.place),
            handler,
            &["fastcgi"],
            section.broken,
        );
        Some(match key? {
            HandlerKey::Static => Handler::Static,
            HandlerKey::Listing => Handler::Listing,
            HandlerKey::Php => self.php(section)?,
            HandlerKey::Fastcgi => self.fastcgi(section)?,
            HandlerKey::Proxy => {
                let proxy = &section.proxy.as_ref()?.value.0;
                self.has_prefix_to_strip(section, proxy);
                self.proxy(proxy)?
            }
            HandlerKey::Redirect => Handler::Redirect {
                status: self.status(section, 302, &[301, 302, 303, 307, 308]),
                to: section.redirect.as_ref()?.value.0.text.clone(),
            },
            HandlerKey::Respond => Handler::Respond {
                status: self.status(section, 200, &[]),
                content_type: section
                    .content_type
                    .as_ref()
                    .map_or("text/plain; charset=utf-8", |at| &at.value.0)
                    .to_owned(),
                body: section.respond.as_ref()?.value.text.clone(),
            },
            HandlerKey::Metrics => Handler::Metrics,
            HandlerKey::Ready => Handler::Ready,
            HandlerKey::StatusPage => self.status_page(section),
            HandlerKey::Deny => {
                Handler::Deny { status: self.status(section, 403, &[403, 404, 410]) }
            }
        })
    }

    /// The page shows the requests in flight, so its route must restrict the clients.
    fn status_page(&mut self, section: &keys::Route) -> Handler {
        let is_for_some = section.allow_from.is_some() || section.auth.is_some();
        if let Some(at) = section.status_page.as_ref().filter(|_| !is_for_some) {
            self.context
                .problems
                .error(at.place, "the route does not say who may see the status page")
                .help("add allow_from = [\"127.0.0.1\"], or auth");
        }
        Handler::StatusPage
    }

    /// Reports a prefix that is to be stripped where there is none.
    fn has_prefix_to_strip(&mut self, section: &keys::Route, proxy: &keys::Proxy) {
        if proxy.strip_prefix.value && section.prefix.is_none() && !section.broken {
            self.context
                .problems
                .error(proxy.strip_prefix.place, "the route has no prefix that could be stripped")
                .help("add prefix = \"/app\" to the route, or remove strip_prefix");
        }
    }

    fn proxy(&mut self, section: &keys::Proxy) -> Option<Handler> {
        if let Some(At { value: url, place }) = &section.to
            && let ProxyAddress::Upstream(name) = &url.address
        {
            self.pools.upstream(name, (&url.scheme).into(), *place, self.context);
        }
        self.context.proxy(section, &mut self.proxies)
    }

    /// Reports a key that has a meaning only with certain handlers.
    fn belongs(
        &mut self,
        key: &str,
        place: Option<Place>,
        handler: Option<&str>,
        handlers: &[&str],
        is_broken: bool,
    ) {
        let Some(place) = place else { return };
        if !handler.is_some_and(|handler| handlers.contains(&handler)) && !is_broken {
            let handlers = handlers.join(" or ");
            self.context
                .problems
                .error(place, format!("{key} has a meaning only beside {handlers}"))
                .help(format!("add {handlers}, or remove {key}"));
        }
    }

    fn status(&mut self, section: &keys::Route, usual: u16, allowed: &[u16]) -> u16 {
        let Some(At { value, place }) = &section.status else { return usual };
        let status = u16::try_from(value.0).unwrap_or(usual);
        if !allowed.is_empty() && !allowed.contains(&status) {
            let allowed: Vec<_> = allowed.iter().map(u16::to_string).collect();
            self.context
                .problems
                .error(*place, format!("{status} is not a status for this handler"))
                .help(format!("expected one of {}", allowed.join(", ")));
        }
        status
    }

    fn php(&mut self, section: &keys::Route) -> Option<Handler> {
        let pool = match &section.pool {
            Some(name) => self.pools.number(Some(name), self.context),
            None => self.pool,
        };
        let script = match &section.php.as_ref()?.value {
            Php::Requested => None,
            Php::Script(path) => Some(path.0.clone()),
        };
        Some(Handler::Php { pool: pool?, script })
    }

    fn fastcgi(&mut self, section: &keys::Route) -> Option<Handler> {
        let At { value: AppAddress(address), place } = section.fastcgi.as_ref()?;
        let application = self.attach(address, *place);
        Some(Handler::FastCgi { application, only_files: section.only_files.is_some() })
    }

    /// The number of a FastCGI application among the applications of the site. The application is
    /// added if it is new.
    pub(super) fn attach(&mut self, address: &Address, place: Place) -> usize {
        self.pools.program(address, place, self.context);
        let known = self.attached.iter().position(|attached| attached.address == *address);
        known.unwrap_or_else(|| {
            let matching = Matching::Routes;
            self.attached.push(Attachment { matching, address: address.clone() });
            self.attached.len() - 1
        })
    }

    /// Checks that the expression has the groups that texts name.
    fn groups_exist(&mut self, section: &keys::Route) {
        let groups = section.matching.as_ref().map(|at| at.value.groups);
        // The value that could not be read may be the expression.
        if section.broken && groups.is_none() {
            return;
        }
        for (Template { group, .. }, place) in texts(section) {
            let group = *group;
            let (says, help) = match groups {
                Some(groups) if group <= groups => continue,
                None if group == 0 => continue,
                None => (
                    format!("${group} stands for a group of match, but there is no match"),
                    "add match = '...(...)...', or write $$ for a dollar sign".to_owned(),
                ),
                Some(0) => (
                    format!("${group} stands for a group, but the expression has none"),
                    "put parentheses around the part that is meant".to_owned(),
                ),
                Some(groups) => {
                    (format!("there is no group ${group}"), format!("the expression has {groups}"))
                }
            };
            let problem = self.context.problems.error(place, says);
            problem.help(help);
            if let Some(matching) = &section.matching {
                problem.other(matching.place, "the expression");
            }
        }
    }

    /// Warns of routes that no request can reach, because an earlier route answers all of their
    /// requests.
    fn reachable(&mut self, sections: &[keys::Route], routes: &[Route]) {
        let mut answering: Vec<(&Conditions, Place)> = Vec::new();
        let mut end: Option<Place> = None;
        for (section, route) in sections.iter().zip(routes) {
            let before = end.or_else(|| {
                let concerned = &route.conditions;
                let found = answering.iter().find(|(earlier, _)| covers(earlier, concerned));
                found.map(|(_, place)| *place)
            });
            if let Some(place) = before {
                self.context
                    .problems
                    .warning(section.place, "no request reaches this route")
                    .other(place, "this one answers before it")
                    .help("the first route that concerns a request answers it: move this one up");
            }
            if route.handler.is_none() || section.broken {
                continue;
            }
            if route.conditions == Conditions::default() {
                end = end.or(Some(section.place));
            } else if is_by_path_alone(&route.conditions) {
                answering.push((&route.conditions, section.place));
            }
        }
    }
}

/// True if all conditions are paths or all are prefixes.
fn is_by_path_alone(conditions: &Conditions) -> bool {
    let paths = conditions.paths.clone();
    let prefixes = conditions.prefixes.clone();
    // One of both: if both are given, both must hold.
    paths.is_empty() != prefixes.is_empty()
        && *conditions == Conditions { paths, prefixes, ..Conditions::default() }
}

/// True if every request that fulfils `other` also fulfils `earlier`, whose conditions are paths
/// alone.
fn covers(earlier: &Conditions, other: &Conditions) -> bool {
    let holds = |path: &String| {
        earlier.paths.contains(path)
            || earlier.prefixes.iter().any(|prefix| {
                path.strip_prefix(prefix.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    };
    if !other.paths.is_empty() {
        return other.paths.iter().all(holds);
    }
    !other.prefixes.is_empty() && earlier.paths.is_empty() && other.prefixes.iter().all(holds)
}

/// The texts of a route that may contain parts of requests, and their places.
pub(super) fn texts(section: &keys::Route) -> Vec<(&Template, Place)> {
    let headers = [&section.request_headers, &section.response_headers];
    let headers = headers.into_iter().flatten().flat_map(|map| &map.value.0);
    let headers = headers.filter_map(|(_, text)| match &text.value {
        HeaderText::Values(values) => Some(&values.0),
        HeaderText::Remove => None,
    });
    let params = section.params.iter().flat_map(|map| &map.value.0).map(|(_, text)| text);
    let tried = section.try_files.iter().flat_map(|list| &list.value.0);
    params
        .chain(headers.flatten())
        .chain(&section.respond)
        .map(|text| (&text.value, text.place))
        .chain(section.redirect.iter().map(|text| (&text.value.0, text.place)))
        .chain(section.rewrite.iter().map(|text| (&text.value.0, text.place)))
        .chain(tried.map(|text| (&text.value.0, text.place)))
        .collect()
}

fn conditions(section: &keys::Route) -> Conditions {
    fn list<T>(at: Option<&At<List<T>>>, text: impl Fn(&T) -> String) -> Vec<String> {
        at.iter().flat_map(|at| at.value.values()).map(text).collect()
    }
    fn fields<K: Word>(map: Option<&At<Map<K, List<FieldTest>>>>) -> Vec<FieldCondition> {
        let pairs = map.iter().flat_map(|map| &map.value.0);
        let tests =
            pairs.flat_map(|(name, tests)| tests.value.values().map(move |test| (name, test)));
        tests.map(|(name, test)| field(name.value.text(), test)).collect()
    }
    Conditions {
        paths: list(section.path.as_ref(), |path| path.0.clone()),
        prefixes: list(section.prefix.as_ref(), |prefix| prefix.0.clone()),
        extensions: list(section.extension.as_ref(), |ending| ending.0.clone()),
        expression: section.matching.as_ref().map(|at| at.value.text.clone()),
        methods: list(section.method.as_ref(), |method| method.0.clone()),
        headers: fields(section.header.as_ref()),
        query: fields(section.query.as_ref()),
        when: section.when.iter().flat_map(|map| &map.value.0).map(map_condition).collect(),
    }
}

fn field(name: String, test: &FieldTest) -> FieldCondition {
    match test {
        FieldTest::There(there) => FieldCondition { name, value: None, negated: !there },
        FieldTest::Matches(expression, matches) => {
            let value = Some(expression.text.clone());
            FieldCondition { name, value, negated: !matches }
        }
    }
}

fn map_condition((name, tests): &(At<MapName>, At<List<MapTest>>)) -> MapCondition {
    let tests = tests.value.values().map(|test| match test {
        MapTest::Is(text) => sendoff_config::MapTest::Is(text.clone()),
        MapTest::IsNot(text) => sendoff_config::MapTest::IsNot(text.clone()),
        MapTest::Filled(true) => sendoff_config::MapTest::Filled,
        MapTest::Filled(false) => sendoff_config::MapTest::Empty,
    });
    MapCondition { map: name.value.0.clone(), tests: tests.collect() }
}

fn header_rules(map: Option<&At<Map<HeaderOp, HeaderText>>>) -> Vec<HeaderRule> {
    let mut rules = Vec::new();
    for (op, text) in map.iter().flat_map(|map| &map.value.0) {
        let HeaderOp { change, name } = &op.value;
        let HeaderText::Values(values) = &text.value else {
            rules.push(HeaderRule::Remove(name.clone()));
            continue;
        };
        for (number, value) in values.values().enumerate() {
            let (name, text) = (name.clone(), value.text.clone());
            rules.push(match change {
                Change::Set if number == 0 => HeaderRule::Set(name, text),
                Change::Set | Change::Add => HeaderRule::Add(name, text),
                Change::Default => HeaderRule::Default(name, text),
            });
        }
    }
    rules
}

fn clients(section: &keys::Route) -> Option<Clients> {
    let networks = |at: Option<&At<List<Client>>>| -> Vec<Network> {
        at.iter().flat_map(|at| at.value.values()).map(|client| client.0).collect()
    };
    let (allow, deny) = (&section.allow_from, &section.deny_from);
    (allow.is_some() || deny.is_some()).then(|| Clients {
        allow: networks(allow.as_ref()),
        deny: networks(deny.as_ref()),
        otherwise: allow.is_none(),
    })
}
