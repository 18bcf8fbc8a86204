//! The routes of a site and their application to a request.

mod changes;
mod handler;
mod mapped;
mod named;
mod route;

use http::StatusCode;
use sendoff_config::{PageCache, PoolConfig, RouteSettings};
use sendoff_lua_host::{Asks, ScriptsResult, SiteScripts};
use sendoff_message::request::Request;
use sendoff_site_files::router::{PathTarget, Router};

use super::effects::{Answer, Effects};
use super::maps::Maps;

use handler::CompiledHandler;
pub(super) use named::read_by_application;
pub use named::{InternalTarget, Rewrites};
use route::CompiledRoute;

/// The context in which the routes of a site are applied.
#[derive(Clone, Copy)]
pub(super) struct Folders<'s> {
    pub(super) router: &'s Router,
    /// `None`: the site has no scripts.
    pub(super) scripts: Option<&'s SiteScripts>,
    /// Makes subrequests for scripts; `None`: they can make none.
    pub(super) asks: Option<&'s dyn Asks>,
}

/// The result of routes or scripts.
#[derive(Debug)]
pub(super) enum Applied {
    /// There is no answer yet.
    Open,
    /// The processing of the request begins again.
    Restart,
    /// The answer is decided.
    Answer(Answer),
}

impl From<ScriptsResult> for Applied {
    fn from(next: ScriptsResult) -> Self {
        match next {
            ScriptsResult::GoOn { .. } => Self::Open,
            ScriptsResult::Restart => Self::Restart,
            ScriptsResult::Answer(answer) => Self::Answer(Answer::Lua(answer)),
            ScriptsResult::Refused(status, why) => {
                let why = why.map(Into::into);
                Self::Answer(Answer::Path(PathTarget::Refused { status, why }))
            }
        }
    }
}

/// The routes of a site, compiled, and the maps that they use.
#[derive(Debug, Default)]
pub(super) struct CompiledRoutes {
    routes: Vec<CompiledRoute>,
    maps: Maps,
}

impl CompiledRoutes {
    /// The number of routes.
    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    /// True if the site has no routes.
    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Compiles the routes of a site.
    ///
    /// # Errors
    /// An expression or a status is not valid. The error names the route.
    pub(super) fn compile(routes: &[sendoff_config::Route], maps: Maps) -> Result<Self, String> {
        let compiled = routes.iter().map(|route| {
            let compiled = CompiledRoute::compile(route, &maps);
            compiled.map_err(|error| format!("{}: {error}", route.origin))
        });
        Ok(Self { routes: compiled.collect::<Result<_, _>>()?, maps })
    }

    /// One line for the value of each map, for `sendoff explain`.
    pub(super) fn explain_maps(&self, request: &Request) -> Vec<String> {
        self.maps.explain(request)
    }

    /// Applies the routes: changes the request, collects effects, and decides on the answer.
    pub(super) async fn apply(
        &self,
        folders: Folders<'_>,
        pools: &[PoolConfig],
        request: &mut Request,
        effects: &mut Effects,
    ) -> Applied {
        for (number, route) in self.routes.iter().enumerate() {
            let matched = match route.matched(request, &self.maps) {
                Ok(None) => continue,
                Ok(Some(matched)) => matched,
                Err(answer) => return Applied::Answer(answer),
            };
            if route.conditions.are_about_paths() {
                effects.route = Some(number);
            }
            if !route.lua.is_empty() {
                effects.scripts_ran.push(number);
            }
            if route.restricts_script() {
                effects.applied.push(number);
            }
            effects.is_ambiguous |= matched.is_ambiguous;
            match route.apply(folders, pools, request, &matched, effects).await {
                Applied::Open => {}
                decided => return decided,
            }
        }
        Applied::Open
    }

    /// Applies the access rules and the limits of the routes to a path that the request was led to
    /// and that the routes have not seen: a script without its path info, an index file, a path made
    /// by a later route or by `.htaccess` files, a path without parameters. A password, in addition
    /// to those already required, an authorizer, a filter, a limit or a restriction of the script
    /// becomes an effect. Returns the use of the page cache for this path, if a route sets it.
    ///
    /// # Errors
    /// The routes refuse access; this is the answer.
    pub(super) async fn protect(
        &self,
        folders: Folders<'_>,
        request: &mut Request,
        effects: &mut Effects,
    ) -> Result<Option<PageCache>, Answer> {
        let (mut auth, mut page_cache) = (None, None);
        let mut of_script = RouteSettings::default();
        for (number, route) in self.routes.iter().enumerate() {
            let Some(matched) = route.matched(request, &self.maps)? else { continue };
            if let Some(refused) = route.refusal(request) {
                return Err(refused);
            }
            effects.is_ambiguous |= matched.is_ambiguous;
            auth = route.auth.as_ref().or(auth);
            page_cache = route.settings.page_cache.or(page_cache);
            effects.ask(route.authorize.as_ref());
            route.limit(&matched, effects);
            effects.settings.filter = route.settings.filter.or(effects.settings.filter);
            if effects.applied.contains(&number) {
                // The route concerns the request's own path as well, for which a later route may
                // have replaced its settings: its settings stay as they are.
                let RouteSettings { name_files, max_body, .. } = route.settings;
                of_script.name_files = of_script.name_files.filter(|_| name_files.is_none());
                of_script.max_body = of_script.max_body.filter(|_| max_body.is_none());
            } else {
                of_script.overlay(&route.settings);
            }
            // A route's script may protect the path.
            if !route.lua.is_empty() && !effects.scripts_ran.contains(&number) {
                effects.scripts_ran.push(number);
                match route.run_scripts(folders, request, effects).await {
                    Applied::Open => {}
                    Applied::Answer(answer) => {
                        // The script's answer is for clients that have the password.
                        effects.authenticate_also(auth);
                        return Err(answer);
                    }
                    Applied::Restart => {
                        let why = "a script begins the request again on a path that it was led to";
                        let why = format!("{}: {why}", route.origin);
                        return Err(Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why));
                    }
                }
            }
            // A route with a handler ends the checks. Its rewriting is not applied, because the
            // request was already led to this path.
            match &route.handler {
                None => {}
                Some(CompiledHandler::Deny { status }) => {
                    let why = format!("{} denies it", route.origin);
                    return Err(Answer::refused(*status, why));
                }
                Some(_) => break,
            }
        }
        effects.authenticate_also(auth);
        effects.restrict(&of_script);
        Ok(page_cache)
    }

    /// Adds the limits of the routes that concern a path to which a request will be led once the
    /// client has shown a password. They also limit the passwords that it may try.
    ///
    /// # Errors
    /// A condition could not be evaluated; this is the answer.
    pub(super) fn limit(&self, request: &Request, effects: &mut Effects) -> Result<(), Answer> {
        for route in &self.routes {
            if let Some(matched) = route.matched(request, &self.maps)? {
                route.limit(&matched, effects);
                if route.handler.is_some() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// True if the routes treat all requests by GET for a path alike. In doubt they do not.
    pub(super) fn are_settled_at(&self, path: &[u8]) -> bool {
        let concern = |route: &&CompiledRoute| route.conditions.may_hold_at(path);
        self.routes.iter().filter(concern).all(CompiledRoute::is_settled)
    }

    /// True if a route limits the requests of a client.
    pub(super) fn limit_clients(&self) -> bool {
        self.routes.iter().any(|route| route.rate.is_some() || route.concurrency.is_some())
    }
}
