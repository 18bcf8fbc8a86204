//! The routes of a site and their application to a request.

mod changes;
mod handler;
mod mapped;
mod named;

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use http::StatusCode;
use sendoff_config::{
    Authorizer, BasicAuth, Cache, Clients, PageCache, PoolConfig, Rate, RouteSettings,
};
use sendoff_lua::Phase;
use sendoff_lua_host::{Asks, Call, ScriptsResult, SiteScripts, without_dots};
use sendoff_message::request::RouteId;
use sendoff_message::request::{Request, normalise};
use sendoff_site_files::router::{PathTarget, Router};

use super::decided_for::DecidedFor;
use super::effects::{Answer, Effects};
use super::maps::Maps;
use super::matching::{Conditions, Matched, may_ask};
use super::text::{Captured, Text, Use};

use changes::{HeadChanges, TextChange};
use handler::{Candidate, CompiledHandler, Rewrite};
use mapped::limit_by;
pub(super) use named::read_by_application;
pub use named::{InternalTarget, Rewrites};

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

#[derive(Debug)]
struct CompiledRoute {
    origin: String,
    conditions: Conditions,
    rewrite: Option<Rewrite>,
    try_files: Vec<Candidate>,
    is_internal: bool,
    settings: RouteSettings,
    request_headers: Vec<TextChange>,
    response_headers: HeadChanges,
    cache: Option<Rc<Cache>>,
    charset: Option<Bytes>,
    params: Vec<(Bytes, Text)>,
    id: RouteId,
    rate: Option<Rate>,
    concurrency: Option<u32>,
    /// The map by whose value requests are counted for the limits; `None`: by client.
    limit_by: Option<usize>,
    auth: Option<Rc<BasicAuth>>,
    authorize: Option<Rc<Authorizer>>,
    clients: Option<Clients>,
    lua: Vec<PathBuf>,
    lua_response: Option<Rc<[PathBuf]>>,
    handler: Option<CompiledHandler>,
    /// The maps whose values are in its texts, or by which it counts requests.
    maps: Vec<usize>,
    /// The clients for whom its decisions about named resources hold.
    names_decided_for: DecidedFor,
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

impl CompiledRoute {
    /// True if it restricts access to some clients.
    fn asks_client(&self) -> bool {
        self.auth.is_some() || self.authorize.is_some() || self.clients.is_some()
    }

    /// True if it treats all requests that it may concern alike, and leads them to no other path.
    fn is_settled(&self) -> bool {
        !self.conditions.depend_on_client()
            && !self.asks_client()
            && !self.rewrites()
            && self.maps.is_empty()
            && self.request_headers.is_empty()
            && !matches!(self.response_headers, HeadChanges::Rendered(_))
            && self.params.iter().all(|(_, text)| text.fixed().is_some())
            && self.lua.is_empty()
            && self.lua_response.is_none()
    }

    /// True if it has settings that may restrict a script.
    fn restricts_script(&self) -> bool {
        self.settings.name_files.is_some() || self.settings.max_body.is_some()
    }

    fn compile(route: &sendoff_config::Route, maps: &Maps) -> Result<Self, String> {
        let sendoff_config::Route { origin, conditions, rules, handler } = route;
        let params = rules.params.iter().map(|(name, text)| (bytes(name), Text::parse(text, maps)));
        let change = |rule| TextChange::parse(rule, maps);
        let handler = handler.as_ref().map(|handler| CompiledHandler::parse(handler, maps));
        let mut compiled = Self {
            origin: origin.clone(),
            conditions: Conditions::compile(conditions, maps)?,
            rewrite: rules.rewrite.as_deref().map(|text| Rewrite::parse(text, maps)),
            try_files: rules
                .try_files
                .iter()
                .map(|text| Candidate::parse(text, maps))
                .collect::<Result<_, _>>()?,
            is_internal: rules.internal,
            settings: rules.settings,
            request_headers: rules.request_headers.iter().map(change).collect(),
            response_headers: HeadChanges::new(rules.response_headers.iter().map(change).collect()),
            cache: rules.cache.clone().map(Rc::new),
            charset: rules.charset.clone().map(Bytes::from),
            params: params.collect(),
            id: RouteId::of(origin),
            rate: rules.rate,
            concurrency: rules.concurrency,
            limit_by: rules.limit_by.as_deref().map(|name| limit_by(name, maps)).transpose()?,
            auth: rules.auth.clone().map(Rc::new),
            authorize: rules.authorize.clone().map(Rc::new),
            clients: rules.clients.clone(),
            lua: rules.lua.clone(),
            lua_response: (!rules.lua_response.is_empty()).then(|| (&*rules.lua_response).into()),
            handler: handler.transpose()?,
            maps: Vec::new(),
            names_decided_for: DecidedFor::AllClients,
        };
        compiled.maps = compiled.used_maps();
        compiled.names_decided_for = compiled.decides_names_for(maps);
        Ok(compiled)
    }

    /// The parts of a request that match the route's conditions; `None`: the route does not apply
    /// to the request.
    ///
    /// # Errors
    /// A condition could not be evaluated. The request is refused, because skipping the route could
    /// reveal what it protects.
    fn matched(&self, request: &Request, maps: &Maps) -> Result<Option<Matched>, Answer> {
        let matched = self.conditions.matches(request, maps).and_then(|matched| match matched {
            Some(matched) => self.with_maps(matched, request, maps).map(Some),
            None => Ok(None),
        });
        matched.map_err(|why| {
            let why = format!("{}: {}", self.origin, why.0);
            Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why)
        })
    }

    /// Applies the route to a matching request. Returns the answer, if the route decides on it.
    async fn apply(
        &self,
        folders: Folders<'_>,
        pools: &[PoolConfig],
        request: &mut Request,
        matched: &Matched,
        effects: &mut Effects,
    ) -> Applied {
        let router = folders.router;
        if let Some(refused) = self.refusal(request) {
            return Applied::Answer(refused);
        }
        self.collect(request, matched, effects);
        for change in &self.request_headers {
            change.apply_to_request(request, &matched.captured);
        }
        let before = self.rewrites().then(|| request.path.clone());
        let found = self.rewrite(router, request, &matched.captured);
        effects.is_rewritten |= before.is_some_and(|before| before != request.path);
        match found {
            Ok(None) => {}
            Ok(Some(status)) => {
                return Applied::Answer(Answer::Path(PathTarget::Refused { status, why: None }));
            }
            Err(why) => {
                let why = format!("{}: {why}", self.origin);
                return Applied::Answer(Answer::refused(StatusCode::BAD_REQUEST, why));
            }
        }
        if !self.lua.is_empty() {
            match self.run_scripts(folders, request, effects).await {
                Applied::Open => {}
                decided => return decided,
            }
        }
        match &self.handler {
            None => Applied::Open,
            Some(handler) => {
                Applied::Answer(handler.answer(router, pools, request, matched, &self.origin))
            }
        }
    }

    /// Runs the route's scripts. A script may choose another file, whose path becomes the request's
    /// path.
    async fn run_scripts(
        &self,
        folders: Folders<'_>,
        request: &mut Request,
        effects: &mut Effects,
    ) -> Applied {
        let Some(scripts) = folders.scripts else { return Applied::Open };
        let physical = Some(folders.router.filename(&request.path));
        let call = Call { phase: Phase::Route, physical, request, traces: &mut effects.lua };
        // On the heap, because most routes have no scripts.
        match Box::pin(scripts.run(&self.lua, call, folders.asks)).await {
            ScriptsResult::GoOn { physical: None, .. } => Applied::Open,
            ScriptsResult::GoOn { physical: Some(file), .. } => {
                match folders.router.path_of(&without_dots(&file)) {
                    None => scripts.file(&file, None).into(),
                    Some(path) => match normalise(&path) {
                        Ok(path) => {
                            effects.is_rewritten |= path != request.path;
                            request.path = path;
                            Applied::Open
                        }
                        Err(bad) => {
                            let why = format!("{}: {}", self.origin, bad.0);
                            Applied::Answer(Answer::refused(StatusCode::BAD_REQUEST, why))
                        }
                    },
                }
            }
            decided => decided.into(),
        }
    }

    fn rewrites(&self) -> bool {
        self.rewrite.is_some() || !self.try_files.is_empty()
    }

    /// Changes the path and the query. Returns a status if no candidate exists and the list of
    /// candidates ends with a status.
    fn rewrite(
        &self,
        router: &Router,
        request: &mut Request,
        captured: &Captured,
    ) -> Result<Option<StatusCode>, &'static str> {
        if let Some(rewrite) = &self.rewrite {
            rewrite.apply(request, captured)?;
        }
        self.try_files(router, request, captured)
    }

    /// The answer to a client without access.
    fn refusal(&self, request: &Request) -> Option<Answer> {
        if self.is_internal && !request.is_internal_redirect {
            return Some(Answer::Path(PathTarget::Refused {
                status: StatusCode::NOT_FOUND,
                why: None,
            }));
        }
        let peer = &request.peer;
        let may = self.clients.as_ref().is_none_or(|clients| may_ask(clients, peer));
        let why = || format!("{}: {peer} may not ask", self.origin);
        (!may).then(|| Answer::refused(StatusCode::FORBIDDEN, why()))
    }

    fn collect(&self, request: &Request, matched: &Matched, effects: &mut Effects) {
        let captured = &matched.captured;
        effects.lua_response.extend(self.lua_response.clone());
        effects.response_headers.extend(self.response_headers.render(request, captured));
        for (name, text) in &self.params {
            effects.params.retain(|(known, _)| known != name);
            effects.params.push((name.clone(), text.render(request, captured, Use::Plain)));
        }
        effects.settings.overlay(&self.settings);
        if let Some(cache) = &self.cache {
            effects.cache = Some(Rc::clone(cache));
        }
        if let Some(charset) = &self.charset {
            effects.default_charset = Some(charset.clone());
        }
        if let Some(auth) = &self.auth {
            effects.auth = vec![Rc::clone(auth)];
        }
        effects.ask(self.authorize.as_ref());
        self.limit(matched, effects);
    }

    /// Takes the first candidate that exists. Returns a status if none does and the list ends with
    /// a status.
    fn try_files(
        &self,
        router: &Router,
        request: &mut Request,
        captured: &Captured,
    ) -> Result<Option<StatusCode>, &'static str> {
        let Some((last, others)) = self.try_files.split_last() else { return Ok(None) };
        for candidate in others {
            let Candidate::Path(rewrite) = candidate else { continue };
            let (path, query) = rewrite.render(request, captured)?;
            let exists =
                if path.ends_with(b"/") { router.is_folder(&path) } else { router.is_file(&path) };
            if exists {
                // The path of a folder stays as it is, so that a client is redirected to the path
                // with a slash: relative links in the folder's pages need it.
                let is_folder_of_path = path.strip_suffix(b"/") == Some(&request.path[..]);
                let path = if is_folder_of_path { request.path.clone() } else { path };
                set(request, path, query);
                return Ok(None);
            }
        }
        match last {
            Candidate::Status(status) => Ok(Some(*status)),
            Candidate::Path(rewrite) => rewrite.apply(request, captured).map(|()| None),
        }
    }
}

fn set(request: &mut Request, path: Vec<u8>, query: Option<Bytes>) {
    request.path = path;
    if query.is_some() {
        request.query = query;
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}
