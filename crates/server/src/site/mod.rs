//! Sites: which one answers, what its routes change, who answers a path, and which files applications may name.

mod matching;
mod mounts;
mod opened;
pub(crate) mod protect;
pub(crate) mod router;
pub(crate) mod rules;
pub(crate) mod sendable;
pub(crate) mod sites;
mod text;

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use http::StatusCode;
use sendoff_config::{Config, Delivery, ErrorPage};

use crate::request::Request;
use crate::static_files::CacheShare;
use router::{Route, Router};
use rules::{Answer, Effects, Rules};
use sendable::Sendable;

/// One site on one event loop.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) number: usize,
    pub(crate) router: Router,
    rules: Rules,
    /// The files that applications may name.
    pub(crate) sendable: Sendable,
    pub(crate) delivery: Delivery,
    pub(crate) server_software: Option<Bytes>,
    error_pages: Vec<ErrorPage>,
    maintenance: Option<PathBuf>,
}

impl Site {
    /// Opens the folders of the site with this number, and compiles its routes.
    ///
    /// # Errors
    /// One of the folders cannot be opened, or a route is not valid.
    pub(crate) fn open(config: &Config, number: usize, share: &Rc<CacheShare>) -> io::Result<Self> {
        let site = &config.sites[number];
        let own = || {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            (user.as_raw(), group.as_raw())
        };
        let account = config.account.map_or_else(own, |account| (account.uid, account.gid));
        Ok(Self {
            number,
            router: Router::new(site, account, share)?,
            rules: Rules::compile(&site.routes).map_err(io::Error::other)?,
            sendable: Sendable::open(site)?,
            delivery: site.delivery,
            server_software: site.server_software.clone().map(Bytes::from),
            error_pages: site.error_pages.clone(),
            maintenance: site.maintenance.clone(),
        })
    }

    /// Applies the site's routes to a request and says who answers it.
    pub(crate) fn decide(&self, request: &mut Request) -> (Answer, Effects) {
        if let Some(file) = self.maintenance.as_deref().filter(|file| exists(file)) {
            let why = format!("{} is there (maintenance)", file.display());
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let refused = Route::Refused { status, why: Some(why.into()) };
            return (Answer::Route(refused), Effects::default());
        }
        self.rules.apply(&self.router, request)
    }

    /// The path of the site's own page for an error.
    pub(crate) fn error_page(&self, status: StatusCode) -> Option<&str> {
        let mut pages = self.error_pages.iter();
        pages.find(|page| page.status == status.as_u16()).map(|page| &*page.path)
    }
}

fn exists(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXISTS).is_ok()
}
