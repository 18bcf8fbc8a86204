//! A route: its conditions, and its application to a request.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use http::StatusCode;
use sendoff_config::{Authorizer, BasicAuth, Cache, Clients, PoolConfig, Rate, RouteSettings};
use sendoff_lua::Phase;
use sendoff_lua_host::{Call, ScriptsResult, without_dots};
use sendoff_message::request::{Request, RouteId, normalise};
use sendoff_site_files::router::{PathTarget, Router};

use super::changes::{HeadChanges, TextChange};
use super::handler::{Candidate, CompiledHandler, Rewrite};
use super::mapped::limit_by;
use super::{Applied, Folders};
use crate::decided_for::DecidedFor;
use crate::effects::{Answer, Effects};
use crate::maps::Maps;
use crate::matching::{Conditions, Matched, may_ask};
use crate::text::{Captured, Text, Use};

/// A route, compiled.
#[derive(Debug)]
pub(super) struct CompiledRoute {
    pub(super) origin: String,
    pub(super) conditions: Conditions,
    pub(super) rewrite: Option<Rewrite>,
    pub(super) try_files: Vec<Candidate>,
    pub(super) is_internal: bool,
    pub(super) settings: RouteSettings,
    pub(super) request_headers: Vec<TextChange>,
    pub(super) response_headers: HeadChanges,
    pub(super) cache: Option<Rc<Cache>>,
    pub(super) charset: Option<Bytes>,
    pub(super) params: Vec<(Bytes, Text)>,
    pub(super) id: RouteId,
    pub(super) rate: Option<Rate>,
    pub(super) concurrency: Option<u32>,
    /// The map by whose value requests are counted for the limits; `None`: by client.
    pub(super) limit_by: Option<usize>,
    pub(super) auth: Option<Rc<BasicAuth>>,
    pub(super) authorize: Option<Rc<Authorizer>>,
    pub(super) clients: Option<Clients>,
    pub(super) lua: Vec<PathBuf>,
    pub(super) lua_response: Option<Rc<[PathBuf]>>,
    pub(super) handler: Option<CompiledHandler>,
    /// The maps whose values are in its texts, or by which it counts requests.
    pub(super) maps: Vec<usize>,
    /// The clients for whom its decisions about named resources hold.
    pub(super) names_decided_for: DecidedFor,
}

impl CompiledRoute {
    /// True if it restricts access to some clients.
    pub(super) fn asks_client(&self) -> bool {
        self.auth.is_some() || self.authorize.is_some() || self.clients.is_some()
    }

    /// True if it treats all requests that it may concern alike, and leads them to no other path.
    pub(super) fn is_settled(&self) -> bool {
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
    pub(super) fn restricts_script(&self) -> bool {
        self.settings.name_files.is_some() || self.settings.max_body.is_some()
    }

    pub(super) fn compile(route: &sendoff_config::Route, maps: &Maps) -> Result<Self, String> {
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
    pub(super) fn matched(
        &self,
        request: &Request,
        maps: &Maps,
    ) -> Result<Option<Matched>, Answer> {
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
    pub(super) async fn apply(
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
    pub(super) async fn run_scripts(
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

    pub(super) fn rewrites(&self) -> bool {
        self.rewrite.is_some() || !self.try_files.is_empty()
    }

    /// Changes the path and the query. Returns a status if no candidate exists and the list of
    /// candidates ends with a status.
    pub(super) fn rewrite(
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
    pub(super) fn refusal(&self, request: &Request) -> Option<Answer> {
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

    pub(super) fn collect(&self, request: &Request, matched: &Matched, effects: &mut Effects) {
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

pub(super) fn set(request: &mut Request, path: Vec<u8>, query: Option<Bytes>) {
    request.path = path;
    if query.is_some() {
        request.query = query;
    }
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}
