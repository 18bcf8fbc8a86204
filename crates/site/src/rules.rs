//! The routes of a site and their application to a request.

mod mapped;
mod named;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use sendoff_config::{
    Authorizer, BasicAuth, Cache, Clients, Handler, HeaderRule, PoolConfig, Rate, RouteSettings,
};
use sendoff_http1::client::HopByHop;
use sendoff_lua::Phase;
use sendoff_lua_host::{Asks, Call, ScriptsResult, SiteScripts, without_dots};
use sendoff_message::configured::shared_field;
use sendoff_message::request::RouteId;
use sendoff_message::request::{Request, normalise};
use sendoff_message::response::Field;
use sendoff_site_files::router::{PathTarget, Router, Upstream};

use super::decided_for::DecidedFor;
use super::effects::{Answer, Effects};
use super::field_change::{Action, FieldChange, FieldChanges};
use super::maps::Maps;
use super::matching::{Conditions, Matched, may_ask};
use super::pool_page::PoolPage;
use super::text::{Captured, Text, Use};

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
    /// It has a condition on the path.
    is_about_paths: bool,
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
    maps: UsedMaps,
    /// The clients for whom its decisions about named resources hold.
    names_decided_for: DecidedFor,
}

/// The maps whose values are in the texts of a route.
#[derive(Debug)]
struct UsedMaps {
    /// In any text.
    in_texts: Vec<usize>,
    /// In a text or condition on which the page of an application may depend in a way that its
    /// address, script and parameters do not show.
    of_page: Vec<usize>,
}

/// A change of header fields whose value may contain variables.
#[derive(Debug)]
struct TextChange {
    action: Action,
    name: Bytes,
    text: Text,
}

/// Changes of response fields.
#[derive(Debug)]
enum HeadChanges {
    None,
    /// The same for all requests.
    Fixed(Rc<FieldChanges>),
    Rendered(Vec<TextChange>),
}

impl HeadChanges {
    fn new(changes: Vec<TextChange>) -> Self {
        if changes.is_empty() {
            return Self::None;
        }
        let fixed: Option<Vec<_>> = changes.iter().map(TextChange::fixed).collect();
        fixed.map_or(Self::Rendered(changes), |fixed| Self::Fixed(FieldChanges::new(fixed).into()))
    }

    fn render(&self, request: &Request, captured: &Captured) -> Option<Rc<FieldChanges>> {
        match self {
            Self::None => None,
            Self::Fixed(changes) => Some(Rc::clone(changes)),
            Self::Rendered(changes) => {
                let changes = changes.iter().filter_map(|change| change.render(request, captured));
                Some(FieldChanges::once(changes).into())
            }
        }
    }
}

/// A new path and, optionally, a new query.
#[derive(Debug)]
struct Rewrite {
    path: Text,
    query: Option<Text>,
}

#[derive(Debug)]
enum Candidate {
    Path(Rewrite),
    Status(StatusCode),
}

#[derive(Debug)]
enum CompiledHandler {
    Static,
    Listing,
    Php { pool: usize, script: Option<Vec<u8>> },
    FastCgi { application: usize, only_files: bool },
    Proxy { application: usize },
    Redirect { status: StatusCode, to: Text },
    Respond { status: StatusCode, content_type: Bytes, body: Text },
    Deny { status: StatusCode },
    Metrics,
    StatusPage,
    Ready,
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
            if route.is_about_paths {
                effects.route = Some(number);
            }
            if !route.lua.is_empty() {
                effects.scripts_ran.push(number);
            }
            if route.restricts_script() {
                effects.applied.push(number);
            }
            route.note_page(&self.maps, request, &matched, effects);
            match route.apply(folders, pools, request, &matched, effects).await {
                Applied::Open => {}
                decided => return decided,
            }
        }
        Applied::Open
    }

    /// Applies the access rules and the limits of the routes to a path that the request was led to
    /// and that the routes have not seen: a script without its path info, an index file, a path made
    /// by a later route or by `.htaccess` files, a path without parameters. Returns the answer if
    /// they refuse access. A password, in addition to those already required, an authorizer, a
    /// filter, a limit or a restriction of the script becomes an effect.
    pub(super) async fn protect(
        &self,
        folders: Folders<'_>,
        request: &mut Request,
        effects: &mut Effects,
    ) -> Option<Answer> {
        let mut auth = None;
        let mut of_script = RouteSettings::default();
        for (number, route) in self.routes.iter().enumerate() {
            let matched = match route.matched(request, &self.maps) {
                Ok(matched) => matched,
                Err(answer) => return Some(answer),
            };
            let Some(matched) = matched else { continue };
            if let Some(refused) = route.refusal(request) {
                return Some(refused);
            }
            route.note_page(&self.maps, request, &matched, effects);
            auth = route.auth.as_ref().or(auth);
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
                        return Some(answer);
                    }
                    Applied::Restart => {
                        let why = "a script begins the request again on a path that it was led to";
                        let why = format!("{}: {why}", route.origin);
                        return Some(Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why));
                    }
                }
            }
            // A route with a handler ends the checks. Its rewriting is not applied, because the
            // request was already led to this path.
            match &route.handler {
                None => {}
                Some(CompiledHandler::Deny { status }) => {
                    let why = format!("{} denies it", route.origin);
                    return Some(Answer::refused(*status, why));
                }
                Some(_) => break,
            }
        }
        effects.authenticate_also(auth);
        effects.restrict(&of_script);
        None
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
            && self.maps.in_texts.is_empty()
            && self.maps.of_page.is_empty()
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
            is_about_paths: conditions.path_text(b"").is_some(),
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
            maps: UsedMaps { in_texts: Vec::new(), of_page: Vec::new() },
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

impl Rewrite {
    fn parse(text: &str, maps: &Maps) -> Self {
        match text.split_once('?') {
            Some((path, query)) => {
                Self { path: Text::parse(path, maps), query: Some(Text::parse(query, maps)) }
            }
            None => Self { path: Text::parse(text, maps), query: None },
        }
    }

    /// The new path, normalised, and the new query.
    fn render(
        &self,
        request: &Request,
        captured: &Captured,
    ) -> Result<(Vec<u8>, Option<Bytes>), &'static str> {
        let path =
            normalise(&self.path.render(request, captured, Use::Plain)).map_err(|bad| bad.0)?;
        let query = self.query.as_ref();
        Ok((path, query.map(|query| query.render(request, captured, Use::Query).into())))
    }

    fn apply(&self, request: &mut Request, captured: &Captured) -> Result<(), &'static str> {
        let (path, query) = self.render(request, captured)?;
        set(request, path, query);
        Ok(())
    }
}

fn set(request: &mut Request, path: Vec<u8>, query: Option<Bytes>) {
    request.path = path;
    if query.is_some() {
        request.query = query;
    }
}

impl Candidate {
    fn parse(text: &str, maps: &Maps) -> Result<Self, String> {
        match text.strip_prefix('=') {
            Some(code) => status(code.parse().unwrap_or(0)).map(Self::Status),
            None => Ok(Self::Path(Rewrite::parse(text, maps))),
        }
    }
}

impl TextChange {
    fn parse(rule: &HeaderRule, maps: &Maps) -> Self {
        let (action, name, text) = match rule {
            HeaderRule::Set(name, text) => (Action::Set, name, &text[..]),
            HeaderRule::Add(name, text) => (Action::Add, name, &text[..]),
            HeaderRule::Default(name, text) => (Action::Default, name, &text[..]),
            HeaderRule::Remove(name) => (Action::Remove, name, ""),
        };
        Self { action, name: bytes(name), text: Text::parse(text, maps) }
    }

    fn text(&self) -> &Text {
        &self.text
    }

    /// The change, if it is the same for all requests.
    fn fixed(&self) -> Option<FieldChange> {
        let field = shared_field(&self.name, &self.text.fixed()?);
        Some(FieldChange { action: self.action, field })
    }

    /// `None`: nothing is changed.
    fn render(&self, request: &Request, captured: &Captured) -> Option<FieldChange> {
        let value = self.text.bytes(request, captured, Use::Field);
        let action = self.action_for(&value)?;
        Some(FieldChange { action, field: Field::Own(self.name.clone(), value) })
    }

    /// The change for a value. A field of which a map makes nothing is not set, and the field that
    /// it would have replaced is removed.
    fn action_for(&self, value: &[u8]) -> Option<Action> {
        if !value.is_empty() || self.text.maps().next().is_none() {
            return Some(self.action);
        }
        match self.action {
            Action::Set | Action::Remove => Some(Action::Remove),
            Action::Add | Action::Default => None,
        }
    }

    /// Changes the request's fields. An invalid field is ignored.
    fn apply_to_request(&self, request: &mut Request, captured: &Captured) {
        let Ok(name) = HeaderName::from_bytes(&self.name) else { return };
        let value = self.text.bytes(request, captured, Use::Field);
        let Some(action) = self.action_for(&value) else { return };
        if action == Action::Remove {
            request.rule(&name);
            request.headers.remove(name);
            return;
        }
        let Ok(value) = HeaderValue::from_maybe_shared(value) else { return };
        let is_sent = || {
            let headers = &request.headers;
            headers.contains_key(&name) && !HopByHop::of(headers).nominates(&name)
        };
        if action == Action::Default && is_sent() {
            return;
        }
        request.rule(&name);
        match action {
            Action::Add => {
                request.headers.append(name, value);
            }
            Action::Set | Action::Default | Action::Remove => {
                request.headers.insert(name, value);
            }
        }
    }
}

impl CompiledHandler {
    fn parse(handler: &Handler, maps: &Maps) -> Result<Self, String> {
        Ok(match handler {
            Handler::Static => Self::Static,
            Handler::Listing => Self::Listing,
            Handler::Php { pool, script } => Self::Php {
                pool: *pool,
                script: script.as_ref().map(|script| script.clone().into_bytes()),
            },
            Handler::FastCgi { application, only_files } => {
                Self::FastCgi { application: *application, only_files: *only_files }
            }
            Handler::Proxy { proxy } => Self::Proxy { application: *proxy },
            Handler::Redirect { status: code, to } => {
                Self::Redirect { status: status(*code)?, to: Text::parse(to, maps) }
            }
            Handler::Respond { status: code, content_type, body } => Self::Respond {
                status: status(*code)?,
                content_type: bytes(content_type),
                body: Text::parse(body, maps),
            },
            Handler::Deny { status: code } => Self::Deny { status: status(*code)? },
            Handler::Metrics => Self::Metrics,
            Handler::StatusPage => Self::StatusPage,
            Handler::Ready => Self::Ready,
        })
    }

    fn answer(
        &self,
        router: &Router,
        pools: &[PoolConfig],
        request: &Request,
        matched: &Matched,
        origin: &str,
    ) -> Answer {
        let path = &request.path[..];
        match self {
            Self::Static => Answer::Path(router.file(path)),
            Self::Listing => Answer::Path(router.file_or_listing(path)),
            Self::Php { pool, script } => {
                if let Some(page) = PoolPage::at(path, *pool, pools) {
                    return Answer::PoolPage(page);
                }
                if let Some(worker) = pools.get(*pool).and_then(|pool| pool.worker.as_ref()) {
                    let file = worker.file.as_os_str().as_bytes();
                    return Answer::Path(PathTarget::Script(router.worker_script(file, *pool)));
                }
                let script = script.as_deref().unwrap_or(path);
                Answer::Path(router.script_at(script, Upstream::Workers(*pool)))
            }
            Self::FastCgi { application, only_files: true } => {
                Answer::Path(router.script_at(path, Upstream::Application(*application)))
            }
            Self::FastCgi { application, only_files: false } => {
                let (name, rest) = path.split_at(matched.prefix.min(path.len()));
                Answer::Path(router.application(name, rest, *application))
            }
            Self::Proxy { application } => {
                Answer::Proxy { application: *application, prefix: matched.prefix }
            }
            Self::Redirect { status, to } => {
                let location = to.render(request, &matched.captured, Use::Uri);
                let location = if to.begins_with(b"//") { location } else { on_site(location) };
                Answer::Redirect { status: *status, location: location.into() }
            }
            Self::Respond { status, content_type, body } => Answer::Respond {
                status: *status,
                content_type: content_type.clone(),
                body: body.render(request, &matched.captured, Use::Uri).into(),
            },
            Self::Metrics => Answer::Metrics,
            Self::StatusPage => Answer::StatusPage,
            Self::Ready => Answer::Ready,
            Self::Deny { status } => Answer::refused(*status, format!("{origin} denies it")),
        }
    }
}

/// The target of a redirect to the site itself. A path as sent may begin with `//` or `/\\`, after
/// which browsers expect a host, so one slash replaces them.
fn on_site(mut location: Vec<u8>) -> Vec<u8> {
    if location.starts_with(b"/") {
        let slashes = location.iter().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
        location.drain(1..slashes);
    }
    location
}

fn status(code: u16) -> Result<StatusCode, String> {
    StatusCode::from_u16(code).map_err(|_| format!("{code} is no status"))
}

fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}
