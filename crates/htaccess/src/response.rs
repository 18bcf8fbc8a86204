//! What the rules change in the head of a response.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::expires;
use crate::header::{self, Fields, HeaderRule};
use crate::media;
use crate::pattern::TooCostly;
use crate::request::{Look, Request, Site};
use crate::state::{Context, LookUps, LookedUp, Pass};
use crate::text;

/// The head of a response, as far as rules see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// Whether the server itself makes the response, instead of a file or a script: a redirect or an error page.
    /// `Header` then has no effect unless it says `always`.
    pub by_server: bool,
    /// Names and values, `Content-Type` among them.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The last change of the file that is sent.
    pub modified: Option<SystemTime>,
}

/// Changes of a response's head.
pub struct ResponseRules {
    pub(crate) headers: Vec<Arc<HeaderRule>>,
    pub(crate) expires: expires::Config,
    pub(crate) default_charset: Option<Vec<u8>>,
    pub(crate) pass: Pass,
}

/// Responses are made when all paths are known: `-F` and `-U` find nothing any more.
struct NoLookUps;

impl LookUps for NoLookUps {
    fn look_up(&self, _: &Context<'_>, _: &[u8], _: &Pass) -> LookedUp {
        LookedUp { status: 404, pass: Pass::default() }
    }
}

impl fmt::Debug for ResponseRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseRules").field("headers", &self.headers).finish_non_exhaustive()
    }
}

impl ResponseRules {
    /// Whether [`apply`](Self::apply) changes nothing, whatever the response is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
            && self.expires.active != Some(true)
            && self.default_charset.is_none()
            && self.pass.cookies.is_empty()
            && self.pass.vary.is_empty()
    }

    /// Changes a response's head. A rule whose expression takes too long is left out, with those behind it.
    pub fn apply(&self, site: &Site<'_>, request: &Request<'_>, files: &dyn Look, head: &mut Head) {
        let context = Context::new(site, request, files, &NoLookUps);
        let mut always: Fields = Vec::new();
        for cookie in &self.pass.cookies {
            always.push((b"Set-Cookie".to_vec(), cookie.clone()));
        }
        self.before_headers(&context, head);
        // Rules with `always` come first, each kind in its order.
        let changed = self.change(&context, true, &mut always, &mut head.fields);
        if changed.is_ok() && !head.by_server {
            let _ = self.change(&context, false, &mut always, &mut head.fields);
        }
        always.append(&mut head.fields);
        unify_vary(&mut always);
        head.fields = always;
    }

    fn before_headers(&self, context: &Context<'_>, head: &mut Head) {
        // Error pages are not kept by caches; redirects may be.
        let is_redirect = (300..400).contains(&head.status);
        if head.by_server && !is_redirect {
            return;
        }
        let fields = &mut head.fields;
        let content_type = fields.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(b"Content-Type"));
        let mut known = b"text/html".to_vec();
        if let Some((_, value)) = content_type {
            if let Some(charset) = self.default_charset.as_ref().filter(|_| !head.by_server) {
                add_charset(value, charset);
            }
            known.clone_from(value);
        }
        let vary: &[Vec<u8>] = if head.by_server { &[] } else { &self.pass.vary };
        for field in vary {
            header::append(fields, b"Vary", field);
        }
        self.expires.apply(context.request.now, head.modified, &known, fields);
    }

    fn change(
        &self,
        context: &Context<'_>,
        in_always: bool,
        always: &mut Fields,
        fields: &mut Fields,
    ) -> Result<(), TooCostly> {
        for rule in self.headers.iter().filter(|rule| rule.always == in_always) {
            let seen: Fields = if rule.sees_response() {
                always.iter().chain(fields.iter()).cloned().collect()
            } else {
                Fields::new()
            };
            if !rule.applies(context, &self.pass, &seen)? {
                continue;
            }
            let target =
                if in_always && !rule.is_content_type() { &mut *always } else { &mut *fields };
            rule.change(context, &self.pass, &seen, target)?;
        }
        Ok(())
    }
}

/// Makes one `Vary` of all, which names each request field once.
fn unify_vary(fields: &mut Fields) {
    let is_vary = |name: &[u8]| name.eq_ignore_ascii_case(b"Vary");
    let mut names: Vec<Vec<u8>> = Vec::new();
    for (_, value) in fields.iter().filter(|(name, _)| is_vary(name)) {
        for item in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if !item.is_empty() && !names.iter().any(|known| known.eq_ignore_ascii_case(item)) {
                names.push(item.to_vec());
            }
        }
    }
    if !names.is_empty() {
        header::set(fields, b"Vary", media::joined(&names));
    }
}

/// Adds the configured charset to a text type that names none.
fn add_charset(content_type: &mut Vec<u8>, charset: &[u8]) {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_text =
        essence.eq_ignore_ascii_case(b"text/html") || essence.eq_ignore_ascii_case(b"text/plain");
    let lower = content_type.to_ascii_lowercase();
    if is_text && text::find(&lower, b"charset=").is_none() {
        content_type.extend_from_slice(b"; charset=");
        content_type.extend_from_slice(charset);
    }
}
