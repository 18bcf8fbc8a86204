//! The context of a request for its handler.

use std::rc::Rc;

use sendoff_application_request::ApplicationRequest;
use sendoff_compress::Policy;
use sendoff_message::request::Request;
use sendoff_report::traces;
use sendoff_site::Site;
use sendoff_site::effects::Effects;
use sendoff_upstream::hosts::Hosts;

use crate::esi::Budget;
use crate::services::Services;

/// A handler's view of a request. The response goes to a [`Sink`](sendoff_exchange::sink::Sink).
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) services: &'a Services,
    pub(crate) site: &'a Rc<Site>,
    pub(crate) request: &'a Request,
    /// The effects of the site's routes on the response and on parameters for scripts.
    pub(crate) effects: &'a Effects,
    /// The policy for compression; `None`: nothing is compressed.
    pub(crate) compression: Option<&'a Policy<'a>>,
    /// The user whose password the client has shown; empty: no password was required.
    pub(crate) user: &'a [u8],
    /// The place of the request among subrequests.
    pub(crate) nesting: Nesting<'a>,
}

/// The subrequests around a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Nesting<'a> {
    /// Their number. Scripts make subrequests, and pages that include fragments.
    pub(crate) depth: u8,
    /// The limits of the page that includes the response; `None`: no page does.
    pub(crate) budget: Option<&'a Budget>,
}

impl Nesting<'_> {
    /// The place of a request with this number of subrequests around it, for no page.
    pub(crate) fn at(depth: u8) -> Self {
        Self { depth, budget: None }
    }
}

impl<'a> Context<'a> {
    /// The request in the form from which messages for applications are made.
    pub(crate) fn for_application(&self) -> ApplicationRequest<'a> {
        let Self { services, site, request, effects, user, .. } = *self;
        ApplicationRequest { request, site, effects, user, config: &services.config }
    }

    /// Makes a message of the request as the application on these hosts knows it.
    pub(crate) fn for_hosts<T, M>(
        &self,
        hosts: &Hosts<T>,
        make: impl FnOnce(&ApplicationRequest<'_>) -> M,
    ) -> M {
        let called = traces::for_call(self.request);
        let own = hosts.own(called.as_ref().unwrap_or(self.request)).or(called);
        self.make(own, make)
    }

    /// Makes a message of the request for a worker.
    pub(crate) fn for_worker<M>(&self, make: impl FnOnce(&ApplicationRequest<'_>) -> M) -> M {
        self.make(traces::for_call(self.request), make)
    }

    /// Makes a message of the request; `own`: in the form for one application.
    fn make<M>(&self, own: Option<Request>, make: impl FnOnce(&ApplicationRequest<'_>) -> M) -> M {
        match own {
            Some(own) => make(&ApplicationRequest { request: &own, ..self.for_application() }),
            None => make(&self.for_application()),
        }
    }
}
