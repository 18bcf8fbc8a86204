//! The phases of a request, in Apache's order: the path is looked up in the file system, rules are
//! collected, then variables, access, types, rewriting, redirects and index files. A rewritten path
//! begins again.

use crate::authorise::authorise;
use crate::environment::Fixed;
use crate::expression::Evaluation;
use crate::files::Files;
use crate::handler::{handler, has_handler};
use crate::limits;
use crate::media::{self, Media};
use crate::merged::Merged;
use crate::outcome::{Answer, ErrorDocument, Handler, Outcome, RequestedFile, Says};
use crate::reason::{DependsOn, Reason};
use crate::request::{Kind, Request, Site};
use crate::response::ResponseRules;
use crate::rewrite::{Rewritten, rewrite};
use crate::scope::{Document, PathInfo};
use crate::state::{Context, LookUps, LookedUp, Pass, Refusal, Variables};
use crate::text::{self, BadPath, lossy};
use crate::variables;
use crate::walk::walk;

/// Applies the rules of a site's folders to a request.
#[must_use]
pub fn evaluate(site: &Site<'_>, request: &Request<'_>, files: &dyn Files) -> Outcome {
    let look_ups = Folders(files);
    let context = Context::new(site, request, files, &look_ups);
    let mut outcome = follow(&context, files);
    // A reached limit means that some rule was not tried.
    if let Some(text) = context.budget.exceeded() {
        outcome.answer = Answer::Refuse { status: 500 };
        if outcome.reasons.is_empty() {
            let file = lossy(site.root) + "/.htaccess";
            outcome.reasons.push(Reason { file, line: 0, text: text.to_owned() });
        }
    }
    outcome.depends_on = context.looked_at.into_inner();
    outcome
}

/// Runs passes until there is an answer.
fn follow(context: &Context<'_>, files: &dyn Files) -> Outcome {
    let mut start = PassStart::first(context);
    let mut reasons = Vec::new();
    let mut effects = Effects::none(Pass::default());
    for _ in 0..=limits::REDIRECTS {
        let processed = process(context, files, start);
        reasons.extend(processed.why.clone());
        match processed.next {
            PassResult::Answer(answer) => return outcome(answer, processed.effects, reasons),
            PassResult::Again(path) => match again(&processed.effects.pass, &path) {
                Ok(next) => (start, effects) = (next, processed.effects),
                Err(status) => {
                    return outcome(Answer::Refuse { status }, processed.effects, reasons);
                }
            },
        }
    }
    let text = format!("more than {} internal redirects", limits::REDIRECTS);
    reasons.push(Reason { file: ".htaccess".to_owned(), line: 0, text });
    outcome(Answer::Refuse { status: 500 }, effects, reasons)
}

fn outcome(mut answer: Answer, effects: Effects, mut reasons: Vec<Reason>) -> Outcome {
    if let Answer::Redirect { location, .. } = &answer {
        // Control characters would begin another field.
        if location.iter().any(|byte| is_control(*byte)) {
            let text = "the redirect's target has control characters".to_owned();
            reasons.push(Reason { file: ".htaccess".to_owned(), line: 0, text });
            answer = Answer::Refuse { status: 500 };
        }
    }
    Outcome {
        answer,
        environment: effects.pass.variables.0.clone(),
        response: ResponseRules { pass: effects.pass, ..effects.response },
        request_fields: effects.request_fields,
        max_body: effects.max_body,
        php: effects.php,
        error_documents: effects.error_documents,
        says: effects.says,
        depends_on: DependsOn::default(),
        reasons,
    }
}

/// True for a byte that must not be part of a field's value (RFC 9110 section 5.5).
fn is_control(byte: u8) -> bool {
    (byte < 32 && byte != b'\t') || byte == 127
}

/// The start of a pass.
struct PassStart {
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    variables: Variables,
    depth: usize,
    rewriting_ended: bool,
    vary: Vec<Vec<u8>>,
    cookies: Vec<Vec<u8>>,
    status: u16,
}

impl PassStart {
    fn first(context: &Context<'_>) -> Self {
        let request = context.request;
        let mut variables = Variables::default();
        if let Some(failed) = &request.error {
            variables = Variables(failed.environment.to_vec()).redirected();
            redirected_from(&mut variables, failed.status, failed.path, failed.query);
            variables.set(b"REDIRECT_REQUEST_METHOD", failed.method.to_vec());
        }
        Self {
            path: request.path.to_vec(),
            query: request.query.map(<[u8]>::to_vec),
            variables,
            depth: 0,
            rewriting_ended: false,
            vary: Vec::new(),
            cookies: Vec::new(),
            status: request.error.map_or(0, |failed| failed.status),
        }
    }
}

/// Sets the variables from which a script can tell that its path was not in the request.
fn redirected_from(variables: &mut Variables, status: u16, path: &[u8], query: Option<&[u8]>) {
    variables.set(b"REDIRECT_STATUS", status.to_string().into_bytes());
    variables.set(b"REDIRECT_URL", path.to_vec());
    match query {
        Some(query) => variables.set(b"REDIRECT_QUERY_STRING", query.to_vec()),
        None => variables.remove(b"REDIRECT_QUERY_STRING"),
    }
}

/// The start of the pass after an internal redirect.
fn again(pass: &Pass, path: &[u8]) -> Result<PassStart, u16> {
    let mark = path.iter().position(|byte| *byte == b'?');
    let (path, query) = match mark {
        Some(mark) => (&path[..mark], Some(path[mark + 1..].to_vec())),
        None => (path, None),
    };
    let query = match (query, &pass.query) {
        (Some(first), Some(second)) => Some(text::concat(&[&first, b"?", second])),
        (first, second) => first.or_else(|| second.clone()),
    };
    let path = text::decode_path(path).map_err(|error| match error {
        BadPath::Malformed => 400_u16,
        BadPath::Hidden => 404,
    })?;
    let mut variables = pass.variables.redirected();
    let status = if pass.status == 0 { 200 } else { pass.status };
    redirected_from(&mut variables, status, &pass.path, pass.query.as_deref());
    Ok(PassStart {
        path,
        query,
        variables,
        depth: pass.depth,
        rewriting_ended: pass.rewriting_ended,
        vary: pass.vary.clone(),
        cookies: pass.cookies.clone(),
        status: pass.status,
    })
}

/// The result of one pass.
struct Processed {
    next: PassResult,
    effects: Effects,
    why: Option<Reason>,
}

enum PassResult {
    Answer(Answer),
    /// Begin again with this path, which is not decoded yet, and with the pass's query.
    Again(Vec<u8>),
}

/// A field of the request and its new value; `None` removes the field.
type FieldChange = (Vec<u8>, Option<Vec<u8>>);

/// The effects of the rules besides the answer.
struct Effects {
    pass: Pass,
    response: ResponseRules,
    request_fields: Vec<FieldChange>,
    max_body: Option<u64>,
    php: Vec<crate::PhpSetting>,
    error_documents: Vec<(u16, ErrorDocument)>,
    says: Says,
}

impl Effects {
    fn none(pass: Pass) -> Self {
        let response = ResponseRules {
            headers: Vec::new(),
            expires: crate::expires::Config::default(),
            default_charset: None,
            pass: Pass::default(),
        };
        let (request_fields, php, error_documents) = (Vec::new(), Vec::new(), Vec::new());
        let max_body = None;
        Self {
            pass,
            response,
            request_fields,
            max_body,
            php,
            error_documents,
            says: Says::default(),
        }
    }

    fn of(context: &Context<'_>, pass: Pass, merged: &Merged<'_>) -> Self {
        let response = ResponseRules {
            headers: merged.response_headers.clone(),
            expires: merged.expires.clone(),
            default_charset: merged.default_charset.cloned(),
            pass: Pass::default(),
        };
        let mut evaluation = Evaluation::new(context, &pass);
        let documents = merged.error_documents.iter().filter_map(|(status, document)| {
            let document = match (*document)? {
                Document::Text(text) => ErrorDocument::Text(text.expand(&mut evaluation)),
                Document::Path(text) => ErrorDocument::Path(text.expand(&mut evaluation)),
                Document::Uri(text) => {
                    let uri = text.expand(&mut evaluation);
                    if uri.iter().any(|byte| is_control(*byte)) {
                        return None;
                    }
                    ErrorDocument::Redirect(uri)
                }
            };
            Some((*status, document))
        });
        let error_documents = documents.collect();
        let request_fields = Vec::new();
        Self {
            request_fields,
            max_body: merged.max_body,
            php: merged.php.clone(),
            error_documents,
            says: merged.says(),
            response,
            pass,
        }
    }
}

/// The folders in which look-ups find their rules.
struct Folders<'a>(&'a dyn Files);

impl LookUps for Folders<'_> {
    fn look_up(&self, context: &Context<'_>, path: &[u8], pass: &Pass) -> LookedUp {
        look_up(context, self.0, path, pass)
    }
}

fn look_up(context: &Context<'_>, files: &dyn Files, path: &[u8], pass: &Pass) -> LookedUp {
    let failed = |status| LookedUp { status, pass: Pass::default() };
    let Some(processed) = process_within(context, files, path, pass) else { return failed(500) };
    let Some(processed) = processed else { return failed(404) };
    let status = match &processed.next {
        PassResult::Answer(Answer::Refuse { status } | Answer::Redirect { status, .. }) => *status,
        PassResult::Answer(Answer::Authenticate { .. }) => 401,
        PassResult::Answer(Answer::Serve(_) | Answer::List(_) | Answer::Missing(_))
        | PassResult::Again(_) => 200,
    };
    LookedUp { status, pass: processed.effects.pass }
}

/// A request within a request. `None`: the limit of look-ups is reached; `Some(None)`: the path is
/// wrong.
#[allow(clippy::option_option, reason = "two ways to fail with different statuses")]
fn process_within(
    context: &Context<'_>,
    files: &dyn Files,
    path: &[u8],
    pass: &Pass,
) -> Option<Option<Processed>> {
    if pass.depth >= limits::LOOKUP_DEPTH || context.budget.lookup().is_err() {
        return None;
    }
    let (path, query) = match path.iter().position(|byte| *byte == b'?') {
        Some(mark) => (&path[..mark], Some(path[mark + 1..].to_vec())),
        None => (path, None),
    };
    // The path is relative to the folder of the request.
    let folder = pass.path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let path = if path.first() == Some(&b'/') {
        path.to_vec()
    } else {
        text::concat(&[&pass.path[..folder], path])
    };
    let Ok(path) = text::decode_path(&path) else { return Some(None) };
    let start = PassStart {
        path,
        query,
        variables: pass.variables.clone(),
        depth: pass.depth + 1,
        rewriting_ended: pass.rewriting_ended,
        vary: Vec::new(),
        cookies: Vec::new(),
        status: pass.status,
    };
    Some(Some(process(context, files, start)))
}

/// One pass.
fn process(context: &Context<'_>, files: &dyn Files, start: PassStart) -> Processed {
    let mut pass = Pass {
        path: start.path,
        query: start.query,
        variables: start.variables,
        depth: start.depth,
        rewriting_ended: start.rewriting_ended,
        vary: start.vary,
        cookies: start.cookies,
        status: start.status,
        ..Pass::default()
    };
    let refuse = |pass: Pass, refusal: Refusal| {
        let answer = Answer::Refuse { status: refusal.status };
        Processed {
            next: PassResult::Answer(answer),
            effects: Effects::none(pass),
            why: refusal.why,
        }
    };
    let chain = match walk(context, files, &mut pass) {
        Ok(chain) => chain,
        Err(refusal) => return refuse(pass, refusal),
    };
    let mut merged = match Merged::of(context, &pass, &chain) {
        Ok(merged) => merged,
        Err(refusal) => return refuse(pass, refusal),
    };
    pass.depend_on(std::mem::take(&mut merged.vary));
    let mut phases = Phases { context, files, merged: &merged, pass, why: None };
    let decided = phases.decide();
    let (pass, why) = (phases.pass, phases.why);
    match decided {
        Ok(Decided::Index(processed)) => *processed,
        Ok(Decided::Next(next)) => {
            let request_fields = request_fields(context, &pass, &merged);
            let mut effects = Effects::of(context, pass, &merged);
            match request_fields {
                Ok(fields) => effects.request_fields = fields,
                Err(Refusal { status, why }) => {
                    let next = PassResult::Answer(Answer::Refuse { status });
                    return Processed { next, effects, why };
                }
            }
            Processed { next, effects, why }
        }
        Err(Refusal { status, why }) => {
            let next = PassResult::Answer(Answer::Refuse { status });
            Processed { next, effects: Effects::of(context, pass, &merged), why }
        }
    }
}

enum Decided {
    Next(PassResult),
    /// An index file answers, with the rules that apply to it.
    Index(Box<Processed>),
}

struct Phases<'a> {
    context: &'a Context<'a>,
    files: &'a dyn Files,
    merged: &'a Merged<'a>,
    pass: Pass,
    why: Option<Reason>,
}

impl Phases<'_> {
    fn decide(&mut self) -> Result<Decided, Refusal> {
        let (context, merged) = (self.context, self.merged);
        let no_tls = merged.require_tls.as_ref().filter(|_| !context.request.https);
        if let Some(why) = merged.refused.as_ref().or(no_tls) {
            return Err(Refusal { status: 403, why: Some(why.clone()) });
        }
        for conditional in &merged.conditional {
            let applied = conditional.apply(context, &mut self.pass);
            applied.map_err(|_| Refusal::status(500))?;
        }
        if let Some(answer) = authorise(self.context, &mut self.pass, merged)? {
            return Ok(Decided::Next(PassResult::Answer(answer)));
        }
        let configs: Vec<&media::Config> = merged.media.clone();
        let media = media::media(context, &configs, &self.pass.file);
        let again = self.rewrite()?;
        if let Some(PassResult::Answer(answer)) = again {
            return Ok(Decided::Next(PassResult::Answer(answer)));
        }
        for fixed in &merged.fixed {
            match fixed {
                Fixed::Set(name, value) => self.pass.variables.set(name, value.clone()),
                Fixed::Unset(name) => self.pass.variables.remove(name),
            }
        }
        if let Some(answer) = self.redirect()? {
            return Ok(Decided::Next(PassResult::Answer(answer)));
        }
        let is_folder = self.is(Kind::Folder);
        if is_folder && self.pass.path_info.is_empty() {
            if let Some(answer) = self.slash() {
                return Ok(Decided::Next(PassResult::Answer(answer)));
            }
            if again.is_none()
                && let Some(processed) = self.index()?
            {
                return Ok(Decided::Index(Box::new(processed)));
            }
        } else if self.pass.found.is_none()
            && again.is_none()
            // A missing script stays missing, as does a script among the index files.
            && !has_handler(self.context, &self.pass, merged, &media)
            && let Some(processed) = self.fallback()
        {
            return Ok(Decided::Index(Box::new(processed)));
        }
        match again {
            Some(next) => Ok(Decided::Next(next)),
            None => self.target(media).map(|answer| Decided::Next(PassResult::Answer(answer))),
        }
    }

    fn is(&self, kind: Kind) -> bool {
        self.pass.found.is_some_and(|found| found.kind == kind)
    }

    fn rewrite(&mut self) -> Result<Option<PassResult>, Refusal> {
        let rules = &self.merged.rewrite;
        if rules.engine && !self.merged.follow_links && !self.merged.follow_own_links {
            let text = "Options forbid symbolic links, and rewriting with them".to_owned();
            let first = rules.rules.first();
            let why = first.map(|(file, rule)| (file.to_string(), rule.line));
            let why = why.map(|(file, line)| Reason { file, line, text });
            return Err(Refusal { status: 403, why });
        }
        match rewrite(self.context, &mut self.pass, rules)? {
            Rewritten::Unchanged => Ok(None),
            Rewritten::Redirect { status, location, why } => {
                self.why = Some(why);
                Ok(Some(PassResult::Answer(Answer::Redirect { status, location })))
            }
            Rewritten::Again(path, why) => {
                self.why = Some(why);
                Ok(Some(PassResult::Again(path)))
            }
        }
    }

    /// `Redirect` and `RedirectMatch`.
    fn redirect(&mut self) -> Result<Option<Answer>, Refusal> {
        for (file, redirect) in &self.merged.redirects {
            let target = redirect.target(self.context, &self.pass);
            let Some(location) = target.map_err(|_| Refusal::status(500))? else { continue };
            let (status, line) = (redirect.status, redirect.line);
            let text = format!("redirected with status {status}");
            self.why = Some(Reason { file: file.name().to_string(), line, text });
            return Ok(Some(match status {
                300..=399 => Answer::Redirect { status, location },
                _ => Answer::Refuse { status },
            }));
        }
        Ok(None)
    }

    /// Redirects a folder's path without a slash at its end to the path with one.
    fn slash(&self) -> Option<Answer> {
        if self.pass.path.last() == Some(&b'/') || self.merged.slash == Some(false) {
            return None;
        }
        let origin = variables::origin(self.context);
        let mut location = text::concat(&[&origin, &text::escape_path(&self.pass.path), b"/"]);
        if let Some(query) = &self.pass.query {
            location = text::concat(&[&location, b"?", query]);
        }
        Some(Answer::Redirect { status: 301, location })
    }

    /// The first index file of a folder that exists.
    fn index(&mut self) -> Result<Option<Processed>, Refusal> {
        if self.pass.path.last() != Some(&b'/') {
            return Ok(None);
        }
        let names = self.merged.index.unwrap_or(self.context.site.index);
        let mut other = None;
        for name in names {
            let Some(processed) = self.within(name) else { continue };
            let found = processed.effects.pass.found.is_some_and(|found| found.kind == Kind::File);
            match &processed.next {
                PassResult::Again(_) | PassResult::Answer(Answer::Serve(_)) if found => {
                    return Ok(Some(self.adopted(processed)));
                }
                PassResult::Answer(Answer::Redirect { .. }) => {
                    return Ok(Some(self.adopted(processed)));
                }
                PassResult::Answer(Answer::Authenticate { .. }) if names.len() == 1 => {
                    return Ok(Some(self.adopted(processed)));
                }
                PassResult::Answer(Answer::Refuse { status }) if *status != 404 => {
                    let why = processed.why.clone();
                    other = Some(Refusal { status: *status, why });
                }
                PassResult::Answer(Answer::Authenticate { .. }) => {
                    other = Some(Refusal::status(401));
                }
                _ => {}
            }
        }
        match other {
            Some(refusal) => Err(refusal),
            None => Ok(None),
        }
    }

    /// `FallbackResource`
    fn fallback(&mut self) -> Option<Processed> {
        let path = self.merged.fallback?;
        let processed = self.within(path)?;
        let found = processed.effects.pass.found.is_some_and(|found| found.kind == Kind::File);
        let serves =
            matches!(processed.next, PassResult::Again(_) | PassResult::Answer(Answer::Serve(_)));
        (found && serves).then(|| self.adopted(processed))
    }

    fn within(&self, path: &[u8]) -> Option<Processed> {
        let path = match &self.pass.query {
            Some(query) => text::concat(&[path, b"?", query]),
            None => path.to_vec(),
        };
        process_within(self.context, self.files, &path, &self.pass)?
    }

    /// Turns a look-up into the request itself.
    fn adopted(&self, mut processed: Processed) -> Processed {
        let pass = &mut processed.effects.pass;
        pass.depth = self.pass.depth;
        pass.vary = [self.pass.vary.as_slice(), &pass.vary].concat();
        pass.cookies = [self.pass.cookies.as_slice(), &pass.cookies].concat();
        processed
    }

    /// The file or folder at the path, once no other phase has an answer.
    fn target(&mut self, media: Media) -> Result<Answer, Refusal> {
        let (merged, found) = (self.merged, self.pass.found);
        let handler = handler(self.context, &self.pass, merged, &media)?;
        let Media { content_type, by_rule, encodings, languages, charset, .. } = media;
        let forced = self.pass.forced_type.clone().or_else(|| merged.force_type.cloned());
        let forced = forced.filter(|forced| !forced.iter().any(|byte| is_control(*byte)));
        let charset = charset.filter(|_| forced.is_none());
        let target = RequestedFile {
            file: self.pass.file.clone(),
            path: self.pass.path.clone(),
            path_info: self.pass.path_info.clone(),
            query: self.pass.query.clone(),
            handler,
            content_type: match forced {
                Some(forced) => Some(Some(forced)),
                None => by_rule.then_some(content_type),
            },
            encoding: media::joined(&encodings),
            language: media::joined(&languages),
            charset,
            etag: merged.etag != Some(false),
        };
        let accepts_path_info = match (merged.path_info, handler) {
            (Some(PathInfo::Always), _) => true,
            (Some(PathInfo::Never), _) => false,
            (_, handler) => handler == Handler::Php,
        };
        let name = self.pass.file.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // Files with rules and passwords are never served, whatever the rules say.
        if name.starts_with(b".ht") {
            return Err(Refusal::status(403));
        }
        Ok(match found.map(|found| found.kind) {
            None => Answer::Missing(target),
            Some(_) if !self.pass.path_info.is_empty() && !accepts_path_info => {
                Answer::Missing(target)
            }
            Some(Kind::Folder) if merged.listing => Answer::List(target),
            Some(Kind::Folder | Kind::Other) => Answer::Refuse { status: 403 },
            Some(Kind::File) => Answer::Serve(target),
        })
    }
}

/// The changes that `RequestHeader` makes to the request's fields.
fn request_fields(
    context: &Context<'_>,
    pass: &Pass,
    merged: &Merged<'_>,
) -> Result<Vec<FieldChange>, Refusal> {
    if merged.request_headers.is_empty() {
        return Ok(Vec::new());
    }
    let mut fields = Vec::new();
    context.fields().each(&mut |name, value| fields.push((name.to_vec(), value.to_vec())));
    let before = fields.clone();
    for rule in &merged.request_headers {
        let changed = rule.applies(context, pass, &[]).and_then(|applies| {
            if applies { rule.change(context, pass, &[], &mut fields) } else { Ok(()) }
        });
        // A script may trust a field that the rule was to remove.
        changed.map_err(|_| Refusal::status(500))?;
    }
    let has = |fields: &[(Vec<u8>, Vec<u8>)], name: &[u8]| {
        fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    let gone = before.iter().filter(|(name, _)| !has(&fields, name));
    let gone = gone.map(|(name, _)| (name.clone(), None));
    let changed = fields.iter().filter(|field| !before.contains(field));
    let changed = changed.map(|(name, value)| (name.clone(), Some(value.clone())));
    Ok(gone.chain(changed).collect())
}
