//! A site: its folder, the handler of each path, and the files that applications may name.

mod opened;
pub(crate) mod router;
pub(crate) mod sendable;

use std::io;

use router::Router;
use sendable::Sendable;
use sendoff_config::Delivery;

/// One site on one event loop.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) router: Router,
    /// The files that applications may name.
    pub(crate) sendable: Sendable,
    pub(crate) delivery: Delivery,
}

impl Site {
    /// Opens the site's folders. At most `open_files` static files are kept open.
    ///
    /// # Errors
    /// One of the folders cannot be opened.
    pub(crate) fn open(config: &sendoff_config::Site, open_files: usize) -> io::Result<Self> {
        let sendoff_config::Site { root, follow, sendfile_from, accel, fastcgi, pool, .. } = config;
        let mut router = Router::new(root, follow, open_files, *pool)?;
        for (number, attachment) in fastcgi.iter().enumerate() {
            router.attach(&attachment.matching, number);
        }
        let sendable = Sendable::open(root, follow, sendfile_from, accel)?;
        Ok(Self { router, sendable, delivery: config.delivery })
    }
}
