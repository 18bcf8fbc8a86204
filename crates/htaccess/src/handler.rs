//! The handler of a file: PHP, or the file's bytes.

use crate::media::Media;
use crate::merged::Merged;
use crate::outcome::Handler;
use crate::reason::Reason;
use crate::request::Kind;
use crate::state::{Context, Pass, Refusal};
use crate::text::{self, lossy};

/// The handler of the file that a pass found.
///
/// # Errors
/// The rules name a handler that is not supported.
pub(crate) fn handler(
    context: &Context<'_>,
    pass: &Pass,
    merged: &Merged<'_>,
    media: &Media,
) -> Result<Handler, Refusal> {
    let name = pass.file.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let is_script = (context.site.is_script)(name);
    let plain = if is_script { Handler::Source } else { Handler::Static };
    if pass.found.is_none_or(|found| found.kind != Kind::File) {
        return Ok(Handler::Static);
    }
    let set = merged.handler.map(Option::as_ref);
    let named = match (&pass.forced_handler, set) {
        (Some(forced), _) => Some(forced),
        (None, Some(set)) => set,
        (None, None) => media.handler.as_ref(),
    };
    let turned_off = set.is_some() || media.handler_removed;
    let by_type = media.content_type.as_ref().filter(|_| media.type_by_rule && set.is_none());
    let handler = match named.or(by_type.filter(|value| is_php(value))) {
        Some(handler) if is_php(handler) => Handler::Php,
        Some(handler) if is_unsupported(handler) => {
            let text = format!("the handler {} is not supported", lossy(handler));
            let why = Reason { file: lossy(&pass.file), line: 0, text };
            return Err(Refusal { status: 403, why: Some(why) });
        }
        Some(_) => plain,
        None if is_script && !turned_off => Handler::Php,
        None => plain,
    };
    Ok(if handler == Handler::Php && merged.is_off("engine") { Handler::Source } else { handler })
}

/// True if a name has a handler, whether or not the file exists.
pub(crate) fn has_handler(
    context: &Context<'_>,
    pass: &Pass,
    merged: &Merged<'_>,
    media: &Media,
) -> bool {
    let name = pass.file.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match (&pass.forced_handler, merged.handler) {
        (Some(_), _) => true,
        (None, Some(set)) => set.is_some(),
        (None, None) if media.handler_removed => false,
        (None, None) => media.handler.is_some() || (context.site.is_script)(name),
    }
}

/// True for handlers and types that stand for PHP: Apache's module, php-fpm behind its proxy, the
/// names that hosters use.
fn is_php(handler: &[u8]) -> bool {
    let handler = handler.to_ascii_lowercase();
    text::find(&handler, b"php").is_some() && text::find(&handler, b"source").is_none()
}

/// True for handlers that process the file in a way that this server does not support.
fn is_unsupported(handler: &[u8]) -> bool {
    const NAMES: [&[u8]; 13] = [
        b"cgi-script",
        b"fcgid-script",
        b"fastcgi-script",
        b"server-parsed",
        b"imap-file",
        b"type-map",
        b"send-as-is",
        b"server-status",
        b"server-info",
        b"ldap-status",
        b"isapi-handler",
        b"balancer-manager",
        b"lua-script",
    ];
    let lower = handler.to_ascii_lowercase();
    NAMES.contains(&lower.as_slice())
        || lower.starts_with(b"proxy:")
        || text::find(&lower, b"source").is_some()
}
