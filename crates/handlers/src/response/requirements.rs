//! Passwords and authorizers that routes require of a client for resources that an application has
//! named.

use http::StatusCode;
use http::header::AUTHORIZATION;
use sendoff_auth::{Access, challenge};
use sendoff_message::request::Request;
use sendoff_site::effects::{AccessRequirements, Effects};
use sendoff_site_files::sendable::Denied;

use crate::application::authorizer::{self, Verdict};
use crate::context::Context;
use crate::outcome::Outcome;

/// A requirement of a route that the client has not met.
pub(crate) enum NotMet {
    /// A password: the client may show one.
    Password(Outcome),
    Access(Denied),
}

impl NotMet {
    fn access(status: StatusCode, named: &Request, why: &str) -> Self {
        Self::Access(Denied { status, why: format!("{}: {why}", named.path.escape_ascii()) })
    }
}

/// Checks that the client meets the requirements of routes for the named resources.
///
/// # Errors
/// The client does not meet one of them.
pub(crate) async fn check(
    context: &Context<'_>,
    requirements: &[(Request, AccessRequirements)],
) -> Result<(), NotMet> {
    let Context { services, site, request, .. } = *context;
    for (named, AccessRequirements { auth, authorizers, .. }) in requirements {
        for auth in auth {
            let field = request.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
            let access = services.auth.check(&site.queues, &auth.users, field, &request.peer);
            match access.await {
                Ok(Access::User(_)) => {}
                Ok(Access::Denied) => {
                    let shown = request.shown();
                    let path = named.path.escape_ascii();
                    tracing::warn!(
                        request = shown,
                        "answered with 401: {path} was named, and a route asks for a password"
                    );
                    let challenge = [("WWW-Authenticate", challenge(&auth.realm))];
                    let refused = Outcome::refused(StatusCode::UNAUTHORIZED, challenge);
                    return Err(NotMet::Password(refused));
                }
                Ok(Access::TooMany) => {
                    let why = "too many passwords from the client wait to be checked";
                    return Err(NotMet::access(StatusCode::TOO_MANY_REQUESTS, named, why));
                }
                Err(error) => {
                    let why = format!("the password file {}: {error}", auth.users.display());
                    let status = StatusCode::INTERNAL_SERVER_ERROR;
                    return Err(NotMet::access(status, named, &why));
                }
            }
        }
        let effects = Effects::default();
        let context = Context { request: named, effects: &effects, ..*context };
        for authorizer in authorizers {
            let (who, verdict) = authorizer::ask(&context, authorizer).await;
            let status = match verdict {
                Verdict::Granted(_) => continue,
                Verdict::Denied(denial) => denial.status(),
                Verdict::Failed(status) => status,
            };
            let why = format!("the authorizer {who} does not allow it");
            return Err(NotMet::access(status, named, &why));
        }
    }
    Ok(())
}
