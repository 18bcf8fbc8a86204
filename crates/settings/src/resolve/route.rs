//! Routes.

mod access;
mod conditions;
mod handler;
mod texts;

use sendoff_config::{Attachment, Cache, Proxy, Route, RouteSettings, Rules};
use sendoff_setting_values::{At, Candidate, HeaderText, List, Place};

use super::context::Context;
use super::paths;
use super::pools::Pools;
use crate::keys;
use access::clients;
use conditions::conditions;
use texts::header_rules;
pub(super) use texts::texts;

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
}
