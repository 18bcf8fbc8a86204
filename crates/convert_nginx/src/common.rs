//! The rules that hold for all locations of a server alike. They become routes without conditions.

use super::location::Known;
use super::scope::Scope;
use super::server::made;
use super::{access, rules};
use sendoff_convert_document::Section;

/// The rules that all locations have alike; `None`: each location has its own.
pub(super) struct Common {
    pub(super) fields: Option<Section>,
    pub(super) limits: Option<Section>,
    pub(super) access: Option<Section>,
}

impl Common {
    pub(super) fn of(known: &[Known<'_>], server: &Scope<'_>, http: &Scope<'_>) -> Self {
        let shared = |rules: &dyn Fn(&Scope<'_>, &mut Section)| {
            let of_server = made(|route| rules(server, route));
            let of_location = |one: &Known<'_>| made(|route| rules(&one.location.scope, route));
            known.iter().all(|one| of_location(one) == of_server).then_some(of_server)
        };
        Self {
            fields: shared(&rules::of_response),
            limits: shared(&|scope, route| access::limits(scope, http, route)),
            access: shared(&|scope, route| {
                access::rules(scope, route);
            }),
        }
    }
}
