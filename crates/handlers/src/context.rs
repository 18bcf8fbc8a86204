//! What a handler knows about a request.

use std::rc::Rc;

use sendoff_compress::Policy;
use sendoff_message::request::Request;
use sendoff_site::Site;
use sendoff_site::effects::Effects;

use crate::services::Services;

/// What a handler knows about a request. Its response goes to a [`Sink`](sendoff_exchange::sink::Sink).
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) services: &'a Services,
    pub(crate) site: &'a Rc<Site>,
    pub(crate) request: &'a Request,
    /// What the site's routes say about the response and about parameters for scripts.
    pub(crate) effects: &'a Effects,
    /// Which responses are compressed; `None`: none.
    pub(crate) compression: Option<&'a Policy<'a>>,
    /// The user whose password the client has shown; empty: none was asked for.
    pub(crate) user: &'a [u8],
}
