//! The handler of a route, and the paths that a route rewrites to or tries.

use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use http::StatusCode;
use sendoff_config::{Handler, PoolConfig};
use sendoff_message::request::{Request, normalise};
use sendoff_site_files::router::{PathTarget, Router, Upstream};

use super::route::{bytes, set};
use crate::effects::Answer;
use crate::maps::Maps;
use crate::matching::Matched;
use crate::pool_page::PoolPage;
use crate::text::{Captured, Text, Use};

#[derive(Debug)]
pub(super) enum CompiledHandler {
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

impl CompiledHandler {
    pub(super) fn parse(handler: &Handler, maps: &Maps) -> Result<Self, String> {
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

    pub(super) fn answer(
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

/// A new path and, optionally, a new query.
#[derive(Debug)]
pub(super) struct Rewrite {
    pub(super) path: Text,
    pub(super) query: Option<Text>,
}

impl Rewrite {
    pub(super) fn parse(text: &str, maps: &Maps) -> Self {
        match text.split_once('?') {
            Some((path, query)) => {
                Self { path: Text::parse(path, maps), query: Some(Text::parse(query, maps)) }
            }
            None => Self { path: Text::parse(text, maps), query: None },
        }
    }

    /// The new path, normalised, and the new query.
    pub(super) fn render(
        &self,
        request: &Request,
        captured: &Captured,
    ) -> Result<(Vec<u8>, Option<Bytes>), &'static str> {
        let path =
            normalise(&self.path.render(request, captured, Use::Plain)).map_err(|bad| bad.0)?;
        let query = self.query.as_ref();
        Ok((path, query.map(|query| query.render(request, captured, Use::Query).into())))
    }

    pub(super) fn apply(
        &self,
        request: &mut Request,
        captured: &Captured,
    ) -> Result<(), &'static str> {
        let (path, query) = self.render(request, captured)?;
        set(request, path, query);
        Ok(())
    }
}

#[derive(Debug)]
pub(super) enum Candidate {
    Path(Rewrite),
    Status(StatusCode),
}

impl Candidate {
    pub(super) fn parse(text: &str, maps: &Maps) -> Result<Self, String> {
        match text.strip_prefix('=') {
            Some(code) => status(code.parse().unwrap_or(0)).map(Self::Status),
            None => Ok(Self::Path(Rewrite::parse(text, maps))),
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
