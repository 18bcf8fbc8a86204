//! The rules of a site's routes for files and URIs that applications name.
//!
//! A `deny` applies to applications as well; for paths that only applications may name, a route has
//! `internal` (as in nginx). By listing folders in `sendfile_from`, the operator allows naming any
//! path in them, so no route is asked.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use http::{Method, StatusCode};
use sendoff_message::request::Request;
use sendoff_site_files::router::PathTarget;
use sendoff_site_files::sendable::{ByPath, Denied, Sendable};
use sendoff_static_files::Entry;

use super::Site;
use super::decided_for::DecidedFor;
use super::effects::{AccessRequirements, Answer};
use super::rules::read_by_application;

/// The files that the response to one request may name.
#[derive(Debug)]
pub struct Naming<'a> {
    site: &'a Site,
    request: &'a Request,
    /// The conditions that the client must meet, with the request for the name that has them;
    /// `None`: the client cannot be asked any more.
    requirements: Option<RefCell<Vec<(Request, AccessRequirements)>>>,
    decided_for: Cell<DecidedFor>,
}

impl<'a> Naming<'a> {
    /// For a response whose head has not been sent yet.
    pub fn new(site: &'a Site, request: &'a Request) -> Self {
        let requirements = Some(RefCell::default());
        Self { site, request, requirements, decided_for: Cell::default() }
    }

    /// For a response whose head has been sent: a name that requires asking the client is refused.
    pub fn within_body(site: &'a Site, request: &'a Request) -> Self {
        Self { site, request, requirements: None, decided_for: Cell::default() }
    }

    /// The conditions that the client must meet for the names.
    pub fn into_requirements(self) -> Vec<(Request, AccessRequirements)> {
        self.requirements.map(RefCell::into_inner).unwrap_or_default()
    }

    /// The clients for whom the decisions so far hold.
    pub fn decided_for(&self) -> DecidedFor {
        self.decided_for.get()
    }

    /// Notes the clients for whom another decision on the way to a name holds.
    pub fn note_decided_for(&self, decided_for: DecidedFor) {
        self.decided_for.set(self.decided_for.get().and(decided_for));
    }

    /// Checks that routes let applications name a resource; `named` is the request for it.
    ///
    /// # Errors
    /// A route denies access, to everyone or to this client.
    pub fn may_name(&self, named: &Request) -> Result<(), Denied> {
        let mut requirements = AccessRequirements::default();
        self.check_routes(named, &mut requirements)?;
        self.require(named, requirements)
    }

    /// As [`may_name`](Self::may_name), for a URI that an internal route passes on. The application
    /// behind the route may drop the parameters of the path, so the routes hold for the path
    /// without them, too (docs/gateway.md).
    ///
    /// # Errors
    /// A route denies access, to everyone or to this client.
    pub fn may_pass_on(&self, named: &Request) -> Result<(), Denied> {
        let mut requirements = AccessRequirements::default();
        self.check_routes(named, &mut requirements)?;
        let read = read_by_application(named);
        for read in read.map_err(|answer| answer.into_denied(&named.path))? {
            self.check_routes(&read, &mut requirements)?;
        }
        self.require(named, requirements)
    }

    /// Checks that no route refuses a name, and adds the conditions that the routes set.
    fn check_routes(
        &self,
        named: &Request,
        requirements: &mut AccessRequirements,
    ) -> Result<(), Denied> {
        let decided = self.site.rules.named(named, requirements);
        self.note_decided_for(requirements.decided_for);
        decided.map_err(|answer| {
            let mut denied = answer.into_denied(&named.path);
            denied.why +=
                "; a route with internal = true in place of deny would let applications name it";
            denied
        })
    }

    /// Keeps the conditions for a name, which are checked before the response.
    fn require(&self, named: &Request, requirements: AccessRequirements) -> Result<(), Denied> {
        if requirements.is_empty() {
            return Ok(());
        }
        let Some(all) = &self.requirements else {
            let why = format!(
                "{}: a route asks the client for a password, or an authorizer, which a name within a body cannot",
                named.path.escape_ascii()
            );
            return Err(Denied { status: StatusCode::FORBIDDEN, why });
        };
        all.borrow_mut().push((named.clone(), requirements));
        Ok(())
    }

    /// As [`may_name`](Self::may_name), for a file with this absolute path.
    ///
    /// # Errors
    /// A route denies access, to everyone or to this client.
    pub fn may_send(&self, file: &Path) -> Result<(), Denied> {
        self.may_name_path(|sendable| sendable.site_path(file))
    }

    /// As [`may_name`](Self::may_name), for the place at which a worker has opened the file of a
    /// URI. The caller must have checked that the folder of the URI contains the place.
    ///
    /// # Errors
    /// A route denies access, to everyone or to this client.
    pub fn may_send_from(&self, uri: &[u8], place: &Path) -> Result<(), Denied> {
        self.may_name_path(|sendable| sendable.path_beside(uri, place))
    }

    /// As [`may_name`](Self::may_name), for a path of the site; `None`: no route applies.
    fn may_name_path(&self, path: impl FnOnce(&Sendable) -> Option<Vec<u8>>) -> Result<(), Denied> {
        if !self.site.rules.guard() {
            return Ok(());
        }
        let Some(path) = path(&self.site.sendable) else { return Ok(()) };
        let method = match self.request.method {
            Method::HEAD => Method::HEAD,
            _ => Method::GET,
        };
        self.may_name(&Request {
            method,
            path,
            query: None,
            is_internal_redirect: true,
            ..self.request.without_body()
        })
    }

    /// Opens the file of a URI. The caller must have checked the routes.
    pub fn by_uri(&self, uri: &[u8]) -> Result<Entry, Denied> {
        self.site.sendable.by_uri(uri)
    }

    /// True if routes may refuse a name.
    pub fn has_guards(&self) -> bool {
        self.site.rules.guard()
    }

    /// The site.
    pub fn site(&self) -> &Site {
        self.site
    }
}

impl ByPath for Naming<'_> {
    fn by_path(&self, path: &[u8]) -> Result<Entry, Denied> {
        self.may_send(Path::new(OsStr::from_bytes(path)))?;
        self.site.sendable.by_path(path)
    }
}

impl Answer {
    /// The reason why a route refuses a name with this answer.
    pub fn into_denied(self, name: &[u8]) -> Denied {
        let (status, why) = match self {
            Self::Path(PathTarget::Refused { status, why }) => (status, why),
            _ => (StatusCode::FORBIDDEN, None),
        };
        let why = why.as_deref().unwrap_or("the route refuses it");
        Denied { status, why: format!("{}: {why}", name.escape_ascii()) }
    }
}
