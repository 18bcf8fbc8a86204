//! What a site's routes and `.htaccess` files make of a request: who answers, and what changes on the way.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use sendoff_config::{Authorizer, BasicAuth, Cache, Compress, PageCache, Rate};
use sendoff_lua_host::{ScriptAnswer, Traces};
use sendoff_message::request::Request;
use sendoff_message::request::RouteId;
use sendoff_report::limits::Limit;
use sendoff_static_files::Entry;

use super::decision::Decision;
use super::field_change::FieldChanges;
use super::pool_page::PoolPage;
use super::router::Route;

/// What routes change beside the choice of the handler.
#[derive(Debug, Default)]
pub struct Effects {
    /// A route has changed the path, so the routes before it have not seen where the request leads.
    pub(super) is_rewritten: bool,
    /// Changes of the response's fields, in order.
    pub response_headers: Vec<Rc<FieldChanges>>,
    /// What caches are told.
    pub cache: Option<Rc<Cache>>,
    /// Whether pages of applications are kept; `None`: they are not.
    pub page_cache: Option<PageCache>,
    /// Whether kept pages may be forgotten by `PURGE`.
    pub purge: bool,
    /// Which responses are compressed; `None`: those that the site says.
    pub compress: Option<Compress>,
    /// Parameters for scripts.
    pub params: Vec<(Bytes, Vec<u8>)>,
    /// Bytes of the request body.
    pub(crate) max_body: Option<u64>,
    /// Whether an application gets the request body while it arrives.
    pub stream_body: Option<bool>,
    /// How long a script may send nothing; zero: for ever.
    pub request_timeout: Option<Duration>,
    /// How often the client may ask, by the routes that say so.
    pub rates: Vec<(RouteId, Rate)>,
    /// Whether the application may name files and URLs; `None`: if it is no proxy, or the site has listed folders.
    pub name_files: Option<bool>,
    /// How many requests the client may have under way, by the routes that say so.
    pub concurrency: Vec<(RouteId, u32)>,
    /// Whether the request is logged; `None`: as the site says.
    pub access_log: Option<bool>,
    /// A name and a password are asked for, which each of these must accept.
    pub auth: Vec<Rc<BasicAuth>>,
    /// Applications that are still to be asked whether the client may have what it asks for, in order.
    pub authorizers: Vec<Rc<Authorizer>>,
    /// What the authorizers that were asked have said.
    pub authorized: Authorized,
    /// The number of the FastCGI application that filters static files.
    pub filter: Option<usize>,
    /// The file that it gets.
    pub filtered: Option<Rc<Entry>>,
    /// The charset of a static file whose type is text and names none.
    pub charset: Option<Bytes>,
    /// What Lua scripts leave behind for the response and for applications.
    pub lua: Traces,
    /// The numbers of the routes whose Lua scripts have run.
    pub(super) scripts_ran: Vec<usize>,
    /// Lua scripts that run when the head of the response is known.
    pub lua_response: Vec<Rc<[PathBuf]>>,
    /// What `.htaccess` files say about the request.
    pub htaccess: Option<Rc<Decision>>,
    /// The answer of a route, which waits until the client shows the password that `.htaccess` files ask for.
    pub(super) of_route: Option<Box<Answer>>,
}

/// What a client must show before it gets what an application has named for it.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Whose password it must show.
    pub auth: Option<Rc<BasicAuth>>,
    /// Who is asked whether it may have it.
    pub authorizers: Vec<Rc<Authorizer>>,
}

impl Wanted {
    /// Whether nothing is wanted.
    pub(crate) fn is_nothing(&self) -> bool {
        self.auth.is_none() && self.authorizers.is_empty()
    }
}

/// What authorizers have said about a request.
#[derive(Debug, Default)]
pub struct Authorized {
    /// For `sendoff explain`.
    pub notes: Vec<String>,
    /// They have set parameters, which the response may depend on.
    pub has_variables: bool,
    /// The user whom they name.
    pub user: Vec<u8>,
    /// One of them could not be asked.
    pub has_failed: bool,
}

impl Effects {
    /// Asks for a name and a password that these users have, too.
    pub(super) fn authenticate_also(&mut self, auth: Option<&Rc<BasicAuth>>) {
        let is_new = |new: &&Rc<BasicAuth>| self.auth.iter().all(|known| known.users != new.users);
        let new = auth.filter(is_new).cloned();
        self.auth.extend(new);
    }

    /// Has an application asked, once.
    pub(super) fn ask(&mut self, authorizer: Option<&Rc<Authorizer>>) {
        let new = authorizer.filter(|new| !self.authorizers.contains(new));
        self.authorizers.extend(new.cloned());
    }

    /// Variables of an authorizer become parameters, in place of others of the same name.
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

    /// Bytes that the request body may have. `.htaccess` files only lower the server's limit: to raise it is up to the operator.
    pub fn body_limit(&self, of_server: u64) -> u64 {
        let own = self.max_body.unwrap_or(of_server);
        match self.htaccess.as_ref().and_then(|decision| decision.outcome().max_body) {
            Some(limit) if limit > 0 => own.min(limit),
            Some(_) | None => own,
        }
    }

    /// Variables that Lua scripts have set become parameters.
    pub(super) fn pass_on_environment(&mut self) {
        for (name, value) in &self.lua.environment {
            self.params.retain(|(known, _)| known != name);
            self.params.push((name.clone(), value.to_vec()));
        }
    }

    /// Variables of `.htaccess` files for scripts. The server's own parameters come first.
    pub fn environment(&self) -> &[(Vec<u8>, Vec<u8>)] {
        self.htaccess.as_ref().map_or(&[], |decision| &decision.outcome().environment)
    }
}

/// Who answers.
#[derive(Debug)]
pub enum Answer {
    /// What the site's folders have, or an error page.
    Route(Route),
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
        /// The URI to which it leads.
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
    /// What a Lua script has made.
    Lua(ScriptAnswer),
    /// A page about a pool.
    PoolPage(PoolPage),
    /// The metrics of the server.
    Metrics,
    /// The page with its figures.
    StatusPage,
    /// Whether the server takes requests.
    Ready,
    /// The client has met a limit.
    TooOften {
        /// The limit.
        limit: Limit,
        /// The route that sets it.
        route: RouteId,
        /// Seconds after which the client may ask again.
        retry_after: u64,
    },
    /// `.htaccess` files ask for a name and a password. With them the files are to be applied again.
    Authenticate {
        /// What the client is told that the password is for.
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
        Self::Route(Route::Refused { status, why: Some(why.into()) })
    }

    /// Whether the client gets contents, and not an error, a redirect, or a question for a password.
    pub fn has_contents(&self) -> bool {
        match self {
            Self::Route(Route::Script(_) | Route::File(_))
            | Self::Proxy { .. }
            | Self::Respond { .. }
            | Self::Lua(_)
            | Self::PoolPage(_)
            | Self::Metrics
            | Self::StatusPage
            | Self::Ready => true,
            Self::Route(Route::Folder | Route::Refused { .. })
            | Self::Redirect { .. }
            | Self::TooOften { .. }
            | Self::Authenticate { .. }
            | Self::Unauthorized { .. } => false,
        }
    }

    /// Whether the client is refused, asked for a password or sent elsewhere, and not because there is nothing at the path.
    pub fn turns_away(&self) -> bool {
        match self {
            Self::Route(Route::Refused { status, .. }) => *status != StatusCode::NOT_FOUND,
            Self::Route(Route::Script(_) | Route::File(_) | Route::Folder)
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

/// A request that is answered with an error, and whose page is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'a> {
    /// The status of the response.
    pub status: StatusCode,
    /// The request that has failed.
    pub request: &'a Request,
    /// What `.htaccess` files have said about it.
    pub decision: Option<&'a Decision>,
}
