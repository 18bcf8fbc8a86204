//! What the routes of a site say about files and URIs that applications name.
//!
//! A `deny` holds for everyone, as nginx's `internal` redirects show: what only applications may name has a route with `internal`. Folders of
//! `sendfile_from` are the operator's word that paths in them may be named, so no route is asked.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use http::{Method, StatusCode};
use sendoff_message::request::{Body, Request};
use sendoff_static_files::Entry;

use super::Site;
use super::effects::{Answer, Wanted};
use super::router::Route;
use super::sendable::{ByPath, Denied};

/// The files that the response to one request may name.
#[derive(Debug)]
pub struct Naming<'a> {
    site: &'a Site,
    request: &'a Request,
    /// What is wanted of the client, by the request for each name that wants it; `None`: it is too late to ask the client.
    wanted: Option<RefCell<Vec<(Request, Wanted)>>>,
}

impl<'a> Naming<'a> {
    /// For a response whose head has not been sent.
    pub fn new(site: &'a Site, request: &'a Request) -> Self {
        Self { site, request, wanted: Some(RefCell::default()) }
    }

    /// For a response whose head has been sent: what asks the client for something is refused.
    pub fn within_body(site: &'a Site, request: &'a Request) -> Self {
        Self { site, request, wanted: None }
    }

    /// What is wanted of the client for what was named.
    pub fn into_wanted(self) -> Vec<(Request, Wanted)> {
        self.wanted.map(RefCell::into_inner).unwrap_or_default()
    }

    /// Whether routes let applications lead a request here. `led`: the request for what was named.
    ///
    /// # Errors
    /// A route denies it, or the client.
    pub fn may_lead(&self, led: &Request) -> Result<(), Denied> {
        let mut wanted = Wanted::default();
        self.site.rules.named(led, &mut wanted).map_err(|answer| {
            let mut denied = Denied::of(answer, &led.path);
            denied.why +=
                "; a route with internal = true in place of deny would let applications name it";
            denied
        })?;
        if wanted.is_nothing() {
            return Ok(());
        }
        let Some(all) = &self.wanted else {
            let why = format!(
                "{}: a route asks the client for a password, or an authorizer, which a name within a body cannot",
                led.path.escape_ascii()
            );
            return Err(Denied { status: StatusCode::FORBIDDEN, why });
        };
        all.borrow_mut().push((led.clone(), wanted));
        Ok(())
    }

    /// The same for a file of this absolute path.
    ///
    /// # Errors
    /// A route denies it, or the client.
    pub fn may_send(&self, file: &Path) -> Result<(), Denied> {
        if !self.site.rules.guard() {
            return Ok(());
        }
        let Some(path) = self.site.sendable.site_path(file) else { return Ok(()) };
        let method = match self.request.method {
            Method::HEAD => Method::HEAD,
            _ => Method::GET,
        };
        self.may_lead(&Request {
            method,
            path,
            query: None,
            body: Body::default(),
            has_body: false,
            is_led: true,
            ..self.request.clone()
        })
    }

    /// Opens the file that a URI stands for. Routes have been asked before.
    pub fn by_uri(&self, uri: &[u8]) -> Result<Entry, Denied> {
        self.site.sendable.by_uri(uri)
    }

    /// Whether routes may refuse anything.
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

impl Denied {
    /// Why a route refuses what was named.
    pub fn of(answer: Answer, name: &[u8]) -> Self {
        let (status, why) = match answer {
            Answer::Route(Route::Refused { status, why }) => (status, why),
            _ => (StatusCode::FORBIDDEN, None),
        };
        let why = why.as_deref().unwrap_or("the route refuses it");
        Self { status, why: format!("{}: {why}", name.escape_ascii()) }
    }
}
