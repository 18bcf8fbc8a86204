//! The decision about a request: the scripts and routes of a site in order, its `.htaccess` files,
//! and the file or script that answers.

use std::borrow::Cow;
use std::path::Path;

use http::{HeaderMap, HeaderName, StatusCode};
use sendoff_config::{PageCache, PoolConfig};
use sendoff_lua::Phase;
use sendoff_lua_host::{Asks, Call};
use sendoff_message::lscache;
use sendoff_message::request::Request;
use sendoff_site_files::router::{PathTarget, Script, Upstream};

use crate::Site;
use crate::effects::{Answer, Effects, FailedRequest};
use crate::htaccess::Htaccess;
use crate::htaccess::decision::User;
use crate::pool_page::PoolPage;
use crate::rules::{Applied, Folders};

/// The most times that the processing of a request may begin, including the first; lighttpd has the
/// same limit.
const MAX_RUNS: usize = 10;

/// The context of a decision, besides the site.
#[derive(Clone, Copy)]
pub struct DecisionContext<'a> {
    /// The pools of the configuration.
    pub pools: &'a [PoolConfig],
    /// Makes subrequests for scripts; `None`: they can make none.
    pub asks: Option<&'a dyn Asks>,
    /// True if the response is explained (`sendoff explain`).
    pub is_explained: bool,
}

impl Site {
    /// Applies the site's routes to a request and decides on its answer.
    pub async fn decide(
        &self,
        context: DecisionContext<'_>,
        request: &mut Request,
    ) -> (Answer, Box<Effects>) {
        if let Some(file) = self.maintenance.as_deref().filter(|file| exists(file)) {
            let why = format!("{} is there (maintenance)", file.display());
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let refused = PathTarget::Refused { status, why: Some(why.into()) };
            return (Answer::Path(refused), Box::default());
        }
        self.decide_for(context, request, None).await
    }

    /// As [`decide`](Self::decide), for the page of an error, which is available during maintenance
    /// as well.
    pub async fn decide_page(
        &self,
        context: DecisionContext<'_>,
        request: &mut Request,
        failure: FailedRequest<'_>,
    ) -> (Answer, Box<Effects>) {
        self.decide_for(context, request, Some(failure)).await
    }

    async fn decide_for(
        &self,
        context: DecisionContext<'_>,
        request: &mut Request,
        failure: Option<FailedRequest<'_>>,
    ) -> (Answer, Box<Effects>) {
        let mut effects = Box::<Effects>::default();
        effects.lua.is_explained = context.is_explained;
        // Only an authorizer sets these fields, in the head.
        for name in &self.granted_fields {
            request.rule(name);
            request.headers.remove(name);
        }
        let map_notes = match context.is_explained {
            true => self.rules.explain_maps(request),
            false => Vec::new(),
        };
        if self.speaks_lscache() {
            remove_fields_for_cache(&mut request.headers);
        }
        for _ in 0..MAX_RUNS {
            let applied = match self.before_routes(context.asks, request, &mut effects).await {
                Applied::Open => {
                    let folders = self.folders(context.asks);
                    self.rules.apply(folders, context.pools, request, &mut effects).await
                }
                decided => decided,
            };
            let answer = match applied {
                Applied::Answer(answer) => {
                    let answer = self.with_files(request, answer, None, &mut effects);
                    self.protected(context.asks, request, None, answer, &mut effects).await
                }
                Applied::Open => self.answer(context, request, &mut effects, None, failure).await,
                // The page of an error cannot begin its processing again.
                Applied::Restart if failure.is_some() => break,
                Applied::Restart => {
                    *effects = Effects { lua: effects.lua, ..Effects::default() };
                    continue;
                }
            };
            effects.pass_on_environment();
            effects.map_notes = map_notes;
            return (answer, effects);
        }
        let why = format!("scripts have begun the request again {MAX_RUNS} times");
        (Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why), effects)
    }

    pub(crate) fn folders<'s>(&'s self, asks: Option<&'s dyn Asks>) -> Folders<'s> {
        Folders { router: &self.router, scripts: self.scripts.as_ref(), asks }
    }

    /// Runs the scripts that precede all routes.
    async fn before_routes(
        &self,
        asks: Option<&dyn Asks>,
        request: &mut Request,
        effects: &mut Effects,
    ) -> Applied {
        match &self.scripts {
            Some(scripts) if !self.lua_before.is_empty() => {
                let traces = &mut effects.lua;
                let call = Call { phase: Phase::Before, physical: None, request, traces };
                // On the heap, because most sites have no scripts.
                Box::pin(scripts.run(&self.lua_before, call, asks)).await.into()
            }
            _ => Applied::Open,
        }
    }

    /// Returns the answer, unless the request has been led to a path that the routes have not seen
    /// yet and that they protect. The path that rules have made is checked for every handler, and
    /// so are the script or index file behind it, and the path that a front controller reads.
    /// `seen`: the path that the routes have seen; `None`: the request's path.
    async fn protected(
        &self,
        asks: Option<&dyn Asks>,
        request: &mut Request,
        seen: Option<&[u8]>,
        answer: Answer,
        effects: &mut Effects,
    ) -> Answer {
        // The target of a redirect may tell what a path hides. Other refusals tell nothing, except
        // that a file does not exist.
        let tells_nothing = answer.turns_away() && !matches!(answer, Answer::Redirect { .. });
        if matches!(answer, Answer::Authenticate { .. }) && self.rules.limit_clients() {
            return self.limit_guesses(request, effects).err().unwrap_or(answer);
        }
        if self.rules.is_empty() || tells_nothing {
            return answer;
        }
        if self.may_read_otherwise(&answer)
            && let Some(refused) = self.protected_in_other_readings(asks, request, effects).await
        {
            return refused;
        }
        let asked = &request.path[..];
        let is_new = |path: &[u8]| effects.is_rewritten || *path != *seen.unwrap_or(asked);
        let behind = self.behind(asked, &answer).filter(|behind| **behind != *asked);
        let made = Some(Cow::Borrowed(asked)).filter(|made| is_new(made));
        let behind = behind.filter(|behind| is_new(behind));
        let read = self.read_by_front_controller(&answer).map(Cow::Owned);
        let read = read.filter(|read| is_new(read));
        let paths = made.into_iter().chain(behind).chain(read);
        let unseen: Vec<_> = paths.map(Cow::into_owned).collect();
        for path in unseen {
            if let Err(refused) = self.protected_at(asks, request, path, effects).await {
                return refused;
            }
        }
        answer
    }

    /// Adds the limits for the script or index file that will answer once the client has shown the
    /// password that `.htaccess` files ask for, so they limit its guesses as well. The other rules
    /// are applied after the password.
    ///
    /// # Errors
    /// A condition of a route could not be evaluated; this is the answer.
    fn limit_guesses(&self, request: &mut Request, effects: &mut Effects) -> Result<(), Answer> {
        let found;
        let answer = match &effects.of_route {
            Some(of_route) => &**of_route,
            None => {
                found = Answer::Path(self.router.route(&request.path));
                &found
            }
        };
        let behind = self.behind(&request.path, answer).map(Cow::into_owned);
        for path in [request.path.clone()].into_iter().chain(behind) {
            let asked = std::mem::replace(&mut request.path, path);
            let limited = self.rules.limit(request, effects);
            request.path = asked;
            limited?;
        }
        Ok(())
    }

    /// The path of the script or index file that answers for a path.
    fn behind<'p>(&self, path: &'p [u8], answer: &'p Answer) -> Option<Cow<'p, [u8]>> {
        match answer {
            Answer::Path(PathTarget::Script(script)) => Some(Cow::Borrowed(&script.name)),
            Answer::Path(PathTarget::File(_)) if path.ends_with(b"/") => {
                self.router.index_of(path).map(Cow::Owned)
            }
            _ => None,
        }
    }

    /// The path without the name of the script in it, `/admin` for `/index.php/admin`, if the script
    /// is the front controller of that path: it answers both alike.
    fn read_by_front_controller(&self, answer: &Answer) -> Option<Vec<u8>> {
        let Answer::Path(PathTarget::Script(Script { name, path_info, .. })) = answer else {
            return None;
        };
        if path_info.is_empty() {
            return None;
        }
        let folder = name.iter().rposition(|byte| *byte == b'/')?;
        let read = [&name[..folder], path_info].concat();
        let is_same = |other: &Script| other.name == *name;
        let route = self.router.route(&read);
        matches!(&route, PathTarget::Script(other) if is_same(other)).then_some(read)
    }

    /// Applies the rules that protect a path. Returns the use of the page cache there, if a route
    /// sets it.
    ///
    /// # Errors
    /// The routes refuse access; this is the answer.
    async fn protected_at(
        &self,
        asks: Option<&dyn Asks>,
        request: &mut Request,
        path: Vec<u8>,
        effects: &mut Effects,
    ) -> Result<Option<PageCache>, Answer> {
        let asked = std::mem::replace(&mut request.path, path);
        // On the heap, because few requests are led to another path.
        let protected = Box::pin(self.rules.protect(self.folders(asks), request, effects)).await;
        request.path = asked;
        protected
    }

    /// True if the answering application may read another path than the routes did: a servlet
    /// container drops parameters (`/manager;x`), a program on Node may take a backslash for a
    /// slash. PHP and other scripts that are files see the same path as the routes.
    fn may_read_otherwise(&self, answer: &Answer) -> bool {
        match answer {
            Answer::Proxy { .. } => true,
            Answer::Path(PathTarget::Script(script)) => {
                matches!(script.upstream, Upstream::Application(_))
                    && !self.router.is_script(&script.name)
            }
            _ => false,
        }
    }

    /// The answer of routes that protect a path which the application may derive from the request's
    /// path.
    async fn protected_in_other_readings(
        &self,
        asks: Option<&dyn Asks>,
        request: &mut Request,
        effects: &mut Effects,
    ) -> Option<Answer> {
        let read = match request.other_readings(effects.is_rewritten) {
            Ok(read) => read,
            Err(bad) => {
                let why = format!("as some applications read it (; and \\), {}", bad.0);
                return Some(Answer::refused(StatusCode::BAD_REQUEST, why));
            }
        };
        for path in read {
            match self.protected_at(asks, request, path, effects).await {
                Err(refused) => return Some(refused),
                // A page that is not kept at one of the paths is kept at none.
                Ok(Some(PageCache::Off)) => effects.settings.page_cache = Some(PageCache::Off),
                Ok(_) => {}
            }
        }
        None
    }

    /// The answer to a request that no route answers. `user`: the user whose password the client
    /// has shown. `failure`: the request is for the page of this error.
    async fn answer(
        &self,
        context: DecisionContext<'_>,
        request: &mut Request,
        effects: &mut Effects,
        user: Option<User>,
        failure: Option<FailedRequest<'_>>,
    ) -> Answer {
        let mut own = [self.router.worker_pool(), self.router.pool()].into_iter().flatten();
        let page = own.find_map(|pool| PoolPage::at(&request.path, pool, context.pools));
        let answer = match (self.files_for(request), page) {
            (Ok(files), _) => {
                let seen = (!self.rules.is_empty()).then(|| request.path.clone());
                let found = effects.is_rewritten.then(|| request.path.clone());
                let refused = found
                    .and_then(|path| self.refused_by_folder(files, request, &path, user.clone()));
                let answer = refused
                    .unwrap_or_else(|| files.apply(&self.router, request, effects, user, failure));
                self.protected(context.asks, request, seen.as_deref(), answer, effects).await
            }
            (Err(_), Some(page)) => {
                let page = Answer::PoolPage(page);
                return self.protected(context.asks, request, None, page, effects).await;
            }
            (Err(route), None) => {
                let answer =
                    Answer::Path(route.unwrap_or_else(|| self.router.route(&request.path)));
                return self.protected(context.asks, request, None, answer, effects).await;
            }
        };
        // The files may protect the page of the pool, but cannot replace it.
        match page {
            Some(page) if !answer.turns_away() => Answer::PoolPage(page),
            _ => answer,
        }
    }

    /// The answer to a request for which `.htaccess` files have asked for a password, after the
    /// client has shown the password of `user`.
    pub async fn answer_to(
        &self,
        context: DecisionContext<'_>,
        request: &mut Request,
        effects: &mut Effects,
        user: User,
        failure: Option<FailedRequest<'_>>,
    ) -> Answer {
        match effects.of_route.take() {
            Some(answer) => {
                let answer = self.with_files(request, *answer, Some(user), effects);
                self.protected(context.asks, request, None, answer, effects).await
            }
            None => self.answer(context, request, effects, Some(user), failure).await,
        }
    }

    /// Returns the answer of a route, unless `.htaccess` files refuse the request. If they ask for
    /// a password, the answer is kept in `effects`.
    fn with_files(
        &self,
        request: &mut Request,
        answer: Answer,
        user: Option<User>,
        effects: &mut Effects,
    ) -> Answer {
        let refused_by_htaccess = self.refused_by_htaccess(request, &answer, user, effects);
        let Some(refused_by_htaccess) = refused_by_htaccess else { return answer };
        if matches!(refused_by_htaccess, Answer::Authenticate { .. }) {
            effects.of_route = Some(Box::new(answer));
        }
        refused_by_htaccess
    }

    /// True if `.htaccess` files decide about a path. They may hide parts of a folder, so such a
    /// folder is not listed.
    pub(crate) fn is_decided_by_files(&self, path: &[u8]) -> bool {
        self.htaccess.as_ref().is_some_and(|files| files.concern(&self.router, path))
    }

    /// The refusal or the question for a password by `.htaccess` files, about the file or script
    /// that a route has chosen.
    fn refused_by_htaccess(
        &self,
        request: &mut Request,
        answer: &Answer,
        user: Option<User>,
        effects: &mut Effects,
    ) -> Option<Answer> {
        let files = self.htaccess.as_ref()?;
        let path = match answer {
            Answer::Path(PathTarget::File(_)) if request.path.ends_with(b"/") => {
                self.router.index_of(&request.path)?
            }
            Answer::Path(PathTarget::File(_)) => request.path.clone(),
            Answer::Path(PathTarget::Listing) if self.is_decided_by_files(&request.path) => {
                let why = "folders for which there are .htaccess files are not listed; htaccess = false ignores the files";
                return Some(Answer::refused(StatusCode::FORBIDDEN, why.to_owned()));
            }
            Answer::Path(PathTarget::Script(script)) => {
                self.router.path_of(&script.filename).filter(|path| self.router.is_file(path))?
            }
            _ => return None,
        };
        self.refused_by_folder(files, request, &path, user.clone())
            .or_else(|| files.refusal(&self.router, request, user, &path, effects))
    }

    /// The refusal or the question for a password by `.htaccess` files, about the folder that the
    /// client has asked for, if a route answers with its index at `path`: rules may be about the
    /// path of the folder alone.
    fn refused_by_folder(
        &self,
        files: &Htaccess,
        request: &mut Request,
        path: &[u8],
        user: Option<User>,
    ) -> Option<Answer> {
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        let (folder, name) = path.split_at(slash + 1);
        let is_index = self.router.index_names().iter().any(|index| index == name);
        let is_asked = |asked: Vec<u8>| asked == folder;
        let has_asked = is_index && request.asked_path().is_ok_and(is_asked);
        if !has_asked {
            return None;
        }
        files.refusal(&self.router, request, user, folder, &mut Effects::default())
    }

    /// The `.htaccess` files that decide about a request; otherwise the route of its path, if it is
    /// already known.
    fn files_for(&self, request: &Request) -> Result<&Htaccess, Option<PathTarget>> {
        let files = self.htaccess.as_ref().ok_or(None)?;
        let path = &request.path[..];
        if self.router.is_beneath_prefix(path) || files.leave_hidden() && self.router.hides(path) {
            return Err(None);
        }
        if files.concern(&self.router, path) {
            return Ok(files);
        }
        let route = self.router.route(path);
        // The path may be a folder's, without the trailing slash; the folder's own `.htaccess` file
        // was not looked for.
        if matches!(route, PathTarget::Folder)
            && files.concern(&self.router, &[path, b"/"].concat())
        {
            return Ok(files);
        }
        // The script may be a front controller elsewhere, whose folder was not checked.
        if let PathTarget::Script(script) = &route
            && !path.starts_with(&script.name)
            && let Some(script) = self.router.path_of(&script.filename)
            && files.concern(&self.router, &script)
        {
            return Ok(files);
        }
        Err(Some(route))
    }
}

/// Removes the fields by which a server in front of a LiteSpeed server steers plugins: a client must
/// not.
fn remove_fields_for_cache(fields: &mut HeaderMap) {
    let is_for_cache = |name: &&HeaderName| lscache::is_for_cache(name.as_str().as_bytes());
    let names: Vec<_> = fields.keys().filter(is_for_cache).cloned().collect();
    names.iter().for_each(|name| drop(fields.remove(name)));
}

/// Checked by stat(2), because access(2) checks the real user id, but files are opened with the
/// effective one.
fn exists(file: &Path) -> bool {
    rustix::fs::stat(file).is_ok()
}
