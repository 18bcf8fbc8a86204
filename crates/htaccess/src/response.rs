//! Changes of a response's head by the rules.

use std::fmt;
use std::sync::Arc;

use crate::budget::TooCostly;
use crate::expires;
use crate::head::{Head, HeadChange};
use crate::header::{self, Fields, HeaderRule};
use crate::media;
use crate::request::{Look, Request, Site};
use crate::state::{Context, LookUps, LookedUp, Pass};
use crate::text;

/// Changes of a response's head.
pub struct ResponseRules {
    pub(crate) headers: Vec<Arc<HeaderRule>>,
    pub(crate) expires: expires::Config,
    pub(crate) default_charset: Option<Vec<u8>>,
    pub(crate) pass: Pass,
}

/// Fails all look-ups: when responses are made, `-F` and `-U` no longer find any path.
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
    /// True if [`apply`](Self::apply) changes no response.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
            && self.expires.active != Some(true)
            && self.default_charset.is_none()
            && self.pass.cookies.is_empty()
            && self.pass.vary.is_empty()
    }

    /// True if a rule sets, changes or removes the fields of this name under any condition.
    #[must_use]
    pub fn concern(&self, name: &str) -> bool {
        self.headers.iter().any(|rule| rule.name().eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The changes, if they are the same for every response without `Vary`.
    #[must_use]
    pub fn fixed(&self) -> Option<Vec<HeadChange>> {
        let is_fixed = self.expires.active != Some(true)
            && self.default_charset.is_none()
            && self.pass.cookies.is_empty()
            && self.pass.vary.is_empty();
        if !is_fixed {
            return None;
        }
        self.headers.iter().map(|rule| rule.fixed()).collect()
    }

    /// The approximate size of the rules in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let headers = self.headers.iter().map(|rule| 256 + rule.weight());
        let types = self.expires.by_type.iter().map(|(name, _)| 64 + name.len());
        let Pass { path, query, file, variables, .. } = &self.pass;
        let query = query.as_ref().map_or(0, Vec::len);
        let variables = variables.0.iter().map(|(name, value)| 48 + name.len() + value.len());
        path.len() + query + file.len() + headers.chain(types).chain(variables).sum::<usize>()
    }

    /// Changes a response's head. A rule whose expression takes too long is skipped, with all rules
    /// behind it.
    pub fn apply(&self, site: &Site<'_>, request: &Request<'_>, files: &dyn Look, head: &mut Head) {
        let context = Context::new(site, request, files, &NoLookUps);
        let mut always: Fields = Vec::new();
        for cookie in &self.pass.cookies {
            always.push((b"Set-Cookie".to_vec(), cookie.clone()));
        }
        self.before_headers(&context, head);
        // Rules with `always` come first, and rules of each kind stay in order.
        let changed = self.change(&context, true, &mut always, &mut head.fields);
        if changed.is_ok() && !head.by_server {
            let _ = self.change(&context, false, &mut always, &mut head.fields);
        }
        always.append(&mut head.fields);
        unify_vary(&mut always);
        head.fields = always;
    }

    fn before_headers(&self, context: &Context<'_>, head: &mut Head) {
        // Caches do not store error pages, but may store redirects.
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

/// Combines all `Vary` fields into one, which names each request field once.
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

/// Adds the configured charset to a text type without one.
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
