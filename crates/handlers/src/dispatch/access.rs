//! Access checks before an answer: passwords that routes and `.htaccess` files require, and the
//! verdicts of authorizers.

use std::cell::RefCell;
use std::path::Path;

use http::{StatusCode, header};
use sendoff_auth::{Access, challenge};
use sendoff_lua_host::ScriptAnswer;
use sendoff_message::request::Request;
use sendoff_report::limits::Limit;
use sendoff_site::DecisionContext;
use sendoff_site::User;
use sendoff_site::effects::{Answer, FailedRequest};
use sendoff_site_files::router::PathTarget;

use super::plan::SitePlan;
use crate::application::authorizer::{self, Verdict};
use crate::context::{Context, Nesting};
use crate::services::Services;

impl SitePlan {
    pub(super) fn asks_for_password(&self) -> bool {
        !self.effects.auth.is_empty() || matches!(self.answer, Answer::Authenticate { .. })
    }

    /// Checks the name and the password that a route or `.htaccess` files require. `failure`: the
    /// error whose page is requested.
    pub(super) async fn authenticate(
        &mut self,
        services: &Services,
        request: &mut Request,
        failure: Option<FailedRequest<'_>>,
    ) {
        if !self.check_route(services, request).await {
            return;
        }
        let Answer::Authenticate { realm, users } = &self.answer else { return };
        let (realm, users) = (realm.clone(), users.clone());
        if self.check(services, request, &realm, &users).await {
            let user = User { file: users, name: self.user.clone() };
            let decision_context =
                DecisionContext { pools: &services.config.pools, asks: None, is_explained: false };
            let effects = &mut self.effects;
            self.answer =
                self.site.answer_to(decision_context, request, effects, user, failure).await;
            // The files may have led to a path for which a route asks for another password.
            self.check_route(services, request).await;
        }
    }

    /// True if authorizers must be asked. An answer that turns the client away reveals nothing that
    /// needs access, but the target of a redirect may. A script that asks for the request's body
    /// has not answered yet.
    pub(super) fn asks_authorizers(&self) -> bool {
        let Self { answer, effects, .. } = self;
        let is_open = matches!(answer, Answer::Redirect { .. }) || !answer.turns_away();
        let is_late = matches!(answer, Answer::Lua(ScriptAnswer::AfterBody));
        !effects.authorizers.is_empty() && is_open && !is_late
    }

    /// Asks the authorizers in order, until one of them does not allow the request: the client then
    /// gets that authorizer's response. An authorizer that fails allows nothing.
    pub(super) async fn authorize(&mut self, services: &Services, request: &mut Request) {
        for authorizer in std::mem::take(&mut self.effects.authorizers) {
            let Self { site, effects, user, .. } = &*self;
            let request = &mut *request;
            let context = Context {
                services,
                site,
                request: &*request,
                effects,
                compression: None,
                user,
                nesting: Nesting::default(),
            };
            let (who, verdict) = authorizer::ask(&context, &authorizer).await;
            let authorized = &mut self.effects.authorized;
            let (status, came) = match verdict {
                Verdict::Granted(grant) => {
                    authorized.notes.push(format!("allowed by the authorizer {who}"));
                    authorized.has_variables |= !grant.fields.is_empty();
                    for (name, _) in &grant.fields {
                        request.rule(name);
                        request.headers.remove(name);
                    }
                    request.headers.extend(grant.fields);
                    self.effects.grant(grant.variables);
                    continue;
                }
                Verdict::Denied(denial) => {
                    let status = denial.status();
                    self.denial = RefCell::new(Some(denial));
                    (status, "not allowed by")
                }
                Verdict::Failed(status) => {
                    authorized.has_failed = true;
                    (status, "no answer of")
                }
            };
            authorized.notes.push(format!("{came} the authorizer {who}"));
            self.answer = Answer::Path(PathTarget::Refused { status, why: None });
            return;
        }
    }

    /// Checks the passwords that routes require, once. Returns false and sets the answer if a
    /// password is missing or wrong.
    async fn check_route(&mut self, services: &Services, request: &Request) -> bool {
        for auth in std::mem::take(&mut self.effects.auth) {
            if !self.check(services, request, &auth.realm, &auth.users).await {
                // The name may be known only in the password file of another route.
                self.user.clear();
                return false;
            }
        }
        true
    }

    /// Checks the client's name and password against a file. Returns false and sets the answer if
    /// they are wrong or cannot be checked.
    async fn check(
        &mut self,
        services: &Services,
        request: &Request,
        realm: &str,
        users: &Path,
    ) -> bool {
        let field = request.headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        match services.auth.check(&self.site.queues, users, field, &request.peer).await {
            Ok(Access::User(name)) => {
                self.user = name;
                return true;
            }
            Ok(Access::Denied) => {
                let why = if field.is_some() { "a wrong name or password" } else { "no password" };
                let (request, client) = (request.shown(), &request.peer);
                tracing::warn!(request, %client, "answered with 401: {why}");
                self.answer = Answer::Unauthorized { challenge: challenge(realm) };
            }
            Ok(Access::TooMany) => {
                Limit::Passwords.reached();
                let why = format!("too many passwords from {} wait to be checked", request.peer);
                self.answer = Answer::refused(StatusCode::TOO_MANY_REQUESTS, why);
            }
            Err(error) => {
                let why = format!("the password file {}: {error}", users.display());
                self.answer = Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why);
            }
        }
        false
    }
}
