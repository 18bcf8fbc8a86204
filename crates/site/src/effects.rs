//! The results of a site's routes and `.htaccess` files for a request: the answer, and the changes
//! on the way.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use http::StatusCode;
use sendoff_config::{Authorizer, BasicAuth, Cache, Rate, RouteSettings};
use sendoff_lua_host::{ScriptAnswer, Traces};
use sendoff_message::request::Request;
use sendoff_message::request::{LimitKey, RouteId};
use sendoff_report::limits::Limit;
use sendoff_site_files::router::PathTarget;
use sendoff_static_files::Entry;

use super::decided_for::DecidedFor;
use super::field_change::FieldChanges;
use super::htaccess::decision::HtaccessDecision;
use super::pool_page::PoolPage;

/// The effects of routes, except for the choice of the handler.
#[derive(Debug, Default)]
pub struct Effects {
    /// A route has changed the path, so the routes before it have not seen the final path.
    pub(super) is_rewritten: bool,
    /// The number of the last matching route with a condition on the path.
    pub route: Option<usize>,
    /// Settings of the matching routes.
    pub settings: RouteSettings,
    /// Changes of the response's fields, in order.
    pub response_headers: Vec<Rc<FieldChanges>>,
    /// The instructions for caches.
    pub cache: Option<Rc<Cache>>,
    /// A route's condition holds in some readings of the request only: applications may read the
    /// request otherwise, and its page is not kept.
    pub is_ambiguous: bool,
    /// The clients for whom internal routes have decided about a redirect of an application.
    pub decided_for: DecidedFor,
    /// The values of maps, for `sendoff explain`.
    pub map_notes: Vec<String>,
    /// Parameters for scripts.
    pub params: Vec<(Bytes, Vec<u8>)>,
    /// The rates at which requests may come.
    pub rates: Vec<RouteLimit<Rate>>,
    /// The most concurrent requests.
    pub concurrency: Vec<RouteLimit<u32>>,
    /// Each of these must accept the name and the password that the client is asked for.
    pub auth: Vec<Rc<BasicAuth>>,
    /// Applications that must still be asked if the client may have access, in order.
    pub authorizers: Vec<Rc<Authorizer>>,
    /// The results of the authorizers that were asked.
    pub authorized: Authorized,
    /// The file that the filter gets.
    pub filtered: Option<Rc<Entry>>,
    /// The charset of a static file whose type is text and has no charset.
    pub charset: Option<Bytes>,
    /// The charset of every response whose type is text and has no charset.
    pub default_charset: Option<Bytes>,
    /// The data that Lua scripts have set for the response and for applications.
    pub lua: Traces,
    /// The numbers of the routes whose Lua scripts have run.
    pub(super) scripts_ran: Vec<usize>,
    /// The numbers of the routes with settings for scripts that have been applied to the request's
    /// own path.
    pub(super) applied: Vec<usize>,
    /// The largest request body of the script behind the path; `None`: no route limits it.
    pub(super) max_body_behind: Option<u64>,
    /// Lua scripts that run once the head of the response is known.
    pub lua_response: Vec<Rc<[PathBuf]>>,
    /// The decision of the `.htaccess` files about the request.
    pub htaccess: Option<Rc<HtaccessDecision>>,
    /// The answer of a route, kept until the client shows the password that `.htaccess` files ask
    /// for.
    pub(super) of_route: Option<Box<Answer>>,
}

/// A limit of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteLimit<T> {
    /// The route.
    pub route: RouteId,
    /// The requests that it counts; `None`: the requests of each client.
    pub by: Option<LimitKey>,
    /// The limit.
    pub most: T,
}

/// The requests with which the limits of a route count a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CountedBy {
    /// The requests of its client.
    #[default]
    Client,
    /// The requests with any of these values of a map, one for each reading of the request that has
    /// a value; empty: none limits it.
    Values(Vec<LimitKey>),
}

/// The conditions for a client to get a file or URL that an application has named.
#[derive(Debug, Default)]
pub struct AccessRequirements {
    /// Each of these must accept the client's name and password.
    pub auth: Vec<Rc<BasicAuth>>,
    /// The applications that must allow it.
    pub authorizers: Vec<Rc<Authorizer>>,
    /// The clients for whom the routes decide in this way.
    pub decided_for: DecidedFor,
}

impl AccessRequirements {
    /// True if there are no conditions.
    pub(crate) fn is_empty(&self) -> bool {
        self.auth.is_empty() && self.authorizers.is_empty()
    }

    /// Requires a name and a password of these users in addition to the others.
    pub(super) fn authenticate_also(&mut self, auth: Option<&Rc<BasicAuth>>) {
        authenticate_also(&mut self.auth, auth);
    }

    /// Requires the consent of an application; duplicates are dropped.
    pub(super) fn ask(&mut self, authorizer: Option<&Rc<Authorizer>>) {
        ask(&mut self.authorizers, authorizer);
    }
}

fn authenticate_also(all: &mut Vec<Rc<BasicAuth>>, auth: Option<&Rc<BasicAuth>>) {
    let is_new = |new: &&Rc<BasicAuth>| all.iter().all(|known| known.users != new.users);
    let new = auth.filter(is_new).cloned();
    all.extend(new);
}

fn ask(all: &mut Vec<Rc<Authorizer>>, authorizer: Option<&Rc<Authorizer>>) {
    let new = authorizer.filter(|new| !all.contains(new)).cloned();
    all.extend(new);
}

/// The results of authorizers for a request.
#[derive(Debug, Default)]
pub struct Authorized {
    /// For `sendoff explain`.
    pub notes: Vec<String>,
    /// The authorizers have set parameters, on which the response may depend.
    pub has_variables: bool,
    /// The user that the authorizers have named.
    pub user: Vec<u8>,
    /// An authorizer could not be asked.
    pub has_failed: bool,
}

impl Effects {
    /// True if none of them comes from a client's fields, its password, a script, or an `.htaccess`
    /// file. Limits count requests of clients, not subrequests.
    pub(super) fn is_settled(&self) -> bool {
        let Self { authorized, lua, .. } = self;
        !self.is_rewritten
            && !self.is_ambiguous
            && self.auth.is_empty()
            && self.authorizers.is_empty()
            && authorized.notes.is_empty()
            && authorized.user.is_empty()
            && !authorized.has_variables
            && !authorized.has_failed
            && self.filtered.is_none()
            && lua.fields.is_empty()
            && lua.environment.is_empty()
            && self.scripts_ran.is_empty()
            && self.lua_response.is_empty()
            && self.htaccess.is_none()
            && self.of_route.is_none()
    }

    /// Requires a name and a password of these users in addition to the others.
    pub(super) fn authenticate_also(&mut self, auth: Option<&Rc<BasicAuth>>) {
        authenticate_also(&mut self.auth, auth);
    }

    /// Requires the consent of an application; duplicates are dropped.
    pub(super) fn ask(&mut self, authorizer: Option<&Rc<Authorizer>>) {
        ask(&mut self.authorizers, authorizer);
    }

    /// Adds limits of a route. The routes may see several paths of one request, which counts once
    /// by each limit, so duplicates are dropped.
    pub(super) fn limit(
        &mut self,
        route: RouteId,
        by: &CountedBy,
        rate: Option<Rate>,
        concurrency: Option<u32>,
    ) {
        add_limit(&mut self.rates, route, by, rate);
        add_limit(&mut self.concurrency, route, by, concurrency);
    }

    /// Adds the restrictions of the script behind the request's path, whose routes have these
    /// settings. A setting that allows more is not added.
    pub(super) fn restrict(&mut self, of_script: &RouteSettings) {
        if of_script.name_files == Some(false) {
            self.settings.name_files = Some(false);
        }
        let limits = [self.max_body_behind, of_script.max_body];
        self.max_body_behind = limits.into_iter().flatten().min();
    }

    /// Makes parameters of an authorizer's variables, replacing others of the same names.
    pub fn grant(&mut self, variables: Vec<(Bytes, Bytes)>) {
        self.authorized.has_variables |= !variables.is_empty();
        for (name, value) in variables {
            if name == "REMOTE_USER" {
                self.authorized.user = value.to_vec();
            }
            self.params.retain(|(known, _)| *known != name);
            self.params.push((name, value.into()));
        }
    }

    /// The largest request body in bytes. `.htaccess` files can only lower the server's limit:
    /// raising it is up to the operator.
    pub fn body_limit(&self, of_server: u64) -> u64 {
        let own = self.settings.max_body.unwrap_or(of_server);
        let own = self.max_body_behind.map_or(own, |behind| own.min(behind));
        match self.htaccess.as_ref().and_then(|decision| decision.outcome().max_body) {
            Some(limit) if limit > 0 => own.min(limit),
            Some(_) | None => own,
        }
    }

    /// Makes parameters of the variables that Lua scripts have set.
    pub(super) fn pass_on_environment(&mut self) {
        for (name, value) in &self.lua.environment {
            self.params.retain(|(known, _)| known != name);
            self.params.push((name.clone(), value.to_vec()));
        }
    }

    /// Variables of `.htaccess` files for scripts. The server's own parameters take precedence.
    pub fn environment(&self) -> &[(Vec<u8>, Vec<u8>)] {
        self.htaccess.as_ref().map_or(&[], |decision| &decision.outcome().environment)
    }
}

fn add_limit<T: Copy>(
    limits: &mut Vec<RouteLimit<T>>,
    route: RouteId,
    by: &CountedBy,
    most: Option<T>,
) {
    let Some(most) = most else { return };
    if limits.iter().any(|known| known.route == route) {
        return;
    }
    match by {
        CountedBy::Client => limits.push(RouteLimit { route, by: None, most }),
        CountedBy::Values(keys) => {
            limits.extend(keys.iter().map(|&key| RouteLimit { route, by: Some(key), most }));
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// A file or script in the site's folders, or an error page.
    Path(PathTarget),
    /// An application that speaks HTTP, SCGI or AJP.
    Proxy {
        /// Its number.
        application: usize,
        /// Bytes of the path that the route has matched.
        prefix: usize,
    },
    /// A redirect.
    Redirect {
        /// Its status, 3xx.
        status: StatusCode,
        /// The URI of the target.
        location: Bytes,
    },
    /// A fixed response.
    Respond {
        /// Its status.
        status: StatusCode,
        /// The media type of its body.
        content_type: Bytes,
        /// Its body.
        body: Bytes,
    },
    /// The response of a Lua script.
    Lua(ScriptAnswer),
    /// A page about a pool.
    PoolPage(PoolPage),
    /// The metrics of the server.
    Metrics,
    /// The page with the server's figures.
    StatusPage,
    /// The readiness of the server to take requests.
    Ready,
    /// The client has met a limit.
    TooOften {
        /// The limit.
        limit: Limit,
        /// The route that sets it.
        route: RouteId,
        /// The number of seconds after which the client may ask again.
        retry_after: u64,
    },
    /// `.htaccess` files ask for a name and a password. The files must be applied again once the
    /// client has shown them.
    Authenticate {
        /// The purpose of the password, as shown to the client.
        realm: String,
        /// The password file.
        users: PathBuf,
    },
    /// The client has shown no password, or a wrong one.
    Unauthorized {
        /// The value of `WWW-Authenticate`.
        challenge: Bytes,
    },
}

impl Answer {
    /// An error page of this status; `why` is for the log.
    pub fn refused(status: StatusCode, why: String) -> Self {
        Self::Path(PathTarget::Refused { status, why: Some(why.into()) })
    }

    /// True if the client gets contents instead of an error, a redirect or a request for a
    /// password.
    pub fn has_contents(&self) -> bool {
        match self {
            Self::Path(PathTarget::Script(_) | PathTarget::File(_) | PathTarget::Listing)
            | Self::Proxy { .. }
            | Self::Respond { .. }
            | Self::Lua(_)
            | Self::PoolPage(_)
            | Self::Metrics
            | Self::StatusPage
            | Self::Ready => true,
            Self::Path(PathTarget::Folder | PathTarget::Refused { .. })
            | Self::Redirect { .. }
            | Self::TooOften { .. }
            | Self::Authenticate { .. }
            | Self::Unauthorized { .. } => false,
        }
    }

    /// True if the client is refused, asked for a password or redirected. False if the path merely
    /// does not exist.
    pub fn turns_away(&self) -> bool {
        match self {
            Self::Path(PathTarget::Refused { status, .. }) => *status != StatusCode::NOT_FOUND,
            Self::Path(
                PathTarget::Script(_)
                | PathTarget::File(_)
                | PathTarget::Listing
                | PathTarget::Folder,
            )
            | Self::Proxy { .. }
            | Self::Respond { .. }
            | Self::Lua(_)
            | Self::PoolPage(_)
            | Self::Metrics
            | Self::StatusPage
            | Self::Ready => false,
            Self::Redirect { .. }
            | Self::TooOften { .. }
            | Self::Authenticate { .. }
            | Self::Unauthorized { .. } => true,
        }
    }
}

/// A request that is answered with an error, and needs the page of this error.
#[derive(Debug, Clone, Copy)]
pub struct FailedRequest<'a> {
    /// The status of the response.
    pub status: StatusCode,
    /// The failed request.
    pub request: &'a Request,
    /// The outcome of the `.htaccess` files for it.
    pub decision: Option<&'a HtaccessDecision>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_counts_once_by_each_limit() {
        let (one, two, three) = (RouteId(1), RouteId(2), RouteId(3));
        let rate = |burst| Rate { interval: Duration::from_secs(1), burst };
        let keys = [LimitKey::of_value(b"a"), LimitKey::of_value(b"b")];
        let mut effects = Effects::default();
        effects.limit(one, &CountedBy::Client, Some(rate(1)), Some(5));
        effects.limit(two, &CountedBy::Values(keys.to_vec()), Some(rate(2)), None);
        effects.limit(one, &CountedBy::Client, Some(rate(1)), Some(5));
        effects.limit(two, &CountedBy::Values(vec![LimitKey::of_value(b"c")]), Some(rate(2)), None);
        effects.limit(three, &CountedBy::Values(Vec::new()), None, Some(5));
        let of_two = |by| RouteLimit { route: two, by: Some(by), most: rate(2) };
        let of_one = RouteLimit { route: one, by: None, most: rate(1) };
        assert_eq!(effects.rates, [of_one, of_two(keys[0]), of_two(keys[1])]);
        assert_eq!(effects.concurrency, [RouteLimit { route: one, by: None, most: 5 }]);
    }

    #[test]
    fn the_script_behind_a_path_restricts_and_permits_nothing() {
        let script = |name_files, max_body| RouteSettings {
            name_files,
            max_body,
            ..RouteSettings::default()
        };
        let mut effects = Effects::default();
        effects.restrict(&script(Some(true), Some(200)));
        assert_eq!((effects.settings.name_files, effects.body_limit(100)), (None, 100));
        assert_eq!(effects.body_limit(1000), 200);
        effects.settings = script(Some(true), Some(300));
        assert_eq!(effects.body_limit(1000), 200);
        effects.restrict(&script(Some(false), Some(400)));
        assert_eq!((effects.settings.name_files, effects.body_limit(1000)), (Some(false), 200));
        effects.restrict(&script(None, Some(0)));
        assert_eq!((effects.settings.name_files, effects.body_limit(1000)), (Some(false), 0));
    }
}
