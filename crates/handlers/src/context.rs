//! What a handler knows about a request.

use std::rc::Rc;

use sendoff_compress::Policy;
use sendoff_message::request::Request;
use sendoff_site::Site;
use sendoff_site::effects::Effects;

use super::services::Services;

/// What a handler knows about a request. What it answers to is a [`Responder`](sendoff_exchange::sink::Responder).
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) services: &'a Services,
    pub(super) site: &'a Rc<Site>,
    pub(super) request: &'a Request,
    /// What the site's routes say about the response and about parameters for scripts.
    pub(super) effects: &'a Effects,
    /// Which responses are compressed; `None`: none.
    pub(super) compression: Option<&'a Policy<'a>>,
    /// The user whose password the client has shown; empty: none was asked for.
    pub(super) user: &'a [u8],
}
