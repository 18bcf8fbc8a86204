//! `.htaccess` files of a site: found in the folders of a path and applied to requests.
//!
//! The crate `sendoff_htaccess` knows Apache's rules but no server. This module passes requests and
//! files to it, and turns its outcomes into answers. An outcome is kept while everything that it
//! depends on stays unchanged.

mod compiled;
pub(crate) mod decision;
mod fields;
mod files;
mod outcomes;
mod presence;
mod watcher;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use sendoff_config::Htaccess as Setting;
use sendoff_htaccess as apache;
use sendoff_htaccess::{CacheLines, Failed, RequestedFile, VerifiedUser};
use sendoff_message::request::{Request, Scheme, protocol};
use sendoff_message::response::{Field, ResponseHead};
use sendoff_site_files::router::{PathTarget, Router, Script};

use self::decision::{HtaccessDecision, User};
use super::effects::{Answer, Effects, FailedRequest};
use fields::{Fields, port, socket_address};
use files::SiteFiles;
use outcomes::{LookedAt, Outcomes};
use presence::Presence;
use watcher::Watcher;

/// The state that the sites of one event loop share.
#[derive(Debug)]
pub(crate) struct HtaccessShare {
    watcher: Watcher,
    outcomes: Outcomes,
    presence: Presence,
    sites: Cell<u64>,
}

impl HtaccessShare {
    /// The state for sites that have not asked for any file yet.
    pub(super) fn new() -> Rc<Self> {
        let (watcher, outcomes, presence) = (Watcher::new(), Outcomes::new(), Presence::new());
        Rc::new(Self { watcher, outcomes, presence, sites: Cell::new(0) })
    }
}

/// The `.htaccess` files of a site.
#[derive(Debug)]
pub(super) struct Htaccess {
    /// A number that differs for every site, and for every set of folders of the same site.
    number: u64,
    obeyed: Obeyed,
    software: Bytes,
    cache_lines: CacheLines,
    share: Rc<HtaccessShare>,
}

/// The cases in which a site obeys the files.
#[derive(Debug)]
enum Obeyed {
    /// The files decide about every request.
    Always,
    /// The files decide about paths on the way to which one lies. If they say nothing about a path,
    /// the site's own rules apply.
    WhereFound {
        /// For paths without a file, `.htaccess` rules take precedence over the front controller.
        yields: bool,
        /// The operator was told about this precedence.
        is_told: Cell<bool>,
    },
}

impl Htaccess {
    /// The files of a site; `None`: it does not obey them.
    pub(super) fn new(
        obeys: Setting,
        software: Bytes,
        cache_lines: CacheLines,
        share: &Rc<HtaccessShare>,
    ) -> Option<Self> {
        let obeyed = match obeys {
            Setting::Ignored => return None,
            Setting::Obeyed => Obeyed::Always,
            Setting::WhereFound { yields } => {
                Obeyed::WhereFound { yields, is_told: Cell::new(false) }
            }
        };
        let number = share.sites.get();
        share.sites.set(number + 1);
        Some(Self { number, obeyed, software, cache_lines, share: Rc::clone(share) })
    }

    /// True if the site itself refuses hidden names, without asking the files.
    pub(super) fn leave_hidden(&self) -> bool {
        matches!(self.obeyed, Obeyed::WhereFound { .. })
    }

    /// True if the files decide about a path.
    pub(super) fn concern(&self, router: &Router, path: &[u8]) -> bool {
        let HtaccessShare { presence, watcher, .. } = &*self.share;
        match self.obeyed {
            Obeyed::Always => true,
            Obeyed::WhereFound { .. } => presence.is_any(self.number, router, watcher, path),
        }
    }

    /// Applies the files on the way to the request's path.
    pub(super) fn apply(
        &self,
        router: &Router,
        request: &mut Request,
        effects: &mut Effects,
        user: Option<User>,
        failure: Option<FailedRequest<'_>>,
    ) -> Answer {
        let mut decision = self.decision(router, request, user.clone(), failure);
        let mut answer = self.answer(router, request, effects, &decision);
        if let Answer::Path(PathTarget::Script(script)) = &answer
            && !is_served(&decision.outcome().answer, script)
            // A worker script may lie outside of the site's folders.
            && router.path_of(&script.filename).is_some()
        {
            // The rules of the front controller's own folder apply, instead of the rules of the
            // folder that lacks the requested path.
            decision = self.decision_at(router, request, user, &script.name);
            match &decision.outcome().answer {
                apache::Answer::Serve(_) | apache::Answer::Redirect { .. } => {}
                apache::Answer::Authenticate { .. } => {
                    answer = self.answer(router, request, effects, &decision);
                }
                _ => {
                    let why = "the front controller is refused".to_owned();
                    answer = Answer::refused(StatusCode::FORBIDDEN, why);
                }
            }
        }
        // If a password is needed, changes may depend on the user: the files are applied again
        // later.
        if !matches!(answer, Answer::Authenticate { .. }) {
            for (name, value) in &decision.outcome().request_fields {
                change_field(request, name, value.as_deref());
            }
            effects.params.extend(php_value(&decision));
        }
        effects.htaccess = Some(decision);
        answer
    }

    /// The answer of the files if they refuse a request that a route has led to the file at `path`,
    /// or ask for a password; otherwise `None`. A script that they let through gets their settings
    /// of PHP.
    pub(super) fn refusal(
        &self,
        router: &Router,
        request: &mut Request,
        user: Option<User>,
        path: &[u8],
        effects: &mut Effects,
    ) -> Option<Answer> {
        if !self.concern(router, path) {
            return None;
        }
        let decision = self.decision_at(router, request, user, path);
        let turns_away = match &decision.outcome().answer {
            apache::Answer::Refuse { .. } | apache::Answer::Authenticate { .. } => true,
            // PHP is turned off in the folder.
            apache::Answer::Serve(target) => target.handler == apache::Handler::Source,
            _ => false,
        };
        if !turns_away {
            effects.params.extend(php_value(&decision));
            return None;
        }
        let asked = request.clone();
        Some(self.answer(router, &mut { asked }, &mut Effects::default(), &decision))
    }

    /// Changes the head of a response as the rules demand.
    pub(super) fn change(
        &self,
        router: &Router,
        request: &Request,
        decision: &HtaccessDecision,
        head: &mut ResponseHead,
    ) {
        if !decision.changes_heads() || decision.change(head.by_server, &mut head.fields) {
            return;
        }
        let bytes = |field: &Field| (field.name().to_vec(), field.value().to_vec());
        let modified = head
            .value("Last-Modified")
            .and_then(|value| httpdate::parse_http_date(str::from_utf8(value).ok()?).ok());
        let fields = head.fields.iter().map(bytes).collect();
        let mut seen = apache::Head {
            status: head.status.as_u16(),
            by_server: head.by_server,
            fields,
            modified,
        };
        let files = SiteFiles::new(router, &self.share.watcher).with_cache_lines(self.cache_lines);
        self.view(router, request, decision.user(), None, |site, view| {
            decision.outcome().response.apply(site, view, &files, &mut seen);
        });
        let fields = seen.fields.into_iter();
        head.fields = fields.map(|(name, value)| Field::Own(name.into(), value.into())).collect();
    }

    /// The outcome of the files for a request, kept or computed.
    fn decision(
        &self,
        router: &Router,
        request: &Request,
        user: Option<User>,
        failure: Option<FailedRequest<'_>>,
    ) -> Rc<HtaccessDecision> {
        let HtaccessShare { watcher, outcomes, .. } = &*self.share;
        let count = watcher.now().filter(|_| user.is_none() && failure.is_none());
        let known = count.and_then(|count| outcomes.get(self.number, request, watcher, count));
        if let Some(known) = known {
            return known;
        }
        let failed = failure.map(|failure| Failed {
            status: failure.status.as_u16(),
            method: failure.request.method.as_str().as_bytes(),
            path: &failure.request.path,
            query: failure.request.query.as_deref(),
            environment: failure.decision.map_or(&[], |decision| &decision.outcome().environment),
        });
        let files = SiteFiles::new(router, watcher).with_cache_lines(self.cache_lines);
        let outcome = self.view(router, request, user.as_ref(), failed, |site, view| {
            apache::evaluate(site, view, &files)
        });
        let decision = Rc::new(HtaccessDecision::new(outcome, user));
        if let Some((count, watches)) = count.zip(files.watches()) {
            outcomes.keep(self.number, request, LookedAt { watches, count }, &decision);
        }
        decision
    }

    /// Calls `look` with the crate's view of the site and of a request.
    fn view<T>(
        &self,
        router: &Router,
        request: &Request,
        user: Option<&User>,
        error: Option<Failed<'_>>,
        look: impl FnOnce(&apache::Site<'_>, &apache::Request<'_>) -> T,
    ) -> T {
        let is_script = |name: &[u8]| router.is_script(name);
        let media_type =
            |ending: &[u8]| router.media_type(str::from_utf8(ending).ok()?).map(<[u8]>::to_vec);
        let site = apache::Site {
            root: router.root_bytes(),
            index: router.index_names(),
            is_script: &is_script,
            media_type: &media_type,
            listing: false,
            software: &self.software,
            admin: b"",
            cache_lines: self.cache_lines,
        };
        let host = request.host_name();
        let view = apache::Request {
            method: request.method.as_str().as_bytes(),
            target: &request.uri,
            path: &request.path,
            query: request.query.as_deref(),
            protocol: protocol(request.version).as_bytes(),
            https: request.scheme == Scheme::Https,
            host: host.as_bytes(),
            port: request.host.as_deref().and_then(port),
            server: socket_address(&request.local),
            client: socket_address(&request.peer),
            fields: &Fields(&request.headers),
            now: SystemTime::now(),
            user: user.map(|user| VerifiedUser {
                users: user.file.as_os_str().as_bytes(),
                name: &user.name,
            }),
            error,
        };
        look(&site, &view)
    }

    /// The answer to a request.
    fn answer(
        &self,
        router: &Router,
        request: &mut Request,
        effects: &mut Effects,
        decision: &HtaccessDecision,
    ) -> Answer {
        let outcome = decision.outcome();
        let why = || {
            let reasons = outcome.reasons.iter().map(ToString::to_string);
            reasons.collect::<Vec<_>>().join("; ")
        };
        if let Some(route) = self.of_site(router, request, outcome) {
            return Answer::Path(route);
        }
        match &outcome.answer {
            apache::Answer::Serve(target) => {
                rewrite(request, target);
                effects.response_headers.extend(decision.of_file().cloned());
                effects.charset = decision.charset().cloned();
                let script = target.path.strip_suffix(&target.path_info[..]);
                let name = script.unwrap_or(&target.path);
                Answer::Path(match target.handler {
                    apache::Handler::Static => router.at(&target.file, &target.path),
                    apache::Handler::Php => router.php(&target.file, name, &target.path_info),
                    apache::Handler::Source => PathTarget::forbidden(format!(
                        "{}: it is a script that the rules do not let run",
                        why()
                    )),
                })
            }
            apache::Answer::List(target) if !target.path.ends_with(b"/") => {
                rewrite(request, target);
                Answer::Path(PathTarget::Folder)
            }
            apache::Answer::List(_) => Answer::Path(PathTarget::forbidden(
                "the folder has no index file, and the server lists no folders",
            )),
            apache::Answer::Missing(target) => {
                rewrite(request, target);
                Answer::Path(router.missing_at(&target.path))
            }
            apache::Answer::Redirect { status, location } => match StatusCode::from_u16(*status) {
                Ok(status) => Answer::Redirect { status, location: location.clone().into() },
                Err(_) => Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why()),
            },
            apache::Answer::Refuse { status } => {
                let status = StatusCode::from_u16(*status);
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                // Rules give no reason for a path to which no rule applies.
                let why = match why() {
                    why if why.is_empty() => "it is a folder without an index file".to_owned(),
                    why => why,
                };
                Answer::refused(status, why)
            }
            apache::Answer::Authenticate { realm, users } => Answer::Authenticate {
                realm: String::from_utf8_lossy(realm).into_owned(),
                users: OsStr::from_bytes(users).into(),
            },
        }
    }

    /// The site's own answer, for paths about which the files say nothing.
    fn of_site(
        &self,
        router: &Router,
        request: &Request,
        outcome: &apache::Outcome,
    ) -> Option<PathTarget> {
        let Obeyed::WhereFound { yields, is_told } = &self.obeyed else { return None };
        let path = &request.path[..];
        if matches!(outcome.answer, apache::Answer::Missing(_)) {
            // A forbidden path must not look like a missing one.
            let route = router.route(path);
            if matches!(route, PathTarget::Refused { status: StatusCode::FORBIDDEN, .. }) {
                return Some(route);
            }
        }
        match &outcome.answer {
            apache::Answer::Missing(target) if outcome.says.missing && *yields => {
                let route = router.missing_at(&target.path);
                let PathTarget::Script(script) = &route else { return Some(route) };
                if !is_told.replace(true) {
                    tracing::info!(
                        "{}: .htaccess files say what answers for paths that lead nowhere, so {} is not asked for them; front_controller = {:?} would let it answer",
                        String::from_utf8_lossy(router.root_bytes()),
                        String::from_utf8_lossy(&script.name),
                        String::from_utf8_lossy(&script.name),
                    );
                }
                Some(PathTarget::NOT_FOUND)
            }
            // A folder without an index file may belong to a front controller.
            apache::Answer::Refuse { status: 403 } | apache::Answer::List(_)
                if outcome.reasons.is_empty() && !outcome.says.folders && path.ends_with(b"/") =>
            {
                let route = router.route(path);
                matches!(route, PathTarget::Script(_)).then_some(route)
            }
            // The worker script answers for its folder, regardless of the index file.
            apache::Answer::Serve(target)
                if !outcome.says.folders && path.ends_with(b"/") && target.path != path =>
            {
                let route = router.route(path);
                let boots =
                    matches!(&route, PathTarget::Script(script) if script.name != target.path);
                boots.then_some(route)
            }
            _ => None,
        }
    }

    /// The outcome of the files for a request of the script at this path.
    fn decision_at(
        &self,
        router: &Router,
        request: &mut Request,
        user: Option<User>,
        script: &[u8],
    ) -> Rc<HtaccessDecision> {
        let path = std::mem::replace(&mut request.path, script.to_vec());
        let decision = self.decision(router, request, user, None);
        request.path = path;
        decision
    }
}

/// The parameter with the settings of PHP.
fn php_value(decision: &HtaccessDecision) -> Option<(Bytes, Vec<u8>)> {
    let lines = decision.php_value()?;
    Some((Bytes::from_static(b"PHP_VALUE"), lines.clone()))
}

/// True if the rules were evaluated for this script.
fn is_served(answer: &apache::Answer, script: &Script) -> bool {
    let apache::Answer::Serve(target) = answer else { return false };
    target.path.strip_suffix(&target.path_info[..]) == Some(&script.name)
}

fn rewrite(request: &mut Request, target: &RequestedFile) {
    if request.path != target.path {
        request.path.clone_from(&target.path);
    }
    if request.query.as_deref() != target.query.as_deref() {
        request.query = target.query.clone().map(Bytes::from);
    }
}

/// Changes a field that scripts see. An invalid field is ignored.
fn change_field(request: &mut Request, name: &[u8], value: Option<&[u8]>) {
    let Ok(name) = HeaderName::from_bytes(name) else { return };
    let Ok(value) = value.map(HeaderValue::from_bytes).transpose() else { return };
    request.rule(&name);
    match value {
        None => request.headers.remove(name),
        Some(value) => request.headers.insert(name, value),
    };
}
