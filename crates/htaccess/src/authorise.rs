//! Whether a client may ask: addresses, requirements, users.

use crate::access::{self, Verdict};
use crate::file::File;
use crate::merged::Merged;
use crate::outcome::Answer;
use crate::reason::Reason;
use crate::state::{Context, Pass, Refusal};

/// Whether the client may ask. An answer means that it may not, or that a password is wanted.
///
/// # Errors
/// It may not.
pub(crate) fn authorise(
    context: &Context<'_>,
    pass: &mut Pass,
    merged: &Merged<'_>,
) -> Result<Option<Answer>, Refusal> {
    let address = merged.hosts.is_none_or(|(_, hosts)| hosts.allow(context, pass));
    let any = merged.hosts.is_some_and(|(_, h)| h.any_suffices(context.request.method));
    if any && address {
        return Ok(None);
    }
    if let Some((file, _)) = merged.hosts.filter(|_| !address && !any) {
        let text = format!("{} may not ask", access::client(context));
        let why = Reason { file: file.name().to_string(), line: 0, text };
        return Err(Refusal { status: 403, why: Some(why) });
    }
    let verdict = merged.verdict(context, pass);
    match verdict.map_err(|_| Refusal::status(500))? {
        // Neutral: all requirements are for other methods.
        (Verdict::Granted | Verdict::Neutral, _) => Ok(None),
        (Verdict::UserWanted, file) => authenticate(context, pass, merged, file),
        (Verdict::Denied, file) => Err(denied(context, file)),
    }
}

/// Whether the user may ask.
fn authenticate(
    context: &Context<'_>,
    pass: &mut Pass,
    merged: &Merged<'_>,
    file: Option<&File>,
) -> Result<Option<Answer>, Refusal> {
    let known = &merged.authentication;
    let (Some(true), Some(realm), Some(users)) = (known.basic, &known.realm, &known.users) else {
        let text = "a user is required; AuthType, AuthName and AuthUserFile must all be given";
        let file = file.map_or_else(String::new, |file| file.name().to_string());
        let why = Reason { file, line: 0, text: text.to_owned() };
        return Err(Refusal { status: 500, why: Some(why) });
    };
    context.looked_at.borrow_mut().more = true;
    let identity = context.request.user.filter(|identity| identity.users == users.as_slice());
    let ask = Answer::Authenticate { realm: realm.clone(), users: users.clone() };
    let Some(identity) = identity else { return Ok(Some(ask)) };
    pass.user = Some(identity.name.to_vec());
    let verdict = merged.verdict(context, pass);
    match verdict.map_err(|_| Refusal::status(500))? {
        (Verdict::Granted | Verdict::Neutral, _) => Ok(None),
        // Another user may be let in.
        _ => Ok(Some(ask)),
    }
}

fn denied(context: &Context<'_>, file: Option<&File>) -> Refusal {
    let text = format!("Require does not let {} in", access::client(context));
    let file = file.map_or_else(String::new, |file| file.name().to_string());
    Refusal { status: 403, why: Some(Reason { file, line: 0, text }) }
}
