//! Access of clients: addresses, requirements, users.

use crate::access::{self, AccessResult};
use crate::merged::{Merged, Origin};
use crate::outcome::Answer;
use crate::reason::Reason;
use crate::state::{Context, Pass, Refusal};

/// Checks the access of a client. An answer asks for a password; `None` lets the client in.
///
/// # Errors
/// The rules deny access.
pub(crate) fn authorise(
    context: &Context<'_>,
    pass: &mut Pass,
    merged: &Merged<'_>,
) -> Result<Option<Answer>, Refusal> {
    let method = context.request.method;
    let refuses = merged.hosts.iter().find(|(_, hosts)| !hosts.allow(context, pass));
    let any = merged.hosts.iter().all(|(_, hosts)| hosts.any_suffices(method));
    if any && refuses.is_none() && !merged.hosts.is_empty() {
        return Ok(None);
    }
    if let Some((file, hosts)) = refuses.filter(|_| !any) {
        let text = format!("{} may not ask", access::client(context));
        let why = Reason { file: file.name().to_string(), line: hosts.line, text };
        return Err(Refusal { status: 403, why: Some(why) });
    }
    let verdict = merged.verdict(context, pass);
    match verdict.map_err(|_| Refusal::status(500))? {
        (AccessResult::Granted, _) => Ok(None),
        (AccessResult::UserWanted, rule) => authenticate(context, pass, merged, rule),
        // Not to refuse is not enough.
        (AccessResult::Denied | AccessResult::Neutral, rule) => Err(denied(context, rule)),
    }
}

/// Checks the access of a user, or asks for one.
fn authenticate(
    context: &Context<'_>,
    pass: &mut Pass,
    merged: &Merged<'_>,
    rule: Option<Origin<'_>>,
) -> Result<Option<Answer>, Refusal> {
    let known = &merged.authentication;
    let (Some(true), Some(realm), Some(users)) = (known.basic, &known.realm, &known.users) else {
        let text = "a user is required; AuthType, AuthName and AuthUserFile must all be given";
        return Err(Refusal { status: 500, why: Some(reason(rule, text.to_owned())) });
    };
    context.looked_at.borrow_mut().more = true;
    let identity = context.request.user.filter(|identity| identity.users == users.as_slice());
    let ask = Answer::Authenticate { realm: realm.clone(), users: users.clone() };
    let Some(identity) = identity else { return Ok(Some(ask)) };
    pass.user = Some(identity.name.to_vec());
    let verdict = merged.verdict(context, pass);
    match verdict.map_err(|_| Refusal::status(500))? {
        (AccessResult::Granted, _) => Ok(None),
        // The client may authenticate as another user.
        _ => Ok(Some(ask)),
    }
}

fn denied(context: &Context<'_>, rule: Option<Origin<'_>>) -> Refusal {
    let text = format!("Require does not let {} in", access::client(context));
    Refusal { status: 403, why: Some(reason(rule, text)) }
}

fn reason(rule: Option<Origin<'_>>, text: String) -> Reason {
    let (file, line) =
        rule.map_or((String::new(), 0), |(file, line)| (file.name().to_string(), line));
    Reason { file, line, text }
}
