//! The routes for files and URIs that applications name, and the internal routes that pass URIs on.

use http::StatusCode;
use sendoff_message::request::Request;
use sendoff_site_files::router::{PathTarget, Router};

use super::CompiledRoutes;
use super::changes::TextChange;
use super::handler::CompiledHandler;
use super::route::CompiledRoute;
use crate::decided_for::DecidedFor;
use crate::effects::{AccessRequirements, Answer, Effects};
use crate::maps::Maps;
use crate::matching::Matched;
use crate::text::Text;

/// The target of an application's redirect: an internal route that passes the request on.
#[derive(Debug)]
pub struct InternalTarget {
    /// The number of the application in the site.
    pub application: usize,
    /// Bytes of the path that the route's `prefix` has matched.
    pub prefix: usize,
}

impl CompiledRoutes {
    /// True if a route may refuse a file or URI that an application names, or may set conditions
    /// for the client.
    pub(crate) fn guard(&self) -> bool {
        self.routes.iter().any(|route| {
            matches!(route.handler, Some(CompiledHandler::Deny { .. })) || route.asks_client()
        })
    }

    /// The clients for whom decisions about all named resources hold.
    pub(crate) fn names_decided_for(&self) -> DecidedFor {
        let each = self.routes.iter().map(|route| route.names_decided_for);
        each.fold(DecidedFor::AllClients, DecidedFor::and)
    }

    /// Checks the routes for a request that an application has redirected here, or for a file that
    /// it has named. As for a client, the routes are checked up to the route that would answer.
    /// Scripts are not run, and the path is not rewritten.
    ///
    /// # Errors
    /// A route denies access; this is its answer.
    pub(crate) fn named(
        &self,
        request: &Request,
        requirements: &mut AccessRequirements,
    ) -> Result<(), Answer> {
        let mut auth = None;
        for route in &self.routes {
            requirements.decided_for = requirements.decided_for.and(route.decides_for(request));
            if route.matched(request, &self.maps)?.is_none() {
                continue;
            }
            if let Some(refused) = route.refusal(request) {
                return Err(refused);
            }
            auth = route.auth.as_ref().or(auth);
            requirements.ask(route.authorize.as_ref());
            if let Some(CompiledHandler::Deny { status }) = route.handler {
                return Err(Answer::refused(status, format!("{} denies it", route.origin)));
            }
            // A client's request would not reach the routes after this one either.
            if route.handler.is_some() || route.is_internal {
                break;
            }
        }
        requirements.authenticate_also(auth);
        Ok(())
    }

    /// True if an internal route passes requests on.
    pub(crate) fn have_internal(&self) -> bool {
        let leads =
            |route: &CompiledRoute| matches!(route.handler, Some(CompiledHandler::Proxy { .. }));
        self.routes.iter().any(|route| route.is_internal && leads(route))
    }

    /// Applies the first internal route that matches a request which an application has redirected
    /// here. `None`: no route matches. `asks` tells if a route's application, and its kind of path,
    /// are acceptable.
    ///
    /// # Errors
    /// The route refuses the client, or its rewriting fails; this is its answer.
    pub(crate) fn redirect_internally(
        &self,
        router: &Router,
        request: &mut Request,
        effects: &mut Effects,
        asks: impl Fn(usize, Rewrites) -> bool,
    ) -> Result<Option<InternalTarget>, Answer> {
        let mut requirements = AccessRequirements::default();
        let found = self.internal_route(request, &mut requirements, &asks);
        effects.decided_for = effects.decided_for.and(requirements.decided_for);
        let Some((route, application, matched)) = found? else { return Ok(None) };
        effects.is_ambiguous |= matched.is_ambiguous;
        route.collect(request, &matched, effects);
        (effects.auth, effects.authorizers) = (requirements.auth, requirements.authorizers);
        for change in &route.request_headers {
            change.apply_to_request(request, &matched.captured);
        }
        match route.rewrite(router, request, &matched.captured) {
            Ok(None) => Ok(Some(InternalTarget { application, prefix: matched.prefix })),
            Ok(Some(status)) => Err(Answer::Path(PathTarget::Refused { status, why: None })),
            Err(why) => {
                let why = format!("{}: {why}", route.origin);
                Err(Answer::refused(StatusCode::BAD_GATEWAY, why))
            }
        }
    }

    /// The first internal route that passes a request on, and the number of its application. Adds
    /// the conditions of the route, and of the routes for other paths that the application may read.
    ///
    /// # Errors
    /// The route refuses the client, or the route for another path that the application may read
    /// does; this is its answer.
    fn internal_route(
        &self,
        request: &Request,
        requirements: &mut AccessRequirements,
        asks: impl Fn(usize, Rewrites) -> bool,
    ) -> Result<Option<(&CompiledRoute, usize, Matched)>, Answer> {
        let found = self.internal_route_of_path(request, requirements, &asks)?;
        if found.is_some() {
            for read in read_by_application(request)? {
                self.internal_route_of_path(&read, requirements, &asks)?;
            }
        }
        Ok(found)
    }

    /// As [`internal_route`](Self::internal_route), for the path of the request alone.
    fn internal_route_of_path(
        &self,
        request: &Request,
        requirements: &mut AccessRequirements,
        asks: impl Fn(usize, Rewrites) -> bool,
    ) -> Result<Option<(&CompiledRoute, usize, Matched)>, Answer> {
        for route in self.routes.iter().filter(|route| route.is_internal) {
            let Some(CompiledHandler::Proxy { application }) = route.handler else { continue };
            let rewrites = if route.rewrites() { Rewrites::RewriteUri } else { Rewrites::KeepUri };
            if !asks(application, rewrites) {
                continue;
            }
            requirements.decided_for = requirements.decided_for.and(route.decides_for(request));
            let Some(matched) = route.matched(request, &self.maps)? else { continue };
            if let Some(refused) = route.refusal(request) {
                return Err(refused);
            }
            requirements.authenticate_also(route.auth.as_ref());
            requirements.ask(route.authorize.as_ref());
            return Ok(Some((route, application, matched)));
        }
        Ok(None)
    }
}

impl CompiledRoute {
    /// The clients for whom its decisions about named resources hold. Only routes that end the
    /// search or refuse a client decide about a name; the texts of an internal route change the
    /// response.
    pub(super) fn decides_names_for(&self, maps: &Maps) -> DecidedFor {
        let decides = self.handler.is_some() || self.is_internal;
        let changes = self.is_internal.then(|| {
            let fields = self.request_headers.iter().map(TextChange::text).flat_map(Text::maps);
            self.texts().any(|text| text.shows_client(maps))
                || fields.into_iter().any(|map| maps.tell_clients_apart(map))
        });
        DecidedFor::of(
            self.asks_client()
                || decides && self.conditions.tell_clients_apart(maps)
                || changes == Some(true),
        )
    }

    /// The clients for whom its decision about this request for a named resource holds. A route
    /// for other paths decides nothing.
    fn decides_for(&self, request: &Request) -> DecidedFor {
        match self.names_decided_for {
            DecidedFor::ThisClient if self.conditions.may_hold_at(&request.path) => {
                DecidedFor::ThisClient
            }
            _ => DecidedFor::AllClients,
        }
    }
}

/// The request for a named URI with each other path that the application behind an internal route
/// may read in it.
///
/// # Errors
/// Such a path climbs above the root; this is the answer.
pub(crate) fn read_by_application(named: &Request) -> Result<Vec<Request>, Answer> {
    let read = named.other_readings(false).map_err(|bad| {
        let why = format!("as some applications read it (; and \\), {}", bad.0);
        Answer::refused(StatusCode::FORBIDDEN, why)
    })?;
    Ok(read.into_iter().map(|path| Request { path, ..named.clone() }).collect())
}

/// The path that an application gets from a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrites {
    /// A path that the route has rewritten.
    RewriteUri,
    /// The path that was requested.
    KeepUri,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sendoff_config::{BasicAuth, Conditions, Handler, Rules};
    use sendoff_message::request::sample;

    use super::*;

    fn auth(users: &str) -> Rules {
        let auth = BasicAuth { realm: users.to_owned(), users: users.into() };
        Rules { auth: Some(auth), ..Rules::default() }
    }

    fn compiled(routes: Vec<(&str, Rules, Option<Handler>)>) -> CompiledRoutes {
        let routes = routes.into_iter().map(|(prefix, rules, handler)| sendoff_config::Route {
            origin: prefix.to_owned(),
            conditions: Conditions { prefixes: vec![prefix.to_owned()], ..Conditions::default() },
            rules,
            handler,
        });
        CompiledRoutes::compile(&routes.collect::<Vec<_>>(), Maps::default()).unwrap()
    }

    fn named(uri: &str) -> Request {
        let mut request = Request { uri: uri.to_owned().into(), ..sample::request(None) };
        request.is_internal_redirect = true;
        request.restart().unwrap();
        request
    }

    #[test]
    fn an_application_may_read_another_path() {
        let read = |uri: &str| {
            let read = read_by_application(&named(uri)).ok()?;
            Some(read.into_iter().map(|read| String::from_utf8(read.path).unwrap()).collect())
        };
        let paths = |paths: &[&str]| Some(paths.iter().map(|&path| path.to_owned()).collect());
        let none: Option<Vec<String>> = paths(&[]);
        assert_eq!(read("/a/b?c;d"), none);
        assert_eq!(read("/a;x/b"), paths(&["/a/b"]));
        assert_eq!(read("/a%3bx/b"), paths(&["/a/b"]));
        assert_eq!(read("/;/a/b;"), paths(&["/a/b"]));
        assert_eq!(read("/a%3bx;y/b"), paths(&["/a/b", "/a;x/b"]));
        assert_eq!(read("/a\\b"), paths(&["/a/b"]));
        assert_eq!(read("/a%5Cb;c"), paths(&["/a\\b", "/a/b", "/a/b;c"]));
        assert_eq!(read("/..;/a"), None);
        assert_eq!(read("/a\\..\\..\\b"), None);
    }

    #[test]
    fn every_password_on_the_way_is_required_once() {
        let routes = compiled(vec![
            ("", auth("all"), None),
            ("/a", auth("some"), None),
            ("/a/b", auth("few"), None),
        ]);
        let mut requirements = AccessRequirements::default();
        let mut after = |uri| {
            routes.named(&named(uri), &mut requirements).unwrap();
            requirements.auth.iter().map(|auth| auth.users.clone()).collect::<Vec<_>>()
        };
        assert_eq!(after("/a/x"), [Path::new("some")]);
        assert_eq!(after("/a/y"), [Path::new("some")]);
        assert_eq!(after("/a/b"), [Path::new("some"), Path::new("few")]);
        assert_eq!(after("/"), [Path::new("some"), Path::new("few"), Path::new("all")]);
    }

    #[test]
    fn an_internal_route_refuses_clients_for_every_reading_of_a_path() {
        let proxy = || Some(Handler::Proxy { proxy: 0 });
        let internal = |clients| Rules { internal: true, clients, ..Rules::default() };
        let closed = sendoff_config::Clients { allow: vec![], deny: vec![], otherwise: false };
        let routes = compiled(vec![
            ("/store/near", internal(Some(closed)), proxy()),
            ("/store", internal(None), proxy()),
        ]);
        for (uri, is_open) in [
            ("/store/a;x", true),
            ("/store/near", false),
            ("/store/near;x", false),
            ("/store/near%3bx/a", false),
            ("/store/;/near", false),
        ] {
            let request = named(uri);
            let requirements = &mut AccessRequirements::default();
            let found = routes.internal_route(&request, requirements, |_, _| true);
            assert_eq!(found.is_ok_and(|found| found.is_some()), is_open, "{uri}");
        }
    }
}
